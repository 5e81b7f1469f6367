//! Tests reading through the driver from a real forge with real git.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use axum::http::StatusCode;
use sluice_forge::{
    ErrorClass, Forge as _, ForgeError, ForgeSecret, GitHub, GitHubOptions, Protection,
    StatusReport, StatusState,
};
use sluice_local_forge::{Aim, Edit, ForgeFault, ReviewVote as Review, Times};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeStatus, RepositoryPermission, ReviewState};
use sluice_model::git::BranchKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{REPOSITORY, Scene, driver};

/// Z6.1, Z6.5, D01
#[tokio::test]
async fn a_change_is_read_with_all_that_a_decision_asks_for() {
    let scene = Scene::new().await;
    let web = scene.forge.web_url();
    let body = format!(
        "Adds it.\n\nDepends-On: {web}/org/other/pull/7\r\nDepends-On: https://elsewhere.example/x/y/pull/1"
    );
    let change = scene.propose("added.txt", "hello\n", &body).await;
    let number = change.key.number().unwrap();
    scene.forge.label(REPOSITORY, number, "ready", "bob").await.unwrap();
    scene.forge.label(REPOSITORY, number, "gate", "bob").await.unwrap();
    scene.forge.review(REPOSITORY, number, Review::RequestChanges, "no", "bob").unwrap();
    scene.forge.approve(REPOSITORY, number, "bob").unwrap();
    scene.forge.review(REPOSITORY, number, Review::Comment, "by the way", "bob").unwrap();
    scene.forge.approve(REPOSITORY, number, "guest").unwrap();
    for state in [StatusState::Pending, StatusState::Success] {
        let report = StatusReport {
            context: "one/check".into(),
            state,
            description: "x".repeat(200),
            url: None,
            wanted_at: Timestamp(0),
        };
        scene.github.set_status(&scene.project(), &change.head, &report).await.unwrap();
    }
    let facts = scene.github.read_change(&change.key).await.unwrap();
    assert_eq!(facts.change, change);
    assert_eq!(
        (facts.status, facts.draft, facts.mergeable),
        (ChangeStatus::Open, false, Some(true))
    );
    assert_eq!((facts.title.as_str(), facts.author.as_str()), ("Write added.txt", "ann"));
    assert_eq!(facts.url, format!("{web}/org/one/pull/{number}"));
    assert_eq!(facts.labels, ["gate", "ready"]);
    let reviews: Vec<_> =
        facts.reviews.iter().map(|r| (r.by.as_str(), r.state, r.permission)).collect();
    let expected = [
        ("bob", ReviewState::Approved, RepositoryPermission::Write),
        ("guest", ReviewState::Approved, RepositoryPermission::Read),
    ];
    assert_eq!(reviews, expected);
    let addresses: Vec<_> = facts.reviews.iter().map(|r| r.email.as_deref()).collect();
    assert_eq!(addresses, [Some("bob@example.org"), None]);
    let statuses: Vec<_> = facts
        .statuses
        .iter()
        .map(|s| (s.by.as_str(), s.context.as_str(), s.state.as_str()))
        .collect();
    assert_eq!(statuses, [("sluice", "one/check", "success")]);
    assert_eq!(facts.files.as_deref(), Some(&["added.txt".to_owned()][..]));
    assert_eq!(
        facts.depends_on,
        [format!("{web}/org/other/pull/7"), "https://elsewhere.example/x/y/pull/1".into()]
    );
    assert_eq!(facts.merge_commit, None, "a test merge is no merge");
    let dependency = scene.github.change_at(&facts.depends_on[0]).unwrap();
    assert_eq!(
        (dependency.project.as_str(), dependency.number()),
        ("forge.example/org/other", Some(7))
    );
}

/// Z6.1: check runs belong to GitHub Apps, and not every token may read them.
#[tokio::test]
async fn a_change_is_read_without_its_check_runs_where_the_token_is_shown_none() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    let report = StatusReport {
        context: "unit".into(),
        state: StatusState::Success,
        description: String::new(),
        url: None,
        wanted_at: Timestamp(0),
    };
    scene.github.set_status(&scene.project(), &change.head, &report).await.unwrap();
    let words = "Resource not accessible by personal access token".to_owned();
    for fault in [ForgeFault::Forbidden { message: words }, ForgeFault::RepositoryGone] {
        scene.forge.fault(REPOSITORY, fault, Aim::Path("/check-runs".into()), Times::UntilCleared);
        let facts = scene.github.read_change(&change.key).await.unwrap();
        assert_eq!((facts.statuses.len(), facts.statuses[0].context.as_str()), (1, "unit"));
        assert!(facts.truncated.check_runs && !facts.truncated.can_be_completed());
        scene.forge.clear_faults(REPOSITORY);
    }
    let limited = ForgeFault::RateLimited { retry_after_seconds: 9 };
    scene.forge.fault(REPOSITORY, limited, Aim::Path("/check-runs".into()), Times::Next(1));
    let limited = scene.github.read_change(&change.key).await.unwrap_err();
    assert_eq!(
        limited.class(),
        ErrorClass::RedeliverAfter { seconds: 9 },
        "a limit says nothing of what is there"
    );
    assert!(scene.github.read_change(&change.key).await.unwrap().truncated.is_none());
}

