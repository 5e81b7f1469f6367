//! Processes batches of queue messages: each group in order, each cell reconciled once, each
//! message with its own result.

use crate::port::{Incoming, PortError, Ports};
use crate::quarantine;
use async_trait::async_trait;
use futures::future::join_all;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use std::collections::BTreeMap;

/// Receipts of a message after which its undecidable cell is halted.
pub const BROKEN_RECEIPTS_MAX: u32 = 4;

/// The longest back-off in seconds.
pub const BACK_OFF_SECONDS_MAX: u32 = 120;

/// The longest pause in seconds that one postponement can make.
pub const LATER_SECONDS_MAX: u32 = 900;

/// Why a cell was not reconciled.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A failure that may pass: the message is delivered again.
    #[error("deliver again: {0}")]
    Retry(String),
    /// An external service, usually a forge, asked for a pause. The message is delivered again
    /// after it.
    #[error("deliver again in {seconds} s: {why}")]
    RetryAfter {
        /// What the service answered.
        why: String,
        /// The length of the pause; more than [`LATER_SECONDS_MAX`] takes several deliveries.
        seconds: u64,
    },
    /// The records of a cell contradict themselves. After several receipts the cell is halted, if
    /// its function honors halts ([`quarantine::honors_halt`]). Otherwise the message becomes a
    /// dead letter and is revived, or is left to the sweep, which finds the record due each minute.
    #[error("{partition} cannot be decided on: {reason}")]
    Undecidable {
        /// The partition of the cell.
        partition: String,
        /// What is wrong with its records.
        reason: String,
    },
}

impl From<PortError> for ReconcileError {
    fn from(error: PortError) -> Self {
        Self::Retry(error.to_string())
    }
}

/// Whether a message was received before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// It is received for the first time.
    First,
    /// It was received before and not acknowledged. The earlier reconciliation may have stopped
    /// between its commit and the end of sending.
    Redelivery,
}

/// A function that reconciles cells.
#[async_trait]
pub trait Reconciler: Send + Sync {
    /// Reconciles the cell that `wakeup` names; an implementation must be safe to run twice. After
    /// an error the message is delivered again, except that some undecidable cells are halted, or
    /// left to the sweep, after several receipts ([`ReconcileError::Undecidable`]). A function
    /// whose messages guard the outbox ([`crate::cell::OutboxGuard::Message`]) sends the outbox
    /// again on [`Reception::Redelivery`].
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError>;
    /// Reconciles the cell of a message that is received for the first time: calls
    /// [`Self::reconcile`] with [`Reception::First`].
    async fn reconcile_first(&self, wakeup: &Wakeup) -> Result<(), ReconcileError> {
        self.reconcile(wakeup, Reception::First).await
    }
    /// Reconciles the cell of a message that was received before: calls [`Self::reconcile`] with
    /// [`Reception::Redelivery`].
    async fn reconcile_again(&self, wakeup: &Wakeup) -> Result<(), ReconcileError> {
        self.reconcile(wakeup, Reception::Redelivery).await
    }
    /// Returns the ports of the function; [`handle`] uses them for quarantine, halts and back-off.
    fn ports(&self) -> &Ports;
}

