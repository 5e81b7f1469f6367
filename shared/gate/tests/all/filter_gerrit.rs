//! Gerrit's and git's triggers, requirements and rejects, one table per attribute (Z6.1).

use sluice_config::Pattern;
use sluice_config::pipeline::{
    Approval, Filter, FilterKind, GerritFilter, GerritTrigger, GitTrigger, Manager, Pipeline,
    Trigger, TriggerKind,
};
use sluice_gate::filter::{is_triggered, refs_refusal, refusal};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::{CastVote, GerritEvent, Vote};
use sluice_model::{ProjectName, Timestamp};

const HOUR_SECONDS: u64 = 3_600;
const NOW: Timestamp = Timestamp(1_000 * HOUR_SECONDS * 1_000);

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap()
}

fn vote(label: &str, value: i64, username: &str, hours_ago: u64) -> Vote {
    let cast_at = Timestamp(NOW.0 - hours_ago * HOUR_SECONDS * 1_000);
    let email = Some(format!("{username}@example.org"));
    Vote { label: label.to_owned(), value, username: username.to_owned(), email, cast_at }
}

fn facts() -> ChangeFacts {
    let key = ChangeKey::change("gerrit".into(), ProjectName::new("review.test", "org/one"), 1);
    let change =
        ChangeRef { key, branch: "main".into(), head: "abc".into(), patchset: "3".to_owned() };
    ChangeFacts {
        labels: vec!["ready".to_owned(), "release-7".to_owned()],
        votes: vec![vote("Code-Review", 2, "grace", 48), vote("Verified", 1, "sluice", 1)],
        ..ChangeFacts::bare(change, NOW)
    }
}

fn approval(label: &str, values: &[i64]) -> Approval {
    Approval { labels: [(label.to_owned(), values.to_vec())].into(), ..Approval::default() }
}

fn triggers(kind: TriggerKind, event: EventKind, facts: Option<&ChangeFacts>) -> bool {
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    pipeline.triggers = vec![Trigger { connection: "gerrit".into(), kind, debug: false }];
    let project = ProjectName::new("review.test", "org/one");
    let event = ForgeEvent {
        connection: "gerrit".into(),
        project,
        sender: "grace".to_owned(),
        kind: event,
    };
    is_triggered(&pipeline, &event, facts, None)
}

