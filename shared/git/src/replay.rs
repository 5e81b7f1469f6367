//! Replays the commits of a change onto a branch tip one by one: cherry-pick and the two rebase
//! modes.

use crate::error::MergeError;
use crate::merge::{GitMergeOutcome, Merge, MergedCommit, Settled};
use crate::read::oid;
use crate::repository::Repository;
use gix::ObjectId;
use gix::actor::Signature;
use gix::traverse::commit::topo;
use sluice_model::git::{Commit, MergeMode};
use std::collections::HashSet;

/// The most commits of a change; replaying each one takes a merge.
const COMMITS_MAX: usize = 1000;

impl Repository {
    /// Replays each commit of `merge.theirs` that `merge.ours` lacks on top of `ours`, oldest
    /// first, and stops at the first conflict, which is an outcome. Leaves out merge commits,
    /// unless only first parents are followed, and commits that become empty; commits that were
    /// empty before stay. If none is left, the outcome is `ours` without new commits. The caller
    /// has checked that the histories are related and that `ours` does not contain `theirs`. New
    /// commits stay in memory.
    pub(crate) fn replay(
        &self,
        merge: Merge<'_>,
        committer: Signature,
    ) -> Result<GitMergeOutcome, MergeError> {
        let failed = |source: gix::Error| self.merge_failed(&merge, source);
        let ours = self.commit(merge.ours)?.commit;
        let mut tip = self.id(&ours.id)?;
        let mut tree = self.id(&ours.tree)?;
        let mut made = Vec::new();
        for id in self.lacking(&merge)? {
            let commit = self.git.find_commit(id).map_err(failed)?;
            let parents: Vec<ObjectId> = commit.parent_ids().map(gix::Id::detach).collect();
            if parents.len() > 1 && merge.mode != MergeMode::RebaseFirstParent {
                continue;
            }
            let before = match parents.first() {
                Some(parent) => self.tree_of(&oid(parent))?,
                None => ObjectId::empty_tree(gix::hash::Kind::Sha1),
            };
            let after = self.tree_of(&oid(&id))?;
            let merged = match self.merge_three(before, tree, after).map_err(failed)? {
                Settled::Tree(merged) => merged,
                Settled::Conflict(paths) => return Ok(GitMergeOutcome::Conflict { paths }),
            };
            // A commit that became empty is dropped; one that was empty from the start stays.
            if merged == tree && before != after {
                continue;
            }
            let decoded = commit.decode().map_err(failed)?;
            let again = gix::objs::Commit {
                tree: merged,
                parents: [tip].into_iter().collect(),
                author: decoded.author().map_err(failed)?.to_owned().map_err(failed)?,
                committer: committer.clone(),
                encoding: decoded.encoding.map(ToOwned::to_owned),
                message: decoded.message.to_owned(),
                extra_headers: Vec::new(),
            };
            tip = self.git.write_object(&again).map_err(failed)?.detach();
            tree = merged;
            made.push(oid(&tip));
        }
        Ok(GitMergeOutcome::Merged(MergedCommit {
            commit: Commit { id: oid(&tip), tree: oid(&tree) },
            made,
        }))
    }

    /// Lists the commits that `theirs` reaches and `ours` does not, parents before children; with
    /// [`MergeMode::RebaseFirstParent`] only those on the first-parent line of `theirs`. An error
    /// if there are more than `COMMITS_MAX`, on all lines together.
    fn lacking(&self, merge: &Merge<'_>) -> Result<Vec<ObjectId>, MergeError> {
        let failed = |source: gix::Error| self.merge_failed(merge, source);
        let (ours, theirs) = (self.find_commit(merge.ours)?.id, self.find_commit(merge.theirs)?.id);
        let walk = topo::Builder::from_iters(&self.git.objects, [theirs], Some([ours]))
            .sorting(topo::Sorting::TopoOrder)
            .build()
            .map_err(failed)?;
        let mut commits = Vec::new();
        for info in walk {
            if commits.len() == COMMITS_MAX {
                return Err(MergeError::TooManyCommits {
                    project: self.project.clone(),
                    ours: merge.ours.clone(),
                    theirs: merge.theirs.clone(),
                    limit: COMMITS_MAX,
                });
            }
            commits.push(info.map_err(failed)?.id);
        }
        if merge.mode == MergeMode::RebaseFirstParent {
            commits = self.first_parents(theirs, &commits).map_err(failed)?;
        }
        commits.reverse();
        Ok(commits)
    }

    /// Returns those of `commits` on the first-parent line from `tip`, newest first, up to the
    /// first commit that is not among them.
    fn first_parents(
        &self,
        tip: ObjectId,
        commits: &[ObjectId],
    ) -> Result<Vec<ObjectId>, gix::Error> {
        let lacking: HashSet<ObjectId> = commits.iter().copied().collect();
        let mut line = Vec::new();
        let mut next = Some(tip);
        // Terminates: a history has no cycles, and only listed commits are followed.
        while let Some(id) = next.filter(|id| lacking.contains(id)) {
            line.push(id);
            next = self.git.find_commit(id)?.parent_ids().next().map(gix::Id::detach);
        }
        Ok(line)
    }
}
