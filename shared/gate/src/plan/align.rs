//! Puts every item behind the nearest one ahead of it that may still pass (Z6.4): the speculative part of the gate.

use super::{Work, is_dependent};
use crate::queue::{Ahead, Slot, Standing};
use sluice_model::ItemId;

impl Work<'_> {
    /// Gives each item the state it is to be tested on; where that is another one, a new generation starts.
    pub(super) fn align(&mut self) {
        let mut nearest: Option<Ahead> = None;
        for position in 0..self.head.slots.len() {
            let slot = self.head.slots[position].clone();
            if slot.standing == Standing::Landing {
                nearest = Some(ahead_of(&slot));
                continue;
            }
            let wanted = if is_dependent(&self.head) { nearest.clone() } else { None };
            if slot.ahead != wanted {
                self.reset(position, wanted);
            }
            let failing = self.is_failing(position);
            let standing = self.standing(position, failing);
            self.head.slots[position].standing = standing;
            if !failing {
                nearest = Some(ahead_of(&self.head.slots[position]));
            }
        }
    }

    /// Returns whether an item is known not to pass as it stands: its own jobs, its own merge, or something it needs.
    fn is_failing(&self, position: usize) -> bool {
        let slot = &self.head.slots[position];
        let Some(item) = self.items.get(&slot.id) else {
            return false;
        };
        let needs_failing = item.candidate.needs.iter().any(|need| {
            self.head.slots[..position]
                .iter()
                .any(|ahead| ahead.change.key == need.change.key && ahead.standing == Standing::Failing)
        });
        // What lost a change that it needs leaves next; nobody is tested on top of it until then (D09).
        let is_lost = is_dependent(&self.head) && (needs_failing || self.is_orphan(position));
        (item.generation == slot.generation && item.is_failing()) || is_lost
    }

    fn standing(&self, position: usize, failing: bool) -> Standing {
        let slot = &self.head.slots[position];
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        match item {
            _ if failing => Standing::Failing,
            Some(item) if item.is_complete() && !item.jobs.is_empty() => Standing::Passed,
            Some(item) if item.merged().is_some() => Standing::Testing,
            _ => Standing::Waiting,
        }
    }

    fn reset(&mut self, position: usize, wanted: Option<Ahead>) {
        let slot = &mut self.head.slots[position];
        let fresh = slot.generation == 1 && slot.ahead.is_none() && slot.standing == Standing::Waiting;
        slot.ahead = wanted.clone();
        let id = slot.id.clone();
        let asked = self.items.get(&id).is_some_and(|item| item.ask != crate::item::Ask::No || !item.jobs.is_empty());
        if fresh && !asked {
            return; // It was never asked about: there is nothing to throw away.
        }
        self.head.slots[position].generation += 1;
        let onto = self.described(wanted.as_ref());
        self.note(&id, format!("tested again, now on {onto}"));
    }

    pub(super) fn described(&self, ahead: Option<&Ahead>) -> String {
        let Some(ahead) = ahead else {
            return "the branch as it is".to_owned();
        };
        self.change_of(&ahead.item).unwrap_or_else(|| ahead.item.to_string())
    }

    fn change_of(&self, id: &ItemId) -> Option<String> {
        self.head.slots.iter().find(|slot| slot.id == *id).map(|slot| slot.change.to_string())
    }
}

fn ahead_of(slot: &Slot) -> Ahead {
    Ahead { item: slot.id.clone(), generation: slot.generation }
}
