//! Reports: their texts and the actions that deliver them to forges, mail and MQTT.
//!
//! [`message_template`] fills in names in messages, and [`jobs`] formats jobs; [`neutral_text`]
//! keeps texts of jobs from acting as markup. [`github`] and [`gerrit`] make the actions on
//! changes, [`notify`] and [`mqtt_payload`] those for mail and MQTT.

mod gerrit;
mod github;
mod jobs;
mod message_template;
pub mod mqtt_payload;
mod neutral_text;
mod notify;
mod occasion;

pub(crate) use occasion::Occasion;

use crate::inbox::{Candidate, InboxMessage};
use crate::item::{Item, MergeStatus};
use crate::merge::LineNote;
use crate::plan::Planner;
use github::github_actions;
use jobs::{job_line, notes_of, warnings};
use message_template::MessageContext;
use notify::ReportMessage;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::{GitHubReporter, Pipeline, ReporterKind};
use sluice_model::change::ChangeRef;
use sluice_model::id::digest;
use sluice_model::{BuildId, ConnectionName, ItemId, QueueKey, Timestamp};
use std::collections::BTreeMap;

/// The most characters of a comment. A longer one is cut and gets a further line that says so
/// (GitHub's limit is 65,536).
pub const COMMENT_CHARS_MAX: usize = 30_000;

/// A report to send. The gate writes it once; the reporter sends it and records the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The id, derived from the item and the occasion, so that the same decision makes the same
    /// report.
    pub id: String,
    /// The item.
    pub item: ItemId,
    /// The item's queue.
    pub queue: QueueKey,
    /// The item's change.
    pub change: ChangeRef,
    /// The actions, in order.
    pub actions: Vec<ReportAction>,
    /// When the gate wrote it.
    pub requested_at: Timestamp,
    /// Whether the queue waits for its result and has to be notified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
    /// For a report that was delivered to several reporters: the time, by each forge's clock, from
    /// which none of them can still send it. Empty where it was delivered once or the forge does
    /// not send its time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub duplicates_end_at: BTreeMap<ConnectionName, Timestamp>,
    /// The progress of the report.
    pub state: ReportState,
}

impl Report {
    /// Returns whether it is a start report. A report about the item's end makes it obsolete.
    pub fn is_start(&self) -> bool {
        self.id == Self::start_id(&self.item)
    }

    /// Returns whether it is an enqueue report. A report about the item's end makes it obsolete.
    pub fn is_enqueue(&self) -> bool {
        self.id == Self::enqueue_id(&self.item)
    }

    /// Returns the id of an item's enqueue report.
    pub fn enqueue_id(item: &ItemId) -> String {
        id_of(item, Occasion::Enqueue)
    }

    /// Returns the ids that reports on an item's end may have. Usually only one of them exists. The
    /// report on a refused change is not among them.
    pub fn end_ids(item: &ItemId) -> Vec<String> {
        Occasion::ENDS.into_iter().map(|end| id_of(item, end)).collect()
    }

    /// Returns the id of an item's start report.
    pub fn start_id(item: &ItemId) -> String {
        id_of(item, Occasion::Start)
    }
}

/// Returns the id of the report on an item for an occasion.
fn id_of(item: &ItemId, occasion: Occasion) -> String {
    digest(&[item.as_str(), occasion.name()])
}

/// The progress of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportState {
    /// Not sent yet.
    Pending,
    /// Sent.
    Made {
        /// When.
        at: Timestamp,
    },
    /// Not sent, because it was obsolete.
    Dropped {
        /// Why it was obsolete.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// Refused permanently by the forge or another receiver.
    Refused {
        /// The forge's error.
        why: String,
        /// When.
        at: Timestamp,
    },
}

