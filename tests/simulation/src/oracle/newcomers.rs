//! Projects that a change brings into the pipelines: which changes of theirs must be tested.

use super::{ChangeHistory, Merged, Oracle, branch_of};
use crate::scenarios::lands;
use crate::scenarios::newcomers::is_newcomer;
use sluice_gate::MERGED_ELSEWHERE;
use sluice_model::change::ChangeKey;
use sluice_records::report::Buildset;
use std::collections::{BTreeMap, BTreeSet};

/// The start of the reason of an item that leaves for another queue of its pipeline.
const MOVED: &str = "the configuration changed: it belongs to the queue ";

/// The changes of newcomers.
#[derive(Default)]
pub(super) struct Newcomers {
    /// Each change with the one that adds the configuration; `None` for that change itself.
    adds: BTreeMap<ChangeKey, Option<ChangeKey>>,
    /// Changes that left a gate for another queue that they have not entered yet.
    moving: BTreeSet<ChangeKey>,
}

impl Oracle {
    /// Records a change of a newcomer. `adds` is the change that adds the configuration, `None` for
    /// that change itself.
    pub fn record_newcomer(&mut self, change: &ChangeKey, adds: Option<&ChangeKey>) {
        self.newcomers.adds.insert(change.clone(), adds.cloned());
    }

    /// Returns whether an item of a newcomer left for another queue of its pipeline, because the
    /// configuration that a change added names the queue. Expects its change to enter that one.
    pub(super) fn record_move(&mut self, set: &Buildset) -> bool {
        let change = &set.item.candidate.change.key;
        let is_move = is_newcomer(change.project.name()) && set.why.starts_with(MOVED);
        if is_move && lands(set.queue.pipeline.as_str()) {
            self.newcomers.moving.insert(change.clone());
        }
        is_move
    }

    /// Returns whether another queue of the item's pipeline merged its change. An entry stays in its
    /// queue after its project joined another one while a dependency of it is being merged, and a
    /// dependent change may bring it into the other queue too.
    pub(super) fn was_merged_by_other_queue(&self, set: &Buildset) -> bool {
        let change = &set.item.candidate.change;
        let merged_by = self.changes.get(&change.key).and_then(|history| {
            let tips = self.branches.get(&branch_of(change))?;
            tips.get(history.merged_at?)?.by.as_ref()
        });
        set.why == MERGED_ELSEWHERE
            && merged_by
                .is_some_and(|queue| *queue != set.queue && queue.pipeline == set.queue.pipeline)
    }

    /// Records that a change entered a queue, or that something happened to it that may keep it
    /// out.
    pub(super) fn record_arrival(&mut self, change: &ChangeKey) {
        self.newcomers.moving.remove(change);
    }

    /// Returns the changes that left a queue for another one that they never entered.
    pub fn find_lost_moves(&self) -> Vec<String> {
        let lost = self.newcomers.moving.iter().filter(|change| !self.is_merged(change));
        lost.map(|change| format!("{change} left its queue for another one and never entered it"))
            .collect()
    }

    /// Returns whether a change concerns the pipeline `check`. A change of a newcomer does if it
    /// adds the configuration, or depends on the change that does. Only its first revision is
    /// judged.
    pub(super) fn joins_check(&self, key: &ChangeKey, history: &ChangeHistory) -> bool {
        self.newcomers.adds.get(key).is_none_or(|adds| {
            history.revisions.len() == 1 && (adds.is_none() || !history.needs.is_empty())
        })
    }

    /// Returns whether a change concerns the gate. A change of a newcomer that does not depend on
    /// the change that adds the configuration does if it was approved while that change was in the
    /// gate, from which that change landed.
    pub(super) fn joins_gate(&self, key: &ChangeKey, history: &ChangeHistory) -> bool {
        let Some(adds) = self.newcomers.adds.get(key) else { return true };
        let is_ahead = |adds: &ChangeKey| {
            let Some(other) = self.changes.get(adds) else { return false };
            let mut gated = other.outcomes.iter().filter(|outcome| lands(&outcome.pipeline));
            let approved_at = history.approvals.last().map(|approval| approval.from);
            other.revisions.len() == 1
                && other.merged == Some(Merged::ByGate)
                && other.gated_at.is_some_and(|at| approved_at.is_some_and(|from| at < from))
                && gated.all(|outcome| outcome.result == "SUCCESS")
        };
        history.revisions.len() == 1
            && (!history.needs.is_empty() || adds.as_ref().is_none_or(is_ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ApprovalState;
    use super::super::fixtures::{change, oracle_of, passed};
    use super::*;
    use crate::scenarios::Scenario;
    use sluice_model::Timestamp;

    /// C14: a change is gated if what is ahead of it adds its project, and only then.
    #[test]
    fn a_change_must_be_gated_if_it_was_approved_behind_the_change_that_adds_its_project() {
        let mut oracle = oracle_of(Scenario::Newcomers);
        oracle.record_newcomer(&change(1).key, None);
        oracle.record_newcomer(&change(2).key, Some(&change(1).key));
        oracle.record_approval(&change(2), Timestamp(5));
        let missing = |oracle: &Oracle| {
            oracle.find_missing_work(&change(2), ApprovalState::Approved).is_some()
        };
        assert!(!missing(&oracle), "nothing adds its project");
        let adds = oracle.changes.entry(change(1).key).or_default();
        (adds.gated_at, adds.merged) = (Some(Timestamp(4)), Some(Merged::ByGate));
        adds.outcomes.push(passed("gate", 9));
        assert!(missing(&oracle));
        oracle.changes.entry(change(2).key).or_default().outcomes.push(passed("gate", 10));
        assert!(!missing(&oracle));
    }
}
