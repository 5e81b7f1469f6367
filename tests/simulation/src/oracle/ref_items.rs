//! Items of refs: each is tested at its commit. In a supercedent pipeline only the newest waiting
//! one is tested.

use super::{Oracle, branch_of};
use crate::scenarios::POST;
use crate::scenarios::newcomers::is_newcomer;
use sluice_model::git::{BranchKey, Oid};
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Checks the tested tree, the jobs and the result of an item of a ref.
    pub(super) fn check_ref_item(&mut self, set: &Buildset, store: &Store) -> Result<(), String> {
        let change = &set.item.candidate.change;
        let tips = self.branches.get(&branch_of(change)).map(Vec::as_slice).unwrap_or_default();
        if !tips.iter().any(|tip| tip.id == change.head) {
            return Err("its branch was never at this commit".to_owned());
        }
        match set.result.as_str() {
            "DEQUEUED" if self.is_entangled(&change.key) => Ok(()),
            "DEQUEUED" if set.queue.pipeline.as_str() != POST => {
                Err("it had no reason to be dequeued".to_owned())
            }
            "DEQUEUED" => {
                // The newer ref enters in the same transaction.
                self.expected_newer.insert(set.queue.clone());
                Ok(())
            }
            "SUCCESS" | "FAILURE" => {
                let merged = set.item.merged().ok_or("nothing was tested")?;
                let tree = store.tree(&change.head);
                if store.tree(&merged.tested.id) != tree {
                    return Err("the tested tree is not that of its commit".to_owned());
                }
                self.check_job_names(set, tree, store)?;
                match (set.result.as_str(), self.check_job_results(&set.item, tree)?) {
                    ("SUCCESS", true) => Err("a job failed".to_owned()),
                    ("FAILURE", false) => Err("every job passed".to_owned()),
                    _ => Ok(()),
                }
            }
            "CONFIG_ERROR" if self.is_any_greedy() => Ok(()),
            _ => Err("this result is not possible here".to_owned()),
        }
    }

    /// Returns the branches whose last commit was never tested, and the queues that dropped a ref
    /// for a newer one that never entered.
    pub fn find_untested_pushes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        wrong.extend(
            self.expected_newer
                .iter()
                .map(|queue| format!("an item left {queue} for a newer one that never entered")),
        );
        // An older push whose event arrives later replaces a newer one that waits.
        let is_known = |head: &Oid| {
            let outcomes = self.changes.values().flat_map(|history| &history.outcomes);
            outcomes.into_iter().any(|outcome| outcome.pipeline == POST && outcome.head == *head)
        };
        let is_tested = |branch: &BranchKey| {
            !is_newcomer(branch.project.name()) && !self.has_left(&branch.project)
        };
        let moved =
            self.branches.iter().filter(|(branch, tips)| tips.len() > 1 && is_tested(branch));
        for (branch, tip) in moved.filter_map(|(branch, tips)| Some((branch, tips.last()?))) {
            if !is_known(&tip.id) {
                wrong.push(format!("{branch} is at {} at the end, which was never tested", tip.id));
            }
        }
        wrong
    }
}
