//! Tests reports through the driver: a repeated report has its effect once. Also webhooks, from
//! their cause to the parsed event.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use sluice_forge::webhook::{self, Parsed};
use sluice_forge::{
    CheckReport, CheckState, Conclusion, Forge as _, ForgeError, ForgeSecret, LineComment, Marker,
    ReviewDecision, StatusReport, StatusState,
};
use sluice_local_forge::{Aim, ForgeFault, Times};
use sluice_model::Timestamp;
use sluice_model::change::ReviewState;
use sluice_model::event::EventKind;
use support::{REPOSITORY, Scene, driver};
use tokio::sync::mpsc;

fn marker() -> Marker {
    Marker::new("one/gate/1")
}

#[tokio::test]
async fn a_comment_is_made_once_and_then_updated() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    let number = change.key.number().unwrap();
    let copied = marker().attach("I copied your marker");
    scene.forge.comment(REPOSITORY, number, &copied, "bob").unwrap();
    scene.forge.fault(
        REPOSITORY,
        ForgeFault::LoseAnswer,
        Aim::Path("/comments".into()),
        Times::UntilCleared,
    );
    let lost = scene.github.put_comment(&change.key, &marker(), "Starting.").await;
    assert!(matches!(lost, Err(ForgeError::Unknown { .. })), "{lost:?}");
    scene.forge.clear_faults(REPOSITORY);
    let lost_write = Aim::Path("/comments".into());
    scene.github.put_comment(&change.key, &marker(), "Starting.").await.unwrap();
    // More than one page of other users' comments.
    for word in 0..130 {
        scene.forge.comment(REPOSITORY, number, &format!("word {word}"), "bob").unwrap();
    }
    scene.forge.fault(REPOSITORY, ForgeFault::LoseAnswer, lost_write, Times::Next(1));
    scene.github.put_comment(&change.key, &marker(), "Build succeeded.").await.unwrap();
    scene.github.put_comment(&change.key, &Marker::new("one/gate/2"), "Another.").await.unwrap();
    let comments = scene.forge.comments(REPOSITORY, number).unwrap();
    let ours: Vec<&str> = comments
        .iter()
        .filter(|c| c.author == "sluice")
        .map(|c| c.body.lines().next().unwrap())
        .collect();
    assert_eq!(ours, ["Build succeeded.", "Another."]);
    assert_eq!(comments[0].body, copied);
}

/// Z6.3: a repeated report does not set its status again, because the forge would send a second
/// event.
#[tokio::test]
async fn a_status_that_stands_there_is_not_set_again() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    let (context, description) = ("one/check".to_owned(), "x".repeat(200));
    let report = |state, url: Option<&str>| StatusReport {
        context: context.clone(),
        state,
        description: description.clone(),
        url: url.map(str::to_owned),
        wanted_at: Timestamp(0),
    };
    let page = Some("https://ci.example/1");
    scene.forge.fault(REPOSITORY, ForgeFault::LoseAnswer, Aim::Writes, Times::Next(1));
    let lost = scene
        .github
        .set_status(&scene.project(), &change.head, &report(StatusState::Success, page))
        .await;
    assert!(matches!(lost, Err(ForgeError::Unknown { .. })), "{lost:?}");
    for (state, url, count) in [
        (StatusState::Success, page, 1),
        (StatusState::Success, Some("https://ci.example/2"), 2),
        (StatusState::Pending, page, 3),
        (StatusState::Success, page, 4),
        (StatusState::Success, page, 4),
    ] {
        scene.github.set_status(&scene.project(), &change.head, &report(state, url)).await.unwrap();
        assert_eq!(scene.forge.statuses(REPOSITORY, change.head.as_str()).unwrap().len(), count);
    }
    // The existing status is an earlier report's: pipelines that wait for this one need an event.
    let before = scene.github.read_change(&change.key).await.unwrap().statuses[0].number;
    let later =
        StatusReport { wanted_at: Timestamp(u64::MAX), ..report(StatusState::Success, page) };
    scene.github.set_status(&scene.project(), &change.head, &later).await.unwrap();
    assert_eq!(scene.forge.statuses(REPOSITORY, change.head.as_str()).unwrap().len(), 5);
    let after = scene.github.read_change(&change.key).await.unwrap().statuses[0].number;
    assert!(
        before.is_some() && after > before,
        "its number differs from the one before: {before:?} {after:?}"
    );
}

