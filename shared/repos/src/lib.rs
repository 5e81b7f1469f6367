//! Repositories as functions use them: fetched from forges, kept as packs in object storage, merged
//! in memory.
//!
//! [`Repos`] is what merger and tenant ask; [`GitRepos`] is real git, the simulator has a toy of
//! its own.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod cache;
mod git;
mod kept;
mod shelf;

pub use git::{GitRepos, Remote};
pub use kept::kept;
pub use sluice_git::Kept;

use async_trait::async_trait;
use sluice_config::fragment::config_paths;
use sluice_model::git::{BranchKey, BranchState, MergeMode, Oid};
use sluice_model::{BranchName, ConnectionName, ProjectName};

/// A project and the connection it is reached by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectAt {
    /// The connection.
    pub connection: ConnectionName,
    /// The project.
    pub project: ProjectName,
}

/// A change to be put on a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeAsk {
    /// The connection of the project.
    pub connection: ConnectionName,
    /// The branch.
    pub branch: BranchKey,
    /// The state to start from; `None` for the branch's tip as the forge has it.
    pub onto: Option<BranchState>,
    /// The proposed commit.
    pub head: Oid,
    /// How it is put there.
    pub mode: MergeMode,
    /// The message of a merge commit.
    pub message: String,
}

/// The branches of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Branches {
    /// The default branch as the forge says it, whatever its name; `None` where the forge does not
    /// say.
    pub default: Option<BranchName>,
    /// Every branch with the commit it is at, by name.
    pub tips: Vec<(BranchName, Oid)>,
}

/// How a merge ended; final for what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeAnswer {
    /// It merges.
    Merged {
        /// The branch below and with the change.
        state: BranchState,
        /// Paths that the change touches, sorted; `None` when there are too many to tell.
        files: Option<Vec<String>>,
        /// Whether the result is kept, so that the branch can be moved to it from where it was
        /// below the change ([`sluice_git::keys::kept`]).
        kept: bool,
    },
    /// It does not.
    Conflict {
        /// The paths, or why there is no merge at all.
        detail: String,
    },
}

/// Why a repository could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReposError {
    /// The repository, branch or commit is not there (any more): an outcome to tell.
    #[error("{0}")]
    Gone(String),
    /// It is there and cannot be read as it is: too many refs, too large, access refused. Asking
    /// again at once does not help.
    #[error("{0}")]
    Unreadable(String),
    /// Whoever has it does not answer, the forge or the store: to be asked again for as long as it
    /// takes.
    #[error("{0}")]
    Unreachable(String),
    /// Anything else: to be asked again for a while.
    #[error("{0}")]
    Unknown(String),
}

impl From<sluice_runtime::PortError> for ReposError {
    fn from(error: sluice_runtime::PortError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// Files of one commit.
pub type Files = Vec<(String, Vec<u8>)>;

/// What functions ask of repositories.
#[async_trait]
pub trait Repos: Send + Sync {
    /// Returns every branch, and which one is the default.
    async fn branches(&self, project: &ProjectAt) -> Result<Branches, ReposError>;
    /// Returns a branch as the forge has it: base and result are its tip.
    async fn tip(
        &self,
        project: &ProjectAt,
        branch: &BranchName,
    ) -> Result<BranchState, ReposError>;
    /// Returns the commit of a tag, which is given by its short name, as the state of its whole
    /// ref: base and result are the commit.
    async fn tag(&self, project: &ProjectAt, tag: &str) -> Result<BranchState, ReposError>;
    /// Returns a commit as the state of a branch, or of a tag by its whole ref: base and result are
    /// the commit. With it come the paths in which it differs from `since`, sorted; `None` where
    /// there is nothing to compare with, or too many differ.
    async fn at(
        &self,
        project: &ProjectAt,
        branch: &BranchName,
        commit: &Oid,
        since: Option<&Oid>,
    ) -> Result<(BranchState, Option<Vec<String>>), ReposError>;
    /// Returns the branches whose history has a commit, by name, as the forge has them now.
    async fn containing(
        &self,
        project: &ProjectAt,
        commit: &Oid,
    ) -> Result<Vec<BranchName>, ReposError>;
    /// Puts a change on a branch.
    async fn merge(&self, ask: &MergeAsk) -> Result<MergeAnswer, ReposError>;
    /// Returns the configuration files at a commit: `zuul.yaml`, `.zuul.yaml`, those below
    /// `zuul.d/` and `.zuul.d/`, and below `extra`.
    ///
    /// `state` names the packs that hold the commit; `None` when the forge has it.
    async fn configuration(
        &self,
        project: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        extra: &[String],
    ) -> Result<Files, ReposError>;
    /// Returns those of some paths that are files at a commit, in the order given; a link counts as
    /// a file.
    ///
    /// `state` as above.
    async fn present(
        &self,
        project: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        paths: &[String],
    ) -> Result<Vec<String>, ReposError>;
}

/// The name of a file that keeps its directory from being read as configuration (Z2.4).
const IGNORE: &str = ".zuul.ignore";

/// Returns whether a path may hold configuration, or says by its name which paths do: whoever adds
/// or removes it changes what is read.
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
    fn a_file_that_hides_a_directory_of_configuration_is_configuration_too() {
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
