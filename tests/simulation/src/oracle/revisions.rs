//! Revisions as people made them, and what each of the ways to merge makes of a branch with one.

use super::{Known, Merged, Oracle, branch_of};
use crate::truth;
use sluice_gate::Item;
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

    /// Returns what a tree is with it; `None` where it does not merge: as a whole, or commit by
    /// commit.
    pub(super) fn put(&self, mode: MergeMode, onto: &Tree) -> Option<Tree> {
        match mode {
            MergeMode::Merge | MergeMode::MergeResolve | MergeMode::SquashMerge => {
                truth::merge(&self.base, onto, self.tree()?)
            }
            MergeMode::CherryPick | MergeMode::Rebase | MergeMode::RebaseFirstParent => {
                let after = self.commits.iter().map(|(_, tree)| tree);
                let mut steps = [&self.base].into_iter().chain(after.clone()).zip(after);
                steps.try_fold(onto.clone(), |tree, (before, after)| {
                    truth::merge(before, &tree, after)
                })
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

/// Returns whether what is merged in that way is in its branch as other commits than it was
/// proposed as.
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

    /// Returns a tree with an item's change, and with what that needs of the same branch but had
    /// not landed by one of its states: a queue that knows of a landing has it put there no more,
    /// whatever became of it since.
    pub(super) fn put_beside_landed(
        &self,
        item: &Item,
        onto: &Tree,
        onto_at: usize,
    ) -> Option<Tree> {
        let own = &item.candidate.change;
        let has_landed = |need: &ChangeRef| {
            let merged_at = self.changes.get(&need.key).and_then(|known| known.merged_at);
            merged_at.is_some_and(|merged_at| merged_at <= onto_at)
        };
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        let below = needs.filter(|need| branch_of(need) == branch_of(own) && !has_landed(need));
        below
            .chain([own])
            .try_fold(onto.clone(), |tree, change| self.put_one(change, tree, Some(onto_at)))
    }

    /// Returns what a tree is with a change's revision; `None` where that does not merge. `onto_at`
    /// is which of its branch's states the tree is made on, where the change may be in that
    /// already.
    pub(super) fn put_one(
        &self,
        change: &ChangeRef,
        tree: Tree,
        onto_at: Option<usize>,
    ) -> Option<Tree> {
        let known = self.changes.get(&change.key)?;
        let mode = self.mode_of(&change.key.project);
        // What is in its branch already brings nothing more, whatever was done to its files since;
        // what was put there as other commits is merged once more. An older revision than the one
        // that landed may bring what that took out again.
        let is_kept = known.merged == Some(Merged::ByHand) || !is_anew(mode);
        let is_below =
            onto_at.is_some_and(|onto_at| known.merged_at.is_some_and(|at| at <= onto_at));
        if is_kept && is_below && known.holds(&change.head) {
            return Some(tree);
        }
        known.revisions.get(&change.head)?.put(mode, &tree)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Said;
    use super::super::fixtures::change;
    use super::*;
    use sluice_model::change::{ChangeFacts, Permission, Review, ReviewState};
    use sluice_model::git::Commit;
    use sluice_model::{QueueKey, Timestamp};
    use sluice_scenarios::repos::Store;

    /// S02: what is taken back within a change meets nobody as a whole, and does commit by commit.
    #[test]
    fn commits_that_are_put_on_a_branch_one_by_one_may_not_merge_where_the_whole_does() {
        let tree = |text: &str| Tree::from([("a".to_owned(), text.to_owned())]);
        let revision = Revision {
            base: tree("0"),
            commits: vec![("a".into(), tree("1")), ("b".into(), tree("0"))],
        };
        assert_eq!(revision.put(MergeMode::SquashMerge, &tree("2")), Some(tree("2")));
        assert_eq!(revision.put(MergeMode::Rebase, &tree("2")), None);
        assert_eq!(revision.put(MergeMode::CherryPick, &tree("0")), Some(tree("0")));
    }

    /// Returns what is said of a landing after which the file of a change that it needs, and that
    /// somebody took back since that landed, is this text.
    fn landing_beside(text: &str) -> Result<(), String> {
        let (mut store, mut oracle) = (Store::default(), Oracle::default());
        let (needed, own) = (change(1), change(2));
        let tree = |a: &str, b: Option<&str>| -> Tree {
            let files = [Some(("a", a)), b.map(|b| ("b", b))].into_iter().flatten();
            files.map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
        };
        let mut tip: Option<Commit> = None;
        for a in ["0", "1", "0"] {
            let parents = tip.iter().map(|tip| tip.id.clone()).collect();
            let commit = store.commit(tree(a, None), parents, "pushed");
            oracle.moved(&branch_of(&own), &commit, &store);
            tip = Some(commit);
        }
        oracle.changes.entry(needed.key.clone()).or_default().merged = Some(Merged::ByGate);
        oracle.uploaded(
            &own,
            tree("0", None),
            vec![(own.head.clone(), tree("0", Some("1")))],
            Timestamp(1),
        );
        let mut facts = ChangeFacts::bare(own.clone(), Timestamp(1));
        let (by, state, permission) =
            ("grace".to_owned(), ReviewState::Approved, Permission::Write);
        facts.reviews.push(Review {
            by,
            email: None,
            state,
            permission,
            submitted_at: Timestamp(1),
        });
        let tip = tip.ok_or("there is no branch")?;
        let commit = store.commit(tree(text, Some("1")), vec![tip.id], "landed");
        let said = Said {
            base: tip.tree,
            tested: commit.tree.clone(),
            needs: vec![needed.key],
            mates: Vec::new(),
            mode: MergeMode::default(),
            queue: QueueKey {
                tenant: "tenant0".into(),
                pipeline: "gate".into(),
                queue: "q".into(),
            },
            shown: [(own.key.clone(), facts)].into(),
        };
        oracle.landed(&own, &commit, Some(said), true, false, &store)
    }

    /// Z6.4: what was taken back since it landed is no part of what lands after it, and needs it.
    #[test]
    fn a_change_lands_alone_on_its_branch_as_that_is_and_not_with_what_was_taken_back() {
        assert_eq!(landing_beside("0"), Ok(()));
        let why = landing_beside("1").expect_err("it brings back what somebody took back");
        assert!(why.contains("something else than both together"), "{why}");
    }
}
