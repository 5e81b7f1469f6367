//! Triggers as tables (Z6.1).

use crate::common::{event, event_by, event_of, facts, on, pattern, triggered_for, with};
use sluice_config::pipeline::{
    Filter, FilterKind, ForgePermission as Needed, GitHubFilter, GitHubTrigger, Manager, Pipeline,
    Trigger, TriggerKind, ZuulTrigger,
};
use sluice_gate::filter::{depends_on_sender, detail_by_images, is_triggered, uses_status};
use sluice_model::change::RepositoryPermission;
use sluice_model::event::{EventKind, ImageEvent};

fn triggered(trigger: GitHubTrigger, kind: EventKind) -> bool {
    triggered_for(trigger, kind, &facts())
}

/// Z6.1
#[test]
fn a_trigger_matches_its_events_and_actions() {
    let opened = || event("pull_request", "opened");
    for (trigger, kind, taken) in [
        (on("pull_request", &["opened", "changed"]), opened(), true),
        (on("pull_request", &[]), opened(), true),
        (on("pull_request", &["closed"]), opened(), false),
        (on("pull_request_review", &["opened"]), opened(), false),
        (
            GitHubTrigger { branch: vec![pattern("main")], ..on("pull_request", &[]) },
            opened(),
            true,
        ),
        (
            GitHubTrigger { branch: vec![pattern("stable")], ..on("pull_request", &[]) },
            opened(),
            false,
        ),
        (on("pull_request", &[]), EventKind::Sweep, false),
        // A re-requested check run, by its present and its older name.
        (on("check_run", &["rerequested"]), event("check_run", "rerequested"), true),
        (on("check_run", &["requested"]), event("check_run", "rerequested"), true),
        (on("check_run", &["rerequested"]), event("check_run", "requested"), true),
        (on("check_run", &["completed"]), event("check_run", "rerequested"), false),
        (on("pull_request", &["comment"]), event("pull_request", "comment"), true),
    ] {
        assert_eq!(triggered(trigger.clone(), kind), taken, "{trigger:?}");
    }
}

/// Z6.1: comments are searched, labels and states compared, statuses matched as a whole.
#[test]
fn a_trigger_matches_comments_labels_states_and_statuses() {
    let with = |edit: fn(&mut EventKind)| {
        let mut kind = event("e", "a");
        edit(&mut kind);
        kind
    };
    let said = || {
        with(|kind| {
            if let EventKind::Change { comment, .. } = kind {
                *comment = Some("please recheck now".to_owned())
            }
        })
    };
    let comment = |text: &str| GitHubTrigger { comment: vec![pattern(text)], ..on("e", &[]) };
    assert!(triggered(comment("recheck"), said()));
    assert!(!triggered(comment("^recheck"), said()));
    assert!(!triggered(comment("recheck"), event("e", "a")), "no comment is no match");

    let labeled = || {
        with(|kind| {
            if let EventKind::Change { label, action, .. } = kind {
                (*label, *action) = (Some("ready".to_owned()), "labeled".to_owned());
            }
        })
    };
    assert!(triggered(
        GitHubTrigger { label: vec!["ready".to_owned()], ..on("e", &[]) },
        labeled()
    ));
    assert!(!triggered(
        GitHubTrigger { label: vec!["late".to_owned()], ..on("e", &[]) },
        labeled()
    ));
    assert!(!triggered(
        GitHubTrigger { unlabel: vec!["ready".to_owned()], ..on("e", &[]) },
        labeled()
    ));

    let asked = || {
        with(|kind| {
            if let EventKind::Change { state, .. } = kind {
                *state = Some("changes_requested".to_owned())
            }
        })
    };
    assert!(triggered(
        GitHubTrigger { state: vec!["request_changes".to_owned()], ..on("e", &[]) },
        asked()
    ));
    assert!(!triggered(
        GitHubTrigger { state: vec!["approved".to_owned()], ..on("e", &[]) },
        asked()
    ));

    let status = || event_of("e", "a", Some("bot:demo/check:success"));
    assert!(triggered(
        GitHubTrigger { status: vec![pattern("bot:demo/.*:success")], ..on("e", &[]) },
        status()
    ));
    assert!(!triggered(
        GitHubTrigger { status: vec![pattern("bot:demo/")], ..on("e", &[]) },
        status()
    ));
}

