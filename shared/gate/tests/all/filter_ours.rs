//! Which self-authored events may start a pipeline (Z6.1).

use crate::common::{event_by, event_of, on, pattern, with};
use sluice_config::pipeline::{Filter, FilterKind, GitHubFilter, GitHubTrigger};
use sluice_gate::filter::{EventAuthor, may_start, status_triggers};
use sluice_model::event::ForgeEvent;

/// Returns the event of a status or check run.
fn status_event(name: &str, action: &str, status: &str) -> ForgeEvent {
    event_by("bot", event_of(name, action, Some(status)))
}

/// Z6.1, Z6.7: a self-authored event matches triggers that name it, whatever else they or the
/// pipeline require of the change.
#[test]
fn a_self_authored_status_matches_triggers_that_name_it() {
    let own = |status: &str| GitHubTrigger {
        status: vec![pattern(status)],
        ..on("pull_request", &["status"])
    };
    let about = status_event("pull_request", "status", "bot:demo/check:success");
    for (trigger, is_named, waits) in [
        (own("bot:demo/check:success"), true, true),
        (GitHubTrigger { branch: vec![pattern("stable")], ..own("bot:.*:success") }, true, true),
        (on("pull_request", &["status"]), true, true),
        (own("bot:demo/check:failure"), true, false),
        (on("check_run", &[]), true, false),
        (on("pull_request", &[]), false, false),
        (GitHubTrigger { comment: vec![pattern("recheck")], ..own("bot:.*") }, false, false),
    ] {
        let mut pipeline = with(trigger.clone());
        let kind = FilterKind::GitHub(GitHubFilter {
            status: vec![pattern("bot:.*")],
            ..GitHubFilter::default()
        });
        pipeline.require = vec![Filter { connection: "github".into(), kind }];
        let triggers = status_triggers(&pipeline);
        let may = |by| may_start(&"demo".into(), &pipeline, &about, by);
        assert_eq!(
            (!triggers.is_empty(), may(EventAuthor::Sluice)),
            (is_named, waits),
            "{trigger:?}"
        );
        assert!(
            may(EventAuthor::ThirdParty),
            "what others say is a matter of the triggers: {trigger:?}"
        );
        assert_eq!(triggers.iter().any(|trigger| trigger.is_for(&about)), waits, "{trigger:?}");
        let elsewhere = ForgeEvent { connection: "another".into(), ..about.clone() };
        assert!(!triggers.iter().any(|trigger| trigger.is_for(&elsewhere)));
    }
}

/// Z6.1: otherwise the pipeline would run forever; a re-request by a user does start it.
#[test]
fn a_pipelines_own_report_never_starts_it() {
    let trigger = GitHubTrigger { status: vec![pattern(".*")], ..GitHubTrigger::default() };
    let trigger =
        GitHubTrigger { event: vec!["pull_request".to_owned(), "check_run".to_owned()], ..trigger };
    let pipeline = with(trigger);
    for (name, action, context, may) in [
        ("pull_request", "status", "demo/p", false),
        ("check_run", "completed", "demo/p", false),
        ("check_run", "rerequested", "demo/p", true),
        ("pull_request", "status", "demo/other", true),
        ("pull_request", "status", "other/p", true),
    ] {
        let about = status_event(name, action, &format!("bot:{context}:success"));
        for by in [EventAuthor::Sluice, EventAuthor::ThirdParty] {
            assert_eq!(
                may_start(&"demo".into(), &pipeline, &about, by),
                may,
                "{name} {action} {context} {by:?}"
            );
        }
    }
}
