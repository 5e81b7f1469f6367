//! What was left undone of a change that is open at the end: whether it had to be checked, and to
//! be gated.

use super::{Known, Merged, Oracle};
use crate::plays::few_needs::NEEDS_MAX;
use crate::plays::{EXPRESS, Play, lands};
use crate::reviews::is_review;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_records::report::Buildset;
use std::collections::BTreeSet;

impl Oracle {
    /// Is told that a change is proposed that depends on another one.
    pub fn depends(&mut self, change: &ChangeKey, need: &ChangeKey) {
        self.changes.entry(change.clone()).or_default().needs.push(need.clone());
    }

    /// Returns when a change was proposed.
    pub fn proposed_at(&self, change: &ChangeKey) -> Option<Timestamp> {
        self.changes.get(change)?.proposed_at
    }

    /// Returns what was left undone of a change that is open at the end, with this revision,
    /// approved or not.
    pub fn undone(&self, change: &ChangeRef, is_approved: bool) -> Option<String> {
        let known = self.changes.get(&change.key)?;
        let of = |pipeline: &str| {
            let verdicts = known.verdicts.iter().filter(|verdict| verdict.head == change.head);
            let is_that = |name: &str| name == pipeline || (lands(name) && lands(pipeline));
            verdicts
                .filter(|verdict| is_that(&verdict.pipeline) && verdict.result != "DEQUEUED")
                .collect::<Vec<_>>()
        };
        let is_superseded = self.supersedes && known.gated.contains(&change.head);
        let had_room = |pipeline: &str| !self.had_no_room(&change.key, pipeline);
        let must_be_checked = self.must_be_checked(&change.key, known) && had_room("check");
        if must_be_checked && !is_superseded && of("check").is_empty() {
            return Some(format!("{change} was never checked"));
        }
        let is_due = is_approved
            && self.must_be_gated(change, known)
            && had_room("gate")
            && had_room(EXPRESS);
        if is_due && of("gate").is_empty() {
            return Some(format!("{change} is approved and was never gated"));
        }
        // One that stood in the gate when it was approved again is not enqueued twice.
        let since = known.approvals.last()?.from;
        (is_due && of("gate").iter().all(|verdict| verdict.left_at < since))
            .then(|| format!("{change} was approved again and was not gated again"))
    }

    /// Returns whether a change can only have been checked: one that depends on others where those
    /// were left alone until they landed, or still are, and were never too many.
    fn must_be_checked(&self, key: &ChangeKey, known: &Known) -> bool {
        let are_left_alone =
            || self.is_seen(key) && known.needs.iter().all(|need| self.is_left_alone(need));
        !known.is_entangled
            && (known.needs.is_empty() || (are_left_alone() && !self.may_need_too_many(key)))
    }

    /// Returns whether a change may ever have needed more than its tenant takes one in with, by
    /// what was proposed: whoever reads of it long after something landed may count that as well.
    fn may_need_too_many(&self, key: &ChangeKey) -> bool {
        let (mut met, mut ahead) = (BTreeSet::from([key]), vec![key]);
        while let Some(at) = ahead.pop() {
            let needs =
                self.changes.get(at).map(|known| known.needs.as_slice()).unwrap_or_default();
            ahead.extend(needs.iter().filter(|need| met.insert(*need)));
        }
        self.plays.contains(&Play::FewNeeds) && met.len() > NEEDS_MAX + 1
    }

    /// Returns whether an item may be out since its change needs more than its tenant takes one in
    /// with.
    pub(super) fn is_out_for_its_needs(&self, set: &Buildset) -> bool {
        let key = &set.item.candidate.change.key;
        let needs_few = self.is_left_alone(key) && !self.may_need_too_many(key);
        self.plays.contains(&Play::FewNeeds) && set.why.contains("max-dependencies") && !needs_few
    }

    /// Returns whether an approved change can only have been gated: one that depends on others
    /// where all of them had landed when it was approved last.
    fn must_be_gated(&self, change: &ChangeRef, known: &Known) -> bool {
        let is_free = || {
            known.approvals.last().is_some_and(|approval| approval.is_free_of_needs(&change.head))
        };
        !known.is_entangled && (known.needs.is_empty() || (self.is_seen(&change.key) && is_free()))
    }

    /// Returns whether whoever is told of a change sees what it depends on as that is: every
    /// webhook is heard, and the forge is never behind. At a Gerrit a change may be made on a
    /// revision that is none any more.
    fn is_seen(&self, key: &ChangeKey) -> bool {
        self.hears_all && !is_review(key.project.name())
    }

