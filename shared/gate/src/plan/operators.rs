//! An operator has looked at a queue that was frozen: it goes on from what the branch is now.

use super::Work;
use crate::arrival::ArrivalKind;
use crate::landing::{LandingEnd, LandingState};
use crate::queue::Standing;
use crate::report::Occasion;

impl Work<'_> {
    /// Takes operators' word that a queue may move again, before anything else that arrived: other arrivals may wait for the
    /// very landing that froze the queue.
    ///
    /// A change that landed with another tree than the tested one leaves; it is in its branch, so what needs it may stay. What
    /// was tested on top of it is tested again.
    pub(super) fn thaw(&mut self) {
        let arrivals = self.snapshot.arrivals.clone();
        let words = arrivals.iter().filter_map(|arrival| match &arrival.kind {
            ArrivalKind::Thaw { reason } => Some((&arrival.id, reason)),
            _ => None,
        });
        for (id, reason) in words {
            if !self.has_room(THAWED_RECORDS) {
                return;
            }
            self.plan.taken.push(id.clone());
            let Some(why) = self.head.frozen.take() else {
                self.plan.reasons.push(format!("{} is not frozen; an operator thawed it: {reason}", self.head.key));
                continue;
            };
            self.plan.reasons.push(format!("an operator thawed {}: {reason}", self.head.key));
            if let Some(position) = self.mismatched() {
                let key = self.head.slots[position].change.key.clone();
                self.remember_landed(&key);
                let told = format!("{why}. An operator let the queue go on: {reason}");
                self.remove(position, "MERGE_FAILURE", &told, Occasion::MergeFailure);
            }
        }
    }

    /// Returns the position of the change that landed as something else than was tested.
    fn mismatched(&self) -> Option<usize> {
        self.head.slots.iter().position(|slot| {
            let landing = self.snapshot.landings.get(&slot.id).filter(|landing| landing.generation == slot.generation);
            let is_mismatch =
                |state: &LandingState| matches!(state, LandingState::Ended { end: LandingEnd::Mismatch { .. }, .. });
            slot.standing == Standing::Landing && landing.is_some_and(|landing| is_mismatch(&landing.state))
        })
    }
}

/// Records that one word of an operator writes: the arrival, and a change that leaves with its report.
const THAWED_RECORDS: usize = 8;
