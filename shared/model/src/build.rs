//! A build: the gate's order, the executor's run, and how it ended.
//!
//! The two halves have one writer each: the gate writes [`Order`], whoever executes writes [`Run`]
//! (Z7.6).

use crate::{
    BranchName, BuildId, ItemId, JobName, ProviderName, QueueKey, SessionId, Timestamp,
    change::ChangeRef,
    git::{BranchState, Oid},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// How a build ended, in Zuul's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BuildResult {
    /// Everything went well.
    Success,
    /// A main playbook failed.
    Failure,
    /// The time for a phase was used up.
    TimedOut,
    /// A post-run playbook failed.
    PostFailure,
    /// It did not count and is to be attempted again (pre-run failed, host or executor lost).
    Retry,
    /// Every attempt was a [`Self::Retry`].
    RetryLimit,
    /// The gate asked for it to stop.
    Aborted,
    /// No provider can give the nodes.
    NodeFailure,
    /// A job it depends on did not succeed.
    Skipped,
    /// A change's repositories could not be merged.
    MergeConflict,
    /// The job as configured cannot be executed (a missing playbook or role, an undecipherable
    /// secret).
    ConfigError,
    /// The executor's disk was full.
    DiskFull,
}

impl BuildResult {
    /// Returns whether the job counts as passed.
    pub fn passed(self) -> bool {
        self == Self::Success
    }

    /// Returns the word Zuul uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failure => "FAILURE",
            Self::TimedOut => "TIMED_OUT",
            Self::PostFailure => "POST_FAILURE",
            Self::Retry => "RETRY",
            Self::RetryLimit => "RETRY_LIMIT",
            Self::Aborted => "ABORTED",
            Self::NodeFailure => "NODE_FAILURE",
            Self::Skipped => "SKIPPED",
            Self::MergeConflict => "MERGE_CONFLICT",
            Self::ConfigError => "CONFIG_ERROR",
            Self::DiskFull => "DISK_FULL",
        }
    }
}

impl fmt::Display for BuildResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the gate asks for: one attempt of one job for one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The build.
    pub build: BuildId,
    /// The queue to tell when it ends.
    pub queue: QueueKey,
    /// The item it is for.
    pub item: ItemId,
    /// The generation of the item's speculative state.
    pub generation: u64,
    /// The job.
    pub job: JobName,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Attempts in all.
    pub max_attempts: u32,
    /// Whether the result counts.
    pub voting: bool,
    /// The object with the item's whole job graph.
    pub graph: String,
    /// The object with the merged state ([`Speculation`]).
    pub speculation: String,
    /// The change under test.
    pub change: ChangeRef,
    /// The event that led here, for people who trace it.
    pub event_id: String,
    /// Whether it runs after review.
    pub post_review: bool,
    /// Builds whose returned data it is given, the nearest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<BuildId>,
    /// Builds of changes ahead whose artifacts it is given, the nearest first: they provide what
    /// its job requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<BuildId>,
    /// Which of the job's nodesets its nodes are, from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub nodeset: u32,
    /// The commit by which the change is in its branch, where it landed before the build was
    /// ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_commit: Option<Oid>,
    /// The request for its nodes: provider and row; `None` when it needs none.
    pub request: Option<RequestRef>,
    /// When it was ordered.
    pub ordered_at: Timestamp,
}

fn is_first(nodeset: &u32) -> bool {
    *nodeset == 0
}

/// Where a request for nodes stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestRef {
    /// The provider's cell.
    pub provider: ProviderName,
    /// The row `<priority>-<relative>-<sequence>`.
    pub row: String,
}

/// The merged state that an item is tested in; kept as an object, since it may be large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speculation {
    /// Changes ahead, oldest first, the item's own last.
    pub changes: Vec<SpeculativeChange>,
    /// Every branch that matters to the jobs: changed ones, and those of required projects,
    /// playbooks and roles.
    pub branches: Vec<BranchState>,
    /// Branches whose proposed configuration counts, since a change of the list edits it.
    #[serde(default)]
    pub configured: Vec<crate::git::BranchKey>,
    /// Changes that need each other, in the order they land, as they were put on it together:
    /// whichever of them a state is asked for, it starts from this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<PlacedChange>,
    /// Of a tag, the branches whose history has its commit, as far as they are kept; `None` where
    /// that is not known or not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containing: Option<Vec<BranchName>>,
    /// The default branches of projects that jobs need, as the configuration says them, where they
    /// are among the branches: what is checked out where there is nothing better.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<crate::git::BranchKey>,
}

/// What a change made of its own branch when it was put on a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedChange {
    /// The change.
    pub change: ChangeRef,
    /// Its branch below it.
    pub base: crate::git::Commit,
    /// Its branch with it: what must land.
    pub result: crate::git::Commit,
    /// Paths that it touches; `None` when they are too many.
    pub files: Option<Vec<String>>,
    /// Whether it edits configuration.
    pub configures: bool,
    /// Whether `result` is kept, so that the branch can be moved from `base` to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// A change in the tested state, with what jobs are told about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeculativeChange {
    /// The change.
    pub change: ChangeRef,
    /// Where people look at it.
    pub url: String,
    /// Its title.
    pub title: String,
    /// Its description.
    pub message: String,
    /// The merge commit made for it.
    pub merge_commit: Option<Oid>,
}

/// What an executor does with a build. The record's revision and the session prove each write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The build.
    pub build: BuildId,
    /// The executor's life that owns it.
    pub session: SessionId,
    /// Counts the claims of this build: 1, since nobody takes one over. What is lost is ordered
    /// anew under an id of its own.
    pub fence: u64,
    /// What it is doing.
    pub phase: Phase,
    /// When it was claimed; people are told that it started then.
    pub claimed_at: Timestamp,
    /// Where its log is read: an address on the executor while it runs, an object prefix
    /// afterwards.
    pub log: Option<String>,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Claimed, and not over: its session tells whether somebody still works on it.
    Running,
    /// As [`Self::Running`]; a main playbook has failed, so it will not succeed.
    Failing,
    /// Its main playbooks passed, and it keeps its nodes until the jobs behind it are over; then it
    /// goes on with its post-run.
    Paused(Pause),
    /// Over.
    Ended(Ended),
}

/// A build that waits for the jobs behind it, and what it returned for them so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Since when.
    pub since: Timestamp,
    /// As [`Ended::data`].
    #[serde(default)]
    pub data: Map<String, Value>,
    /// As [`Ended::data_object`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_object: Option<String>,
    /// Where it put its logs, if it did so itself by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_url: Option<String>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How it ended.
    pub result: BuildResult,
    /// Why, in a sentence for people, where the word is not enough.
    pub detail: Option<String>,
    /// When the first playbook started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What the job returned (`zuul_return`), without secrets. Where it is too much for a record,
    /// only its `zuul` part, if that fits.
    #[serde(default)]
    pub data: Map<String, Value>,
    /// The object with all that the job returned, where [`Self::data`] is not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_object: Option<String>,
    /// The address of its logs, ending in `/`.
    pub log_url: Option<String>,
}