/// One action of a report. On a forge each takes effect once, even if it is repeated. Mail and MQTT
/// messages are sent at least once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportAction {
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
        /// The address that it links to.
        url: String,
    },
    /// Sets a check run on the change's head.
    Check {
        /// The connection.
        connection: ConnectionName,
        /// `tenant/pipeline`.
        name: String,
        /// `queued`, `in_progress`, or how it ended: `success`, `failure`, `cancelled`, `skipped`,
        /// `neutral`.
        state: String,
        /// One line.
        title: String,
        /// The whole text.
        summary: String,
        /// The address that it links to.
        url: String,
    },
    /// Adds a comment, once per marker.
    Comment {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the comment, so that a retry finds it.
        marker: String,
        /// The text.
        body: String,
    },
    /// Comments on lines of the change, once per marker. A forge may refuse lines that the change
    /// does not touch.
    Lines {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the review, so that a retry finds it.
        marker: String,
        /// The text above the comments.
        body: String,
        /// The comments.
        notes: Vec<LineNote>,
        /// Comments of builds that other bundle members ordered. Only those on files that this
        /// change touches are posted; the others are in those members' reports.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        shared_build_notes: Vec<LineNote>,
        /// Whether the comments are posted as one plain comment where the forge refuses the lines
        /// and no other comment contains them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fallback_to_comment: bool,
    },
    /// Adds a review, once per marker.
    Review {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the review, so that a retry finds it.
        marker: String,
        /// `approve`, `request-changes` or `comment`.
        kind: String,
        /// The text.
        body: String,
    },
    /// Votes on a patchset with a message, in one Gerrit review, once per marker.
    Vote {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the message, so that a retry finds it.
        marker: String,
        /// The votes by label; empty for a message alone.
        votes: BTreeMap<String, i64>,
        /// The text; `None` for votes alone.
        body: Option<String>,
        /// Who gets a mail: `NONE`, `OWNER`, `OWNER_REVIEWERS` or `ALL`; `None` for the forge's
        /// default.
        notify: Option<String>,
        /// The tag that marks an automatic message: `autogenerated:zuul:check`.
        tag: String,
    },
    /// Adds and removes labels.
    Labels {
        /// The connection.
        connection: ConnectionName,
        /// The labels to add.
        add: Vec<String>,
        /// The labels to remove.
        remove: Vec<String>,
    },
    /// Sends a mail at least once.
    Mail {
        /// The connection.
        connection: ConnectionName,
        /// The mail's id, the same in every attempt.
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
    /// Publishes to an MQTT broker at least once. The reporter adds the current facts about the
    /// builds.
    Publish {
        /// The connection.
        connection: ConnectionName,
        /// The message's id, the same in every attempt.
        id: String,
        /// The topic with its names replaced.
        topic: String,
        /// Quality of service.
        qos: u8,
        /// Whether the data that jobs returned is included.
        returned: bool,
        /// The name of the occasion: `start`, `success`, `failure` …
        occasion: String,
        /// The address of Sluice's pages.
        web_root: String,
        /// The text.
        text: String,
    },
}