#[tokio::test]
async fn a_check_run_is_made_once_and_then_updated() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    let report = |state| CheckReport {
        name: "one/check".into(),
        marker: marker(),
        state,
        title: "check".into(),
        summary: "- unit: running".into(),
        url: Some("https://ci.example/1".into()),
    };
    for state in
        [CheckState::Queued, CheckState::InProgress, CheckState::Completed(Conclusion::Failure)]
    {
        scene.github.put_check_run(&scene.project(), &change.head, &report(state)).await.unwrap();
    }
    let runs = scene.forge.check_runs(REPOSITORY, change.head.as_str()).unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (runs[0].status.as_str(), runs[0].conclusion.as_deref()),
        ("completed", Some("failure"))
    );
    let facts = scene.github.read_change(&change.key).await.unwrap();
    assert_eq!(
        (facts.statuses[0].context.as_str(), facts.statuses[0].state.as_str()),
        ("one/check", "failure")
    );
}

/// Z6.1: GitHub creates check runs for GitHub Apps only.
#[tokio::test]
async fn a_check_run_that_the_token_may_not_make_is_refused_with_what_to_do() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    let words = "You must authenticate via a GitHub App.";
    let forbidden = ForgeFault::Forbidden { message: words.to_owned() };
    scene.forge.fault(REPOSITORY, forbidden, Aim::Writes, Times::Next(1));
    let report = CheckReport {
        name: "one/check".into(),
        marker: marker(),
        state: CheckState::Queued,
        title: "check".into(),
        summary: String::new(),
        url: None,
    };
    let refused =
        scene.github.put_check_run(&scene.project(), &change.head, &report).await.unwrap_err();
    assert_eq!(refused.class(), sluice_forge::ErrorClass::Final);
    let message = refused.to_string();
    assert!(
        message.contains(words) && message.contains("report by `status` instead of `check`"),
        "{message}"
    );
}

/// C02: where the forge refuses the range of a comment, the comment is on its last line.
#[tokio::test]
async fn a_comment_on_lines_that_are_not_shown_together_stands_beside_the_last() {
    let scene = Scene::new().await;
    let change = scene.propose("jobs.yaml", "- job:\n    nmae: x\n", "").await;
    // Like GitHub, the local forge refuses ranges that end before they begin.
    let wrong = [LineComment {
        path: "jobs.yaml".into(),
        line: 2,
        start_line: Some(7),
        text: "no such attribute".into(),
    }];
    scene
        .github
        .put_line_comments(&change, &marker(), "The configuration has errors.", &wrong)
        .await
        .unwrap();
    assert_eq!(scene.github.read_change(&change.key).await.unwrap().reviews.len(), 1);
}

/// Z6.6: configuration errors are shown on their lines.
#[tokio::test]
async fn line_comments_are_one_review() {
    let scene = Scene::new().await;
    let change = scene.propose("jobs.yaml", "- job:\n    nmae: x\n", "").await;
    let comments = [LineComment {
        path: "jobs.yaml".into(),
        line: 2,
        start_line: Some(1),
        text: "no such attribute".into(),
    }];
    for _ in 0..2 {
        scene
            .github
            .put_line_comments(&change, &marker(), "The configuration has errors.", &comments)
            .await
            .unwrap();
    }
    let facts = scene.github.read_change(&change.key).await.unwrap();
    assert_eq!(facts.reviews.len(), 1);
    let elsewhere = [LineComment {
        path: "README".into(),
        line: 1,
        start_line: None,
        text: "not in this change".into(),
    }];
    let refused = scene
        .github
        .put_line_comments(&change, &Marker::new("other"), "x", &elsewhere)
        .await
        .unwrap_err();
    assert!(matches!(refused, ForgeError::Refused { status: 422, .. }), "{refused:?}");
}

