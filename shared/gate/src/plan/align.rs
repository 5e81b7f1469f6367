//! Speculative execution: puts every entry behind the nearest entry ahead that may still pass
//! (Z6.4).

use super::{Planner, is_dependent};
use crate::item::Item;
use crate::queue::{Predecessor, Slot, SlotStatus};

impl Planner<'_> {
    /// Assigns each entry the predecessor that it is tested on, and each member its status:
    /// waiting, testing, passed or failing. In a dependent queue the predecessor is the nearest
    /// entry ahead that does not fail; elsewhere there is none. A new predecessor starts a new
    /// generation of the members that have started. The members of a bundle share one predecessor,
    /// and a failing member fails all. Entries that are being merged, or run their reporter jobs,
    /// are unchanged.
    pub(super) fn align(&mut self) {
        let mut nearest: Option<Predecessor> = None;
        for position in 0..self.head.entries.len() {
            let entry = &self.head.entries[position];
            if entry.first().status == SlotStatus::Reporting {
                continue; // It is merged, or its pipeline does not merge: nothing is tested on it.
            }
            if entry.first().status.is_landing() {
                nearest = Some(entry.as_predecessor());
                continue;
            }
            let predecessor = if is_dependent(&self.head) { nearest.as_ref() } else { None };
            if entry.ahead.as_ref() != predecessor {
                self.reset_entry(position, predecessor.cloned());
            }
            let members = &self.head.entries[position].members;
            let failing = members.iter().any(|slot| self.is_failing(position, slot));
            let in_bundle = members.len() > 1;
            for at in 0..members.len() {
                let status = self.status_of(&self.head.entries[position].members[at], in_bundle);
                self.head.entries[position].members[at].status =
                    if failing { SlotStatus::Failing } else { status };
            }
            if !failing {
                nearest = Some(self.head.entries[position].as_predecessor());
            }
        }
    }

    /// Returns whether a member of the entry at `position` cannot pass in its current state: a job
    /// makes it fail or it cannot be tested. In a dependent queue it also fails if a dependency
    /// ahead is failing, if a dependency is neither ahead nor merged, or if it is marked for
    /// dequeueing. `false` if it has no record.
    fn is_failing(&self, position: usize, slot: &Slot) -> bool {
        let Some(item) = self.items.get(&slot.id) else {
            return false;
        };
        // Few entries fail, so few are compared. A newer revision of a merged dependency may have
        // been moved to the front; it does not affect this entry.
        let ahead = self.head.entries[..position].iter().flat_map(|entry| &entry.members);
        let needs_failing = item.candidate.needs.iter().any(|need| {
            ahead.clone().any(|ahead| {
                ahead.status == SlotStatus::Failing && ahead.change.key == need.change.key
            }) && !self.head.has_landed(&need.change)
        });
        // An entry that lost a dependency is dequeued next; until then nothing is tested on it
        // (D09).
        let is_lost = is_dependent(&self.head)
            && (needs_failing
                || self.is_orphan(position, slot)
                || self.is_marked_for_dequeue(slot));
        (item.generation == slot.generation && item.is_failing()) || is_lost
    }

    /// Returns the status of an item whose entry does not fail: `Passed`, `Testing` or `Waiting`. A
    /// complete item without reported jobs passed only `in_bundle`, where the other members may
    /// have all the jobs; otherwise it stays `Testing`. Results of an earlier generation do not
    /// count: the item is `Waiting`.
    fn status_of(&self, slot: &Slot, in_bundle: bool) -> SlotStatus {
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        match item {
            // In a bundle, the other members may have all the jobs.
            Some(item)
                if item.is_complete() && (in_bundle || item.reported_jobs().next().is_some()) =>
            {
                SlotStatus::Passed
            }
            Some(item) if item.merged().is_some() => SlotStatus::Testing,
            _ => SlotStatus::Waiting,
        }
    }

    /// Assigns an entry another predecessor, and raises the generation of its members that have
    /// started. Logs the reason and keeps it for [`Self::apply_resets`], which resets the items.
    /// Where no member has started, only the head changes, however long the queue is.
    fn reset_entry(&mut self, position: usize, predecessor: Option<Predecessor>) {
        let before = std::mem::replace(&mut self.head.entries[position].ahead, predecessor);
        let cause = before.and_then(|before| self.retest_cause(position, &before));
        let why = match cause {
            Some(cause) => format!("{}: {cause}", self.retest_reason(position)),
            None => self.retest_reason(position),
        };
        for slot in &mut self.head.entries[position].members {
            let is_started = |item: &Item| item.generation == slot.generation && item.has_started();
            if self.items.get(&slot.id).is_some_and(is_started) {
                slot.generation += 1;
                self.ledger.explain(why.clone());
                // Written with the reset, so that a move of many entries does not write all of
                // them twice.
                self.retest_reasons.insert(slot.id.clone(), why.clone());
            }
        }
    }

    /// Returns what happened to `before`, on which the entry at `position` was tested: it fails, it
    /// is tested again itself, or it left the queue. `None` if none of these, as when another
    /// change was put between them.
    fn retest_cause(&self, position: usize, before: &Predecessor) -> Option<String> {
        let is_before = |slot: &&Slot| slot.id == before.item;
        let ahead = self.head.entries[..position].iter().rev().flat_map(|entry| &entry.members);
        if let Some(slot) = ahead.clone().find(is_before) {
            return match slot.status {
                SlotStatus::Failing => Some(format!("{} ahead failed", slot.change)),
                _ if slot.generation != before.generation => {
                    Some(format!("{} ahead is tested again", slot.change))
                }
                _ => None,
            };
        }
        // It has left in this plan, or moved behind this entry.
        let is_queued = self.head.slots().any(|slot| slot.id == before.item);
        let slot = self.snapshot.head.slots().find(is_before).filter(|_| !is_queued)?;
        Some(format!("{} ahead left the queue", slot.change))
    }

    /// Formats the reason for retesting the entry at `position`. It names the change that the entry
    /// is tested on now, or the current branch.
    pub(super) fn retest_reason(&self, position: usize) -> String {
        let entries = &self.head.entries[..=position];
        let onto = match &entries[position].ahead {
            None => "the current branch".to_owned(),
            // Search backwards: the predecessor is near.
            Some(ahead) => (entries.iter().rev().flat_map(|entry| &entry.members))
                .find(|slot| slot.id == ahead.item)
                .map_or_else(|| ahead.item.to_string(), |slot| slot.change.to_string()),
        };
        format!("testing again on top of {onto}")
    }
}
