//! Speculative execution: puts every entry behind the nearest entry ahead that may still pass
//! (Z6.4).

use super::{Planner, is_dependent};
use crate::queue::{Predecessor, Slot, SlotStatus};

impl Planner<'_> {
    /// Assigns each entry the predecessor that it is tested on. A new predecessor starts a new
    /// generation. The members of a bundle share one predecessor, and a failing member fails all.
    pub(super) fn align(&mut self) {
        let mut nearest: Option<Predecessor> = None;
        let mut position = 0;
        while position < self.head.slots.len() {
            let bundle = self.head.bundle(position);
            position = bundle.end;
            let last = bundle.end - 1;
            if self.head.slots[bundle.start].status == SlotStatus::Reporting {
                continue; // It is merged, or its pipeline does not merge: nothing is tested on it.
            }
            if self.head.slots[bundle.start].status.is_landing() {
                nearest = Some(ahead_of(&self.head.slots[last]));
                continue;
            }
            let predecessor = if is_dependent(&self.head) { nearest.as_ref() } else { None };
            for at in bundle.clone() {
                if self.head.slots[at].ahead.as_ref() != predecessor {
                    self.reset_item(at, predecessor.cloned());
                }
            }
            let failing = bundle.clone().any(|at| self.is_failing(at, bundle.start));
            for at in bundle.clone() {
                self.head.slots[at].status = self.status_of(at, failing, bundle.len() > 1);
            }
            if !failing {
                nearest = Some(ahead_of(&self.head.slots[last]));
            }
        }
    }

    /// Returns whether an entry cannot pass in its current state: a job failed, its merge failed,
    /// or a dependency ahead of its bundle is failing. The bundle begins at `start`.
    fn is_failing(&self, position: usize, start: usize) -> bool {
        let slot = &self.head.slots[position];
        let Some(item) = self.items.get(&slot.id) else {
            return false;
        };
        // Few entries fail, so few are compared. A newer revision of a merged dependency may have
        // been moved to the front; it does not affect this entry.
        let needs_failing = item.candidate.needs.iter().any(|need| {
            self.head.slots[..start].iter().any(|ahead| {
                ahead.status == SlotStatus::Failing && ahead.change.key == need.change.key
            }) && !self.head.has_landed(&need.change)
        });
        // An entry that lost a dependency is dequeued next; until then nothing is tested on it
        // (D09).
        let is_lost = is_dependent(&self.head)
            && (needs_failing || self.is_orphan(position) || self.is_marked_for_dequeue(slot));
        (item.generation == slot.generation && item.is_failing()) || is_lost
    }

    /// Returns the status of the entry at `position` by the results of its jobs.
    fn status_of(&self, position: usize, failing: bool, in_bundle: bool) -> SlotStatus {
        let slot = &self.head.slots[position];
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        match item {
            _ if failing => SlotStatus::Failing,
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

    /// Assigns an entry another predecessor. If the item has no results yet, only the head changes,
    /// however long the queue is.
    fn reset_item(&mut self, position: usize, predecessor: Option<Predecessor>) {
        let slot = &mut self.head.slots[position];
        slot.ahead = predecessor;
        let (id, generation) = (slot.id.clone(), slot.generation);
        if !self
            .items
            .get(&id)
            .is_some_and(|item| item.generation == generation && item.has_started())
        {
            return;
        }
        self.head.slots[position].generation += 1;
        let why = self.retest_reason(position);
        self.plan.reasons.push(why.clone());
        // Written with the reset, so that a move of many entries does not write all of them twice.
        self.retest_reasons.insert(id, why);
    }

    /// Formats the reason for retesting the entry at `position`.
    pub(super) fn retest_reason(&self, position: usize) -> String {
        let slots = &self.head.slots[..=position];
        let onto = match &slots[position].ahead {
            None => "the current branch".to_owned(),
            // Search backwards: the predecessor is near.
            Some(ahead) => (slots.iter().rev().find(|slot| slot.id == ahead.item))
                .map_or_else(|| ahead.item.to_string(), |slot| slot.change.to_string()),
        };
        format!("testing again on top of {onto}")
    }
}

/// Returns the reference to an entry as the predecessor of others.
pub(super) fn ahead_of(slot: &Slot) -> Predecessor {
    Predecessor { item: slot.id.clone(), generation: slot.generation }
}