/// Processes a batch and returns the ids of the messages that must be delivered again; the queue
/// removes the others. Groups run concurrently; within a group, all messages after a failed one
/// fail too, without being processed. On a standard queue each message is a group of its own.
/// Failed messages are hidden for a time that grows with their receipts, or for the pause that a
/// service asked for. These count as processed: an unreadable message, which is moved to
/// quarantine, and after several receipts the message of an undecidable cell that is halted or that
/// the sweep finds by itself.
///
/// A repeated wakeup of a group is reconciled once, as is one that an earlier wakeup covers.
pub async fn handle(
    function: &dyn Reconciler,
    queue: MessageQueue,
    messages: Vec<Incoming>,
) -> Vec<String> {
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

/// Processes the messages of one group in order. Returns the ids of those that must be delivered
/// again, and hides each of them for some seconds: the first one that failed, and all after it,
/// which are not processed.
async fn handle_group(
    function: &dyn Reconciler,
    queue: MessageQueue,
    messages: Vec<Incoming>,
) -> Vec<String> {
    let mut reconciled: Vec<Wakeup> = Vec::new();
    let mut failed: Vec<String> = Vec::new();
    for message in messages {
        if !failed.is_empty() {
            // Skipped to keep the order. It is hidden no longer than the failed message before it,
            // or it would block the group.
            postpone(function.ports(), queue, &message, back_off(&message)).await;
            failed.push(message.id);
            continue;
        }
        if let Err(seconds) = handle_one(function, queue, &message, &mut reconciled).await {
            postpone(function.ports(), queue, &message, seconds).await;
            failed.push(message.id);
        }
    }
    failed
}

/// Processes one message. The error is the number of seconds after which it must be delivered
/// again. A wakeup that is in `reconciled`, or covered by one of it, is skipped; one that was
/// reconciled is added to it. These also succeed: an unreadable message that was moved to
/// quarantine, an undecidable cell that was halted before, and after several receipts an
/// undecidable cell that is halted now or that the sweep finds by itself.
async fn handle_one(
    function: &dyn Reconciler,
    queue: MessageQueue,
    message: &Incoming,
    reconciled: &mut Vec<Wakeup>,
) -> Result<(), u32> {
    let name = format!("{queue:?}");
    let wakeup = match serde_json::from_str::<Wakeup>(&message.body) {
        Ok(wakeup) => wakeup,
        Err(error) => {
            let reason = format!("it is not a wakeup: {error}");
            let quarantined = quarantine::quarantine_message(
                function.ports(),
                &name,
                &message.id,
                &message.body,
                &reason,
            )
            .await;
            return quarantined.map_err(|_| back_off(message));
        }
    };
    if reconciled.iter().any(|done| done.covers(&wakeup)) {
        return Ok(());
    }
    let result = if message.receive_count > 1 {
        function.reconcile_again(&wakeup)
    } else {
        function.reconcile_first(&wakeup)
    };
    match result.await {
        Ok(()) => {
            reconciled.push(wakeup);
            Ok(())
        }
        Err(ReconcileError::Undecidable { partition, reason })
            if quarantine::honors_halt(queue, &partition) =>
        {
            halt_or_retry(function.ports(), message, &partition, &reason).await
        }
        Err(ReconcileError::Undecidable { partition, reason })
            if message.receive_count >= BROKEN_RECEIPTS_MAX && is_due_by_itself(&wakeup) =>
        {
            tracing::error!(
                cell = partition,
                reason,
                ?wakeup,
                "it cannot be decided on, and is reconciled again by the sweep"
            );
            Ok(())
        }
        Err(error) => {
            tracing::warn!(queue = name, message = message.id, receipts = message.receive_count, %error, "a reconciliation failed; the message is delivered again");
            Err(match error {
                ReconcileError::RetryAfter { seconds, .. } => {
                    let seconds =
                        u32::try_from(seconds).unwrap_or(LATER_SECONDS_MAX).min(LATER_SECONDS_MAX);
                    seconds.max(back_off(message))
                }
                ReconcileError::Retry(_) | ReconcileError::Undecidable { .. } => back_off(message),
            })
        }
    }
}

/// Returns whether the sweep finds the record of a wakeup due each minute: deliveries and reports.
/// Such a message need not block its group.
fn is_due_by_itself(wakeup: &Wakeup) -> bool {
    matches!(wakeup, Wakeup::Delivery { .. } | Wakeup::Report { .. })
}

/// Handles a message whose cell cannot be decided on. Before [`BROKEN_RECEIPTS_MAX`] receipts,
/// fails with the seconds until the next delivery. Then it halts the cell with `reason` and
/// succeeds, or fails in the same way if that is not possible. Succeeds at once for a cell that is
/// halted already: an operator has to resume it.
async fn halt_or_retry(
    ports: &Ports,
    message: &Incoming,
    partition: &str,
    reason: &str,
) -> Result<(), u32> {
    // A damaged record may have ended the reconciliation before it read the mark.
    let ended = match quarantine::halt_reason(ports, partition).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) if message.receive_count < BROKEN_RECEIPTS_MAX => {
            tracing::warn!(
                cell = partition,
                reason,
                receipts = message.receive_count,
                "a cell cannot be decided on; the message is delivered again"
            );
            return Err(back_off(message));
        }
        Ok(None) => quarantine::halt_cell(ports, partition, reason).await,
        Err(error) => Err(error),
    };
    ended.map_err(|error| {
        tracing::error!(cell = partition, reason, %error, "a cell that cannot be decided on could not be halted");
        back_off(message)
    })
}

/// Returns the seconds of a pause that doubles with each receipt of the message: 2 after the first,
/// at most [`BACK_OFF_SECONDS_MAX`].
fn back_off(message: &Incoming) -> u32 {
    1_u32
        .checked_shl(message.receive_count.min(16))
        .map_or(BACK_OFF_SECONDS_MAX, |s| s.min(BACK_OFF_SECONDS_MAX))
}

/// Makes a failed message visible again after some seconds. A failure is only logged, because the
/// queue returns the message anyway.
async fn postpone(ports: &Ports, queue: MessageQueue, message: &Incoming, seconds: u32) {
    if let Err(error) = ports.queues.postpone(queue, &message.receipt, seconds).await {
        // The visibility timeout of the queue returns the message anyway, only later.
        tracing::debug!(message = message.id, %error, "a failed message could not be postponed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first retry comes soon, and no pause exceeds the longest back-off.
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

    /// A cell is only halted when its function reads the mark.
    #[test]
    fn only_the_gate_halts_queues_and_only_the_launcher_providers() {
        let partitions = [
            "queue#demo/gate/q",
            "provider#ec2",
            "tenant#demo",
            "image#demo/debian",
            "landing#1",
            "queue",
        ];
        for queue in MessageQueue::ALL {
            let honored: Vec<&str> = partitions
                .into_iter()
                .filter(|partition| quarantine::honors_halt(queue, partition))
                .collect();
            let expected: &[&str] = match queue {
                MessageQueue::Gate => &["queue#demo/gate/q"],
                MessageQueue::Pool => &["provider#ec2"],
                _ => &[],
            };
            assert_eq!(honored, expected, "{queue:?}");
        }
    }
}
