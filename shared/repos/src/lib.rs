//! Repositories as functions use them: fetched from forges, stored as packs in object storage, and
//! merged in memory.
//!
//! Merger, tenant and intake use the trait [`Repos`]. [`GitRepos`] implements it with git; the
//! simulator has a simple model.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod cache;
mod commit_delta;
mod git;
mod project_cache;

pub use commit_delta::load_commit_delta;
pub use git::{GitRepos, Remote};
pub use sluice_git::CommitDelta;

use async_trait::async_trait;
use sluice_config::fragment::config_paths;
use sluice_model::git::{BranchKey, BranchState, MergeMode, Oid};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use std::collections::BTreeMap;

/// A project and the connection to its forge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectAt {
    /// The connection.
    pub connection: ConnectionName,
    /// The project.
    pub project: ProjectName,
}

/// A change to merge into a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchMerge {
    /// The project's connection.
    pub connection: ConnectionName,
    /// The target branch.
    pub branch: BranchKey,
    /// The state to merge into; `None` for the branch tip on the forge.
    pub onto: Option<BranchState>,
    /// The proposed commit.
    pub head: Oid,
    /// How it is merged.
    pub mode: MergeMode,
    /// The message of a merge commit.
    pub message: String,
}

/// The branches of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Branches {
    /// The default branch as reported by the forge; `None` when it reports none.
    pub default: Option<BranchName>,
    /// Every branch with its tip, by name.
    pub tips: Vec<(BranchName, Oid)>,
}

/// The branches and tags of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedRefs {
    /// The commit of each ref by full name; an annotated tag has the commit that it leads to.
    pub commits: BTreeMap<String, Oid>,
    /// Why only branches are listed; `None` when tags are listed too.
    pub tags_left_out: Option<String>,
}

/// The outcome of a merge. A retry would give the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BranchMergeResult {
    /// The change was merged.
    Merged {
        /// The branch before and after the change.
        state: BranchState,
        /// The paths that the change touches, sorted; `None` when there are too many.
        files: Option<Vec<String>>,
        /// Whether the objects of the result are stored, so that the branch can be fast-forwarded
        /// to it ([`sluice_git::keys::commit_delta`]).
        has_delta: bool,
    },
    /// The change cannot be merged.
    Conflict {
        /// The conflicting paths, or another reason.
        detail: String,
    },
}

/// Why a repository could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReposError {
    /// The repository, branch or commit does not exist, or no longer does. The caller reports it.
    #[error("{0}")]
    Gone(String),
    /// It exists and cannot be read: too many refs, too large, or access denied. An immediate retry
    /// does not help.
    #[error("{0}")]
    Unreadable(String),
    /// The forge or the store does not answer. The caller retries without limit.
    #[error("{0}")]
    Unreachable(String),
    /// Any other failure. The caller retries for a while.
    #[error("{0}")]
    Unknown(String),
}

impl From<sluice_runtime::PortError> for ReposError {
    fn from(error: sluice_runtime::PortError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// The files of one commit: path and content.
pub type CommitFiles = Vec<(String, Vec<u8>)>;

/// The repository operations of functions.
#[async_trait]
pub trait Repos: Send + Sync {
    /// Returns all branches of a project on its forge with their tips, by name, and the default
    /// branch, if the forge reports one.
    async fn branches(&self, project: &ProjectAt) -> Result<Branches, ReposError>;
    /// Returns all branches and tags of a project on its forge, or the branches alone if they are
    /// too many together. Takes seconds at most, and fetches no objects.
    async fn refs(&self, project: &ProjectAt) -> Result<ListedRefs, ReposError>;
    /// Returns the commit of a branch or tag by its full name; `None` if there is none. Takes
    /// seconds at most, and fetches no objects.
    async fn ref_tip(&self, project: &ProjectAt, git_ref: &str) -> Result<Option<Oid>, ReposError>;
    /// Returns a branch as it is on the forge: base and result are its tip. [`ReposError::Gone`] if
    /// there is none.
    async fn branch_tip(
        &self,
        project: &ProjectAt,
        branch: &BranchName,
    ) -> Result<BranchState, ReposError>;
    /// Returns the commit of a tag, given by its short name, as the state of its full ref: base and
    /// result are the commit. [`ReposError::Gone`] if there is no such tag, or if it leads to no
    /// commit.
    async fn tag_state(&self, project: &ProjectAt, tag: &str) -> Result<BranchState, ReposError>;
    /// Returns a commit as the state of `branch`, which is not looked up and may be the full ref of
    /// a tag: base and result are the commit. Also returns the sorted paths that differ from
    /// `since`; `None` without `since`, if that is gone or cannot be read, or when too many differ.
    async fn commit_state(
        &self,
        project: &ProjectAt,
        branch: &BranchName,
        commit: &Oid,
        since: Option<&Oid>,
    ) -> Result<(BranchState, Option<Vec<String>>), ReposError>;
    /// Returns the names of the branches on the forge that contain a commit. [`ReposError::Gone`]
    /// without the commit.
    async fn branches_containing(
        &self,
        project: &ProjectAt,
        commit: &Oid,
    ) -> Result<Vec<BranchName>, ReposError>;
    /// Merges a change onto `ask.onto`, or onto the branch's tip on the forge, and returns the new
    /// state. Writes nothing to the forge. A change that cannot be merged is a result and no error;
    /// one that the branch contains already is merged, with the branch unchanged.
    async fn merge(&self, ask: &BranchMerge) -> Result<BranchMergeResult, ReposError>;
    /// Returns the configuration files at a commit, as path and content: `zuul.yaml`, `.zuul.yaml`,
    /// the `.yaml` files below `zuul.d/` and `.zuul.d/`, those that `extra` selects (a directory
    /// with a final `/`, or a file), and ignore files, which are not applied here. `state` names
    /// the packs that contain the commit; `None` when it is on the forge.
    async fn configuration_files(
        &self,
        project: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        extra: &[String],
    ) -> Result<CommitFiles, ReposError>;
    /// Returns those of `paths` that are files at a commit, in the given order. A link on the path
    /// counts as a file. `state` names the packs that contain the commit; `None` when it is on the
    /// forge.
    async fn existing_files(
        &self,
        project: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        paths: &[String],
    ) -> Result<Vec<String>, ReposError>;
}

/// The name of the file that excludes its directory from configuration (Z2.4).
const IGNORE: &str = ".zuul.ignore";

/// Returns whether a path may contain configuration, by its name alone: `zuul.yaml`, `.zuul.yaml`,
/// a `.yaml` file below `zuul.d/` or `.zuul.d/`, or one that `extra` selects (a directory with a
/// final `/`, or a file). Also true for a `.zuul.ignore` that would exclude such files.
pub fn is_configuration(path: &str, extra: &[String]) -> bool {
    let counts = |path: &str| !config_paths([path], extra).is_empty();
    counts(path)
        || path.strip_suffix(IGNORE).is_some_and(|folder| counts(&format!("{folder}any.yaml")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z2.4
    #[test]
    fn a_file_that_excludes_a_directory_is_configuration() {
        let extra = ["more/".to_owned()];
        for path in [
            "zuul.yaml",
            ".zuul.yaml",
            "zuul.d/a.yaml",
            ".zuul.d/x/b.yaml",
            "more/c.yaml",
            "zuul.d/x/.zuul.ignore",
        ] {
            assert!(is_configuration(path, &extra), "{path}");
        }
        for path in ["README", "x/zuul.yaml", "zuul.d/notes.txt", "docs/.zuul.ignore", "more.yaml"]
        {
            assert!(!is_configuration(path, &extra), "{path}");
        }
    }
}
