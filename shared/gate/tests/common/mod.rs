//! What the tables of GitHub's filters are made of: a change, what a forge tells of it, and a
//! pipeline with one trigger.
#![allow(dead_code, reason = "each test file uses its part")]

use sluice_config::Pattern;
use sluice_config::pipeline::{GitHubTrigger, Manager, Pipeline, Trigger, TriggerKind};
use sluice_gate::filter::is_triggered;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, CommitStatus, Truncation};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{ProjectName, Timestamp};

/// Seconds of a day.
pub const DAY_SECONDS: u64 = 86_400;
/// When the forge is asked.
pub const NOW: Timestamp = Timestamp(100 * DAY_SECONDS * 1_000);

/// Returns a pattern of these words.
pub fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

/// Returns an open change with a label and a status.
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

/// Returns what a forge tells of that change.
pub fn event(name: &str, action: &str) -> EventKind {
    event_of(name, action, None)
}

/// Returns what a forge tells of a status or a check run of that change.
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

/// Returns what a forge tells, by whom.
pub fn told(sender: &str, kind: EventKind) -> ForgeEvent {
    let project = ProjectName::new("github.com", "org/one");
    ForgeEvent { connection: "github".into(), project, sender: sender.to_owned(), kind }
}

/// Returns a trigger for an event with these actions, or any.
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

/// Returns whether a pipeline with this trigger is started for a change.
pub fn triggered_for(trigger: GitHubTrigger, kind: EventKind, facts: &ChangeFacts) -> bool {
    is_triggered(&with(trigger), &told("ada", kind), Some(facts), None)
}
