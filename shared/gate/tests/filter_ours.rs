//! What may start a pipeline of what this service says itself (Z6.1).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{event_of, on, pattern, told, with};
use sluice_config::pipeline::{Filter, FilterKind, GitHubFilter, GitHubTrigger};
use sluice_gate::filter::{EventAuthor, may_start, status_triggers};
use sluice_model::event::ForgeEvent;

/// Returns the event of a status or check run.
fn said(name: &str, action: &str, status: &str) -> ForgeEvent {
    told("bot", event_of(name, action, Some(status)))
}

/// Z6.1, Z6.7: what we said ourselves counts for triggers that name it, whatever else they or the
/// pipeline ask of the change.
#[test]
fn a_status_of_ours_is_waited_for_where_a_trigger_names_it() {
    let own = |status: &str| GitHubTrigger {
        status: vec![pattern(status)],
        ..on("pull_request", &["status"])
    };
    let about = said("pull_request", "status", "bot:demo/check:success");
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
        let kept = status_triggers(&pipeline);
        let may = |by| may_start(&"demo".into(), &pipeline, &about, by);
        assert_eq!((!kept.is_empty(), may(EventAuthor::Sluice)), (is_named, waits), "{trigger:?}");
        assert!(may(EventAuthor::ThirdParty), "what others say is a matter of the triggers: {trigger:?}");
        assert_eq!(kept.iter().any(|trigger| trigger.is_for(&about)), waits, "{trigger:?}");
        let elsewhere = ForgeEvent { connection: "another".into(), ..about.clone() };
        assert!(!kept.iter().any(|trigger| trigger.is_for(&elsewhere)));
    }
}

/// Z6.1: or it would run for ever; what somebody asks for again is no such word.
#[test]
fn a_pipeline_is_started_by_its_own_word_in_no_case() {
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
        let about = said(name, action, &format!("bot:{context}:success"));
        for by in [EventAuthor::Sluice, EventAuthor::ThirdParty] {
            assert_eq!(
                may_start(&"demo".into(), &pipeline, &about, by),
                may,
                "{name} {action} {context} {by:?}"
            );
        }
    }
}
