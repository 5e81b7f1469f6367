//! What Sluice asks of a forge: the trait that drivers and the simulator implement, and the plain
//! data it speaks.

use crate::error::ForgeError;
use crate::marker::Marker;
use async_trait::async_trait;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, OpenChange, Permission};
use sluice_model::git::{BranchKey, Commit, MergeMode, Oid};
use sluice_model::{BranchName, ProjectName, Timestamp};
use std::collections::BTreeMap;

/// A forge that a connection speaks to.
///
/// Every operation is safe to ask again after [`ForgeError::Unknown`]: reads change nothing,
/// reports find what an earlier try wrote by its marker, and landings name the commit they expect.
/// Nothing here decides.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Returns the change that `url` is the page of, when it is on this forge. Asks nobody. (Z6.5)
    fn change_at(&self, url: &str) -> Option<ChangeKey>;

    /// Returns the change as it is now, with reviews, statuses, files and dependencies.
    async fn read_change(&self, change: &ChangeKey) -> Result<ChangeFacts, ForgeError>;

    /// Returns all open changes of a project, by number.
    async fn open_changes(&self, project: &ProjectName) -> Result<Vec<OpenChange>, ForgeError>;

    /// Returns the open changes of a project whose head a commit is, by number: what an event about
    /// a commit is about.
    async fn changes_with_head(
        &self,
        project: &ProjectName,
        head: &Oid,
    ) -> Result<Vec<ChangeRef>, ForgeError>;

    /// Returns the open changes of a topic, by project and number, at most 100; none on a forge
    /// that has no topics.
    async fn open_changes_of_topic(&self, _topic: &str) -> Result<Vec<ChangeKey>, ForgeError> {
        Ok(Vec::new())
    }

    /// Returns the branches of a project, by name.
    async fn branches(&self, project: &ProjectName) -> Result<Vec<Branch>, ForgeError>;

    /// Returns whether the forge takes nothing for a branch any more; `None` where it does not say,
    /// or not to us.
    async fn is_locked(&self, branch: &BranchKey) -> Result<Option<bool>, ForgeError>;

    /// Returns the commit a branch is at, with its tree: what a landing is compared with.
    async fn branch_tip(&self, branch: &BranchKey) -> Result<Commit, ForgeError>;

    /// Returns the commit that a ref (`refs/heads/main`, `refs/tags/1.0`) leads to, an annotated
    /// tag's too; `None` where there is no such ref. One that leads to none, as a tag of a file, is
    /// [`ForgeError::NotFound`].
    async fn ref_tip(
        &self,
        project: &ProjectName,
        git_ref: &str,
    ) -> Result<Option<Commit>, ForgeError>;

    /// Returns the page of a commit, or of the project where no commit is given. Asks nobody.
    fn page_of(&self, project: &ProjectName, commit: Option<&Oid>) -> String;

    /// Returns the tree and the parents of a commit.
    async fn read_commit(&self, project: &ProjectName, id: &Oid)
    -> Result<CommitFacts, ForgeError>;

    /// Sets a status on a commit, once for each report: a repeat leaves alone what it finds set for
    /// it, for the forge tells of each that is set, while one that an earlier report has set is set
    /// again.
    async fn set_status(
        &self,
        project: &ProjectName,
        head: &Oid,
        status: &StatusReport,
    ) -> Result<(), ForgeError>;

    /// Makes the check run that bears `run.marker` on `head`, or updates it.
    async fn put_check_run(
        &self,
        project: &ProjectName,
        head: &Oid,
        run: &CheckReport,
    ) -> Result<(), ForgeError>;

    /// Makes the comment of ours that bears `marker` on a change, or gives it this text.
    async fn put_comment(
        &self,
        change: &ChangeKey,
        marker: &Marker,
        text: &str,
    ) -> Result<(), ForgeError>;

    /// Puts labels on a change and takes others off. Doing it twice is doing it once.
    async fn change_labels(
        &self,
        change: &ChangeKey,
        add: &[String],
        remove: &[String],
    ) -> Result<(), ForgeError>;

    /// Comments on lines of a change, as one review that bears `marker`. A review that is there
    /// already is left alone.
    ///
    /// A forge may refuse lines outside the change's own diff; the caller then says it in a
    /// comment.
    async fn put_line_comments(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        text: &str,
        comments: &[LineComment],
    ) -> Result<(), ForgeError>;

    /// Returns what time it is by the forge's own clock, which is one for all who ask it: as its
    /// last answer said, which came a moment ago. `None` where none came of late, or it does not
    /// say.
    fn time(&self) -> Option<Timestamp> {
        None
    }

    /// Returns the account that the connection acts as; `None` where its forge does not say, as to
    /// an application's token.
    async fn own_account(&self) -> Result<Option<String>, ForgeError> {
        Ok(None)
    }

    /// Returns what somebody may do in a project's repository.
    async fn permission_of(
        &self,
        project: &ProjectName,
        login: &str,
    ) -> Result<Permission, ForgeError>;

    /// Leaves a review of a change's head that bears `marker`. One that is there already is left
    /// alone.
    async fn put_review(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        verdict: ReviewVerdict,
        text: &str,
    ) -> Result<(), ForgeError>;

    /// Votes on a patchset and says why, in one review that bears `marker`. One that is there
    /// already is left alone. A forge that has no votes refuses.
    async fn put_votes(
        &self,
        change: &ChangeRef,
        _: &Marker,
        _: &VoteReport,
    ) -> Result<(), ForgeError> {
        let message = "this driver has no votes".to_owned();
        Err(ForgeError::Refused { attempted: format!("vote on {change}"), status: 501, message })
    }

    /// Merges a change whose head is still `change.head`, and returns the commit its branch is at
    /// by that.
    ///
    /// [`ForgeError::HeadMoved`] when the head is another; [`ForgeError::Conflict`] when it does
    /// not merge. The base is not guarded by forges: the caller reads the tip before and after
    /// (Z6.4). A change that is merged already, at this head, is a success, so a repeat finds what
    /// an earlier try did.
    async fn merge(
        &self,
        change: &ChangeRef,
        mode: MergeMode,
        message: &MergeMessage,
    ) -> Result<Oid, ForgeError>;

    /// Moves a branch from one commit to another by a push, all or nothing; `pack` holds what the
    /// forge lacks of the second. That the second follows the first the caller has to see: a forge
    /// need not look.
    ///
    /// [`ForgeError::HeadMoved`] when the branch is not at `from`, and [`ForgeError::Refused`] when
    /// it still is: then pushes are not taken there. A branch that is at `to` already is a success.
    async fn fast_forward(
        &self,
        branch: &BranchKey,
        from: &Oid,
        to: &Oid,
        pack: &[u8],
    ) -> Result<(), ForgeError>;

    /// Returns whether a commit is in a branch: whether a move to it, or beyond it, was made.
    async fn contains(&self, branch: &BranchKey, commit: &Oid) -> Result<bool, ForgeError>;

    /// Returns the newest webhook deliveries of a project, newest first, at most 100 per hook.
    async fn deliveries(&self, project: &ProjectName) -> Result<Vec<Delivery>, ForgeError>;

    /// Has the forge send a webhook delivery again, under the same id; whoever took it before takes
    /// it for a repeat.
    async fn redeliver(&self, project: &ProjectName, delivery: &Delivery)
    -> Result<(), ForgeError>;
}

