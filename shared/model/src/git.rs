//! Git object ids, and the branch states that a build is made of.

use crate::text::text;
use crate::{BranchName, ProjectName};
use serde::{Deserialize, Serialize};
use std::fmt;

text!(
    /// A git object id in hexadecimal.
    Oid
);

impl Oid {
    /// Returns the id of 40 zeros, which git uses for "no commit".
    pub fn zero() -> Self {
        Self("0".repeat(40))
    }

    /// Returns whether the id has only zeros ("no commit"), in any length; an empty id counts as
    /// well.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'0')
    }

    /// Returns the first eight digits, for display; all of a shorter id.
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

/// A commit and its tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Commit {
    /// The commit.
    pub id: Oid,
    /// Its tree. Two commits with the same tree hold the same files; the check "tested = merged"
    /// compares trees.
    pub tree: Oid,
}

/// How the forge or the merger merges a change into its branch (Zuul's `merge-mode`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum MergeMode {
    /// A merge commit with two parents.
    #[default]
    Merge,
    /// The same as `merge`; the name of an older strategy of git.
    MergeResolve,
    /// Each commit cherry-picked onto the tip.
    CherryPick,
    /// One commit with all changes squashed.
    SquashMerge,
    /// The commits rebased onto the tip, with new ids.
    Rebase,
    /// Like `rebase`, along first parents only.
    RebaseFirstParent,
}

/// How Sluice gets a change that passed into its branch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum LandingMethod {
    /// Sluice requests the merge from the forge, which creates a commit of its own.
    #[default]
    Merge,
    /// Sluice moves the branch to the tested commit itself, if the repository permits it.
    FastForward,
}

impl LandingMethod {
    /// Returns whether the forge does the merge.
    pub fn is_merge(&self) -> bool {
        *self == Self::Merge
    }
}

impl MergeMode {
    /// Returns whether the merge keeps the change's own commit in the branch's history. A forge
    /// that finds that commit there regards the change as merged.
    pub fn keeps_head(self) -> bool {
        matches!(self, Self::Merge | Self::MergeResolve)
    }
}

/// The state of one branch before and after the changes under test are applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchState {
    /// Which branch.
    pub branch: BranchKey,
    /// The tip onto which the changes were applied.
    pub base: Commit,
    /// The tested result; equal to `base` if no change was applied.
    pub result: Commit,
    /// Object keys of the packs that hold everything reachable from `result` and from the proposed
    /// commits.
    pub packs: Vec<String>,
}

impl BranchState {
    /// Returns the state of a branch without applied changes: base and result are both `tip`.
    pub fn untouched(branch: BranchKey, tip: Commit, packs: Vec<String>) -> Self {
        Self { branch, base: tip.clone(), result: tip, packs }
    }
}