/// Z6.1: `check` matches check runs only, each as a whole by its app, name and result.
#[test]
fn check_matches_whole_check_runs_only() {
    let run = |name: &str, said: Option<&str>| event_of(name, "completed", said);
    let failed = || run("check_run", Some("ci:one/unit:failure"));
    for (checks, kind, taken) in [
        (&["ci:one/unit:failure"][..], failed(), true),
        (&["ci:.*:failure"][..], failed(), true),
        (&["lint:.*", "ci:.*"][..], failed(), true),
        (&["ci:one/unit:success"][..], failed(), false),
        (&["one/unit"][..], failed(), false),
        (&[".*"][..], run("check_run", None), false),
        (&[".*"][..], run("pull_request", Some("ci:one/unit:failure")), false),
        (
            &[".*"][..],
            EventKind::Push {
                git_ref: "refs/heads/main".to_owned(),
                oldrev: "a".into(),
                newrev: "b".into(),
            },
            false,
        ),
    ] {
        let event = ["check_run", "pull_request", "push"].map(str::to_owned).to_vec();
        let check = checks.iter().map(|text| pattern(text)).collect();
        let trigger = GitHubTrigger { event, check, ..GitHubTrigger::default() };
        assert_eq!(triggered(trigger, kind.clone()), taken, "{checks:?} {kind:?}");
    }
}

