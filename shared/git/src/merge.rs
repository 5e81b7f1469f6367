//! Merges a proposed commit into a branch tip, in memory. Equal inputs give an equal commit.

use crate::error::{GitReadError, MergeError};
use crate::pack::text;
use crate::read::oid;
use crate::repository::Repository;
use gix::ObjectId;
use gix::actor::Signature;
use gix::merge::blob::builtin_driver::text::Labels;
use gix::merge::tree::{Options, Outcome, TreatAsUnresolved};
use sluice_model::git::{Commit, MergeMode, Oid};
use std::collections::BTreeSet;

/// The committer of merges. It is fixed, so that the result depends only on the inputs.
pub(crate) const NAME: &str = "Sluice";
pub(crate) const EMAIL: &str = "sluice@localhost";

/// A merge to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge<'a> {
    /// The branch tip.
    pub ours: &'a Oid,
    /// The proposed commit.
    pub theirs: &'a Oid,
    /// How the commit is put on the branch.
    pub mode: MergeMode,
    /// The message of a merge or squash commit; other modes keep the commits' own messages.
    pub message: &'a str,
}

/// The outcome of a merge. It is final for these two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitMergeOutcome {
    /// The commits were merged.
    Merged(MergedCommit),
    /// The branch already contains the proposed commit and does not change.
    Contained(Commit),
    /// Both sides changed the same lines or files; no commit was made.
    Conflict {
        /// The conflicting paths, sorted; both paths of a renamed file.
        paths: Vec<String>,
    },
    /// The histories have no common commit, so a forge refuses to merge them.
    Unrelated,
}

/// The new branch tip after a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedCommit {
    /// The new tip.
    pub commit: Commit,
    /// The commits that were made, oldest first, ending with the tip. Empty when a replay left no
    /// changes; the tip is then the old one.
    pub made: Vec<Oid>,
}

impl Repository {
    /// Merges a proposed commit into a branch's tip as a forge's merge button would in
    /// `merge.mode`: never by fast-forward. A conflict, unrelated histories, and a commit that the
    /// branch already contains are outcomes and no errors. If a replay leaves no changes, the
    /// outcome is `Merged` with the old tip. An error if a commit or object is not in the
    /// repository, or if more than 1,000 commits are to be replayed. New commits stay in memory
    /// until [`Repository::pack_missing_objects`]; equal arguments give equal commits.
    ///
    /// The committer of new commits is `Sluice <sluice@localhost>` and their time the newer
    /// committer time of the two commits, in UTC, so the result depends on the two commits, the
    /// mode and the message alone.
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
    pub fn merge(&self, merge: Merge<'_>) -> Result<GitMergeOutcome, MergeError> {
        let ours = self.commit(merge.ours)?;
        let theirs = self.commit(merge.theirs)?;
        let base = self.merge_base(&ours.commit.id, &theirs.commit.id)?;
        match base {
            None => return Ok(GitMergeOutcome::Unrelated),
            Some(base) if base == theirs.commit.id => {
                return Ok(GitMergeOutcome::Contained(ours.commit));
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

    /// Merges the two commits, by their merge bases, into one new commit with `parents`, the
    /// merge's message, and `committer` as author too. The caller has checked that the histories
    /// are related. The commit stays in memory. Conflicting paths are an outcome and no error.
    fn merge_both(
        &self,
        merge: Merge<'_>,
        committer: Signature,
        parents: &[&Oid],
    ) -> Result<GitMergeOutcome, MergeError> {
        let (ours, theirs) = (self.find_commit(merge.ours)?.id, self.find_commit(merge.theirs)?.id);
        let failed = |source: gix::Error| self.merge_failed(&merge, source);
        let (our_tree, their_tree) = (self.tree_of(merge.ours)?, self.tree_of(merge.theirs)?);
        let bases = self.git.merge_bases_many(ours, &[theirs]).map_err(failed)?;
        let settled = match bases.as_slice() {
            // The library would do the same, but looks up a short name of the base in all packs
            // first, which takes ten times as long.
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
            Settled::Conflict(paths) => return Ok(GitMergeOutcome::Conflict { paths }),
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
        Ok(GitMergeOutcome::Merged(MergedCommit {
            commit: Commit { id: id.clone(), tree: oid(&tree) },
            made: vec![id],
        }))
    }

    /// Applies the changes from `base` to `theirs` to `ours`; all three are trees. Returns the
    /// merged tree, which it writes to memory, or the conflicting paths.
    pub(crate) fn merge_three(
        &self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<Settled, gix::Error> {
        let outcome = self.git.merge_trees(base, ours, theirs, labels(), self.merge_options()?)?;
        self.settle([base, ours, theirs], outcome)
    }

    /// Returns the options with which trees are merged as git does.
    fn merge_options(&self) -> Result<Options, gix::Error> {
        self.git.tree_merge_options()
    }

    /// Decides on the outcome of a merge of the given trees: the merged tree, which it writes to
    /// memory, or the sorted conflicting paths. A file that one side adds to a directory that the
    /// other renames is a conflict too. A file that one side adds to a new directory below such a
    /// one is not; it stays where it was added.
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

    /// Returns the error for a merge that could not be computed. A missing object is an error of
    /// reading, since the packs are then incomplete.
    pub(crate) fn merge_failed(&self, merge: &Merge<'_>, source: gix::Error) -> MergeError {
        if source.is_not_found() {
            // An object behind a commit that is present is missing: the list of packs is not
            // closed.
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

    /// Returns the tree of a commit, given by its id or that of an annotated tag.
    pub(crate) fn tree_of(&self, commit: &Oid) -> Result<ObjectId, GitReadError> {
        let found = self.find_commit(commit)?;
        found
            .tree_id()
            .map(gix::Id::detach)
            .map_err(|source| self.engine("read the commit", commit, source))
    }
}

/// The outcome of a three-way merge of trees.
pub(crate) enum Settled {
    /// The merged tree.
    Tree(ObjectId),
    /// The conflicting paths.
    Conflict(Vec<String>),
}

/// Returns the message without white space at its end and with one final line feed, as git stores
/// it.
fn whole_lines(message: &str) -> String {
    let trimmed = message.trim_end();
    format!("{trimmed}\n")
}

/// Returns the names of both sides in conflict markers.
fn labels() -> Labels<'static> {
    // Only visible in conflicts, which are discarded.
    Labels {
        ancestor: Some("base".into()),
        current: Some("ours".into()),
        other: Some("theirs".into()),
    }
}

/// Returns Sluice as committer at this time.
fn committer(seconds: i64) -> Signature {
    Signature { name: NAME.into(), email: EMAIL.into(), time: gix::date::Time::new(seconds, 0) }
}
