//! Builders for the filter tests: a change, events about it, and a pipeline with one trigger.

use sluice_config::Pattern;
use sluice_config::pipeline::{GitHubTrigger, Manager, Pipeline, Trigger, TriggerKind};
use sluice_gate::filter::is_triggered;
use sluice_model::change::{
    ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, CommitStatus, Truncation,
};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{ProjectName, Timestamp};

/// The seconds of a day.
pub const DAY_SECONDS: u64 = 86_400;
/// The time at which the filters are evaluated.
pub const NOW: Timestamp = Timestamp(100 * DAY_SECONDS * 1_000);

/// Compiles a pattern.
pub fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

/// Returns the facts of an open change with a label and a status.
pub fn facts() -> ChangeFacts {
    let key = ChangeKey::change("github".into(), ProjectName::new("github.com", "org/one"), 1);
    ChangeFacts {
        change: ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        },
        status: ChangeStatus::Open,
        draft: false,
        title: String::new(),
        message: String::new(),
        author: "ada".to_owned(),
        url: String::new(),
        labels: vec!["ready".to_owned()],
        reviews: Vec::new(),
        statuses: vec![CommitStatus {
            by: "sluice[bot]".to_owned(),
            context: "demo/check".to_owned(),
            state: "success".to_owned(),
            is_check: false,
            number: None,
        }],
        truncated: Truncation::default(),
        files: None,
        depends_on: Vec::new(),
        parents: Vec::new(),
        topic: None,
        votes: Vec::new(),
        submittable: None,
        mergeable: None,
        merge_commit: None,
        updated_at: Timestamp(0),
        seen_at: NOW,
    }
}

/// Returns the content of an event about that change.
pub fn event(name: &str, action: &str) -> EventKind {
    event_of(name, action, None)
}

/// Returns the content of an event about a status or check run of that change.
pub fn event_of(name: &str, action: &str, status: Option<&str>) -> EventKind {
    EventKind::Change {
        number: 1,
        event: name.to_owned(),
        action: action.to_owned(),
        comment: None,
        label: None,
        state: None,
        status: status.map(str::to_owned),
    }
}

/// Returns an event with this sender.
pub fn event_by(sender: &str, kind: EventKind) -> ForgeEvent {
    let project = ProjectName::new("github.com", "org/one");
    ForgeEvent { connection: "github".into(), project, sender: sender.to_owned(), kind }
}

/// Returns a trigger for an event with these actions; none for any action.
pub fn on(name: &str, actions: &[&str]) -> GitHubTrigger {
    GitHubTrigger {
        event: vec![name.to_owned()],
        action: actions.iter().map(|a| (*a).to_owned()).collect(),
        ..GitHubTrigger::default()
    }
}

/// Returns a pipeline with this trigger.
pub fn with(trigger: GitHubTrigger) -> Pipeline {
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    pipeline.triggers = vec![Trigger {
        connection: "github".into(),
        kind: TriggerKind::GitHub(trigger),
        debug: false,
    }];
    pipeline
}

/// Returns whether an event about a change starts a pipeline with this trigger.
pub fn triggered_for(trigger: GitHubTrigger, kind: EventKind, facts: &ChangeFacts) -> bool {
    is_triggered(&with(trigger), &event_by("ada", kind), Some(facts), None)
}