/// Z6.1
#[test]
fn a_push_is_matched_by_its_ref() {
    let push = || EventKind::Push {
        git_ref: "refs/tags/v1".to_owned(),
        oldrev: "0".into(),
        newrev: "1".into(),
    };
    assert!(triggered(on("push", &[]), push()));
    assert!(triggered(
        GitHubTrigger { r#ref: vec![pattern("^refs/tags/.*$")], ..on("push", &[]) },
        push()
    ));
    assert!(!triggered(
        GitHubTrigger { r#ref: vec![pattern("^refs/heads/.*$")], ..on("push", &[]) },
        push()
    ));
}

fn pushed(git_ref: &str) -> EventKind {
    EventKind::Push { git_ref: git_ref.to_owned(), oldrev: "a".into(), newrev: "b".into() }
}

/// S06, Z6.1: a push is matched by its ref; a condition that only a change can meet excludes it.
#[test]
fn a_push_meets_no_condition_on_changes() {
    let on_push = || on("push", &[]);
    for (trigger, git_ref, taken) in [
        (on_push(), "refs/heads/main", true),
        (
            GitHubTrigger { r#ref: vec![pattern("^refs/heads/main$")], ..on_push() },
            "refs/heads/main",
            true,
        ),
        (
            GitHubTrigger { r#ref: vec![pattern("^refs/tags/")], ..on_push() },
            "refs/heads/main",
            false,
        ),
        (GitHubTrigger { r#ref: vec![pattern("^refs/tags/")], ..on_push() }, "refs/tags/1.0", true),
        (GitHubTrigger { branch: vec![pattern("main")], ..on_push() }, "refs/heads/main", true),
        (GitHubTrigger { branch: vec![pattern("main")], ..on_push() }, "refs/tags/main", false),
        (GitHubTrigger { label: vec!["go".to_owned()], ..on_push() }, "refs/heads/main", false),
        (
            GitHubTrigger {
                require: Some(FilterKind::GitHub(GitHubFilter::default())),
                ..on_push()
            },
            "refs/heads/main",
            false,
        ),
        (on("push", &["opened"]), "refs/heads/main", false),
        (on("pull_request", &[]), "refs/heads/main", false),
    ] {
        let event = event_by("ada", pushed(git_ref));
        assert_eq!(
            is_triggered(&with(trigger.clone()), &event, None, None),
            taken,
            "{trigger:?} {git_ref}"
        );
    }
}

/// Z6.7: a status is used only where a trigger matches it or a filter names statuses.
#[test]
fn a_pipeline_uses_statuses_only_where_it_names_them() {
    let on_status = |status: &str| GitHubTrigger {
        status: vec![pattern(status)],
        ..on("pull_request", &["status"])
    };
    let require = Some(FilterKind::GitHub(GitHubFilter {
        label: vec!["go".to_owned()],
        ..GitHubFilter::default()
    }));
    let about = event_by("ci", event_of("pull_request", "status", Some("ci:unit:success")));
    for (trigger, heeded) in [
        (on_status("ci:unit:success"), true),
        // The trigger's requirements on the change are not checked yet.
        (
            GitHubTrigger {
                require,
                branch: vec![pattern("stable")],
                ..on_status("ci:unit:success")
            },
            true,
        ),
        (on_status("ci:unit:failure"), false),
        (on("pull_request", &[]), true),
        (on("pull_request", &["opened", "changed"]), false),
        (on("check_run", &[]), false),
    ] {
        assert_eq!(uses_status(&with(trigger.clone()), &about), heeded, "{trigger:?}");
    }
    let mut gate = with(on("pull_request", &["opened"]));
    for (connection, heeded) in [("another", false), ("github", true)] {
        let kind = FilterKind::GitHub(GitHubFilter {
            status: vec![pattern("ci:.*")],
            ..GitHubFilter::default()
        });
        gate.reject = vec![Filter { connection: connection.into(), kind }];
        assert_eq!(uses_status(&gate, &about), heeded, "{connection}");
    }
}

/// S06: a deleted ref starts no GitHub pipeline, since GitHub's triggers have no `ignore-deletes`.
#[test]
fn a_deleted_ref_starts_nothing() {
    for git_ref in ["refs/heads/main", "refs/tags/1.0"] {
        let kind = |newrev: &str| EventKind::Push {
            git_ref: git_ref.to_owned(),
            oldrev: "a".into(),
            newrev: newrev.into(),
        };
        assert!(triggered(on("push", &[]), kind("b")));
        assert!(!triggered(on("push", &[]), kind("0000000000000000000000000000000000000000")));
    }
}

/// Z6.1: a sender without the required permission, or with an unknown one, starts nothing.
#[test]
fn a_trigger_with_permission_matches_only_senders_that_have_it() {
    let pipeline =
        with(GitHubTrigger { permission: Some(Needed::Write), ..on("pull_request", &["comment"]) });
    let event = |action: &str| event_by("ada", event("pull_request", action));
    for (may, fires) in [
        (None, false),
        (Some(RepositoryPermission::None), false),
        (Some(RepositoryPermission::Read), false),
        (Some(RepositoryPermission::Write), true),
        (Some(RepositoryPermission::Admin), true),
    ] {
        assert_eq!(
            is_triggered(&pipeline, &event("comment"), Some(&facts()), may),
            fires,
            "{may:?}"
        );
    }
    // The sender's permission is read only where it decides.
    assert!(depends_on_sender(&pipeline, &event("comment"), Some(&facts())));
    assert!(!depends_on_sender(&pipeline, &event("opened"), Some(&facts())));
    let mut either = pipeline;
    either.triggers.extend(with(on("pull_request", &["comment"])).triggers);
    assert!(!depends_on_sender(&either, &event("comment"), Some(&facts())));
}

/// L1.2, L1.5, L1.6: each of the three image events starts only pipelines that name it.
#[test]
fn an_image_event_starts_pipelines_that_name_it() {
    let all = [ImageEvent::ImageBuild, ImageEvent::ImageValidate, ImageEvent::ImageDelete];
    for (events, taken) in [
        (&["image-build"][..], [true, false, false]),
        (&["image-validate", "image-delete"][..], [false, true, true]),
        (&["project-change-merged", "parent-change-enqueued"][..], [false; 3]),
        (&[][..], [false; 3]),
    ] {
        let mut pipeline = Pipeline::new("p", Manager::Independent);
        let event = events.iter().map(|event| (*event).to_owned()).collect();
        let kind = TriggerKind::Zuul(ZuulTrigger { event, ..ZuulTrigger::default() });
        pipeline.triggers = vec![Trigger { connection: "zuul".into(), kind, debug: false }];
        assert_eq!(
            all.map(|what| detail_by_images(&pipeline, what).is_some()),
            taken,
            "{events:?}"
        );
    }
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    let kind = TriggerKind::GitHub(on("pull_request", &[]));
    pipeline.triggers = vec![Trigger { connection: "github".into(), kind, debug: false }];
    assert_eq!(all.map(|what| detail_by_images(&pipeline, what).is_some()), [false; 3]);
}
