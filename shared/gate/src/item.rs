//! An item: one change in one pipeline with its jobs, from admission to report.

use crate::arrival::Candidate;
use crate::merge::{LineNote, Merged};
use crate::queue::Slot;
use crate::told::Told;
use serde::{Deserialize, Serialize};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::git::Oid;
use sluice_model::job::JobSummary;
use sluice_model::{BuildId, ItemId, JobName, Timestamp};
use std::fmt;

/// The most reasons an item remembers; older ones are dropped.
pub const REASONS_MAX: usize = 24;

/// Bytes of one reason that are kept.
pub const REASON_BYTES_MAX: usize = 500;

/// Bytes that are kept of why a change cannot be tested; the report tells them.
pub const WHY_BYTES_MAX: usize = 8 << 10;

/// Returns a text of at most `bytes_max` bytes, its end left out with a sign where it is longer.
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

/// An item's own record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its id.
    pub id: ItemId,
    /// The speculative state this record is about; older than the slot's means that a reset has
    /// still to be carried out.
    pub generation: u64,
    /// Counts the times it was written; the head names the version that it goes with.
    #[serde(default)]
    pub version: u64,
    /// The layout its question was asked under and its jobs are frozen under, 0 before.
    pub layout: u64,
    /// The tree of its branch that its builds are given; a re-frozen item keeps builds only while
    /// this stays the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested_tree: Option<Oid>,
    /// The change with what people want to read of it.
    pub candidate: Candidate,
    /// The event that led here.
    pub event_id: String,
    /// When it was admitted.
    pub admitted_at: Timestamp,
    /// Where the question for its tested state stands.
    pub ask: Ask,
    /// Its jobs in configuration order.
    pub jobs: Vec<Job>,
    /// Whether "jobs start" was reported: it is when the jobs are known and there is one.
    pub start_reported: bool,
    /// When its first job was ordered.
    pub first_job_at: Option<Timestamp>,
    /// What was decided about it and why, newest last.
    pub reasons: Vec<String>,
    /// Every build it ever had, for the record of the buildset.
    pub builds: Vec<BuildId>,
    /// The commit by which it is in its branch, once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<Oid>,
    /// How far it is with what follows its success, where its jobs that run after the reports keep
    /// it in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reporting: Option<Reporting>,
    /// How often a landing of it found its branch moved by others, since the branch was kept for it
    /// last ([`crate::turn::KeptFor`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overtaken: u32,
    /// Whether a forge was asked to merge it by a landing that ended without that
    /// ([`crate::Landing::tried`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tried: bool,
}

/// What follows an item's success while it stays in its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reporting {
    /// Since when it has succeeded.
    pub since: Timestamp,
    /// The report that its jobs wait for; `None` once it is made, or where no forge is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
}

/// Where the question for an item's tested state stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Not asked: outside the window, or the item ahead has no state yet.
    No,
    /// Asked; the merger starts from the state of the item ahead, if any.
    Asked {
        /// When, the last time.
        at: Timestamp,
        /// When it was asked first; `None` where that was the last time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// Whose state it starts from, by the key of that outcome.
        onto: Option<Onto>,
        /// Of what its change needs, what is in its branch by now, whatever became of that there
        /// since: it is not put on the state.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        landed: Vec<ChangeKey>,
    },
    /// Answered.
    Merged(Merged),
    /// There is none.
    Unmergeable {
        /// Why, for the report.
        why: String,
        /// Whether the configuration is wrong; otherwise it does not merge.
        configuration: bool,
        /// What is said beside lines of the change's own files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<LineNote>,
    },
}

/// The tested state that another one starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Onto {
    /// The item ahead.
    pub item: ItemId,
    /// Its speculative state.
    pub generation: u64,
    /// The object that holds its [`sluice_model::build::Speculation`].
    pub speculation: String,
}

