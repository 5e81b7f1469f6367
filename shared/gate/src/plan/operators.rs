//! What operators ask of a queue: a change leaves, or a queue that was frozen goes on from what the branch is now.

use super::Work;
use super::admit::LEAVING_RECORDS;
use crate::arrival::{Arrival, ArrivalKind};
use crate::landing::{LandingEnd, LandingState};
use crate::queue::Standing;
use crate::report::Occasion;
use sluice_model::change::ChangeKey;
use sluice_model::git::Oid;
use std::ops::Range;

/// Records that one word of an operator writes: the arrival, and a change that leaves with its report.
const OPERATOR_RECORDS: usize = 8;

/// Who is named where nobody said who asked.
const SOMEBODY: &str = "an operator";

impl Work<'_> {
    /// Takes operators' words, before anything else that arrived: other arrivals may wait for a layout, or for the very landing
    /// that froze the queue.
    pub(super) fn hear_operators(&mut self) {
        for arrival in self.snapshot.arrivals.clone() {
            if !is_operators(&arrival) || self.waits_for_landing(&arrival) {
                continue;
            }
            if !self.has_room(OPERATOR_RECORDS) {
                return;
            }
            let is_done = match &arrival.kind {
                ArrivalKind::Thaw { by, reason } => self.thaw(named(by), reason),
                ArrivalKind::Dequeue { key, head, by, reason } => self.dequeue(key, head.as_ref(), named(by), reason),
                ArrivalKind::Enqueue { .. } | ArrivalKind::Seen { .. } => false,
            };
            if !is_done {
                return; // The transaction is full; what is done of it is found done by the next plan.
            }
            self.plan.taken.push(arrival.id);
        }
    }

    /// Lets a frozen queue go on. What landed leaves, with another tree than the tested one or as the first of a bundle that did not
    /// land as a whole; it is in its branch, so what needs it may stay. The rest of such a bundle leaves without having landed.
    /// What was tested on top of it is tested again.
    fn thaw(&mut self, by: &str, reason: &str) -> bool {
        let Some(why) = self.head.frozen.clone() else {
            self.plan.reasons.push(format!("{} is not frozen; {by} thawed it: {reason}", self.head.key));
            return true;
        };
        let stuck = self.stuck();
        if !self.has_room(stuck.as_ref().map_or(1, |(bundle, _)| bundle.len() * LEAVING_RECORDS)) {
            return false;
        }
        self.head.frozen = None;
        self.plan.reasons.push(format!("{by} thawed {}: {reason}", self.head.key));
        let Some((bundle, has_landed)) = stuck else { return true };
        let told = format!("{why}. An operator let the queue go on: {reason}");
        let window = self.head.window;
        for _ in bundle.clone() {
            let slot = self.head.slots[bundle.start].clone();
            self.note(&slot.id, format!("{by} let the queue go on: {reason}"));
            let is_in_branch = slot.standing == Standing::Landed || (slot.standing == Standing::Landing && has_landed);
            if is_in_branch {
                self.remember_landed(&slot.change.key);
            }
            if slot.standing == Standing::Landed {
                self.remove(bundle.start, "SUCCESS", "landed", Occasion::Success);
            } else {
                self.remove(bundle.start, "MERGE_FAILURE", &told, Occasion::MergeFailure);
            }
        }
        self.head.window = window;
        self.move_window("MERGE_FAILURE");
        true
    }

    /// Takes a change out (R06), unless another revision has taken its place meanwhile. Who asked stands with the item; the forge
    /// is told the reason alone. Returns false when some of its builds could not be stopped yet.
    fn dequeue(&mut self, key: &ChangeKey, head: Option<&Oid>, by: &str, reason: &str) -> bool {
        let is_meant = |change: &sluice_model::change::ChangeRef| {
            change.key == *key && head.is_none_or(|head| change.head.as_str().starts_with(head.as_str()))
        };
        let Some(slot) = self.head.slots.iter().find(|slot| is_meant(&slot.change)) else {
            self.plan.reasons.push(format!("{by} wanted {key} out of {}, and it is not there", self.head.key));
            return true;
        };
        let id = slot.id.clone();
        let colon = if reason.is_empty() { "" } else { ": " };
        self.note(&id, format!("{by} took it out{colon}{reason}"));
        self.leave(key, &format!("an operator took it out{colon}{reason}"), Occasion::Dequeue)
    }

    /// Returns the bundle whose landing froze the queue, and whether the change that it came to a stop at is in its branch,
    /// though not as it was tested.
    fn stuck(&self) -> Option<(Range<usize>, bool)> {
        self.head.slots.iter().enumerate().find_map(|(position, slot)| {
            let landing =
                self.snapshot.landings.get(&slot.id).filter(|landing| landing.generation == slot.generation)?;
            let LandingState::Ended { end, .. } = &landing.state else { return None };
            let has_landed = matches!(end, LandingEnd::Mismatch { .. });
            (slot.standing == Standing::Landing).then(|| (self.head.bundle(position), has_landed))
        })
    }
}

/// Returns whether an arrival is an operator's word, which waits for nothing but a landing of its own change.
pub(super) fn is_operators(arrival: &Arrival) -> bool {
    matches!(arrival.kind, ArrivalKind::Thaw { .. } | ArrivalKind::Dequeue { .. })
}

fn named(by: &str) -> &str {
    if by.is_empty() { SOMEBODY } else { by }
}
