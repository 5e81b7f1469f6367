//! What had to become of changes that need each other: they are tested on one state, and fail or
//! land together. In a pipeline where each change has a queue of its own they are, too; there what
//! they need besides is put below them.

use super::{Oracle, Stands, Tip, branch_of};
use crate::graphs::USES;
use crate::plays::lands;
use crate::truth;
use sluice_gate::Item;
use sluice_model::QueueKey;
use sluice_model::change::ChangeRef;
use sluice_model::git::BranchKey;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::{Store, Tree};
use std::collections::BTreeSet;

/// How it is told of a change whose mates failed.
const CYCLE_FAILED: &str = "This change is part of a dependency cycle that failed";

/// Why something leaves where nothing lands and comes again at once: it depends on other changes
/// than it came with, or is to be tested as one with others in another queue.
const ANEW: [&str; 2] = [
    "its dependencies changed",
    "it is tested as one with changes that need it as much as it needs them",
];

/// What is told of a change that leaves with one that it needs, before why that one does.
const LEFT_WITH: &str = " left, and they need each other: ";

/// Returns whether something left since it, or one that it leaves with, is tested anew.
pub(super) fn is_tested_anew(why: &str) -> bool {
    let own = why.split_once(LEFT_WITH).map_or(why, |(_, own)| own);
    ANEW.contains(&own)
}

/// Returns an item's change and those that it stands as one with.
pub(super) fn together(item: &Item) -> impl Iterator<Item = &ChangeRef> {
    let candidate = &item.candidate;
    let mates =
        candidate.needs.iter().filter(move |need| candidate.cycle.contains(&need.change.key));
    mates.chain([candidate]).map(|one| &one.change)
}

impl Oracle {
    /// Judges a bundle's item that left as tested or as one whose mates failed.
    pub(super) fn judged_in_bundle(
        &self,
        set: &Buildset,
        stood: &Stands,
        store: &Store,
    ) -> Result<(), String> {
        let item = &set.item;
        let is_complete =
            item.merged().is_some() && item.jobs.iter().all(|job| job.result().is_some());
        if set.result == "FAILURE" && set.why.starts_with(CYCLE_FAILED) && !is_complete {
            let lacks = self.conflicts(item, stood) || self.is_any_greedy();
            return if lacks {
                Ok(())
            } else {
                Err("nothing keeps any of those that it needs from being tested".to_owned())
            };
        }
        let merged = item.merged().ok_or("nothing was tested")?;
        let (own, branch) = (&item.candidate.change, branch_of(&item.candidate.change));
        let is_gate = lands(set.queue.pipeline.as_str());
        let members = members_of(item, &branch);
        let until_own = members.iter().position(|member| *member == own).map_or(0, |at| at + 1);
        let (before, after) = members.split_at(until_own);
        let below: Vec<&ChangeRef> =
            below_of(item, &branch, is_gate).into_iter().chain(before.iter().copied()).collect();
        let tested = store.tree(&merged.tested.id);
        let landed = if is_gate && set.result == "SUCCESS" { members.len() } else { 0 };
        let (mut is_tested, mut wholes): (bool, Vec<Tree>) = (false, Vec::new());
        for (at, tip, _) in
            self.tips_since(&branch, stood, &set.queue).filter(|(.., later)| *later <= landed)
        {
            let onto_at = (!is_gate).then_some(at);
            if self.put_all(&tip.tree, &below, onto_at).as_ref() != Some(tested) {
                continue;
            }
            is_tested = true;
            if let Some(whole) = self.put_all(tested, after, onto_at)
                && !wholes.contains(&whole)
            {
                wholes.push(whole);
            }
        }
        if !is_tested {
            return Err(
                "what was tested is not its branch with what comes before it and itself".to_owned()
            );
        }
        // Where its branch moved, any of several states may be what it was tested on.
        let mut judged = Err("it does not merge with what lands after it".to_owned());
        for whole in &wholes {
            judged = self.judged_whole(set, stood, whole, store);
            if judged.is_ok() {
                break;
            }
        }
        judged
    }

