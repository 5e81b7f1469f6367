//! Who said yes to what, and until when: what may enter the gate, what may land, and what is out
//! for having lost it.

use super::{Known, Oracle, Stands};
use crate::reviews::{NEEDED, is_review};
use sluice_gate::Item;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, ReviewState};
use sluice_model::git::Oid;
use sluice_scenarios::forge::Shown;

/// A revision's approval.
pub(super) struct Approval {
    head: Oid,
    pub(super) from: Timestamp,
    until: Option<Timestamp>,
    /// Whether all that its change depends on had landed by then.
    is_free: bool,
}

impl Approval {
    /// Returns whether it is of this revision, and all that its change depends on had landed when
    /// it was given.
    pub(super) fn is_free_of_needs(&self, head: &Oid) -> bool {
        self.is_free && self.head == *head
    }
}

impl Known {
    /// Returns whether a revision was approved in the second of that moment of the forge's clock;
    /// at any time where it says none.
    pub(super) fn was_approved(&self, head: &Oid, as_of: Timestamp) -> bool {
        let second = |at: Timestamp| at.0 / 1_000;
        self.approvals.iter().filter(|approval| approval.head == *head).any(|approval| {
            let is_over = approval.until.is_some_and(|until| second(until) < second(as_of));
            as_of.0 == 0 || (second(approval.from) <= second(as_of) && !is_over)
        })
    }
}

impl Oracle {
    /// Is told that a revision was approved.
    pub fn approved(&mut self, change: &ChangeRef, now: Timestamp) {
        let needs =
            self.changes.get(&change.key).map(|known| known.needs.as_slice()).unwrap_or_default();
        let is_free = needs.iter().all(|need| self.has_landed(need));
        let known = self.changes.entry(change.key.clone()).or_default();
        known.approvals.push(Approval {
            head: change.head.clone(),
            from: now,
            until: None,
            is_free,
        });
    }

    /// Is told that nothing that was said of a change counts any more.
    pub fn taken_back(&mut self, change: &ChangeKey, now: Timestamp) {
        self.withdrawn(change, now);
        let known = self.changes.entry(change.clone()).or_default();
        for approval in known.approvals.iter_mut().filter(|approval| approval.until.is_none()) {
            approval.until = Some(now);
        }
    }

    /// Judges what was known of a change, and of those that land after it as they need each other,
    /// when it was merged: whoever asked for the merge had been shown each as open, at its tested
    /// head and approved.
    pub(super) fn was_asked(
        &self,
        change: &ChangeRef,
        mates: &[ChangeRef],
        shown: &Shown,
    ) -> Result<(), String> {
        // Of those that follow in a bundle the first one's landing asked.
        let is_first = !mates.iter().any(|mate| self.has_landed(&mate.key));
        for asked in mates.iter().chain([change]).filter(|_| is_first) {
            let Some(facts) = shown.get(&asked.key) else {
                return Err(format!(
                    "{change} was merged by somebody who had not looked at {asked}"
                ));
            };
            if facts.status != ChangeStatus::Open
                || facts.change.head != asked.head
                || !is_approved(facts)
            {
                let (status, head) = (facts.status, facts.change.head.short());
                let approved = if is_approved(facts) { "approved" } else { "not approved" };
                return Err(format!(
                    "{change} was merged by somebody who was shown {asked} as {status:?} at {head}, {approved}"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether something was done to an item's change, or to what it needs, since what was
    /// known of them when it came.
    pub(super) fn is_withdrawn(&self, item: &Item, stood: &Stands) -> bool {
        let needs = item.candidate.needs.iter().map(|need| &need.change.key);
        let mut concerned = needs.chain([&item.candidate.change.key]);
        concerned.any(|key| {
            let since = stood.known_as_of.get(key).copied().unwrap_or_default();
            let Some(known) = self.changes.get(key) else { return false };
            let second = |at: Timestamp| at.0 / 1_000;
            // Its forge tells seconds: of one that was approved in the second in which it was
            // proposed an answer may be of in between.
            let since = if since == Timestamp::default() {
                known.proposed_at.unwrap_or_default()
            } else {
                since
            };
            let is_first = known.proposed_at.is_some_and(|at| second(at) == second(since));
            known.withdrawn.iter().any(|at| second(*at) >= second(since))
                || (is_first
                    && known
                        .approvals
                        .iter()
                        .any(|approval| second(approval.from) == second(since)))
        })
    }
}

/// Returns whether somebody who may approves a change.
pub(crate) fn is_approved(facts: &ChangeFacts) -> bool {
    if is_review(facts.change.key.project.name()) {
        let is_given = |(label, value): (&str, i64)| {
            let mut votes = facts.votes.iter();
            votes.any(|vote| vote.label == label && vote.value == value)
        };
        return !facts.draft && NEEDED.into_iter().all(is_given);
    }
    facts.reviews.iter().any(|review| review.state == ReviewState::Approved)
}
