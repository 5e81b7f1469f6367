//! What Gerrit tells: votes, and events in its own words. Facts of a change that other forges have
//! as well are in [`crate::change`].

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// A vote on the newest patchset of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The label: `Code-Review`.
    pub label: String,
    /// The value.
    pub value: i64,
    /// The voter's name.
    pub username: String,
    /// The voter's address, where the forge shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// When it was cast.
    pub cast_at: Timestamp,
}

/// An event about a change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GerritEvent {
    /// The number of the change.
    pub number: u64,
    /// Gerrit's word: `patchset-created`, `comment-added`, `change-merged`, `hashtags-changed` …
    pub r#type: String,
    /// The name of whoever caused it.
    pub username: String,
    /// Their address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// A comment's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Votes that came with a comment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<CastVote>,
    /// Hashtags that were put on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Hashtags that were taken off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// The checker that a check is pending of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checker: Option<String>,
}

/// A vote as an event tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastVote {
    /// The label.
    pub label: String,
    /// The value.
    pub value: i64,
    /// The voter's value before; `None` where this event did not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
}
