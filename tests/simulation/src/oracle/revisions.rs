//! Revisions as people made them, and what each of the ways to merge makes of a branch with one.

use super::{Known, Merged, Oracle};
use crate::truth;
use sluice_model::ProjectName;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{MergeMode, Oid};
use sluice_scenarios::repos::Tree;

/// A revision: commits one on the other.
pub(super) struct Revision {
    /// What they were made on.
    pub(super) base: Tree,
    /// Each with what it makes of that, oldest first.
    pub(super) commits: Vec<(Oid, Tree)>,
}

impl Revision {
    /// Returns what it is as a whole.
    pub(super) fn tree(&self) -> Option<&Tree> {
        self.commits.last().map(|(_, tree)| tree)
    }

    /// Returns what a tree is with it; `None` where it does not merge: as a whole, or commit by commit.
    pub(super) fn put(&self, mode: MergeMode, onto: &Tree) -> Option<Tree> {
        match mode {
            MergeMode::Merge | MergeMode::MergeResolve | MergeMode::SquashMerge => {
                truth::merge(&self.base, onto, self.tree()?)
            }
            MergeMode::CherryPick | MergeMode::Rebase | MergeMode::RebaseFirstParent => {
                let after = self.commits.iter().map(|(_, tree)| tree);
                let mut steps = [&self.base].into_iter().chain(after.clone()).zip(after);
                steps.try_fold(onto.clone(), |tree, (before, after)| truth::merge(before, &tree, after))
            }
        }
    }
}

impl Known {
    /// Returns whether the revision that is merged is this one, or was made on it.
    pub(super) fn holds(&self, head: &Oid) -> bool {
        let Some(merged) = &self.merged_head else { return true };
        let line = self.revisions.get(merged).into_iter().flat_map(|revision| &revision.commits);
        merged == head || line.into_iter().any(|(commit, _)| commit == head)
    }
}

/// Returns whether what is merged in that way is in its branch as other commits than it was proposed as.
fn is_anew(mode: MergeMode) -> bool {
    !matches!(mode, MergeMode::Merge | MergeMode::MergeResolve)
}

impl Oracle {
    /// Returns how a project says that its changes are merged.
    pub(super) fn mode_of(&self, project: &ProjectName) -> MergeMode {
        self.modes.get(project).copied().unwrap_or_default()
    }

    /// Returns what the revision of a change that is in its branch was made on, and what it is.
    pub fn landed_as(&self, change: &ChangeKey) -> Option<(&Tree, &Tree)> {
        let known = self.changes.get(change)?;
        let revision = known.revisions.get(known.merged_head.as_ref()?)?;
        Some((&revision.base, revision.tree()?))
    }

    /// Returns what a tree is with a change's revision; `None` where that does not merge. `onto_at` is which of its branch's states the
    /// tree is made on, where the change may be in that already.
    pub(super) fn put_one(&self, change: &ChangeRef, tree: Tree, onto_at: Option<usize>) -> Option<Tree> {
        let known = self.changes.get(&change.key)?;
        let mode = self.mode_of(&change.key.project);
        // What is in its branch already brings nothing more, whatever was done to its files since; what was put there as other commits
        // is merged once more. An older revision than the one that landed may bring what that took out again.
        let is_kept = known.merged == Some(Merged::ByHand) || !is_anew(mode);
        let is_below = onto_at.is_some_and(|onto_at| known.merged_at.is_some_and(|at| at <= onto_at));
        if is_kept && is_below && known.holds(&change.head) {
            return Some(tree);
        }
        known.revisions.get(&change.head)?.put(mode, &tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S02: what is taken back within a change meets nobody as a whole, and does commit by commit.
    #[test]
    fn commits_that_are_put_on_a_branch_one_by_one_may_not_merge_where_the_whole_does() {
        let tree = |text: &str| Tree::from([("a".to_owned(), text.to_owned())]);
        let revision = Revision { base: tree("0"), commits: vec![("a".into(), tree("1")), ("b".into(), tree("0"))] };
        assert_eq!(revision.put(MergeMode::SquashMerge, &tree("2")), Some(tree("2")));
        assert_eq!(revision.put(MergeMode::Rebase, &tree("2")), None);
        assert_eq!(revision.put(MergeMode::CherryPick, &tree("0")), Some(tree("0")));
    }
}
