//! What is told to whom: the texts of reports, and the actions that carry them to a forge.
//!
//! Names in messages are filled in by [`words`]; what is done to changes is in [`github`] and [`gerrit`], mail and MQTT in [`notify`] and
//! [`published`].

mod gerrit;
mod github;
mod notify;
pub mod published;
mod words;

use crate::arrival::{Arrival, Candidate};
use crate::filter;
use crate::item::{Ask, Item, Job, JobStatus};
use crate::merge::LineNote;
use crate::plan::Work;
use github::github_actions;
use notify::Told;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::{Messages, Pipeline, Reporter, ReporterKind};
use sluice_model::change::ChangeRef;
use sluice_model::id::digest;
use sluice_model::{ConnectionName, ItemId, QueueKey, Timestamp};
use std::collections::BTreeMap;
use words::Words;

/// The longest comment; what is longer is cut with a note (GitHub takes 65,536 characters).
pub const COMMENT_CHARS_MAX: usize = 30_000;

/// A report to make. The gate writes it once; the reporter finishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its id: the same decision makes the same report.
    pub id: String,
    /// The item it is about.
    pub item: ItemId,
    /// The queue it comes from.
    pub queue: QueueKey,
    /// The change it is about.
    pub change: ChangeRef,
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// When it was wanted.
    pub wanted_at: Timestamp,
    /// Whether its queue waits for its end, and is told of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
    /// How far it is.
    pub state: ReportState,
}

impl Report {
    /// Returns whether it tells that the work on an item begins. Whatever is told at the end makes it untrue.
    pub fn is_start(&self) -> bool {
        self.id == Self::start_id(&self.item)
    }

    /// Returns whether it tells that an item entered. Whatever is told at the end makes that untrue as well.
    pub fn is_enqueue(&self) -> bool {
        self.id == Self::enqueue_id(&self.item)
    }

    /// Returns the id of the report that tells that an item entered.
    pub fn enqueue_id(item: &ItemId) -> String {
        id_of(item, Occasion::Enqueue)
    }

    /// Returns the ids that reports on an item's end may have; few of them are ever made.
    pub fn end_ids(item: &ItemId) -> Vec<String> {
        Occasion::ENDS.into_iter().map(|end| id_of(item, end)).collect()
    }

    /// Returns the id of the report that tells that the work on an item begins.
    pub fn start_id(item: &ItemId) -> String {
        id_of(item, Occasion::Start)
    }
}

fn id_of(item: &ItemId, occasion: Occasion) -> String {
    digest(&[item.as_str(), occasion.word()])
}

/// How far a report is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportState {
    /// Not made yet.
    Wanted,
    /// Made.
    Made {
        /// When.
        at: Timestamp,
    },
    /// Not made: it was no longer true when its turn came.
    Dropped {
        /// What had happened by then.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// The forge refuses it for good.
    Refused {
        /// Its words.
        why: String,
        /// When.
        at: Timestamp,
    },
}