/// One job of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What is known of the job.
    pub summary: JobSummary,
    /// Attempts begun.
    pub attempt: u32,
    /// The build of the newest attempt.
    pub build: Option<BuildId>,
    /// The row of its node request and the provider, while it may still be withdrawn.
    pub request: Option<sluice_model::build::RequestRef>,
    /// Where it stands.
    pub status: JobStatus,
    /// What it waits for besides the jobs before it and its nodes, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// When it asked first for the semaphores that it waits for: its place in line. One that takes
    /// them with its nodes in hand asked when it asked for the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// When its build was sent to the executors by its queue, which waited for its nodes and took
    /// its semaphores then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// How often its build was sent once more by its queue, since nobody had claimed it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent_again: u32,
    /// Which of its nodesets is asked for, from 0: those before it cannot be had.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alternative: u32,
    /// Whether it gave nodes back that it had before its semaphores: from then on it takes those
    /// first, whatever it says itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub semaphores_first: bool,
    /// What the build that ended told about the change.
    #[serde(default, skip_serializing_if = "Told::is_empty")]
    pub told: Told,
    /// Whether its build is one that another change of the cycle ordered: the files that it speaks
    /// of may be that one's alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
    /// Which of the jobs right behind it its build had run (`zuul.child_jobs`), where another
    /// change that takes the build over may have others there. `None` where it said nothing of
    /// that, or there was no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Vec<JobName>>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What keeps a job from being ordered whose dependencies are met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// A place at the semaphore of this name.
    Semaphore(String),
    /// A job of a change ahead that provides what it requires.
    Requirements(Vec<String>),
    /// A job of a change ahead that holds those behind it back until it has succeeded
    /// (`hold-following-changes`).
    Ahead(JobName),
}

impl fmt::Display for WaitsFor {
    /// Writes it as Zuul's `waiting_status`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Semaphore(name) => write!(f, "semaphores: {name}"),
            Self::Requirements(names) => write!(f, "requirements: {}", names.join(", ")),
            Self::Ahead(job) => write!(f, "job of a change ahead: {job}"),
        }
    }
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobStatus {
    /// It waits for other jobs, or to be ordered.
    Waiting,
    /// It was ordered; nodes or an executor are awaited.
    Ordered {
        /// When.
        at: Timestamp,
    },
    /// An executor has it.
    Running {
        /// When it claimed it.
        started_at: Option<Timestamp>,
        /// Whether it is known by now that it will fail: what is behind the change need not wait
        /// for the end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pre_fail: bool,
    },
    /// Its executor keeps it and its nodes until the jobs behind it are over.
    Paused {
        /// When it was claimed.
        started_at: Option<Timestamp>,
        /// Whether it was told to go on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        resumed: bool,
    },
    /// Over.
    Ended {
        /// How.
        result: BuildResult,
        /// Why, where the word is not enough.
        detail: Option<String>,
        /// When its first playbook started.
        started_at: Option<Timestamp>,
        /// When it ended.
        ended_at: Timestamp,
        /// Where its logs are.
        log_url: Option<String>,
    },
}

impl Job {
    /// Returns a job nobody has ordered.
    pub fn new(summary: JobSummary) -> Self {
        let status = JobStatus::Waiting;
        Self {
            summary,
            attempt: 0,
            build: None,
            request: None,
            status,
            waits_for: None,
            asked_at: None,
            sent_at: None,
            sent_again: 0,
            alternative: 0,
            semaphores_first: false,
            told: Told::default(),
            taken_over: false,
            chosen: None,
        }
    }

    /// Returns its result, once it has one.
    pub fn result(&self) -> Option<BuildResult> {
        match &self.status {
            JobStatus::Ended { result, .. } => Some(*result),
            _ => None,
        }
    }

    /// Returns whether a build of it is under way.
    pub fn is_under_way(&self) -> bool {
        matches!(
            self.status,
            JobStatus::Ordered { .. } | JobStatus::Running { .. } | JobStatus::Paused { .. }
        )
    }

    /// Returns whether it takes its semaphores when it has its nodes, and not before it asks for
    /// them. One that says so of one semaphore takes all of them then: nobody waits for one while
    /// he holds another. One that had to give its nodes back does so no more.
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

