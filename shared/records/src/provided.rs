//! What a revision of a change provides to those that need it, in one pipeline: a record that its
//! queue writes.

use crate::change;
use crate::codec::{encode_first, expiry};
use sluice_gate::Provided;
use sluice_model::change::ChangeRef;
use sluice_model::name::escape;
use sluice_model::{QueueKey, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};

/// Returns the key of what a revision provides in the pipeline of a queue.
pub fn key(queue: &QueueKey, change: &ChangeRef) -> Key {
    let (tenant, pipeline) = (escape(queue.tenant.as_str()), escape(queue.pipeline.as_str()));
    Key::new(
        format!("provided#{tenant}/{pipeline}/{}", change::partition(&change.key)),
        change.head.as_str(),
    )
}

/// Returns the write of what a revision provides; its queue's revision guards it.
///
/// # Errors
/// When it is too large.
pub fn put(queue: &QueueKey, provided: &Provided, now: Timestamp) -> Result<Write, PortError> {
    let mut record = encode_first(key(queue, &provided.change), provided)?;
    record.expires_at = Some(expiry(now));
    Ok(Write::Put { record, expect: Expect::Anything })
}
