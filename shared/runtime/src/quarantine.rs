//! Quarantine: what could not be read is kept for people, then acknowledged; a broken cell is
//! frozen with its reason.

use crate::port::{PortError, Ports};
use crate::record::{Expect, Key, Record, Write};
use serde::{Deserialize, Serialize};
use sluice_model::Timestamp;
use sluice_model::poke::Queue;

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

/// Characters of the reason that are kept: what cannot be read may be quoted in it.
const REASON_MAX: usize = 1_000;

/// The partition of messages that nobody could read.
pub const QUARANTINE: &str = "quarantine";

/// Returns the key that marks a partition as frozen.
pub fn frozen_key(partition: &str) -> Key {
    Key::new(partition, "frozen")
}

/// Returns whether the function behind a message queue rules a cell and heeds its mark: the gate
/// those of change queues, the launcher those of providers. Nobody else freezes anything, since a
/// mark that nobody reads would only lose the message.
pub fn is_heeded(queue: Queue, partition: &str) -> bool {
    match partition.split_once('#') {
        Some(("queue", _)) => queue == Queue::Gate,
        Some(("provider", _)) => queue == Queue::Pool,
        _ => false,
    }
}

/// Returns why a cell is frozen, and nothing where it is not.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn frozen_because(ports: &Ports, partition: &str) -> Result<Option<String>, PortError> {
    let found = ports.records.get(&[frozen_key(partition)]).await?;
    Ok(found.iter().flatten().next().map(reason))
}

/// Returns the reason that a frozen cell's mark gives.
pub fn reason(mark: &Record) -> String {
    match serde_json::from_str::<SetAside>(&mark.body) {
        Ok(aside) => aside.reason,
        Err(error) => format!("its mark does not say why: {error}"),
    }
}

/// Keeps an unreadable message. Doing it twice is harmless.
///
/// # Errors
/// Whatever the store could not answer; the message then stays in its queue.
pub async fn keep(
    ports: &Ports,
    queue: &str,
    id: &str,
    body: &str,
    reason: &str,
) -> Result<(), PortError> {
    tracing::error!(
        queue,
        message = id,
        reason,
        "a message that cannot be read goes to quarantine"
    );
    let cut = body
        .char_indices()
        .take_while(|(at, _)| *at < 32 * 1024)
        .last()
        .map_or(0, |(at, c)| at + c.len_utf8());
    put(ports, Key::new(QUARANTINE, format!("{queue}#{id}")), reason, &body[..cut]).await
}

/// Freezes a cell whose own record cannot be decided on. The mark is removed by an operator.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn freeze(ports: &Ports, partition: &str, reason: &str) -> Result<(), PortError> {
    let cut: String = reason.chars().take(REASON_MAX).collect();
    put(ports, frozen_key(partition), &cut, "").await?;
    tracing::error!(cell = partition, reason, "a cell is frozen");
    Ok(())
}

async fn put(ports: &Ports, key: Key, reason: &str, body: &str) -> Result<(), PortError> {
    let aside =
        SetAside { at: ports.clock.now(), reason: reason.to_owned(), body: body.to_owned() };
    let body = serde_json::to_string(&aside)
        .map_err(|error| PortError::unknown("write a quarantine record", error))?;
    let mut record = Record::new(key, body);
    record.revision = 1;
    let write_id = ports.entropy.token();
    ports.records.commit(vec![Write::Put { record, expect: Expect::Anything }], &write_id).await?;
    Ok(())
}
