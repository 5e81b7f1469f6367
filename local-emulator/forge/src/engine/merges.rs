//! Merges: the commit is made first, its intent recorded, then the branch is moved from exactly
//! where it was.

use super::{Engine, Held, find_pull};
use crate::error::ApiError;
use crate::faults::ForgeFault;
use crate::git::{Edit, Git, Person};
use crate::model::{Landing, Pull};

/// How a pull request is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Merge,
    Squash,
    Rebase,
}

const NOT_MERGEABLE: &str = "Pull Request is not mergeable";
const BASE_MODIFIED: &str = "Base branch was modified. Review and try the merge again.";

impl Engine {
    /// Merges a pull request and returns the commit at which its base branch is afterwards; records
    /// the events that follow. The permission of `by` is not checked. Refused (405) if the pull
    /// request is not open or a draft, conflicts, has no base branch, or a fault says so; (409) if
    /// its head is not `expected`, without which any head is merged. Also refused (405) if the
    /// branch moved unseen, which is then recorded. Without `message` one is composed from the
    /// title; rebased commits keep their messages in any case.
    pub async fn merge(
        &self,
        full_name: &str,
        number: u64,
        expected: Option<&str>,
        method: Method,
        message: Option<String>,
        by: &str,
    ) -> Result<String, ApiError> {
        let held = self.lock_repository(full_name).await;
        let pull = self.pull(full_name, number)?;
        if !pull.is_open() || pull.draft {
            return Err(ApiError::refused(405, NOT_MERGEABLE));
        }
        if expected.is_some_and(|sha| sha != pull.head_sha) {
            return Err(ApiError::refused(
                409,
                "Head branch was modified. Review and try the merge again.",
            ));
        }
        self.apply_faults(&held, &pull).await?;
        let base = format!("refs/heads/{}", pull.base);
        // No other task moves refs while the repository is locked, and every move was observed.
        let tip = self
            .repository(full_name)?
            .refs
            .remove(&base)
            .ok_or_else(|| ApiError::refused(405, NOT_MERGEABLE))?;
        let message = message.unwrap_or_else(|| match method {
            Method::Squash => format!("{} (#{number})\n\n{}", pull.title, pull.body),
            _ => format!("Merge pull request #{number} from {}\n\n{}", pull.head, pull.title),
        });
        let made =
            make(&held.git, method, &tip, &pull.head_sha, &message, by, &pull.author).await?;
        let commit = made.ok_or_else(|| ApiError::refused(405, NOT_MERGEABLE))?;
        self.store.within(|access| {
            let mut pull = find_pull(access, full_name, number)?;
            pull.landing = Some(Landing {
                commit: commit.clone(),
                base_before: tip.clone(),
                by: by.to_owned(),
            });
            Ok::<_, ApiError>(access.put(full_name, &pull)?)
        })?;
        if let Err(error) = held.git.update_ref(&base, &commit, Some(&tip)).await {
            // A move that was made and could not be recorded: it is seen now, and the next try
            // starts from it.
            tracing::warn!(repository = full_name, number, %error, "a branch was not where it was last seen");
            self.observe(&held, by).await?;
            return Err(ApiError::refused(405, BASE_MODIFIED));
        }
        self.observe(&held, by).await?;
        Ok(commit)
    }

    /// Applies the faults that are switched on for a merge, which count as having happened: an
    /// error with status 405 if the merge is to be refused or its mergeability is to be unknown, or
    /// an untested commit on the base branch before it. Nothing happens without such a fault.
    async fn apply_faults(&self, held: &Held, pull: &Pull) -> Result<(), ApiError> {
        let wanted = |fault: &ForgeFault| {
            matches!(
                fault,
                ForgeFault::RefuseMerge
                    | ForgeFault::MergeabilityUnknown
                    | ForgeFault::MergeSomethingElse
            )
        };
        let path = format!("/pulls/{}/merge", pull.number);
        for fault in self.faults.take(&held.full_name, "PUT", &path, wanted) {
            if fault == ForgeFault::RefuseMerge {
                return Err(ApiError::refused(
                    405,
                    "At least 1 approving review is required by reviewers with write access.",
                ));
            }
            if fault == ForgeFault::MergeabilityUnknown {
                return Err(ApiError::refused(405, NOT_MERGEABLE));
            }
            self.stow_away(held, &pull.base, &format!("stowaway-{}.txt", pull.number)).await?;
        }
        Ok(())
    }

    /// Commits a file to the branch that the fault [`ForgeFault::PushBefore`] names, before the
    /// client's push, and records the events that follow. A push to that branch is then rejected.
    /// Nothing happens if that fault is not switched on.
    pub async fn overtake(&self, held: &Held) -> Result<(), ApiError> {
        let wanted = |fault: &ForgeFault| matches!(fault, ForgeFault::PushBefore { .. });
        for fault in self.faults.take(&held.full_name, "POST", "/git-receive-pack", wanted) {
            if let ForgeFault::PushBefore { branch } = fault {
                self.stow_away(held, &branch, "stowaway.txt").await?;
            }
        }
        Ok(())
    }

