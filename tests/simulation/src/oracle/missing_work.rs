//! Work that is missing at the end: open changes that had to be checked or gated and were not.

use super::{ChangeHistory, Merged, Oracle};
use crate::reviews::is_gerrit_project;
use crate::scenarios::max_dependencies::NEEDS_MAX;
use crate::scenarios::{EXPRESS, Scenario, lands};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_records::report::Buildset;
use std::collections::BTreeSet;

/// Whether a change is approved at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    /// It has the approvals that the gate requires.
    Approved,
    /// It lacks an approval.
    NotApproved,
}

impl Oracle {
    /// Records that a change depends on another one.
    pub fn record_dependency(&mut self, change: &ChangeKey, need: &ChangeKey) {
        self.changes.entry(change.clone()).or_default().needs.push(need.clone());
    }

    /// Returns when a change was proposed.
    pub fn proposed_at(&self, change: &ChangeKey) -> Option<Timestamp> {
        self.changes.get(change)?.proposed_at
    }

    /// Returns what is missing for an open change at its last revision: a test in check or in the
    /// gate. `None` if nothing is.
    pub fn find_missing_work(&self, change: &ChangeRef, approval: ApprovalState) -> Option<String> {
        let history = self.changes.get(&change.key)?;
        let of = |pipeline: &str| {
            let outcomes = history.outcomes.iter().filter(|outcome| outcome.head == change.head);
            let is_that = |name: &str| name == pipeline || (lands(name) && lands(pipeline));
            outcomes
                .filter(|outcome| is_that(&outcome.pipeline) && outcome.result != "DEQUEUED")
                .collect::<Vec<_>>()
        };
        let is_superseded = self.supersedes && history.gated.contains(&change.head);
        let had_room = |pipeline: &str| !self.had_no_room(&change.key, pipeline);
        let must_be_checked = self.must_be_checked(&change.key, history) && had_room("check");
        if must_be_checked && !is_superseded && of("check").is_empty() {
            return Some(format!("{change} was never checked"));
        }
        let is_due = approval == ApprovalState::Approved
            && self.must_be_gated(change, history)
            && had_room("gate")
            && had_room(EXPRESS);
        if is_due && of("gate").is_empty() {
            return Some(format!("{change} is approved and was never gated"));
        }
        // A change that was in the gate when it was approved again is not enqueued twice.
        let since = history.approvals.last()?.from;
        (is_due && of("gate").iter().all(|outcome| outcome.left_at < since))
            .then(|| format!("{change} was approved again and was not gated again"))
    }

    /// Returns whether a change must have been checked. A change with dependencies must if nothing
    /// happened to them before they landed and they were never too many.
    fn must_be_checked(&self, key: &ChangeKey, history: &ChangeHistory) -> bool {
        let are_left_alone = || {
            self.sees_dependencies(key) && history.needs.iter().all(|need| self.is_left_alone(need))
        };
        !history.is_entangled
            && self.joins_check(key, history)
            && (history.needs.is_empty() || (are_left_alone() && !self.may_need_too_many(key)))
    }

    /// Returns whether a change may ever have had more dependencies than its tenant allows. Landed
    /// ones may count too, for a reader with outdated facts.
    fn may_need_too_many(&self, key: &ChangeKey) -> bool {
        let (mut met, mut ahead) = (BTreeSet::from([key]), vec![key]);
        while let Some(at) = ahead.pop() {
            let needs =
                self.changes.get(at).map(|history| history.needs.as_slice()).unwrap_or_default();
            ahead.extend(needs.iter().filter(|need| met.insert(*need)));
        }
        self.scenarios.contains(&Scenario::MaxDependencies) && met.len() > NEEDS_MAX + 1
    }

    /// Returns whether an item may have been dequeued because its change has more dependencies than
    /// its tenant allows.
    pub(super) fn is_out_for_its_dependencies(&self, set: &Buildset) -> bool {
        let key = &set.item.candidate.change.key;
        let needs_few = self.is_left_alone(key) && !self.may_need_too_many(key);
        self.scenarios.contains(&Scenario::MaxDependencies)
            && set.why.contains("max-dependencies")
            && !needs_few
    }

    /// Returns whether an approved change must have been gated. A change with dependencies must if
    /// all of them had landed at its last approval.
    fn must_be_gated(&self, change: &ChangeRef, history: &ChangeHistory) -> bool {
        let is_free = || {
            history.approvals.last().is_some_and(|approval| approval.is_free_of_needs(&change.head))
        };
        !history.is_entangled
            && !self.is_quiet(&change.key)
            && self.joins_gate(&change.key, history)
            && (history.needs.is_empty() || (self.sees_dependencies(&change.key) && is_free()))
    }

    /// Returns whether readers of a change always see the present state of its dependencies. False
    /// at Gerrit, where a change may be based on an outdated revision.
    fn sees_dependencies(&self, key: &ChangeKey) -> bool {
        self.sees_all_events && !is_gerrit_project(key.project.name())
    }