/// Z6.1
#[tokio::test]
async fn a_rename_touches_both_names_and_a_conflict_is_seen() {
    let scene = Scene::new().await;
    let edits = [Edit::remove("README"), Edit::write("docs/README", "one\ntwo\nthree\n")];
    scene.forge.commit(REPOSITORY, "moved", "Move", &edits, "ann").await.unwrap();
    let proposal = sluice_local_forge::Proposal {
        title: "Move".into(),
        head: "moved".into(),
        ..Default::default()
    };
    let number = scene.forge.open_pull(REPOSITORY, proposal, "ann").await.unwrap();
    let facts = scene.github.read_change(&scene.key(number)).await.unwrap();
    assert_eq!(facts.files.unwrap(), ["README", "docs/README"]);

    let change = scene.propose("same.txt", "mine\n", "").await;
    scene
        .forge
        .commit(REPOSITORY, "main", "First", &[Edit::write("same.txt", "theirs\n")], "bob")
        .await
        .unwrap();
    assert_eq!(scene.github.read_change(&change.key).await.unwrap().mergeable, Some(false));
}

#[tokio::test]
async fn branches_tips_and_commits_are_read() {
    let scene = Scene::new().await;
    let tip = scene
        .forge
        .commit(REPOSITORY, "stable/one", "Branch off", &[Edit::write("x", "y")], "ann")
        .await
        .unwrap();
    scene.forge.protect(REPOSITORY, "main").unwrap();
    let branches = scene.github.branches(&scene.project()).await.unwrap();
    let listed: Vec<_> =
        branches.iter().map(|branch| (branch.name.as_str(), branch.protection)).collect();
    assert_eq!(listed, [("main", Protection::Protected), ("stable/one", Protection::Open)]);
    let stable = BranchKey { project: scene.project(), branch: "stable/one".into() };
    let commit = scene.github.branch_tip(&stable).await.unwrap();
    assert_eq!(commit.id.as_str(), tip);
    assert_eq!(
        Some(commit.tree.0.clone()),
        scene.forge.tree(REPOSITORY, "stable/one").await.unwrap()
    );
    let facts = scene.github.read_commit(&scene.project(), &commit.id).await.unwrap();
    assert_eq!((facts.commit, facts.message.as_str()), (commit, "Branch off"));
    assert_eq!(facts.parents, [scene.github.branch_tip(&scene.main()).await.unwrap().id]);
}

/// Z2.2
#[tokio::test]
async fn a_branch_that_is_locked_says_so_and_one_without_rules_says_nothing() {
    let scene = Scene::new().await;
    for branch in ["guarded", "release/1.0", "free"] {
        scene
            .forge
            .commit(REPOSITORY, branch, "Branch off", &[Edit::write("x", branch)], "ann")
            .await
            .unwrap();
    }
    scene.forge.protect(REPOSITORY, "guarded").unwrap();
    scene.forge.mark_locked(REPOSITORY, "release/1.0").unwrap();
    let mut said = Vec::new();
    for name in ["guarded", "release/1.0", "free", "nowhere"] {
        let branch = BranchKey { project: scene.project(), branch: name.into() };
        said.push(scene.github.is_locked(&branch).await.unwrap());
    }
    assert_eq!(said, [Some(false), Some(true), None, None]);
}

#[tokio::test]
async fn open_changes_are_listed_with_their_heads() {
    let scene = Scene::new().await;
    let one = scene.propose("one.txt", "1", "").await;
    let two = scene.propose("two.txt", "2", "").await;
    let three = scene.propose("three.txt", "3", "").await;
    scene.forge.close(REPOSITORY, two.key.number().unwrap(), "ann").await.unwrap();
    let listed = scene.github.open_changes(&scene.project()).await.unwrap();
    let changes: Vec<_> = listed.iter().map(|open| open.change.clone()).collect();
    assert_eq!(changes, [one.clone(), three]);
    let facts = scene.github.read_change(&one.key).await.unwrap();
    assert!(listed[0].updated_at.0 > 0 && facts.updated_at == listed[0].updated_at);
    assert_eq!(scene.github.changes_with_head(&scene.project(), &one.head).await.unwrap(), [one]);
}

