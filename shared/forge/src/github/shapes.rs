//! GitHub's JSON, as far as it is read.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct User {
    pub login: String,
    /// `User`, or `Bot` of a GitHub App.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The public e-mail address; most answers omit it.
    pub email: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Pull {
    pub number: u64,
    pub html_url: String,
    pub state: String,
    pub title: String,
    pub body: Option<String>,
    #[serde(default)]
    pub draft: bool,
    pub user: Option<User>,
    #[serde(default)]
    pub labels: Vec<Label>,
    pub head: Side,
    pub base: Side,
    #[serde(default)]
    pub merged: bool,
    pub mergeable: Option<bool>,
    pub merge_commit_sha: Option<String>,
    #[serde(default)]
    pub changed_files: usize,
    pub updated_at: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Side {
    #[serde(rename = "ref")]
    pub branch: String,
    pub sha: String,
}

#[derive(Deserialize)]
pub(super) struct Label {
    pub name: String,
}

#[derive(Deserialize)]
pub(super) struct File {
    pub filename: String,
    pub previous_filename: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Review {
    pub user: Option<User>,
    pub body: Option<String>,
    pub state: String,
    pub submitted_at: Option<String>,
    /// The author's association with the repository: `MEMBER`, `NONE`.
    pub author_association: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct PermissionOf {
    pub permission: String,
}

#[derive(Deserialize)]
pub(super) struct Status {
    /// The id, which grows with each new one.
    pub id: Option<u64>,
    pub created_at: Option<String>,
    pub context: String,
    pub state: String,
    pub description: Option<String>,
    pub target_url: Option<String>,
    pub creator: Option<User>,
}

#[derive(Deserialize)]
pub(super) struct CheckRuns {
    pub check_runs: Vec<CheckRun>,
}

#[derive(Deserialize)]
pub(super) struct CheckRun {
    pub id: u64,
    pub name: String,
    pub status: String,
    pub conclusion: Option<String>,
    pub external_id: Option<String>,
    pub app: Option<App>,
}

#[derive(Deserialize)]
pub(super) struct App {
    pub slug: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Branch {
    pub name: String,
    pub commit: BranchCommit,
    #[serde(default)]
    pub protected: bool,
}

#[derive(Deserialize)]
pub(super) struct ProtectionOf {
    pub lock_branch: Option<Rule>,
}

#[derive(Deserialize)]
pub(super) struct Rule {
    pub enabled: bool,
}

#[derive(Deserialize)]
pub(super) struct BranchCommit {
    pub sha: String,
}

#[derive(Deserialize)]
pub(super) struct GitRef {
    pub object: GitObject,
}

#[derive(Deserialize)]
pub(super) struct GitObject {
    pub sha: String,
    /// `commit`, or `tag` for an annotated one.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Compared {
    /// `identical`, `ahead`, `behind` or `diverged`.
    pub status: String,
}

#[derive(Deserialize)]
pub(super) struct GitCommit {
    pub sha: String,
    pub tree: BranchCommit,
    pub parents: Vec<BranchCommit>,
    pub message: String,
}

#[derive(Deserialize)]
pub(super) struct Comment {
    pub id: u64,
    pub user: Option<User>,
    pub body: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Merged {
    pub sha: String,
    pub merged: bool,
}

#[derive(Deserialize)]
pub(super) struct Hook {
    pub id: u64,
}

#[derive(Deserialize)]
pub(super) struct HookDelivery {
    pub id: u64,
    pub guid: String,
    pub event: String,
    pub action: Option<String>,
    pub delivered_at: String,
    pub status_code: u16,
}
