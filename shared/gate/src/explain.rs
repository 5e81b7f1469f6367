//! Explains why a change is not in a pipeline: its latest events, and the trigger condition that
//! each event did not meet.

mod wait_reasons;

pub use wait_reasons::{InboxState, WaitContext, admission_wait_reason, wait_reasons};

use crate::filter::{self, is_action, is_triggered, refusal};
use serde::{Deserialize, Serialize};
use sluice_config::pattern::Pattern;
use sluice_config::pipeline::{GitHubTrigger, Manager, Pipeline, Trigger, TriggerKind};
use sluice_model::change::{ChangeFacts, ChangeRef, ChangeStatus, RepositoryPermission};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{PipelineName, TenantName, Timestamp};

/// The most pipelines per change for which routing results are stored.
pub const PIPELINES_MAX: usize = 30;

/// The result of an event that was sent to the queue.
const SENT: &str = "sent to its queue";

/// What became of an event that was sent to a queue in which the change is not.
const LEFT_AGAIN: &str = "the change has left that queue since: its results are above; an event that \
                          came while it was there started nothing more, and can be repeated now";

/// The most bytes of one stored reason.
const WHY_BYTES_MAX: usize = 400;

/// The latest routing results of a change's events, per pipeline. Intake writes them with the
/// change's facts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoutingRecord {
    /// The latest results of each pipeline, at most [`PIPELINES_MAX`].
    pub pipelines: Vec<PipelineRouting>,
    /// Why the latest event was not routed to any pipeline; `None` where it was routed to one, and
    /// while that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrouted: Option<String>,
}

/// The latest routing results of one change in one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineRouting {
    /// The tenant.
    pub tenant: TenantName,
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The latest event that did not start the pipeline ([`RoutingOutcome::Ignored`]), with the
    /// reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<RoutingEntry>,
    /// The latest event that matched a trigger and was sent or refused, with the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered: Option<RoutingEntry>,
    /// The latest refusal that the pipeline's queue was asked to report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<ReportedRefusal>,
}

/// A refusal of a change that was reported on it. It is reported once for each revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedRefusal {
    /// The patch set that was refused.
    pub patchset: String,
    /// The reason.
    pub why: String,
}

impl ReportedRefusal {
    /// Creates the record of the refusal of a change's revision; a long reason is cut.
    pub fn of(change: &ChangeRef, why: &str) -> Self {
        Self { patchset: change.patchset.clone(), why: crate::item::cut(why, WHY_BYTES_MAX) }
    }
}

/// An event with the result of routing it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingEntry {
    /// A description of the event ([`describe_event`]).
    pub event: String,
    /// When the event was routed.
    pub at: Timestamp,
    /// The result, for people.
    pub why: String,
}

impl RoutingRecord {
    /// Stores the result of routing an event to a pipeline in place of the latest one of its kind:
    /// ignored events are one kind, refused and offered ones the other. `event` is the event's
    /// description ([`describe_event`]). Cuts a long reason. Does nothing for a further pipeline
    /// once [`PIPELINES_MAX`] pipelines are stored.
    pub fn record(
        &mut self,
        tenant: &TenantName,
        pipeline: &PipelineName,
        outcome: &RoutingOutcome,
        event: &str,
        at: Timestamp,
    ) {
        let Some(routing) = self.routing_mut(tenant, pipeline) else { return };
        let seen = |why: &str| {
            Some(RoutingEntry {
                event: event.to_owned(),
                at,
                why: crate::item::cut(why, WHY_BYTES_MAX),
            })
        };
        match outcome {
            RoutingOutcome::Ignored(why) => routing.ignored = seen(why),
            RoutingOutcome::Refused(why) => {
                routing.triggered = seen(&format!("not enqueued: {why}"))
            }
            RoutingOutcome::Offered => routing.triggered = seen(SENT),
        }
    }

    /// Stores that a refusal is reported, in place of an earlier one of the pipeline. Does nothing
    /// for a further pipeline once [`PIPELINES_MAX`] pipelines are stored: it is then reported for
    /// each event.
    pub fn record_report(
        &mut self,
        tenant: &TenantName,
        pipeline: &PipelineName,
        refusal: ReportedRefusal,
    ) {
        if let Some(routing) = self.routing_mut(tenant, pipeline) {
            routing.reported = Some(refusal);
        }
    }

