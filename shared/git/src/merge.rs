//! Merging a proposed commit into a branch's tip, in memory, so that equal inputs give an equal
//! commit.

use crate::error::{MergeError, ReadError};
use crate::pack::text;
use crate::read::oid;
use crate::repository::Repository;
use gix::ObjectId;
use gix::actor::Signature;
use gix::merge::blob::builtin_driver::text::Labels;
use gix::merge::tree::{Options, Outcome, TreatAsUnresolved};
use sluice_model::git::{Commit, MergeMode, Oid};
use std::collections::BTreeSet;

/// Who commits what we merge; fixed, so that a result is a function of its inputs.
pub(crate) const NAME: &str = "Sluice";
pub(crate) const EMAIL: &str = "sluice@localhost";

/// What to merge, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge<'a> {
    /// The branch's tip.
    pub ours: &'a Oid,
    /// The proposed commit.
    pub theirs: &'a Oid,
    /// How it is put into the branch.
    pub mode: MergeMode,
    /// The message of a merge commit or squashed commit; other modes keep each commit's own.
    pub message: &'a str,
}

/// How a merge ended. All of these are final for these two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The branch as it would be.
    Merged(Merged),
    /// The branch holds the proposed commit already and stays as it is.
    Contained(Commit),
    /// Both sides changed the same; nothing was made.
    Conflict {
        /// The paths in conflict, sorted. Of a renamed file both paths.
        paths: Vec<String>,
    },
    /// The two histories have no commit in common, so a forge refuses to merge them.
    Unrelated,
}

/// The branch after a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Its new tip.
    pub commit: Commit,
    /// The commits that were made, oldest first, the tip last. Empty when replaying left nothing:
    /// then the tip is the old one.
    pub made: Vec<Oid>,
}

impl Repository {
    /// Merges a proposed commit into a branch's tip as a forge's merge button would: never by
    /// fast-forward.
    ///
    /// The commits made are kept in memory until [`Repository::pack_new_objects`]. Their committer
    /// is `Sluice <sluice@localhost>` and their time the newer committer time of the two commits,
    /// in UTC, so the result depends on the two commits, the mode and the message alone.
    ///
    /// - [`MergeMode::Merge`], [`MergeMode::MergeResolve`]: one commit with two parents. Several
    ///   merge bases are merged first.
    /// - [`MergeMode::SquashMerge`]: one commit with the tip as parent.
    /// - [`MergeMode::CherryPick`], [`MergeMode::Rebase`]: each commit that the branch lacks,
    ///   oldest first, with its author and message; merge commits are left out, and so is a commit
    ///   that has become empty.
    /// - [`MergeMode::RebaseFirstParent`]: the same along first parents; a merge commit becomes one
    ///   commit with what it brought in.
    ///
    /// Files are compared with git's defaults for merges: histogram diffs, renames from 50 %
    /// similarity, and a conflict where one side adds to a directory that the other renames.
    /// Attributes in the tree are not consulted (no line ending conversion, no merge drivers), as
    /// in git's own merge of a bare repository.
    ///
    /// One difference is known: where several merge bases exist *and* files were renamed on both
    /// sides of them, git and this library may disagree about whether there is a conflict, in
    /// either direction. In random histories, where both made a tree it was the same one.
    pub fn merge(&self, merge: Merge<'_>) -> Result<MergeOutcome, MergeError> {
        let ours = self.commit(merge.ours)?;
        let theirs = self.commit(merge.theirs)?;
        let base = self.merge_base(&ours.commit.id, &theirs.commit.id)?;
        match base {
            None => return Ok(MergeOutcome::Unrelated),
            Some(base) if base == theirs.commit.id => {
                return Ok(MergeOutcome::Contained(ours.commit));
            }
            Some(_) => {}
        }
        let committer = committer(ours.committed_at_seconds.max(theirs.committed_at_seconds));
        match merge.mode {
            MergeMode::Merge | MergeMode::MergeResolve => {
                self.merge_both(merge, committer, &[merge.ours, merge.theirs])
            }
            MergeMode::SquashMerge => self.merge_both(merge, committer, &[merge.ours]),
            MergeMode::CherryPick | MergeMode::Rebase | MergeMode::RebaseFirstParent => {
                self.replay(merge, committer)
            }
        }
    }

