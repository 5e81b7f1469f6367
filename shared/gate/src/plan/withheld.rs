//! What arrived and has to wait, and what that keeps back: later news of the same changes, entries
//! behind entries, and landings.

use super::Work;
use crate::arrival::{Arrival, ArrivalKind, Candidate};
use crate::queue::{Slot, Standing};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};
use std::collections::BTreeSet;

/// What arrived and has to wait. It keeps back what comes later and concerns the same changes, and
/// what would enter later than something that waits to enter; news of other changes are heard
/// meanwhile.
#[derive(Default)]
pub(super) struct Waiting {
    changes: BTreeSet<ChangeKey>,
    has_entry: bool,
}

impl Waiting {
    /// Returns whether an arrival waits because of what waits already.
    pub(super) fn keeps_back(&self, arrival: &Arrival) -> bool {
        let is_entry = matches!(arrival.kind, ArrivalKind::Enqueue { .. });
        (is_entry && self.has_entry)
            || concerned(arrival).iter().any(|key| self.changes.contains(*key))
    }

    /// Adds an arrival that waits.
    pub(super) fn add(&mut self, arrival: &Arrival) {
        self.has_entry |= matches!(arrival.kind, ArrivalKind::Enqueue { .. });
        self.changes.extend(concerned(arrival).into_iter().cloned());
    }
}

/// Returns the changes that an arrival is about.
fn concerned(arrival: &Arrival) -> Vec<&ChangeKey> {
    match &arrival.kind {
        ArrivalKind::Enqueue { candidates } => {
            candidates.iter().map(|candidate| &candidate.change.key).collect()
        }
        ArrivalKind::Seen { change, .. } | ArrivalKind::Superseded { change, .. } => {
            vec![&change.key]
        }
        // What makes way waits for nothing, or two queues could wait for each other.
        ArrivalKind::MakeWay { .. }
        | ArrivalKind::Dequeue { .. }
        | ArrivalKind::Promote { .. }
        | ArrivalKind::Thaw { .. } => Vec::new(),
    }
}

impl Work<'_> {
    /// Returns whether an arrival that is not taken in yet says that a change is to leave, or to be
    /// replaced: then it does not land. Where news wait, as for a place or by an operator's word,
    /// they say so all the same.
    pub(super) fn is_withheld(&self, slot: &Slot) -> bool {
        // What waits for a place may wait for this very change to leave; no forge merges another
        // revision than the tested one.
        let is_full = || self.left().any(|arrival| !self.has_place(arrival));
        self.left().any(|arrival| match &arrival.kind {
            ArrivalKind::Enqueue { candidates } => {
                let replaces =
                    |c: &Candidate| c.change.key == slot.change.key && c.change != slot.change;
                candidates.iter().any(replaces) && !is_full()
            }
            _ => self.takes_out(arrival, slot),
        })
    }

    /// Returns whether an arrival is news by which what stands in a slot has to leave.
    pub(super) fn takes_out(&self, arrival: &Arrival, slot: &Slot) -> bool {
        let ArrivalKind::Seen { change, gone, as_of, .. } = &arrival.kind else { return false };
        if change.key != slot.change.key {
            return false;
        }
        let known = self.items.get(&slot.id).map_or(*as_of, |item| item.candidate.as_of);
        let is_older = *as_of != Timestamp::default() && *as_of < known;
        let is_another = slot.change.branch != change.branch
            || (slot.change.head != change.head && self.leaves_as_older());
        !is_older && (gone.is_some() || is_another)
    }

    /// Returns whether an arrival would replace or take out a change that is being put into its
    /// branch: only the end of its landing tells what becomes of it. Until then the arrival is not
    /// taken: what lost its approval meanwhile and does not land is not to be tested again and
    /// landed (G12). An operator's word takes out what nobody can land and nobody has begun to, or
    /// can ask about. Nor is what a push landed taken out of its last jobs by a revision that the
    /// push did not bring: that one enters when they are over.
    pub(super) fn waits_for_landing(&self, arrival: &Arrival) -> bool {
        let is_landing = |key: &ChangeKey, now: Option<&ChangeRef>| {
            (self.head.slots.iter()).any(|slot| {
                slot.standing.is_landing()
                    && slot.change.key == *key
                    && now.is_none_or(|change| slot.change != *change)
            })
        };
        match &arrival.kind {
            ArrivalKind::Enqueue { candidates } => {
                // Of a cycle all enter anew or none: it waits for whichever of them is landing.
                let is_awaited = |c: &Candidate| {
                    let same = c.cycle.is_empty().then_some(&c.change);
                    is_landing(&c.change.key, same) || self.waits_for_last_jobs(&c.change)
                };
                candidates.iter().any(is_awaited)
            }
            ArrivalKind::Seen { change, gone, .. } => {
                is_landing(&change.key, Some(change).filter(|_| gone.is_none()))
            }
            ArrivalKind::Dequeue { key, .. } => (0..self.head.slots.len()).any(|at| {
                let slot = &self.head.slots[at];
                let may_end =
                    || self.landing_to_take_back(at).is_some() || self.half_to_end(at).is_some();
                slot.standing.is_landing() && slot.change.key == *key && !may_end()
            }),
            // It is for a pipeline that lands nothing, and may have done so by the layout of
            // before.
            ArrivalKind::MakeWay { change, .. } => is_landing(&change.key, None),
            ArrivalKind::Superseded { .. }
            | ArrivalKind::Promote { .. }
            | ArrivalKind::Thaw { .. } => false,
        }
    }

    /// Returns whether a revision of a change is open still, and another one of it, which a push
    /// landed, runs its last jobs.
    fn waits_for_last_jobs(&self, change: &ChangeRef) -> bool {
        let is_another = |slot: &Slot| {
            slot.standing == Standing::Reporting
                && slot.change.key == change.key
                && slot.change.head != change.head
                && self.has_landed(&slot.id)
        };
        self.head.slots.iter().any(is_another) && !self.head.has_landed(change)
    }
}
