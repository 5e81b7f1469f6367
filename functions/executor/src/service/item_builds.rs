//! Counts the running builds of each item, so that only the last one that passes wakes the queue.
//!
//! A queue has nothing to decide when a build passes, no job depends on it, and other builds of its
//! item still run: it must reconcile when those end anyway. So the wakeup of such an end is left to
//! the builds that still run here. A build stops counting only after its own end is stored, so the
//! last one wakes the queue when all ends are stored. If the executor dies before, the queue finds
//! the ends when it checks its running builds.

use crate::claim::Claimed;
use sluice_model::ItemId;
use sluice_model::build::{BuildResult, Phase};
use sluice_model::job::JobKind;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An item and the generation of its speculative state.
type ItemGeneration = (ItemId, u64);

/// The number of running builds here for each item and generation.
#[derive(Clone, Default)]
pub(super) struct ItemBuilds(Arc<Mutex<BTreeMap<ItemGeneration, usize>>>);

impl ItemBuilds {
    /// Counts a build of this item and generation as running until the returned guard is left or
    /// dropped.
    pub(super) fn enter(&self, item: &ItemId, generation: u64) -> ItemBuildGuard {
        let key = (item.clone(), generation);
        *self.lock().entry(key.clone()).or_default() += 1;
        ItemBuildGuard { item_builds: self.clone(), item: key, has_left: false }
    }

    /// Locks the counts of running builds.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ItemGeneration, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one build as running. It stops counting when its end is stored, when it pauses, or when
/// the guard is dropped.
pub(super) struct ItemBuildGuard {
    /// The counters.
    item_builds: ItemBuilds,
    /// The item of the build.
    item: ItemGeneration,
    /// Whether the build stopped counting.
    has_left: bool,
}

impl ItemBuildGuard {
    /// Stops counting the build, unless it has stopped already. Returns whether other builds of the
    /// same item and generation still run here.
    pub(super) fn leave(&mut self) -> bool {
        let mut counts = self.item_builds.lock();
        if !self.has_left {
            self.has_left = true;
            let left = counts.get(&self.item).map_or(0, |count| count.saturating_sub(1));
            match left {
                0 => counts.remove(&self.item),
                left => counts.insert(self.item.clone(), left),
            };
        }
        counts.contains_key(&self.item)
    }
}

impl Drop for ItemBuildGuard {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns whether the queue can be woken later for an ended build: it passed, and nothing can wait
/// for it alone. So it must be a regular job's build of a single change, without parent and child
/// jobs, semaphores, provided artifacts and `hold-following-changes`. The caller must also know
/// that another build of the item runs here, whose end wakes the queue.
pub(super) fn can_defer_wakeup(claimed: &Claimed) -> bool {
    let has_passed = match &claimed.run.phase {
        Phase::Ended(ended) => ended.result == BuildResult::Success,
        Phase::Running | Phase::Failing | Phase::Paused(_) => false,
    };
    // Dependent jobs wait for it; a paused parent waits until its dependents have ended.
    let is_alone = claimed.child_jobs.is_empty() && claimed.order.parents.is_empty();
    // Other kinds of jobs run before all others or after the report: each end counts.
    let is_regular = claimed.job.run_time.kind == JobKind::Regular;
    // Another member of the bundle may share the build and have dependent jobs.
    let is_single = claimed.speculation.applied_members.is_empty();
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
    fn a_build_stops_counting_once_and_the_last_of_an_item_finds_no_other() {
        let item_builds = ItemBuilds::default();
        let (item, other) = (ItemId::from("item"), ItemId::from("other"));
        let mut one = item_builds.enter(&item, 1);
        let mut two = item_builds.enter(&item, 1);
        let _elsewhere = (item_builds.enter(&other, 1), item_builds.enter(&item, 2));
        assert!(one.leave());
        assert!(one.leave(), "a second call still sees the other build");
        assert!(!two.leave());
        assert!(!one.leave());
    }

    /// Z7.6: a build that is not run cannot wake the queue for the others.
    #[test]
    fn a_build_whose_guard_is_dropped_does_not_count() {
        let item_builds = ItemBuilds::default();
        let item = ItemId::from("item");
        let mut one = item_builds.enter(&item, 1);
        drop(item_builds.enter(&item, 1));
        assert!(!one.leave());
    }
}
