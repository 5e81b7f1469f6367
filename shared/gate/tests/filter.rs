//! Requirements and rejects as tables (Z6.1, R08), of pipelines and of triggers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{DAY_SECONDS, NOW, event, facts, on, pattern, triggered_for};
use sluice_config::pipeline::{
    Filter, FilterKind, GitHubFilter, GitHubTrigger, Manager, Permission as Needed, Pipeline,
    ReviewRequirement,
};
use sluice_gate::MergeRequirements;
use sluice_gate::filter::{refusal, refs_refusal};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, Truncation, Permission, Review, ReviewState};

fn review(state: ReviewState, permission: Permission, days_ago: u64) -> Review {
    Review {
        by: "grace".to_owned(),
        email: Some("grace@example.com".to_owned()),
        state,
        permission,
        submitted_at: Timestamp(NOW.0 - days_ago * DAY_SECONDS * 1_000),
    }
}

fn asked(
    require: Option<GitHubFilter>,
    reject: Option<GitHubFilter>,
    facts: &ChangeFacts,
) -> Option<String> {
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

/// Z6.1: each requirement by itself, met and unmet; rejects turn them round. A trigger asks what is
/// its own in the same words.
#[test]
fn what_is_required_must_hold_and_what_is_rejected_must_not() {
    let none = GitHubFilter::default;
    let by = |kind: &str| {
        let wanted =
            ReviewRequirement { r#type: Some(kind.to_owned()), ..ReviewRequirement::default() };
        GitHubFilter { review: vec![wanted], ..GitHubFilter::default() }
    };
    let reviews = [ReviewState::ChangesRequested, ReviewState::Commented]
        .map(|state| review(state, Permission::Write, 0));
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
        (
            GitHubFilter { status: vec![pattern(r"sluice\[bot\]:demo/check:success")], ..none() },
            true,
        ),
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

/// R08, Z6.1: type, permission, name, address and age of a review; a dismissed one is none. What
/// meets a requirement is rejected where it is to be rejected, of a pipeline and of a trigger
/// alike; names and addresses are searched.
#[test]
fn a_review_counts_by_its_type_its_permission_its_author_and_its_age() {
    let any = ReviewRequirement::default;
    let approved = || ReviewRequirement {
        r#type: Some("approved".to_owned()),
        permission: Some(Needed::Write),
        ..any()
    };
    let recent = || ReviewRequirement { newer_than_seconds: Some(2 * DAY_SECONDS), ..approved() };
    let older = || ReviewRequirement { older_than_seconds: Some(2 * DAY_SECONDS), ..approved() };
    let by = |name: &str| ReviewRequirement { username: Some(pattern(name)), ..approved() };
    let at = |address: &str| ReviewRequirement { email: Some(pattern(address)), ..approved() };
    let yes = ReviewState::Approved;
    let robot =
        || Review { by: "bot-2".to_owned(), email: None, ..review(yes, Permission::Write, 0) };
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
        // Whose address is not shown is taken for nobody's, and another's address does not stand
        // for his.
        (at(".*"), vec![robot()], false),
        (
            ReviewRequirement { username: Some(pattern("bot")), ..at("grace") },
            vec![robot(), review(yes, Permission::Write, 0)],
            false,
        ),
    ] {
        let facts = ChangeFacts { reviews, ..facts() };
        let filter =
            || GitHubFilter { review: vec![requirement.clone()], ..GitHubFilter::default() };
        let refused = asked(Some(filter()), None, &facts);
        assert_eq!(refused.is_none(), met, "{requirement:?} {:?}: {refused:?}", facts.reviews);
        let rejected = asked(None, Some(filter()), &facts);
        assert_eq!(
            rejected.is_some(),
            met,
            "rejected: {requirement:?} {:?}: {rejected:?}",
            facts.reviews
        );
        let taken = |require: Option<GitHubFilter>, reject: Option<GitHubFilter>| {
            let (require, reject) =
                (require.map(FilterKind::GitHub), reject.map(FilterKind::GitHub));
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
    let wanted = ReviewRequirement {
        email: Some(pattern("@example\\.org$")),
        ..ReviewRequirement::default()
    };
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

/// Z6.1: a filter of another connection is not about this change; the reason names pipeline and
/// requirement.
#[test]
fn a_refusal_says_what_is_missing() {
    let review = vec![ReviewRequirement {
        r#type: Some("approved".to_owned()),
        permission: Some(Needed::Write),
        ..ReviewRequirement::default()
    }];
    let told = asked(Some(GitHubFilter { review, ..GitHubFilter::default() }), None, &facts());
    assert_eq!(
        told.as_deref(),
        Some("pipeline gate requires a review: approved by somebody with write permission")
    );
    let mut other = Pipeline::new("gate", Manager::Dependent);
    let kind = FilterKind::GitHub(GitHubFilter { open: Some(false), ..GitHubFilter::default() });
    other.require = vec![Filter { connection: "another".into(), kind }];
    assert_eq!(refusal(&other, &facts(), NOW), None);
}

/// Z6.1: of a change with more reviews or statuses than are read, what was not read grants nothing
/// and may be what is rejected.
#[test]
fn what_was_not_read_of_a_change_never_lets_it_through() {
    let review = || {
        vec![ReviewRequirement {
            r#type: Some("changes_requested".to_owned()),
            ..ReviewRequirement::default()
        }]
    };
    let status = || vec![pattern("ci:unit:failure")];
    let cut = |reviews, statuses| ChangeFacts {
        reviews: Vec::new(),
        statuses: Vec::new(),
        truncated: Truncation { reviews, statuses, ..Truncation::default() },
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
        assert_eq!(
            asked(
                None,
                Some(GitHubFilter { open: Some(false), ..GitHubFilter::default() }),
                &cut_short
            ),
            None
        );
    }
}

/// Z6.1: check runs that the token is not shown fulfil nothing, and it is said why; nothing is
/// rejected because of them.
#[test]
fn a_status_that_may_be_a_hidden_check_run_is_missed_with_its_reason() {
    let filter =
        || GitHubFilter { status: vec![pattern("ci:unit:success")], ..GitHubFilter::default() };
    let with = |check_runs| ChangeFacts {
        statuses: Vec::new(),
        truncated: Truncation { check_runs, ..Truncation::default() },
        ..facts()
    };
    let told = |check_runs| asked(Some(filter()), None, &with(check_runs)).unwrap();
    assert!(
        told(true).contains("no check runs") && !told(false).contains("no check runs"),
        "{}",
        told(true)
    );
    assert_eq!(asked(None, Some(filter()), &with(true)), None);
}

/// Z6.1
#[test]
fn what_is_required_of_changes_keeps_refs_out() {
    let github =
        |filter| vec![Filter { connection: "github".into(), kind: FilterKind::GitHub(filter) }];
    let mut pipeline = Pipeline::new("post", Manager::Independent);
    assert_eq!(refs_refusal(&pipeline, &"github".into()), None);
    pipeline.require = github(GitHubFilter { open: Some(true), ..GitHubFilter::default() });
    assert!(refs_refusal(&pipeline, &"github".into()).unwrap().contains("requires"));
    assert_eq!(refs_refusal(&pipeline, &"elsewhere".into()), None);
    pipeline.require.clear();
    pipeline.reject = github(GitHubFilter { draft: Some(true), ..GitHubFilter::default() });
    assert!(refs_refusal(&pipeline, &"github".into()).unwrap().contains("rejects"));
}

/// G12, Z6.4: before a change lands it is asked what it was asked when it entered. That a review
/// has grown old meanwhile takes nothing back; that it was dismissed, or that the forge itself
/// would refuse the change, does.
#[test]
fn a_landing_is_refused_for_what_was_taken_back_and_not_for_time_alone() {
    let mut pipeline = Pipeline::new("gate", Manager::Dependent);
    let young = ReviewRequirement {
        r#type: Some("approved".to_owned()),
        newer_than_seconds: Some(2 * DAY_SECONDS),
        ..ReviewRequirement::default()
    };
    let github = GitHubFilter { review: vec![young], ..GitHubFilter::default() };
    pipeline.require =
        vec![Filter { connection: "github".into(), kind: FilterKind::GitHub(github) }];
    let asks = MergeRequirements::of(&pipeline, Timestamp(NOW.0 - 2 * DAY_SECONDS * 1_000));
    let of = |state, days_ago| ChangeFacts {
        reviews: vec![review(state, Permission::Write, days_ago)],
        ..facts()
    };
    let asked = |facts: &ChangeFacts| asks.refusal(&pipeline.name, facts, NOW);
    assert!(
        refusal(&pipeline, &of(ReviewState::Approved, 3), NOW).is_some(),
        "it would not enter any more"
    );
    assert_eq!(asked(&of(ReviewState::Approved, 3)), None);
    assert_eq!(asked(&of(ReviewState::Approved, 1)), None, "given after it entered");
    for lost in [of(ReviewState::Dismissed, 3), of(ReviewState::Approved, 5), facts()] {
        assert!(asked(&lost).unwrap().contains("pipeline gate requires a review"));
    }
    let refused = ChangeFacts { submittable: Some(false), ..of(ReviewState::Approved, 1) };
    assert!(asked(&refused).unwrap().contains("by its own requirements"));
}
