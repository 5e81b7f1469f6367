//! Approvals: which changes may enter the gate, may land, or were dequeued because they lost their
//! approval.

use super::{ChangeHistory, Oracle, QueuedItem};
use crate::reviews::{NEEDED, is_gerrit_project};
use sluice_gate::Item;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, ReviewState};
use sluice_model::git::Oid;
use sluice_scenarios::forge::Shown;

/// The approval of a revision.
pub(super) struct Approval {
    /// The approved revision.
    head: Oid,
    /// When it was given.
    pub(super) from: Timestamp,
    /// When it was revoked; `None` while it is valid.
    until: Option<Timestamp>,
    /// Whether all dependencies of the change had landed when it was given.
    is_free: bool,
}

impl Approval {
    /// Returns whether it is for this revision and all dependencies had landed when it was given.
    pub(super) fn is_free_of_needs(&self, head: &Oid) -> bool {
        self.is_free && self.head == *head
    }
}

impl ChangeHistory {
    /// Returns whether a revision was approved in that second of the forge's clock, or at any time
    /// if `as_of` is 0.
    pub(super) fn was_approved(&self, head: &Oid, as_of: Timestamp) -> bool {
        let second = |at: Timestamp| at.0 / 1_000;
        self.approvals.iter().filter(|approval| approval.head == *head).any(|approval| {
            let is_over = approval.until.is_some_and(|until| second(until) < second(as_of));
            as_of.0 == 0 || (second(approval.from) <= second(as_of) && !is_over)
        })
    }
}

impl Oracle {
    /// Records that a revision was approved.
    pub fn record_approval(&mut self, change: &ChangeRef, now: Timestamp) {
        let needs = self
            .changes
            .get(&change.key)
            .map(|history| history.needs.as_slice())
            .unwrap_or_default();
        let is_free = needs.iter().all(|need| self.has_landed(need));
        let history = self.changes.entry(change.key.clone()).or_default();
        history.approvals.push(Approval {
            head: change.head.clone(),
            from: now,
            until: None,
            is_free,
        });
    }

    /// Records that the approvals of a change were revoked, which also dequeues it.
    pub fn revoke_approvals(&mut self, change: &ChangeKey, now: Timestamp) {
        self.record_withdrawal(change, now);
        let history = self.changes.entry(change.clone()).or_default();
        for approval in history.approvals.iter_mut().filter(|approval| approval.until.is_none()) {
            approval.until = Some(now);
        }
    }

    /// Checks the facts that the reporter read before a merge: the change and the bundle members
    /// that land after it were open, at the tested revision and approved.
    pub(super) fn check_merge_request(
        &self,
        change: &ChangeRef,
        members: &[ChangeRef],
        shown: &Shown,
    ) -> Result<(), String> {
        // The first landing of a bundle checks the approvals of all members.
        let is_first = !members.iter().any(|member| self.has_landed(&member.key));
        for asked in members.iter().chain([change]).filter(|_| is_first) {
            let Some(facts) = shown.get(&asked.key) else {
                return Err(format!("{change} was merged without reading the facts of {asked}"));
            };
            if facts.status != ChangeStatus::Open
                || facts.change.head != asked.head
                || !is_approved(facts)
            {
                let (status, head) = (facts.status, facts.change.head.short());
                let approved = if is_approved(facts) { "approved" } else { "not approved" };
                return Err(format!(
                    "{change} was merged although {asked} was read as {status:?} at {head}, {approved}"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether something happened to an item's change or its needs after the facts that the
    /// gate had when the item entered.
    pub(super) fn is_withdrawn(&self, item: &Item, queued: &QueuedItem) -> bool {
        let needs = item.candidate.needs.iter().map(|need| &need.change.key);
        let mut concerned = needs.chain([&item.candidate.change.key]);
        concerned.any(|key| {
            let since = queued.known_as_of.get(key).copied().unwrap_or_default();
            let Some(history) = self.changes.get(key) else { return false };
            let second = |at: Timestamp| at.0 / 1_000;
            // The forge's clock has seconds. If a change was approved in the second of its
            // proposal, an answer may be from between the two.
            let since = if since == Timestamp::default() {
                history.proposed_at.unwrap_or_default()
            } else {
                since
            };
            let is_first = history.proposed_at.is_some_and(|at| second(at) == second(since));
            history.withdrawals.iter().any(|at| second(*at) >= second(since))
                || (is_first
                    && history
                        .approvals
                        .iter()
                        .any(|approval| second(approval.from) == second(since)))
        })
    }
}

/// Returns whether a change has the approvals that the gate requires.
pub(crate) fn is_approved(facts: &ChangeFacts) -> bool {
    if is_gerrit_project(facts.change.key.project.name()) {
        let is_given = |(label, value): (&str, i64)| {
            let mut votes = facts.votes.iter();
            votes.any(|vote| vote.label == label && vote.value == value)
        };
        return !facts.draft && NEEDED.into_iter().all(is_given);
    }
    facts.reviews.iter().any(|review| review.state == ReviewState::Approved)
}
