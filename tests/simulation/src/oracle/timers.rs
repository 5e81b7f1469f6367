//! What had to become of the branches that a timer has tested: each is tested as it is by then, at
//! each tick once.

use super::{Oracle, Stands, branch_of};
use crate::plays::timers::{NIGHTLY, TICKS};
use sluice_model::change::RefMove;
use sluice_model::git::BranchKey;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Judges an item that was about a branch as it stands: what was tested is where the branch was
    /// at some time since the item came. That a branch is deleted starts nothing.
    pub(super) fn judged_standing(
        &self,
        set: &Buildset,
        stood: &Stands,
        store: &Store,
    ) -> Result<(), String> {
        let change = &set.item.candidate.change;
        let branch = branch_of(change);
        if change.key.moved().is_some_and(RefMove::is_deleted) {
            return Err("what is deleted starts nothing".to_owned());
        }
        match set.result.as_str() {
            "DEQUEUED" if self.is_entangled(&change.key) => Ok(()),
            "DEQUEUED" => Err("nobody took it out".to_owned()),
            // Nothing can be tested of what is gone by then.
            "MERGE_CONFLICT" if self.deleted.contains(&branch) => Ok(()),
            "SUCCESS" | "FAILURE" => {
                let merged = set.item.merged().ok_or("nothing was tested")?;
                let first = stood.first_tips.get(&branch).copied().unwrap_or_default();
                let tips = self.branches.get(&branch).map(Vec::as_slice).unwrap_or_default();
                if !tips.iter().skip(first).any(|tip| tip.id == merged.tested.id) {
                    return Err("its branch was not there since it came".to_owned());
                }
                let tree = store.tree(&merged.tested.id);
                self.judged_names(set, tree, store)?;
                match (set.result.as_str(), self.judged_jobs(&set.item, tree)?) {
                    ("SUCCESS", true) => Err("a job failed".to_owned()),
                    ("FAILURE", false) => Err("every job passed".to_owned()),
                    _ => Ok(()),
                }
            }
            "CONFIG_ERROR" if self.is_any_greedy() => Ok(()),
            _ => Err("nothing here ends so".to_owned()),
        }
    }

    /// Returns what is wrong with how often the timer had a branch tested. Where events were ever
    /// discarded it may not have been at all.
    pub fn mistimed(&self, branch: &BranchKey, has_discarded: bool) -> Option<String> {
        let is_own = |moved: &RefMove| moved.branch().as_ref() == Some(&branch.branch);
        let own = self.changes.iter().filter(|(key, _)| key.project == branch.project);
        let own = own.filter(|(key, _)| key.moved().is_some_and(is_own));
        let verdicts = own.flat_map(|(_, known)| &known.verdicts);
        match verdicts.filter(|verdict| verdict.pipeline == NIGHTLY).count() {
            0 if !has_discarded => Some(format!("no tick of the timer had {branch} tested")),
            count if count > TICKS => {
                Some(format!("{TICKS} ticks of the timer had {branch} tested {count} times"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use sluice_model::change::ChangeRef;
    use sluice_model::{ProjectName, Timestamp};

    /// R09: each tick is told once, and none is lost.
    #[test]
    fn a_branch_must_be_tested_by_the_timer_and_not_more_often_than_that_fires() {
        let mut oracle = Oracle::default();
        let branch = BranchKey {
            project: ProjectName::new("forge.test", "org/t0p0"),
            branch: "main".into(),
        };
        assert!(
            oracle.mistimed(&branch, false).is_some() && oracle.mistimed(&branch, true).is_none()
        );
        let moved = RefMove::standing(&branch.branch);
        let change = ChangeRef::of_ref("github".into(), branch.project.clone(), moved);
        for tick in 1..=TICKS + 1 {
            let verdict = Verdict {
                pipeline: NIGHTLY.to_owned(),
                head: change.head.clone(),
                result: "SUCCESS".to_owned(),
                left_at: Timestamp(1),
            };
            oracle.changes.entry(change.key.clone()).or_default().verdicts.push(verdict);
            assert_eq!(oracle.mistimed(&branch, false).is_some(), tick > TICKS);
        }
    }
}