    /// Merges the two commits by their merge bases into one new commit with `parents`.
    fn merge_both(
        &self,
        merge: Merge<'_>,
        committer: Signature,
        parents: &[&Oid],
    ) -> Result<MergeOutcome, MergeError> {
        let (ours, theirs) = (self.find_commit(merge.ours)?.id, self.find_commit(merge.theirs)?.id);
        let failed = |source: gix::Error| self.merge_failed(&merge, source);
        let (our_tree, their_tree) = (self.tree_of(merge.ours)?, self.tree_of(merge.theirs)?);
        let bases = self.git.merge_bases_many(ours, &[theirs]).map_err(failed)?;
        let settled = match bases.as_slice() {
            // The library would do the same, after looking for a short name of the base in all
            // packs: ten times the work.
            [base] => self.merge_three(self.tree_of(&oid(base))?, our_tree, their_tree),
            _ => {
                let options = self.merge_options().map_err(failed)?.into();
                let outcome =
                    self.git.merge_commits(ours, theirs, labels(), options).map_err(failed)?;
                self.settle([outcome.merge_base_tree_id, our_tree, their_tree], outcome.tree_merge)
            }
        };
        let tree = match settled.map_err(failed)? {
            Settled::Tree(tree) => tree,
            Settled::Conflict(paths) => return Ok(MergeOutcome::Conflict { paths }),
        };
        let mut parent_ids = Vec::with_capacity(parents.len());
        for parent in parents {
            parent_ids.push(self.find_commit(parent)?.id);
        }
        let commit = gix::objs::Commit {
            tree,
            parents: parent_ids.into_iter().collect(),
            author: committer.clone(),
            committer,
            encoding: None,
            message: whole_lines(merge.message).into(),
            extra_headers: Vec::new(),
        };
        let id = oid(&self.git.write_object(&commit).map_err(failed)?);
        Ok(MergeOutcome::Merged(Merged {
            commit: Commit { id: id.clone(), tree: oid(&tree) },
            made: vec![id],
        }))
    }

    /// Puts what a commit changed relative to `base` onto `ours`; all three are trees.
    pub(crate) fn merge_three(
        &self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<Settled, gix::Error> {
        let outcome = self.git.merge_trees(base, ours, theirs, labels(), self.merge_options()?)?;
        self.settle([base, ours, theirs], outcome)
    }

    fn merge_options(&self) -> Result<Options, gix::Error> {
        self.git.tree_merge_options()
    }

    fn settle(
        &self,
        [base, ours, theirs]: [ObjectId; 3],
        mut outcome: Outcome<'_>,
    ) -> Result<Settled, gix::Error> {
        let how = TreatAsUnresolved::default();
        if outcome.has_unresolved_conflicts(how) {
            let mut paths = BTreeSet::new();
            for conflict in outcome.conflicts.iter().filter(|conflict| conflict.is_unresolved(how))
            {
                for change in [&conflict.ours, &conflict.theirs] {
                    paths.insert(text(change.location()));
                    paths.insert(text(change.source_location()));
                }
            }
            return Ok(Settled::Conflict(paths.into_iter().collect()));
        }
        let moved = self.added_to_renamed(base, ours, theirs)?;
        if !moved.is_empty() {
            return Ok(Settled::Conflict(moved.into_iter().collect()));
        }
        self.put_back(base, &mut outcome)?;
        Ok(Settled::Tree(outcome.tree.write()?.detach()))
    }

    pub(crate) fn merge_failed(&self, merge: &Merge<'_>, source: gix::Error) -> MergeError {
        if source.is_not_found() {
            // Something behind a commit that is held is not: the list of packs is not closed.
            return MergeError::Read(self.engine(
                "read what the commits reach",
                merge.theirs,
                source,
            ));
        }
        MergeError::Engine {
            project: self.project.clone(),
            ours: merge.ours.clone(),
            theirs: merge.theirs.clone(),
            source: source.into(),
        }
    }

    /// Returns the tree of a commit.
    pub(crate) fn tree_of(&self, commit: &Oid) -> Result<ObjectId, ReadError> {
        let found = self.find_commit(commit)?;
        found
            .tree_id()
            .map(gix::Id::detach)
            .map_err(|source| self.engine("read the commit", commit, source))
    }
}

/// A three-way merge of trees, done or refused.
pub(crate) enum Settled {
    /// The merged tree.
    Tree(ObjectId),
    /// The paths in conflict.
    Conflict(Vec<String>),
}

/// Returns a message as git keeps it: with a line end.
fn whole_lines(message: &str) -> String {
    let trimmed = message.trim_end();
    format!("{trimmed}\n")
}

fn labels() -> Labels<'static> {
    // Only seen inside of conflicts, and those are thrown away.
    Labels {
        ancestor: Some("base".into()),
        current: Some("ours".into()),
        other: Some("theirs".into()),
    }
}

fn committer(seconds: i64) -> Signature {
    Signature { name: NAME.into(), email: EMAIL.into(), time: gix::date::Time::new(seconds, 0) }
}
