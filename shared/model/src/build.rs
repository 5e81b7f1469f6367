//! A build: the gate's order, the executor's run, and the result.
//!
//! Each half has one writer: the gate writes [`Order`], the executor writes [`Run`] (Z7.6).

use crate::{
    BranchName, BuildId, ItemId, JobName, ProviderName, QueueKey, SessionId, Timestamp,
    change::{ChangeKey, ChangeRef},
    git::{BranchState, Oid},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The result of a build, as named by Zuul.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BuildResult {
    /// All playbooks succeeded.
    Success,
    /// A main playbook failed.
    Failure,
    /// A phase exceeded its timeout.
    TimedOut,
    /// A post-run playbook failed.
    PostFailure,
    /// The attempt does not count and is repeated (pre-run failed, or a host or the executor was
    /// lost).
    Retry,
    /// Every attempt was a [`Self::Retry`].
    RetryLimit,
    /// The gate cancelled the build.
    Aborted,
    /// No provider could supply the nodes.
    NodeFailure,
    /// A job it depends on did not succeed.
    Skipped,
    /// A change's repositories could not be merged.
    MergeConflict,
    /// The job cannot be executed as configured (a missing playbook or role, a secret that cannot
    /// be decrypted).
    ConfigError,
    /// The executor's disk quota was exceeded.
    DiskFull,
}

impl BuildResult {
    /// Returns whether the build succeeded.
    pub fn passed(self) -> bool {
        self == Self::Success
    }

    /// Returns Zuul's name of the result.
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

/// The gate's order for a build: one attempt of one job for one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The build.
    pub build: BuildId,
    /// The queue to wake up when it ends.
    pub queue: QueueKey,
    /// The item it is for.
    pub item: ItemId,
    /// The generation of the item's speculative state.
    pub generation: u64,
    /// The job.
    pub job: JobName,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The maximum number of attempts.
    pub max_attempts: u32,
    /// Whether the result counts for the item.
    pub voting: bool,
    /// The object key of the item's job graph.
    pub graph: String,
    /// The object key of the merged state ([`Speculation`]).
    pub speculation: String,
    /// The change under test.
    pub change: ChangeRef,
    /// The id of the event that caused it, for tracing.
    pub event_id: String,
    /// Whether the pipeline runs after review.
    pub post_review: bool,
    /// Builds whose returned data it receives, the nearest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<BuildId>,
    /// Builds of changes ahead that provide artifacts its job requires, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<BuildId>,
    /// The index of the nodeset, among the job's alternatives, that its nodes belong to.
    #[serde(default, skip_serializing_if = "is_first")]
    pub nodeset: u32,
    /// The commit that merged the change into its branch, if it was merged before the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_commit: Option<Oid>,
    /// The members of the change's bundle in merge order, itself included; empty for a change
    /// without a bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundle: Vec<ChangeKey>,
    /// The other members of the bundle that share the build; empty if it is for its change alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<ChangeKey>,
    /// The request for its nodes; `None` if it needs none.
    pub request: Option<RequestRef>,
    /// When it was ordered.
    pub ordered_at: Timestamp,
    /// How it ended at once, when it was ordered; `None` for a build that an executor is to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndWithoutRun>,
}

impl Order {
    /// Returns the order of a voting build whose first attempt is its last, for tests to change
    /// what matters to them: a new field has its value in one place. It has no nodes, parents,
    /// bundle and end, is of the item `item` and of a pipeline that runs before review, and names
    /// the objects `graph` and `speculation`.
    pub fn sample(build: BuildId, queue: QueueKey, job: JobName, change: ChangeRef) -> Self {
        Self {
            build,
            queue,
            item: "item".into(),
            generation: 1,
            job,
            attempt: 1,
            max_attempts: 1,
            voting: true,
            graph: "graph".to_owned(),
            speculation: "speculation".to_owned(),
            change,
            event_id: String::new(),
            post_review: false,
            parents: Vec::new(),
            providers: Vec::new(),
            nodeset: 0,
            merge_commit: None,
            bundle: Vec::new(),
            shared_with: Vec::new(),
            request: None,
            ordered_at: Timestamp(1),
            end: None,
        }
    }

    /// Returns the result of the job if its attempt ended with `result`: `RETRY` of the last
    /// attempt is `RETRY_LIMIT`.
    pub fn final_result(&self, result: BuildResult) -> BuildResult {
        match result {
            BuildResult::Retry if self.attempt >= self.max_attempts => BuildResult::RetryLimit,
            result => result,
        }
    }
}

/// The end of a build that no executor is asked to run: its job is `noop`, or cannot run at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndWithoutRun {
    /// The result.
    pub result: BuildResult,
    /// The reason in a sentence, if the result alone does not explain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Returns whether a nodeset is the first alternative, for leaving it out of a record.
fn is_first(nodeset: &u32) -> bool {
    *nodeset == 0
}

/// The key of a node request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestRef {
    /// The provider's cell.
    pub provider: ProviderName,
    /// The row `<priority>-<relative>-<sequence>`.
    pub row: String,
}

