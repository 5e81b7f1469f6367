//! The operations that Sluice needs of a forge: the trait that drivers and the simulator implement,
//! and its plain data.

use crate::error::ForgeError;
use crate::marker::Marker;
use async_trait::async_trait;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, OpenChange, RepositoryPermission};
use sluice_model::git::{BranchKey, Commit, MergeMode, Oid};
use sluice_model::{BranchName, ProjectName, Timestamp};
use std::collections::BTreeMap;

/// A forge, as a connection reaches it.
///
/// Every operation is safe to retry after [`ForgeError::Unknown`]: reads change nothing, reports
/// find what an earlier attempt wrote by its marker, and landings name the expected commit. It
/// makes no decisions.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Returns the change whose page is at `url`, if it is on this forge. Makes no requests. (Z6.5)
    fn change_at(&self, url: &str) -> Option<ChangeKey>;

    /// Reads the current state of a change, with reviews, statuses, files and dependencies. Too
    /// many reviews or statuses are marked as incomplete ([`ChangeFacts::truncated`]), and too many
    /// files are `None`; neither is an error. A missing change is [`ForgeError::NotFound`].
    async fn read_change(&self, change: &ChangeKey) -> Result<ChangeFacts, ForgeError>;

    /// Returns the open changes of a project, by number. Of more changes than the driver reads, the
    /// newest are left out, which is no error: a change that is missing from the list may still be
    /// open.
    async fn open_changes(&self, project: &ProjectName) -> Result<Vec<OpenChange>, ForgeError>;

    /// Returns the open changes of a project with this head commit, by number: an event about a
    /// commit concerns them. Empty if there are none.
    async fn changes_with_head(
        &self,
        project: &ProjectName,
        head: &Oid,
    ) -> Result<Vec<ChangeRef>, ForgeError>;

    /// Returns the open changes of a topic, by project and number, at most 100. A driver without
    /// topics returns none, which is no error; this default of the trait is for those.
    async fn open_changes_of_topic(&self, _topic: &str) -> Result<Vec<ChangeKey>, ForgeError> {
        Ok(Vec::new())
    }

    /// Returns all branches of a project, by name. An error if there are more than the driver
    /// reads.
    async fn branches(&self, project: &ProjectName) -> Result<Vec<Branch>, ForgeError>;

    /// Returns whether a branch is locked; `None` where the forge does not say, or not to this
    /// token.
    async fn is_locked(&self, branch: &BranchKey) -> Result<Option<bool>, ForgeError>;

    /// Returns the commit at the tip of a branch, with its tree. Landings are compared with it. A
    /// missing branch is [`ForgeError::NotFound`].
    async fn branch_tip(&self, branch: &BranchKey) -> Result<Commit, ForgeError>;

    /// Returns the commit of a ref (`refs/heads/main`, `refs/tags/1.0`), also of an annotated tag;
    /// `None` where the ref does not exist. A tag of something else, such as a file, is
    /// [`ForgeError::NotFound`].
    async fn ref_tip(
        &self,
        project: &ProjectName,
        git_ref: &str,
    ) -> Result<Option<Commit>, ForgeError>;

    /// Returns the URL of a commit's page, or of the project's without a commit. Makes no requests,
    /// so the page need not exist.
    fn page_of(&self, project: &ProjectName, commit: Option<&Oid>) -> String;

    /// Returns the tree, the parents and the message of a commit. A missing commit is
    /// [`ForgeError::NotFound`].
    async fn read_commit(
        &self,
        project: &ProjectName,
        id: &Oid,
    ) -> Result<CommitDetails, ForgeError>;

    /// Sets a status on a commit, once for each report. A retry leaves the status of the same
    /// report alone, because the forge sends an event for each one that is set. An equal status
    /// that was set before `status.wanted_at` belongs to an earlier report and is set again.
    async fn set_status(
        &self,
        project: &ProjectName,
        head: &Oid,
        status: &StatusReport,
    ) -> Result<(), ForgeError>;

    /// Creates the check run with `run.marker` and `run.name` on `head`, or updates it. A forge may
    /// refuse the token ([`ForgeError::Refused`]).
    async fn put_check_run(
        &self,
        project: &ProjectName,
        head: &Oid,
        run: &CheckReport,
    ) -> Result<(), ForgeError>;

    /// Creates Sluice's comment with `marker` on a change, or replaces its text.
    async fn put_comment(
        &self,
        change: &ChangeKey,
        marker: &Marker,
        text: &str,
    ) -> Result<(), ForgeError>;

    /// Adds and removes labels of a change. A label that the change already has, or does not have,
    /// is no error.
    async fn change_labels(
        &self,
        change: &ChangeKey,
        add: &[String],
        remove: &[String],
    ) -> Result<(), ForgeError>;

    /// Comments on lines of a change in one review with `marker` and `text`. An existing review
    /// with the marker is left alone, whatever it says. A forge may refuse lines outside the
    /// change's diff ([`ForgeError::Refused`]); the caller then puts them into a comment.
    async fn put_line_comments(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        text: &str,
        comments: &[LineComment],
    ) -> Result<(), ForgeError>;

    /// Returns the time on the forge's own clock from its last answer. `None` where no answer is
    /// recent or has a time, and in a driver that does not say.
    fn time(&self) -> Option<Timestamp> {
        None
    }

    /// Returns the account of the connection's token; `None` where the forge does not say, as for
    /// an application's token, and in a driver that does not know.
    async fn own_account(&self) -> Result<Option<String>, ForgeError> {
        Ok(None)
    }

    /// Returns a user's permission in a project's repository; [`RepositoryPermission::None`] for an
    /// unknown user, which is no error.
    async fn permission_of(
        &self,
        project: &ProjectName,
        login: &str,
    ) -> Result<RepositoryPermission, ForgeError>;

    /// Reviews a change's head with `marker` and `text`. An existing review with the marker is left
    /// alone, whatever it says.
    async fn put_review(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        decision: ReviewDecision,
        text: &str,
    ) -> Result<(), ForgeError>;

    /// Votes on a patchset with a message, in one review with `marker`. An existing review is left
    /// alone. A forge without votes refuses, as this default of the trait always does.
    async fn put_votes(
        &self,
        change: &ChangeRef,
        _: &Marker,
        _: &VoteReport,
    ) -> Result<(), ForgeError> {
        let message = "this driver has no votes".to_owned();
        Err(ForgeError::Refused { attempted: format!("vote on {change}"), status: 501, message })
    }

    /// Merges a change whose head is still `change.head`, and returns the merge commit. A change
    /// that is already merged at this head is a success. Returns [`ForgeError::HeadMoved`] when the
    /// head is another, and [`ForgeError::Conflict`] when it does not merge;
    /// [`ForgeError::Refused`] when the forge does not allow it, as by branch protection. Forges do
    /// not guard the base: the caller reads the branch's tip before and after (Z6.4).
    async fn merge(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<Oid, ForgeError>;

    /// Moves a branch from one commit to another by an atomic push; `pack` has the objects that the
    /// forge lacks. The caller has checked that `to` follows `from`: a forge may not. A branch that
    /// is at `to` already is a success. [`ForgeError::HeadMoved`] means that the branch is not at
    /// `from`; [`ForgeError::Refused`] that the forge does not accept the push.
    async fn fast_forward(
        &self,
        branch: &BranchKey,
        from: &Oid,
        to: &Oid,
        pack: &[u8],
    ) -> Result<(), ForgeError>;

    /// Returns whether a branch contains a commit, so that a move to it, or beyond it, has
    /// happened; `false` also if the branch or the commit does not exist.
    async fn contains(&self, branch: &BranchKey, commit: &Oid) -> Result<bool, ForgeError>;

    /// Returns the newest deliveries of the webhooks of a project, also of those that lead to other
    /// services; newest first, at most 100 for each webhook. A driver may leave out some of many
    /// webhooks.
    async fn deliveries(&self, project: &ProjectName) -> Result<Vec<WebhookDelivery>, ForgeError>;

    /// Has the forge redeliver a webhook under the same id; a receiver that has it already ignores
    /// it.
    async fn redeliver(
        &self,
        project: &ProjectName,
        delivery: &WebhookDelivery,
    ) -> Result<(), ForgeError>;
}

