//! Which refs had to be tested as they were at a moment: what operators asked for, and what was
//! pushed for a pipeline of its own.

use super::Oracle;
use sluice_model::git::{BranchKey, Oid};

/// A ref that is to be tested as it was at a moment.
pub(super) struct Due {
    pipeline: &'static str,
    branch: BranchKey,
    head: Oid,
    /// Whether an event has to tell of it.
    is_event: bool,
}

impl Oracle {
    /// Is told that a ref is to be tested in a pipeline as it is now.
    pub fn is_to_be_tested(&mut self, pipeline: &'static str, branch: &BranchKey, head: &Oid) {
        self.due_refs.push(Due {
            pipeline,
            branch: branch.clone(),
            head: head.clone(),
            is_event: false,
        });
    }

    /// Is told that a ref is pushed that is to be tested in a pipeline as it is now. Where webhooks
    /// may be lost nobody may hear of it.
    pub fn is_pushed(&mut self, pipeline: &'static str, branch: &BranchKey, head: &Oid) {
        if self.hears_all {
            self.due_refs.push(Due {
                pipeline,
                branch: branch.clone(),
                head: head.clone(),
                is_event: true,
            });
        }
    }

    /// Is told that a branch is deleted: what was pushed to it may not be there any more when it is
    /// read.
    pub fn is_deleted(&mut self, branch: &BranchKey) {
        self.due_refs.retain(|due| due.branch != *branch);
        self.deleted.insert(branch.clone());
    }

    /// Returns which of them never were. One that was taken out again came in all the same. Where
    /// events were ever discarded those are not looked for that only an event tells of.
    pub fn untested_refs(&self, has_discarded: bool) -> Vec<String> {
        let is_known = |due: &&Due| {
            let own = self.changes.iter().filter(|(key, _)| key.project == due.branch.project);
            let mut verdicts = own.flat_map(|(_, known)| &known.verdicts);
            verdicts.any(|verdict| verdict.pipeline == due.pipeline && verdict.head == due.head)
        };
        let left =
            self.due_refs.iter().filter(|due| !(is_known(due) || has_discarded && due.is_event));
        left.map(|due| {
            format!("{} at {} never came to be tested in {}", due.branch, due.head, due.pipeline)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use sluice_model::change::{ChangeRef, RefMove};
    use sluice_model::{ProjectName, Timestamp};

    /// Z6.1: what an operator asks for comes in, as the commit that was named, whatever the branch
    /// is by then.
    #[test]
    fn a_ref_that_is_to_be_tested_must_be_so_at_its_commit() {
        let mut oracle = Oracle::default();
        let branch = BranchKey {
            project: ProjectName::new("forge.test", "org/t0p0"),
            branch: "main".into(),
        };
        let moved = RefMove::new("refs/heads/main", Oid::zero(), "new".into());
        let change = ChangeRef::of_ref("github".into(), branch.project.clone(), moved);
        oracle.is_to_be_tested("manual", &branch, &change.head);
        assert_eq!(oracle.untested_refs(true).len(), 1);
        let mut tested = |pipeline: &str, head: &str| {
            let verdict = Verdict {
                pipeline: pipeline.to_owned(),
                head: head.into(),
                result: "SUCCESS".to_owned(),
                left_at: Timestamp(1),
            };
            oracle.changes.entry(change.key.clone()).or_default().verdicts.push(verdict);
            oracle.untested_refs(false).len()
        };
        assert_eq!(
            (tested("post", "new"), tested("manual", "old"), tested("manual", "new")),
            (1, 1, 0)
        );
    }
}
