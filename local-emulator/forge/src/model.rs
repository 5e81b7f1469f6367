//! What the forge remembers beside its git repositories: plain documents, each stored whole.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A document of one kind in the store.
pub(crate) trait Document: Serialize + serde::de::DeserializeOwned {
    /// The kind's name; it is part of the stored key.
    const KIND: &'static str;
    /// Returns its number, unique among the documents of its kind in one repository.
    fn key(&self) -> u64;
}

macro_rules! document {
    ($kind:ident, $name:literal, $id:ident) => {
        impl Document for $kind {
            const KIND: &'static str = $name;
            fn key(&self) -> u64 {
                self.$id
            }
        }
    };
}

document!(Repository, "repository", id);
document!(Pull, "pull", number);
document!(Comment, "comment", id);
document!(Review, "review", id);
document!(Status, "status", id);
document!(CheckRun, "check-run", id);
document!(Hook, "hook", id);
document!(Delivery, "delivery", id);
document!(Due, "due", id);

/// A repository. `refs` is what its branches and tags were when they were last looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Repository {
    pub id: u64,
    pub full_name: String,
    pub default_branch: String,
    pub protected: Vec<String>,
    /// Those of them for which nothing is taken any more.
    #[serde(default)]
    pub locked: Vec<String>,
    pub refs: BTreeMap<String, String>,
    pub created_at: String,
}

/// A pull request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pull {
    pub number: u64,
    pub id: u64,
    pub title: String,
    pub body: String,
    pub author: String,
    pub base: String,
    pub head: String,
    pub head_sha: String,
    pub draft: bool,
    pub labels: Vec<String>,
    pub life: Life,
    /// A merge that was begun: its commit may already be in the branch.
    pub landing: Option<Landing>,
    /// The newest test merge.
    pub tried: Option<Tried>,
    pub created_at: String,
    pub updated_at: String,
}

impl Pull {
    /// Returns whether the pull request is neither closed nor merged.
    pub fn is_open(&self) -> bool {
        matches!(self.life, Life::Open)
    }
}

/// Where a pull request is in its life.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Life {
    Open,
    Closed { at: String },
    Merged { at: String, by: String, commit: String, base_before: String },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Landing {
    pub commit: String,
    pub base_before: String,
    pub by: String,
}

/// What a merge of `head` into `base` would give; `merge` is none for a conflict.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub head: String,
    pub base: String,
    pub merge: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Comment {
    pub id: u64,
    pub number: u64,
    pub author: String,
    pub body: String,
    pub created_at: String,
    pub updated_at: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Review {
    pub id: u64,
    pub number: u64,
    pub author: String,
    /// The author's address, if it is public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// `APPROVED`, `CHANGES_REQUESTED`, `COMMENTED` or `DISMISSED`.
    pub state: String,
    pub body: String,
    pub commit: String,
    pub submitted_at: String,
    pub lines: Vec<LineComment>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LineComment {
    pub path: String,
    pub line: u64,
    /// The first of several lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_line: Option<u64>,
    pub body: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    pub id: u64,
    pub sha: String,
    pub context: String,
    pub state: String,
    pub description: Option<String>,
    pub target_url: Option<String>,
    pub creator: String,
    pub created_at: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CheckRun {
    pub id: u64,
    pub sha: String,
    pub name: String,
    pub status: String,
    pub conclusion: Option<String>,
    pub external_id: Option<String>,
    pub details_url: Option<String>,
    pub title: Option<String>,
    pub summary: Option<String>,
    pub app: String,
    pub started_at: String,
    pub completed_at: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Hook {
    pub id: u64,
    pub url: String,
    pub secret: String,
    /// Names of events, or `*`.
    pub events: Vec<String>,
    pub active: bool,
}

/// One sending of one event to one hook.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Delivery {
    pub id: u64,
    pub repository: String,
    pub hook: u64,
    pub guid: String,
    pub event: String,
    pub action: Option<String>,
    /// The exact body, but for the padding.
    pub body: String,
    /// Bytes added to the body as the value of `padding`.
    pub padding_bytes: usize,
    pub is_redelivery: bool,
    pub delivered_at: String,
    pub outcome: Outcome,
}

/// What became of a delivery. It is tried once: there is no way back to `Waiting`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Waiting,
    Sending,
    Answered { status: u16, milliseconds: u64 },
    Failed { reason: String },
}

/// A delivery that waits to be sent: `id` is its number. All repositories share one list, in the
/// order of the events.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Due {
    pub id: u64,
    pub repository: String,
}
