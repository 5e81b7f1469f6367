//! Dead letters that the timer sent again. The record limits how often one message is revived.
//!
//! `dead-letter#<hash of the wakeup>` / `head`, written only by the timer and deleted after a day.

use crate::codec::encode;
use serde::{Deserialize, Serialize};
use sluice_model::Timestamp;
use sluice_model::id::digest;
use sluice_model::wakeup::Wakeup;
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Seconds for which the record is kept.
const KEEP_SECONDS: u64 = 86_400;

/// A wakeup that became a dead letter and was sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The wakeup.
    pub wakeup: Wakeup,
    /// When it was last sent again.
    pub revived_at: Timestamp,
    /// How many times it was sent again.
    pub times: u64,
}

/// Returns the key of a dead letter's record.
///
/// # Errors
/// When the wakeup cannot be written as JSON.
pub fn key(wakeup: &Wakeup) -> Result<Key, PortError> {
    let text = serde_json::to_string(wakeup)
        .map_err(|error| PortError::unknown("write a wakeup as JSON", error))?;
    Ok(Key::new(format!("dead-letter#{}", digest(&["dead-letter", &text])), "head"))
}

/// Returns the write of a dead letter's record, conditional on the revision of `seen` (`None`:
/// there must be no record). `token` becomes the write id of the record: after a write without an
/// answer, the writer recognises its own record by it. The record expires a day after the letter
/// was sent again.
///
/// # Errors
/// When the record is too large.
pub fn put(seen: Option<&Record>, dead: &DeadLetter, token: &str) -> Result<Write, PortError> {
    let revision = seen.map_or(0, |record| record.revision);
    let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
    let record = encode(key(&dead.wakeup)?, dead)?;
    let expires_at = Some(dead.revived_at.plus_seconds(KEEP_SECONDS));
    Ok(Write::Put {
        record: Record { revision: revision + 1, write_id: token.to_owned(), expires_at, ..record },
        expect,
    })
}
