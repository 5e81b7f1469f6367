//! Puts every item behind the nearest one ahead of it that may still pass (Z6.4): the speculative
//! part of the gate.

use super::{Work, is_dependent};
use crate::queue::{Ahead, Slot, Standing};

impl Work<'_> {
    /// Gives each item the state it is to be tested on; where that is another one, a new generation
    /// starts. Changes that need each other stand on the same state, and one that fails fails them
    /// all.
    pub(super) fn align(&mut self) {
        let mut nearest: Option<Ahead> = None;
        let mut position = 0;
        while position < self.head.slots.len() {
            let bundle = self.head.bundle(position);
            position = bundle.end;
            let last = bundle.end - 1;
            if self.head.slots[bundle.start].standing == Standing::Reporting {
                continue; // It is in its branch, or lands nowhere: nothing is tested on top of it.
            }
            if self.head.slots[bundle.start].standing.is_landing() {
                nearest = Some(ahead_of(&self.head.slots[last]));
                continue;
            }
            let wanted = if is_dependent(&self.head) { nearest.as_ref() } else { None };
            for at in bundle.clone() {
                if self.head.slots[at].ahead.as_ref() != wanted {
                    self.reset(at, wanted.cloned());
                }
            }
            let failing = bundle.clone().any(|at| self.is_failing(at, bundle.start));
            for at in bundle.clone() {
                self.head.slots[at].standing = self.standing(at, failing, bundle.len() > 1);
            }
            if !failing {
                nearest = Some(ahead_of(&self.head.slots[last]));
            }
        }
    }

    /// Returns whether an item is known not to pass as it stands: its own jobs, its own merge, or
    /// something it needs before its bundle, which begins at `start`.
    fn is_failing(&self, position: usize, start: usize) -> bool {
        let slot = &self.head.slots[position];
        let Some(item) = self.items.get(&slot.id) else {
            return false;
        };
        // Few fail, so that of a long queue few are compared. A newer revision of what a push
        // landed as it is needed here may have been moved to the front: it fails for itself.
        let needs_failing = item.candidate.needs.iter().any(|need| {
            self.head.slots[..start].iter().any(|ahead| {
                ahead.standing == Standing::Failing && ahead.change.key == need.change.key
            }) && !self.head.has_landed(&need.change)
        });
        // What lost a change that it needs leaves next; nobody is tested on top of it until then
        // (D09).
        let is_lost = is_dependent(&self.head)
            && (needs_failing || self.is_orphan(position) || self.is_let_go(slot));
        (item.generation == slot.generation && item.is_failing()) || is_lost
    }

    fn standing(&self, position: usize, failing: bool, in_bundle: bool) -> Standing {
        let slot = &self.head.slots[position];
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        match item {
            _ if failing => Standing::Failing,
            // In a bundle the others' jobs may be all that there are.
            Some(item)
                if item.is_complete() && (in_bundle || item.reported_jobs().next().is_some()) =>
            {
                Standing::Passed
            }
            Some(item) if item.merged().is_some() => Standing::Testing,
            _ => Standing::Waiting,
        }
    }

    /// Gives an item another state to be tested on. Where nothing was asked about it yet there is
    /// nothing to throw away, so that only the head changes, however many wait.
    fn reset(&mut self, position: usize, wanted: Option<Ahead>) {
        let slot = &mut self.head.slots[position];
        slot.ahead = wanted;
        let (id, generation) = (slot.id.clone(), slot.generation);
        if !self
            .items
            .get(&id)
            .is_some_and(|item| item.generation == generation && item.was_asked())
        {
            return;
        }
        self.head.slots[position].generation += 1;
        let why = self.why_again(position);
        self.plan.reasons.push(why.clone());
        // Written with the reset, so that many that move are not written for this alone, and once
        // more when their builds stop.
        self.moved.insert(id, why);
    }

    /// Says of what stands at a position that it is tested anew on what it is behind by now.
    pub(super) fn why_again(&self, position: usize) -> String {
        let slots = &self.head.slots[..=position];
        let onto = match &slots[position].ahead {
            None => "the branch as it is".to_owned(),
            // It is right ahead, or not far.
            Some(ahead) => (slots.iter().rev().find(|slot| slot.id == ahead.item))
                .map_or_else(|| ahead.item.to_string(), |slot| slot.change.to_string()),
        };
        format!("tested again, now on {onto}")
    }
}

pub(super) fn ahead_of(slot: &Slot) -> Ahead {
    Ahead { item: slot.id.clone(), generation: slot.generation }
}