/// C5: from users' actions to verified and parsed events.
#[tokio::test]
async fn what_happens_on_the_forge_arrives_as_events() {
    let (received, mut events) = mpsc::unbounded_channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let receive = move |headers: HeaderMap, body: Bytes| async move {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let secrets = [ForgeSecret::new("new"), ForgeSecret::new("hush")];
        if webhook::verify(&secrets, header("x-hub-signature-256"), &body).is_err() {
            return StatusCode::UNAUTHORIZED;
        }
        let parsed = webhook::parse(
            &"forge".into(),
            "forge.example",
            header("x-github-event").unwrap(),
            &body,
        );
        received.send(parsed).unwrap();
        StatusCode::ACCEPTED
    };
    let app = axum::Router::new().route("/hook", axum::routing::post(receive));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let scene = Scene::with_hook(Some((url, "hush".into()))).await;
    let change = scene.propose("a.txt", "a", "").await;
    let number = change.key.number().unwrap();
    scene.forge.approve(REPOSITORY, number, "bob").unwrap();
    scene.forge.label(REPOSITORY, number, "gate", "bob").await.unwrap();
    scene.forge.comment(REPOSITORY, number, "recheck", "bob").unwrap();
    scene.github.put_comment(&change.key, &marker(), "Starting.").await.unwrap();
    let report = StatusReport {
        context: "one/check".into(),
        state: StatusState::Success,
        description: String::new(),
        url: None,
        wanted_at: Timestamp(0),
    };
    scene.github.set_status(&scene.project(), &change.head, &report).await.unwrap();
    scene.forge.deliveries_tried(REPOSITORY).await.unwrap();
    let deliveries = scene.github.deliveries(&scene.project()).await.unwrap();
    assert!(deliveries.iter().all(|delivery| delivery.answered == Some(202)), "{deliveries:?}");
    assert_eq!(deliveries.len(), scene.forge.deliveries(REPOSITORY).unwrap().len());

    let mut words = Vec::new();
    while let Ok(parsed) = events.try_recv() {
        words.push(match parsed {
            Parsed::Event { event, marker } => {
                assert_eq!(event.project, scene.project());
                let ours = if marker.is_some() { " (ours)" } else { "" };
                match event.kind {
                    EventKind::Push { git_ref, .. } => format!("{} pushed {git_ref}", event.sender),
                    EventKind::Change { number: n, action, .. } => {
                        format!("{} {action} {n}{ours}", event.sender)
                    }
                    other => panic!("{other:?}"),
                }
            }
            Parsed::OnCommit { event, .. } => {
                assert_eq!(event.head, change.head);
                format!("{} {}", event.sender, event.status)
            }
            Parsed::Ignored { .. } => "ignored".to_owned(),
            Parsed::Malformed { reason } => panic!("{reason}"),
        });
    }
    words.sort();
    let expected = [
        "ann opened 1",
        "ann pushed refs/heads/a.txt",
        "ann pushed refs/heads/main",
        "bob comment 1",
        "bob labeled 1",
        "bob submitted 1",
        "ignored",
        "sluice comment 1 (ours)",
        "sluice sluice:one/check:success",
    ];
    assert_eq!(words, expected);

    // A delivery without a successful answer can be redelivered under the same id.
    let again = &deliveries[0];
    scene.github.redeliver(&scene.project(), again).await.unwrap();
    scene.forge.deliveries_tried(REPOSITORY).await.unwrap();
    let listed = scene.github.deliveries(&scene.project()).await.unwrap();
    assert_eq!(listed.iter().filter(|delivery| delivery.id == again.id).count(), 2);
}

/// A review has its effect once, however often it is retried.
#[tokio::test]
async fn a_review_is_left_once_for_its_marker() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    for _ in 0..2 {
        let marker = Marker::new("one");
        scene
            .github
            .put_review(&change, &marker, ReviewDecision::Approve, "It passed.")
            .await
            .unwrap();
    }
    let reviews = scene.github.read_change(&change.key).await.unwrap().reviews;
    assert_eq!(reviews.len(), 1);
    assert_eq!((reviews[0].by.as_str(), reviews[0].state), ("sluice", ReviewState::Approved));
}

/// Z6.3: an application cannot read its own login: its comments are recognised by account type,
/// marker and text, and others are left alone.
#[tokio::test]
async fn an_application_that_does_not_know_its_login_says_everything_once() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    let number = change.key.number().unwrap();
    let github = driver(&scene.forge, "gates-token");
    let copied = marker().attach("Starting.");
    scene.forge.comment(REPOSITORY, number, &copied, "bob").unwrap();
    let strange = marker().attach("Another application's.");
    scene.forge.comment(REPOSITORY, number, &strange, "gates[bot]").unwrap();
    // Reviews are numbered in order.
    let before = scene.forge.approve(REPOSITORY, number, "bob").unwrap();
    scene.forge.fault(REPOSITORY, ForgeFault::LoseAnswer, Aim::Writes, Times::Next(1));
    let lost = github.put_comment(&change.key, &marker(), "Starting.").await;
    assert!(matches!(lost, Err(ForgeError::Unknown { .. })), "{lost:?}");
    let line = [LineComment {
        path: "a.txt".into(),
        line: 1,
        start_line: None,
        text: "no such attribute".into(),
    }];
    for _ in 0..2 {
        github.put_comment(&change.key, &marker(), "Starting.").await.unwrap();
        github
            .put_line_comments(&change, &Marker::new("lines"), "It has errors.", &line)
            .await
            .unwrap();
        github
            .put_review(&change, &Marker::new("review"), ReviewDecision::Approve, "It passed.")
            .await
            .unwrap();
    }
    let comments = scene.forge.comments(REPOSITORY, number).unwrap();
    let said: Vec<(&str, &str)> =
        comments.iter().map(|one| (one.author.as_str(), one.body.as_str())).collect();
    assert_eq!(
        said,
        [
            ("bob", copied.as_str()),
            ("gates[bot]", strange.as_str()),
            ("gates[bot]", copied.as_str())
        ]
    );
    let after = scene.forge.approve(REPOSITORY, number, "bob").unwrap();
    assert_eq!(after - before, 3, "the comments on lines and the review are there once each");
}
