//! Gerrit's votes and events. Facts that other forges have as well are in [`crate::change`].

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// A vote on the newest patchset of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The label: `Code-Review`.
    pub label: String,
    /// The value, for example 2 or -1.
    pub value: i64,
    /// The voter's user name.
    pub username: String,
    /// The voter's e-mail address, if the forge shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// When it was cast.
    pub cast_at: Timestamp,
}

/// An event about a Gerrit change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GerritEvent {
    /// The number of the change.
    pub number: u64,
    /// Gerrit's event type: `patchset-created`, `comment-added`, `change-merged`,
    /// `hashtags-changed` …
    pub r#type: String,
    /// The name of the user who caused it.
    pub username: String,
    /// The e-mail address of that user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// A comment's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Votes that came with a comment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<CastVote>,
    /// Hashtags that were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Hashtags that were removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// The checker whose check is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checker: Option<String>,
}

/// A vote as reported in an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastVote {
    /// The label.
    pub label: String,
    /// The value.
    pub value: i64,
    /// The voter's previous value; `None` if this event did not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
}
