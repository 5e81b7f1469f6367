//! Speculative execution (Z6.4): a change of a dependent pipeline is tested on the nearest one
//! ahead that may pass, and is tested again only if what it was tested on changed.

use super::{Watch, read};
use sluice_config::pipeline::Manager;
use sluice_gate::queue::{Slot, SlotStatus};
use sluice_gate::{Head, Item, JobStatus, MergeOutcome, MergeResult, MergeStatus};
use sluice_model::ItemId;
use sluice_model::build::BuildResult;
use sluice_model::git::Oid;
use sluice_runtime::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// The trees of an item's merge results in one generation. A second one appears if the branch moved
/// before the jobs were frozen again.
pub(super) type TestedTrees = BTreeMap<(ItemId, u64), BTreeSet<Oid>>;

impl Watch {
    /// Checks the speculative state of each change in a queue.
    pub(super) fn check_speculation(
        &self,
        before: Option<&Head>,
        head: &Head,
    ) -> Result<(), String> {
        for (position, entry) in head.entries.iter().enumerate() {
            check_predecessor(head, position)?;
            for slot in &entry.members {
                self.check_failing(before, head, slot)?;
                if let Some(before) = before {
                    self.check_retest(before, head, slot)?;
                }
            }
        }
        Ok(())
    }

    /// Records the tree of a merge result.
    pub(super) fn record_tested_tree(&mut self, after: Option<&Record>) -> Result<(), String> {
        let outcome: Option<MergeOutcome> = read(after)?;
        if let Some(MergeOutcome {
            item, generation, result: MergeResult::Merged(merged), ..
        }) = outcome
        {
            self.trees.entry((item, generation)).or_default().insert(merged.tested.tree);
        }
        Ok(())
    }

    /// Checks that a change has a new generation only if it is tested on another state, its branch
    /// moved, or a reporter job ahead ended.
    fn check_retest(&self, before: &Head, head: &Head, slot: &Slot) -> Result<(), String> {
        let (Some(at), Some(now)) = (before.position(&slot.id), head.position(&slot.id)) else {
            return Ok(());
        };
        let old = &before.entries[at];
        let is_same = |old: &Slot| old.id == slot.id && old.generation == slot.generation;
        if old.members.iter().any(is_same) || head.entries[now].ahead != old.ahead {
            return Ok(());
        }
        let has_moved_branch = |member: &Slot| {
            let trees = self.trees.get(&(member.id.clone(), member.generation));
            // A landing that finds another branch than the tested one has failed.
            member.status.is_landing() || trees.is_some_and(|trees| trees.len() > 1)
        };
        let has_left = |other: &Slot| {
            other.status == SlotStatus::Reporting && head.position(&other.id).is_none()
        };
        let mut ahead = before.entries[..at].iter().flat_map(|entry| &entry.members);
        if old.members.iter().any(has_moved_branch) || ahead.any(has_left) {
            return Ok(());
        }
        Err(format!(
            "{} is tested again, although nothing that it was tested on changed",
            slot.change
        ))
    }

    /// Checks that a change counts as failing if it or its bundle cannot pass, and only then.
    fn check_failing(&self, before: Option<&Head>, head: &Head, slot: &Slot) -> Result<(), String> {
        let Some(position) = head.position(&slot.id).filter(|_| !slot.status.is_decided()) else {
            return Ok(());
        };
        let is_failing = slot.status == SlotStatus::Failing;
        let mut members = head.entries[position].members.iter();
        if is_failing {
            let end = position + 1;
            return match members.any(|member| self.cannot_pass(member, head, end)) {
                true => Ok(()),
                false => Err(format!("{} is failing, although it may pass", slot.change)),
            };
        }
        // A transaction that records a failure may leave its consequences to the next one, and so
        // may one that is full of resets.
        let is_reset = |slot: &Slot| {
            self.items.get(&slot.id).is_some_and(|item| item.generation == slot.generation)
        };
        let was_known = |member: &Slot| {
            before
                .into_iter()
                .flat_map(Head::slots)
                .any(|old| old.id == member.id && old.version == member.version)
        };
        match members.find(|member| was_known(member) && self.has_failed(member)) {
            Some(failed) if head.slots().all(is_reset) => Err(format!(
                "{} counts as one that may pass, although {} has failed",
                slot.change, failed.change
            )),
            _ => Ok(()),
        }
    }

    /// Returns whether a change cannot pass: it failed, it is to be dequeued, or something that it
    /// needs fails, or is neither merged nor among the first `end` entries.
    fn cannot_pass(&self, slot: &Slot, head: &Head, end: usize) -> bool {
        let Some(item) = self.items.get(&slot.id) else { return false };
        let mut needs = item.candidate.needs.iter().map(|need| &need.change);
        let is_lost = needs.any(|need| {
            let mut ahead = head.entries[..end].iter().flat_map(|entry| &entry.members);
            let mut failing = head.slots().filter(|slot| slot.status == SlotStatus::Failing);
            !head.has_landed(need)
                && (!ahead.any(|slot| slot.change == *need)
                    || failing.any(|slot| slot.change.key == need.key))
        });
        let is_dependent = head.manager == Manager::Dependent;
        self.has_failed(slot) || (is_dependent && (is_lost || item.candidate.refused.is_some()))
    }

    /// Returns whether the current state of a change does not merge, or a voting job of it failed
    /// or is known to fail.
    fn has_failed(&self, slot: &Slot) -> bool {
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        item.is_some_and(|item: &Item| {
            let is_unmergeable = matches!(item.merge_status, MergeStatus::Unmergeable { .. });
            let mut deciding =
                item.jobs.iter().filter(|job| job.summary.voting && !job.summary.reporter);
            is_unmergeable
                || deciding.any(|job| match &job.status {
                    JobStatus::Running { pre_fail, .. } => *pre_fail,
                    JobStatus::Ended { result, .. } => {
                        !matches!(result, BuildResult::Success | BuildResult::Skipped)
                    }
                    _ => false,
                })
        })
    }
}

/// Checks what a change is tested on: in a dependent pipeline the current state of the nearest
/// entry ahead that is not failing, in others its branch.
fn check_predecessor(head: &Head, position: usize) -> Result<(), String> {
    let entry = &head.entries[position];
    let slot = entry.first();
    if slot.status.is_decided() {
        return Ok(());
    }
    let ahead: Vec<&Slot> =
        head.entries[..position].iter().flat_map(|entry| &entry.members).collect();
    let skipped = match &entry.ahead {
        None => ahead.as_slice(),
        Some(state) => {
            let is_it = |other: &&Slot| {
                other.id == state.item
                    && other.generation == state.generation
                    && other.status != SlotStatus::Failing
                    && head.manager == Manager::Dependent
            };
            let Some(at) = ahead.iter().position(is_it) else {
                return Err(format!("{} is tested on a state that cannot pass", slot.change));
            };
            &ahead[at + 1..]
        }
    };
    // An entry whose reporter jobs run is merged already.
    let may_pass =
        |other: &&&Slot| !matches!(other.status, SlotStatus::Failing | SlotStatus::Reporting);
    match skipped.iter().find(may_pass).filter(|_| head.manager == Manager::Dependent) {
        Some(other) => Err(format!(
            "{} is tested without {} ahead of it, which may pass",
            slot.change, other.change
        )),
        None => Ok(()),
    }
}
