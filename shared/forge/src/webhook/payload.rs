//! The parts of GitHub's webhook payloads that routing needs. Everything else in them is left
//! unread.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Login {
    pub login: String,
}

#[derive(Deserialize)]
pub(super) struct Repository {
    pub full_name: String,
}

#[derive(Deserialize)]
pub(super) struct Label {
    pub name: String,
}

#[derive(Deserialize)]
pub(super) struct Numbered {
    pub number: u64,
}

#[derive(Deserialize)]
pub(super) struct PullRequestEvent {
    pub action: String,
    pub number: u64,
    pub label: Option<Label>,
}

#[derive(Deserialize)]
pub(super) struct ReviewEvent {
    pub action: String,
    pub pull_request: Numbered,
    pub review: Review,
}

#[derive(Deserialize)]
pub(super) struct Review {
    pub state: String,
    pub body: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct CommentEvent {
    pub action: String,
    pub issue: Issue,
    pub comment: Comment,
}

#[derive(Deserialize)]
pub(super) struct Issue {
    pub number: u64,
    pub pull_request: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct Comment {
    #[serde(default)]
    pub body: String,
}

#[derive(Deserialize)]
pub(super) struct PushEvent {
    #[serde(rename = "ref")]
    pub git_ref: String,
    pub before: String,
    pub after: String,
}

#[derive(Deserialize)]
pub(super) struct StatusEvent {
    pub sha: String,
    pub context: String,
    pub state: String,
}

#[derive(Deserialize)]
pub(super) struct CheckRunEvent {
    pub action: String,
    pub check_run: CheckRun,
}

#[derive(Deserialize)]
pub(super) struct CheckRun {
    pub name: String,
    pub head_sha: String,
    pub external_id: Option<String>,
    pub conclusion: Option<String>,
    pub app: Option<App>,
}

#[derive(Deserialize)]
pub(super) struct App {
    pub slug: Option<String>,
}

/// What every event of a repository has.
#[derive(Deserialize)]
pub(super) struct Envelope {
    pub repository: Option<Repository>,
    pub sender: Option<Login>,
}
