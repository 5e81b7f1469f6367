//! What is told to whom: the texts of reports, and the actions that carry them to a forge.
//!
//! Names in messages are filled in by [`words`], jobs are told of by [`jobs`]; what is done to
//! changes is in [`github`] and [`gerrit`], mail and MQTT in [`notify`] and [`published`].

mod gerrit;
mod github;
mod jobs;
mod notify;
mod occasion;
pub mod published;
mod words;

pub(crate) use occasion::Occasion;

use crate::arrival::{Arrival, Candidate};
use crate::item::{Ask, Item};
use crate::merge::LineNote;
use crate::plan::Work;
use github::github_actions;
use jobs::{job_line, notes_of, warnings};
use notify::Told;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::ReporterKind;
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
    /// From when on, by each forge's own clock, nobody tells it any more who was given it before it
    /// ended: those of whoever looks may be minutes apart. Nothing where it was given to one only,
    /// or its forge does not tell the time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quiet_from: BTreeMap<ConnectionName, Timestamp>,
    /// How far it is.
    pub state: ReportState,
}

impl Report {
    /// Returns whether it tells that the work on an item begins. Whatever is told at the end makes
    /// it untrue.
    pub fn is_start(&self) -> bool {
        self.id == Self::start_id(&self.item)
    }

    /// Returns whether it tells that an item entered. Whatever is told at the end makes that untrue
    /// as well.
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

/// One effect. On a forge each has its effect once, however often it is tried; mail and MQTT are
/// sent at least once.
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
        /// `queued`, `in_progress`, or how it ended: `success`, `failure`, `cancelled`, `skipped`,
        /// `neutral`.
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
    /// Comments on lines of the change, once for this marker. A forge may refuse lines that the
    /// change does not touch.
    Lines {
        /// The connection.
        connection: ConnectionName,
        /// Hidden in the review so that a repeat finds it.
        marker: String,
        /// What stands above the comments.
        body: String,
        /// What is said beside which lines.
        notes: Vec<LineNote>,
        /// The same of builds that other changes of the cycle ordered. Of these only what is about
        /// files that the change touches is said: the others are those changes', whose reports say
        /// all of it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        of_mates: Vec<LineNote>,
        /// Whether it is said in a comment of its own where the forge refuses the lines: no other
        /// comment says it.
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
        /// Who is told by mail: `NONE`, `OWNER`, `OWNER_REVIEWERS` or `ALL`; `None` leaves it to
        /// the forge.
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
    /// Publishes to an MQTT broker, at least once; whoever does it adds what is known of the builds
    /// by then.
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
                let body = "The configuration has errors.";
                report.map(|report| {
                    with_notes(report, body, notes.clone(), Vec::new(), OrComment::No)
                })
            }
            _ if occasion.is_beginning() => report,
            _ => {
                let body = "What jobs say of these lines.";
                let own = notes_of(item.jobs.iter().filter(|job| !job.taken_over));
                let of_mates = notes_of(item.jobs.iter().filter(|job| job.taken_over));
                report.map(|report| with_notes(report, body, own, of_mates, OrComment::Yes))
            }
        }
    }

    /// Returns the report on a change that could not even be enqueued.
    pub(crate) fn report_refusal(
        &self,
        candidate: &Candidate,
        arrival: &Arrival,
        why: &str,
    ) -> Option<Report> {
        let pipeline = self.snapshot.pipeline?;
        let id = crate::plan::item_id(&self.head, &candidate.change, arrival);
        let (change, url, page) =
            (&candidate.change, candidate.url.as_str(), self.snapshot.web_root.as_str());
        let words = Words { queue: &self.head.key, pipeline, change, url, page };
        let text = Occasion::Refused.headline(&pipeline.messages, &words, why);
        self.report(&words, Occasion::Refused, &id, &text)
    }

    fn page(&self, item: &str) -> String {
        format!("{}t/{}/buildset/{item}", self.snapshot.web_root, self.head.key.tenant)
    }

    fn report(
        &self,
        words: &Words<'_>,
        occasion: Occasion,
        item: &ItemId,
        text: &str,
    ) -> Option<Report> {
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
        let told =
            Told { occasion: word, words, id: &id, web_root: &self.snapshot.web_root, text: &text };
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
            quiet_from: BTreeMap::new(),
            state: ReportState::Wanted,
        })
    }
}

/// Returns whether there is somewhere to do it: of a ref only the commit that it is at can be told
/// of.
fn is_possible(action: &Action, change: &ChangeRef) -> bool {
    match change.key.moved() {
        None => true,
        Some(moved) => {
            action.is_message()
                || (moved.newrev.is_some() && matches!(action, Action::Status { .. }))
        }
    }
}

/// Whether a comment of its own says what a forge takes on no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OrComment {
    Yes,
    No,
}

/// Adds comments on lines for whoever is told by a comment, or by a check run where they would be
/// annotations.
fn with_notes(
    mut report: Report,
    body: &str,
    notes: Vec<LineNote>,
    of_mates: Vec<LineNote>,
    or_comment: OrComment,
) -> Report {
    let connection = report.actions.iter().find_map(|action| match action {
        Action::Comment { connection, .. }
        | Action::Check { connection, .. }
        | Action::Vote { connection, body: Some(_), .. } => Some(connection.clone()),
        _ => None,
    });
    let has_notes = !notes.is_empty() || !of_mates.is_empty();
    if let Some(connection) =
        connection.filter(|_| has_notes && report.change.key.number().is_some())
    {
        let (marker, body) = (format!("{}/lines", report.id), body.to_owned());
        let or_comment = or_comment == OrComment::Yes;
        report.actions.push(Action::Lines {
            connection,
            marker,
            body,
            notes,
            of_mates,
            or_comment,
        });
    }
    report
}

fn cut(text: &str) -> String {
    if text.chars().count() <= COMMENT_CHARS_MAX {
        return text.to_owned();
    }
    let kept: String = text.chars().take(COMMENT_CHARS_MAX).collect();
    format!("{kept}\n\n… cut; the whole report is on the page of the buildset.")
}
