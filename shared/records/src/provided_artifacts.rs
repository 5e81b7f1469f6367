//! The artifacts that a revision of a change provides, in one pipeline, to changes that depend on
//! it. The change's queue writes the record.

use crate::change;
use crate::codec::{encode_first, expiry};
use sluice_gate::ProvidedArtifacts;
use sluice_model::change::ChangeRef;
use sluice_model::name::escape;
use sluice_model::{QueueKey, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};

/// Returns the key of the artifacts of a revision in the pipeline of `queue`.
pub fn key(queue: &QueueKey, change: &ChangeRef) -> Key {
    let (tenant, pipeline) = (escape(queue.tenant.as_str()), escape(queue.pipeline.as_str()));
    Key::new(
        format!("provided#{tenant}/{pipeline}/{}", change::partition(&change.key)),
        change.head.as_str(),
    )
}

/// Returns the unconditional write of the artifacts of a revision in the pipeline of `queue`. It
/// replaces earlier artifacts and expires some weeks after `now`. It belongs in a commit of the
/// queue: the condition on the queue's head guards it.
///
/// # Errors
/// When the record is too large.
pub fn put(
    queue: &QueueKey,
    provided: &ProvidedArtifacts,
    now: Timestamp,
) -> Result<Write, PortError> {
    let mut record = encode_first(key(queue, &provided.change), provided)?;
    record.expires_at = Some(expiry(now));
    Ok(Write::Put { record, expect: Expect::Anything })
}
