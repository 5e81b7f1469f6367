//! What had to become of a job that runs after the report: it begins when its change is in its
//! branch, and is done once.

use super::Oracle;
use crate::plays::PUBLISH;
use crate::truth;
use sluice_model::BuildId;
use sluice_model::build::{BuildResult, Order};
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Hears that a build is ordered which comes after its change's report; `done` is an earlier
    /// one of it that came to its end.
    ///
    /// # Errors
    /// When its change is not in its branch, or an earlier build did the same already and nobody
    /// can have taken it for lost.
    pub fn last_job_ordered(&self, order: &Order, done: Option<&BuildId>) -> Result<(), String> {
        // By hand too, if that made the branch what was tested.
        if !self.is_merged(&order.change.key) {
            return Err(format!("{PUBLISH} of {} is ordered, which did not land", order.change));
        }
        match done.filter(|done| !self.unlucky.contains(*done)) {
            Some(done) => Err(format!(
                "{PUBLISH} of {} is ordered again, and build {done} had done it",
                order.change
            )),
            None => Ok(()),
        }
    }

    /// Hears that the jobs after an item's report are over.
    ///
    /// # Errors
    /// When one ended otherwise than its tree says.
    pub fn over(&self, set: &Buildset, store: &Store) -> Result<(), String> {
        let job = set.item.jobs.iter().find(|job| job.summary.name.as_str() == PUBLISH);
        // Those that need each other are tested as a whole, of which an item knows its own part
        // alone.
        let merged = set.item.merged().filter(|_| set.item.candidate.cycle.is_empty());
        let (Some(result), Some(merged)) = (job.and_then(|job| job.result()), merged) else {
            return Ok(());
        };
        let passes = truth::passes(PUBLISH, store.tree(&merged.tested.id));
        match result {
            BuildResult::Success | BuildResult::Failure
                if (result == BuildResult::Success) != passes =>
            {
                Err(format!(
                    "{PUBLISH} of {} passes on that tree: {passes}",
                    set.item.candidate.change
                ))
            }
            _ => Ok(()),
        }
    }
}