    /// Returns the latest refusal that was reported for a pipeline.
    pub fn reported(
        &self,
        tenant: &TenantName,
        pipeline: &PipelineName,
    ) -> Option<&ReportedRefusal> {
        let is_it =
            |known: &&PipelineRouting| known.tenant == *tenant && known.pipeline == *pipeline;
        self.pipelines.iter().find(is_it)?.reported.as_ref()
    }

    /// Returns the results of a pipeline, which are empty at first; `None` for a further pipeline
    /// once [`PIPELINES_MAX`] pipelines are stored.
    fn routing_mut(
        &mut self,
        tenant: &TenantName,
        pipeline: &PipelineName,
    ) -> Option<&mut PipelineRouting> {
        let is_it =
            |known: &PipelineRouting| known.tenant == *tenant && known.pipeline == *pipeline;
        if !self.pipelines.iter().any(is_it) {
            if self.pipelines.len() >= PIPELINES_MAX {
                return None;
            }
            self.pipelines.push(PipelineRouting {
                tenant: tenant.clone(),
                pipeline: pipeline.clone(),
                ignored: None,
                triggered: None,
                reported: None,
            });
        }
        self.pipelines.iter_mut().find(|known| is_it(known))
    }
}

/// The result of routing one event to one pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoutingOutcome {
    /// No trigger matched the event, or the event may not start the pipeline by its origin or its
    /// sender's permission, for this reason.
    Ignored(String),
    /// A trigger matched, but the pipeline or the tenant does not accept the change, for this
    /// reason.
    Refused(String),
    /// An enqueue request was sent to the change's queue. The reasons of the queue's items say what
    /// followed.
    Offered,
}

/// Returns the result of routing an event about a change to a pipeline. `request` says whether an
/// enqueue request was sent to the queue, and otherwise why not. An event that matches no trigger,
/// whatever its sender may do, is ignored; `request` is not used then. Otherwise
/// [`EnqueueRequest::Withheld`] makes the event ignored and [`EnqueueRequest::Forbidden`] refused,
/// as does [`EnqueueRequest::Refused`] if nothing else does.
/// A change that is not open for a dependent pipeline, or that [`eligibility_refusal`] refuses, is
/// refused even if a request was sent. Without a request and another reason, the event is ignored,
/// since its sender lacks a permission that the triggers require.
pub fn routing_outcome(
    pipeline: &Pipeline,
    event: &ForgeEvent,
    facts: &ChangeFacts,
    request: EnqueueRequest<'_>,
    now: Timestamp,
) -> RoutingOutcome {
    if !is_triggered(pipeline, event, Some(facts), Some(RepositoryPermission::Admin)) {
        return RoutingOutcome::Ignored(trigger_mismatches(pipeline, event, facts));
    }
    let outcome = match request {
        EnqueueRequest::Sent => RoutingOutcome::Offered,
        EnqueueRequest::NotSent => RoutingOutcome::Ignored(
            "its sender lacks the permission that the triggers require (`permission`)".to_owned(),
        ),
        EnqueueRequest::Refused(why) => RoutingOutcome::Refused(why.to_owned()),
        EnqueueRequest::Withheld(why) => return RoutingOutcome::Ignored(why.to_owned()),
        EnqueueRequest::Forbidden(why) => return RoutingOutcome::Refused(why.to_owned()),
    };
    if pipeline.manager == Manager::Dependent && facts.status != ChangeStatus::Open {
        return RoutingOutcome::Refused("the change is no longer open".to_owned());
    }
    if let Some(why) = eligibility_refusal(pipeline, facts, now) {
        return RoutingOutcome::Refused(why);
    }
    outcome
}

/// Returns why a pipeline does not accept a change in its current state, or `None` where it accepts
/// it: the pipeline's connections, `require` or `reject`, or, in a dependent pipeline, a
/// requirement of the forge. Neither triggers nor whether the change is open are checked, unless
/// `require` or `reject` name the latter.
pub fn eligibility_refusal(
    pipeline: &Pipeline,
    facts: &ChangeFacts,
    now: Timestamp,
) -> Option<String> {
    let is_barred = pipeline.manager == Manager::Dependent && facts.submittable == Some(false);
    if is_barred { Some(filter::NOT_SUBMITTABLE.to_owned()) } else { refusal(pipeline, facts, now) }
}

