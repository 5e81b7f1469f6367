//! A change queue's cell: head, items, and what arrived.

use crate::codec::{BadRecord, decode, encode_first};
use sluice_gate::{Arrival, ArrivalKind, Head, Item};
use sluice_model::{ArrivalId, ItemId, QueueKey};
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// The most records of one queue that are read at once; what is beyond waits for the next look.
pub const LOAD_MAX: usize = 2_000;

/// Arrivals that are looked at, the oldest, where a queue has more records than [`LOAD_MAX`].
const ARRIVALS_MAX: usize = 200;

/// A queue as it was read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The head's record; `None` when the queue was never used.
    pub head_record: Option<Record>,
    /// The head.
    pub head: Option<Head>,
    /// Items with their records.
    pub items: BTreeMap<ItemId, (Record, Item)>,
    /// Arrivals, oldest first.
    pub arrivals: Vec<Arrival>,
    /// Keys of the arrivals by id.
    pub arrival_keys: BTreeMap<ArrivalId, Key>,
    /// Whether an operator's mark freezes the whole cell.
    pub is_frozen: bool,
}

/// Returns the partition of a queue.
pub fn partition(queue: &QueueKey) -> String {
    format!("queue#{queue}")
}

/// Returns the key of a queue's head.
pub fn head_key(queue: &QueueKey) -> Key {
    Key::new(partition(queue), "head")
}

/// Returns the key of an item.
pub fn item_key(queue: &QueueKey, item: &ItemId) -> Key {
    Key::new(partition(queue), format!("item#{item}"))
}

/// Returns the write that lets something arrive, unless it arrived before.
///
/// # Errors
/// When it is too large.
pub fn put_arrival(queue: &QueueKey, arrival: &Arrival) -> Result<Write, PortError> {
    Ok(Write::Put { record: encode_first(arrival_key(queue, arrival), arrival)?, expect: Expect::Absent })
}

/// Operators' words come before everything that waits: of many arrivals the first are read, and those of a frozen queue wait
/// for just that word.
fn arrival_key(queue: &QueueKey, arrival: &Arrival) -> Key {
    let first = match arrival.kind {
        ArrivalKind::Thaw { .. } | ArrivalKind::Dequeue { .. } => "-",
        ArrivalKind::Enqueue { .. } | ArrivalKind::Seen { .. } => "",
    };
    Key::new(partition(queue), format!("arrival#{first}{:015}-{}", arrival.at.0, arrival.id))
}

/// Reads a whole queue.
///
/// # Errors
/// [`sluice_runtime::batch::LookError`] as text of whatever could not be read; a bad record names its key.
pub async fn load(ports: &Ports, queue: &QueueKey) -> Result<Loaded, LoadError> {
    let mut records = ports.records.query(&Query::prefix(partition(queue), "", LOAD_MAX)).await?;
    if records.len() >= LOAD_MAX {
        // Arrivals come first by key: however many there are, they must not hide the head and its items.
        records.retain(|record| record.key.sort.starts_with("arrival#"));
        records.truncate(ARRIVALS_MAX);
        let behind = Query { after: Some("arrival~".to_owned()), ..Query::prefix(partition(queue), "", LOAD_MAX) };
        records.extend(ports.records.query(&behind).await?);
    }
    let mut loaded = Loaded {
        head_record: None,
        head: None,
        items: BTreeMap::new(),
        arrivals: Vec::new(),
        arrival_keys: BTreeMap::new(),
        is_frozen: false,
    };
    for record in records {
        match record.key.sort.split_once('#').map_or(record.key.sort.as_str(), |(kind, _)| kind) {
            "head" => {
                loaded.head = Some(decode(&record)?);
                loaded.head_record = Some(record);
            }
            "item" => {
                let item: Item = decode(&record)?;
                loaded.items.insert(item.id.clone(), (record, item));
            }
            "arrival" => {
                let arrival: Arrival = decode(&record)?;
                loaded.arrival_keys.insert(arrival.id.clone(), record.key);
                loaded.arrivals.push(arrival);
            }
            "frozen" => loaded.is_frozen = true,
            _ => {
                return Err(LoadError::Bad(BadRecord {
                    key: record.key,
                    why: "no record of this name belongs here".into(),
                }));
            }
        }
    }
    Ok(loaded)
}

/// Why a cell could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store did not answer.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A record is not what it should be.
    #[error(transparent)]
    Bad(#[from] BadRecord),
}

impl From<LoadError> for sluice_runtime::batch::LookError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Port(error) => error.into(),
            LoadError::Bad(bad) => bad.into(),
        }
    }
}
