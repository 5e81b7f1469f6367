//! Bundles: members are tested on one state, and fail or land together. The same holds in
//! independent pipelines, where the other needs of the members are merged first.

use super::{Oracle, QueuedItem, Tip, branch_of};
use crate::graphs::USES;
use crate::scenarios::lands;
use crate::truth;
use sluice_gate::{Item, Job, JobStatus};
use sluice_model::QueueKey;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeRef;
use sluice_model::git::BranchKey;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::{Store, Tree};
use std::collections::BTreeSet;

/// The start of the reason of a member that leaves because another member failed.
const BUNDLE_FAILED: &str = "This change is part of a dependency cycle that failed";

/// Reasons of items that leave an independent pipeline and are enqueued again.
const RETEST_REASONS: [&str; 2] =
    ["its dependencies changed", "it is part of a dependency cycle there"];

/// The text before the reason of another member.
const BUNDLE_LEFT: &str = " of its dependency cycle left: ";

/// Returns whether an item left for a new test of itself or of another bundle member.
pub(super) fn is_retest(why: &str) -> bool {
    let own = why.split_once(BUNDLE_LEFT).map_or(why, |(_, own)| own);
    RETEST_REASONS.contains(&own)
}

/// Returns the change of an item and the other members of its bundle.
pub(super) fn together(item: &Item) -> impl Iterator<Item = &ChangeRef> {
    let candidate = &item.candidate;
    let members =
        candidate.needs.iter().filter(move |need| candidate.bundle.contains(&need.change.key));
    members.chain([candidate]).map(|one| &one.change)
}

/// Returns whether a job ended by itself. One that another member's failure cut short says nothing
/// about the tested tree.
fn has_own_result(job: &Job) -> bool {
    match &job.status {
        JobStatus::Ended { result: BuildResult::Aborted, detail: Some(why), .. } => {
            !why.starts_with(BUNDLE_FAILED)
        }
        status => matches!(status, JobStatus::Ended { .. }),
    }
}

impl Oracle {
    /// Checks a bundle member that left as tested, or because another member failed.
    pub(super) fn check_bundle_item(
        &self,
        set: &Buildset,
        queued: &QueuedItem,
        store: &Store,
    ) -> Result<(), String> {
        let item = &set.item;
        let is_complete = item.merged().is_some() && item.jobs.iter().all(has_own_result);
        if set.result == "FAILURE" && set.why.starts_with(BUNDLE_FAILED) && !is_complete {
            let lacks = self.conflicts(item, queued) || self.is_any_greedy();
            return if lacks {
                Ok(())
            } else {
                Err("no member of its bundle had a reason not to be tested".to_owned())
            };
        }
        let merged = item.merged().ok_or("nothing was tested")?;
        let (own, branch) = (&item.candidate.change, branch_of(&item.candidate.change));
        let is_gate = lands(set.queue.pipeline.as_str());
        let members = members_of(item, &branch);
        let until_own = members.iter().position(|member| *member == own).map_or(0, |at| at + 1);
        let (before, after) = members.split_at(until_own);
        let below: Vec<&ChangeRef> = dependencies_below(item, &branch, is_gate)
            .into_iter()
            .chain(before.iter().copied())
            .collect();
        let tested = store.tree(&merged.tested.id);
        let landed = if is_gate && set.result == "SUCCESS" { members.len() } else { 0 };
        let (mut is_tested, mut wholes): (bool, Vec<Tree>) = (false, Vec::new());
        for (at, tip, _) in self
            .branch_states_since(&branch, queued, &set.queue)
            .filter(|(.., later)| *later <= landed)
        {
            let onto_at = (!is_gate).then_some(at);
            if self.merge_changes(&tip.tree, &below, onto_at).as_ref() != Some(tested) {
                continue;
            }
            is_tested = true;
            if let Some(whole) = self.merge_changes(tested, after, onto_at)
                && !wholes.contains(&whole)
            {
                wholes.push(whole);
            }
        }
        if !is_tested {
            return Err(
                "the tested tree is not the merge of its branch, the changes before it and itself"
                    .to_owned(),
            );
        }
        // If its branch moved, it may have been tested on any of several states.
        let mut judged = Err("it conflicts with the members that land after it".to_owned());
        for whole in &wholes {
            judged = self.check_bundle_tree(set, queued, whole, store);
            if judged.is_ok() {
                break;
            }
        }
        judged
    }

