//! Quarantine: what could not be read is kept for people, then acknowledged; a broken cell is frozen with its reason.

use crate::port::{PortError, Ports};
use crate::record::{Expect, Key, Record, Write};
use serde::{Deserialize, Serialize};
use sluice_model::Timestamp;

/// A message or cell that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// When it was set aside.
    pub at: Timestamp,
    /// Why, for the person who has to mend it.
    pub reason: String,
    /// The message's text, cut at 32 KB; empty for a cell.
    pub body: String,
}

/// The partition of messages that nobody could read.
pub const QUARANTINE: &str = "quarantine";

/// Returns the key that marks a partition as frozen.
pub fn frozen_key(partition: &str) -> Key {
    Key::new(partition, "frozen")
}

/// Keeps an unreadable message. Doing it twice is harmless.
///
/// # Errors
/// Whatever the store could not answer; the message then stays in its queue.
pub async fn keep(ports: &Ports, queue: &str, id: &str, body: &str, reason: &str) -> Result<(), PortError> {
    tracing::error!(queue, message = id, reason, "a message that cannot be read goes to quarantine");
    let cut = body.char_indices().take_while(|(at, _)| *at < 32 * 1024).last().map_or(0, |(at, c)| at + c.len_utf8());
    put(ports, Key::new(QUARANTINE, format!("{queue}#{id}")), reason, &body[..cut]).await
}

/// Freezes a cell whose own record cannot be decided on. The mark is removed by an operator.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn freeze(ports: &Ports, partition: &str, reason: &str) -> Result<(), PortError> {
    put(ports, frozen_key(partition), reason, "").await?;
    tracing::error!(cell = partition, reason, "a cell is frozen");
    Ok(())
}

async fn put(ports: &Ports, key: Key, reason: &str, body: &str) -> Result<(), PortError> {
    let aside = SetAside { at: ports.clock.now(), reason: reason.to_owned(), body: body.to_owned() };
    let body = serde_json::to_string(&aside).map_err(|error| PortError::unknown("write a quarantine record", error))?;
    let mut record = Record::new(key, body);
    record.revision = 1;
    let write_id = ports.entropy.token();
    ports.records.commit(vec![Write::Put { record, expect: Expect::Anything }], &write_id).await?;
    Ok(())
}