    /// Commits a file directly to a branch, as the account `stowaway` and without a pull request,
    /// and records the events that follow. A missing branch is created with this file alone.
    async fn stow_away(&self, held: &Held, branch: &str, path: &str) -> Result<(), ApiError> {
        let tip = held.git.resolve(&format!("refs/heads/{branch}")).await?;
        let edit = [Edit::write(path, "this was not tested\n")];
        held.git
            .write(branch, tip.as_deref(), &edit, "Land unseen", &Person::of("stowaway"))
            .await?;
        self.observe(held, "stowaway").await
    }

    /// Creates the ref with the full name `name` at the commit that `to` names, or moves it there,
    /// as `how` says, and records the events that follow. An error (422) if `to` names no commit,
    /// if the ref exists with `Create` or does not with `Forward` or `Force`, or if the move is not
    /// a fast-forward with `Forward`. A ref that is an annotated tag cannot be moved. Marks of
    /// protection are ignored.
    pub async fn set_ref(
        &self,
        full_name: &str,
        name: &str,
        to: &str,
        how: SetRef,
        by: &str,
    ) -> Result<(), ApiError> {
        let held = self.lock_repository(full_name).await;
        self.repository(full_name)?;
        let there = held.git.resolve(name).await?;
        let Some(to) = held.git.resolve(to).await? else {
            return Err(ApiError::invalid("Object does not exist"));
        };
        match (how, &there) {
            (SetRef::Create, Some(_)) => return Err(ApiError::invalid("Reference already exists")),
            (SetRef::Forward | SetRef::Force, None) => {
                return Err(ApiError::invalid("Reference does not exist"));
            }
            (SetRef::Forward, Some(there)) if !held.git.is_ancestor(there, &to).await? => {
                return Err(ApiError::invalid("Update is not a fast forward"));
            }
            _ => {}
        }
        let old = there.unwrap_or_else(|| crate::git::ZEROS.to_owned());
        held.git.update_ref(name, &to, Some(&old)).await?;
        self.observe(&held, by).await
    }

    /// Deletes a ref by its full name and records the events that follow: open pull requests from a
    /// deleted branch are closed. An error (422) if it does not exist. Marks of protection are
    /// ignored.
    pub async fn delete_ref(&self, full_name: &str, name: &str, by: &str) -> Result<(), ApiError> {
        let held = self.lock_repository(full_name).await;
        if held.git.resolve(name).await?.is_none() {
            return Err(ApiError::invalid("Reference does not exist"));
        }
        held.git.delete_ref(name).await?;
        self.observe(&held, by).await
    }
}

/// What may happen to a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetRef {
    /// It must not be there.
    Create,
    /// It must be there and lead to the new commit.
    Forward,
    /// It must be there.
    Force,
}

/// Creates the commit of a merge of `head` into `tip` by a method and returns it; moves no ref.
/// `None` if `head` conflicts with `tip`. A rebase gives its last commit (`tip` if there is nothing
/// to copy), and ignores `message` and `author`. `by` is the committer, `author` the author of a
/// squash.
async fn make(
    git: &Git,
    method: Method,
    tip: &str,
    head: &str,
    message: &str,
    by: &str,
    author: &str,
) -> Result<Option<String>, ApiError> {
    let committer = Person::of(by);
    match method {
        Method::Merge => {
            let Some(tree) = git.merge_tree(tip, head).await? else { return Ok(None) };
            Ok(Some(git.commit_tree(&tree, &[tip, head], message, &committer, &committer).await?))
        }
        Method::Squash => {
            let Some(tree) = git.merge_tree(tip, head).await? else { return Ok(None) };
            Ok(Some(
                git.commit_tree(&tree, &[tip], message, &Person::of(author), &committer).await?,
            ))
        }
        Method::Rebase => rebase(git, tip, head, &committer).await,
    }
}

/// Creates copies of the commits of `head` that `tip` lacks, one on top of the other from `tip`,
/// and returns the last one; moves no ref. Merge commits and commits without a parent are left out;
/// of more than 250 commits only the newest 250 are copied. Returns `tip` if nothing is left,
/// `None` if a commit conflicts.
async fn rebase(
    git: &Git,
    tip: &str,
    head: &str,
    committer: &Person,
) -> Result<Option<String>, ApiError> {
    let mut onto = tip.to_owned();
    for commit in git.commits_between(tip, head).await? {
        // Merges are left out, as GitHub does; what they brought comes with their other commits.
        let [parent] = commit.parents.as_slice() else { continue };
        let Some(place) = git.commit(&onto).await? else { return Err(ApiError::not_found()) };
        // A commit with the tree of `onto` and the parent of `commit` makes that parent the base of
        // the merge: a cherry-pick by three-way merge.
        let stand_in =
            git.commit_tree(&place.tree, &[parent], "stand-in", committer, committer).await?;
        let Some(tree) = git.merge_tree(&stand_in, &commit.sha).await? else { return Ok(None) };
        onto = git.commit_tree(&tree, &[&onto], &commit.message, &commit.author, committer).await?;
    }
    Ok(Some(onto))
}