/// The merged state in which an item is tested. It is stored as an object, since it may be large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speculation {
    /// The changes ahead, oldest first, then the item's own.
    pub changes: Vec<SpeculativeChange>,
    /// All branches that the jobs need: those of the changes, and those of required projects,
    /// playbooks and roles.
    pub branches: Vec<BranchState>,
    /// Branches with proposed configuration, because a change of the list edits it.
    pub config_branches: Vec<crate::git::BranchKey>,
    /// Members of a bundle in merge order, as applied together. A state for any member starts from
    /// this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_members: Vec<AppliedMember>,
    /// For a tag, the branches that contain its commit, up to a limit; `None` if unknown or not
    /// needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containing: Option<Vec<BranchName>>,
    /// Default branches of needed projects, from the configuration, if they are among the branches.
    /// They are the fallback for the checkout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<crate::git::BranchKey>,
}

/// The effect of a bundle member on its own branch, when applied to the merged state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedMember {
    /// The change.
    pub change: ChangeRef,
    /// The branch before the change.
    pub base: crate::git::Commit,
    /// The branch with the change, which must become the branch's state after the merge.
    pub result: crate::git::Commit,
    /// Paths that it touches; `None` if there are too many.
    pub files: Option<Vec<String>>,
    /// Whether it changes configuration.
    pub configures: bool,
    /// Whether `result` is stored, so that the branch can be fast-forwarded from `base` to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stored: bool,
}

/// A change of the tested state, with the facts passed to jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeculativeChange {
    /// The change.
    pub change: ChangeRef,
    /// The address of its web page.
    pub url: String,
    /// Its title.
    pub title: String,
    /// Its description.
    pub message: String,
    /// The topic that groups it with other changes, if the forge has topics and it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The merge commit created for it in the tested state.
    pub merge_commit: Option<Oid>,
}

/// An executor's run of a build. Each write is conditional on the record's revision. Others end a
/// lost run as [`BuildResult::Retry`], or take it over before, only to collect its logs; its own
/// executor then writes nothing more. The gate orders a new build with another id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The build.
    pub build: BuildId,
    /// The executor session that owns it.
    pub session: SessionId,
    /// The phase it is in.
    pub phase: Phase,
    /// When it was claimed, which is shown as its start time.
    pub claimed_at: Timestamp,
    /// The playbook that began last; `None` before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub playbook: Option<PlaybookStart>,
    /// Why its executor was lost, if another one has taken it over to collect its logs; `None`
    /// while the executor that claimed it runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// The beginning of a playbook: all that is known of how far a build got whose executor died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaybookStart {
    /// The phase of the playbook.
    pub phase: PlaybookPhase,
    /// Its index in the phase, from 0.
    pub index: usize,
}

/// The phases of a build, by which its playbooks are grouped, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlaybookPhase {
    /// Playbooks before the main ones.
    Pre,
    /// The main playbooks.
    Run,
    /// Playbooks after the main ones, also after a failure.
    Post,
}

impl PlaybookPhase {
    /// Returns the phase's name in variables and `job-output.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Run => "run",
            Self::Post => "post",
        }
    }

    /// Returns the phase's name in banners of the log.
    pub fn banner(self) -> &'static str {
        match self {
            Self::Pre => "PRE-RUN",
            Self::Run => "RUN",
            Self::Post => "POST-RUN",
        }
    }
}

/// The phase of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Claimed and not over. The session's record shows whether its executor is alive.
    Running,
    /// Like [`Self::Running`], but a main playbook has failed, so the build cannot succeed.
    Failing,
    /// The main playbooks succeeded. It keeps its nodes until dependent jobs have ended, then
    /// continues with post-run.
    Paused(Pause),
    /// The run is over.
    Ended(RunEnd),
}

/// A paused build that waits for its dependent jobs, with the data it has returned so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When the pause began.
    pub since: Timestamp,
    /// As [`RunEnd::data`].
    pub data: Map<String, Value>,
    /// As [`RunEnd::data_object`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_object: Option<String>,
    /// The address of its logs, if it has already uploaded them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_url: Option<String>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The result.
    pub result: BuildResult,
    /// The reason in a sentence, if the result alone does not explain it.
    pub detail: Option<String>,
    /// When the first playbook started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Data returned by the job (`zuul_return`), without secrets. If it is too large for a record,
    /// only its `zuul` part, if that fits.
    pub data: Map<String, Value>,
    /// The object key of all returned data, if [`Self::data`] is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_object: Option<String>,
    /// The address of its logs, ending with `/`.
    pub log_url: Option<String>,
}

/// The beginning of the explanation of an attempt whose executor was lost.
pub const EXECUTOR_LOST: &str = "executor lost: ";

impl RunEnd {
    /// Returns the end of an attempt whose executor was lost, for the reason `why`: the attempt
    /// does not count. It counts as started when it was claimed.
    pub fn of_lost_run(run: &Run, why: String, ended_at: Timestamp) -> Self {
        Self {
            result: BuildResult::Retry,
            detail: Some(why),
            started_at: Some(run.claimed_at),
            ended_at,
            data: Map::new(),
            data_object: None,
            log_url: None,
        }
    }
}