fn on(r#type: &str) -> GerritTrigger {
    GerritTrigger { event: vec![r#type.to_owned()], ..GerritTrigger::default() }
}

fn gerrit_event(r#type: &str) -> GerritEvent {
    GerritEvent {
        number: 1,
        r#type: r#type.to_owned(),
        username: "grace".to_owned(),
        ..GerritEvent::default()
    }
}

/// A comment with two votes, one of them unchanged.
fn reviewed() -> GerritEvent {
    let cast = |label: &str, value, before| CastVote { label: label.to_owned(), value, before };
    GerritEvent {
        email: Some("grace@example.org".to_owned()),
        comment: Some("Patch Set 3: Code-Review+2\n\nrecheck please".to_owned()),
        votes: vec![cast("Code-Review", 2, Some(1)), cast("Workflow", 1, None)],
        ..gerrit_event("comment-added")
    }
}

/// Z6.1: `event`, `branch`, `comment`, `comment_filter`, `email`, `username`, `approval`,
/// `approval-change`.
#[test]
fn a_gerrit_trigger_matches_the_attributes_of_an_event() {
    let comment = || on("comment-added");
    for (trigger, taken) in [
        (comment(), true),
        (on("patchset-created"), false),
        (
            GerritTrigger {
                event: vec!["change-merged".to_owned(), "comment-added".to_owned()],
                ..comment()
            },
            true,
        ),
        (GerritTrigger { branch: vec![pattern("main")], ..comment() }, true),
        (GerritTrigger { branch: vec![pattern("stable/.*")], ..comment() }, false),
        (GerritTrigger { branch: vec![Pattern::negated("stable/.*").unwrap()], ..comment() }, true),
        (GerritTrigger { comment: vec![pattern("(?i)\\brecheck\\b")], ..comment() }, true),
        (GerritTrigger { comment: vec![pattern("reverify")], ..comment() }, false),
        (GerritTrigger { email: vec![pattern(".*@example\\.org")], ..comment() }, true),
        (GerritTrigger { email: vec![pattern(".*@example\\.com")], ..comment() }, false),
        (GerritTrigger { email: vec![pattern("@example\\.org$")], ..comment() }, true),
        (GerritTrigger { email: vec![pattern("^@example")], ..comment() }, false),
        (GerritTrigger { username: vec![pattern("grace|ada")], ..comment() }, true),
        (GerritTrigger { username: vec![pattern("ada")], ..comment() }, false),
        (GerritTrigger { username: vec![pattern("race")], ..comment() }, true),
        (GerritTrigger { username: vec![pattern("^race")], ..comment() }, false),
        (GerritTrigger { approval: vec![approval("Code-Review", &[2])], ..comment() }, true),
        (GerritTrigger { approval: vec![approval("code review", &[2])], ..comment() }, true),
        (GerritTrigger { approval: vec![approval("Code-Review", &[1])], ..comment() }, false),
        (
            GerritTrigger {
                approval: vec![approval("Code-Review", &[2]), approval("Workflow", &[1])],
                ..comment()
            },
            true,
        ),
        (
            GerritTrigger {
                approval: vec![approval("Code-Review", &[2]), approval("Verified", &[1])],
                ..comment()
            },
            false,
        ),
        (GerritTrigger { approval_change: vec![approval("Code-Review", &[2])], ..comment() }, true),
        (GerritTrigger { approval_change: vec![approval("Workflow", &[1])], ..comment() }, false),
        (GerritTrigger { r#ref: vec![pattern("refs/.*")], ..comment() }, false),
    ] {
        let kind = TriggerKind::Gerrit(trigger.clone());
        assert_eq!(
            triggers(kind, EventKind::Gerrit(reviewed()), Some(&facts())),
            taken,
            "{trigger:?}"
        );
    }
}

/// Z6.1: `added` and `removed` of `hashtags-changed`, `scheme` and `uuid` of `pending-check`.
#[test]
fn a_gerrit_trigger_matches_hashtags_and_checkers() {
    let tags = GerritEvent {
        added: vec!["run-long".to_owned()],
        removed: vec!["wip".to_owned(), "hold".to_owned()],
        ..gerrit_event("hashtags-changed")
    };
    let check =
        GerritEvent { checker: Some("zuul:check".to_owned()), ..gerrit_event("pending-check") };
    let changed = || on("hashtags-changed");
    for (trigger, event, taken) in [
        (changed(), &tags, true),
        (GerritTrigger { added: vec![pattern("run-.*")], ..changed() }, &tags, true),
        (GerritTrigger { added: vec![pattern("hold")], ..changed() }, &tags, false),
        (GerritTrigger { added: vec![pattern("long$")], ..changed() }, &tags, true),
        (GerritTrigger { added: vec![pattern("^long")], ..changed() }, &tags, false),
        (GerritTrigger { removed: vec![pattern("hold")], ..changed() }, &tags, true),
        (GerritTrigger { removed: vec![pattern("old")], ..changed() }, &tags, true),
        (GerritTrigger { removed: vec![pattern("^old")], ..changed() }, &tags, false),
        (GerritTrigger { removed: vec![pattern("run-.*")], ..changed() }, &tags, false),
        (
            GerritTrigger { uuid: Some("zuul:check".to_owned()), ..on("pending-check") },
            &check,
            true,
        ),
        (
            GerritTrigger { uuid: Some("zuul:gate".to_owned()), ..on("pending-check") },
            &check,
            false,
        ),
        (GerritTrigger { scheme: Some("zuul".to_owned()), ..on("pending-check") }, &check, true),
        (GerritTrigger { scheme: Some("other".to_owned()), ..on("pending-check") }, &check, false),
    ] {
        let kind = TriggerKind::Gerrit(trigger.clone());
        assert_eq!(
            triggers(kind, EventKind::Gerrit(event.clone()), Some(&facts())),
            taken,
            "{trigger:?}"
        );
    }
}

/// Z6.1, S06: `ref-updated` with `ref` and `ignore-deletes`, of Gerrit and of plain git alike.
#[test]
fn a_moved_ref_is_matched_by_name_and_a_deleted_one_only_without_ignore_deletes() {
    let push = |git_ref: &str, newrev: &str| EventKind::Push {
        git_ref: git_ref.to_owned(),
        oldrev: "a".into(),
        newrev: newrev.into(),
    };
    let zeros = "0".repeat(40);
    for (refs, ignore_deletes, kind, taken) in [
        (vec![], None, push("refs/heads/main", "b"), true),
        (vec![pattern("refs/heads/.*")], None, push("refs/heads/main", "b"), true),
        (vec![pattern("refs/tags/.*")], None, push("refs/heads/main", "b"), false),
        (vec![], None, push("refs/heads/main", &zeros), false),
        (vec![], Some(true), push("refs/heads/main", &zeros), false),
        (vec![], Some(false), push("refs/heads/main", &zeros), true),
        (vec![], Some(false), EventKind::Gerrit(gerrit_event("ref-updated")), false),
        (vec![], None, EventKind::Sweep, false),
    ] {
        let event = vec!["ref-updated".to_owned()];
        let git = GitTrigger { event: event.clone(), r#ref: refs.clone(), ignore_deletes };
        assert_eq!(
            triggers(TriggerKind::Git(git.clone()), kind.clone(), None),
            taken,
            "{git:?} {kind:?}"
        );
        if !matches!(kind, EventKind::Gerrit(_)) {
            let gerrit =
                GerritTrigger { event, r#ref: refs, ignore_deletes, ..GerritTrigger::default() };
            assert_eq!(
                triggers(TriggerKind::Gerrit(gerrit), kind.clone(), None),
                taken,
                "{kind:?}"
            );
        }
    }
    let other = GitTrigger { event: vec!["patchset-created".to_owned()], ..GitTrigger::default() };
    assert!(!triggers(TriggerKind::Git(other), push("refs/heads/main", "b"), None));
    let voted =
        GerritTrigger { approval: vec![approval("Code-Review", &[2])], ..on("ref-updated") };
    assert!(
        !triggers(TriggerKind::Gerrit(voted), push("refs/heads/main", "b"), None),
        "a ref has no votes"
    );
}

/// Z6.1: a synthesized event for a new revision counts as Gerrit's own event.
#[test]
fn a_synthesized_revision_is_a_created_patchset() {
    let found = EventKind::Change {
        number: 1,
        event: "pull_request".to_owned(),
        action: "opened".to_owned(),
        comment: None,
        label: None,
        state: None,
        status: None,
    };
    assert!(triggers(TriggerKind::Gerrit(on("patchset-created")), found.clone(), Some(&facts())));
    assert!(!triggers(TriggerKind::Gerrit(on("comment-added")), found.clone(), Some(&facts())));
    for (username, is_triggered) in [("grace", true), ("alan", false)] {
        let by = GerritTrigger { username: vec![pattern(username)], ..on("patchset-created") };
        let found = triggers(TriggerKind::Gerrit(by), found.clone(), Some(&facts()));
        assert_eq!(found, is_triggered, "{username}");
    }
}

fn refused(require: GerritFilter, reject: GerritFilter, facts: &ChangeFacts) -> Option<String> {
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    let filter =
        |filter| vec![Filter { connection: "gerrit".into(), kind: FilterKind::Gerrit(filter) }];
    (pipeline.require, pipeline.reject) = (filter(require), filter(reject));
    refusal(&pipeline, facts, NOW)
}

/// R08, G11, Z6.1: `approval` with `username`, `email`, `older-than`, `newer-than`, values; `open`,
/// `current-patchset`, `wip`, `hashtags`, `status`. A change that meets a requirement also meets
/// the same reject.
#[test]
fn each_requirement_of_gerrit_is_met_or_not() {
    let by = |edit: fn(&mut Approval)| {
        let mut approval = approval("Code-Review", &[1, 2]);
        edit(&mut approval);
        GerritFilter { approval: vec![approval], ..GerritFilter::default() }
    };
    let none = GerritFilter::default;
    let both = || vec![approval("Code-Review", &[2]), approval("Verified", &[1])];
    for (filter, is_met) in [
        (by(|_| ()), true),
        (by(|approval| approval.labels = [("Code-Review".to_owned(), vec![-2])].into()), false),
        (by(|approval| approval.username = Some(pattern("grace"))), true),
        (by(|approval| approval.username = Some(pattern("ada"))), false),
        (by(|approval| approval.username = Some(pattern("race"))), true),
        (by(|approval| approval.username = Some(pattern("^race"))), false),
        (by(|approval| approval.email = Some(pattern("grace@.*"))), true),
        (by(|approval| approval.email = Some(pattern("ada@.*"))), false),
        (by(|approval| approval.email = Some(pattern("@example\\.org$"))), true),
        (by(|approval| approval.email = Some(pattern("^@example"))), false),
        (by(|approval| approval.older_than_seconds = Some(24 * HOUR_SECONDS)), true),
        (by(|approval| approval.older_than_seconds = Some(72 * HOUR_SECONDS)), false),
        (by(|approval| approval.newer_than_seconds = Some(72 * HOUR_SECONDS)), true),
        (by(|approval| approval.newer_than_seconds = Some(24 * HOUR_SECONDS)), false),
        (by(|approval| approval.labels.clear()), true),
        (GerritFilter { approval: both(), ..none() }, true),
        (GerritFilter { open: Some(true), ..none() }, true),
        (GerritFilter { open: Some(false), ..none() }, false),
        (GerritFilter { current_patchset: Some(true), ..none() }, true),
        (GerritFilter { current_patchset: Some(false), ..none() }, false),
        (GerritFilter { wip: Some(false), ..none() }, true),
        (GerritFilter { wip: Some(true), ..none() }, false),
        (GerritFilter { hashtags: vec![pattern("release-.*")], ..none() }, true),
        (GerritFilter { hashtags: vec![pattern("other")], ..none() }, false),
        (GerritFilter { hashtags: vec![pattern("-7$")], ..none() }, true),
        (GerritFilter { hashtags: vec![pattern("^lease")], ..none() }, false),
        (GerritFilter { status: vec!["NEW".to_owned()], ..none() }, true),
        (
            GerritFilter { status: vec!["MERGED".to_owned(), "ABANDONED".to_owned()], ..none() },
            false,
        ),
    ] {
        assert_eq!(
            refused(filter.clone(), none(), &facts()).is_none(),
            is_met,
            "required: {filter:?}"
        );
        assert_eq!(
            refused(none(), filter.clone(), &facts()).is_some(),
            is_met,
            "rejected: {filter:?}"
        );
        let own = GerritTrigger {
            require: Some(FilterKind::Gerrit(filter.clone())),
            ..on("comment-added")
        };
        let taken =
            triggers(TriggerKind::Gerrit(own), EventKind::Gerrit(reviewed()), Some(&facts()));
        assert_eq!(taken, is_met, "required by a trigger: {filter:?}");
        let own = GerritTrigger {
            reject: Some(FilterKind::Gerrit(filter.clone())),
            ..on("comment-added")
        };
        let taken =
            triggers(TriggerKind::Gerrit(own), EventKind::Gerrit(reviewed()), Some(&facts()));
        assert_eq!(taken, !is_met, "rejected by a trigger: {filter:?}");
    }
    let all_hashtags =
        GerritFilter { hashtags: vec![pattern("ready"), pattern("other")], ..none() };
    assert!(refused(all_hashtags.clone(), none(), &facts()).is_some(), "each of them is required");
    assert!(refused(none(), all_hashtags, &facts()).is_some(), "any of them is rejected");
    let one_vote = GerritFilter {
        approval: vec![approval("Code-Review", &[2]), approval("Verified", &[2])],
        ..none()
    };
    assert_eq!(
        refused(one_vote, none(), &facts()).unwrap(),
        "pipeline p requires a vote: Verified +2"
    );
}

/// G11: votes are added one by one, then work in progress is ended.
#[test]
fn a_change_meets_its_requirements_once_both_votes_are_there_and_it_is_no_work_in_progress() {
    let both = vec![approval("Code-Review", &[2]), approval("Verified", &[1, 2])];
    let required =
        || GerritFilter { approval: both.clone(), wip: Some(false), ..GerritFilter::default() };
    let mut facts = facts();
    let votes = std::mem::take(&mut facts.votes);
    for (count, is_met) in [(0, false), (1, false), (2, true)] {
        facts.votes = votes[..count].to_vec();
        assert_eq!(
            refused(required(), GerritFilter::default(), &facts).is_none(),
            is_met,
            "{count} votes"
        );
    }
    facts.draft = true;
    let why = refused(required(), GerritFilter::default(), &facts).unwrap();
    assert_eq!(why, "pipeline p requires a change that is not work in progress");
}

/// Z6.1: a ref cannot meet a requirement on changes.
#[test]
fn a_pipeline_that_requires_votes_accepts_no_refs() {
    let mut pipeline = Pipeline::new("p", Manager::Independent);
    assert_eq!(refs_refusal(&pipeline, &"gerrit".into()), None);
    let voted =
        GerritFilter { approval: vec![approval("Verified", &[1])], ..GerritFilter::default() };
    pipeline.require =
        vec![Filter { connection: "gerrit".into(), kind: FilterKind::Gerrit(voted) }];
    assert!(refs_refusal(&pipeline, &"gerrit".into()).is_some());
    assert_eq!(refs_refusal(&pipeline, &"github".into()), None);
}

/// Z6.1: `status` uses Gerrit's names for merged and abandoned changes.
#[test]
fn a_status_has_gerrits_name() {
    for (status, word) in [(ChangeStatus::Merged, "MERGED"), (ChangeStatus::Closed, "ABANDONED")] {
        let filter = GerritFilter { status: vec![word.to_owned()], ..GerritFilter::default() };
        let facts = ChangeFacts { status, ..facts() };
        assert_eq!(refused(filter, GerritFilter::default(), &facts), None);
    }
}
