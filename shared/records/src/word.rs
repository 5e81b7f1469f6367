//! What an operator asked of a queue, and what the records tell became of it.
//!
//! No record of its own: the queue removes the word, an arrival, with the commit that carries it
//! out, and keeps what left by it as a buildset. So whoever finds the word gone reads what came of
//! it in what is there afterwards.

use crate::codec::{BadRecord, decode};
use crate::queue::{self, LoadError};
use crate::report::{Buildset, buildset_key};
use crate::tenant;
use sluice_gate::{Arrival, Slot};
use sluice_model::name::escape;
use sluice_model::{ItemId, QueueKey, TenantName};
use sluice_runtime::record::{Key, Query, TRANSACTION_RECORDS_MAX, Write};
use sluice_runtime::{PortError, Ports, quarantine};
use std::collections::BTreeSet;

/// Queues of a pipeline that are looked through for a change; in an independent one each change is
/// one.
pub const QUEUES_MAX: usize = 2_000;

/// What stands in the queues of a pipeline that are not empty, as far as it can be read.
#[derive(Debug, Default)]
pub struct Standings {
    /// Those that can be read, with what stands there in its order.
    pub queues: Vec<(QueueKey, Vec<Slot>)>,
    /// What cannot be read.
    pub unread: Vec<Unread>,
}

/// A record of a queue, or of the list of queues, that cannot be read.
#[derive(Debug)]
pub struct Unread {
    /// The queue, or the record's key where that names none.
    pub queue: String,
    /// Whether what stands there is left out; else the record's key tells enough.
    pub is_left_out: bool,
    /// Which record, and what is wrong with it.
    pub bad: BadRecord,
}

/// An operator's word on its way to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The queue that is to hear it.
    pub queue: QueueKey,
    key: Key,
}

/// What became of an item of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    /// It stands in the queue.
    Stands {
        /// Where, from 0 on.
        position: usize,
        /// How many stand there.
        of: usize,
    },
    /// It has left.
    Left {
        /// How, in Zuul's words.
        result: String,
        /// Why, for people.
        why: String,
    },
    /// It stands there no more, and of its end nothing is kept.
    Gone,
}

/// Returns what stands in a pipeline's queues, of which an operator may speak. A queue that cannot
/// be read hides no other; those of other pipelines are not counted.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn standings(
    ports: &Ports,
    name: &TenantName,
    pipeline: &str,
) -> Result<Standings, PortError> {
    let prefix = format!("{}{}/", tenant::QUEUES, escape(pipeline));
    let records =
        ports.records.query(&Query::prefix(tenant::partition(name), prefix, QUEUES_MAX)).await?;
    let mut found = Standings::default();
    for record in &records {
        let key = match decode::<QueueKey>(record) {
            Ok(key) => key,
            Err(bad) => match tenant::listed_queue(name, &record.key) {
                Some(key) => {
                    found.unread.push(Unread {
                        queue: key.queue.to_string(),
                        is_left_out: false,
                        bad,
                    });
                    key
                }
                None => {
                    found.unread.push(Unread {
                        queue: record.key.to_string(),
                        is_left_out: true,
                        bad,
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
                let slots = loaded.head.map(|head| head.slots).unwrap_or_default();
                found.queues.push((key, slots));
            }
            Err(LoadError::Bad(bad)) => {
                found.unread.push(Unread { queue: key.queue.to_string(), is_left_out: true, bad });
            }
            Err(LoadError::Port(error)) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the write that brings a word to its queue, and the word, to ask after.
///
/// # Errors
/// When it is too large.
pub fn put(queue: &QueueKey, arrival: &Arrival) -> Result<(Write, Word), PortError> {
    let word = Word { queue: queue.clone(), key: queue::arrival_key(queue, arrival) };
    Ok((queue::put_arrival(queue, arrival)?, word))
}

/// Returns those words that their queues have not heard yet.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn unheard(ports: &Ports, words: &[Word]) -> Result<Vec<Word>, PortError> {
    let keys: Vec<Key> = words.iter().map(|word| word.key.clone()).collect();
    let mut there = BTreeSet::new();
    for some in keys.chunks(TRANSACTION_RECORDS_MAX) {
        there.extend(ports.records.get(some).await?.into_iter().flatten().map(|record| record.key));
    }
    Ok(words.iter().filter(|word| there.contains(&word.key)).cloned().collect())
}

/// Returns why a queue waits for somebody to let it go on before it hears what is asked of it, if
/// so: it cannot be decided on, or what is in a branch is not what was tested.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn frozen_because(ports: &Ports, queue: &QueueKey) -> Result<Option<String>, PortError> {
    if let Some(why) = quarantine::frozen_because(ports, &queue::partition(queue)).await? {
        return Ok(Some(why));
    }
    match queue::load(ports, queue).await {
        Ok(loaded) => Ok(loaded.head.and_then(|head| head.frozen)),
        // Who decides on it next says so by the mark.
        Err(LoadError::Bad(_)) => Ok(None),
        Err(LoadError::Port(error)) => Err(error),
    }
}

/// Returns what became of items that stood in a queue, in their order.
///
/// # Errors
/// As [`queue::load`]; [`LoadError::Bad`] also for what is kept of one that left.
pub async fn became(
    ports: &Ports,
    queue: &QueueKey,
    items: &[ItemId],
) -> Result<Vec<Became>, LoadError> {
    let head = queue::load(ports, queue).await?.head;
    let slots = head.map(|head| head.slots).unwrap_or_default();
    // After the head: what it does not name any more has been kept by the commit that took it out.
    let keys: Vec<Key> = items.iter().map(buildset_key).collect();
    let mut kept = Vec::with_capacity(keys.len());
    for some in keys.chunks(TRANSACTION_RECORDS_MAX) {
        kept.extend(ports.records.get(some).await?);
    }
    let mut found = Vec::with_capacity(items.len());
    for (id, record) in items.iter().zip(&kept) {
        let position = slots.iter().position(|slot| slot.id == *id);
        found.push(match (position, record) {
            (Some(position), _) => Became::Stands { position, of: slots.len() },
            (None, Some(record)) => {
                let Buildset { result, why, .. } = decode(record)?;
                Became::Left { result, why }
            }
            (None, None) => Became::Gone,
        });
    }
    Ok(found)
}