#[tokio::test]
async fn errors_are_distinguished() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a", "").await;
    let missing = scene.github.read_change(&scene.key(99)).await.unwrap_err();
    assert!(matches!(missing, ForgeError::NotFound { .. }), "{missing:?}");
    let stranger = driver(&scene.forge, "wrong-token").read_change(&change.key).await.unwrap_err();
    assert!(matches!(stranger, ForgeError::Unauthorised { .. }), "{stranger:?}");
    assert!(!format!("{stranger:?}").contains("wrong-token"));
    let reader = driver(&scene.forge, "guest-token");
    let report = StatusReport {
        context: "c".into(),
        state: StatusState::Success,
        description: String::new(),
        url: None,
        wanted_at: Timestamp(0),
    };
    let refused = reader.set_status(&scene.project(), &change.head, &report).await.unwrap_err();
    assert!(matches!(refused, ForgeError::Refused { status: 403, .. }), "{refused:?}");

    let limited = ForgeFault::RateLimited { retry_after_seconds: 17 };
    scene.forge.fault(REPOSITORY, limited, Aim::Everything, Times::Next(1));
    let limited = scene.github.read_change(&change.key).await.unwrap_err();
    assert_eq!(limited.class(), ErrorClass::RedeliverAfter { seconds: 17 }, "{limited:?}");

    scene.forge.fault(REPOSITORY, ForgeFault::RepositoryGone, Aim::Everything, Times::UntilCleared);
    let gone = scene.github.branch_tip(&scene.main()).await.unwrap_err();
    assert_eq!(gone.class(), ErrorClass::Final, "{gone:?}");
    scene.forge.clear_faults(REPOSITORY);
    scene.github.branch_tip(&scene.main()).await.unwrap();
}

#[tokio::test]
async fn a_read_is_tried_three_times_and_no_more() {
    let scene = Scene::new().await;
    let trouble = |times| {
        scene.forge.fault(
            REPOSITORY,
            ForgeFault::ServerError { status: 502 },
            Aim::Everything,
            times,
        )
    };
    trouble(Times::Next(2));
    scene.github.branches(&scene.project()).await.unwrap();
    trouble(Times::Next(3));
    let failed = scene.github.branches(&scene.project()).await.unwrap_err();
    assert_eq!(failed.class(), ErrorClass::Redeliver, "{failed:?}");
    scene.github.branches(&scene.project()).await.unwrap();
}

/// S06: the ref's commit confirms a push.
#[tokio::test]
async fn a_ref_is_read_as_the_commit_it_leads_to_or_as_gone() {
    let scene = Scene::new().await;
    let tip = scene.github.branch_tip(&scene.main()).await.unwrap();
    let read = async |name: &str| scene.github.ref_tip(&scene.project(), name).await.unwrap();
    assert_eq!(read("refs/heads/main").await, Some(tip.clone()));
    assert_eq!(read("refs/heads/none").await, None);
    assert_eq!(read("refs/tags/1.0").await, None);
    let page = scene.github.page_of(&scene.project(), Some(&tip.id));
    assert!(page.ends_with(&format!("/org/one/commit/{}", tip.id)), "{page}");
}

/// Z6.1: the permission of an event's author.
#[tokio::test]
async fn a_permission_is_read_by_login_and_a_stranger_has_none() {
    let scene = Scene::new().await;
    for (login, expected) in [
        ("sluice", RepositoryPermission::Admin),
        ("ann", RepositoryPermission::Write),
        ("guest", RepositoryPermission::Read),
        ("stranger", RepositoryPermission::None),
    ] {
        assert_eq!(
            scene.github.permission_of(&scene.project(), login).await.unwrap(),
            expected,
            "{login}"
        );
    }
}

/// Z6.1: Sluice's own events are recognised by its account.
#[tokio::test]
async fn a_token_says_whose_it_is() {
    let scene = Scene::new().await;
    for (token, login) in [("sluice-token", "sluice"), ("ann-token", "ann")] {
        assert_eq!(
            driver(&scene.forge, token).own_account().await.unwrap().as_deref(),
            Some(login)
        );
    }
    assert_eq!(
        driver(&scene.forge, "gates-token").own_account().await.unwrap(),
        None,
        "an application has no login"
    );
}

/// Z6.7: an application's token has no login, and it is not requested for each status.
#[tokio::test]
async fn a_token_that_is_nobodys_is_asked_once_whose_it_is() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let refuse = move || async move {
        counts.fetch_add(1, Ordering::SeqCst);
        StatusCode::FORBIDDEN
    };
    let app = axum::Router::new().route("/user", axum::routing::get(refuse));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let options = GitHubOptions {
        connection: "forge".into(),
        host: "forge.example".into(),
        api_url: url.clone(),
        web_url: url,
        token: ForgeSecret::new("an application's"),
        own_login: None,
    };
    let github = GitHub::new(options).unwrap();
    for _ in 0..3 {
        assert_eq!(github.own_account().await.unwrap(), None);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
