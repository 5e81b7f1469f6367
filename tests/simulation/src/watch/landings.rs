//! Landings in progress: one on a branch, or those of one push. No landing may use a state from
//! before a failed reporter job, or a branch whose lock was acquired again.

use super::{Watch, key_of};
use crate::scenarios::Scenario;
use sluice_gate::queue::{Slot, SlotStatus};
use sluice_gate::{Head, Landing, LandingEnd, LandingState};
use sluice_memory::RecordChange;
use sluice_model::QueueKey;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{BranchKey, LandingMethod, Oid};
use sluice_records::branch_lock;
use sluice_runtime::record::{Key, Record};
use std::collections::BTreeSet;

/// Checks that a landing which ended as landed has the tested tree.
pub(super) fn check_landed_tree(landing: &Landing) -> Result<(), String> {
    match &landing.state {
        LandingState::Ended { end: LandingEnd::Landed { commit }, .. }
            if commit.tree != landing.tested.tree =>
        {
            Err(format!(
                "{} ended as landed with tree {}, but tree {} was tested",
                landing.change,
                commit.tree.short(),
                landing.tested.tree.short()
            ))
        }
        _ => Ok(()),
    }
}

impl Watch {
    /// Checks an ordered landing.
    pub(super) fn check_landing_order(
        &self,
        landing: &Landing,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let item = self.items.get(&landing.item);
        if item.is_some_and(|item| self.reporter_jobs.is_stale(item)) {
            return Err(format!(
                "{} is landing with builds from before a failed reporter job ahead",
                landing.change
            ));
        }
        let branch = BranchKey {
            project: landing.change.key.project.clone(),
            branch: landing.change.branch.clone(),
        };
        let Some(under_way) = self.landing.get(&branch).filter(|under_way| under_way.len() > 1)
        else {
            return Ok(());
        };
        let is_ordered_now = |key: &Key| {
            transaction.iter().any(|write| write.before.is_none() && key_of(write) == Some(key))
        };
        let may_be_pushed = |other: &Landing| {
            other.method == LandingMethod::FastForward
                && other.queue == landing.queue
                && other.later_members.is_empty()
                && !other.changes_configuration
        };
        // They form a line: all bases but one are the end of another landing.
        let bases: BTreeSet<&Oid> = under_way.values().map(|other| &other.base.id).collect();
        let ends: BTreeSet<&Oid> = under_way.values().map(|other| &other.tested.id).collect();
        let is_line = bases.len() == under_way.len() && bases.difference(&ends).count() == 1;
        if self.shape.has(Scenario::FastForward)
            && is_line
            && under_way.keys().all(is_ordered_now)
            && under_way.values().all(may_be_pushed)
        {
            return Ok(());
        }
        let changes: Vec<String> =
            under_way.values().map(|other| other.change.to_string()).collect();
        Err(format!("{} are landing on one branch at the same time", changes.join(" and ")))
    }

    /// Records the fence of a branch lock.
    pub(super) fn record_fence(&mut self, key: &Key, after: Option<&Record>) -> Result<(), String> {
        match after {
            Some(record) => self.fences.insert(key.clone(), record.fence),
            None => self.fences.remove(key),
        };
        Ok(())
    }

    /// Checks that no branch lock of a landing was acquired again since it was ordered.
    pub(super) fn check_landing_start(
        &self,
        before: Option<&Landing>,
        after: &Landing,
    ) -> Result<(), String> {
        let has_begun = |landing: &Landing| landing.attempt().is_some();
        if !has_begun(after) || before.is_none_or(has_begun) {
            return Ok(());
        }
        let fences = branch_lock::fences(after);
        let is_old = |(branch, fence): &(&BranchKey, &u64)| {
            self.fences.get(&branch_lock::key(branch)).is_some_and(|now| *now > **fence)
        };
        match fences.iter().find(is_old) {
            Some((branch, _)) => Err(format!(
                "{} started to land on {branch}, whose lock was acquired again",
                after.change
            )),
            None => Ok(()),
        }
    }

    /// Records a revision that landed by moving the branch to the tested commit. Only then does the
    /// forge not close the change.
    pub(super) fn remember_push(&mut self, landing: &Landing) {
        if let LandingState::Ended { end: LandingEnd::Landed { commit }, .. } = &landing.state
            && commit.id == landing.tested.id
        {
            let change = &landing.change;
            self.pushed.insert((landing.queue.clone(), change.key.clone(), change.head.clone()));
        }
    }

    /// Returns whether the change in a slot is a need of another one and has to be ahead of it. A
    /// newer revision is not, if the queue landed the needed one by a push: the other change was
    /// tested with that.
    pub(super) fn comes_first(&self, queue: &QueueKey, need: &ChangeRef, slot: &ChangeRef) -> bool {
        let is_need = |(by, key, head): &(QueueKey, ChangeKey, Oid)| {
            by == queue && *key == need.key && *head == need.head
        };
        slot.key == need.key && (slot.head == need.head || !self.pushed.iter().any(is_need))
    }

    /// Checks a landing slot: it is the first, or it was ordered behind the one ahead in the same
    /// transaction.
    pub(super) fn check_landing_position(
        &self,
        head: &Head,
        (position, slot): (usize, &Slot),
        before: Option<&Head>,
    ) -> Result<(), String> {
        let was_landing = |slot: &Slot| {
            let mut old = before.into_iter().flat_map(Head::slots);
            old.any(|old| old.id == slot.id && old.status == SlotStatus::Landing)
        };
        if slot.status != SlotStatus::Landing {
            return Ok(());
        }
        let before = position.checked_sub(1).and_then(|at| head.entries[at].members.last());
        if let Some(ahead) = before {
            let is_of_run = ahead.status == SlotStatus::Landing
                && !was_landing(ahead)
                && !head.entries[position].is_bundle();
            if !self.shape.has(Scenario::FastForward) || !(was_landing(slot) || is_of_run) {
                return Err(format!("{} is landing before the entry ahead", slot.change));
            }
        }
        match head.slots().find(|other| other.status == SlotStatus::Reporting) {
            Some(other) if !was_landing(slot) => Err(format!(
                "{} is landing before the reporter jobs of {} ended",
                slot.change, other.change
            )),
            _ => Ok(()),
        }
    }
}
