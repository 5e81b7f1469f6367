//! The cell of a change queue: head, items and inbox.
//!
//! The head's record names each item with its version ([`StoredHead`]). So a reader that knows the
//! items of an older head reads only those with another version. It also notices when a concurrent
//! writer changed head and items between two reads.

mod inbox_window;

use crate::codec::{BadRecord, decode, encode, encode_first, with_body};
use crate::open_work;
use inbox_window::InboxWindow;
use sluice_gate::{Head, HeadError, InboxMessage, Item, StoredHead};
use sluice_model::{InboxMessageId, ItemId, QueueKey};
use sluice_runtime::record::{Expect, Key, Query, Record, TRANSACTION_RECORDS_MAX, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most records of one queue that one query reads.
pub const LOAD_MAX: usize = 2_000;

/// How often a queue is read again because a writer interferes, before the reader gives up for now.
const READS_MAX: usize = 4;

/// Keys in one call (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = TRANSACTION_RECORDS_MAX;

/// A queue's cell as it was read.
#[derive(Debug, Clone)]
pub struct LoadedQueue {
    /// The record of the head; `None` when the queue was never used.
    pub head_record: Option<Record>,
    /// The decoded head.
    pub head: Option<Head>,
    /// Items with their records. They are shared, because one reconciliation passes a long queue on
    /// several times and changes few of its items.
    pub items: BTreeMap<ItemId, (Arc<Record>, Arc<Item>)>,
    /// Inbox messages, oldest first.
    pub inbox: Vec<InboxMessage>,
    /// The keys of the inbox messages, by id.
    pub inbox_keys: BTreeMap<InboxMessageId, Key>,
    /// Whether the inbox has more messages than were read; the rest is read once some are consumed.
    pub is_cut: bool,
    /// Whether a mark halts the cell until an operator resumes it.
    pub is_halted: bool,
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

/// Returns the first record of a queue's head, not stored yet (revision 0).
///
/// # Errors
/// When the record is too large.
pub fn head_record(head: &Head) -> Result<Record, PortError> {
    encode(head_key(&head.key), &head.stored())
}

/// Returns the write that adds a message to the inbox. It fails when the message was added before.
/// The index of open work lists it until it is removed. The caller wakes the queue.
///
/// # Errors
/// When the record is too large.
pub fn put_message(queue: &QueueKey, message: &InboxMessage) -> Result<Write, PortError> {
    let mut record = encode_first(message_key(queue, message), message)?;
    record.find = Some(open_work::index_entry(&record.key, message.at));
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the next version of an item's record, with a revision one higher than that of `before`
/// (`None`: revision 1). The index of open work lists it, by the time of the item's admission,
/// until it is removed.
///
/// # Errors
/// When the record is too large.
pub fn item_record(
    queue: &QueueKey,
    before: Option<&Record>,
    item: &Item,
) -> Result<Record, PortError> {
    let mut record = match before {
        Some(record) => with_body(record.clone(), item)?,
        None => encode(item_key(queue, &item.id), item)?,
    };
    record.find = Some(open_work::index_entry(&record.key, item.admitted_at));
    Ok(Record { revision: record.revision + 1, ..record })
}

/// Returns the key of an inbox message. Keys sort by time, but those of operators' commands come
/// before all others: only the first of many messages are read, and a halted queue waits for a
/// command.
pub fn message_key(queue: &QueueKey, message: &InboxMessage) -> Key {
    let first = if message.is_command() { "-" } else { "" };
    Key::new(partition(queue), format!("inbox#{first}{:015}-{}", message.at.0, message.id))
}

/// Reads the whole cell of a queue: a consistent head with its items, the halt mark, and the part
/// of the inbox that one reconciliation processes. A queue that was never reconciled has no head,
/// but may have inbox messages. If writers interfere, reads again, at most four times in all, and
/// then fails. A record that cannot be decoded, and a head that does not match its items, is an
/// error.
///
/// # Errors
/// [`LoadError::Port`] when the store does not answer, or writers interfere with every read.
/// [`LoadError::Bad`] with the key of a record that cannot be decoded, or does not match the head.
pub async fn load(ports: &Ports, queue: &QueueKey) -> Result<LoadedQueue, LoadError> {
    let mut torn: Option<(u64, HeadError)> = None;
    for _ in 0..READS_MAX {
        let (mut loaded, stored) = read(ports, queue).await?;
        let Some(stored) = stored else { return Ok(loaded) };
        let items = std::mem::take(&mut loaded.items);
        let revision = loaded.head_record.as_ref().map_or(0, |record| record.revision);
        match stored.into_head(|id| items.get(id).map(|(_, item)| &**item)) {
            Ok(head) => return Ok(LoadedQueue { head: Some(head), items, ..loaded }),
            // The head had this revision both times, so no writer is active.
            Err(why) if torn.as_ref().is_some_and(|(before, _)| *before == revision) => {
                return Err(bad(queue, &why));
            }
            Err(why @ HeadError::InvalidEntry { .. }) => return Err(bad(queue, &why)),
            Err(why @ HeadError::StaleItem { .. }) => torn = Some((revision, why)),
        }
    }
    Err(busy(queue))
}

/// Returns the queue at the head `head_record`, which the caller has read. Takes from `stored`, an
/// earlier read of the queue, the items that have not changed; reads the others and the inbox. Does
/// not read the halt mark: `is_halted` is `false` in the result. `None` when the items do not match
/// the head, because a writer interferes; the caller then reads the whole queue.
///
/// # Errors
/// As [`load`].
pub async fn refresh(
    ports: &Ports,
    queue: &QueueKey,
    stored: LoadedQueue,
    head_record: Record,
) -> Result<Option<LoadedQueue>, LoadError> {
    if stored.head.is_some() && stored.is_at(&head_record) {
        let messages = inbox_window::after(ports, queue, None, InboxWindow::default()).await?;
        let LoadedQueue { head, items, .. } = stored;
        let mut loaded =
            LoadedQueue { head_record: Some(head_record), head, items, ..LoadedQueue::empty() };
        loaded.fill_inbox(messages);
        return Ok(Some(loaded));
    }
    let head: StoredHead = decode(&head_record)?;
    let versions = head.versions().map_err(|why| bad(queue, &why))?;
    let mut before = stored.items;
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
    // Read after the head: a newer head may have consumed messages that this head does not know.
    let messages = inbox_window::after(ports, queue, None, InboxWindow::default()).await?;
    let Ok(head) = head.into_head(|id| items.get(id).map(|(_, item)| &**item)) else {
        return Ok(None);
    };
    let mut loaded = LoadedQueue {
        head_record: Some(head_record),
        head: Some(head),
        items,
        ..LoadedQueue::empty()
    };
    loaded.fill_inbox(messages);
    Ok(Some(loaded))
}

impl LoadedQueue {
    /// Returns whether `head` is the same version of the head as that of this queue (equal revision
    /// and write id), so that its items are up to date. `false` for a queue without a head.
    pub fn is_at(&self, head: &Record) -> bool {
        let is_same =
            |seen: &Record| seen.revision == head.revision && seen.write_id == head.write_id;
        self.head_record.as_ref().is_some_and(is_same)
    }

    /// Returns a queue without head, items and messages, and without a halt mark.
    fn empty() -> Self {
        let (items, inbox, inbox_keys) = Default::default();
        Self {
            head_record: None,
            head: None,
            items,
            inbox,
            inbox_keys,
            is_cut: false,
            is_halted: false,
        }
    }

    /// Fills the inbox, which must be empty, with the messages of a window and their keys, and
    /// stores whether there are more.
    fn fill_inbox(&mut self, window: InboxWindow) {
        self.is_cut = window.is_cut;
        for (key, message) in window.into_messages() {
            self.inbox_keys.insert(message.id.clone(), key);
            self.inbox.push(message);
        }
    }
}

/// Reads all records of a queue. Returns the queue without its decoded head, and the head as stored
/// (`None` if there is none). The caller checks that head and items match, and sets the decoded
/// head. Of the inbox, at most what [`InboxWindow`] admits.
async fn read(
    ports: &Ports,
    queue: &QueueKey,
) -> Result<(LoadedQueue, Option<StoredHead>), LoadError> {
    let mut records = ports.records.query(&Query::prefix(partition(queue), "", LOAD_MAX)).await?;
    let mut window = InboxWindow::default();
    if records.len() >= LOAD_MAX {
        // Inbox messages sort first. However many there are, they must not hide the head and its
        // items.
        records.retain(|record| record.key.sort.starts_with(inbox_window::PREFIX));
        let last = records.last().map(|record| record.key.sort.clone());
        for record in records.drain(..) {
            window.add(record)?;
        }
        window = inbox_window::after(ports, queue, last, window).await?;
        let after_inbox = Query {
            after: Some("inbox~".to_owned()),
            ..Query::prefix(partition(queue), "", LOAD_MAX)
        };
        records.extend(ports.records.query(&after_inbox).await?);
    }
    let (mut loaded, mut stored) = (LoadedQueue::empty(), None);
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
            "inbox" => window.add(record)?,
            "halted" => loaded.is_halted = true,
            _ => {
                return Err(LoadError::Bad(BadRecord {
                    key: record.key,
                    why: "a queue has no record with such a sort key".into(),
                }));
            }
        }
    }
    loaded.fill_inbox(window);
    Ok((loaded, stored))
}

/// Returns the error for a queue whose head contradicts its items.
fn bad(queue: &QueueKey, why: &HeadError) -> LoadError {
    LoadError::Bad(BadRecord { key: head_key(queue), why: why.to_string() })
}

/// Returns the error for a queue that changed during each read; the message that is processed is
/// delivered again.
fn busy(queue: &QueueKey) -> LoadError {
    LoadError::Port(PortError::unknown(
        format!("read the queue {queue}"),
        format!("a concurrent writer changed it during each of {READS_MAX} reads"),
    ))
}

/// Why a cell could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store did not answer.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A record cannot be decoded, or records do not match.
    #[error(transparent)]
    Bad(#[from] BadRecord),
}

impl From<LoadError> for sluice_runtime::batch::ReconcileError {
    /// Returns the error that ends a reconciliation: `Retry` if the store did not answer or the
    /// queue kept changing, `Undecidable` for a bad record.
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Port(error) => error.into(),
            LoadError::Bad(bad) => bad.into(),
        }
    }
}
