//! Stores unreadable messages for an operator, and halts cells whose records contradict themselves.

use crate::port::{PortError, Ports};
use crate::record::{Expect, Key, Record, Write};
use serde::{Deserialize, Serialize};
use sluice_model::Timestamp;
use sluice_model::wakeup::MessageQueue;

/// A quarantined message, or the mark of a halted cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineEntry {
    /// When it was quarantined or halted.
    pub at: Timestamp,
    /// Why, for the operator who has to repair it.
    pub reason: String,
    /// The message's text, cut at 32 KB; empty for a cell.
    pub body: String,
}

/// The most characters of a reason, which may quote an unreadable record.
const REASON_MAX: usize = 1_000;

/// The partition of unreadable messages.
pub const QUARANTINE: &str = "quarantine";

/// Returns the key of the mark that halts a cell.
pub fn halt_key(partition: &str) -> Key {
    Key::new(partition, "halted")
}

/// Returns whether the function of a message queue owns a cell and reads its halt mark: the gate
/// for change queues, the launcher for providers. Other functions halt nothing: nothing would read
/// the mark, and the message would be lost.
pub fn honors_halt(queue: MessageQueue, partition: &str) -> bool {
    match partition.split_once('#') {
        Some(("queue", _)) => queue == MessageQueue::Gate,
        Some(("provider", _)) => queue == MessageQueue::Pool,
        _ => false,
    }
}

/// Returns why a cell is halted, from its halt mark; `None` when it has none. A damaged mark still
/// halts it.
///
/// # Errors
/// When the store does not answer.
pub async fn halt_reason(ports: &Ports, partition: &str) -> Result<Option<String>, PortError> {
    let found = ports.records.get(&[halt_key(partition)]).await?;
    Ok(found.iter().flatten().next().map(recorded_reason))
}

/// Returns the reason in the mark of a halted cell; for a damaged mark, a text that says so.
pub fn recorded_reason(mark: &Record) -> String {
    match serde_json::from_str::<QuarantineEntry>(&mark.body) {
        Ok(entry) => entry.reason,
        Err(error) => format!("the reason in its halt mark is damaged: {error}"),
    }
}

/// Logs an unreadable message and stores it in quarantine, cut to 32 KB, under its queue and id.
/// The caller removes it from its queue. Storing it twice is harmless.
///
/// # Errors
/// When the store does not answer; the message then stays in its queue.
pub async fn quarantine_message(
    ports: &Ports,
    queue: &str,
    id: &str,
    body: &str,
    reason: &str,
) -> Result<(), PortError> {
    tracing::error!(queue, message = id, reason, "an unreadable message was moved to quarantine");
    let cut = body
        .char_indices()
        .take_while(|(at, _)| *at < 32 * 1024)
        .last()
        .map_or(0, |(at, c)| at + c.len_utf8());
    put(ports, Key::new(QUARANTINE, format!("{queue}#{id}")), reason, &body[..cut]).await
}

/// Halts a cell whose records cannot be decided on, until an operator resumes it: writes its halt
/// mark, in place of an earlier one, and logs it. The stored reason is cut to `REASON_MAX`
/// characters.
///
/// # Errors
/// When the store does not answer.
pub async fn halt_cell(ports: &Ports, partition: &str, reason: &str) -> Result<(), PortError> {
    let cut: String = reason.chars().take(REASON_MAX).collect();
    put(ports, halt_key(partition), &cut, "").await?;
    tracing::error!(cell = partition, reason, "a cell is halted until an operator resumes it");
    Ok(())
}

/// Stores a quarantine entry with the present time, in place of one under the same key.
async fn put(ports: &Ports, key: Key, reason: &str, body: &str) -> Result<(), PortError> {
    let entry =
        QuarantineEntry { at: ports.clock.now(), reason: reason.to_owned(), body: body.to_owned() };
    let body = serde_json::to_string(&entry)
        .map_err(|error| PortError::unknown("write a quarantine record", error))?;
    let mut record = Record::new(key, body);
    record.revision = 1;
    let write_id = ports.entropy.token();
    ports.records.commit(vec![Write::Put { record, expect: Expect::Anything }], &write_id).await?;
    Ok(())
}
