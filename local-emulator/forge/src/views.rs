//! What the Rust interface shows of the forge's documents.

use crate::model::{CheckRun, Comment, Delivery, Life, Outcome, Pull, Status};

/// The vote of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVote {
    /// The change is good.
    Approve,
    /// The change is to be changed.
    RequestChanges,
    /// Neither.
    Comment,
}

impl ReviewVote {
    /// Returns the value of `event` with which GitHub's API submits such a review, for example
    /// `APPROVE`.
    pub(crate) fn event(self) -> &'static str {
        match self {
            Self::Approve => "APPROVE",
            Self::RequestChanges => "REQUEST_CHANGES",
            Self::Comment => "COMMENT",
        }
    }
}

/// Where a pull request is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullState {
    /// Neither merged nor given up.
    Open,
    /// Given up.
    Closed,
    /// In its branch.
    Merged {
        /// The commit its branch was at by that.
        commit: String,
        /// The login that merged it.
        by: String,
    },
}

/// A pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullView {
    /// Its number in its repository.
    pub number: u64,
    /// The title.
    pub title: String,
    /// The description.
    pub body: String,
    /// The branch it is for.
    pub base: String,
    /// The branch with its commits.
    pub branch: String,
    /// The proposed commit.
    pub head: String,
    /// The labels, in the order they were put on.
    pub labels: Vec<String>,
    /// Where it is in its life.
    pub state: PullState,
}

impl From<Pull> for PullView {
    /// Returns what is shown of a pull request; a draft counts as open.
    fn from(pull: Pull) -> Self {
        let state = match pull.life {
            Life::Open => PullState::Open,
            Life::Closed { .. } => PullState::Closed,
            Life::Merged { by, commit, .. } => PullState::Merged { commit, by },
        };
        let Pull { number, title, body, base, head: branch, head_sha: head, labels, .. } = pull;
        Self { number, title, body, base, branch, head, labels, state }
    }
}

/// A status of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusView {
    /// What it is about.
    pub context: String,
    /// `error`, `failure`, `pending` or `success`.
    pub state: String,
    /// One line.
    pub description: Option<String>,
    /// Where people read more.
    pub url: Option<String>,
    /// The login that set it.
    pub by: String,
}

impl From<Status> for StatusView {
    fn from(status: Status) -> Self {
        let Status { context, state, description, target_url: url, creator: by, .. } = status;
        Self { context, state, description, url, by }
    }
}

/// A check run of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRunView {
    /// Its name.
    pub name: String,
    /// `queued`, `in_progress` or `completed`.
    pub status: String,
    /// How it ended.
    pub conclusion: Option<String>,
    /// What its maker knows it by.
    pub external_id: Option<String>,
    /// One line.
    pub title: Option<String>,
    /// Markdown.
    pub summary: Option<String>,
}

impl From<CheckRun> for CheckRunView {
    fn from(run: CheckRun) -> Self {
        let CheckRun { name, status, conclusion, external_id, title, summary, .. } = run;
        Self { name, status, conclusion, external_id, title, summary }
    }
}

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentView {
    /// Its number.
    pub id: u64,
    /// The login that wrote it.
    pub author: String,
    /// Markdown.
    pub body: String,
}

impl From<Comment> for CommentView {
    fn from(comment: Comment) -> Self {
        Self { id: comment.id, author: comment.author, body: comment.body }
    }
}

/// A webhook delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryView {
    /// Its number here; a redelivery has its own.
    pub number: u64,
    /// The hook it was for.
    pub hook: u64,
    /// `X-GitHub-Delivery`, which a redelivery shares.
    pub guid: String,
    /// The event's name.
    pub event: String,
    /// The action, where the event has one.
    pub action: Option<String>,
    /// Whether it was sent on request.
    pub is_redelivery: bool,
    /// The status it was answered with; `None` when it was not, or not yet.
    pub answered: Option<u16>,
}

impl From<Delivery> for DeliveryView {
    /// Returns what is shown of a delivery. A failed attempt has no status, like one that waits.
    fn from(delivery: Delivery) -> Self {
        let answered = match delivery.outcome {
            Outcome::Answered { status, .. } => Some(status),
            Outcome::Waiting | Outcome::Sending | Outcome::Failed { .. } => None,
        };
        let Delivery { id: number, hook, guid, event, action, is_redelivery, .. } = delivery;
        Self { number, hook, guid, event, action, is_redelivery, answered }
    }
}
