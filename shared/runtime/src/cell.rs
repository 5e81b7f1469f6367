//! Commits a cell's head and its records in one conditional transaction, then sends its outbox.

use crate::port::{Outgoing, PortError, Ports};
use crate::record::{Due, Expect, Record, TRANSACTION_RECORDS_MAX, TransactionOutcome, Write};
use crate::zone_builds;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use std::collections::BTreeMap;

/// Seconds after which the sweep sends an outbox that its writer did not send.
pub const OUTBOX_DUE_SECONDS: u64 = 60;

/// The result of a decision: the head, the records to write with it, and the wakeups to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellCommit {
    /// The head as it was read (revision 0 for a new one) with its new body.
    pub head: Record,
    /// Records written in the same transaction, at most 99.
    pub others: Vec<Write>,
    /// Wakeups to send after the transaction.
    pub wakeups: Vec<Wakeup>,
    /// When to reconcile the cell again; `None` for never.
    pub due: Option<Due>,
}

/// How a commit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made per commit, and the large variant is the usual one"
)]
pub enum CommitOutcome {
    /// It is written; holds the head as stored.
    Written(Record),
    /// A concurrent writer was faster: load and plan again.
    Stale,
}

/// What sends an outbox when its writer stops before it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutboxGuard {
    /// The sweep: the head is due after a minute, until [`clear_outbox`] removes the outbox.
    Sweep,
    /// The message that led to the commit. It is acknowledged after the outbox was sent. Otherwise
    /// it is delivered again, and [`crate::batch::Reconciler::reconcile_again`] sends the outbox.
    /// No write clears the outbox: the next message of a group is received only after the previous
    /// one was acknowledged, so on a first delivery the outbox of the head was sent. When a message
    /// is given up, the timer sends the outbox.
    Message,
}

/// Commits a decision, conditional on the head's revision, and sends nothing: the caller does, with
/// [`deliver`]. Until the outbox is cleared, the sweep finds the head after [`OUTBOX_DUE_SECONDS`]
/// and has it sent.
///
/// # Errors
/// As [`commit_guarded`].
pub async fn commit(ports: &Ports, plan: CellCommit) -> Result<CommitOutcome, PortError> {
    commit_guarded(ports, plan, OutboxGuard::Sweep).await
}

/// Commits a decision and then sends its whole outbox; sends nothing if the commit is stale.
/// Wakeups that `plan.head` still has in its outbox are stored and sent again: the caller removes
/// those that were sent, and on a redelivery sends them before. The stored outbox is not cleared.
/// If sending fails, the commit stays and the caller returns the error, so that the current message
/// is delivered again and has the outbox sent. The returned head has an empty outbox, so that a
/// later commit does not store sent wakeups again.
///
/// # Errors
/// As [`commit_guarded`] and [`send`]. The message is then delivered again, and its next
/// reconciliation sends the outbox.
pub async fn commit_and_send(ports: &Ports, plan: CellCommit) -> Result<CommitOutcome, PortError> {
    match commit_guarded(ports, plan, OutboxGuard::Message).await? {
        CommitOutcome::Written(mut head) => {
            send(ports, &head.outbox).await?;
            head.outbox.clear();
            Ok(CommitOutcome::Written(head))
        }
        CommitOutcome::Stale => Ok(CommitOutcome::Stale),
    }
}

/// Commits head and other records in one transaction, conditional on the head's revision (0: there
/// must be no head). Raises the revision, sets a new write id and the due time, and adds the
/// wakeups to the outbox. Sends nothing; `guard` says what has the outbox sent. `Stale` if any
/// condition failed. An error also for more than 99 other records.
///
/// The outbox of the written head is the unsent part of the old outbox plus the new wakeups. After
/// an error with an unknown effect, the head is read back: its write id shows whether the commit
/// was written. When that fails too, the error is returned and the message is delivered again.
///
/// # Errors
/// When the store does not answer; the caller has its message delivered again.
pub async fn commit_guarded(
    ports: &Ports,
    commit: CellCommit,
    guard: OutboxGuard,
) -> Result<CommitOutcome, PortError> {
    let CellCommit { mut head, others, wakeups, due } = commit;
    let seen = head.revision;
    let expect = if seen == 0 { Expect::Absent } else { Expect::Revision(seen) };
    if others.len() >= TRANSACTION_RECORDS_MAX {
        return Err(PortError::unknown(
            format!("commit {}", head.key),
            format!(
                "the plan writes {} records; a transaction holds {TRANSACTION_RECORDS_MAX}",
                others.len() + 1
            ),
        ));
    }
    head.revision = seen + 1;
    head.write_id = ports.entropy.token();
    head.outbox = merge_outbox(head.outbox, wakeups);
    head.sweep_at = match guard {
        OutboxGuard::Sweep => sweep_time(&head.outbox, due.as_ref(), ports),
        OutboxGuard::Message => due.as_ref().map(|due| due.at),
    };
    head.due = due;
    let mut writes = vec![Write::Put { record: head.clone(), expect }];
    writes.extend(others);
    match ports.records.commit(writes, &head.write_id).await {
        Ok(TransactionOutcome::Written) => Ok(CommitOutcome::Written(head)),
        Ok(TransactionOutcome::ConditionFailed(_)) => Ok(if is_own_write(ports, &head).await? {
            CommitOutcome::Written(head)
        } else {
            CommitOutcome::Stale
        }),
        Err(error) if error.throttled => Err(error),
        Err(error) => {
            tracing::warn!(key = %head.key, %error, "whether a commit was written is unknown; reading it back");
            if is_own_write(ports, &head).await? {
                Ok(CommitOutcome::Written(head))
            } else {
                Err(error)
            }
        }
    }
}