/// A branch as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Its name.
    pub name: BranchName,
    /// The commit at its tip.
    pub tip: Oid,
    /// Whether the forge protects it.
    pub protection: Protection,
}

/// Whether rules of the forge protect a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Rules apply.
    Protected,
    /// No rules: all users with write access may push.
    Open,
}

/// A commit's place in history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitDetails {
    /// The commit and its tree.
    pub commit: Commit,
    /// Its parents, the first one first.
    pub parents: Vec<Oid>,
    /// The whole message.
    pub message: String,
}

/// A status to set on a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    /// The context: `tenant/pipeline`. Only the newest status of a context counts.
    pub context: String,
    /// The state.
    pub state: StatusState,
    /// One line; cut at 140 characters.
    pub description: String,
    /// The URL of the details page.
    pub url: Option<String>,
    /// When the report was requested. An equal status that was set earlier belongs to another
    /// report.
    pub wanted_at: Timestamp,
}

/// The state of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusState {
    /// Under way.
    Pending,
    /// Good.
    Success,
    /// Bad.
    Failure,
    /// An error prevented a result.
    Error,
}

impl StatusState {
    /// Returns the word for the state in GitHub's API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Error => "error",
        }
    }
}

/// A check run to show on a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// Its name: `tenant/pipeline`.
    pub name: String,
    /// The marker by which a retry finds it.
    pub marker: Marker,
    /// Its state.
    pub state: CheckState,
    /// One line.
    pub title: String,
    /// Markdown; cut at 65,535 characters.
    pub summary: String,
    /// The URL of the details page.
    pub url: Option<String>,
}

