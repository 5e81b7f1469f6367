//! Required projects: a build gets the branch of another project, at a state that it once had or
//! with the changes that the build tests.

use super::Oracle;
use crate::reviews::{host_of, is_gerrit_project};
use crate::scenarios::required::required_by;
use sluice_executor::claim::Claimed;
use sluice_model::ProjectName;
use sluice_model::change::ChangeRef;
use sluice_model::git::BranchKey;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Returns what is wrong with the required project of a claimed build; `None` if nothing is.
    /// Projects with tampered merges, changes merged in the meantime or based on another branch
    /// state, and Gerrit projects are not checked.
    pub fn find_required_project_error(&self, claimed: &Claimed, store: &Store) -> Option<String> {
        let (job, change) = (&claimed.order.job, &claimed.order.change);
        let name = required_by(job.as_str())?;
        let project = ProjectName::new(host_of(&name), &name);
        let branch = BranchKey { project, branch: change.branch.clone() };
        // A job runs without a required project that its tenant does not have.
        if self.has_left(&branch.project) {
            return None;
        }
        let wrong = |why: &str| Some(format!("{job} of {change} must get {branch}, {why}"));
        let is_it = |required: &ProjectName| *required == branch.project;
        if !claimed.job.required_projects.iter().any(|required| is_it(&required.project)) {
            return wrong("but does not name it");
        }
        let Some(state) = claimed.speculation.branches.iter().find(|state| state.branch == branch)
        else {
            return wrong("but its tested state does not have it");
        };
        if self.tampered_projects.contains(&branch.project) {
            return None;
        }
        let tips = self.branches.get(&branch).map(Vec::as_slice).unwrap_or_default();
        let Some(base) = tips.iter().find(|tip| tip.tree_id == state.base.tree) else {
            return wrong("but the branch never had this state");
        };
        let is_of_it = |other: &&ChangeRef| {
            other.key.project == branch.project && other.branch == branch.branch
        };
        let changes =
            claimed.speculation.changes.iter().map(|tested| &tested.change).filter(is_of_it);
        let mut tree = base.tree.clone();
        for other in changes {
            let history = self.changes.get(&other.key)?;
            let revision = history.revisions.get(&other.head)?;
            // A revision based on a later state also brings the changes in between.
            if history.merged.is_some() || is_gerrit_project(&name) || revision.base != base.tree {
                return None;
            }
            tree = revision.merge_onto(self.mode_of(&branch.project), &tree)?;
        }
        if *store.tree(&state.result.id) == tree { None } else { wrong("but got another tree") }
    }
}
