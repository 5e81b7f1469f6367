//! Batches of messages: each group in order, each cell looked at once, each message with its own
//! result.

use crate::port::{Incoming, PortError, Ports};
use crate::quarantine;
use async_trait::async_trait;
use futures::future::join_all;
use sluice_model::poke::{Poke, Queue};
use std::collections::BTreeMap;

/// Receipts after which a cell whose own record cannot be decided on is frozen.
pub const BROKEN_RECEIPTS_MAX: u32 = 4;

/// The longest back-off in seconds.
pub const BACK_OFF_SECONDS_MAX: u32 = 120;

/// The longest pause in seconds that is taken at once because somebody asks for it.
pub const LATER_SECONDS_MAX: u32 = 900;

/// Why a look did not come to an end.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Anything unknown: the message comes again.
    #[error("deliver again: {0}")]
    Again(String),
    /// Somebody asked for, a forge above all, wants to be left alone for so long: the message comes
    /// again then.
    #[error("deliver again in {seconds} s: {why}")]
    Later {
        /// What happened.
        why: String,
        /// How long; more than [`LATER_SECONDS_MAX`] is waited out in several steps.
        seconds: u64,
    },
    /// The cell's own records contradict themselves; after a few receipts the cell is frozen, where
    /// whoever looks at it heeds such a mark ([`quarantine::is_heeded`]). Otherwise the message
    /// ends as a dead letter, and comes to life again, or is left to the sweep that finds its
    /// record due each minute.
    #[error("{partition} cannot be decided on: {reason}")]
    Broken {
        /// The cell.
        partition: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl From<PortError> for LookError {
    fn from(error: PortError) -> Self {
        Self::Again(error.to_string())
    }
}

/// Whether the message that asks for a look was received before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// For the first time.
    First,
    /// It was received and not acknowledged: that look may have died between its commit and the end
    /// of its sending.
    Again,
}

/// A function that looks at cells.
#[async_trait]
pub trait Look: Send + Sync {
    /// Looks at what a poke names; safe to run twice. Whoever leaves an outbox to its message
    /// ([`crate::cell::Guard::Message`]) sends it again where that was received before
    /// ([`Heard::Again`]).
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError>;
    /// Looks at what a message names that is received for the first time.
    async fn look(&self, poke: &Poke) -> Result<(), LookError> {
        self.poked(poke, Heard::First).await
    }
    /// Looks at what a message names that was received before.
    async fn look_again(&self, poke: &Poke) -> Result<(), LookError> {
        self.poked(poke, Heard::Again).await
    }
    /// Returns the ports, for quarantine and back-off.
    fn ports(&self) -> &Ports;
}

/// Handles a batch and returns the ids of messages that must come again.
///
/// Groups run side by side; within a group the first failure ends it, so that order is kept, and a
/// poke that stands twice in a batch is one look, also where the first sees more than the second
/// asks for. A failed message is postponed by a back-off that grows with its receipts.
pub async fn handle(function: &dyn Look, queue: Queue, messages: Vec<Incoming>) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<Incoming>> = BTreeMap::new();
    for message in messages {
        let group = if queue.is_fifo() {
            message.group.clone().unwrap_or_default()
        } else {
            message.id.clone()
        };
        groups.entry(group).or_default().push(message);
    }
    let failed =
        join_all(groups.into_values().map(|group| handle_group(function, queue, group))).await;
    failed.into_iter().flatten().collect()
}

async fn handle_group(function: &dyn Look, queue: Queue, messages: Vec<Incoming>) -> Vec<String> {
    let mut looked: Vec<Poke> = Vec::new();
    let mut failed: Vec<String> = Vec::new();
    for message in messages {
        if !failed.is_empty() {
            // Left behind for order's sake; hidden no longer than the one before it, or it would
            // hold the group back.
            postpone(function.ports(), queue, &message, back_off(&message)).await;
            failed.push(message.id);
            continue;
        }
        if let Err(seconds) = handle_one(function, queue, &message, &mut looked).await {
            postpone(function.ports(), queue, &message, seconds).await;
            failed.push(message.id);
        }
    }
    failed
}