/// Whether an event led to an enqueue request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueRequest<'a> {
    /// The request was sent to the queue.
    Sent,
    /// No request was sent, for a reason that [`routing_outcome`] finds: a trigger, a requirement
    /// or the sender's permission.
    NotSent,
    /// The queue does not take the change, for this reason, which lies in its dependencies. Whether
    /// a request was sent, for the queue to report the reason, does not count.
    Refused(&'a str),
    /// No request was sent because the event never starts this pipeline, for this reason
    /// ([`filter::start_denial`]).
    Withheld(&'a str),
    /// No request was sent because the tenant does not accept the change in any pipeline, for this
    /// reason.
    Forbidden(&'a str),
}

/// Returns the reasons why a change is not in a pipeline, one per line: the results of its latest
/// events, and the requirement that the change did not meet when it was last read. Never empty:
/// without events, a line says so.
pub fn absence_reasons(
    pipeline: &Pipeline,
    routing: Option<&PipelineRouting>,
    facts: Option<&ChangeFacts>,
    now: Timestamp,
) -> Vec<String> {
    let mut lines = Vec::new();
    let seen = |title: &str, seen: &RoutingEntry| {
        format!("{title}: {} at {}: {}", seen.event, seen.at.to_iso(), seen.why)
    };
    if let Some(routing) = routing {
        lines.extend(
            routing
                .triggered
                .as_ref()
                .map(|taken| seen("latest event that matched a trigger", taken)),
        );
        let is_sent = routing.triggered.as_ref().is_some_and(|taken| taken.why == SENT);
        lines.extend(is_sent.then(|| LEFT_AGAIN.to_owned()));
        lines.extend(
            routing
                .ignored
                .as_ref()
                .map(|passed| seen("latest event that matched no trigger", passed)),
        );
    }
    if lines.is_empty() {
        lines.push("no event of the change was checked against its triggers".to_owned());
    }
    lines.extend(
        facts
            .and_then(|facts| eligibility_refusal(pipeline, facts, now))
            .map(|why| format!("when the change was last read: {why}")),
    );
    lines
}

/// Describes an event with the names that triggers use in the configuration. Long texts are cut. An
/// event that is not about a change or commit is shown in its internal form.
pub fn describe_event(event: &ForgeEvent) -> String {
    match &event.kind {
        EventKind::Change { event: name, action, label, state, status, comment, .. } => {
            let more = [label.as_deref(), state.as_deref(), status.as_deref(), comment.as_deref()];
            let more: Vec<String> =
                more.into_iter().flatten().map(|text| crate::item::cut(text, 80)).collect();
            let more =
                if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
            let by = if event.sender.is_empty() {
                String::new()
            } else {
                format!(" by {}", event.sender)
            };
            format!("{name} {action}{more}{by}")
        }
        EventKind::Commit { event: name, action, status, .. } => {
            format!("{name} {action} ({status})")
        }
        EventKind::Gerrit(gerrit) => {
            let votes = gerrit.votes.iter().map(|vote| format!("{} {:+}", vote.label, vote.value));
            let tags = gerrit.added.iter().chain(&gerrit.removed).cloned();
            let comment = gerrit.comment.iter().map(|text| crate::item::cut(text, 80));
            let more: Vec<String> = votes.chain(tags).chain(comment).collect();
            let more =
                if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
            let by = if gerrit.username.is_empty() {
                String::new()
            } else {
                format!(" by {}", gerrit.username)
            };
            crate::item::cut(&format!("{}{more}{by}", gerrit.r#type), 200)
        }
        other => crate::item::cut(&format!("{other:?}"), 80),
    }
}

/// Describes, for each trigger of the pipeline for the event's connection, the first condition that
/// the event does not meet; for a trigger of another kind than GitHub's and Gerrit's, says only
/// that it matches other events. Where there is no such trigger, says so. The caller has checked
/// that no trigger matches, whatever its sender may do.
fn trigger_mismatches(pipeline: &Pipeline, event: &ForgeEvent, facts: &ChangeFacts) -> String {
    let own: Vec<&Trigger> =
        pipeline.triggers.iter().filter(|trigger| trigger.connection == event.connection).collect();
    if own.is_empty() {
        let others: Vec<&str> =
            pipeline.triggers.iter().map(|trigger| trigger.connection.as_str()).collect();
        return match others.as_slice() {
            [] => "the pipeline has no trigger".to_owned(),
            others => format!(
                "the pipeline has no trigger for the connection {}, only for {}",
                event.connection,
                others.join(", ")
            ),
        };
    }
    let reasons: Vec<String> = own
        .iter()
        .enumerate()
        .map(|(number, trigger)| {
            let why = match &trigger.kind {
                TriggerKind::GitHub(github) => trigger_mismatch(github, event, facts),
                TriggerKind::Gerrit(gerrit) => filter::misfit_of_gerrit(gerrit, event, facts),
                _ => "it matches other events".to_owned(),
            };
            if own.len() == 1 { why } else { format!("trigger {}: {why}", number + 1) }
        })
        .collect();
    reasons.join("; ")
}

/// Describes the first condition of a GitHub trigger that an event does not meet, in the order of
/// the configuration's documentation. Where none of these is found, names the trigger's `require`
/// and `reject`; whether a label was added or removed is not compared. Of an event that is not
/// about a change, says only that the trigger matches others.
fn trigger_mismatch(trigger: &GitHubTrigger, event: &ForgeEvent, facts: &ChangeFacts) -> String {
    let EventKind::Change { event: name, action, comment, label, state, status, .. } = &event.kind
    else {
        return "it matches other events".to_owned();
    };
    let texts = |patterns: &[Pattern]| {
        patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" or ")
    };
    if !trigger.event.iter().any(|expected| expected == name) {
        return format!("it requires the event {}, not {name}", trigger.event.join(" or "));
    }
    if !trigger.action.is_empty() && !trigger.action.iter().any(|wanted| is_action(wanted, action))
    {
        return format!("it requires the action {}, not {action}", trigger.action.join(" or "));
    }
    let branch = facts.change.branch.as_str();
    if !trigger.branch.is_empty() && !trigger.branch.iter().any(|pattern| pattern.matches(branch)) {
        return format!("it requires the branch {}, not {branch}", texts(&trigger.branch));
    }
    if !trigger.comment.is_empty()
        && !comment.as_deref().is_some_and(|text| trigger.comment.iter().any(|p| p.finds(text)))
    {
        return format!("it requires a comment matching {}", texts(&trigger.comment));
    }
    for (wanted, word) in [(&trigger.label, "label"), (&trigger.unlabel, "removed label")] {
        if !wanted.is_empty() && !label.as_ref().is_some_and(|label| wanted.contains(label)) {
            return format!("it requires the {word} {}", wanted.join(" or "));
        }
    }
    // GitHub's API takes `request_changes` in a request and returns `changes_requested`.
    let is_state = |wanted: &String, state: &str| {
        wanted == state || (wanted == "request_changes" && state == "changes_requested")
    };
    if !trigger.state.is_empty()
        && !state.as_deref().is_some_and(|state| trigger.state.iter().any(|w| is_state(w, state)))
    {
        let came = state.as_deref().unwrap_or("none");
        return format!("it requires the state {}, not {came}", trigger.state.join(" or "));
    }
    for (wanted, word) in [(&trigger.status, "status"), (&trigger.check, "check")] {
        if !wanted.is_empty()
            && !status.as_deref().is_some_and(|text| wanted.iter().any(|p| p.matches_whole(text)))
        {
            let came = status.as_deref().unwrap_or("none");
            return format!("it requires the {word} {}, not {came}", texts(wanted));
        }
    }
    // Only the trigger's own `require` and `reject` are left.
    format!(
        "the change does not meet its `require`, or meets its `reject` ({})",
        describe_facts(facts)
    )
}

/// Describes the state of a change that triggers can require: its status, draft state and labels.
fn describe_facts(facts: &ChangeFacts) -> String {
    let mut parts = vec![
        match facts.status {
            ChangeStatus::Open => "open",
            ChangeStatus::Merged => "merged",
            ChangeStatus::Closed => "closed",
        }
        .to_owned(),
    ];
    if facts.draft {
        parts.push("a draft".to_owned());
    }
    if !facts.labels.is_empty() {
        parts.push(format!("labels {}", crate::item::cut(&facts.labels.join(" "), 120)));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::ChangeKey;

    fn facts() -> ChangeFacts {
        let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 1);
        let head = sluice_model::git::Oid::from("abc");
        let change = ChangeRef { key, branch: "main".into(), patchset: head.0.clone(), head };
        ChangeFacts {
            author: "ada".to_owned(),
            labels: vec!["go".to_owned()],
            ..ChangeFacts::bare(change, Timestamp(8))
        }
    }

    fn event(name: &str, action: &str, comment: Option<&str>) -> ForgeEvent {
        ForgeEvent {
            connection: "github".into(),
            project: "forge.test/org/one".into(),
            sender: "ada".to_owned(),
            kind: EventKind::Change {
                number: 1,
                event: name.to_owned(),
                action: action.to_owned(),
                comment: comment.map(str::to_owned),
                label: None,
                state: None,
                status: None,
            },
        }
    }

    fn why(trigger: &GitHubTrigger, event: &ForgeEvent) -> String {
        trigger_mismatch(trigger, event, &facts())
    }

    /// Z6.1: the reason names the condition and the value that the event has.
    #[test]
    fn a_mismatch_names_the_condition_and_the_value_of_the_event() {
        let pattern = |text: &str| Pattern::new(text).unwrap();
        let of = |event: &str| GitHubTrigger {
            event: vec![event.to_owned()],
            ..GitHubTrigger::default()
        };
        let opened = event("pull_request", "opened", None);
        assert_eq!(why(&of("push"), &opened), "it requires the event push, not pull_request");
        let trigger = GitHubTrigger {
            action: vec!["labeled".into(), "comment".into()],
            ..of("pull_request")
        };
        assert_eq!(why(&trigger, &opened), "it requires the action labeled or comment, not opened");
        let trigger = GitHubTrigger { branch: vec![pattern("stable/.*")], ..of("pull_request") };
        assert_eq!(why(&trigger, &opened), "it requires the branch stable/.*, not main");
        let trigger = GitHubTrigger { comment: vec![pattern("^recheck$")], ..of("pull_request") };
        assert_eq!(
            why(&trigger, &event("pull_request", "comment", Some("nice"))),
            "it requires a comment matching ^recheck$"
        );
        let trigger = GitHubTrigger { label: vec!["gate".into()], ..of("pull_request") };
        assert_eq!(why(&trigger, &opened), "it requires the label gate");
        let trigger = GitHubTrigger { state: vec!["approved".into()], ..of("pull_request_review") };
        let review = event("pull_request_review", "submitted", None);
        assert_eq!(why(&trigger, &review), "it requires the state approved, not none");
        assert_eq!(
            describe_event(&event("pull_request", "comment", Some("nice"))),
            "pull_request comment (nice) by ada"
        );
    }

    /// Z6.1: where a trigger matches but no request was sent, the reason that was given is shown.
    #[test]
    fn a_withheld_request_is_explained_where_a_trigger_matches() {
        let mut pipeline = Pipeline::new("check", Manager::Independent);
        let on =
            |word: &str| GitHubTrigger { event: vec![word.to_owned()], ..GitHubTrigger::default() };
        let trigger = |word: &str| Trigger {
            connection: "github".into(),
            kind: TriggerKind::GitHub(on(word)),
            debug: false,
        };
        let opened = event("pull_request", "opened", None);
        let of = |pipeline: &Pipeline, request| {
            routing_outcome(pipeline, &opened, &facts(), request, Timestamp(9))
        };
        pipeline.triggers = vec![trigger("pull_request")];
        assert_eq!(of(&pipeline, EnqueueRequest::Sent), RoutingOutcome::Offered);
        assert_eq!(
            of(&pipeline, EnqueueRequest::Withheld("ours")),
            RoutingOutcome::Ignored("ours".to_owned())
        );
        assert_eq!(
            of(&pipeline, EnqueueRequest::Forbidden("a stranger's")),
            RoutingOutcome::Refused("a stranger's".to_owned())
        );
        pipeline.triggers = vec![trigger("push")];
        let passed_by = of(&pipeline, EnqueueRequest::Forbidden("a stranger's"));
        assert!(
            matches!(&passed_by, RoutingOutcome::Ignored(why) if why.contains("requires the event push")),
            "{passed_by:?}"
        );
    }

    /// Only the latest event of each kind is stored, and the whole fits into a record.
    #[test]
    fn each_pipeline_stores_the_latest_matching_and_the_latest_ignored_event() {
        let mut record = RoutingRecord::default();
        let long = "x".repeat(5_000);
        for number in 0..60 {
            let pipeline = PipelineName::from(format!("p{number}").as_str());
            for at in 0..3 {
                record.record(
                    &"t".into(),
                    &pipeline,
                    &RoutingOutcome::Ignored(long.clone()),
                    "came",
                    Timestamp(at),
                );
            }
            record.record(
                &"t".into(),
                &pipeline,
                &RoutingOutcome::Refused(long.clone()),
                "came",
                Timestamp(9),
            );
        }
        assert_eq!(record.pipelines.len(), PIPELINES_MAX);
        let first = &record.pipelines[0];
        assert_eq!(first.ignored.as_ref().map(|seen| seen.at), Some(Timestamp(2)));
        assert_eq!(first.triggered.as_ref().map(|seen| seen.at), Some(Timestamp(9)));
        assert!(serde_json::to_string(&record).unwrap().len() < 48 << 10);
    }
}
