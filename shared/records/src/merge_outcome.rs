//! The merger's answer to a merge request. It never changes once it is written.

use crate::codec::{encode_first, expiry};
use sluice_gate::MergeOutcome;
use sluice_model::{ItemId, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};

/// Returns the key of the answer for an item in one speculative state, under one layout.
pub fn key(item: &ItemId, generation: u64, layout: u64) -> Key {
    Key::new(format!("merge#{item}"), format!("{generation:08}-{layout:08}"))
}

/// Returns the write of an answer. It fails when there is an answer already. It expires some weeks
/// after `now`.
///
/// # Errors
/// When the record is too large.
pub fn put(outcome: &MergeOutcome, now: Timestamp) -> Result<Write, PortError> {
    let mut record = encode_first(key(&outcome.item, outcome.generation, outcome.layout), outcome)?;
    record.expires_at = Some(expiry(now));
    Ok(Write::Put { record, expect: Expect::Absent })
}
