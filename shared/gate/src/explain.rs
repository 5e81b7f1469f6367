//! Why a change is not in a pipeline: which event came last, and what of each trigger did not fit
//! it.

mod standing;

pub use standing::{Around, arrived, standing};

use crate::filter::{self, is_action, is_triggered, refusal};
use serde::{Deserialize, Serialize};
use sluice_config::pattern::Pattern;
use sluice_config::pipeline::{GitHubTrigger, Manager, Pipeline, Trigger, TriggerKind};
use sluice_model::change::{ChangeFacts, ChangeStatus, Permission};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{PipelineName, TenantName, Timestamp};

/// Pipelines of one change of which something is remembered.
pub const PIPELINES_MAX: usize = 30;

/// Bytes of one reason that are kept.
const WHY_BYTES_MAX: usize = 400;

/// What became of a change's events in the pipelines that did not take it in; intake writes it with
/// the change's facts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdicts {
    /// The newest of each pipeline.
    pub pipelines: Vec<Verdict>,
    /// Why no pipeline at all was asked, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nowhere: Option<String>,
}

/// What became of the newest event of a change in one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The tenant.
    pub tenant: TenantName,
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The newest event that no trigger took, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_by: Option<Seen>,
    /// The newest event that a trigger took, and what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Seen>,
}

/// An event and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The event, in words.
    pub event: String,
    /// When it was handled.
    pub at: Timestamp,
    /// What came of it.
    pub why: String,
}

impl Verdicts {
    /// Notes what became of an event in a pipeline; what is beyond the bound is left out.
    pub fn note(
        &mut self,
        tenant: &TenantName,
        pipeline: &PipelineName,
        outcome: &Outcome,
        event: &str,
        at: Timestamp,
    ) {
        let is_it = |known: &Verdict| known.tenant == *tenant && known.pipeline == *pipeline;
        let place = match self.pipelines.iter().position(is_it) {
            Some(place) => place,
            None if self.pipelines.len() < PIPELINES_MAX => {
                let (tenant, pipeline) = (tenant.clone(), pipeline.clone());
                self.pipelines.push(Verdict { tenant, pipeline, passed_by: None, taken: None });
                self.pipelines.len() - 1
            }
            None => return,
        };
        let seen = |why: &str| {
            Some(Seen { event: event.to_owned(), at, why: crate::item::cut(why, WHY_BYTES_MAX) })
        };
        match outcome {
            Outcome::PassedBy(why) => self.pipelines[place].passed_by = seen(why),
            Outcome::Refused(why) => {
                self.pipelines[place].taken = seen(&format!("not enqueued: {why}"))
            }
            Outcome::Offered => self.pipelines[place].taken = seen("offered to its queue"),
        }
    }
}

/// What became of an event in a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No trigger took it.
    PassedBy(String),
    /// A trigger took it, and the pipeline does not take the change.
    Refused(String),
    /// The change was offered to its queue, whose own reasons tell the rest.
    Offered,
}

/// Says what became of an event about a change in a pipeline whose queue was told of it, or was
/// not.
pub fn outcome(
    pipeline: &Pipeline,
    event: &ForgeEvent,
    facts: &ChangeFacts,
    told: Told<'_>,
    now: Timestamp,
) -> Outcome {
    let takes_from = |may| is_triggered(pipeline, event, Some(facts), may);
    if !takes_from(Some(Permission::Admin)) {
        return Outcome::PassedBy(untaken(pipeline, event, facts));
    }
    let is_told = match told {
        Told::Yes => true,
        Told::No => false,
        Told::HeldBack(why) => return Outcome::PassedBy(why.to_owned()),
        Told::Never(why) => return Outcome::Refused(why.to_owned()),
    };
    if pipeline.manager == Manager::Dependent && facts.status != ChangeStatus::Open {
        return Outcome::Refused("the change is no longer open".to_owned());
    }
    if let Some(why) = untakeable(pipeline, facts, now) {
        return Outcome::Refused(why);
    }
    if is_told {
        Outcome::Offered
    } else if !takes_from(None) {
        Outcome::PassedBy(
            "whoever sent it may not do what its triggers ask for (`permission`)".to_owned(),
        )
    } else {
        Outcome::Refused(
            "it needs more changes than the tenant allows (`max-dependencies`)".to_owned(),
        )
    }
}