/// One effect. On a forge each has its effect once, however often it is tried; mail and MQTT are sent at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Sets a commit status on the change's head.
    Status {
        /// The connection.
        connection: ConnectionName,
        /// `tenant/pipeline`.
        context: String,
        /// `pending`, `success` or `failure`.
        state: String,
        /// One line.
        description: String,
        /// Where it points to.
        url: String,
    },
    /// Sets a check run on the change's head.
    Check {
        /// The connection.
        connection: ConnectionName,
        /// `tenant/pipeline`.
        name: String,
        /// `queued`, `in_progress`, or how it ended: `success`, `failure`, `cancelled`, `skipped`, `neutral`.
        state: String,
        /// One line.
        title: String,
        /// The whole text.
        summary: String,
        /// Where it points to.
        url: String,
    },
    /// Leaves a comment, once for this marker.
    Comment {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the comment so that a repeat finds it.
        marker: String,
        /// The text.
        body: String,
    },
    /// Comments on lines of the change, once for this marker. A forge may refuse lines that the change does not touch.
    Lines {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the review so that a repeat finds it.
        marker: String,
        /// What stands above the comments.
        body: String,
        /// What is said beside which lines.
        notes: Vec<LineNote>,
        /// Whether it is said in a comment of its own where the forge refuses the lines: no other comment says it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        or_comment: bool,
    },
    /// Leaves a review, once for this marker.
    Review {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the review so that a repeat finds it.
        marker: String,
        /// `approve`, `request-changes` or `comment`.
        verdict: String,
        /// The text.
        body: String,
    },
    /// Votes on a patchset and says why, in one review in Gerrit's way, once for this marker.
    Vote {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the message so that a repeat finds it.
        marker: String,
        /// Labels with the values to vote; none where nothing but the message is left.
        votes: BTreeMap<String, i64>,
        /// The text; `None` where nothing is to be said.
        body: Option<String>,
        /// Who is told by mail: `NONE`, `OWNER`, `OWNER_REVIEWERS` or `ALL`; `None` leaves it to the forge.
        notify: Option<String>,
        /// By which people tell it from what people say: `autogenerated:zuul:check`.
        tag: String,
    },
    /// Puts labels on and takes labels off.
    Labels {
        /// The connection.
        connection: ConnectionName,
        /// To put on.
        add: Vec<String>,
        /// To take off.
        remove: Vec<String>,
    },
    /// Sends a mail, at least once.
    Mail {
        /// The connection.
        connection: ConnectionName,
        /// The mail's id, the same for every attempt.
        id: String,
        /// The sender; `None` for the connection's.
        from: Option<String>,
        /// The receivers; `None` for the connection's.
        to: Option<String>,
        /// The subject.
        subject: String,
        /// The text.
        text: String,
    },
    /// Publishes to an MQTT broker, at least once; whoever does it adds what is known of the builds by then.
    Publish {
        /// The connection.
        connection: ConnectionName,
        /// The message's id, the same for every attempt.
        id: String,
        /// The topic, filled in.
        topic: String,
        /// Quality of service.
        qos: u8,
        /// Whether what jobs returned goes along.
        returned: bool,
        /// The reporter's word: `start`, `success`, `failure` …
        occasion: String,
        /// The address of the pages.
        web_root: String,
        /// The text.
        text: String,
    },
}

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    Enqueue,
    Start,
    Success,
    Failure,
    MergeConflict,
    MergeFailure,
    ConfigError,
    NeedFailed,
    /// One of the changes that need each other failed.
    CycleFailed,
    NoJobs,
    Dequeue,
    /// It no longer meets what the pipeline asks for, or what its forge does.
    Unmergeable,
    /// The same revision goes on as another item, which is told of: nothing is said about this one.
    Superseded,
    Refused,
}

