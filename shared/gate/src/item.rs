//! An item: one change in one pipeline with its jobs, from admission to report.

use crate::inbox::Candidate;
use crate::job_feedback::JobFeedback;
use crate::merge::{LineNote, TestedState};
use crate::queue::Slot;
use serde::{Deserialize, Serialize};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::git::Oid;
use sluice_model::job::JobSummary;
use sluice_model::{BuildId, ItemId, JobName, Timestamp};
use std::fmt;

/// The most reasons in an item's record; older ones are dropped.
pub const REASONS_MAX: usize = 24;

/// The most bytes of one stored reason.
pub const REASON_BYTES_MAX: usize = 500;

/// The most bytes of the stored reason why an attempt of a job does not count.
pub const RETRY_REASON_BYTES_MAX: usize = 250;

/// The most bytes of the stored reason why a change cannot be tested. Its report shows it.
pub const WHY_BYTES_MAX: usize = 8 << 10;

/// Returns a text of at most `bytes_max` bytes, which must be at least three. A longer text is cut
/// at a character and ends with `…`.
pub fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// The record of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its id.
    pub id: ItemId,
    /// The generation of the speculative state that the record describes. While it is older than
    /// the slot's, a reset has yet to be executed.
    pub generation: u64,
    /// The number of times the record was written. The head names the version that belongs to it.
    #[serde(default)]
    pub version: u64,
    /// The number of the layout that its tested state was requested and its jobs were frozen under;
    /// 0 before.
    pub layout: u64,
    /// The tree of its branch that its builds test; `None` before its jobs are frozen. When the
    /// item is frozen again, its builds are kept only while this stays the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested_tree: Option<Oid>,
    /// The change with its title, author and needs.
    pub candidate: Candidate,
    /// The id of the event that enqueued it.
    pub event_id: String,
    /// When it was admitted.
    pub admitted_at: Timestamp,
    /// The state of the request for its tested state.
    pub merge_status: MergeStatus,
    /// Its jobs in the order of the configuration.
    pub jobs: Vec<Job>,
    /// Whether its start was reported, or needed no report because no reporter is configured for
    /// it. It is set once the jobs are known, if there are any.
    pub start_reported: bool,
    /// When its first job was ordered; `None` before.
    pub first_job_at: Option<Timestamp>,
    /// The decisions about it, newest last.
    pub reasons: Vec<Reason>,
    /// All its builds, for the record of the buildset.
    pub builds: Vec<BuildId>,
    /// The commit that it was merged as; `None` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<Oid>,
    /// The progress after its success, where jobs that run after the reports keep it in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reporting: Option<Reporting>,
    /// The number of its landings that failed because others moved the branch, since the branch was
    /// last reserved for it ([`crate::branch_lock::BranchReservation`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub base_moved_count: u32,
    /// Whether a landing that has ended asked the forge to merge it
    /// ([`crate::Landing::merge_attempted`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_attempted: bool,
    /// Whether it was reported that other members of its bundle were merged and this one was not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial_merge_reported: bool,
}

/// A decision about an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// When it was made.
    pub at: Timestamp,
    /// What was decided and why, at most [`REASON_BYTES_MAX`] bytes.
    pub text: String,
}

/// The progress of an item that stays in its queue after its success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reporting {
    /// When it succeeded.
    pub since: Timestamp,
    /// The id of the report that its last jobs wait for; `None` once that is sent, or where no
    /// forge gets a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
}

