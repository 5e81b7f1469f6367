//! Tests which payload becomes which event.

use super::*;
use serde_json::{Value, json};

const HEAD: &str = "1111111111111111111111111111111111111111";
const ZEROS: &str = "0000000000000000000000000000000000000000";

fn body(mut payload: Value) -> Vec<u8> {
    payload["repository"] = json!({"id": 7, "full_name": "org/project", "private": false});
    payload["sender"] = json!({"login": "ann", "id": 1});
    payload.to_string().into_bytes()
}

fn parsed(event_name: &str, payload: Value) -> Parsed {
    parse(&"github".into(), "forge.example", event_name, &body(payload))
}

fn change(
    event: &str,
    action: &str,
    comment: Option<&str>,
    label: Option<&str>,
    state: Option<&str>,
) -> EventKind {
    let text = |text: Option<&str>| text.map(str::to_owned);
    EventKind::Change {
        number: 3,
        event: event.into(),
        action: action.into(),
        comment: text(comment),
        label: text(label),
        state: text(state),
        status: None,
    }
}

fn kind(event_name: &str, payload: Value) -> EventKind {
    match parsed(event_name, payload) {
        Parsed::Event { event, .. } => {
            assert_eq!(event.project.as_str(), "forge.example/org/project");
            assert_eq!((event.connection.as_str(), event.sender.as_str()), ("github", "ann"));
            event.kind
        }
        other => panic!("{event_name} became {other:?}"),
    }
}

/// Z6.1
#[test]
fn pull_request_events_use_zuuls_words() {
    let rows = [
        ("opened", "opened"),
        ("synchronize", "changed"),
        ("closed", "closed"),
        ("reopened", "reopened"),
        ("edited", "edited"),
        ("ready_for_review", "edited"),
    ];
    for (action, expected) in rows {
        let payload =
            json!({"action": action, "number": 3, "pull_request": {"head": {"sha": HEAD}}});
        assert_eq!(
            kind("pull_request", payload),
            change("pull_request", expected, None, None, None),
            "{action}"
        );
    }
    for action in ["labeled", "unlabeled"] {
        let payload = json!({"action": action, "number": 3, "label": {"name": "gate"}});
        assert_eq!(
            kind("pull_request", payload),
            change("pull_request", action, None, Some("gate"), None)
        );
    }
}

/// Z6.1
#[test]
fn reviews_and_comments_carry_what_triggers_ask_for() {
    for (state, expected) in [
        ("approved", "approved"),
        ("CHANGES_REQUESTED", "changes_requested"),
        ("commented", "comment"),
    ] {
        let payload = json!({"action": "submitted", "pull_request": {"number": 3}, "review": {"state": state, "body": null}});
        let expected = change("pull_request_review", "submitted", None, None, Some(expected));
        assert_eq!(kind("pull_request_review", payload), expected);
    }
    let payload = json!({"action": "created", "issue": {"number": 3, "pull_request": {"url": "x"}}, "comment": {"body": "recheck"}});
    assert_eq!(
        kind("issue_comment", payload),
        change("pull_request", "comment", Some("recheck"), None, None)
    );
}

/// S06
#[test]
fn a_push_has_its_ref_and_both_commits() {
    let payload =
        json!({"ref": "refs/heads/main", "before": ZEROS, "after": HEAD, "created": true});
    let expected = EventKind::Push {
        git_ref: "refs/heads/main".into(),
        oldrev: ZEROS.into(),
        newrev: HEAD.into(),
    };
    assert_eq!(kind("push", payload), expected);
}

/// Z6.1
#[test]
fn statuses_and_check_runs_are_about_a_commit() {
    let status = parsed(
        "status",
        json!({"sha": HEAD, "context": "one/check", "state": "success", "branches": []}),
    );
    let run = json!({"name": "one/gate", "head_sha": HEAD, "external_id": "sluice:gate/1", "conclusion": "failure", "app": {"slug": "ci"}});
    let run = parsed("check_run", json!({"action": "completed", "check_run": run}));
    let (
        Parsed::OnCommit { event: status, marker: None },
        Parsed::OnCommit { event: run, marker: Some(marker) },
    ) = (status, run)
    else {
        panic!("both are about a commit, and only the check run has a marker")
    };
    assert_eq!(
        (status.event, status.action, status.status.as_str()),
        ("pull_request", "status", "ann:one/check:success")
    );
    assert_eq!(
        (run.event, run.action, run.status.as_str()),
        ("check_run", "completed", "ci:one/gate:failure")
    );
    assert_eq!((marker, run.head.as_str()), (Marker::new("gate/1"), HEAD));
    let EventKind::Change { number: 9, status: Some(text), .. } = status.about(9).kind else {
        panic!("the change is named")
    };
    assert_eq!(text, "ann:one/check:success");
}

