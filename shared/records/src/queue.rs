//! A change queue's cell: head, items, and what arrived.
//!
//! The head's record names each item with the version of its record ([`StoredHead`]). So whoever
//! knows the items of an older head reads those alone that were written since, and head and items
//! that were read while somebody wrote them are found out.

mod arrivals;

use crate::codec::{BadRecord, decode, encode, encode_first, with_body};
use crate::ledger;
use arrivals::Window;
use sluice_gate::{Arrival, ArrivalKind, Head, Item, NotWhole, StoredHead};
use sluice_model::{ArrivalId, ItemId, QueueKey};
use sluice_runtime::record::{Expect, Key, Query, Record, TRANSACTION_RECORDS_MAX, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most records of one queue that are read by one query.
pub const LOAD_MAX: usize = 2_000;

/// How often a queue is read again that somebody writes meanwhile, before whoever reads it comes
/// back later.
const READS_MAX: usize = 4;

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = TRANSACTION_RECORDS_MAX;

/// A queue as it was read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The head's record; `None` when the queue was never used.
    pub head_record: Option<Record>,
    /// The head.
    pub head: Option<Head>,
    /// Items with their records. Shared, since each look hands a long queue on several times and
    /// changes few of them.
    pub items: BTreeMap<ItemId, (Arc<Record>, Arc<Item>)>,
    /// Arrivals, oldest first.
    pub arrivals: Vec<Arrival>,
    /// Keys of the arrivals by id.
    pub arrival_keys: BTreeMap<ArrivalId, Key>,
    /// Whether more arrived than is looked at: once some of that was taken in, the rest is read.
    pub is_cut: bool,
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

/// Returns a new record of a queue's head.
///
/// # Errors
/// When it is too large.
pub fn head_record(head: &Head) -> Result<Record, PortError> {
    encode(head_key(&head.key), &head.stored())
}

/// Returns the write that lets something arrive, unless it arrived before.
///
/// # Errors
/// When it is too large.
pub fn put_arrival(queue: &QueueKey, arrival: &Arrival) -> Result<Write, PortError> {
    let mut record = encode_first(arrival_key(queue, arrival), arrival)?;
    record.find = Some(ledger::listed(&record.key, arrival.at));
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns an item's record as it is written next; it is listed as open until it is removed.
///
/// # Errors
/// When it is too large.
pub fn item_record(
    queue: &QueueKey,
    before: Option<&Record>,
    item: &Item,
) -> Result<Record, PortError> {
    let mut record = match before {
        Some(record) => with_body(record.clone(), item)?,
        None => encode(item_key(queue, &item.id), item)?,
    };
    record.find = Some(ledger::listed(&record.key, item.admitted_at));
    Ok(Record { revision: record.revision + 1, ..record })
}

/// Returns the key of an arrival.
///
/// Operators' words come before everything that waits: of many arrivals the first are read,
/// and those of a frozen queue wait for just that word.
pub fn arrival_key(queue: &QueueKey, arrival: &Arrival) -> Key {
    let first = match arrival.kind {
        ArrivalKind::Thaw { .. } | ArrivalKind::Dequeue { .. } | ArrivalKind::Promote { .. } => "-",
        ArrivalKind::Enqueue { .. }
        | ArrivalKind::Seen { .. }
        | ArrivalKind::Superseded { .. }
        | ArrivalKind::MakeWay { .. } => "",
    };
    Key::new(partition(queue), format!("arrival#{first}{:015}-{}", arrival.at.0, arrival.id))
}

/// Reads a whole queue.
///
/// # Errors
/// [`LoadError::Port`] when the store does not answer, or somebody writes the queue each time it is
/// read; [`LoadError::Bad`] with the key of a record that cannot be read, or does not go with the
/// head.
pub async fn load(ports: &Ports, queue: &QueueKey) -> Result<Loaded, LoadError> {
    let mut torn: Option<(u64, NotWhole)> = None;
    for _ in 0..READS_MAX {
        let (mut loaded, stored) = read(ports, queue).await?;
        let Some(stored) = stored else { return Ok(loaded) };
        let items = std::mem::take(&mut loaded.items);
        let revision = loaded.head_record.as_ref().map_or(0, |record| record.revision);
        match stored.whole(|id| items.get(id).map(|(_, item)| &**item)) {
            Ok(head) => return Ok(Loaded { head: Some(head), items, ..loaded }),
            // The head was the same both times: nobody is writing.
            Err(why) if torn.as_ref().is_some_and(|(before, _)| *before == revision) => {
                return Err(bad(queue, &why));
            }
            Err(why @ NotWhole::Bad { .. }) => return Err(bad(queue, &why)),
            Err(why @ NotWhole::Torn { .. }) => torn = Some((revision, why)),
        }
    }
    Err(busy(queue))
}

/// Reads what changed in a queue since it was `known`: its items as its head, which was read just
/// now, names them, and what arrived. Where the head is the very one that is known, so is all that
/// it names. `None` where somebody writes it meanwhile: then it is to be read whole.
///
/// # Errors
/// As [`load`].
pub async fn refresh(
    ports: &Ports,
    queue: &QueueKey,
    known: Loaded,
    head_record: Record,
) -> Result<Option<Loaded>, LoadError> {
    if known.head.is_some() && known.is_at(&head_record) {
        let arrived = arrivals::after(ports, queue, None, Window::default()).await?;
        let Loaded { head, items, .. } = known;
        let mut loaded = Loaded { head_record: Some(head_record), head, items, ..Loaded::empty() };
        loaded.arrived(arrived);
        return Ok(Some(loaded));
    }
    let stored: StoredHead = decode(&head_record)?;
    let versions = stored.versions().map_err(|why| bad(queue, &why))?;
    let mut before = known.items;
    let (mut items, mut changed) = (BTreeMap::new(), Vec::new());
    for (id, version) in versions {
        match before.remove(&id).filter(|(_, item)| item.version == version) {
            Some(same) => {
                items.insert(id, same);
            }
            None => changed.push(item_key(queue, &id)),
        }
    }
    for keys in changed.chunks(KEYS_MAX) {
        for record in ports.records.get(keys).await?.into_iter().flatten() {
            let item: Item = decode(&record)?;
            items.insert(item.id.clone(), (Arc::new(record), Arc::new(item)));
        }
    }
    // After the head: what arrived and was taken in by a newer head must not be found by this one.
    let arrived = arrivals::after(ports, queue, None, Window::default()).await?;
    let Ok(head) = stored.whole(|id| items.get(id).map(|(_, item)| &**item)) else {
        return Ok(None);
    };
    let mut loaded =
        Loaded { head_record: Some(head_record), head: Some(head), items, ..Loaded::empty() };
    loaded.arrived(arrived);
    Ok(Some(loaded))
}

impl Loaded {
    /// Returns whether a head's record is the one that this was read or written with, so that its
    /// items are those of the store.
    pub fn is_at(&self, head: &Record) -> bool {
        let is_same = |own: &Record| own.revision == head.revision && own.write_id == head.write_id;
        self.head_record.as_ref().is_some_and(is_same)
    }

    fn empty() -> Self {
        let (items, arrivals, arrival_keys) = Default::default();
        Self {
            head_record: None,
            head: None,
            items,
            arrivals,
            arrival_keys,
            is_cut: false,
            is_frozen: false,
        }
    }

    fn arrived(&mut self, window: Window) {
        self.is_cut = window.is_cut;
        for (key, arrival) in window.into_kept() {
            self.arrival_keys.insert(arrival.id.clone(), key);
            self.arrivals.push(arrival);
        }
    }
}

/// Reads all records of a queue; the head has still to be put together.
async fn read(ports: &Ports, queue: &QueueKey) -> Result<(Loaded, Option<StoredHead>), LoadError> {
    let mut records = ports.records.query(&Query::prefix(partition(queue), "", LOAD_MAX)).await?;
    let mut window = Window::default();
    if records.len() >= LOAD_MAX {
        // Arrivals come first by key: however many there are, they must not hide the head and its
        // items.
        records.retain(|record| record.key.sort.starts_with(arrivals::PREFIX));
        let last = records.last().map(|record| record.key.sort.clone());
        for record in records.drain(..) {
            window.add(record)?;
        }
        window = arrivals::after(ports, queue, last, window).await?;
        let behind = Query {
            after: Some("arrival~".to_owned()),
            ..Query::prefix(partition(queue), "", LOAD_MAX)
        };
        records.extend(ports.records.query(&behind).await?);
    }
    let (mut loaded, mut stored) = (Loaded::empty(), None);
    for record in records {
        match record.key.sort.split_once('#').map_or(record.key.sort.as_str(), |(kind, _)| kind) {
            "head" => {
                stored = Some(decode(&record)?);
                loaded.head_record = Some(record);
            }
            "item" => {
                let item: Item = decode(&record)?;
                loaded.items.insert(item.id.clone(), (Arc::new(record), Arc::new(item)));
            }
            "arrival" => window.add(record)?,
            "frozen" => loaded.is_frozen = true,
            _ => {
                return Err(LoadError::Bad(BadRecord {
                    key: record.key,
                    why: "no record of this name belongs here".into(),
                }));
            }
        }
    }
    loaded.arrived(window);
    Ok((loaded, stored))
}

fn bad(queue: &QueueKey, why: &NotWhole) -> LoadError {
    LoadError::Bad(BadRecord { key: head_key(queue), why: why.to_string() })
}

fn busy(queue: &QueueKey) -> LoadError {
    LoadError::Port(PortError::unknown(
        format!("read the queue {queue}"),
        format!("somebody wrote it each of {READS_MAX} times"),
    ))
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