/// The state of the request for an item's tested state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeStatus {
    /// Not requested: the item is outside the window, or the item ahead has no tested state yet.
    NotRequested,
    /// Requested from the merger, which starts from the state of the item ahead, if any.
    Requested {
        /// When it was last requested.
        at: Timestamp,
        /// When it was first requested; `None` where `at` is the first time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// The tested state that the merger starts from; `None` for the branch.
        onto: Option<Onto>,
        /// The needs of the change that were merged in the meantime. They are not merged into the
        /// state again, whatever happened to them in the branch since.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        landed: Vec<ChangeKey>,
    },
    /// The merger made a tested state and froze the jobs.
    Merged(TestedState),
    /// The change cannot be tested.
    Unmergeable {
        /// The reason, for the report.
        why: String,
        /// Whether its configuration is invalid; otherwise it has a merge conflict.
        configuration: bool,
        /// Comments on lines of the change's own files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<LineNote>,
    },
}

/// The tested state that another tested state starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Onto {
    /// The item ahead.
    pub item: ItemId,
    /// The generation of its speculative state.
    pub generation: u64,
    /// The key of the object with its [`sluice_model::build::Speculation`].
    pub speculation: String,
}

/// One job of an item, with its builds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The part of the frozen job that the gate needs.
    pub summary: JobSummary,
    /// The number of the latest attempt; 0 before the first. An attempt that was withdrawn does not
    /// count.
    pub attempt: u32,
    /// The build of the latest attempt, also of one that no executor was asked to run; `None`
    /// before the first, after an attempt was withdrawn, and for a skipped job.
    pub build: Option<BuildId>,
    /// The node request of the latest build, also once that runs or has ended. `None` for a build
    /// without nodes, and where the request was withdrawn or the job is to be retried.
    pub request: Option<sluice_model::build::RequestRef>,
    /// The status of the job.
    pub status: JobStatus,
    /// The obstacle that keeps it from being ordered, apart from its dependencies and nodes; `None`
    /// without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// When it first asked for the semaphores that it waits for; `None` while it waits for none.
    /// This is its position in the waiting list. A job that takes its semaphores after its nodes
    /// asked when it requested the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semaphores_requested_at: Option<Timestamp>,
    /// When the queue last sent its build to the executors. A job that takes its semaphores after
    /// its nodes is sent when it has both; a build without nodes is recorded here only when it is
    /// sent again. `None` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Why the attempt before the latest one does not count, while another one is to be ordered or
    /// under way; at most [`RETRY_REASON_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_reason: Option<String>,
    /// The number of times the queue sent its build to the executors again because none had claimed
    /// it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resend_count: u32,
    /// The index of the nodeset alternative that is requested. Earlier ones are unavailable.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alternative: u32,
    /// Whether it had to release its nodes while it waited for semaphores. From then on it takes
    /// semaphores first, in spite of `resources-first`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub semaphores_first: bool,
    /// The feedback of the ended build.
    #[serde(default, skip_serializing_if = "JobFeedback::is_empty")]
    pub feedback: JobFeedback,
    /// Whether its build was ordered by another member of the bundle. Its comments may be about
    /// files of that member only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared_build: bool,
    /// The child jobs that its build selected (`zuul.child_jobs`), where other changes that share
    /// the build may have other jobs. `None` where the build made no selection or the record had no
    /// space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_jobs: Option<Vec<JobName>>,
}

/// Returns whether a count is zero, so that it is not stored.
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The obstacle that keeps a job from being ordered although its dependencies are met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// A free unit of the semaphore of this name.
    Semaphore(String),
    /// A job of a change ahead that provides these required artifacts.
    Requirements(Vec<String>),
    /// A job of a change ahead that must succeed first (`hold-following-changes`).
    Ahead(JobName),
}

impl fmt::Display for WaitsFor {
    /// Writes the obstacle in the form of Zuul's `waiting_status`: a word for its kind and the
    /// names of the semaphore, artifacts or job.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Semaphore(name) => write!(f, "semaphores: {name}"),
            Self::Requirements(names) => write!(f, "requirements: {}", names.join(", ")),
            Self::Ahead(job) => write!(f, "job of a change ahead: {job}"),
        }
    }
}

