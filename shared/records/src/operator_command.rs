//! An operator's command to a queue, and the search for its effect.
//!
//! A command has no record of its own: it is a message in the queue's inbox. The queue removes it
//! in the commit that carries it out, and writes a buildset for an item that leaves. So once the
//! message is gone, the present records show the effect.

use crate::codec::{BadRecord, decode};
use crate::queue::{self, LoadError};
use crate::report::{Buildset, buildset_key};
use crate::tenant;
use sluice_gate::{Entry, Head, InboxMessage};
use sluice_model::name::escape;
use sluice_model::{ItemId, QueueKey, TenantName};
use sluice_runtime::record::{Key, Query, TRANSACTION_RECORDS_MAX, Write};
use sluice_runtime::{PortError, Ports, quarantine};
use std::collections::BTreeSet;

/// The most queues of a pipeline that are searched for a change; an independent pipeline has one
/// queue per change.
pub const QUEUES_MAX: usize = 2_000;

/// The entries of the non-empty queues of a pipeline, as far as they can be read.
#[derive(Debug, Default)]
pub struct PipelineContents {
    /// The queues that can be read, with their entries in order.
    pub queues: Vec<(QueueKey, Vec<Entry>)>,
    /// The records that cannot be decoded.
    pub unreadable: Vec<UnreadableRecord>,
}

/// A record of a queue, or of the list of queues, that cannot be decoded.
#[derive(Debug)]
pub struct UnreadableRecord {
    /// The name of the queue, or the record's key when that names no queue.
    pub queue: String,
    /// Whether the entries of the queue are missing from the result. Otherwise only its list record
    /// is damaged.
    pub is_queue_omitted: bool,
    /// The record's key and the error.
    pub error: BadRecord,
}

/// A command in the inbox of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCommand {
    /// The queue that carries it out.
    pub queue: QueueKey,
    /// The key of the inbox message, which is removed when the command is carried out.
    key: Key,
}

/// What happened to an item of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemOutcome {
    /// It is in the queue.
    InQueue {
        /// Its position, from 0.
        position: usize,
        /// The number of items in the queue.
        of: usize,
    },
    /// It has left the queue.
    Left {
        /// The result, as in Zuul.
        result: String,
        /// Why, for people.
        why: String,
    },
    /// It is not in the queue, and its buildset has expired.
    Gone,
}

