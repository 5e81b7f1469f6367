//! The triggers of a pipeline, by driver.

use super::filter::{Approval, FilterKind, ForgePermission};
use crate::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::ConnectionName;

/// A trigger of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// The connection of its events.
    pub connection: ConnectionName,
    /// The events it matches.
    pub kind: TriggerKind,
    /// Whether reports on the items it enqueues explain how jobs were selected.
    #[serde(default)]
    pub debug: bool,
}

/// The events that a trigger matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriggerKind {
    /// Events of GitHub.
    GitHub(GitHubTrigger),
    /// Events of Gerrit.
    Gerrit(GerritTrigger),
    /// Events of GitLab.
    GitLab(GitLabTrigger),
    /// A branch or tag that was updated on a plain git server.
    Git(GitTrigger),
    /// The clock.
    Timer(TimerTrigger),
    /// Zuul's own events.
    Zuul(ZuulTrigger),
    /// An unknown driver, with its attributes as written.
    Other(Value),
}

/// GitHub events. An empty list does not restrict; all given lists must match.
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
    /// Patterns to find anywhere in a comment.
    pub comment: Vec<Pattern>,
    /// Labels, one of which was added.
    pub label: Vec<String>,
    /// Labels, one of which was removed.
    pub unlabel: Vec<String>,
    /// The permission that the author of the comment must have.
    pub permission: Option<ForgePermission>,
    /// A review's state: `approved`, `comment`, `request_changes`.
    pub state: Vec<String>,
    /// A commit status that was set, `<user>:<context>:<status>`. The pattern must match the whole
    /// text.
    pub status: Vec<Pattern>,
    /// A requested check run, `<app>:<name>:<conclusion>`. The pattern must match the whole text.
    pub check: Vec<Pattern>,
    /// Requirements for the change, for this trigger only.
    pub require: Option<FilterKind>,
    /// Requirements it must not meet, for this trigger only.
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
    /// Whether to ignore the deletion of refs; true by default.
    pub ignore_deletes: Option<bool>,
    /// Votes of the comment: label to value.
    pub approval: Vec<Approval>,
    /// Votes that changed with the comment.
    pub approval_change: Vec<Approval>,
    /// The commenter's address.
    pub email: Vec<Pattern>,
    /// The commenter's name.
    pub username: Vec<Pattern>,
    /// Patterns to find in the comment.
    pub comment: Vec<Pattern>,
    /// Added hashtags.
    pub added: Vec<Pattern>,
    /// Removed hashtags.
    pub removed: Vec<Pattern>,
    /// The scheme of a checker.
    pub scheme: Option<String>,
    /// The UUID of a checker.
    pub uuid: Option<String>,
    /// Requirements for the change, for this trigger only.
    pub require: Option<FilterKind>,
    /// Requirements it must not meet, for this trigger only.
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
    /// Patterns to find in the comment.
    pub comment: Vec<Pattern>,
    /// The ref of a push.
    pub r#ref: Vec<Pattern>,
    /// Added labels.
    pub labels: Vec<String>,
    /// Removed labels.
    pub unlabels: Vec<String>,
}

/// An updated ref of a plain git server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitTrigger {
    /// `ref-updated`.
    pub event: Vec<String>,
    /// The ref.
    pub r#ref: Vec<Pattern>,
    /// Whether to ignore the deletion of refs; true by default.
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
