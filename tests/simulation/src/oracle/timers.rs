//! Timer items: at each tick of the timer, every branch is tested once at its present commit.

use super::{DiscardHistory, Oracle, QueuedItem, branch_of};
use crate::scenarios::timers::{NIGHTLY, TICKS};
use sluice_model::change::RefMove;
use sluice_model::git::BranchKey;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Checks an item of a branch without a commit of its own: its tested commit is one that the
    /// branch was at since the item entered. A deleted branch must not start anything.
    pub(super) fn check_timer_item(
        &self,
        set: &Buildset,
        queued: &QueuedItem,
        store: &Store,
    ) -> Result<(), String> {
        let change = &set.item.candidate.change;
        let branch = branch_of(change);
        if change.key.ref_move().is_some_and(RefMove::is_deleted) {
            return Err("a deleted ref must not start anything".to_owned());
        }
        match set.result.as_str() {
            "DEQUEUED" if self.is_entangled(&change.key) => Ok(()),
            "DEQUEUED" => Err("it had no reason to be dequeued".to_owned()),
            // A deleted branch cannot be tested.
            "MERGE_CONFLICT" if self.deleted.contains(&branch) => Ok(()),
            "SUCCESS" | "FAILURE" => {
                let merged = set.item.merged().ok_or("nothing was tested")?;
                let first = queued.first_tips.get(&branch).copied().unwrap_or_default();
                let tips = self.branches.get(&branch).map(Vec::as_slice).unwrap_or_default();
                if !tips.iter().skip(first).any(|tip| tip.id == merged.tested.id) {
                    return Err(
                        "its branch was never at the tested commit since it entered".to_owned()
                    );
                }
                let tree = store.tree(&merged.tested.id);
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

    /// Returns what is wrong with the number of timer tests of a branch; `None` if nothing is. Zero
    /// is allowed if events were ever discarded.
    pub fn find_timer_error(&self, branch: &BranchKey, discards: DiscardHistory) -> Option<String> {
        let is_own = |moved: &RefMove| moved.branch().as_ref() == Some(&branch.branch);
        let own = self.changes.iter().filter(|(key, _)| key.project == branch.project);
        let own = own.filter(|(key, _)| key.ref_move().is_some_and(is_own));
        let outcomes = own.flat_map(|(_, history)| &history.outcomes);
        match outcomes.filter(|outcome| outcome.pipeline == NIGHTLY).count() {
            0 if discards == DiscardHistory::Never => {
                Some(format!("no tick of the timer had {branch} tested"))
            }
            count if count > TICKS => {
                Some(format!("{TICKS} ticks of the timer had {branch} tested {count} times"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ItemOutcome;
    use super::*;
    use sluice_model::change::ChangeRef;
    use sluice_model::{ProjectName, Timestamp};

    /// R09: each tick starts one test, and none is lost.
    #[test]
    fn a_branch_must_be_tested_by_the_timer_and_not_more_often_than_that_fires() {
        let mut oracle = Oracle::default();
        let branch = BranchKey {
            project: ProjectName::new("forge.test", "org/t0p0"),
            branch: "main".into(),
        };
        assert!(
            oracle.find_timer_error(&branch, DiscardHistory::Never).is_some()
                && oracle.find_timer_error(&branch, DiscardHistory::Some).is_none()
        );
        let moved = RefMove::at_tip(&branch.branch);
        let change = ChangeRef::of_ref("github".into(), branch.project.clone(), moved);
        for tick in 1..=TICKS + 1 {
            let outcome = ItemOutcome {
                pipeline: NIGHTLY.to_owned(),
                head: change.head.clone(),
                result: "SUCCESS".to_owned(),
                left_at: Timestamp(1),
            };
            oracle.changes.entry(change.key.clone()).or_default().outcomes.push(outcome);
            assert_eq!(
                oracle.find_timer_error(&branch, DiscardHistory::Never).is_some(),
                tick > TICKS
            );
        }
    }
}