impl Occasion {
    /// Those that tell that an item which stood in a queue has left it.
    const ENDS: [Self; 10] = [
        Self::Success,
        Self::Failure,
        Self::MergeConflict,
        Self::MergeFailure,
        Self::ConfigError,
        Self::NeedFailed,
        Self::CycleFailed,
        Self::NoJobs,
        Self::Dequeue,
        Self::Unmergeable,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Start => "start",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::MergeConflict => "merge-conflict",
            Self::MergeFailure => "merge-failure",
            Self::ConfigError => "config-error",
            Self::NeedFailed => "need-failed",
            Self::CycleFailed => "cycle-failed",
            Self::NoJobs => "no-jobs",
            Self::Dequeue => "dequeue",
            Self::Unmergeable => "unmergeable",
            Self::Superseded => "superseded",
            Self::Refused => "refused",
        }
    }

    /// Returns the word of the reporters that it is told by, as the configuration has them.
    fn reporter(self) -> &'static str {
        match self {
            Self::MergeFailure | Self::NeedFailed | Self::CycleFailed | Self::Unmergeable | Self::Refused => "failure",
            Self::Superseded => "dequeue",
            other => other.word(),
        }
    }

    /// Whether it tells of something that goes on.
    fn is_beginning(self) -> bool {
        matches!(self, Self::Enqueue | Self::Start)
    }

    /// Whether it tells how it ended, rather than that it begins or was taken out.
    fn is_result(self) -> bool {
        !self.is_beginning() && !matches!(self, Self::Dequeue | Self::Superseded)
    }

    fn reporters(self, pipeline: &Pipeline) -> &[Reporter] {
        let reporters = &pipeline.reporters;
        let or_failure = |own: &'_ [Reporter]| own.is_empty();
        match self {
            Self::Enqueue => &reporters.enqueue,
            Self::Start => &reporters.start,
            Self::Success => &reporters.success,
            Self::MergeConflict if !or_failure(&reporters.merge_conflict) => &reporters.merge_conflict,
            Self::ConfigError if !or_failure(&reporters.config_error) => &reporters.config_error,
            Self::Failure
            | Self::MergeConflict
            | Self::MergeFailure
            | Self::ConfigError
            | Self::NeedFailed
            | Self::CycleFailed
            | Self::Unmergeable
            | Self::Refused => &reporters.failure,
            Self::NoJobs => &reporters.no_jobs,
            Self::Dequeue => &reporters.dequeue,
            Self::Superseded => &[],
        }
    }

    fn headline(self, messages: &Messages, words: &Words<'_>, why: &str) -> String {
        match self {
            Self::Enqueue => words.fill(&messages.enqueue),
            Self::Start => words.fill(&messages.start),
            Self::Success => messages.success.clone(),
            Self::Failure => messages.failure.clone(),
            Self::MergeConflict => format!("{}\n\n{why}", messages.merge_conflict),
            Self::MergeFailure => {
                format!("{}\n\nThe forge did not merge it: {why}", messages.failure)
            }
            Self::ConfigError => format!("{}\n\n{why}", messages.failure),
            Self::NeedFailed | Self::CycleFailed | Self::Refused => format!("{}\n\n{why}", messages.failure),
            Self::NoJobs => words.fill(&messages.no_jobs),
            Self::Dequeue => format!("{}\n\n{why}", messages.dequeue),
            Self::Unmergeable => why.to_owned(),
            Self::Superseded => String::new(),
        }
    }

    /// Returns how a change leaves that is taken out for this reason.
    pub(crate) fn of_leaving(why: &str) -> Self {
        if filter::is_unable_to_merge(why) { Self::Unmergeable } else { Self::Dequeue }
    }
}

impl Work<'_> {
    /// Returns the report on an item, or `None` when the pipeline tells nobody.
    pub(crate) fn report_item(&self, item: &Item, occasion: Occasion, why: &str) -> Option<Report> {
        let pipeline = self.snapshot.pipeline?;
        let page = self.page(item.id.as_str());
        let (change, url) = (&item.candidate.change, item.candidate.url.as_str());
        let words = Words { queue: &self.head.key, pipeline, change, url, page: &page };
        let mut text = occasion.headline(&pipeline.messages, &words, why);
        if !occasion.is_beginning() && !item.jobs.is_empty() {
            text.push_str(&format!("\n{page}\n\n"));
            text.extend(item.reported_jobs().map(|job| job_line(job, self.now)));
            text.push_str(&warnings(&item.jobs));
        }
        let debug = item.merged().map(|merged| merged.debug.as_slice()).unwrap_or_default();
        if occasion != Occasion::Start && !debug.is_empty() {
            // Indented, so that a forge shows it as it is.
            text.push_str("\nHow the jobs were decided:\n\n");
            text.extend(debug.iter().map(|line| format!("    {line}\n")));
        }
        let report = self.report(&words, occasion, &item.id, &text);
        match &item.ask {
            Ask::Unmergeable { notes, .. } if !notes.is_empty() => {
                report.map(|report| with_notes(report, "The configuration has errors.", notes.clone(), false))
            }
            _ if occasion.is_beginning() => report,
            _ => report.map(|report| with_notes(report, "What jobs say of these lines.", notes_of(&item.jobs), true)),
        }
    }

    /// Returns the report on a change that could not even be enqueued.
    pub(crate) fn report_refusal(&self, candidate: &Candidate, arrival: &Arrival, why: &str) -> Option<Report> {
        let pipeline = self.snapshot.pipeline?;
        let id = crate::plan::item_id(&self.head, &candidate.change, arrival);
        let (change, url, page) = (&candidate.change, candidate.url.as_str(), self.snapshot.web_root.as_str());
        let words = Words { queue: &self.head.key, pipeline, change, url, page };
        let text = Occasion::Refused.headline(&pipeline.messages, &words, why);
        self.report(&words, Occasion::Refused, &id, &text)
    }

    fn page(&self, item: &str) -> String {
        format!("{}t/{}/buildset/{item}", self.snapshot.web_root, self.head.key.tenant)
    }

    fn report(&self, words: &Words<'_>, occasion: Occasion, item: &ItemId, text: &str) -> Option<Report> {
        let Words { pipeline, change, page, .. } = *words;
        let mut text = text.trim_end().to_owned();
        if let Some(footer) = &pipeline.messages.footer {
            text.push_str(&format!("\n\n{footer}"));
        }
        let context = format!("{}/{}", self.head.key.tenant, pipeline.name);
        let id = id_of(item, occasion);
        let mut actions = Vec::new();
        let (reporters, word) = match self.health.as_ref().is_some_and(|health| health.disabled) {
            false => (occasion.reporters(pipeline), occasion.reporter()),
            true if occasion.is_result() => (pipeline.reporters.disabled.as_slice(), "disabled"),
            true => return None,
        };
        let told = Told { occasion: word, words, id: &id, web_root: &self.snapshot.web_root, text: &text };
        for (at, reporter) in reporters.iter().enumerate() {
            match &reporter.kind {
                ReporterKind::GitHub(github) if reporter.connection == change.key.connection => {
                    github_actions(&mut actions, github, &reporter.connection, &context, occasion, &text, page, &id);
                }
                ReporterKind::Gerrit(gerrit) if reporter.connection == change.key.connection => {
                    actions.extend(gerrit::review(gerrit, &reporter.connection, pipeline.name.as_str(), &text, &id));
                }
                _ => actions.extend(told.action(reporter, at)),
            }
        }
        actions.retain(|action| is_possible(action, change));
        notify::fit(&mut actions);
        (!actions.is_empty()).then(|| Report {
            id,
            item: item.clone(),
            queue: self.head.key.clone(),
            change: change.clone(),
            actions,
            wanted_at: self.now,
            awaited: false,
            state: ReportState::Wanted,
        })
    }
}