    /// Returns whether nothing ever happened to a change or its dependencies that dequeues the
    /// changes that depend on it.
    pub(super) fn is_left_alone(&self, key: &ChangeKey) -> bool {
        self.changes.get(key).is_some_and(|history| {
            let is_as_proposed = !history.is_entangled
                && history.withdrawals.is_empty()
                && !is_gerrit_project(key.project.name())
                && !self.has_left(&key.project);
            let needs_are = || history.needs.iter().all(|need| self.is_left_alone(need));
            is_as_proposed && history.merged != Some(Merged::ByHand) && needs_are()
        })
    }

    /// Returns the result of the newest item of a change's revision in a pipeline.
    pub fn latest_result(&self, change: &ChangeRef, pipeline: &str) -> Option<&str> {
        let outcomes = self.changes.get(&change.key)?.outcomes.iter().rev();
        let mut own =
            outcomes.filter(|outcome| outcome.pipeline == pipeline && outcome.head == change.head);
        own.next().map(|outcome| outcome.result.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::change;
    use super::*;
    use crate::shape::{FaultProfile, Shape};
    use sluice_scenarios::repos::Tree;

    /// Returns the oracle of a site where change 2 depends on change 1.
    fn oracle(fault_profile: FaultProfile) -> Oracle {
        let mut oracle = Oracle::new(&Shape { fault_profile, ..Shape::draw(1) });
        for number in [1, 2] {
            oracle.record_upload(&change(number), Tree::new(), Vec::new(), Timestamp(0));
        }
        oracle.record_dependency(&change(2).key, &change(1).key);
        oracle
    }

    /// Z6.5: a change is not lost because it depends on another one.
    #[test]
    fn a_change_must_be_checked_where_nothing_was_done_to_what_it_depends_on() {
        let mut oracle = oracle(FaultProfile::default());
        assert_eq!(
            oracle.find_missing_work(&change(2), ApprovalState::NotApproved),
            Some(format!("{} was never checked", change(2)))
        );
        oracle.record_withdrawal(&change(1).key, Timestamp(1));
        assert_eq!(
            oracle.find_missing_work(&change(2), ApprovalState::NotApproved),
            None,
            "it was dequeued with its dependency"
        );
    }

    /// Z6.5, D16: a change with more dependencies than allowed is never checked; one with as many
    /// as allowed is.
    #[test]
    fn a_change_that_needs_more_than_its_tenant_allows_need_not_be_checked() {
        let mut oracle = oracle(FaultProfile::default());
        oracle.record_upload(&change(3), Tree::new(), Vec::new(), Timestamp(0));
        oracle.record_dependency(&change(3).key, &change(2).key);
        assert_eq!(
            oracle.find_missing_work(&change(3), ApprovalState::NotApproved),
            Some(format!("{} was never checked", change(3)))
        );
        oracle.scenarios.insert(Scenario::MaxDependencies);
        assert_eq!(oracle.find_missing_work(&change(3), ApprovalState::NotApproved), None);
        assert_eq!(
            oracle.find_missing_work(&change(2), ApprovalState::NotApproved),
            Some(format!("{} was never checked", change(2)))
        );
    }

    /// Z6.1: a change that found a pipeline full has to be enqueued there again, and in no other
    /// pipeline.
    #[test]
    fn a_change_that_found_no_room_in_check_need_not_be_checked_and_must_be_gated() {
        let mut oracle = oracle(FaultProfile::default());
        oracle.record_no_room(&change(1).key, "check");
        assert_eq!(oracle.find_missing_work(&change(1), ApprovalState::NotApproved), None);
        oracle.record_approval(&change(1), Timestamp(2));
        assert_eq!(
            oracle.find_missing_work(&change(1), ApprovalState::Approved),
            Some(format!("{} is approved and was never gated", change(1)))
        );
        oracle.record_no_room(&change(1).key, "gate");
        assert_eq!(oracle.find_missing_work(&change(1), ApprovalState::Approved), None);
    }

    /// Z6.5
    #[test]
    fn a_change_that_depends_on_another_one_is_not_judged_where_webhooks_are_lost() {
        let fault_profile = FaultProfile { dropped_webhooks: 20, ..FaultProfile::default() };
        assert_eq!(
            oracle(fault_profile).find_missing_work(&change(2), ApprovalState::NotApproved),
            None
        );
    }

    /// Z6.5: nothing keeps an approved change from the gate once its dependencies are merged.
    #[test]
    fn an_approved_change_must_be_gated_where_what_it_depends_on_had_landed() {
        let mut oracle = oracle(FaultProfile::default());
        oracle.record_withdrawal(&change(1).key, Timestamp(1));
        oracle.record_approval(&change(2), Timestamp(2));
        assert_eq!(
            oracle.find_missing_work(&change(2), ApprovalState::Approved),
            None,
            "it was refused then"
        );
        oracle.changes.entry(change(1).key).or_default().merged = Some(Merged::ByGate);
        oracle.record_approval(&change(2), Timestamp(3));
        assert_eq!(
            oracle.find_missing_work(&change(2), ApprovalState::Approved),
            Some(format!("{} is approved and was never gated", change(2)))
        );
    }
}
