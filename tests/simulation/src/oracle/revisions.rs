//! Revisions of changes, and the tree that each merge mode makes of a branch and a revision.

use super::{ChangeHistory, Merged, Oracle, branch_of};
use crate::truth;
use sluice_gate::Item;
use sluice_model::ProjectName;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{MergeMode, Oid};
use sluice_scenarios::repos::Tree;

/// The commits of a revision.
pub(super) struct Revision {
    /// The tree that they are based on.
    pub(super) base: Tree,
    /// The commits with their trees, oldest first.
    pub(super) commits: Vec<(Oid, Tree)>,
}

impl Revision {
    /// Returns the tree of the last commit.
    pub(super) fn tree(&self) -> Option<&Tree> {
        self.commits.last().map(|(_, tree)| tree)
    }

    /// Merges the revision onto a tree, in one step or commit by commit. `None` on a conflict.
    pub(super) fn merge_onto(&self, mode: MergeMode, onto: &Tree) -> Option<Tree> {
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

impl ChangeHistory {
    /// Returns whether the merged revision is this one or is based on it.
    pub(super) fn holds(&self, head: &Oid) -> bool {
        let Some(merged) = &self.merged_head else { return true };
        let line = self.revisions.get(merged).into_iter().flat_map(|revision| &revision.commits);
        merged == head || line.into_iter().any(|(commit, _)| commit == head)
    }
}

/// Returns whether a merge mode creates new commits of the changes.
fn creates_commits(mode: MergeMode) -> bool {
    !matches!(mode, MergeMode::Merge | MergeMode::MergeResolve)
}

impl Oracle {
    /// Returns the merge mode of a project.
    pub(super) fn mode_of(&self, project: &ProjectName) -> MergeMode {
        self.modes.get(project).copied().unwrap_or_default()
    }

    /// Returns the base and the tree of the merged revision of a change.
    pub fn landed_revision(&self, change: &ChangeKey) -> Option<(&Tree, &Tree)> {
        let history = self.changes.get(change)?;
        let revision = history.revisions.get(history.merged_head.as_ref()?)?;
        Some((&revision.base, revision.tree()?))
    }

    /// Merges an item into a tree, with its needs on the same branch that had not landed at that
    /// branch state. A queue that knows of a landing does not merge the change again, even if it
    /// was reverted.
    pub(super) fn merge_without_landed_needs(
        &self,
        item: &Item,
        onto: &Tree,
        onto_at: usize,
    ) -> Option<Tree> {
        let own = &item.candidate.change;
        let has_landed = |need: &ChangeRef| {
            let merged_at = self.changes.get(&need.key).and_then(|history| history.merged_at);
            merged_at.is_some_and(|merged_at| merged_at <= onto_at)
        };
        let needs = item.candidate.needs.iter().map(|need| &need.change);
        let below = needs.filter(|need| branch_of(need) == branch_of(own) && !has_landed(need));
        below
            .chain([own])
            .try_fold(onto.clone(), |tree, change| self.merge_change(change, tree, Some(onto_at)))
    }

    /// Merges the revision of a change into a tree; `None` on a conflict. `onto_at` is the branch
    /// state that the tree is based on, which may already contain the change.
    pub(super) fn merge_change(
        &self,
        change: &ChangeRef,
        tree: Tree,
        onto_at: Option<usize>,
    ) -> Option<Tree> {
        let history = self.changes.get(&change.key)?;
        let mode = self.mode_of(&change.key.project);
        // A change that is already in its branch adds nothing, whatever happened to its files. A
        // change that was merged as new commits is merged again. An older revision may restore what
        // the merged one removed.
        let is_same_commits = history.merged == Some(Merged::ByHand) || !creates_commits(mode);
        let is_below =
            onto_at.is_some_and(|onto_at| history.merged_at.is_some_and(|at| at <= onto_at));
        if is_same_commits && is_below && history.holds(&change.head) {
            return Some(tree);
        }
        history.revisions.get(&change.head)?.merge_onto(mode, &tree)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::change;
    use super::super::{ExpectedLanding, LandingPosition, MergeContent};
    use super::*;
    use sluice_model::change::{ChangeFacts, ChangeReview, RepositoryPermission, ReviewState};
    use sluice_model::git::Commit;
    use sluice_model::{QueueKey, Timestamp};
    use sluice_scenarios::repos::Store;

    /// S02: a change that reverts itself merges as a whole, but not commit by commit.
    #[test]
    fn commits_may_conflict_one_by_one_where_the_whole_merges() {
        let tree = |text: &str| Tree::from([("a".to_owned(), text.to_owned())]);
        let revision = Revision {
            base: tree("0"),
            commits: vec![("a".into(), tree("1")), ("b".into(), tree("0"))],
        };
        assert_eq!(revision.merge_onto(MergeMode::SquashMerge, &tree("2")), Some(tree("2")));
        assert_eq!(revision.merge_onto(MergeMode::Rebase, &tree("2")), None);
        assert_eq!(revision.merge_onto(MergeMode::CherryPick, &tree("0")), Some(tree("0")));
    }

    /// Checks a landing whose dependency landed and was reverted, where the file of the dependency
    /// has this text.
    fn landing_after_revert(text: &str) -> Result<(), String> {
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
            oracle.record_branch_move(&branch_of(&own), &commit, &store);
            tip = Some(commit);
        }
        oracle.changes.entry(needed.key.clone()).or_default().merged = Some(Merged::ByGate);
        oracle.record_upload(
            &own,
            tree("0", None),
            vec![(own.head.clone(), tree("0", Some("1")))],
            Timestamp(1),
        );
        let mut facts = ChangeFacts::bare(own.clone(), Timestamp(1));
        let (by, state, permission) =
            ("grace".to_owned(), ReviewState::Approved, RepositoryPermission::Write);
        facts.reviews.push(ChangeReview {
            by,
            email: None,
            state,
            permission,
            submitted_at: Timestamp(1),
        });
        let tip = tip.ok_or("there is no branch")?;
        let commit = store.commit(tree(text, Some("1")), vec![tip.id], "landed");
        let (position, content) = (LandingPosition::First, MergeContent::AsRequested);
        let said = ExpectedLanding {
            base: tip.tree,
            tested: commit.tree.clone(),
            needs: vec![needed.key],
            other_members: Vec::new(),
            mode: MergeMode::default(),
            queue: QueueKey {
                tenant: "tenant0".into(),
                pipeline: "gate".into(),
                queue: "q".into(),
            },
            shown: [(own.key.clone(), facts)].into(),
        };
        oracle.check_landing(&own, &commit, Some(said), position, content, &store)
    }

    /// Z6.4: a reverted change does not return with the landing of a change that depends on it.
    #[test]
    fn a_landing_does_not_restore_a_reverted_dependency() {
        assert_eq!(landing_after_revert("0"), Ok(()));
        let why = landing_after_revert("1").expect_err("it restores a reverted change");
        assert!(why.contains("is not the merge of both"), "{why}");
    }
}