/// The status of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobStatus {
    /// It waits for other jobs or has yet to be ordered.
    Waiting,
    /// It was ordered and waits for nodes or an executor.
    Ordered {
        /// When.
        at: Timestamp,
    },
    /// An executor runs it.
    Running {
        /// When the executor claimed it.
        started_at: Option<Timestamp>,
        /// Whether it is certain to fail (`pre-fail`), so that changes behind it need not wait for
        /// its end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pre_fail: bool,
    },
    /// It is paused: the executor keeps the build and its nodes until the child jobs have ended.
    Paused {
        /// When the executor claimed it.
        started_at: Option<Timestamp>,
        /// Whether it was asked to resume.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        resumed: bool,
    },
    /// It has ended.
    Ended {
        /// The result.
        result: BuildResult,
        /// An explanation of the result, where there is one.
        detail: Option<String>,
        /// When its first playbook started; `None` if none did.
        started_at: Option<Timestamp>,
        /// When it ended.
        ended_at: Timestamp,
        /// The address of its logs.
        log_url: Option<String>,
    },
}

impl Job {
    /// Creates a job that has not been ordered.
    pub fn new(summary: JobSummary) -> Self {
        let status = JobStatus::Waiting;
        Self {
            summary,
            attempt: 0,
            build: None,
            request: None,
            status,
            waits_for: None,
            semaphores_requested_at: None,
            sent_at: None,
            retry_reason: None,
            resend_count: 0,
            alternative: 0,
            semaphores_first: false,
            feedback: JobFeedback::default(),
            is_shared_build: false,
            child_jobs: None,
        }
    }

    /// Returns its result, or `None` before it has ended.
    pub fn result(&self) -> Option<BuildResult> {
        match &self.status {
            JobStatus::Ended { result, .. } => Some(*result),
            _ => None,
        }
    }

    /// Returns whether it has a build that has not ended.
    pub fn is_under_way(&self) -> bool {
        matches!(
            self.status,
            JobStatus::Ordered { .. } | JobStatus::Running { .. } | JobStatus::Paused { .. }
        )
    }

    /// Returns whether it takes its semaphores after its nodes: it needs nodes, and one of its
    /// semaphores has `resources-first`. Then all its semaphores are taken late, so that it never
    /// holds one semaphore while it waits for another. A job that had to release its nodes takes
    /// semaphores first.
    pub fn takes_nodes_first(&self) -> bool {
        let needs_nodes = self
            .summary
            .labels
            .get(self.alternative as usize)
            .is_some_and(|labels| !labels.is_empty());
        needs_nodes
            && !self.semaphores_first
            && self.summary.semaphores.iter().any(|used| used.resources_first)
    }

    /// Resets the job to before its ordered attempt, which is no longer counted. It then waits for
    /// its semaphores before it requests nodes, and keeps its place in their lines. The job no
    /// longer names its build and node request: the caller must have stopped the one and withdrawn
    /// the other.
    pub fn restart_with_semaphores_first(&mut self) {
        (self.build, self.request, self.waits_for) = (None, None, None);
        self.attempt = self.attempt.saturating_sub(1);
        self.status = JobStatus::Waiting;
        self.semaphores_first = true;
    }

    /// Returns whether its build is paused, so that its child jobs may run.
    pub fn is_paused(&self) -> bool {
        matches!(self.status, JobStatus::Paused { .. })
    }

    /// Returns whether jobs that depend on its success may run: it succeeded or is paused.
    pub fn satisfies_dependents(&self) -> bool {
        self.is_paused() || self.result().is_some_and(BuildResult::passed)
    }

    /// Returns whether it makes the item fail: it has failed or is certain to. Non-voting jobs and
    /// jobs that run after the reports never do.
    pub fn fails_item(&self) -> bool {
        let fails = match &self.status {
            JobStatus::Ended { .. } => self.has_failed(),
            JobStatus::Running { pre_fail, .. } => *pre_fail,
            JobStatus::Waiting | JobStatus::Ordered { .. } | JobStatus::Paused { .. } => false,
        };
        self.summary.voting && !self.summary.reporter && fails
    }

