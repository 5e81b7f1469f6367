//! A change as its forge showed it: a fact with one writer (intake), read by everybody.

use crate::{BranchName, ConnectionName, ProjectName, Timestamp, git::Oid};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which change: its connection, project and number there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeKey {
    /// The connection to the forge.
    pub connection: ConnectionName,
    /// The project's canonical name.
    pub project: ProjectName,
    /// The number of the change or pull request.
    pub number: u64,
}

impl fmt::Display for ChangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.project.name(), self.number)
    }
}

/// One revision of a change: what is tested and what may be merged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChangeRef {
    /// The change.
    pub key: ChangeKey,
    /// The branch it is to be merged into.
    pub branch: BranchName,
    /// The commit that was proposed (GitHub: the head of the pull request).
    pub head: Oid,
    /// The patchset as users see it: Gerrit's number, GitHub's head commit.
    pub patchset: String,
}

impl ChangeRef {
    /// Returns Zuul's `number,patchset`.
    pub fn id(&self) -> String {
        format!("{},{}", self.key.number, self.patchset)
    }

    /// Returns the ref under which the forge offers the proposed commit.
    pub fn git_ref(&self) -> String {
        format!("refs/pull/{}/head", self.key.number)
    }
}

impl fmt::Display for ChangeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.key, self.head.short())
    }
}

/// Whether a change can still be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeStatus {
    /// Proposed and neither merged nor given up.
    Open,
    /// In its branch.
    Merged,
    /// Given up without being merged.
    Closed,
}

/// What a reviewer said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReviewState {
    /// The reviewer approves.
    Approved,
    /// The reviewer asks for changes.
    ChangesRequested,
    /// The reviewer commented without a verdict.
    Commented,
    /// The review was dismissed.
    Dismissed,
}

/// How much a reviewer may do in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// No more than anybody.
    None,
    /// May read.
    Read,
    /// May push.
    Write,
    /// May administer.
    Admin,
}

/// The latest verdict of one reviewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// The reviewer's login.
    pub by: String,
    /// What was said.
    pub state: ReviewState,
    /// The reviewer's permission in the repository.
    pub permission: Permission,
    /// When it was submitted.
    pub submitted_at: Timestamp,
}

/// A commit status or check run on the head of the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStatus {
    /// The login or application that set it.
    pub by: String,
    /// The status's context (`tenant/check`).
    pub context: String,
    /// `success`, `failure`, `error` or `pending`.
    pub state: String,
}

/// Everything a decision may ask about a change, as the forge showed it at `seen_at`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeFacts {
    /// The revision these facts are about.
    pub change: ChangeRef,
    /// Open, merged or closed.
    pub status: ChangeStatus,
    /// Whether its author marked it as not ready.
    pub draft: bool,
    /// The title, one line.
    pub title: String,
    /// The description or commit message.
    pub message: String,
    /// The author's login.
    pub author: String,
    /// Where people look at it.
    pub url: String,
    /// Labels or hashtags, sorted.
    pub labels: Vec<String>,
    /// The latest review of each reviewer, sorted by login.
    pub reviews: Vec<Review>,
    /// The newest status per context, sorted by context.
    pub statuses: Vec<CommitStatus>,
    /// Paths the change touches, sorted; `None` when the forge could not tell them all.
    pub files: Option<Vec<String>>,
    /// URLs after `Depends-On:` in the message, in order (Z6.5).
    pub depends_on: Vec<String>,
    /// Whether the forge says it can be merged; `None` while it has not decided.
    pub mergeable: Option<bool>,
    /// The commit that put it into its branch, once merged.
    pub merge_commit: Option<Oid>,
    /// When it changed last, by the forge's clock: its description, head, labels, comments, reviews; not its statuses.
    #[serde(default)]
    pub updated_at: Timestamp,
    /// When the forge was asked.
    pub seen_at: Timestamp,
}

/// An open change as a forge lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenChange {
    /// The change.
    pub change: ChangeRef,
    /// See [`ChangeFacts::updated_at`].
    pub updated_at: Timestamp,
}
