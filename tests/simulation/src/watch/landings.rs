//! Landings that are under way on one branch: one, or those of a run, which one push may land; and
//! that nothing lands on a state which a job that failed after its report made worthless, or on a
//! branch that somebody took since.

use super::{Watch, key_of};
use crate::plays::Play;
use sluice_gate::queue::{Slot, Standing};
use sluice_gate::{Head, Landing, LandingEnd, LandingState};
use sluice_memory::Written;
use sluice_model::QueueKey;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{BranchKey, LandingWay, Oid};
use sluice_records::turn;
use sluice_runtime::record::{Key, Record};
use std::collections::BTreeSet;

impl Watch {
    /// Judges a landing that is ordered.
    pub(super) fn landing_ordered(
        &self,
        landing: &Landing,
        transaction: &[Written],
    ) -> Result<(), String> {
        let item = self.items.get(&landing.item);
        if item.is_some_and(|item| self.last_jobs.is_stale(item)) {
            return Err(format!(
                "{} is to land as it was tested before a job failed that ran after a report ahead of it",
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
            other.way == LandingWay::FastForward
                && other.queue == landing.queue
                && other.together.is_empty()
                && !other.configures
        };
        // One after the other: of all but one there is one that ends where it begins.
        let bases: BTreeSet<&Oid> = under_way.values().map(|other| &other.base.id).collect();
        let ends: BTreeSet<&Oid> = under_way.values().map(|other| &other.tested.id).collect();
        let is_line = bases.len() == under_way.len() && bases.difference(&ends).count() == 1;
        if self.shape.has(Play::Forward)
            && is_line
            && under_way.keys().all(is_ordered_now)
            && under_way.values().all(may_be_pushed)
        {
            return Ok(());
        }
        let changes: Vec<String> =
            under_way.values().map(|other| other.change.to_string()).collect();
        Err(format!("{} land on one branch at once", changes.join(" and ")))
    }

    /// Takes in under which fence a branch was taken.
    pub(super) fn taken(&mut self, key: &Key, after: Option<&Record>) -> Result<(), String> {
        match after {
            Some(record) => self.fences.insert(key.clone(), record.fence),
            None => self.fences.remove(key),
        };
        Ok(())
    }

    /// Judges a landing that begins: nobody has taken a branch that it needs since it was ordered.
    pub(super) fn begins(&self, before: Option<&Landing>, after: &Landing) -> Result<(), String> {
        let has_begun =
            |landing: &Landing| matches!(landing.state, LandingState::Attempting { .. });
        if !has_begun(after) || before.is_none_or(has_begun) {
            return Ok(());
        }
        let fences = turn::fences(after).unwrap_or_default();
        let is_old = |(branch, fence): &(&BranchKey, &u64)| {
            self.fences.get(&turn::key(branch)).is_some_and(|now| *now > **fence)
        };
        match fences.iter().find(is_old) {
            Some((branch, _)) => {
                Err(format!("{} begins to land on {branch}, which was taken since", after.change))
            }
            None => Ok(()),
        }
    }

    /// Remembers which revision is in its branch by a move of that to the tested commit: a forge
    /// takes no other one for merged by it.
    pub(super) fn remember_push(&mut self, landing: &Landing) {
        if let LandingState::Ended { end: LandingEnd::Landed { commit }, .. } = &landing.state
            && commit.id == landing.tested.id
        {
            let change = &landing.change;
            self.pushed.insert((landing.queue.clone(), change.key.clone(), change.head.clone()));
        }
    }

    /// Returns whether what stands in a slot is what a change before it in the queue needs, and so
    /// belongs before that. Where the needed revision itself is in its branch by a push of that
    /// queue, a newer one is not: the change was tested on the one that landed, or on a branch with
    /// it, and what it lands as is judged then.
    pub(super) fn comes_first(&self, queue: &QueueKey, need: &ChangeRef, slot: &ChangeRef) -> bool {
        let is_need = |(by, key, head): &(QueueKey, ChangeKey, Oid)| {
            by == queue && *key == need.key && *head == need.head
        };
        slot.key == need.key && (slot.head == need.head || !self.pushed.iter().any(is_need))
    }

    /// Judges a slot that is landing: it is the first; or it was ordered to land behind the one
    /// before, in the same decision, whatever became of that one since.
    pub(super) fn may_land(
        &self,
        head: &Head,
        position: usize,
        before: Option<&Head>,
    ) -> Result<(), String> {
        let slot = &head.slots[position];
        let was_landing = |slot: &Slot| {
            let mut old = before.into_iter().flat_map(|head| &head.slots);
            old.any(|old| old.id == slot.id && old.standing == Standing::Landing)
        };
        if slot.standing != Standing::Landing {
            return Ok(());
        }
        let bundle = head.bundle(position);
        if bundle.start > 0 {
            let ahead = &head.slots[bundle.start - 1];
            let is_of_run =
                ahead.standing == Standing::Landing && !was_landing(ahead) && bundle.len() == 1;
            if !self.shape.has(Play::Forward) || !(was_landing(slot) || is_of_run) {
                return Err(format!("{} lands before what is ahead of it", slot.change));
            }
        }
        match head.slots.iter().find(|other| other.standing == Standing::Reporting) {
            Some(other) if !was_landing(slot) => Err(format!(
                "{} is to land while jobs of {} run after its report or are to",
                slot.change, other.change
            )),
            _ => Ok(()),
        }
    }
}