/// The state of a check run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// Waiting.
    Queued,
    /// Under way.
    InProgress,
    /// Ended.
    Completed(Conclusion),
}

/// The conclusion of a check run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// Good.
    Success,
    /// Bad.
    Failure,
    /// Cancelled.
    Cancelled,
    /// Nothing had to be done.
    Skipped,
    /// Neither good nor bad.
    Neutral,
}

impl Conclusion {
    /// Returns the word for the conclusion in GitHub's API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::Neutral => "neutral",
        }
    }
}

/// The kind of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewDecision {
    /// It approves.
    Approve,
    /// It requests changes.
    RequestChanges,
    /// It only comments.
    Comment,
}

impl ReviewDecision {
    /// Returns the word for the review in GitHub's API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "APPROVE",
            Self::RequestChanges => "REQUEST_CHANGES",
            Self::Comment => "COMMENT",
        }
    }
}

/// A Gerrit review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoteReport {
    /// Labels with the values to vote.
    pub votes: BTreeMap<String, i64>,
    /// The message, if there is one.
    pub text: Option<String>,
    /// Who is notified by mail: `NONE`, `OWNER`, `OWNER_REVIEWERS` or `ALL`; `None` means the
    /// forge's default.
    pub notify: Option<String>,
    /// The tag that distinguishes it from users' comments.
    pub tag: String,
}

/// A comment on a line of a file, on the side of the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineComment {
    /// The file's path.
    pub path: String,
    /// The line, from 1; the last one of a range.
    pub line: u32,
    /// The first line of a range.
    pub start_line: Option<u32>,
    /// Markdown.
    pub text: String,
}

/// The message of a merge commit; unused where none is made (rebase).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergeMessage {
    /// The first line; empty means the forge's default.
    pub title: String,
    /// The rest.
    pub body: String,
}

/// A webhook delivery in the forge's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// The id that was in `X-GitHub-Delivery`.
    pub id: String,
    /// The forge's id of this attempt.
    pub attempt: String,
    /// The event's name.
    pub event: String,
    /// The action, where the event has one.
    pub action: Option<String>,
    /// When it was sent.
    pub delivered_at: Timestamp,
    /// The HTTP status of the answer; `None` when there was none.
    pub answered: Option<u16>,
}