/// Returns whether there is somewhere to do it: of a ref only the commit that it is at can be told of.
fn is_possible(action: &Action, change: &ChangeRef) -> bool {
    match change.key.moved() {
        None => true,
        Some(moved) => action.is_message() || (moved.newrev.is_some() && matches!(action, Action::Status { .. })),
    }
}

/// Adds comments on lines for whoever is told by a comment, or by a check run where they would be annotations.
fn with_notes(mut report: Report, body: &str, notes: Vec<LineNote>, or_comment: bool) -> Report {
    let connection = report.actions.iter().find_map(|action| match action {
        Action::Comment { connection, .. }
        | Action::Check { connection, .. }
        | Action::Vote { connection, body: Some(_), .. } => Some(connection.clone()),
        _ => None,
    });
    if let Some(connection) = connection.filter(|_| !notes.is_empty() && report.change.key.number().is_some()) {
        let (marker, body) = (format!("{}/lines", report.id), body.to_owned());
        report.actions.push(Action::Lines { connection, marker, body, notes, or_comment });
    }
    report
}

/// Returns what jobs say beside lines, each with the job that says it.
fn notes_of(jobs: &[Job]) -> Vec<LineNote> {
    let of = |job: &Job| {
        let name = job.summary.name.clone();
        job.told.notes.clone().into_iter().map(move |note| LineNote { text: format!("{name}: {}", note.text), ..note })
    };
    jobs.iter().flat_map(of).collect()
}

/// Returns the warnings of jobs as a paragraph, or nothing.
fn warnings(jobs: &[Job]) -> String {
    let of = |job: &Job| {
        let name = &job.summary.name;
        let mut lines: Vec<String> = job.told.warnings.iter().map(|text| format!("- {name} : {text}\n")).collect();
        if job.told.left_out > 0 {
            lines.push(format!("- {name} : {} more, which it returned and nobody has room for\n", job.told.left_out));
        }
        lines
    };
    let lines: String = jobs.iter().flat_map(of).collect();
    if lines.is_empty() { lines } else { format!("\nWarnings:\n\n{lines}") }
}

