//! What had to become of changes that need each other: they are tested on one state, and fail or land together.

use super::{Oracle, Stands, Tip, branch_of};
use crate::truth;
use sluice_gate::Item;
use sluice_model::QueueKey;
use sluice_model::change::ChangeRef;
use sluice_model::git::BranchKey;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::{Store, Tree};

/// How it is told of a change whose mates failed.
const CYCLE_FAILED: &str = "This change is part of a dependency cycle that failed";

impl Oracle {
    /// Judges a bundle's item that left as tested or as one whose mates failed.
    pub(super) fn judged_in_bundle(&self, set: &Buildset, stood: &Stands, store: &Store) -> Result<(), String> {
        let item = &set.item;
        let is_complete = item.merged().is_some() && item.jobs.iter().all(|job| job.result().is_some());
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
        let members = members_of(item, &branch);
        let until_own = members.iter().position(|member| *member == own).map_or(0, |at| at + 1);
        let (before, after) = members.split_at(until_own);
        let tested = store.tree(&merged.tested.id).clone();
        let landed = if set.result == "SUCCESS" { members.len() } else { 0 };
        let mut bases = self.tips_since(&branch, stood, &set.queue).filter(|(_, later)| *later <= landed);
        if !bases.any(|(tip, _)| self.put_all(&tip.tree, before).as_ref() == Some(&tested)) {
            return Err("what was tested is not its branch with what lands before it and itself".to_owned());
        }
        let whole = self.put_all(&tested, after).ok_or("it does not merge with what lands after it")?;
        self.judged_names(set, &whole, store)?;
        let fails = self.judged_jobs(item, &whole)?;
        let mates_fail = self.nodes_fail
            || !self.unlucky.is_empty()
            || item.candidate.needs.iter().filter(|need| item.candidate.cycle.contains(&need.change.key)).any(|mate| {
                let branch = branch_of(&mate.change);
                let members = members_of(item, &branch);
                let mut trees =
                    self.tips_since(&branch, stood, &set.queue).map(|(tip, _)| self.put_all(&tip.tree, &members));
                trees.any(|tree| tree.is_none_or(|tree| !truth::all_pass(&tree)))
            });
        match (set.result.as_str(), fails) {
            ("SUCCESS", true) => Err("a job failed".to_owned()),
            ("FAILURE", false) if !mates_fail => Err("every job of all that need each other passed".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns whether a branch moved by somebody else's hand while an item of a bundle stood, so that half of that could not land.
    /// One that stands alone lands or does not: that its branch moved explains nothing but what was merged onto it untested, which
    /// is known of the merge itself.
    pub(super) fn was_overtaken(&self, item: &Item, stood: &Stands, queue: &QueueKey) -> bool {
        let mates = item.candidate.needs.iter().map(|need| &need.change);
        let mut branches = mates.chain([&item.candidate.change]).map(branch_of);
        !item.candidate.cycle.is_empty()
            && branches.any(|branch| {
                self.tips_since(&branch, stood, queue).skip(1).any(|(tip, _)| tip.by.as_ref() != Some(queue))
            })
    }

    /// Returns where a branch was since an item stands, with how often its queue moved it after that.
    fn tips_since<'a>(
        &'a self,
        branch: &BranchKey,
        stood: &Stands,
        queue: &'a QueueKey,
    ) -> impl Iterator<Item = (&'a Tip, usize)> + 'a {
        let first = stood.first_tips.get(branch).copied().unwrap_or_default();
        let tips = self.branches.get(branch).map(Vec::as_slice).unwrap_or_default();
        (first..tips.len())
            .map(|at| (&tips[at], tips[at + 1..].iter().filter(|tip| tip.by.as_ref() == Some(queue)).count()))
    }

    fn put_all(&self, onto: &Tree, changes: &[&ChangeRef]) -> Option<Tree> {
        changes.iter().try_fold(onto.clone(), |tree, change| {
            let revision = self.changes.get(&change.key)?.revisions.get(&change.head)?;
            revision.put(self.mode_of(&change.key.project), &tree)
        })
    }
}

/// Returns the changes of an item's bundle that are for one branch, in the order they land.
fn members_of<'a>(item: &'a Item, branch: &BranchKey) -> Vec<&'a ChangeRef> {
    let all = || item.candidate.needs.iter().map(|need| &need.change).chain([&item.candidate.change]);
    let members = item.candidate.cycle.iter().filter_map(|key| all().find(|change| change.key == *key));
    members.filter(|member| branch_of(member) == *branch).collect()
}
