//! The builds that an executor claims, runs or has paused, and the requests to stop or resume them.

use crate::job::{StopSignal, Stopper};
use sluice_model::BuildId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The builds of one executor process.
#[derive(Clone, Default)]
pub(super) struct RunningBuilds(Arc<Mutex<BTreeMap<BuildId, RunningBuild>>>);

/// One of these builds.
struct RunningBuild {
    /// Stops or resumes it.
    stopper: Stopper,
    /// How far it is.
    stage: BuildStage,
}

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuildStage {
    /// Whether the claim succeeds is not decided yet.
    Claiming,
    /// It is claimed, and runs.
    Running,
    /// It waits until its dependent jobs have ended.
    Paused,
}

impl RunningBuilds {
    /// Adds a build that is being claimed. It stays until the returned value is dropped, also by a
    /// panic. If the build is here already, the error is how far it is.
    pub(super) fn enter(&self, build: &BuildId) -> Result<(ListedBuild, StopSignal), BuildStage> {
        match self.lock().entry(build.clone()) {
            Entry::Occupied(here) => Err(here.get().stage),
            Entry::Vacant(vacant) => {
                let (stopper, stop) = Stopper::new();
                let stage = BuildStage::Claiming;
                vacant.insert(RunningBuild { stopper, stage });
                Ok((ListedBuild { builds: self.clone(), build: build.clone() }, stop))
            }
        }
    }

    /// Returns all builds.
    pub(super) fn ids(&self) -> Vec<BuildId> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the paused builds.
    pub(super) fn paused(&self) -> Vec<BuildId> {
        let builds = self.lock();
        let paused = builds.iter().filter(|(_, build)| build.stage == BuildStage::Paused);
        paused.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the number of builds.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Returns whether a build is here.
    pub(super) fn contains(&self, build: &BuildId) -> bool {
        self.lock().contains_key(build)
    }

    /// Stops a build on request, if it is here. It ends as aborted.
    pub(super) fn stop(&self, build: &BuildId, why: &str) {
        if let Some(here) = self.lock().get(build) {
            here.stopper.stop(why);
        }
    }

    /// Resumes a build, if it is here.
    pub(super) fn resume(&self, build: &BuildId) {
        if let Some(here) = self.lock().get_mut(build) {
            here.stage = BuildStage::Running;
            here.stopper.resume();
        }
    }

    /// Stops all builds for the same reason, also those whose claim is not decided. They are
    /// retried, except for those whose stop was requested before.
    pub(super) fn stop_all(&self, why: &str) {
        for build in self.lock().values() {
            build.stopper.stop_and_retry(why);
        }
    }

    /// Locks the builds.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<BuildId, RunningBuild>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one build among the running ones until it is dropped.
pub(super) struct ListedBuild {
    /// The builds.
    builds: RunningBuilds,
    /// The build.
    build: BuildId,
}

impl ListedBuild {
    /// The claim of the build has succeeded.
    pub(super) fn begin(&self) {
        self.set_stage(BuildStage::Running);
    }

    /// The build is paused. Returns how many builds are paused now.
    pub(super) fn pause(&self) -> usize {
        self.set_stage(BuildStage::Paused);
        self.builds.paused().len()
    }

    /// Sets how far the build is.
    fn set_stage(&self, stage: BuildStage) {
        if let Some(build) = self.builds.lock().get_mut(&self.build) {
            build.stage = stage;
        }
    }
}

impl Drop for ListedBuild {
    fn drop(&mut self) {
        self.builds.lock().remove(&self.build);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::build::BuildResult;

    /// Z6.4, Z7.3: a build that was cancelled is not retried because its executor has stopped its
    /// builds earlier or later.
    #[test]
    fn only_builds_that_the_executor_stopped_itself_are_retried() {
        let builds = RunningBuilds::default();
        let ids = ["cancelled", "running", "later"].map(BuildId::from);
        let [cancelled, running] = [&ids[0], &ids[1]].map(|id| builds.enter(id).ok().unwrap());
        builds.stop(&ids[0], "a newer patchset");
        builds.stop_all("an outage");
        let later = builds.enter(&ids[2]).ok().unwrap();
        builds.stop(&ids[2], "a newer patchset");
        let results = [&cancelled, &running, &later].map(|(_, stop)| stop.result());
        assert_eq!(results, [BuildResult::Aborted, BuildResult::Retry, BuildResult::Aborted]);
        assert_eq!(running.1.reason().as_deref(), Some("an outage"));
        assert_eq!(cancelled.1.reason().as_deref(), Some("a newer patchset"));
    }

    /// Z7.6: a build is here once, and no longer than what runs it.
    #[test]
    fn a_build_is_listed_once_until_it_is_dropped() {
        let builds = RunningBuilds::default();
        let id = BuildId::from("one");
        let (listed, _stop) = builds.enter(&id).ok().unwrap();
        assert_eq!(builds.enter(&id).err(), Some(BuildStage::Claiming));
        listed.begin();
        assert_eq!(builds.enter(&id).err(), Some(BuildStage::Running));
        assert_eq!((listed.pause(), builds.paused()), (1, vec![id.clone()]));
        builds.resume(&id);
        assert_eq!((builds.paused().len(), builds.ids()), (0, vec![id.clone()]));
        let unwound: Result<(), _> = std::panic::catch_unwind(move || {
            let _listed = listed;
            std::panic::panic_any(())
        });
        assert!(unwound.is_err() && !builds.contains(&id) && builds.count() == 0);
    }
}
