//! Reporter jobs: they start after the change was merged, and run once.

use super::Oracle;
use crate::scenarios::PUBLISH;
use crate::truth;
use sluice_model::BuildId;
use sluice_model::build::{BuildResult, Order};
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Checks the order of a reporter job. `done` is an earlier build of the same job that ended.
    ///
    /// # Errors
    /// If the change is not merged, or the earlier build was not interrupted.
    pub fn check_reporter_job_order(
        &self,
        order: &Order,
        done: Option<&BuildId>,
    ) -> Result<(), String> {
        // A manual merge also counts, if the branch became what was tested.
        if !self.is_merged(&order.change.key) {
            return Err(format!(
                "{PUBLISH} of {} was ordered before the change landed",
                order.change
            ));
        }
        match done.filter(|done| !self.interrupted_builds.contains(*done)) {
            Some(done) => Err(format!(
                "{PUBLISH} of {} was ordered again after build {done} ended",
                order.change
            )),
            None => Ok(()),
        }
    }

    /// Checks how a reporter job ended.
    ///
    /// # Errors
    /// If it did not end as it does on the tested tree.
    pub fn check_reporter_job_result(&self, set: &Buildset, store: &Store) -> Result<(), String> {
        let job = set.item.jobs.iter().find(|job| job.summary.name.as_str() == PUBLISH);
        // Bundles are tested as a whole, but an item records only its own part.
        let merged = set.item.merged().filter(|_| set.item.candidate.bundle.is_empty());
        let (Some(result), Some(merged)) = (job.and_then(|job| job.result()), merged) else {
            return Ok(());
        };
        let passes = truth::passes(PUBLISH, store.tree(&merged.tested.id));
        match result {
            BuildResult::Success | BuildResult::Failure
                if (result == BuildResult::Success) != passes =>
            {
                Err(format!(
                    "{PUBLISH} of {} must pass on its tree: {passes}",
                    set.item.candidate.change
                ))
            }
            _ => Ok(()),
        }
    }
}
