//! Commit and deliver: one conditional transaction over a cell's head and its records, then its
//! outbox.

use crate::port::{Outgoing, PortError, Ports};
use crate::record::{Committed, Due, Expect, Record, TRANSACTION_RECORDS_MAX, Write};
use sluice_model::poke::{Poke, Queue};
use std::collections::BTreeMap;

/// Seconds after which a sweep looks for an outbox that was left behind.
pub const OUTBOX_DUE_SECONDS: u64 = 60;

/// What a decision wants written: the head, the records it rules, and the pokes to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The head as it was read (revision 0 for a new one) with its new body.
    pub head: Record,
    /// Records written in the same transaction, at most 99.
    pub others: Vec<Write>,
    /// Pokes to send once it is written.
    pub pokes: Vec<Poke>,
    /// When to look at the head again.
    pub due: Option<Due>,
}

/// How a commit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made per commit, and the large variant is the usual one"
)]
pub enum Saved {
    /// It is written; the head as it is stored now.
    Yes(Record),
    /// Somebody else was first: load and plan again.
    Stale,
}

/// Who sees to it that an outbox is sent when its writer dies before it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The sweep: the head is due a minute later, until [`strike`] writes that everything was sent.
    Sweep,
    /// The message that led to the commit. It is acknowledged only after everything was sent, so it
    /// comes again otherwise, and [`crate::batch::Look::look_again`] sends the outbox once more. No
    /// write strikes it off: a group's next message is received only when the one before was
    /// acknowledged, so whoever handles a message for the first time may take what the head holds
    /// for sent. Where a message is given up, the timer sends its head's outbox.
    Message,
}

/// Writes a decision on the condition that the head is still as it was read; the sweep guards its
/// outbox.
///
/// # Errors
/// As [`commit_guarded`].
pub async fn commit(ports: &Ports, plan: Commit) -> Result<Saved, PortError> {
    commit_guarded(ports, plan, Guard::Sweep).await
}

/// Writes a decision and sends its outbox, for whoever handles a message. The head that is returned
/// holds an empty outbox: what was sent is not written again.
///
/// # Errors
/// As [`commit_guarded`] and [`send`]; the message then comes again, and its next look sends what
/// is in the outbox.
pub async fn commit_and_send(ports: &Ports, plan: Commit) -> Result<Saved, PortError> {
    match commit_guarded(ports, plan, Guard::Message).await? {
        Saved::Yes(mut head) => {
            send(ports, &head.outbox).await?;
            head.outbox.clear();
            Ok(Saved::Yes(head))
        }
        Saved::Stale => Ok(Saved::Stale),
    }
}

/// Writes a decision on the condition that the head is still as it was read.
///
/// The head's outbox keeps what was not known to be sent, plus the new pokes. After an error whose
/// effect is unknown, the head's write id tells whether the write was ours; when even that cannot
/// be read, the error is returned and the message comes again.
///
/// # Errors
/// Whatever the store could not answer; it always means "deliver again".
pub async fn commit_guarded(
    ports: &Ports,
    commit: Commit,
    guard: Guard,
) -> Result<Saved, PortError> {
    let Commit { mut head, others, pokes, due } = commit;
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
    head.outbox = merged(head.outbox, pokes);
    head.look_at = match guard {
        Guard::Sweep => look_at(&head.outbox, due.as_ref(), ports),
        Guard::Message => due.as_ref().map(|due| due.at),
    };
    head.due = due;
    let mut writes = vec![Write::Put { record: head.clone(), expect }];
    writes.extend(others);
    match ports.records.commit(writes, &head.write_id).await {
        Ok(Committed::Yes) => Ok(Saved::Yes(head)),
        Ok(Committed::Lost(_)) => {
            Ok(if is_ours(ports, &head).await? { Saved::Yes(head) } else { Saved::Stale })
        }
        Err(error) if error.throttled => Err(error),
        Err(error) => {
            tracing::warn!(key = %head.key, %error, "whether a commit was written is unknown; reading it back");
            if is_ours(ports, &head).await? { Ok(Saved::Yes(head)) } else { Err(error) }
        }
    }
}

/// Sends the head's outbox. The entries stay until [`strike`] or the next commit removes them.
///
/// # Errors
/// When any message may not have been sent.
pub async fn send(ports: &Ports, pokes: &[Poke]) -> Result<(), PortError> {
    let mut by_queue: BTreeMap<Queue, Vec<Outgoing>> = BTreeMap::new();
    for poke in pokes {
        let delay_seconds = match poke {
            Poke::Wake { delay_seconds, .. } => (*delay_seconds).min(900),
            _ => 0,
        };
        let body = serde_json::to_string(poke)
            .map_err(|error| PortError::unknown("write a poke as JSON", error))?;
        by_queue.entry(poke.queue()).or_default().push(Outgoing {
            body,
            group: poke.group(),
            delay_seconds,
        });
    }
    for (queue, messages) in by_queue {
        ports.queues.send(queue, messages).await?;
    }
    Ok(())
}

/// Sends what the head's outbox holds and strikes it off, also when there was nothing to decide.
///
/// Striking off is a write under the same revision: it makes no new one, and losing it is harmless,
/// because whoever was faster has read the outbox too.
///
/// # Errors
/// When a message may not have been sent; the outbox then stays.
pub async fn deliver(ports: &Ports, head: &mut Record) -> Result<(), PortError> {
    if head.outbox.is_empty() {
        return Ok(());
    }
    send(ports, &head.outbox).await?;
    strike(ports, head).await
}

/// Strikes a sent outbox off its head.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn strike(ports: &Ports, head: &mut Record) -> Result<(), PortError> {
    let mut struck = head.clone();
    struck.outbox.clear();
    struck.look_at = struck.due.as_ref().map(|due| due.at);
    let write_id = ports.entropy.token();
    let write = Write::Put { record: struck.clone(), expect: Expect::Revision(head.revision) };
    if ports.records.commit(vec![write], &write_id).await? == Committed::Yes {
        *head = struck;
    }
    Ok(())
}

/// Commits, sends and strikes: what a function with a single step does.
///
/// # Errors
/// As [`commit`] and [`deliver`].
pub async fn commit_and_deliver(ports: &Ports, plan: Commit) -> Result<Saved, PortError> {
    match commit(ports, plan).await? {
        Saved::Yes(mut head) => {
            deliver(ports, &mut head).await?;
            Ok(Saved::Yes(head))
        }
        Saved::Stale => Ok(Saved::Stale),
    }
}

async fn is_ours(ports: &Ports, head: &Record) -> Result<bool, PortError> {
    let stored = ports.records.get(std::slice::from_ref(&head.key)).await?;
    Ok(stored.into_iter().flatten().any(|record| record.write_id == head.write_id))
}

fn merged(mut outbox: Vec<Poke>, pokes: Vec<Poke>) -> Vec<Poke> {
    for poke in pokes {
        if !outbox.contains(&poke) {
            outbox.push(poke);
        }
    }
    outbox
}

fn look_at(outbox: &[Poke], due: Option<&Due>, ports: &Ports) -> Option<sluice_model::Timestamp> {
    let due_at = due.map(|due| due.at);
    if outbox.is_empty() {
        return due_at;
    }
    let left_behind = ports.clock.now().plus_seconds(OUTBOX_DUE_SECONDS);
    Some(due_at.map_or(left_behind, |at| at.min(left_behind)))
}