impl Planner<'_> {
    /// Returns the report on an item: the message for the occasion with `why` and, for its end, its
    /// jobs and their line comments, or those on an invalid configuration. With `debug` it says how
    /// the jobs were selected. Sends and records nothing. `None` where the pipeline is unknown, and
    /// where none of its reporters has an action for the occasion that is possible on the change. A
    /// disabled pipeline reports only results, with its `disabled` reporters.
    pub(crate) fn report_item(&self, item: &Item, occasion: Occasion, why: &str) -> Option<Report> {
        let pipeline = self.snapshot.pipeline?;
        let page = self.page(item.id.as_str());
        let (change, url) = (&item.candidate.change, item.candidate.url.as_str());
        let words = MessageContext { queue: &self.head.key, pipeline, change, url, page: &page };
        let mut text = occasion.headline(&pipeline.messages, &words, why);
        if !occasion.is_beginning() && !item.jobs.is_empty() {
            text.push_str(&format!("\nPipeline {}: {page}\n\n", pipeline.name));
            let build_page = |build: &BuildId| self.build_page(build);
            text.extend(item.reported_jobs().map(|job| job_line(job, self.now, build_page)));
            text.push_str(&warnings(&item.jobs));
        }
        let of_configuration = item.merged().map(|merged| merged.warnings.as_slice());
        if let Some(found @ [_, ..]) = of_configuration.filter(|_| !occasion.is_beginning()) {
            text.push_str("\nWarnings about the configuration:\n\n");
            text.extend(found.iter().map(|warning| format!("- {warning}\n")));
        }
        let debug = item.merged().map(|merged| merged.debug.as_slice()).unwrap_or_default();
        if occasion != Occasion::Start && !debug.is_empty() {
            // Indented, so that a forge shows it as it is.
            text.push_str("\nHow the jobs were selected:\n\n");
            text.extend(debug.iter().map(|line| format!("    {line}\n")));
        }
        let report = self.report(&words, occasion, &item.id, &text);
        match &item.merge_status {
            MergeStatus::Unmergeable { notes, .. } if !notes.is_empty() => {
                let body = "The configuration has errors.";
                report.map(|report| {
                    with_notes(report, body, notes.clone(), Vec::new(), OrComment::No)
                })
            }
            _ if occasion.is_beginning() => report,
            _ => {
                let body = "Comments of jobs on these lines.";
                let own = notes_of(item.jobs.iter().filter(|job| !job.is_shared_build));
                let shared = notes_of(item.jobs.iter().filter(|job| job.is_shared_build));
                report.map(|report| with_notes(report, body, own, shared, OrComment::Yes))
            }
        }
    }

    /// Returns the report on a change that was refused at entry for the reason `why`, or `None`
    /// where the pipeline is unknown or has no action for it that is possible on the change. A
    /// disabled pipeline reports it with its `disabled` reporters. `message` is the one that
    /// offered the change; the report's id is derived from it. Sends and records nothing.
    pub(crate) fn report_refusal(
        &self,
        candidate: &Candidate,
        message: &InboxMessage,
        why: &str,
    ) -> Option<Report> {
        let pipeline = self.snapshot.pipeline?;
        let id = crate::plan::item_id(&self.head, &candidate.change, message);
        let (change, url, page) =
            (&candidate.change, candidate.url.as_str(), self.snapshot.item_url_prefix.as_str());
        let words = MessageContext { queue: &self.head.key, pipeline, change, url, page };
        let text = Occasion::Refused.headline(&pipeline.messages, &words, why);
        self.report(&words, Occasion::Refused, &id, &text)
    }

    /// Returns the address of an item's page.
    fn page(&self, item: &str) -> String {
        format!("{}t/{}/buildset/{item}", self.snapshot.item_url_prefix, self.head.key.tenant)
    }

    /// Returns the address of a build's page.
    fn build_page(&self, build: &BuildId) -> String {
        format!("{}t/{}/build/{build}", self.snapshot.item_url_prefix, self.head.key.tenant)
    }

    /// Makes a report of a text: adds the pipeline's footer and the actions of the reporters for
    /// the occasion, of a disabled pipeline those of its `disabled` reporters. Texts that are too
    /// long are cut. Returns `None` where no action is possible on the change, and where a disabled
    /// pipeline would report anything but a result.
    fn report(
        &self,
        words: &MessageContext<'_>,
        occasion: Occasion,
        item: &ItemId,
        text: &str,
    ) -> Option<Report> {
        let MessageContext { pipeline, change, page, .. } = *words;
        let mut text = text.trim_end().to_owned();
        if let Some(footer) = &pipeline.messages.footer {
            text.push_str(&format!("\n\n{footer}"));
        }
        let context = format!("{}/{}", self.head.key.tenant, pipeline.name);
        let id = id_of(item, occasion);
        let mut actions = Vec::new();
        let (reporters, word) = match self.health.as_ref().is_some_and(|health| health.disabled) {
            false => (occasion.reporters(pipeline), occasion.reporter_name()),
            true if occasion.is_result() => (pipeline.reporters.disabled.as_slice(), "disabled"),
            true => return None,
        };
        let message = ReportMessage {
            occasion: word,
            words,
            id: &id,
            web_root: &self.snapshot.item_url_prefix,
            text: &text,
        };
        for (at, reporter) in reporters.iter().enumerate() {
            match &reporter.kind {
                ReporterKind::GitHub(github) if reporter.connection == change.key.connection => {
                    github_actions(
                        &mut actions,
                        github,
                        &reporter.connection,
                        &context,
                        occasion,
                        &text,
                        page,
                        &id,
                    );
                }
                ReporterKind::Gerrit(gerrit) if reporter.connection == change.key.connection => {
                    actions.extend(gerrit::review(
                        gerrit,
                        &reporter.connection,
                        pipeline.name.as_str(),
                        &text,
                        &id,
                    ));
                }
                _ => actions.extend(message.action(reporter, at)),
            }
        }
        if let Some(end) = occasion.end() {
            let begun = reporters_of_beginning(pipeline)
                .filter(|(connection, _)| **connection == change.key.connection);
            github::close_pending(&mut actions, begun, end, &context, &text, page);
        }
        actions.retain(|action| is_possible(action, change));
        notify::fit(&mut actions);
        (!actions.is_empty()).then(|| Report {
            id,
            item: item.clone(),
            queue: self.head.key.clone(),
            change: change.clone(),
            actions,
            requested_at: self.now,
            awaited: false,
            duplicates_end_at: BTreeMap::new(),
            state: ReportState::Pending,
        })
    }
}

