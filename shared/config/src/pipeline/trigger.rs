//! What puts a change, a ref or an image into a pipeline, by driver.

use super::filter::{Approval, FilterKind, Permission};
use crate::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::ConnectionName;

/// One trigger of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// The connection whose events it looks at.
    pub connection: ConnectionName,
    /// What it looks for.
    pub kind: TriggerKind,
    /// Whether reports on what it lets in tell how jobs were decided.
    #[serde(default)]
    pub debug: bool,
}

/// What a trigger looks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriggerKind {
    /// Events of GitHub.
    GitHub(GitHubTrigger),
    /// Events of Gerrit.
    Gerrit(GerritTrigger),
    /// Events of GitLab.
    GitLab(GitLabTrigger),
    /// A branch or tag that moved on a plain git server.
    Git(GitTrigger),
    /// The clock.
    Timer(TimerTrigger),
    /// Zuul's own events.
    Zuul(ZuulTrigger),
    /// A driver whose vocabulary is not known here: its attributes as written.
    Other(Value),
}

/// Events of GitHub. An empty list does not restrict; all lists that are given must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitHubTrigger {
    /// `pull_request`, `pull_request_review`, `push` or `check_run`.
    pub event: Vec<String>,
    /// The event's action: `opened`, `changed`, `closed`, `reopened`, `comment`, `labeled`,
    /// `unlabeled`, `status`, `submitted`, `dismissed`, `requested`, `completed` …
    pub action: Vec<String>,
    /// The target branch.
    pub branch: Vec<Pattern>,
    /// The ref of a push.
    pub r#ref: Vec<Pattern>,
    /// Texts sought anywhere in a comment.
    pub comment: Vec<Pattern>,
    /// Labels of which one was put on.
    pub label: Vec<String>,
    /// Labels of which one was taken off.
    pub unlabel: Vec<String>,
    /// What the author of the comment must be allowed.
    pub permission: Option<Permission>,
    /// A review's state: `approved`, `comment`, `request_changes`.
    pub state: Vec<String>,
    /// A commit status that was set, `<user>:<context>:<status>`; covers the whole text.
    pub status: Vec<Pattern>,
    /// A check run that is meant, `<app>:<name>:<conclusion>`; covers the whole text.
    pub check: Vec<Pattern>,
    /// What the change must satisfy for this trigger alone.
    pub require: Option<FilterKind>,
    /// What it must not satisfy for this trigger alone.
    pub reject: Option<FilterKind>,
}

/// Events of Gerrit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GerritTrigger {
    /// Gerrit's event types.
    pub event: Vec<String>,
    /// The target branch.
    pub branch: Vec<Pattern>,
    /// The ref that was updated.
    pub r#ref: Vec<Pattern>,
    /// Whether the deletion of a ref is no event; true unless said otherwise.
    pub ignore_deletes: Option<bool>,
    /// Votes of the comment: label to value.
    pub approval: Vec<Approval>,
    /// Votes that changed with the comment.
    pub approval_change: Vec<Approval>,
    /// The commenter's address.
    pub email: Vec<Pattern>,
    /// The commenter's name.
    pub username: Vec<Pattern>,
    /// Texts sought in the comment.
    pub comment: Vec<Pattern>,
    /// Hash tags put on.
    pub added: Vec<Pattern>,
    /// Hash tags taken off.
    pub removed: Vec<Pattern>,
    /// Checker: its scheme.
    pub scheme: Option<String>,
    /// Checker: its UUID.
    pub uuid: Option<String>,
    /// What the change must satisfy for this trigger alone.
    pub require: Option<FilterKind>,
    /// What it must not satisfy for this trigger alone.
    pub reject: Option<FilterKind>,
}

/// Events of GitLab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitLabTrigger {
    /// `gl_merge_request` or `gl_push`.
    pub event: Vec<String>,
    /// The event's action.
    pub action: Vec<String>,
    /// The target branch.
    pub branch: Vec<Pattern>,
    /// Texts sought in the comment.
    pub comment: Vec<Pattern>,
    /// The ref of a push.
    pub r#ref: Vec<Pattern>,
    /// Labels put on.
    pub labels: Vec<String>,
    /// Labels taken off.
    pub unlabels: Vec<String>,
}

/// A ref of a plain git server that moved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitTrigger {
    /// `ref-updated`.
    pub event: Vec<String>,
    /// The ref.
    pub r#ref: Vec<Pattern>,
    /// Whether the deletion of a ref is no event; true unless said otherwise.
    pub ignore_deletes: Option<bool>,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimerTrigger {
    /// Cron-like: minute, hour, day, month, weekday (0 is Monday), and optionally second and
    /// jitter.
    pub time: String,
    /// Whether branches are resolved to commits when it fires.
    pub dereference: bool,
}

/// Zuul's own events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ZuulTrigger {
    /// `parent-change-enqueued`, `project-change-merged`, `image-build`, `image-validate` or
    /// `image-delete`.
    pub event: Vec<String>,
    /// Pipelines where the parent was enqueued.
    pub pipeline: Vec<Pattern>,
}
