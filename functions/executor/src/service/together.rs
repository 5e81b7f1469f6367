//! Builds of one item that run here side by side: of those that pass, the last one has their queue
//! look at all of them.
//!
//! A queue decides nothing by a build that has passed, that nothing waits for by itself, and beside
//! which others of its item go on: it has to look when those end anyway. So whoever has such an end
//! to tell leaves it to them as long as one of them is here. Each leaves its place only after its
//! own end is written, so whoever is the last finds all of them written. A word that is lost with
//! its executor costs what any lost word does: the queue looks after builds under way by itself,
//! and what became of the others it has to find out by that look as well.

use crate::claim::Claimed;
use sluice_model::ItemId;
use sluice_model::build::{BuildResult, Phase};
use sluice_model::job::JobKind;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An item and the generation of its speculative state.
type Of = (ItemId, u64);

/// How many builds of each item are here that have their queue look when they end.
#[derive(Clone, Default)]
pub(super) struct Together(Arc<Mutex<BTreeMap<Of, usize>>>);

impl Together {
    /// Gives a build its place among those of its item.
    pub(super) fn enter(&self, item: &ItemId, generation: u64) -> Place {
        let of = (item.clone(), generation);
        *self.lock().entry(of.clone()).or_default() += 1;
        Place { together: self.clone(), of, has_left: false }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Of, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a build, which it leaves when its end is written, when it pauses, or when nobody
/// runs it any more.
pub(super) struct Place {
    together: Together,
    of: Of,
    has_left: bool,
}

impl Place {
    /// Leaves, once, and returns whether others of the item are still here.
    pub(super) fn leave(&mut self) -> bool {
        let mut places = self.together.lock();
        if !self.has_left {
            self.has_left = true;
            let left = places.get(&self.of).map_or(0, |count| count.saturating_sub(1));
            match left {
                0 => places.remove(&self.of),
                left => places.insert(self.of.clone(), left),
            };
        }
        places.contains_key(&self.of)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns whether nothing is decided by a build's end while others of its item go on: it passed,
/// and nobody waits for it alone.
pub(super) fn may_wait(claimed: &Claimed) -> bool {
    let has_passed = match &claimed.run.phase {
        Phase::Ended(ended) => ended.result == BuildResult::Success,
        Phase::Running | Phase::Failing | Phase::Paused(_) => false,
    };
    // Jobs behind it, and paused ones that wait until whoever is behind them is over.
    let is_alone = claimed.child_jobs.is_empty() && claimed.order.parents.is_empty();
    // Before all others, or after the report, each end counts.
    let is_regular = claimed.job.run_time.kind == JobKind::Regular;
    // A change that has to land with this one may share the build, and have jobs behind it.
    let is_single = claimed.speculation.placed.is_empty();
    if !(has_passed && is_alone && is_regular && is_single) {
        return false;
    }
    let job = claimed.job.summary();
    job.semaphores.is_empty() && job.provides.is_empty() && !job.hold_following_changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.6
    #[test]
    fn a_build_leaves_its_place_once_and_the_last_of_an_item_finds_nobody() {
        let together = Together::default();
        let (item, other) = (ItemId::from("item"), ItemId::from("other"));
        let mut one = together.enter(&item, 1);
        let mut two = together.enter(&item, 1);
        let _elsewhere = (together.enter(&other, 1), together.enter(&item, 2));
        assert!(one.leave());
        assert!(one.leave(), "told again, it still leaves it to the other");
        assert!(!two.leave());
        assert!(!one.leave());
    }

    /// Z7.6: nobody is left to tell of what it was to tell.
    #[test]
    fn a_build_that_nobody_runs_any_more_has_no_place() {
        let together = Together::default();
        let item = ItemId::from("item");
        let mut one = together.enter(&item, 1);
        drop(together.enter(&item, 1));
        assert!(!one.leave());
    }
}