/// Sends wakeups to their queues, in their order within each queue. After an error, some may have
/// been sent. A wakeup with a delay is sent with at most 900 seconds. A build for executors of a
/// zone is stored for them ([`zone_builds`]). Writes no other record: the stored outbox stays until
/// [`clear_outbox`] or the next commit removes it.
///
/// # Errors
/// When any message may not have been sent.
pub async fn send(ports: &Ports, wakeups: &[Wakeup]) -> Result<(), PortError> {
    let mut by_queue: BTreeMap<MessageQueue, Vec<Outgoing>> = BTreeMap::new();
    for wakeup in wakeups {
        if let Wakeup::Build { zone: Some(zone), .. } = wakeup {
            zone_builds::add(ports, zone, wakeup).await?;
            continue;
        }
        let delay_seconds = match wakeup {
            Wakeup::Wake { delay_seconds, .. } => (*delay_seconds).min(900),
            _ => 0,
        };
        let body = serde_json::to_string(wakeup)
            .map_err(|error| PortError::unknown("write a wakeup as JSON", error))?;
        by_queue.entry(wakeup.queue()).or_default().push(Outgoing {
            body,
            group: wakeup.group(),
            delay_seconds,
        });
    }
    for (queue, messages) in by_queue {
        ports.queues.send(queue, messages).await?;
    }
    Ok(())
}

/// Sends the head's outbox and then clears it, in the table and in `head`, which must be as it was
/// stored. Does nothing when the outbox is empty. Clears neither if another commit came in between,
/// which is no error.
///
/// Clearing keeps the revision of the head. It is harmless when a concurrent commit makes it fail,
/// because that commit has read the outbox too.
///
/// # Errors
/// When a message may not have been sent; the outbox then stays.
pub async fn deliver(ports: &Ports, head: &mut Record) -> Result<(), PortError> {
    if head.outbox.is_empty() {
        return Ok(());
    }
    send(ports, &head.outbox).await?;
    clear_outbox(ports, head).await
}

/// Removes a sent outbox from the stored head and from `head`, which must be as it was stored; the
/// revision stays, and only the due time remains for the sweep. Changes neither when the stored
/// head has another revision, which is no error.
///
/// # Errors
/// When the store does not answer.
pub async fn clear_outbox(ports: &Ports, head: &mut Record) -> Result<(), PortError> {
    let mut cleared = head.clone();
    cleared.outbox.clear();
    cleared.sweep_at = cleared.due.as_ref().map(|due| due.at);
    let write_id = ports.entropy.token();
    let write = Write::Put { record: cleared.clone(), expect: Expect::Revision(head.revision) };
    if ports.records.commit(vec![write], &write_id).await? == TransactionOutcome::Written {
        *head = cleared;
    }
    Ok(())
}

/// Commits a decision, sends its outbox and clears it, in the table and in the returned head;
/// clears neither if another commit came in between. If the commit is stale, sends nothing. After
/// an error in sending, the commit stays, and the sweep has its outbox sent.
///
/// # Errors
/// As [`commit`] and [`deliver`].
pub async fn commit_and_deliver(
    ports: &Ports,
    plan: CellCommit,
) -> Result<CommitOutcome, PortError> {
    match commit(ports, plan).await? {
        CommitOutcome::Written(mut head) => {
            deliver(ports, &mut head).await?;
            Ok(CommitOutcome::Written(head))
        }
        CommitOutcome::Stale => Ok(CommitOutcome::Stale),
    }
}

/// Reads the stored head and returns whether this commit wrote it, by the write id.
async fn is_own_write(ports: &Ports, head: &Record) -> Result<bool, PortError> {
    let stored = ports.records.get(std::slice::from_ref(&head.key)).await?;
    Ok(stored.into_iter().flatten().any(|record| record.write_id == head.write_id))
}

/// Appends wakeups to an outbox, without those that it already has.
fn merge_outbox(mut outbox: Vec<Wakeup>, wakeups: Vec<Wakeup>) -> Vec<Wakeup> {
    for wakeup in wakeups {
        if !outbox.contains(&wakeup) {
            outbox.push(wakeup);
        }
    }
    outbox
}

/// Returns when the sweep must find a head: at its due time, or [`OUTBOX_DUE_SECONDS`] from now if
/// its outbox is not empty and that is earlier. `None` without both.
fn sweep_time(
    outbox: &[Wakeup],
    due: Option<&Due>,
    ports: &Ports,
) -> Option<sluice_model::Timestamp> {
    let due_at = due.map(|due| due.at);
    if outbox.is_empty() {
        return due_at;
    }
    let guard_at = ports.clock.now().plus_seconds(OUTBOX_DUE_SECONDS);
    Some(due_at.map_or(guard_at, |at| at.min(guard_at)))
}
