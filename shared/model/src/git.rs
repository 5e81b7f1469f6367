//! Git's ids and the state of branches that a build is made of.

use crate::text::text;
use crate::{BranchName, ProjectName};
use serde::{Deserialize, Serialize};
use std::fmt;

text!(
    /// A git object id in hexadecimal.
    Oid
);

impl Oid {
    /// Returns the id of zeros, by which git says that there is no commit.
    pub fn zero() -> Self {
        Self("0".repeat(40))
    }

    /// Returns whether it says that there is no commit.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'0')
    }

    /// Returns its first eight digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

/// A branch of a project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BranchKey {
    /// The project.
    pub project: ProjectName,
    /// The branch.
    pub branch: BranchName,
}

impl fmt::Display for BranchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.project.name(), self.branch)
    }
}

/// A commit with its tree: what a branch is, was or would be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Commit {
    /// The commit.
    pub id: Oid,
    /// Its tree. Two commits with one tree hold the same files; this is what "tested = landed"
    /// compares.
    pub tree: Oid,
}

/// How a change is put into its branch (Zuul's `merge-mode`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum MergeMode {
    /// A merge commit with two parents.
    #[default]
    Merge,
    /// As `merge`; the name that an older strategy of git had.
    MergeResolve,
    /// Each commit again on the tip.
    CherryPick,
    /// One commit with all that the change does.
    SquashMerge,
    /// The commits again on the tip, with new ids.
    Rebase,
    /// As `rebase`, along first parents.
    RebaseFirstParent,
}

/// How a change that passed gets into its branch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum LandingWay {
    /// Its forge is asked to merge it, and makes a commit of its own.
    #[default]
    Merge,
    /// The branch is moved to the very commit that was tested, where its repository lets us.
    FastForward,
}

impl LandingWay {
    /// Returns whether the forge is asked to merge.
    pub fn is_merge(&self) -> bool {
        *self == Self::Merge
    }
}

impl MergeMode {
    /// Returns whether the change's own commit stays part of the branch, so that a forge that finds
    /// it there takes the change for merged.
    pub fn keeps_head(self) -> bool {
        matches!(self, Self::Merge | Self::MergeResolve)
    }
}

/// What one branch is before and after the changes under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchState {
    /// Which branch.
    pub branch: BranchKey,
    /// The tip the changes were put on.
    pub base: Commit,
    /// The result: what is tested. Equal to `base` where nothing was put on it.
    pub result: Commit,
    /// Object keys of the packs that together hold everything reachable from `result`, and from the
    /// commits that were proposed.
    pub packs: Vec<String>,
}

impl BranchState {
    /// Returns a branch on which nothing was put: what is tested of it is `tip`, which these packs
    /// hold.
    pub fn untouched(branch: BranchKey, tip: Commit, packs: Vec<String>) -> Self {
        Self { branch, base: tip.clone(), result: tip, packs }
    }
}