    /// Returns whether nothing was ever done to a change, nor to what it needs, by which those that
    /// depend on it leave their queues.
    pub(super) fn is_left_alone(&self, key: &ChangeKey) -> bool {
        self.changes.get(key).is_some_and(|known| {
            let is_as_proposed =
                !known.is_entangled && known.withdrawn.is_empty() && !is_review(key.project.name());
            let needs_are = || known.needs.iter().all(|need| self.is_left_alone(need));
            is_as_proposed && known.merged != Some(Merged::ByHand) && needs_are()
        })
    }

    /// Returns how the newest item of a change's revision ended in a pipeline.
    pub fn newest(&self, change: &ChangeRef, pipeline: &str) -> Option<&str> {
        let verdicts = self.changes.get(&change.key)?.verdicts.iter().rev();
        let mut own =
            verdicts.filter(|verdict| verdict.pipeline == pipeline && verdict.head == change.head);
        own.next().map(|verdict| verdict.result.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::change;
    use super::*;
    use crate::shape::{Shape, Weather};
    use sluice_scenarios::repos::Tree;

    /// Returns an oracle of a site where one change depends on another one.
    fn oracle(weather: Weather) -> Oracle {
        let mut oracle = Oracle::new(&Shape { weather, ..Shape::draw(1) });
        for number in [1, 2] {
            oracle.uploaded(&change(number), Tree::new(), Vec::new(), Timestamp(0));
        }
        oracle.depends(&change(2).key, &change(1).key);
        oracle
    }

    /// Z6.5: its enqueuing may not be lost because it depends on something.
    #[test]
    fn a_change_must_be_checked_where_nothing_was_done_to_what_it_depends_on() {
        let mut oracle = oracle(Weather::default());
        assert_eq!(
            oracle.undone(&change(2), false),
            Some(format!("{} was never checked", change(2)))
        );
        oracle.withdrawn(&change(1).key, Timestamp(1));
        assert_eq!(oracle.undone(&change(2), false), None, "it left with what it depends on");
    }

    /// Z6.5, D16: who needs more than its tenant takes one in with is never checked, and who needs
    /// as many is.
    #[test]
    fn a_change_that_needs_more_than_its_tenant_allows_need_not_be_checked() {
        let mut oracle = oracle(Weather::default());
        oracle.uploaded(&change(3), Tree::new(), Vec::new(), Timestamp(0));
        oracle.depends(&change(3).key, &change(2).key);
        assert_eq!(
            oracle.undone(&change(3), false),
            Some(format!("{} was never checked", change(3)))
        );
        oracle.plays.insert(Play::FewNeeds);
        assert_eq!(oracle.undone(&change(3), false), None);
        assert_eq!(
            oracle.undone(&change(2), false),
            Some(format!("{} was never checked", change(2)))
        );
    }

    /// Z6.1: what finds a pipeline full is to be offered to it again, and to no other one.
    #[test]
    fn a_change_that_found_no_room_in_check_need_not_be_checked_and_must_be_gated() {
        let mut oracle = oracle(Weather::default());
        oracle.has_no_room(&change(1).key, "check");
        assert_eq!(oracle.undone(&change(1), false), None);
        oracle.approved(&change(1), Timestamp(2));
        assert_eq!(
            oracle.undone(&change(1), true),
            Some(format!("{} is approved and was never gated", change(1)))
        );
        oracle.has_no_room(&change(1).key, "gate");
        assert_eq!(oracle.undone(&change(1), true), None);
    }

    /// Z6.5
    #[test]
    fn a_change_that_depends_on_another_one_is_not_judged_where_webhooks_are_lost() {
        let weather = Weather { lost_webhooks: 20, ..Weather::default() };
        assert_eq!(oracle(weather).undone(&change(2), false), None);
    }

    /// Z6.5: what it depends on is in its branch, and nothing keeps it from the gate.
    #[test]
    fn an_approved_change_must_be_gated_where_what_it_depends_on_had_landed() {
        let mut oracle = oracle(Weather::default());
        oracle.withdrawn(&change(1).key, Timestamp(1));
        oracle.approved(&change(2), Timestamp(2));
        assert_eq!(oracle.undone(&change(2), true), None, "it was refused then");
        oracle.changes.entry(change(1).key).or_default().merged = Some(Merged::ByGate);
        oracle.approved(&change(2), Timestamp(3));
        assert_eq!(
            oracle.undone(&change(2), true),
            Some(format!("{} is approved and was never gated", change(2)))
        );
    }
}
