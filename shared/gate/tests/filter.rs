//! Triggers, requirements and rejects as tables (Z6.1, R08).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_config::Pattern;
use sluice_config::pipeline::{
    Filter, FilterKind, GitHubFilter, GitHubTrigger, Manager, Permission as Needed, Pipeline, ReviewRequirement,
    Trigger, TriggerKind, ZuulTrigger,
};
use sluice_gate::Asks;
use sluice_gate::filter::{asks_who, detail_by_images, heeds_status, is_triggered, refusal, refusal_of_refs};
use sluice_model::change::{
    ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, CommitStatus, Cut, Permission, Review, ReviewState,
};
use sluice_model::event::{EventKind, ForgeEvent, ImageEvent};
use sluice_model::{ProjectName, Timestamp};

const DAY_SECONDS: u64 = 86_400;
const NOW: Timestamp = Timestamp(100 * DAY_SECONDS * 1_000);

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

fn facts() -> ChangeFacts {
    let key = ChangeKey::change("github".into(), ProjectName::new("github.com", "org/one"), 1);
    ChangeFacts {
        change: ChangeRef { key, branch: "main".into(), head: "abc".into(), patchset: "abc".to_owned() },
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
        cut: Cut::default(),
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

fn review(state: ReviewState, permission: Permission, days_ago: u64) -> Review {
    Review {
        by: "grace".to_owned(),
        email: Some("grace@example.com".to_owned()),
        state,
        permission,
        submitted_at: Timestamp(NOW.0 - days_ago * DAY_SECONDS * 1_000),
    }
}

fn event(name: &str, action: &str) -> EventKind {
    EventKind::Change {
        number: 1,
        event: name.to_owned(),
        action: action.to_owned(),
        comment: None,
        label: None,
        state: None,
        status: None,
    }
}

fn triggered(trigger: GitHubTrigger, kind: EventKind) -> bool {
    triggered_for(trigger, kind, &facts())
}

fn triggered_for(trigger: GitHubTrigger, kind: EventKind, facts: &ChangeFacts) -> bool {
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    pipeline.triggers = vec![Trigger { connection: "github".into(), kind: TriggerKind::GitHub(trigger), debug: false }];
    let event = ForgeEvent {
        connection: "github".into(),
        project: ProjectName::new("github.com", "org/one"),
        sender: "ada".to_owned(),
        kind,
    };
    is_triggered(&pipeline, &event, Some(facts), None)
}

fn on(name: &str, actions: &[&str]) -> GitHubTrigger {
    GitHubTrigger {
        event: vec![name.to_owned()],
        action: actions.iter().map(|a| (*a).to_owned()).collect(),
        ..GitHubTrigger::default()
    }
}

/// Z6.1
#[test]
fn a_trigger_takes_its_events_with_its_actions() {
    let opened = || event("pull_request", "opened");
    for (trigger, kind, taken) in [
        (on("pull_request", &["opened", "changed"]), opened(), true),
        (on("pull_request", &[]), opened(), true),
        (on("pull_request", &["closed"]), opened(), false),
        (on("pull_request_review", &["opened"]), opened(), false),
        (GitHubTrigger { branch: vec![pattern("main")], ..on("pull_request", &[]) }, opened(), true),
        (GitHubTrigger { branch: vec![pattern("stable")], ..on("pull_request", &[]) }, opened(), false),
        (on("pull_request", &[]), EventKind::Sweep, false),
        // A check run that is asked for again, by its name and by the older one; also as it was stored by that.
        (on("check_run", &["rerequested"]), event("check_run", "rerequested"), true),
        (on("check_run", &["requested"]), event("check_run", "rerequested"), true),
        (on("check_run", &["rerequested"]), event("check_run", "requested"), true),
        (on("check_run", &["completed"]), event("check_run", "rerequested"), false),
        (on("pull_request", &["comment"]), event("pull_request", "comment"), true),
    ] {
        assert_eq!(triggered(trigger.clone(), kind), taken, "{trigger:?}");
    }
}

/// Z6.1: a comment is searched, a label and a state are named, a status is matched as a whole.
#[test]
fn a_trigger_takes_what_the_event_says_besides() {
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
    assert!(triggered(GitHubTrigger { label: vec!["ready".to_owned()], ..on("e", &[]) }, labeled()));
    assert!(!triggered(GitHubTrigger { label: vec!["late".to_owned()], ..on("e", &[]) }, labeled()));
    assert!(!triggered(GitHubTrigger { unlabel: vec!["ready".to_owned()], ..on("e", &[]) }, labeled()));

    let asked = || {
        with(|kind| {
            if let EventKind::Change { state, .. } = kind {
                *state = Some("changes_requested".to_owned())
            }
        })
    };
    assert!(triggered(GitHubTrigger { state: vec!["request_changes".to_owned()], ..on("e", &[]) }, asked()));
    assert!(!triggered(GitHubTrigger { state: vec!["approved".to_owned()], ..on("e", &[]) }, asked()));

    let status = || {
        with(|kind| {
            if let EventKind::Change { status, .. } = kind {
                *status = Some("bot:demo/check:success".to_owned())
            }
        })
    };
    assert!(triggered(GitHubTrigger { status: vec![pattern("bot:demo/.*:success")], ..on("e", &[]) }, status()));
    assert!(!triggered(GitHubTrigger { status: vec![pattern("bot:demo/")], ..on("e", &[]) }, status()));
}

/// Z6.1: `check` is about check runs alone, each by its app, its name and how it ended, as a whole.
#[test]
fn a_trigger_takes_a_check_run_by_its_whole_name_and_no_other_event_by_it() {
    let run = |name: &str, said: Option<&str>| {
        let mut kind = event(name, "completed");
        if let EventKind::Change { status, .. } = &mut kind {
            *status = said.map(str::to_owned);
        }
        kind
    };
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
            EventKind::Push { git_ref: "refs/heads/main".to_owned(), oldrev: "a".into(), newrev: "b".into() },
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
fn a_push_is_taken_by_its_ref() {
    let push = || EventKind::Push { git_ref: "refs/tags/v1".to_owned(), oldrev: "0".into(), newrev: "1".into() };
    assert!(triggered(on("push", &[]), push()));
    assert!(triggered(GitHubTrigger { r#ref: vec![pattern("^refs/tags/.*$")], ..on("push", &[]) }, push()));
    assert!(!triggered(GitHubTrigger { r#ref: vec![pattern("^refs/heads/.*$")], ..on("push", &[]) }, push()));
}

fn asked(require: Option<GitHubFilter>, reject: Option<GitHubFilter>, facts: &ChangeFacts) -> Option<String> {
    let filters = |filter: Option<GitHubFilter>| {
        filter
            .map(|filter| Filter { connection: "github".into(), kind: FilterKind::GitHub(filter) })
            .into_iter()
            .collect()
    };
    let mut pipeline = Pipeline::new("gate", Manager::Dependent);
    pipeline.require = filters(require);
    pipeline.reject = filters(reject);
    refusal(&pipeline, facts, NOW)
}

/// Z6.1: each requirement by itself, met and unmet; rejects turn them round. A trigger asks what is its own in the same words.
#[test]
fn what_is_required_must_hold_and_what_is_rejected_must_not() {
    let none = GitHubFilter::default;
    let by = |kind: &str| {
        let wanted = ReviewRequirement { r#type: Some(kind.to_owned()), ..ReviewRequirement::default() };
        GitHubFilter { review: vec![wanted], ..GitHubFilter::default() }
    };
    let reviews =
        [ReviewState::ChangesRequested, ReviewState::Commented].map(|state| review(state, Permission::Write, 0));
    let reviewed = ChangeFacts { reviews: reviews.to_vec(), ..facts() };
    let taken = |require: Option<GitHubFilter>, reject: Option<GitHubFilter>| {
        let (require, reject) = (require.map(FilterKind::GitHub), reject.map(FilterKind::GitHub));
        let trigger = GitHubTrigger { require, reject, ..on("pull_request", &[]) };
        triggered_for(trigger, event("pull_request", "opened"), &reviewed)
    };
    for (filter, holds) in [
        (none(), true),
        (GitHubFilter { open: Some(true), ..none() }, true),
        (GitHubFilter { open: Some(false), ..none() }, false),
        (GitHubFilter { merged: Some(false), ..none() }, true),
        (GitHubFilter { merged: Some(true), ..none() }, false),
        // A change is read as it is, so that what is asked about is always its newest revision.
        (GitHubFilter { current_patchset: Some(true), ..none() }, true),
        (GitHubFilter { current_patchset: Some(false), ..none() }, false),
        (GitHubFilter { draft: Some(false), ..none() }, true),
        (GitHubFilter { draft: Some(true), ..none() }, false),
        (GitHubFilter { label: vec!["ready".to_owned()], ..none() }, true),
        (GitHubFilter { label: vec!["late".to_owned()], ..none() }, false),
        (GitHubFilter { status: vec![pattern(r"sluice\[bot\]:demo/check:success")], ..none() }, true),
        (GitHubFilter { status: vec![pattern(".*:demo/check:failure")], ..none() }, false),
        // In GitHub's words as in Zuul's.
        (by("request_changes"), true),
        (by("changes_requested"), true),
        (by("comment"), true),
        (by("commented"), true),
        (by("approved"), false),
    ] {
        let required = asked(Some(filter.clone()), None, &reviewed);
        assert_eq!(required.is_none(), holds, "{filter:?}: {required:?}");
        assert_eq!(taken(Some(filter.clone()), None), holds, "required by a trigger: {filter:?}");
        if filter == none() {
            continue; // Who rejects nothing rejects nobody.
        }
        let rejected = asked(None, Some(filter.clone()), &reviewed);
        assert_eq!(rejected.is_some(), holds, "{filter:?}: {rejected:?}");
        assert_eq!(taken(None, Some(filter.clone())), !holds, "rejected by a trigger: {filter:?}");
    }
    let both = [by("comment").review, by("approved").review].concat();
    let reviews = || GitHubFilter { review: both.clone(), ..none() };
    assert!(asked(Some(reviews()), None, &reviewed).is_some(), "each review is required");
    assert!(asked(None, Some(reviews()), &reviewed).is_some(), "any review is rejected");
    let either = vec![pattern("ci:unit:success"), pattern(".*:demo/check:success")];
    let statuses = || GitHubFilter { status: either.clone(), ..none() };
    assert_eq!(asked(Some(statuses()), None, &reviewed), None, "any one status is enough");
    assert!(asked(None, Some(statuses()), &reviewed).is_some(), "any status is rejected");
    assert_eq!(asked(None, Some(none()), &reviewed), None);
}

/// R08, Z6.1: type, permission, name, address and age of a review; a dismissed one is none. What meets a requirement is rejected where
/// it is to be rejected, of a pipeline and of a trigger alike; names and addresses are searched.
#[test]
fn a_review_counts_by_its_type_its_permission_its_author_and_its_age() {
    let any = ReviewRequirement::default;
    let approved =
        || ReviewRequirement { r#type: Some("approved".to_owned()), permission: Some(Needed::Write), ..any() };
    let recent = || ReviewRequirement { newer_than_seconds: Some(2 * DAY_SECONDS), ..approved() };
    let older = || ReviewRequirement { older_than_seconds: Some(2 * DAY_SECONDS), ..approved() };
    let by = |name: &str| ReviewRequirement { username: Some(pattern(name)), ..approved() };
    let at = |address: &str| ReviewRequirement { email: Some(pattern(address)), ..approved() };
    let yes = ReviewState::Approved;
    let robot = || Review { by: "bot-2".to_owned(), email: None, ..review(yes, Permission::Write, 0) };
    for (requirement, reviews, met) in [
        (approved(), vec![], false),
        (approved(), vec![review(yes, Permission::Write, 0)], true),
        (approved(), vec![review(yes, Permission::Admin, 0)], true),
        (approved(), vec![review(yes, Permission::Read, 0)], false),
        (approved(), vec![review(ReviewState::Commented, Permission::Write, 0)], false),
        (approved(), vec![review(ReviewState::ChangesRequested, Permission::Write, 0)], false),
        (any(), vec![review(ReviewState::Dismissed, Permission::Admin, 0)], false),
        (recent(), vec![review(yes, Permission::Write, 1)], true),
        (recent(), vec![review(yes, Permission::Write, 3)], false),
        (older(), vec![review(yes, Permission::Write, 3)], true),
        (older(), vec![review(yes, Permission::Write, 1)], false),
        (by("gra.*"), vec![review(yes, Permission::Write, 0)], true),
        (by("race$"), vec![review(yes, Permission::Write, 0)], true),
        (by("^race"), vec![review(yes, Permission::Write, 0)], false),
        (by("bot"), vec![robot()], true),
        (by("^bot$"), vec![robot()], false),
        (at("@example\\.com$"), vec![review(yes, Permission::Write, 0)], true),
        (at("^example"), vec![review(yes, Permission::Write, 0)], false),
        (at("@example\\.org$"), vec![review(yes, Permission::Write, 0)], false),
        (at("bot@"), vec![review(yes, Permission::Write, 0)], false),
        // Whose address is not shown is taken for nobody's, and another's address does not stand for his.
        (at(".*"), vec![robot()], false),
        (
            ReviewRequirement { username: Some(pattern("bot")), ..at("grace") },
            vec![robot(), review(yes, Permission::Write, 0)],
            false,
        ),
    ] {
        let facts = ChangeFacts { reviews, ..facts() };
        let filter = || GitHubFilter { review: vec![requirement.clone()], ..GitHubFilter::default() };
        let refused = asked(Some(filter()), None, &facts);
        assert_eq!(refused.is_none(), met, "{requirement:?} {:?}: {refused:?}", facts.reviews);
        let rejected = asked(None, Some(filter()), &facts);
        assert_eq!(rejected.is_some(), met, "rejected: {requirement:?} {:?}: {rejected:?}", facts.reviews);
        let taken = |require: Option<GitHubFilter>, reject: Option<GitHubFilter>| {
            let (require, reject) = (require.map(FilterKind::GitHub), reject.map(FilterKind::GitHub));
            let trigger = GitHubTrigger { require, reject, ..on("pull_request", &[]) };
            triggered_for(trigger, event("pull_request", "opened"), &facts)
        };
        assert_eq!(taken(Some(filter()), None), met, "required by a trigger: {requirement:?}");
        assert_eq!(taken(None, Some(filter())), !met, "rejected by a trigger: {requirement:?}");
    }
}

/// Z6.1: a review that may be missed because its author shows no address is missed with that word.
#[test]
fn a_review_by_an_address_that_is_not_shown_is_missed_with_its_reason() {
    let wanted = ReviewRequirement { email: Some(pattern("@example\\.org$")), ..ReviewRequirement::default() };
    let told = |email: Option<&str>| {
        let email = email.map(str::to_owned);
        let reviews = vec![Review { email, ..review(ReviewState::Approved, Permission::Write, 0) }];
        let filter = GitHubFilter { review: vec![wanted.clone()], ..GitHubFilter::default() };
        asked(Some(filter), None, &ChangeFacts { reviews, ..facts() })
    };
    let missing = "pipeline gate requires a review: any by the address @example\\.org$";
    assert_eq!(told(Some("grace@example.com")).as_deref(), Some(missing));
    let hidden = told(None).unwrap();
    assert!(hidden.starts_with(missing) && hidden.contains("shows no address"), "{hidden}");
    assert_eq!(told(Some("grace@example.org")), None);
}

/// Z6.1: a filter of another connection is not about this change; the reason names pipeline and requirement.
#[test]
fn a_refusal_says_what_is_missing() {
    let review = vec![ReviewRequirement {
        r#type: Some("approved".to_owned()),
        permission: Some(Needed::Write),
        ..ReviewRequirement::default()
    }];
    let told = asked(Some(GitHubFilter { review, ..GitHubFilter::default() }), None, &facts());
    assert_eq!(told.as_deref(), Some("pipeline gate requires a review: approved by somebody with write permission"));
    let mut other = Pipeline::new("gate", Manager::Dependent);
    let kind = FilterKind::GitHub(GitHubFilter { open: Some(false), ..GitHubFilter::default() });
    other.require = vec![Filter { connection: "another".into(), kind }];
    assert_eq!(refusal(&other, &facts(), NOW), None);
}

fn pushed(git_ref: &str) -> EventKind {
    EventKind::Push { git_ref: git_ref.to_owned(), oldrev: "a".into(), newrev: "b".into() }
}

/// S06, Z6.1: a push is looked at by its ref; whatever only a change has keeps it out.
#[test]
fn a_push_is_taken_by_its_ref_and_by_nothing_that_a_change_has() {
    let on_push = || on("push", &[]);
    for (trigger, git_ref, taken) in [
        (on_push(), "refs/heads/main", true),
        (GitHubTrigger { r#ref: vec![pattern("^refs/heads/main$")], ..on_push() }, "refs/heads/main", true),
        (GitHubTrigger { r#ref: vec![pattern("^refs/tags/")], ..on_push() }, "refs/heads/main", false),
        (GitHubTrigger { r#ref: vec![pattern("^refs/tags/")], ..on_push() }, "refs/tags/1.0", true),
        (GitHubTrigger { branch: vec![pattern("main")], ..on_push() }, "refs/heads/main", true),
        (GitHubTrigger { branch: vec![pattern("main")], ..on_push() }, "refs/tags/main", false),
        (GitHubTrigger { label: vec!["go".to_owned()], ..on_push() }, "refs/heads/main", false),
        (
            GitHubTrigger { require: Some(FilterKind::GitHub(GitHubFilter::default())), ..on_push() },
            "refs/heads/main",
            false,
        ),
        (on("push", &["opened"]), "refs/heads/main", false),
        (on("pull_request", &[]), "refs/heads/main", false),
    ] {
        let event = ForgeEvent {
            connection: "github".into(),
            project: ProjectName::new("github.com", "org/one"),
            sender: "ada".to_owned(),
            kind: pushed(git_ref),
        };
        assert_eq!(is_triggered(&with(trigger.clone()), &event, None, None), taken, "{trigger:?} {git_ref}");
    }
}

/// Z6.1: of a change with more reviews or statuses than are read, what was not read grants nothing and may be what is rejected.
#[test]
fn what_was_not_read_of_a_change_never_lets_it_through() {
    let review =
        || vec![ReviewRequirement { r#type: Some("changes_requested".to_owned()), ..ReviewRequirement::default() }];
    let status = || vec![pattern("ci:unit:failure")];
    let cut = |reviews, statuses| ChangeFacts {
        reviews: Vec::new(),
        statuses: Vec::new(),
        cut: Cut { reviews, statuses, ..Cut::default() },
        ..facts()
    };
    for (filter, cut_short) in [
        (GitHubFilter { review: review(), ..GitHubFilter::default() }, cut(true, false)),
        (GitHubFilter { status: status(), ..GitHubFilter::default() }, cut(false, true)),
    ] {
        let whole = cut(false, false);
        let required = |facts| asked(Some(filter.clone()), None, facts);
        let rejected = |facts| asked(None, Some(filter.clone()), facts);
        assert!(required(&whole).is_some() && required(&cut_short).is_some());
        assert_eq!(rejected(&whole), None);
        let told = rejected(&cut_short).unwrap();
        assert!(told.contains("than are read"), "{told}");
        assert_eq!(asked(None, Some(GitHubFilter { open: Some(false), ..GitHubFilter::default() }), &cut_short), None);
    }
}

/// Z6.1: check runs that the token is not shown fulfil nothing, and it is said why; nothing is rejected because of them.
#[test]
fn a_status_that_may_be_a_hidden_check_run_is_missed_with_its_reason() {
    let filter = || GitHubFilter { status: vec![pattern("ci:unit:success")], ..GitHubFilter::default() };
    let with = |check_runs| ChangeFacts { statuses: Vec::new(), cut: Cut { check_runs, ..Cut::default() }, ..facts() };
    let told = |check_runs| asked(Some(filter()), None, &with(check_runs)).unwrap();
    assert!(told(true).contains("no check runs") && !told(false).contains("no check runs"), "{}", told(true));
    assert_eq!(asked(None, Some(filter()), &with(true)), None);
}

/// Z6.7: a status is looked at where a trigger is for it, or where changes are asked for statuses, and nowhere else.
#[test]
fn a_pipeline_heeds_statuses_only_if_it_says_a_word_of_them() {
    let on_status = |status: &str| GitHubTrigger { status: vec![pattern(status)], ..on("pull_request", &["status"]) };
    let require = Some(FilterKind::GitHub(GitHubFilter { label: vec!["go".to_owned()], ..GitHubFilter::default() }));
    let kind = || {
        let mut kind = event("pull_request", "status");
        let EventKind::Change { status, .. } = &mut kind else { unreachable!() };
        *status = Some("ci:unit:success".to_owned());
        kind
    };
    let about = ForgeEvent {
        connection: "github".into(),
        project: ProjectName::new("github.com", "org/one"),
        sender: "ci".to_owned(),
        kind: kind(),
    };
    for (trigger, heeded) in [
        (on_status("ci:unit:success"), true),
        // What it asks of the change nobody knows yet.
        (GitHubTrigger { require, branch: vec![pattern("stable")], ..on_status("ci:unit:success") }, true),
        (on_status("ci:unit:failure"), false),
        (on("pull_request", &[]), true),
        (on("pull_request", &["opened", "changed"]), false),
        (on("check_run", &[]), false),
    ] {
        assert_eq!(heeds_status(&with(trigger.clone()), &about), heeded, "{trigger:?}");
    }
    let mut gate = with(on("pull_request", &["opened"]));
    for (connection, heeded) in [("another", false), ("github", true)] {
        let kind = FilterKind::GitHub(GitHubFilter { status: vec![pattern("ci:.*")], ..GitHubFilter::default() });
        gate.reject = vec![Filter { connection: connection.into(), kind }];
        assert_eq!(heeds_status(&gate, &about), heeded, "{connection}");
    }
}

/// S06: no pipeline of GitHub's is started by a ref that is gone; its triggers have no `ignore-deletes` that could say otherwise.
#[test]
fn a_deleted_ref_starts_nothing() {
    for git_ref in ["refs/heads/main", "refs/tags/1.0"] {
        let kind =
            |newrev: &str| EventKind::Push { git_ref: git_ref.to_owned(), oldrev: "a".into(), newrev: newrev.into() };
        assert!(triggered(on("push", &[]), kind("b")));
        assert!(!triggered(on("push", &[]), kind("0000000000000000000000000000000000000000")));
    }
}

fn with(trigger: GitHubTrigger) -> Pipeline {
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    pipeline.triggers = vec![Trigger { connection: "github".into(), kind: TriggerKind::GitHub(trigger), debug: false }];
    pipeline
}

/// Z6.1: who may not do what the trigger asks for starts nothing, and nor does one of whom nobody knows it.
#[test]
fn a_trigger_that_asks_who_it_is_fires_for_those_alone_who_may_do_so_much() {
    let pipeline = with(GitHubTrigger { permission: Some(Needed::Write), ..on("pull_request", &["comment"]) });
    let event = |action: &str| ForgeEvent {
        connection: "github".into(),
        project: ProjectName::new("github.com", "org/one"),
        sender: "ada".to_owned(),
        kind: event("pull_request", action),
    };
    for (may, fires) in [
        (None, false),
        (Some(Permission::None), false),
        (Some(Permission::Read), false),
        (Some(Permission::Write), true),
        (Some(Permission::Admin), true),
    ] {
        assert_eq!(is_triggered(&pipeline, &event("comment"), Some(&facts()), may), fires, "{may:?}");
    }
    // The forge is asked only where that decides.
    assert!(asks_who(&pipeline, &event("comment"), Some(&facts())));
    assert!(!asks_who(&pipeline, &event("opened"), Some(&facts())));
    let mut either = pipeline;
    either.triggers.extend(with(on("pull_request", &["comment"])).triggers);
    assert!(!asks_who(&either, &event("comment"), Some(&facts())));
}

/// Z6.1
#[test]
fn what_is_required_of_changes_keeps_refs_out() {
    let github = |filter| vec![Filter { connection: "github".into(), kind: FilterKind::GitHub(filter) }];
    let mut pipeline = Pipeline::new("post", Manager::Independent);
    assert_eq!(refusal_of_refs(&pipeline, &"github".into()), None);
    pipeline.require = github(GitHubFilter { open: Some(true), ..GitHubFilter::default() });
    assert!(refusal_of_refs(&pipeline, &"github".into()).unwrap().contains("requires"));
    assert_eq!(refusal_of_refs(&pipeline, &"elsewhere".into()), None);
    pipeline.require.clear();
    pipeline.reject = github(GitHubFilter { draft: Some(true), ..GitHubFilter::default() });
    assert!(refusal_of_refs(&pipeline, &"github".into()).unwrap().contains("rejects"));
}

/// G12, Z6.4: before a change lands it is asked what it was asked when it entered. That a review has grown old meanwhile takes
/// nothing back; that it was dismissed, or that the forge itself would refuse the change, does.
#[test]
fn a_landing_is_refused_for_what_was_taken_back_and_not_for_time_alone() {
    let mut pipeline = Pipeline::new("gate", Manager::Dependent);
    let young = ReviewRequirement {
        r#type: Some("approved".to_owned()),
        newer_than_seconds: Some(2 * DAY_SECONDS),
        ..ReviewRequirement::default()
    };
    let github = GitHubFilter { review: vec![young], ..GitHubFilter::default() };
    pipeline.require = vec![Filter { connection: "github".into(), kind: FilterKind::GitHub(github) }];
    let asks = Asks::of(&pipeline, Timestamp(NOW.0 - 2 * DAY_SECONDS * 1_000));
    let of = |state, days_ago| ChangeFacts { reviews: vec![review(state, Permission::Write, days_ago)], ..facts() };
    let asked = |facts: &ChangeFacts| asks.refusal(&pipeline.name, facts, NOW);
    assert!(refusal(&pipeline, &of(ReviewState::Approved, 3), NOW).is_some(), "it would not enter any more");
    assert_eq!(asked(&of(ReviewState::Approved, 3)), None);
    assert_eq!(asked(&of(ReviewState::Approved, 1)), None, "given after it entered");
    for lost in [of(ReviewState::Dismissed, 3), of(ReviewState::Approved, 5), facts()] {
        assert!(asked(&lost).unwrap().contains("pipeline gate requires a review"));
    }
    let refused = ChangeFacts { submittable: Some(false), ..of(ReviewState::Approved, 1) };
    assert!(asked(&refused).unwrap().contains("by its own requirements"));
}

/// L1.2, L1.5, L1.6: each of the three is asked for by its own word, and nothing else starts by it.
#[test]
fn what_is_asked_of_images_starts_pipelines_that_name_it() {
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
        assert_eq!(all.map(|what| detail_by_images(&pipeline, what).is_some()), taken, "{events:?}");
    }
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    let kind = TriggerKind::GitHub(on("pull_request", &[]));
    pipeline.triggers = vec![Trigger { connection: "github".into(), kind, debug: false }];
    assert_eq!(all.map(|what| detail_by_images(&pipeline, what).is_some()), [false; 3]);
}