/// Z6.1: a user requests a check again; the action is the one that triggers use.
#[test]
fn a_check_run_that_is_asked_for_again_is_rerequested() {
    let run =
        json!({"name": "one/gate", "head_sha": HEAD, "conclusion": null, "app": {"slug": "ci"}});
    let Parsed::OnCommit { event, marker: None } =
        parsed("check_run", json!({"action": "rerequested", "check_run": run}))
    else {
        panic!("it is about a commit")
    };
    assert_eq!(
        (event.event, event.action, event.status.as_str()),
        ("check_run", "rerequested", "ci:one/gate:")
    );
}

/// Our own comment, coming back, is recognised by its marker.
#[test]
fn our_own_comment_is_recognised() {
    let text = Marker::new("gate/3").attach("Build succeeded.");
    let payload = json!({"action": "created", "issue": {"number": 3, "pull_request": {}}, "comment": {"body": text}});
    let Parsed::Event { marker, .. } = parsed("issue_comment", payload) else {
        panic!("a comment is an event")
    };
    assert_eq!(marker, Some(Marker::new("gate/3")));
}

#[test]
fn what_nothing_follows_from_is_ignored_with_its_reason() {
    let rows = [
        ("ping", json!({"zen": "Keep it simple."})),
        ("star", json!({})),
        ("check_suite", json!({"action": "requested"})),
        ("pull_request", json!({"action": "assigned", "number": 3})),
        (
            "pull_request_review",
            json!({"action": "edited", "pull_request": {"number": 3}, "review": {"state": "approved"}}),
        ),
        (
            "issue_comment",
            json!({"action": "created", "issue": {"number": 3}, "comment": {"body": "hello"}}),
        ),
        (
            "issue_comment",
            json!({"action": "deleted", "issue": {"number": 3, "pull_request": {}}, "comment": {"body": "x"}}),
        ),
        ("check_run", json!({"action": "created", "check_run": {"name": "x", "head_sha": HEAD}})),
    ];
    for (event_name, payload) in rows {
        let outcome = parsed(event_name, payload);
        assert!(
            matches!(&outcome, Parsed::Ignored { reason } if !reason.is_empty()),
            "{event_name}: {outcome:?}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_malformed_and_quotes_nothing() {
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("push", b"".to_vec()),
        ("push", b"\xff\xfe".to_vec()),
        ("push", b"{\"ref\": \"hunter2\"".to_vec()),
        ("push", body(json!({"ref": "refs/heads/main", "before": ZEROS, "after": "hunter2"}))),
        ("push", body(json!({"ref": "hunter2", "before": ZEROS, "after": HEAD}))),
        ("push", json!({"ref": "refs/heads/main", "before": ZEROS, "after": HEAD}).to_string().into_bytes()),
        ("pull_request", body(json!({"action": "opened", "number": "hunter2"}))),
        ("pull_request", body(json!({"action": "labeled", "number": 3}))),
        ("pull_request", json!({"action": "opened", "number": 3, "repository": {"full_name": "../hunter2"}, "sender": {"login": "a"}}).to_string().into_bytes()),
        ("status", body(json!({"sha": "main", "context": "c", "state": "success"}))),
        ("pull_request", format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000)).into_bytes()),
    ];
    for (event_name, body) in rows {
        match parse(&"github".into(), "forge.example", event_name, &body) {
            Parsed::Malformed { reason } => assert!(!reason.contains("hunter2"), "{reason}"),
            other => panic!("{event_name} {:?} became {other:?}", String::from_utf8_lossy(&body)),
        }
    }
}

/// Z9.1: GitHub's own default for a webhook is not JSON; the reason says what to set.
#[test]
fn a_form_encoded_body_says_what_to_set() {
    let outcome = parse(&"github".into(), "forge.example", "push", b"payload=%7B%22ref%22%7D");
    let Parsed::Malformed { reason } = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("content type to application/json"), "{reason}");
}
