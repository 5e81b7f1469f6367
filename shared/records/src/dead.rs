//! Dead letters that were given another life, so that a message that dies again and again does not
//! become many.
//!
//! `dead-letter#<hash of the poke>` / `head`. Written by the timer alone; forgotten after a while.

use crate::codec::encode;
use serde::{Deserialize, Serialize};
use sluice_model::Timestamp;
use sluice_model::id::digest;
use sluice_model::poke::Poke;
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Seconds for which it is remembered.
const KEEP_SECONDS: u64 = 86_400;

/// What is known of a poke that became a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// What it asks for.
    pub poke: Poke,
    /// When it was sent again last.
    pub revived_at: Timestamp,
    /// How often in all.
    pub times: u64,
}

/// Returns the key of a dead letter.
///
/// # Errors
/// When the poke cannot be written as JSON.
pub fn key(poke: &Poke) -> Result<Key, PortError> {
    let text = serde_json::to_string(poke)
        .map_err(|error| PortError::unknown("write a poke as JSON", error))?;
    Ok(Key::new(format!("dead-letter#{}", digest(&["dead-letter", &text])), "head"))
}

/// Returns the write of a dead letter on the condition that it is as it was `seen`. By its token a
/// writer that had no answer knows it again.
///
/// # Errors
/// When it is too large.
pub fn put(seen: Option<&Record>, dead: &DeadLetter, token: &str) -> Result<Write, PortError> {
    let revision = seen.map_or(0, |record| record.revision);
    let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
    let record = encode(key(&dead.poke)?, dead)?;
    let expires_at = Some(dead.revived_at.plus_seconds(KEEP_SECONDS));
    Ok(Write::Put {
        record: Record { revision: revision + 1, write_id: token.to_owned(), expires_at, ..record },
        expect,
    })
}