    /// Checks the jobs and the result of a member on the branch with the whole bundle.
    fn check_bundle_tree(
        &self,
        set: &Buildset,
        queued: &QueuedItem,
        whole: &Tree,
        store: &Store,
    ) -> Result<(), String> {
        self.check_job_names(set, whole, store)?;
        match (set.result.as_str(), self.check_job_results(&set.item, whole)?) {
            ("SUCCESS", true) => Err("a job failed".to_owned()),
            ("FAILURE", false) if !self.may_members_fail(set, queued) => {
                Err("every job of the bundle passed".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether another member of an item's bundle may have failed.
    fn may_members_fail(&self, set: &Buildset, queued: &QueuedItem) -> bool {
        let item = &set.item;
        let is_gate = lands(set.queue.pipeline.as_str());
        // In an independent pipeline, a new layout can rebuild the bundle, and artifacts of its
        // needs may be missing.
        let may_lack_artifacts = || item.jobs.iter().any(|job| job.summary.name.as_str() == USES);
        if self.nodes_fail
            || !self.interrupted_builds.is_empty()
            || (!is_gate
                && (self.is_any_greedy() || may_lack_artifacts() || self.conflicts(item, queued)))
        {
            return true;
        }
        together(item).filter(|member| **member != item.candidate.change).any(|member| {
            let branch = branch_of(member);
            let all: Vec<&ChangeRef> = dependencies_below(item, &branch, is_gate)
                .into_iter()
                .chain(members_of(item, &branch))
                .collect();
            let mut trees = self
                .branch_states_since(&branch, queued, &set.queue)
                .map(|(at, tip, _)| self.merge_changes(&tip.tree, &all, (!is_gate).then_some(at)));
            trees.any(|tree| tree.is_none_or(|tree| !truth::all_pass(&tree)))
        })
    }

    /// Returns whether the members of a bundle, with their other needs, conflicted with some state
    /// of a branch while the item was queued.
    pub(super) fn bundle_conflicts(&self, item: &Item, queued: &QueuedItem) -> bool {
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        let branches: BTreeSet<BranchKey> =
            needs.chain([&item.candidate.change]).map(branch_of).collect();
        !item.candidate.bundle.is_empty()
            && branches.iter().any(|branch| {
                let all: Vec<&ChangeRef> = dependencies_below(item, branch, false)
                    .into_iter()
                    .chain(members_of(item, branch))
                    .collect();
                let first = queued.first_tips.get(branch).copied().unwrap_or_default();
                let tips = self.branches.get(branch).map(Vec::as_slice).unwrap_or_default();
                let mut later = tips.iter().enumerate().skip(first);
                later.any(|(at, tip)| self.merge_changes(&tip.tree, &all, Some(at)).is_none())
            })
    }

    /// Returns whether a branch of a bundle was moved by something else than its queue while the
    /// item was queued, so that only a part of the bundle could land. Always false for an item
    /// without a bundle: there, only an untested merge explains a failure.
    pub(super) fn branch_moved_by_others(
        &self,
        item: &Item,
        queued: &QueuedItem,
        queue: &QueueKey,
    ) -> bool {
        let members = item.candidate.needs.iter().map(|need| &need.change);
        let mut branches = members.chain([&item.candidate.change]).map(branch_of);
        !item.candidate.bundle.is_empty()
            && branches.any(|branch| {
                self.branch_states_since(&branch, queued, queue)
                    .skip(1)
                    .any(|(_, tip, _)| tip.by.as_ref() != Some(queue))
            })
    }

    /// Returns the states of a branch since an item entered. Each comes with its index and the
    /// number of later moves by the queue.
    fn branch_states_since<'a>(
        &'a self,
        branch: &BranchKey,
        queued: &QueuedItem,
        queue: &'a QueueKey,
    ) -> impl Iterator<Item = (usize, &'a Tip, usize)> + 'a {
        let first = queued.first_tips.get(branch).copied().unwrap_or_default();
        let tips = self.branches.get(branch).map(Vec::as_slice).unwrap_or_default();
        (first..tips.len()).map(|at| {
            (
                at,
                &tips[at],
                tips[at + 1..].iter().filter(|tip| tip.by.as_ref() == Some(queue)).count(),
            )
        })
    }

    /// Merges changes into a tree one by one, see [`Oracle::merge_change`]. `None` on a conflict.
    fn merge_changes(
        &self,
        onto: &Tree,
        changes: &[&ChangeRef],
        onto_at: Option<usize>,
    ) -> Option<Tree> {
        changes
            .iter()
            .try_fold(onto.clone(), |tree, change| self.merge_change(change, tree, onto_at))
    }
}

/// Returns the needs of a bundle on one branch that are not members. Empty for a gate, where they
/// are already merged.
fn dependencies_below<'a>(item: &'a Item, branch: &BranchKey, is_gate: bool) -> Vec<&'a ChangeRef> {
    let others = item
        .candidate
        .needs
        .iter()
        .filter(|need| !item.candidate.bundle.contains(&need.change.key));
    let others = others.map(|need| &need.change).filter(|_| !is_gate);
    others.filter(|need| branch_of(need) == *branch).collect()
}

/// Returns the members of a bundle on one branch, in landing order.
fn members_of<'a>(item: &'a Item, branch: &BranchKey) -> Vec<&'a ChangeRef> {
    let all =
        || item.candidate.needs.iter().map(|need| &need.change).chain([&item.candidate.change]);
    let members =
        item.candidate.bundle.iter().filter_map(|key| all().find(|change| change.key == *key));
    members.filter(|member| branch_of(member) == *branch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D10: the reasons of retested items, alone and as the reason of another member.
    #[test]
    fn only_retest_reasons_are_recognized() {
        let of_member =
            |why: &str| format!("forge.test/org/t0p0#1 of its dependency cycle left: {why}");
        for why in RETEST_REASONS {
            assert!(is_retest(why) && is_retest(&of_member(why)), "{why}");
        }
        for why in [
            "",
            "a new revision replaces it",
            "its dependencies changed: it depends on another one",
        ] {
            assert!(!is_retest(why) && !is_retest(&of_member(why)), "{why}");
        }
    }
}
