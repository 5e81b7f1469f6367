//! Refs that must be tested: those that operators enqueued and those that were pushed.

use super::{DiscardHistory, Oracle};
use sluice_model::git::{BranchKey, Oid};

/// A ref that must be tested.
pub(super) struct Due {
    /// The pipeline.
    pipeline: &'static str,
    /// The branch or tag.
    branch: BranchKey,
    /// Its commit at that moment.
    head: Oid,
    /// Whether only an event announces it.
    is_event: bool,
}

impl Oracle {
    /// Expects a test of a ref at its present commit, because an operator enqueued it.
    pub fn expect_ref_test(&mut self, pipeline: &'static str, branch: &BranchKey, head: &Oid) {
        self.expected_refs.push(Due {
            pipeline,
            branch: branch.clone(),
            head: head.clone(),
            is_event: false,
        });
    }

    /// Expects a test of a pushed ref at its present commit. Does nothing if webhooks may be lost.
    pub fn expect_push_test(&mut self, pipeline: &'static str, branch: &BranchKey, head: &Oid) {
        if self.sees_all_events {
            self.expected_refs.push(Due {
                pipeline,
                branch: branch.clone(),
                head: head.clone(),
                is_event: true,
            });
        }
    }

    /// Records that a branch was deleted; its pushed commits need not be tested any more.
    pub fn record_branch_deletion(&mut self, branch: &BranchKey) {
        self.expected_refs.retain(|due| due.branch != *branch);
        self.deleted.insert(branch.clone());
    }

    /// Returns the expected refs that were never tested. Refs that only an event announces are
    /// ignored if events were ever discarded. A ref that was dequeued again counts as tested.
    pub fn find_untested_refs(&self, discards: DiscardHistory) -> Vec<String> {
        let is_known = |due: &&Due| {
            let own = self.changes.iter().filter(|(key, _)| key.project == due.branch.project);
            let mut outcomes = own.flat_map(|(_, history)| &history.outcomes);
            outcomes.any(|outcome| outcome.pipeline == due.pipeline && outcome.head == due.head)
        };
        let left = self
            .expected_refs
            .iter()
            .filter(|due| !(is_known(due) || discards == DiscardHistory::Some && due.is_event))
            .filter(|due| !self.has_left(&due.branch.project));
        left.map(|due| {
            format!("{} at {} was never tested in {}", due.branch, due.head, due.pipeline)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ItemOutcome;
    use super::*;
    use sluice_model::change::{ChangeRef, RefMove};
    use sluice_model::{ProjectName, Timestamp};

    /// Z6.1: an enqueued ref is tested at the commit that the operator named, wherever the branch
    /// is.
    #[test]
    fn a_ref_that_is_to_be_tested_must_be_so_at_its_commit() {
        let mut oracle = Oracle::default();
        let branch = BranchKey {
            project: ProjectName::new("forge.test", "org/t0p0"),
            branch: "main".into(),
        };
        let moved = RefMove::new("refs/heads/main", Oid::zero(), "new".into());
        let change = ChangeRef::of_ref("github".into(), branch.project.clone(), moved);
        oracle.expect_ref_test("manual", &branch, &change.head);
        assert_eq!(oracle.find_untested_refs(DiscardHistory::Some).len(), 1);
        let mut tested = |pipeline: &str, head: &str| {
            let outcome = ItemOutcome {
                pipeline: pipeline.to_owned(),
                head: head.into(),
                result: "SUCCESS".to_owned(),
                left_at: Timestamp(1),
            };
            oracle.changes.entry(change.key.clone()).or_default().outcomes.push(outcome);
            oracle.find_untested_refs(DiscardHistory::Never).len()
        };
        assert_eq!(
            (tested("post", "new"), tested("manual", "old"), tested("manual", "new")),
            (1, 1, 0)
        );
    }
}