/// Reads the entries of the non-empty queues of a pipeline, at most [`QUEUES_MAX`]; further queues
/// are left out without an error. Records that cannot be decoded are only named in the result and
/// do not hide other queues. A damaged record on the list of queues still leads to its queue if its
/// key names one. An unknown tenant or pipeline has no queues, which is no error.
///
/// # Errors
/// When the store does not answer.
pub async fn pipeline_contents(
    ports: &Ports,
    name: &TenantName,
    pipeline: &str,
) -> Result<PipelineContents, PortError> {
    let prefix = format!("{}{}/", tenant::QUEUES, escape(pipeline));
    let records =
        ports.records.query(&Query::prefix(tenant::partition(name), prefix, QUEUES_MAX)).await?;
    let mut found = PipelineContents::default();
    for record in &records {
        let key = match decode::<QueueKey>(record) {
            Ok(key) => key,
            Err(bad) => match tenant::queue_of_list_key(name, &record.key) {
                Some(key) => {
                    found.unreadable.push(UnreadableRecord {
                        queue: key.queue.to_string(),
                        is_queue_omitted: false,
                        error: bad,
                    });
                    key
                }
                None => {
                    found.unreadable.push(UnreadableRecord {
                        queue: record.key.to_string(),
                        is_queue_omitted: true,
                        error: bad,
                    });
                    continue;
                }
            },
        };
        if key.pipeline.as_str() != pipeline {
            continue;
        }
        match queue::load(ports, &key).await {
            Ok(loaded) => {
                let entries = loaded.head.map(|head| head.entries).unwrap_or_default();
                found.queues.push((key, entries));
            }
            Err(LoadError::Bad(bad)) => {
                found.unreadable.push(UnreadableRecord {
                    queue: key.queue.to_string(),
                    is_queue_omitted: true,
                    error: bad,
                });
            }
            Err(LoadError::Port(error)) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the write that puts a command into the inbox of its queue, and a handle for
/// [`pending_commands`]. Writes nothing itself, and wakes no queue. The write fails when the same
/// message was added before.
///
/// # Errors
/// When the record is too large.
pub fn put(
    queue: &QueueKey,
    message: &InboxMessage,
) -> Result<(Write, OperatorCommand), PortError> {
    let command = OperatorCommand { queue: queue.clone(), key: queue::message_key(queue, message) };
    Ok((queue::put_message(queue, message)?, command))
}

/// Returns the commands whose messages are still in the inboxes of their queues, in the given
/// order. The other commands were carried out, or never written.
///
/// # Errors
/// When the store does not answer.
pub async fn pending_commands(
    ports: &Ports,
    commands: &[OperatorCommand],
) -> Result<Vec<OperatorCommand>, PortError> {
    let keys: Vec<Key> = commands.iter().map(|command| command.key.clone()).collect();
    let mut pending = BTreeSet::new();
    for some in keys.chunks(TRANSACTION_RECORDS_MAX) {
        pending
            .extend(ports.records.get(some).await?.into_iter().flatten().map(|record| record.key));
    }
    Ok(commands.iter().filter(|command| pending.contains(&command.key)).cloned().collect())
}

/// Returns why a queue is halted, by its halt mark or by its head; `None` when it is not. `None`
/// also for a queue without a halt mark of which a record cannot be decoded or does not match: the
/// next reconciliation writes the mark. A halted queue carries out no command before an operator
/// resumes it.
///
/// # Errors
/// When the store does not answer.
pub async fn halt_reason(ports: &Ports, queue: &QueueKey) -> Result<Option<String>, PortError> {
    if let Some(why) = quarantine::halt_reason(ports, &queue::partition(queue)).await? {
        return Ok(Some(why));
    }
    match queue::load(ports, queue).await {
        Ok(loaded) => Ok(loaded.head.and_then(|head| head.halted)),
        // The next reconciliation writes the halt mark.
        Err(LoadError::Bad(_)) => Ok(None),
        Err(LoadError::Port(error)) => Err(error),
    }
}

/// Returns what happened to items of a queue, in the order of `items`. An item without a place in
/// the queue and without a buildset is [`ItemOutcome::Gone`], also if it never existed.
///
/// # Errors
/// As [`queue::load`]; [`LoadError::Bad`] also for a buildset that cannot be decoded.
pub async fn item_outcomes(
    ports: &Ports,
    queue: &QueueKey,
    items: &[ItemId],
) -> Result<Vec<ItemOutcome>, LoadError> {
    let head = queue::load(ports, queue).await?.head;
    let queued: Vec<&ItemId> = head.iter().flat_map(Head::slots).map(|slot| &slot.id).collect();
    // Read after the head: an item that the head no longer names has its buildset by then.
    let keys: Vec<Key> = items.iter().map(buildset_key).collect();
    let mut buildsets = Vec::with_capacity(keys.len());
    for some in keys.chunks(TRANSACTION_RECORDS_MAX) {
        buildsets.extend(ports.records.get(some).await?);
    }
    let mut found = Vec::with_capacity(items.len());
    for (id, record) in items.iter().zip(&buildsets) {
        let position = queued.iter().position(|queued| *queued == id);
        found.push(match (position, record) {
            (Some(position), _) => ItemOutcome::InQueue { position, of: queued.len() },
            (None, Some(record)) => {
                let Buildset { result, why, .. } = decode(record)?;
                ItemOutcome::Left { result, why }
            }
            (None, None) => ItemOutcome::Gone,
        });
    }
    Ok(found)
}