/// A branch as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Its name.
    pub name: BranchName,
    /// The commit it is at.
    pub tip: Oid,
    /// Whether the forge guards it.
    pub protection: Protection,
}

/// Whether a branch is guarded by rules of the forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Rules apply.
    Protected,
    /// Whoever may write, may push.
    Open,
}

/// A commit's place in history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFacts {
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
    /// What it is about: `tenant/pipeline`. One status per context counts.
    pub context: String,
    /// The verdict.
    pub state: StatusState,
    /// One line; cut at 140 characters.
    pub description: String,
    /// Where people read more.
    pub url: Option<String>,
    /// Since when it is to be told. One that says the same and was set before that is another
    /// report's.
    pub wanted_at: Timestamp,
}

/// The verdict of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusState {
    /// Under way.
    Pending,
    /// Good.
    Success,
    /// Bad.
    Failure,
    /// Not decided because something went wrong.
    Error,
}

impl StatusState {
    /// Returns the forge's word.
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
    /// By which a repeat finds it.
    pub marker: Marker,
    /// How far it is.
    pub state: CheckState,
    /// One line.
    pub title: String,
    /// Markdown; cut at 65,535 characters.
    pub summary: String,
    /// Where people read more.
    pub url: Option<String>,
}

/// How far a check run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// Waiting.
    Queued,
    /// Under way.
    InProgress,
    /// Ended.
    Completed(Conclusion),
}

/// How a check run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// Good.
    Success,
    /// Bad.
    Failure,
    /// Taken back.
    Cancelled,
    /// Nothing had to be done.
    Skipped,
    /// Neither good nor bad.
    Neutral,
}

impl Conclusion {
    /// Returns the forge's word.
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

/// What a review of ours says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVerdict {
    /// Yes.
    Approve,
    /// No.
    RequestChanges,
    /// Neither.
    Comment,
}

impl ReviewVerdict {
    /// Returns GitHub's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "APPROVE",
            Self::RequestChanges => "REQUEST_CHANGES",
            Self::Comment => "COMMENT",
        }
    }
}

/// A review in Gerrit's way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoteReport {
    /// Labels with the values to vote.
    pub votes: BTreeMap<String, i64>,
    /// The message, if there is one.
    pub text: Option<String>,
    /// Who is told by mail: `NONE`, `OWNER`, `OWNER_REVIEWERS` or `ALL`; `None` leaves it to the
    /// forge.
    pub notify: Option<String>,
    /// By which it is told from what people say.
    pub tag: String,
}

/// A comment on a line of a file, on the side of the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineComment {
    /// The file's path.
    pub path: String,
    /// The line, from 1; the last one where it is about several.
    pub line: u32,
    /// The first of several lines.
    pub start_line: Option<u32>,
    /// Markdown.
    pub text: String,
}

/// The message of the commit that a merge makes; ignored where none is made (rebase).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergeMessage {
    /// The first line; empty leaves it to the forge.
    pub title: String,
    /// What follows it.
    pub body: String,
}

/// A webhook delivery as the forge remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The id that was in `X-GitHub-Delivery`.
    pub id: String,
    /// What the forge calls this one time that it was sent.
    pub attempt: String,
    /// The event's name.
    pub event: String,
    /// The action, where the event has one.
    pub action: Option<String>,
    /// When it was sent.
    pub delivered_at: Timestamp,
    /// The HTTP status it was answered with; `None` when nobody answered.
    pub answered: Option<u16>,
}