    /// Has the attempt that was ordered and that nobody began wait anew, to take its semaphores
    /// before it asks for nodes.
    pub fn begin_with_semaphores(&mut self) {
        (self.build, self.request, self.waits_for) = (None, None, None);
        self.attempt = self.attempt.saturating_sub(1);
        self.status = JobStatus::Waiting;
        self.semaphores_first = true;
    }

    /// Returns whether its build is paused, so that the jobs behind it may run.
    pub fn is_paused(&self) -> bool {
        matches!(self.status, JobStatus::Paused { .. })
    }

    /// Returns whether jobs that need it to succeed may run, as far as it goes.
    pub fn is_served(&self) -> bool {
        self.is_paused() || self.result().is_some_and(BuildResult::passed)
    }

    /// Returns whether it keeps the change out: it ended that way, or is known to. What runs after
    /// the reports never does.
    pub fn fails_item(&self) -> bool {
        let fails = match &self.status {
            JobStatus::Ended { .. } => self.has_failed(),
            JobStatus::Running { pre_fail, .. } => *pre_fail,
            JobStatus::Waiting | JobStatus::Ordered { .. } | JobStatus::Paused { .. } => false,
        };
        self.summary.voting && !self.summary.reporter && fails
    }

    /// Returns whether it was run and did not pass.
    pub fn has_failed(&self) -> bool {
        self.result().is_some_and(|result| !result.passed() && result != BuildResult::Skipped)
    }
}

impl Item {
    /// Returns the item for a candidate that was just admitted.
    pub fn admitted(slot: &Slot, candidate: Candidate, event_id: &str, now: Timestamp) -> Self {
        Self {
            id: slot.id.clone(),
            generation: slot.generation,
            version: 0,
            layout: 0,
            tested_tree: None,
            candidate,
            event_id: event_id.to_owned(),
            admitted_at: now,
            ask: Ask::No,
            jobs: Vec::new(),
            start_reported: false,
            first_job_at: None,
            reasons: Vec::new(),
            builds: Vec::new(),
            landed: None,
            reporting: None,
            overtaken: 0,
            tried: false,
        }
    }

    /// Remembers why something was decided, in at most [`REASON_BYTES_MAX`].
    pub fn note(&mut self, reason: impl Into<String>) {
        let reason = cut(&reason.into(), REASON_BYTES_MAX);
        if self.reasons.last() == Some(&reason) {
            return;
        }
        self.reasons.push(reason);
        if self.reasons.len() > REASONS_MAX {
            self.reasons.remove(0);
        }
    }

    /// Returns whether anything was asked about it, or ordered for it, in the speculative state
    /// that its record is about.
    pub fn was_asked(&self) -> bool {
        self.ask != Ask::No || self.layout != 0 || !self.jobs.is_empty()
    }

    /// Returns its tested state, once known.
    pub fn merged(&self) -> Option<&Merged> {
        match &self.ask {
            Ask::Merged(merged) => Some(merged),
            _ => None,
        }
    }

    /// Returns whether it is known that it will not pass as it is tested now.
    pub fn is_failing(&self) -> bool {
        matches!(self.ask, Ask::Unmergeable { .. }) || self.jobs.iter().any(Job::fails_item)
    }

    /// Returns the job that keeps changes behind this one from starting theirs, if one does.
    pub fn holds_following(&self) -> Option<&Job> {
        let holds = |job: &&Job| {
            job.summary.hold_following_changes && !job.result().is_some_and(BuildResult::passed)
        };
        self.jobs.iter().find(holds)
    }

    /// Returns whether nothing more is to be awaited of the jobs that decide about it.
    pub fn is_complete(&self) -> bool {
        match &self.ask {
            Ask::Unmergeable { .. } => true,
            Ask::Merged(_) => self.reported_jobs().all(|job| job.result().is_some()),
            Ask::No | Ask::Asked { .. } => false,
        }
    }

    /// Returns the jobs whose results are reported.
    pub fn reported_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| !job.summary.reporter)
    }

    /// Returns whether a job is still to run, or runs, that comes after its reports.
    pub fn has_reporters_left(&self) -> bool {
        self.jobs.iter().any(|job| job.summary.reporter && job.result().is_none())
    }
}
