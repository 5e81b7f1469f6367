//! The requirements for changes in a pipeline, by driver.

use crate::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::ConnectionName;
use std::collections::BTreeMap;

/// Requirements for the changes of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The connection whose changes it applies to.
    pub connection: ConnectionName,
    /// The requirements. In `require` all must match; in `reject` any one suffices.
    pub kind: FilterKind,
}

/// The requirements of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterKind {
    /// For pull requests of GitHub.
    GitHub(GitHubFilter),
    /// For changes of Gerrit.
    Gerrit(GerritFilter),
    /// For merge requests of GitLab.
    GitLab(GitLabFilter),
    /// An unknown driver, with its attributes as written.
    Other(Value),
}

/// Requirements for a pull request. `None` and empty lists do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitHubFilter {
    /// Reviews; each entry must be met by some review.
    pub review: Vec<ReviewRequirement>,
    /// Whether it is open.
    pub open: Option<bool>,
    /// Whether it is merged.
    pub merged: Option<bool>,
    /// Whether the commit is the newest.
    pub current_patchset: Option<bool>,
    /// Whether it is a draft.
    pub draft: Option<bool>,
    /// Commit statuses `<user>:<context>:<status>`, one of which must be set. Each pattern must
    /// match the whole text.
    pub status: Vec<Pattern>,
    /// Labels, all of which must be set.
    pub label: Vec<String>,
}

/// A review that must exist.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReviewRequirement {
    /// The reviewer's name.
    pub username: Option<Pattern>,
    /// The reviewer's address.
    pub email: Option<Pattern>,
    /// Minimum age in seconds.
    pub older_than_seconds: Option<u64>,
    /// Maximum age in seconds.
    pub newer_than_seconds: Option<u64>,
    /// `approved`, `comment`, `changes_requested`.
    pub r#type: Option<String>,
    /// The permission that the reviewer must have.
    pub permission: Option<ForgePermission>,
}

/// A user's permission at a forge. Greater ones include lesser ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForgePermission {
    /// To see.
    Read,
    /// To push.
    Write,
    /// To govern.
    Admin,
}

/// Requirements for a Gerrit change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GerritFilter {
    /// Votes; each entry must be met.
    pub approval: Vec<Approval>,
    /// Whether it is open.
    pub open: Option<bool>,
    /// Whether the patch set is the newest.
    pub current_patchset: Option<bool>,
    /// Whether it is work in progress.
    pub wip: Option<bool>,
    /// Hash tags.
    pub hashtags: Vec<Pattern>,
    /// The allowed statuses of the change.
    pub status: Vec<String>,
}

/// A Gerrit vote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Approval {
    /// The voter's name.
    pub username: Option<Pattern>,
    /// The voter's address.
    pub email: Option<Pattern>,
    /// Minimum age in seconds.
    pub older_than_seconds: Option<u64>,
    /// Maximum age in seconds.
    pub newer_than_seconds: Option<u64>,
    /// The allowed values of each label.
    pub labels: BTreeMap<String, Vec<i64>>,
}

/// Requirements for a GitLab merge request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitLabFilter {
    /// Whether it is open.
    pub open: Option<bool>,
    /// Whether it is merged.
    pub merged: Option<bool>,
    /// Whether it is approved.
    pub approved: Option<bool>,
    /// Labels, all of which must be set.
    pub labels: Vec<String>,
}
