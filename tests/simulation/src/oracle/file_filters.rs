//! Jobs with file filters: which of them an item must have.

use super::{Merged, Oracle};
use crate::reviews::is_gerrit_project;
use crate::scenarios::file_filters::matching_jobs;
use crate::scenarios::newcomers::is_newcomer;
use crate::scenarios::{Scenario, lands};
use sluice_records::report::Buildset;

impl Oracle {
    /// Checks the jobs with file filters of an item against the files that its change touches.
    /// Changes that may have been merged before the test and changes at Gerrit are not checked.
    pub(super) fn check_file_filtered_jobs(
        &self,
        set: &Buildset,
        has: &[&str],
    ) -> Result<(), String> {
        let (change, pipeline) = (&set.item.candidate.change, set.queue.pipeline.as_str());
        if !self.scenarios.contains(&Scenario::FileFilters)
            || is_newcomer(change.key.project.name())
            || !["check", "gate"].contains(&pipeline)
        {
            return if has.is_empty() {
                Ok(())
            } else {
                Err(format!("it has the jobs {has:?}, but its configuration names none of them"))
            };
        }
        let history = self.changes.get(&change.key).ok_or("the change was never proposed")?;
        let has_landed_here = lands(pipeline) && history.merged == Some(Merged::ByGate);
        let may_be_there =
            set.item.candidate.merged.is_some() || (history.merged.is_some() && !has_landed_here);
        if may_be_there || is_gerrit_project(change.key.project.name()) {
            return Ok(());
        }
        let revision =
            history.revisions.get(&change.head).ok_or("the revision was never uploaded")?;
        let due =
            matching_jobs(&revision.base, revision.tree().ok_or("its revision has no commit")?);
        if has == due {
            return Ok(());
        }
        Err(format!("it has the jobs {has:?} with file filters, but its files match {due:?}"))
    }
}
