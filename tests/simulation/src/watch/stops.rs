//! A build that its item gives up is stopped, so that no executor keeps nodes for it.

use super::{Watch, both};
use sluice_gate::Item;
use sluice_memory::RecordChange;
use sluice_model::build::BuildResult;

impl Watch {
    /// Checks that each build that was under way for an item goes on, has ended or was stopped.
    pub(super) fn check_given_up_builds(&self, write: &RecordChange) -> Result<(), String> {
        let (before, after) = both::<Item>(write.before.as_ref(), write.after.as_ref())?;
        let under_way = before.iter().flat_map(|item| &item.jobs).filter(|job| job.is_under_way());
        for job in under_way {
            let Some(build) = job.build.as_ref() else { continue };
            let has_ended = self.runs.get(build).is_some_and(|(_, is_over)| *is_over);
            if has_ended || self.stopped.contains(build) {
                continue;
            }
            // The members of a bundle share builds.
            let goes_on = |item: &Item| {
                item.jobs.iter().any(|job| job.build.as_ref() == Some(build) && job.is_under_way())
            };
            // A build without nodes never started.
            let lacks_nodes = after.iter().flat_map(|item| &item.jobs).any(|job| {
                job.build.as_ref() == Some(build) && job.result() == Some(BuildResult::NodeFailure)
            });
            if !lacks_nodes && !self.items.values().any(goes_on) {
                return Err(format!(
                    "build {build} of {} is given up, but not stopped",
                    job.summary.name
                ));
            }
        }
        Ok(())
    }
}