fn job_line(job: &Job, now: Timestamp) -> String {
    let JobStatus::Ended { result, detail, started_at, ended_at, log_url } = &job.status else {
        return format!("- {} : in progress\n", job.summary.name);
    };
    let own = if result.passed() { &job.summary.success_url } else { &job.summary.failure_url };
    let name = match link(own.as_deref(), log_url.as_deref()) {
        Some(url) => format!("[{}]({url})", job.summary.name),
        None => job.summary.name.to_string(),
    };
    let message = match (result.passed(), &job.summary.success_message, &job.summary.failure_message) {
        (true, Some(message), _) | (false, _, Some(message)) => message.clone(),
        _ => result.to_string(),
    };
    let ended = if *ended_at == Timestamp(0) { now } else { *ended_at };
    let took = started_at.map(|started| format!(" in {}", duration(ended.since(started) / 1_000))).unwrap_or_default();
    let voting = if job.summary.voting { "" } else { " (non-voting)" };
    let detail = detail.as_ref().filter(|_| !result.passed()).map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!("- {name} : {message}{took}{voting}{detail}\n")
}

/// Returns where a job's line points to: what the job says, within its logs where that is relative, else its logs.
fn link(own: Option<&str>, log_url: Option<&str>) -> Option<String> {
    match (own, log_url) {
        (Some(own), _) if own.contains("://") => Some(own.to_owned()),
        (Some(own), Some(logs)) => Some(format!("{}/{}", logs.trim_end_matches('/'), own.trim_start_matches('/'))),
        (_, logs) => logs.map(str::to_owned),
    }
}

fn duration(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s:02}s"),
        (h, m, s) => format!("{h}h {m:02}m {s:02}s"),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= COMMENT_CHARS_MAX {
        return text.to_owned();
    }
    let kept: String = text.chars().take(COMMENT_CHARS_MAX).collect();
    format!("{kept}\n\n… cut; the whole report is on the page of the buildset.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::build::BuildResult;
    use sluice_model::job::JobSummary;

    fn line(result: BuildResult, log_url: Option<&str>, summary: &str) -> String {
        let mut text: serde_json::Value = serde_json::from_str(summary).unwrap();
        for (key, value) in [("name", "unit".into()), ("hash", "h".into()), ("voting", true.into())] {
            text[key] = value;
        }
        text["attempts"] = 1.into();
        text["labels"] = serde_json::json!([]);
        let summary: JobSummary = serde_json::from_value(text).unwrap();
        let (started_at, ended_at) = (Some(Timestamp(1_000)), Timestamp(66_000));
        let log_url = log_url.map(str::to_owned);
        let status = JobStatus::Ended { result, detail: None, started_at, ended_at, log_url };
        job_line(&Job { status, ..Job::new(summary) }, Timestamp(66_000))
    }

    /// R05: a job's own words stand in the place of its result, each for its case.
    #[test]
    fn a_jobs_messages_are_told_in_the_place_of_its_result() {
        let words = r#"{"success_message": "all is well", "failure_message": "see the wiki"}"#;
        assert_eq!(line(BuildResult::Success, None, words), "- unit : all is well in 1m 05s\n");
        assert_eq!(line(BuildResult::TimedOut, None, words), "- unit : see the wiki in 1m 05s\n");
        assert_eq!(line(BuildResult::Failure, None, "{}"), "- unit : FAILURE in 1m 05s\n");
    }

    /// R05: a job's own address is told for its case; a relative one lies within the logs.
    #[test]
    fn a_jobs_addresses_are_told_in_the_place_of_its_logs() {
        let own = r#"{"success_url": "docs/index.html", "failure_url": "https://wiki/broken"}"#;
        let logs = Some("https://logs/1/");
        assert!(line(BuildResult::Success, logs, own).starts_with("- [unit](https://logs/1/docs/index.html) :"));
        assert!(line(BuildResult::Failure, logs, own).starts_with("- [unit](https://wiki/broken) :"));
        assert!(line(BuildResult::Success, None, own).starts_with("- unit :"));
        assert!(line(BuildResult::Failure, None, own).starts_with("- [unit](https://wiki/broken) :"));
        assert!(line(BuildResult::Success, logs, "{}").starts_with("- [unit](https://logs/1/) :"));
    }
}