/// Handles one message; the error is the number of seconds after which it is to come again.
async fn handle_one(
    function: &dyn Look,
    queue: Queue,
    message: &Incoming,
    looked: &mut Vec<Poke>,
) -> Result<(), u32> {
    let name = format!("{queue:?}");
    let poke = match serde_json::from_str::<Poke>(&message.body) {
        Ok(poke) => poke,
        Err(error) => {
            let reason = format!("not a poke: {error}");
            let kept =
                quarantine::keep(function.ports(), &name, &message.id, &message.body, &reason)
                    .await;
            return kept.map_err(|_| back_off(message));
        }
    };
    if looked.iter().any(|done| done.covers(&poke)) {
        return Ok(());
    }
    let looks =
        if message.receive_count > 1 { function.look_again(&poke) } else { function.look(&poke) };
    match looks.await {
        Ok(()) => {
            looked.push(poke);
            Ok(())
        }
        Err(LookError::Broken { partition, reason })
            if quarantine::is_heeded(queue, &partition) =>
        {
            set_aside(function.ports(), message, &partition, &reason).await
        }
        Err(LookError::Broken { partition, reason })
            if message.receive_count >= BROKEN_RECEIPTS_MAX && is_due_by_itself(&poke) =>
        {
            tracing::error!(
                cell = partition,
                reason,
                ?poke,
                "it cannot be decided on, and is looked at again by the sweep"
            );
            Ok(())
        }
        Err(error) => {
            tracing::warn!(queue = name, message = message.id, receipts = message.receive_count, %error, "a look failed");
            Err(match error {
                LookError::Later { seconds, .. } => {
                    let seconds =
                        u32::try_from(seconds).unwrap_or(LATER_SECONDS_MAX).min(LATER_SECONDS_MAX);
                    seconds.max(back_off(message))
                }
                LookError::Again(_) | LookError::Broken { .. } => back_off(message),
            })
        }
    }
}

/// Returns whether the record that a poke names is due each minute until it is over. Such a message
/// need not stay in its group, where others wait behind it that have nothing to do with what is
/// wrong.
fn is_due_by_itself(poke: &Poke) -> bool {
    matches!(poke, Poke::Delivery { .. } | Poke::Report { .. })
}

/// Freezes a cell that cannot be decided on, once its message was received often enough; the error
/// is as that of [`handle_one`]. A message about a cell that is frozen already is done with: the
/// rest is an operator's turn.
async fn set_aside(
    ports: &Ports,
    message: &Incoming,
    partition: &str,
    reason: &str,
) -> Result<(), u32> {
    // A record that cannot be read may have ended the look before it came to the mark.
    let ended = match quarantine::frozen_because(ports, partition).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) if message.receive_count < BROKEN_RECEIPTS_MAX => {
            tracing::warn!(
                cell = partition,
                reason,
                receipts = message.receive_count,
                "a cell cannot be decided on"
            );
            return Err(back_off(message));
        }
        Ok(None) => quarantine::freeze(ports, partition, reason).await,
        Err(error) => Err(error),
    };
    ended.map_err(|error| {
        tracing::error!(cell = partition, reason, %error, "a cell that cannot be decided on could not be frozen");
        back_off(message)
    })
}

/// Returns the seconds of a pause that grows with a message's receipts.
fn back_off(message: &Incoming) -> u32 {
    1_u32
        .checked_shl(message.receive_count.min(16))
        .map_or(BACK_OFF_SECONDS_MAX, |s| s.min(BACK_OFF_SECONDS_MAX))
}

async fn postpone(ports: &Ports, queue: Queue, message: &Incoming, seconds: u32) {
    if let Err(error) = ports.queues.postpone(queue, &message.receipt, seconds).await {
        // The queue's own visibility time-out brings it back, only later.
        tracing::debug!(message = message.id, %error, "a failed message could not be postponed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fails comes again soon at first, and never later than the longest back-off.
    #[test]
    fn the_back_off_doubles_with_each_receipt_up_to_its_bound() {
        let seconds = |receive_count| {
            let (id, body, receipt) = Default::default();
            back_off(&Incoming { id, body, receipt, group: None, receive_count })
        };
        let table = [
            (0, 1),
            (1, 2),
            (2, 4),
            (3, 8),
            (4, 16),
            (5, 32),
            (6, 64),
            (7, 120),
            (16, 120),
            (u32::MAX, 120),
        ];
        for (receipts, expected) in table {
            assert_eq!(seconds(receipts), expected, "received {receipts} times");
        }
    }

    /// A mark is written for those alone who look at it.
    #[test]
    fn only_the_gate_freezes_queues_and_only_the_launcher_providers() {
        let partitions = [
            "queue#demo/gate/q",
            "provider#ec2",
            "tenant#demo",
            "image#demo/debian",
            "landing#1",
            "queue",
        ];
        for queue in Queue::ALL {
            let heeded: Vec<&str> = partitions
                .into_iter()
                .filter(|partition| quarantine::is_heeded(queue, partition))
                .collect();
            let expected: &[&str] = match queue {
                Queue::Gate => &["queue#demo/gate/q"],
                Queue::Pool => &["provider#ec2"],
                _ => &[],
            };
            assert_eq!(heeded, expected, "{queue:?}");
        }
    }
}
