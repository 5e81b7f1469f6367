//! What an operator asked of a queue, and what the records tell became of it.
//!
//! No record of its own: the queue removes the word, an arrival, with the commit that carries it out, and keeps what left by it as a
//! buildset. So whoever finds the word gone reads what came of it in what is there afterwards.

use crate::codec::decode;
use crate::queue::{self, LoadError};
use crate::report::{Buildset, buildset_key};
use sluice_gate::Arrival;
use sluice_model::{ItemId, QueueKey};
use sluice_runtime::record::{Key, TRANSACTION_RECORDS_MAX, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeSet;

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

/// Returns what became of items that stood in a queue, in their order.
///
/// # Errors
/// As [`queue::load`]; [`LoadError::Bad`] also for what is kept of one that left.
pub async fn became(ports: &Ports, queue: &QueueKey, items: &[ItemId]) -> Result<Vec<Became>, LoadError> {
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