/// Returns the GitHub reporters of a pipeline that report that a change entered or started, with
/// their connections.
fn reporters_of_beginning(
    pipeline: &Pipeline,
) -> impl Iterator<Item = (&ConnectionName, &GitHubReporter)> {
    let all = pipeline.reporters.enqueue.iter().chain(&pipeline.reporters.start);
    all.filter_map(|reporter| match &reporter.kind {
        ReporterKind::GitHub(github) => Some((&reporter.connection, github)),
        _ => None,
    })
}

/// Returns whether an action is possible on a change. For a ref, only mails and MQTT messages are
/// and, unless the ref was deleted, a status on its commit.
fn is_possible(action: &ReportAction, change: &ChangeRef) -> bool {
    match change.key.ref_move() {
        None => true,
        Some(moved) => {
            action.is_message()
                || (moved.newrev.is_some() && matches!(action, ReportAction::Status { .. }))
        }
    }
}

/// Whether line comments are posted as a plain comment where the forge refuses the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrComment {
    /// They are posted as a plain comment then.
    Yes,
    /// They are left out then, since the report has the same text.
    No,
}

/// Adds line comments with the text `body` above them to a report that has a comment, check run or
/// Gerrit message on a change. `shared` are the comments of builds that other bundle members
/// ordered. `or_comment` says whether they become a plain comment where the forge refuses the
/// lines. Returns the report unchanged where it has none of these, for a ref, and without any
/// comments.
fn with_notes(
    mut report: Report,
    body: &str,
    notes: Vec<LineNote>,
    shared: Vec<LineNote>,
    or_comment: OrComment,
) -> Report {
    let connection = report.actions.iter().find_map(|action| match action {
        ReportAction::Comment { connection, .. }
        | ReportAction::Check { connection, .. }
        | ReportAction::Vote { connection, body: Some(_), .. } => Some(connection.clone()),
        _ => None,
    });
    let has_notes = !notes.is_empty() || !shared.is_empty();
    if let Some(connection) =
        connection.filter(|_| has_notes && report.change.key.number().is_some())
    {
        let (marker, body) = (format!("{}/lines", report.id), body.to_owned());
        let or_comment = or_comment == OrComment::Yes;
        report.actions.push(ReportAction::Lines {
            connection,
            marker,
            body,
            notes,
            shared_build_notes: shared,
            fallback_to_comment: or_comment,
        });
    }
    report
}

/// Returns a text cut to [`COMMENT_CHARS_MAX`] characters, with a note behind it where it was cut.
fn cut(text: &str) -> String {
    if text.chars().count() <= COMMENT_CHARS_MAX {
        return text.to_owned();
    }
    let start: String = text.chars().take(COMMENT_CHARS_MAX).collect();
    format!("{start}\n\n… cut; see the page of the buildset for the whole report.")
}