/// Returns why a pipeline does not take an open change as it is: what it asks for itself, or what
/// the forge asks of what lands.
pub fn untakeable(pipeline: &Pipeline, facts: &ChangeFacts, now: Timestamp) -> Option<String> {
    let is_barred = pipeline.manager == Manager::Dependent && facts.submittable == Some(false);
    if is_barred { Some(filter::NOT_SUBMITTABLE.to_owned()) } else { refusal(pipeline, facts, now) }
}

/// Whether a queue was told of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told<'a> {
    /// It was.
    Yes,
    /// It was not.
    No,
    /// It was not, for the event starts the pipeline in no case, and this is why
    /// ([`filter::held_back`]).
    HeldBack(&'a str),
    /// It was not, for the tenant takes the change nowhere, and this is why.
    Never(&'a str),
}

/// Returns why a change is not in a pipeline, a line each: what became of its events, and what the
/// pipeline asks for that the change does not show as it was seen last.
pub fn chain(
    pipeline: &Pipeline,
    verdict: Option<&Verdict>,
    facts: Option<&ChangeFacts>,
    now: Timestamp,
) -> Vec<String> {
    let mut lines = Vec::new();
    let seen = |what: &str, seen: &Seen| {
        format!("{what}: {} at {}: {}", seen.event, seen.at.to_iso(), seen.why)
    };
    if let Some(verdict) = verdict {
        lines.extend(
            verdict
                .taken
                .as_ref()
                .map(|taken| seen("the last event that a trigger of it took", taken)),
        );
        lines.extend(
            verdict
                .passed_by
                .as_ref()
                .map(|passed| seen("the last event that no trigger of it took", passed)),
        );
    }
    if lines.is_empty() {
        lines.push("no event of the change was looked at for it".to_owned());
    }
    lines.extend(
        facts
            .and_then(|facts| untakeable(pipeline, facts, now))
            .map(|why| format!("as the change was seen last: {why}")),
    );
    lines
}

/// Returns an event in the words of the configuration.
pub fn words(event: &ForgeEvent) -> String {
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
        EventKind::Gerrit(told) => {
            let votes = told.votes.iter().map(|vote| format!("{} {:+}", vote.label, vote.value));
            let tags = told.added.iter().chain(&told.removed).cloned();
            let comment = told.comment.iter().map(|text| crate::item::cut(text, 80));
            let more: Vec<String> = votes.chain(tags).chain(comment).collect();
            let more =
                if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
            let by = if told.username.is_empty() {
                String::new()
            } else {
                format!(" by {}", told.username)
            };
            crate::item::cut(&format!("{}{more}{by}", told.r#type), 200)
        }
        other => crate::item::cut(&format!("{other:?}"), 80),
    }
}

/// Returns what of each trigger of a pipeline did not fit an event.
fn untaken(pipeline: &Pipeline, event: &ForgeEvent, facts: &ChangeFacts) -> String {
    let own: Vec<&Trigger> =
        pipeline.triggers.iter().filter(|trigger| trigger.connection == event.connection).collect();
    if own.is_empty() {
        let others: Vec<&str> =
            pipeline.triggers.iter().map(|trigger| trigger.connection.as_str()).collect();
        return match others.as_slice() {
            [] => "it has no trigger".to_owned(),
            others => format!(
                "it has no trigger of the connection {}, but of {}",
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
                TriggerKind::GitHub(github) => misfit(github, event, facts),
                TriggerKind::Gerrit(gerrit) => filter::misfit_of_gerrit(gerrit, event, facts),
                _ => "it is for other events".to_owned(),
            };
            if own.len() == 1 { why } else { format!("trigger {}: {why}", number + 1) }
        })
        .collect();
    reasons.join("; ")
}

/// Returns the first thing of a trigger that does not fit an event, in the order a reader of the
/// configuration would look.
fn misfit(trigger: &GitHubTrigger, event: &ForgeEvent, facts: &ChangeFacts) -> String {
    let EventKind::Change { event: name, action, comment, label, state, status, .. } = &event.kind
    else {
        return "it is for other events".to_owned();
    };
    let texts = |patterns: &[Pattern]| {
        patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" or ")
    };
    if !trigger.event.iter().any(|wanted| wanted == name) {
        return format!("it wants the event {}, not {name}", trigger.event.join(" or "));
    }
    if !trigger.action.is_empty() && !trigger.action.iter().any(|wanted| is_action(wanted, action))
    {
        return format!("it wants the action {}, not {action}", trigger.action.join(" or "));
    }
    let branch = facts.change.branch.as_str();
    if !trigger.branch.is_empty() && !trigger.branch.iter().any(|pattern| pattern.matches(branch)) {
        return format!("it wants the branch {}, not {branch}", texts(&trigger.branch));
    }
    if !trigger.comment.is_empty()
        && !comment.as_deref().is_some_and(|text| trigger.comment.iter().any(|p| p.finds(text)))
    {
        return format!("it wants a comment with {}", texts(&trigger.comment));
    }
    for (wanted, word) in [(&trigger.label, "label"), (&trigger.unlabel, "label taken off")] {
        if !wanted.is_empty() && !label.as_ref().is_some_and(|label| wanted.contains(label)) {
            return format!("it wants the {word} {}", wanted.join(" or "));
        }
    }
    // GitHub writes `request_changes` when it is asked for and `changes_requested` when it tells.
    let is_state = |wanted: &String, state: &str| {
        wanted == state || (wanted == "request_changes" && state == "changes_requested")
    };
    if !trigger.state.is_empty()
        && !state.as_deref().is_some_and(|state| trigger.state.iter().any(|w| is_state(w, state)))
    {
        let came = state.as_deref().unwrap_or("none");
        return format!("it wants the state {}, not {came}", trigger.state.join(" or "));
    }
    for (wanted, word) in [(&trigger.status, "status"), (&trigger.check, "check")] {
        if !wanted.is_empty()
            && !status.as_deref().is_some_and(|text| wanted.iter().any(|p| p.matches_whole(text)))
        {
            let came = status.as_deref().unwrap_or("none");
            return format!("it wants the {word} {}, not {came}", texts(wanted));
        }
    }
    // What a trigger requires or rejects itself.
    format!("the change is not what it requires, or is what it rejects ({})", shown(facts))
}

fn shown(facts: &ChangeFacts) -> String {
    let mut words = vec![
        match facts.status {
            ChangeStatus::Open => "open",
            ChangeStatus::Merged => "merged",
            ChangeStatus::Closed => "closed",
        }
        .to_owned(),
    ];
    if facts.draft {
        words.push("a draft".to_owned());
    }
    if !facts.labels.is_empty() {
        words.push(format!("labels {}", crate::item::cut(&facts.labels.join(" "), 120)));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::{ChangeKey, ChangeRef};

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
        misfit(trigger, event, &facts())
    }

    /// Z6.1: each filter of a trigger is named with what came instead.
    #[test]
    fn what_of_a_trigger_did_not_fit_is_named_with_what_came() {
        let pattern = |text: &str| Pattern::new(text).unwrap();
        let of = |event: &str| GitHubTrigger {
            event: vec![event.to_owned()],
            ..GitHubTrigger::default()
        };
        let opened = event("pull_request", "opened", None);
        assert_eq!(why(&of("push"), &opened), "it wants the event push, not pull_request");
        let trigger = GitHubTrigger {
            action: vec!["labeled".into(), "comment".into()],
            ..of("pull_request")
        };
        assert_eq!(why(&trigger, &opened), "it wants the action labeled or comment, not opened");
        let trigger = GitHubTrigger { branch: vec![pattern("stable/.*")], ..of("pull_request") };
        assert_eq!(why(&trigger, &opened), "it wants the branch stable/.*, not main");
        let trigger = GitHubTrigger { comment: vec![pattern("^recheck$")], ..of("pull_request") };
        assert_eq!(
            why(&trigger, &event("pull_request", "comment", Some("nice"))),
            "it wants a comment with ^recheck$"
        );
        let trigger = GitHubTrigger { label: vec!["gate".into()], ..of("pull_request") };
        assert_eq!(why(&trigger, &opened), "it wants the label gate");
        let trigger = GitHubTrigger { state: vec!["approved".into()], ..of("pull_request_review") };
        let review = event("pull_request_review", "submitted", None);
        assert_eq!(why(&trigger, &review), "it wants the state approved, not none");
        assert_eq!(
            words(&event("pull_request", "comment", Some("nice"))),
            "pull_request comment (nice) by ada"
        );
    }

    /// Z6.1: what no queue was told of for a reason of its own is told by that reason, where a
    /// trigger takes the event at all.
    #[test]
    fn why_a_queue_is_told_in_no_case_is_said_where_a_trigger_takes_the_event() {
        let mut pipeline = Pipeline::new("check", Manager::Independent);
        let on =
            |word: &str| GitHubTrigger { event: vec![word.to_owned()], ..GitHubTrigger::default() };
        let trigger = |word: &str| Trigger {
            connection: "github".into(),
            kind: TriggerKind::GitHub(on(word)),
            debug: false,
        };
        let opened = event("pull_request", "opened", None);
        let of =
            |pipeline: &Pipeline, told| outcome(pipeline, &opened, &facts(), told, Timestamp(9));
        pipeline.triggers = vec![trigger("pull_request")];
        assert_eq!(of(&pipeline, Told::Yes), Outcome::Offered);
        assert_eq!(of(&pipeline, Told::HeldBack("ours")), Outcome::PassedBy("ours".to_owned()));
        assert_eq!(
            of(&pipeline, Told::Never("a stranger's")),
            Outcome::Refused("a stranger's".to_owned())
        );
        pipeline.triggers = vec![trigger("push")];
        let passed_by = of(&pipeline, Told::Never("a stranger's"));
        assert!(
            matches!(&passed_by, Outcome::PassedBy(why) if why.contains("wants the event push")),
            "{passed_by:?}"
        );
    }

    /// The newest of each kind stays, and no more than a record holds.
    #[test]
    fn of_each_pipeline_the_newest_event_that_was_taken_and_the_newest_that_was_not_are_kept() {
        let mut verdicts = Verdicts::default();
        let long = "x".repeat(5_000);
        for number in 0..60 {
            let pipeline = PipelineName::from(format!("p{number}").as_str());
            for at in 0..3 {
                verdicts.note(
                    &"t".into(),
                    &pipeline,
                    &Outcome::PassedBy(long.clone()),
                    "came",
                    Timestamp(at),
                );
            }
            verdicts.note(
                &"t".into(),
                &pipeline,
                &Outcome::Refused(long.clone()),
                "came",
                Timestamp(9),
            );
        }
        assert_eq!(verdicts.pipelines.len(), PIPELINES_MAX);
        let first = &verdicts.pipelines[0];
        assert_eq!(first.passed_by.as_ref().map(|seen| seen.at), Some(Timestamp(2)));
        assert_eq!(first.taken.as_ref().map(|seen| seen.at), Some(Timestamp(9)));
        assert!(serde_json::to_string(&verdicts).unwrap().len() < 48 << 10);
    }
}
