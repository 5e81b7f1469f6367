//! Branch locks: acquired with the order of a landing, released at its end
//! ([`crate::branch_lock`]).
//!
//! A branch lock does not belong to the queue's cell. Its record is written with the plan, on
//! condition that it is unchanged since it was read. A bundle acquires all its locks or none, so
//! that two bundles never wait for each other.

use super::{Planner, QueueAction};
use crate::branch_lock::{
    BASE_MOVED_MAX, BranchLock, BranchLockHolder, BranchReservation, COURTESY_SECONDS,
    RESERVATION_SECONDS, WAITING_MAX, branch_of,
};
use crate::queue::{Entry, Slot, SlotStatus};
use sluice_model::git::BranchKey;
use sluice_model::{ItemId, QueueKey};
use std::collections::BTreeSet;

/// Why a branch lock cannot be acquired now.
struct LockObstacle {
    branch: BranchKey,
    /// What it waits for, shown to users.
    until: String,
    /// Whether it waits for another queue, so that this one is added to the waiting queues.
    in_line: bool,
}

impl Planner<'_> {
    /// Acquires the branch locks of all `members`, which are one entry or a part of it, or none,
    /// raises the fence of each and ends its reservation. Returns whether they were acquired. The
    /// holder is provisional until [`Self::update_branch_locks`]: in the same plan the caller must
    /// mark a member as landing. If not acquired, notes the obstacle in the first member's reasons;
    /// if another queue is in the way, this queue is added to the waiting queues of all the
    /// branches. The caller has reserved room.
    pub(super) fn acquire_branch_locks(&mut self, members: &[Slot]) -> bool {
        let Slot { id, change, .. } = &members[0];
        let branches = branches_of(members);
        let blocked: Vec<LockObstacle> =
            branches.iter().filter_map(|branch| self.lock_obstacle(branch)).collect();
        if let Some(LockObstacle { branch, until, .. }) = blocked.first() {
            let why = format!("every voting job passed; waits for the lock on {branch}: {until}");
            self.note(id, why);
            if blocked.iter().any(|one| one.in_line) {
                // Wait for the free ones too; otherwise a queue that needs only one of them would
                // always be first.
                self.awaited_branches.extend(branches);
            }
            return false;
        }
        for branch in branches {
            let mut lock = self.branch_lock(&branch);
            // A queue that holds the lock or has a reservation acquires it again without affecting
            // those in line.
            let is_before_others = lock.holder.is_some() || lock.reservation_at(self.now).is_some();
            lock.reserved_for = None;
            match lock.waiting.iter().position(|queue| *queue == self.head.key) {
                Some(at) => {
                    drop(lock.waiting.drain(if is_before_others { at..=at } else { 0..=at }))
                }
                // The queues in line did not come in time; they line up again if they still need
                // the lock.
                None if !is_before_others => lock.waiting.clear(),
                None => {}
            }
            lock.fence += 1;
            // [`Self::update_branch_locks`] fills in the item once its landing is ordered.
            lock.holder = Some(BranchLockHolder {
                queue: self.head.key.clone(),
                item: id.clone(),
                generation: 0,
                change: change.key.clone(),
                has_later_members: false,
                has_landed_members: false,
                since: self.now,
            });
            self.branch_locks.insert(branch, lock);
        }
        true
    }

    /// Returns the fence under which this queue holds the lock of a branch; `None` if it does not
    /// hold it. Nothing is merged without a fence.
    pub(super) fn fence_of(&self, branch: &BranchKey) -> Option<u64> {
        let lock = self.branch_lock(branch);
        lock.holder.filter(|holder| holder.queue == self.head.key).map(|_| lock.fence)
    }

    /// Returns why this queue cannot acquire a branch lock now, or `None` if it can.
    fn lock_obstacle(&self, branch: &BranchKey) -> Option<LockObstacle> {
        let lock = self.branch_lock(branch);
        let this_queue = &self.head.key;
        let blocked = |until: String, in_line: bool| {
            Some(LockObstacle { branch: branch.clone(), until, in_line })
        };
        let others_are_first = lock.waiting.first().filter(|first| *first != this_queue);
        let after_them = |first: &QueueKey| {
            blocked(format!("{} is first in line", self.queue_label(first)), true)
        };
        let reservation = lock.reservation_at(self.now);
        match &lock.holder {
            Some(holder) if holder.queue == *this_queue => {
                let is_landing = |slot: &Slot| slot.id == holder.item && slot.status.is_landing();
                if self.head.slots().any(is_landing) {
                    return blocked(format!("held for {}", holder.change), false);
                }
                others_are_first.and_then(after_them)
            }
            Some(holder) if !self.is_abandoned(branch) => blocked(
                format!("{} holds it for {}", self.queue_label(&holder.queue), holder.change),
                true,
            ),
            _ if reservation.is_some() => reservation
                .filter(|reservation| reservation.queue != *this_queue)
                .and_then(|reservation| after_them(&reservation.queue)),
            Some(_) => None,
            None => {
                let is_courtesy_period = self.now < lock.free_since.plus_seconds(COURTESY_SECONDS);
                others_are_first.filter(|_| is_courtesy_period).and_then(after_them)
            }
        }
    }

    /// Returns whether the lock of a branch was read as abandoned by another queue, so that this one
    /// may take it over. A plan never gives a lock to another queue, so the holder is the one read.
    fn is_abandoned(&self, branch: &BranchKey) -> bool {
        self.snapshot.branch_locks.get(branch).is_some_and(|seen| seen.is_abandoned)
    }

    /// Returns how many branch locks this plan takes over from other queues. Each adds a condition
    /// to the transaction: the landing of the previous holder is unchanged.
    pub(super) fn lock_takeovers(&self) -> usize {
        let is_taken = |lock: &&BranchLock| {
            let before = self
                .snapshot
                .branch_locks
                .get(&lock.branch)
                .and_then(|seen| seen.lock.holder.as_ref());
            before.is_some_and(|holder| {
                holder.queue != self.head.key && lock.holder.as_ref() != Some(holder)
            })
        };
        self.branch_locks.values().filter(is_taken).count()
    }

    /// Records in an item whether a landing that did not merge it had asked the forge to merge it
    /// (`attempted`), since that merge may still show later. A record of an earlier attempt stays.
    /// Writes the item even if nothing changes.
    pub(super) fn record_merge_attempted(&mut self, id: &ItemId, attempted: bool) {
        if let Some(item) = self.item_mut(id) {
            item.merge_attempted |= attempted;
        }
    }

    /// Counts, for the first item of an entry, a landing that found its branch moved by others.
    /// Once the count is [`BASE_MOVED_MAX`], sets it back to 0 and reserves for the item, for
    /// [`RESERVATION_SECONDS`], those branches of the entry whose locks this queue still holds.
    /// Does nothing if the item is not queued.
    pub(super) fn note_overtaken(&mut self, entry: &Entry) {
        let id = entry.first().id.clone();
        let Some(item) = self.item_mut(&id) else { return };
        item.base_moved_count += 1;
        if item.base_moved_count < BASE_MOVED_MAX {
            return;
        }
        item.base_moved_count = 0;
        for branch in branches_of(&entry.members) {
            let mut lock = self.branch_lock(&branch);
            if lock.holder.as_ref().is_none_or(|holder| holder.queue != self.head.key) {
                continue; // Another queue has taken the lock over.
            }
            let (queue, until) =
                (self.head.key.clone(), self.now.plus_seconds(RESERVATION_SECONDS));
            lock.reserved_for = Some(BranchReservation { queue, item: id.clone(), until });
            self.note(&id, format!("{branch} moved {BASE_MOVED_MAX} times before it could be merged: the branch is now reserved for it"));
            self.branch_locks.insert(branch, lock);
        }
    }

    /// Releases the branch locks of this queue whose landings have ended, all if the queue is
    /// halted, and fills in the holder of the others. Must be called after landings were ordered
    /// and followed: the queue leaves a line if this plan did not find it waiting there, unless the
    /// plan is incomplete. Removes this queue's reservations for items that are gone, all if it is
    /// halted. Where a lock becomes free, or this queue leaves the line of a free one, has the plan
    /// wake the next queue in line. Changes that do not fit into the transaction are left to the
    /// next plan.
    pub(super) fn update_branch_locks(&mut self) {
        let this_queue = self.head.key.clone();
        let known = self
            .snapshot
            .branch_locks
            .keys()
            .chain(self.branch_locks.keys())
            .chain(&self.awaited_branches);
        for branch in known.cloned().collect::<BTreeSet<BranchKey>>() {
            let before = self.branch_lock(&branch);
            let mut lock = before.clone();
            if lock.holder.as_ref().is_some_and(|holder| holder.queue == this_queue) {
                lock.holder = self.lock_holder(&branch, &lock);
                if lock.holder.is_none() {
                    lock.free_since = self.now;
                }
            }
            let is_gone = |reservation: &BranchReservation| {
                let is_queued = self.head.slots().any(|slot| slot.id == reservation.item);
                reservation.queue == this_queue && (self.head.halted.is_some() || !is_queued)
            };
            let is_reservation_stale = lock.reserved_for.as_ref().is_some_and(is_gone);
            if is_reservation_stale {
                lock.reserved_for = None;
            }
            let awaits = self.awaited_branches.contains(&branch);
            let is_in_line = lock.waiting.contains(&this_queue);
            if awaits && !is_in_line && lock.waiting.len() < WAITING_MAX {
                lock.waiting.push(this_queue.clone());
            } else if !awaits && is_in_line && !self.is_incomplete {
                lock.waiting.retain(|queue| *queue != this_queue);
            }
            let has_changed = self.branch_locks.contains_key(&branch) || lock != before;
            if !has_changed || (!self.branch_locks.contains_key(&branch) && !self.has_room(1)) {
                continue;
            }
            let has_lost_one =
                before.holder.is_some() || (is_in_line && !awaits) || is_reservation_stale;
            if lock.holder.is_none() && has_lost_one {
                // Only the first: a queue that leaves the line wakes the next, and a queue that
                // does not come is skipped.
                let next = lock.waiting.iter().find(|queue| **queue != this_queue).cloned();
                self.ledger.extend(next.map(QueueAction::WakeQueue));
            }
            self.branch_locks.insert(branch, lock);
        }
    }

    /// Returns the new holder of a branch lock that this queue holds: the member that is being
    /// merged now, of the first entry with a member that is being or is still to be merged into the
    /// branch. That member may be merged into another branch of its bundle. While the landing of
    /// the bundle's next member is not ordered, the holder is unchanged. `None` releases the lock:
    /// there is no such entry, or the queue is halted.
    fn lock_holder(&self, branch: &BranchKey, lock: &BranchLock) -> Option<BranchLockHolder> {
        if self.head.halted.is_some() {
            return None; // Its landing has ended, and an operator has to decide.
        }
        let is_to_land =
            |slot: &Slot| matches!(slot.status, SlotStatus::Landing | SlotStatus::AwaitingLanding);
        let is_on_branch = |slot: &Slot| is_to_land(slot) && branch_of(&slot.change) == *branch;
        let mut entries = self.head.entries.iter();
        let Entry { members, .. } = entries.find(|entry| entry.members.iter().any(is_on_branch))?;
        let is_landing = |slot: &&Slot| slot.status == SlotStatus::Landing;
        let Some(now) = members.iter().find(is_landing) else {
            return lock.holder.clone(); // The landing of the bundle's next member is not ordered yet.
        };
        Some(BranchLockHolder {
            queue: self.head.key.clone(),
            item: now.id.clone(),
            generation: now.generation,
            change: now.change.key.clone(),
            has_later_members: members
                .iter()
                .any(|slot| slot.status == SlotStatus::AwaitingLanding),
            has_landed_members: members.iter().any(|slot| slot.status == SlotStatus::Landed),
            since: lock.holder.as_ref().map_or(self.now, |holder| holder.since),
        })
    }

    /// Returns a branch lock in this plan's state; a new one if it has no record.
    fn branch_lock(&self, branch: &BranchKey) -> BranchLock {
        let known = self
            .branch_locks
            .get(branch)
            .or_else(|| self.snapshot.branch_locks.get(branch).map(|seen| &seen.lock));
        known.cloned().unwrap_or_else(|| BranchLock::new(branch.clone()))
    }

    /// Returns how reasons name a queue. The names of another tenant's queues are not disclosed.
    fn queue_label(&self, queue: &QueueKey) -> String {
        if queue.tenant == self.head.key.tenant {
            format!("the queue {} of {}", queue.queue, queue.pipeline)
        } else {
            "a queue of another tenant".to_owned()
        }
    }
}

/// Returns the branches that items are merged into.
fn branches_of(members: &[Slot]) -> BTreeSet<BranchKey> {
    members.iter().map(|slot| branch_of(&slot.change)).collect()
}
