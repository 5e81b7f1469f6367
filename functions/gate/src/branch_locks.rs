//! Reads the locks of the branches that a queue's next landings need, and whether their holders are
//! gone. `sluice_gate::plan` decides who holds them.

use crate::unreadable_records::unreadable_cell;
use sluice_gate::branch_lock::{HolderItem, branch_of};
use sluice_gate::{
    BranchLock, BranchLockHolder, BranchLockView, Landing, LandingState, StoredHead,
};
use sluice_model::QueueKey;
use sluice_model::git::BranchKey;
use sluice_records::codec::{decode, decode_or_log, get_all};
use sluice_records::{landing, queue};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Branch locks by branch.
pub(crate) type BranchLocks = BTreeMap<BranchKey, LoadedLock>;

/// A branch lock with its record.
pub(crate) struct LoadedLock {
    /// The record, whose revision guards the write.
    pub(crate) record: Record,
    /// The lock and whether it may be taken over.
    pub(crate) seen: BranchLockView,
    /// The key and revision of the landing of another queue that holds the lock, unless it has
    /// ended. It must not have changed by the time of a takeover. `None` where there is none.
    pub(crate) open_landing: Option<(Key, u64)>,
}

impl LoadedLock {
    /// Creates a loaded lock that may not be taken over.
    pub(crate) fn new(record: Record, lock: BranchLock) -> Self {
        Self { record, seen: BranchLockView { lock, is_abandoned: false }, open_landing: None }
    }

    /// Returns the check that the landing of another queue that held the lock has not changed since
    /// it was read; `None` where `wanted` keeps the holder, or where that landing has ended, does
    /// not exist or could not be read.
    pub(crate) fn takeover_condition(&self, wanted: &BranchLock) -> Option<Write> {
        let (key, revision) =
            self.open_landing.clone().filter(|_| wanted.holder != self.seen.lock.holder)?;
        Some(Write::Check { key, expect: Expect::Revision(revision) })
    }
}

/// The most branches of one queue that are read. The first items merge first, and a window is
/// seldom longer.
const BRANCHES_MAX: usize = 50;

/// Returns the branches of the changes in the window of a queue, at most [`BRANCHES_MAX`] and
/// without those of refs; empty for a queue without a head. The caller asks only for a queue that
/// merges. The locks are read together with the other answers, so that a landing needs no extra
/// read.
pub(crate) fn needed(queue: &queue::LoadedQueue) -> BTreeSet<BranchKey> {
    let mut needed = BTreeSet::new();
    let Some(head) = &queue.head else { return needed };
    let active = head.entries[..head.active_count()].iter().flat_map(|entry| &entry.members);
    for slot in active.filter(|slot| slot.change.key.number().is_some()) {
        needed.insert(branch_of(&slot.change));
        if needed.len() == BRANCHES_MAX {
            break;
        }
    }
    needed
}

/// Decodes a branch's record and inserts its lock, marked as not abandoned; [`find_abandoned`]
/// decides that later. An unreadable record is an error, since the holder must not be guessed.
pub(crate) fn insert(
    locks: &mut BranchLocks,
    queue: &QueueKey,
    branch: BranchKey,
    record: &Record,
) -> Result<(), ReconcileError> {
    let lock: BranchLock = decode(record).map_err(|bad| unreadable_cell(queue, &bad))?;
    locks.insert(branch, LoadedLock::new(record.clone(), lock));
    Ok(())
}

/// Marks in `locks` which locks held by other queues are abandoned, and stores there the holders'
/// landings that have not ended. Must be called after all locks were read: a landing that is
/// missing then has ended. A lock whose landing cannot be read is not abandoned. An item whose
/// queue cannot be read counts as queued; one whose queue has no head counts as gone.
pub(crate) async fn find_abandoned(
    ports: &Ports,
    queue: &QueueKey,
    locks: &mut BranchLocks,
) -> Result<(), PortError> {
    let others = |holder: &&BranchLockHolder| holder.queue != *queue;
    let held = locks.values().filter_map(|known| known.seen.lock.holder.as_ref().filter(others));
    let keys_of = |holder: &BranchLockHolder| [landing_key(holder), queue::head_key(&holder.queue)];
    let keys: BTreeSet<Key> = held.flat_map(keys_of).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let found = get_all(ports, &keys.into_iter().collect::<Vec<_>>()).await?;
    let now = ports.clock.now();
    for LoadedLock { seen, open_landing, .. } in locks.values_mut() {
        let Some(holder) = seen.lock.holder.as_ref().filter(others) else { continue };
        let item = match found.get(&queue::head_key(&holder.queue)).map(decode_or_log::<StoredHead>)
        {
            Some(Some(head)) if !head.contains_item(&holder.item) => HolderItem::Gone,
            // If the head cannot be read, assume that the item is still queued.
            Some(_) => HolderItem::Queued,
            None => HolderItem::Gone,
        };
        let record = found.get(&landing_key(holder));
        seen.is_abandoned = match record.map(decode_or_log::<Landing>) {
            None => holder.is_abandoned(None, item, now),
            Some(None) => false,
            Some(Some(landing)) => {
                let is_open = !matches!(landing.state, LandingState::Ended { .. });
                *open_landing =
                    record.filter(|_| is_open).map(|record| (record.key.clone(), record.revision));
                holder.is_abandoned(Some(&landing), item, now)
            }
        };
        if seen.is_abandoned {
            // Normal for a moment: the landing has ended and its queue has yet to process that.
            tracing::debug!(%queue, branch = %seen.lock.branch, holder = %holder.queue, "a branch lock was not released although its landing has ended");
        }
    }
    Ok(())
}

/// Returns the key of the holder's landing.
fn landing_key(holder: &BranchLockHolder) -> Key {
    landing::key(&holder.item, holder.generation)
}
