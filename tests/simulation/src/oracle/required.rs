//! What builds are given besides their own project: the branch of their change's name, as it was at
//! some time, or with the changes of it that they are tested on.

use super::Oracle;
use crate::plays::required::required_by;
use crate::reviews::{host_of, is_review};
use sluice_executor::claim::Claimed;
use sluice_model::ProjectName;
use sluice_model::change::ChangeRef;
use sluice_model::git::BranchKey;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Returns what is wrong with the project that a build is given besides its own, if anything.
    /// Not judged is what a forge may have tampered with, and what changes come to that have landed
    /// meanwhile, were made on another state of the branch, or are at a Gerrit.
    pub fn unprepared(&self, claimed: &Claimed, store: &Store) -> Option<String> {
        let (job, change) = (&claimed.order.job, &claimed.order.change);
        let name = required_by(job.as_str())?;
        let project = ProjectName::new(host_of(&name), &name);
        let branch = BranchKey { project, branch: change.branch.clone() };
        let wrong = |why: &str| Some(format!("{job} of {change} is to be given {branch}, {why}"));
        let is_it = |required: &ProjectName| *required == branch.project;
        if !claimed.job.required_projects.iter().any(|required| is_it(&required.project)) {
            return wrong("and does not know of it");
        }
        let Some(state) = claimed.speculation.branches.iter().find(|state| state.branch == branch)
        else {
            return wrong("and what it is tested as does not have it");
        };
        if self.unruly_projects.contains(&branch.project) {
            return None;
        }
        let tips = self.branches.get(&branch).map(Vec::as_slice).unwrap_or_default();
        let Some(base) = tips.iter().find(|tip| tip.tree_id == state.base.tree) else {
            return wrong("and the branch was never as it is there");
        };
        let is_of_it = |other: &&ChangeRef| {
            other.key.project == branch.project && other.branch == branch.branch
        };
        let changes = claimed.speculation.changes.iter().map(|told| &told.change).filter(is_of_it);
        let mut tree = base.tree.clone();
        for other in changes {
            let known = self.changes.get(&other.key)?;
            let revision = known.revisions.get(&other.head)?;
            // What was made on a later state of the branch brings what came between as well.
            if known.merged.is_some() || is_review(&name) || revision.base != base.tree {
                return None;
            }
            tree = revision.put(self.mode_of(&branch.project), &tree)?;
        }
        if *store.tree(&state.result.id) == tree {
            None
        } else {
            wrong("and it is something else there")
        }
    }
}