    /// Judges a bundle's item by what its branch is with all of the bundle.
    fn judged_whole(
        &self,
        set: &Buildset,
        stood: &Stands,
        whole: &Tree,
        store: &Store,
    ) -> Result<(), String> {
        self.judged_names(set, whole, store)?;
        match (set.result.as_str(), self.judged_jobs(&set.item, whole)?) {
            ("SUCCESS", true) => Err("a job failed".to_owned()),
            ("FAILURE", false) if !self.may_mates_fail(set, stood) => {
                Err("every job of all that need each other passed".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether any of those that an item is tested with may have failed.
    fn may_mates_fail(&self, set: &Buildset, stood: &Stands) -> bool {
        let item = &set.item;
        let is_gate = lands(set.queue.pipeline.as_str());
        // Where nothing lands a layout that becomes live meanwhile has them put together again, and
        // what they need besides may lack what they require.
        let may_lack = || item.jobs.iter().any(|job| job.summary.name.as_str() == USES);
        if self.nodes_fail
            || !self.unlucky.is_empty()
            || (!is_gate && (self.is_any_greedy() || may_lack() || self.conflicts(item, stood)))
        {
            return true;
        }
        together(item).filter(|mate| **mate != item.candidate.change).any(|mate| {
            let branch = branch_of(mate);
            let all: Vec<&ChangeRef> = below_of(item, &branch, is_gate)
                .into_iter()
                .chain(members_of(item, &branch))
                .collect();
            let mut trees = self
                .tips_since(&branch, stood, &set.queue)
                .map(|(at, tip, _)| self.put_all(&tip.tree, &all, (!is_gate).then_some(at)));
            trees.any(|tree| tree.is_none_or(|tree| !truth::all_pass(&tree)))
        })
    }

    /// Returns whether those that need each other did not merge one after the other, on what they
    /// need besides, with some state of a branch while one of them stood in its queue.
    pub(super) fn conflicts_as_one(&self, item: &Item, stood: &Stands) -> bool {
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        let branches: BTreeSet<BranchKey> =
            needs.chain([&item.candidate.change]).map(branch_of).collect();
        !item.candidate.cycle.is_empty()
            && branches.iter().any(|branch| {
                let all: Vec<&ChangeRef> = below_of(item, branch, false)
                    .into_iter()
                    .chain(members_of(item, branch))
                    .collect();
                let first = stood.first_tips.get(branch).copied().unwrap_or_default();
                let tips = self.branches.get(branch).map(Vec::as_slice).unwrap_or_default();
                let mut later = tips.iter().enumerate().skip(first);
                later.any(|(at, tip)| self.put_all(&tip.tree, &all, Some(at)).is_none())
            })
    }

    /// Returns whether a branch moved by somebody else's hand while an item of a bundle stood, so
    /// that half of that could not land. One that stands alone lands or does not: that its branch
    /// moved explains nothing but what was merged onto it untested, which is known of the merge
    /// itself.
    pub(super) fn was_overtaken(&self, item: &Item, stood: &Stands, queue: &QueueKey) -> bool {
        let mates = item.candidate.needs.iter().map(|need| &need.change);
        let mut branches = mates.chain([&item.candidate.change]).map(branch_of);
        !item.candidate.cycle.is_empty()
            && branches.any(|branch| {
                self.tips_since(&branch, stood, queue)
                    .skip(1)
                    .any(|(_, tip, _)| tip.by.as_ref() != Some(queue))
            })
    }

    /// Returns where a branch was since an item stands, each with which of its states that is, and
    /// how often its queue moved it after that.
    fn tips_since<'a>(
        &'a self,
        branch: &BranchKey,
        stood: &Stands,
        queue: &'a QueueKey,
    ) -> impl Iterator<Item = (usize, &'a Tip, usize)> + 'a {
        let first = stood.first_tips.get(branch).copied().unwrap_or_default();
        let tips = self.branches.get(branch).map(Vec::as_slice).unwrap_or_default();
        (first..tips.len()).map(|at| {
            (
                at,
                &tips[at],
                tips[at + 1..].iter().filter(|tip| tip.by.as_ref() == Some(queue)).count(),
            )
        })
    }

    /// Returns what a tree is with changes one after the other, as [`Oracle::put_one`] puts each.
    fn put_all(&self, onto: &Tree, changes: &[&ChangeRef], onto_at: Option<usize>) -> Option<Tree> {
        changes.iter().try_fold(onto.clone(), |tree, change| self.put_one(change, tree, onto_at))
    }
}

/// Returns what an item's bundle needs besides itself for one branch. Where changes land that is in
/// its branch before.
fn below_of<'a>(item: &'a Item, branch: &BranchKey, is_gate: bool) -> Vec<&'a ChangeRef> {
    let others =
        item.candidate.needs.iter().filter(|need| !item.candidate.cycle.contains(&need.change.key));
    let others = others.map(|need| &need.change).filter(|_| !is_gate);
    others.filter(|need| branch_of(need) == *branch).collect()
}

/// Returns the changes of an item's bundle that are for one branch, in the order they land.
fn members_of<'a>(item: &'a Item, branch: &BranchKey) -> Vec<&'a ChangeRef> {
    let all =
        || item.candidate.needs.iter().map(|need| &need.change).chain([&item.candidate.change]);
    let members =
        item.candidate.cycle.iter().filter_map(|key| all().find(|change| change.key == *key));
    members.filter(|member| branch_of(member) == *branch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D10: what is told of those that leave, for the one and for those with it.
    #[test]
    fn what_comes_again_leaves_for_that_reason_alone() {
        let told =
            |why: &str| format!("forge.test/org/t0p0#1 left, and they need each other: {why}");
        for why in ANEW {
            assert!(is_tested_anew(why) && is_tested_anew(&told(why)), "{why}");
        }
        for why in [
            "",
            "a new revision takes its place",
            "its dependencies changed: it depends on another one",
        ] {
            assert!(!is_tested_anew(why) && !is_tested_anew(&told(why)), "{why}");
        }
    }
}
