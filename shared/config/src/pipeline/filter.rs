//! What a change must (or must not) satisfy to be in a pipeline, by driver.

use crate::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::ConnectionName;
use std::collections::BTreeMap;

/// Requirements for the changes of one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The connection whose changes it is for.
    pub connection: ConnectionName,
    /// The requirements. In `require` all must hold; in `reject` any one suffices.
    pub kind: FilterKind,
}

/// Requirements in the words of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterKind {
    /// For pull requests of GitHub.
    GitHub(GitHubFilter),
    /// For changes of Gerrit.
    Gerrit(GerritFilter),
    /// For merge requests of GitLab.
    GitLab(GitLabFilter),
    /// A driver whose vocabulary is not known here: its attributes as written.
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
    /// Commit statuses `<user>:<context>:<status>`, one of which must be there; each covers the
    /// whole text.
    pub status: Vec<Pattern>,
    /// Labels, all of which must be there.
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
    /// Least age in seconds.
    pub older_than_seconds: Option<u64>,
    /// Greatest age in seconds.
    pub newer_than_seconds: Option<u64>,
    /// `approved`, `comment`, `changes_requested`.
    pub r#type: Option<String>,
    /// What the reviewer must be allowed.
    pub permission: Option<Permission>,
}

/// What a user may do on a forge; the greater includes the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// To see.
    Read,
    /// To push.
    Write,
    /// To govern.
    Admin,
}

/// Requirements for a change of Gerrit.
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
    /// The change's status, of which one must hold.
    pub status: Vec<String>,
}

/// A vote of Gerrit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Approval {
    /// The voter's name.
    pub username: Option<Pattern>,
    /// The voter's address.
    pub email: Option<Pattern>,
    /// Least age in seconds.
    pub older_than_seconds: Option<u64>,
    /// Greatest age in seconds.
    pub newer_than_seconds: Option<u64>,
    /// Label to the values of which one must be there.
    pub labels: BTreeMap<String, Vec<i64>>,
}

/// Requirements for a merge request of GitLab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitLabFilter {
    /// Whether it is open.
    pub open: Option<bool>,
    /// Whether it is merged.
    pub merged: Option<bool>,
    /// Whether it is approved.
    pub approved: Option<bool>,
    /// Labels, all of which must be there.
    pub labels: Vec<String>,
}