    /// Returns whether it ended without success and was not skipped. It need not have run, as after
    /// a node failure.
    pub fn has_failed(&self) -> bool {
        self.result().is_some_and(|result| !result.passed() && result != BuildResult::Skipped)
    }
}

impl Item {
    /// Creates the item of a newly admitted candidate, with the id and generation of its slot and
    /// nothing requested yet. `event_id` is the event that enqueued it.
    pub fn admitted(
        slot: &Slot,
        candidate: Candidate,
        event_id: &str,
        admitted_at: Timestamp,
    ) -> Self {
        Self {
            id: slot.id.clone(),
            generation: slot.generation,
            version: 0,
            layout: 0,
            tested_tree: None,
            candidate,
            event_id: event_id.to_owned(),
            admitted_at,
            merge_status: MergeStatus::NotRequested,
            jobs: Vec::new(),
            start_reported: false,
            first_job_at: None,
            reasons: Vec::new(),
            builds: Vec::new(),
            landed: None,
            reporting: None,
            base_moved_count: 0,
            merge_attempted: false,
            partial_merge_reported: false,
        }
    }

    /// Appends a decision made at `at` with its reason, cut to [`REASON_BYTES_MAX`]. Does nothing
    /// where the text equals the last one. Drops the oldest decision beyond [`REASONS_MAX`].
    /// Returns whether it was added.
    pub fn add_reason(&mut self, at: Timestamp, reason: impl Into<String>) -> bool {
        let text = cut(&reason.into(), REASON_BYTES_MAX);
        if self.reasons.last().is_some_and(|last| last.text == text) {
            return false;
        }
        self.reasons.push(Reason { at, text });
        if self.reasons.len() > REASONS_MAX {
            self.reasons.remove(0);
        }
        true
    }

    /// Returns whether anything was requested or ordered in the speculative state that the record
    /// describes.
    pub fn has_started(&self) -> bool {
        self.merge_status != MergeStatus::NotRequested || self.layout != 0 || !self.jobs.is_empty()
    }

    /// Returns its tested state, or `None` before it is known and where it cannot be tested.
    pub fn merged(&self) -> Option<&TestedState> {
        match &self.merge_status {
            MergeStatus::Merged(merged) => Some(merged),
            _ => None,
        }
    }

    /// Returns whether it is certain to fail in its present speculative state: it cannot be tested,
    /// or a job makes it fail.
    pub fn is_failing(&self) -> bool {
        matches!(self.merge_status, MergeStatus::Unmergeable { .. })
            || self.jobs.iter().any(Job::fails_item)
    }

    /// Returns the first job that keeps the jobs of changes behind this one from starting: it has
    /// `hold-following-changes` and has not succeeded. `None` without one.
    pub fn holds_following(&self) -> Option<&Job> {
        let holds = |job: &&Job| {
            job.summary.hold_following_changes && !job.result().is_some_and(BuildResult::passed)
        };
        self.jobs.iter().find(holds)
    }

    /// Returns whether it cannot be tested, or has a tested state and all its jobs have ended,
    /// apart from those that run after its reports.
    pub fn is_complete(&self) -> bool {
        match &self.merge_status {
            MergeStatus::Unmergeable { .. } => true,
            MergeStatus::Merged(_) => self.reported_jobs().all(|job| job.result().is_some()),
            MergeStatus::NotRequested | MergeStatus::Requested { .. } => false,
        }
    }

    /// Returns the jobs whose results are reported: all except those that run after the reports.
    pub fn reported_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| !job.summary.reporter)
    }

    /// Returns whether a job that runs after its reports has not ended.
    pub fn has_reporters_left(&self) -> bool {
        self.jobs.iter().any(|job| job.summary.reporter && job.result().is_none())
    }
}
