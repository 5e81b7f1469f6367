//! Requirements and rejects as tables (Z6.1, R08), of pipelines and of triggers.

use crate::common::{DAY_SECONDS, NOW, event, facts, on, pattern, triggered_for};
use sluice_config::pipeline::{
    Filter, FilterKind, ForgePermission as Needed, GitHubFilter, GitHubTrigger, Manager, Pipeline,
    ReviewRequirement,
};
use sluice_gate::MergeRequirements;
use sluice_gate::filter::{refs_refusal, refusal};
use sluice_model::Timestamp;
use sluice_model::change::{
    ChangeFacts, ChangeReview, RepositoryPermission, ReviewState, Truncation,
};

fn review(state: ReviewState, permission: RepositoryPermission, days_ago: u64) -> ChangeReview {
    ChangeReview {
        by: "grace".to_owned(),
        email: Some("grace@example.com".to_owned()),
        state,
        permission,
        submitted_at: Timestamp(NOW.0 - days_ago * DAY_SECONDS * 1_000),
    }
}

fn refusal_with(
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

/// Z6.1: each requirement alone, met and unmet, and each reject the other way round. A trigger's
/// own filters are the same.
#[test]
fn requirements_must_be_met_and_rejects_must_not() {
    let none = GitHubFilter::default;
    let by = |kind: &str| {
        let wanted =
            ReviewRequirement { r#type: Some(kind.to_owned()), ..ReviewRequirement::default() };
        GitHubFilter { review: vec![wanted], ..GitHubFilter::default() }
    };
    let reviews = [ReviewState::ChangesRequested, ReviewState::Commented]
        .map(|state| review(state, RepositoryPermission::Write, 0));
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
        // Facts are always those of the newest revision.
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
        // By GitHub's name as well as by Zuul's.
        (by("request_changes"), true),
        (by("changes_requested"), true),
        (by("comment"), true),
        (by("commented"), true),
        (by("approved"), false),
    ] {
        let required = refusal_with(Some(filter.clone()), None, &reviewed);
        assert_eq!(required.is_none(), holds, "{filter:?}: {required:?}");
        assert_eq!(taken(Some(filter.clone()), None), holds, "required by a trigger: {filter:?}");
        if filter == none() {
            continue; // An empty reject rejects nothing.
        }
        let rejected = refusal_with(None, Some(filter.clone()), &reviewed);
        assert_eq!(rejected.is_some(), holds, "{filter:?}: {rejected:?}");
        assert_eq!(taken(None, Some(filter.clone())), !holds, "rejected by a trigger: {filter:?}");
    }
    let both = [by("comment").review, by("approved").review].concat();
    let reviews = || GitHubFilter { review: both.clone(), ..none() };
    assert!(refusal_with(Some(reviews()), None, &reviewed).is_some(), "each review is required");
    assert!(refusal_with(None, Some(reviews()), &reviewed).is_some(), "any review is rejected");
    let either = vec![pattern("ci:unit:success"), pattern(".*:demo/check:success")];
    let statuses = || GitHubFilter { status: either.clone(), ..none() };
    assert_eq!(refusal_with(Some(statuses()), None, &reviewed), None, "any one status is enough");
    assert!(refusal_with(None, Some(statuses()), &reviewed).is_some(), "any status is rejected");
    assert_eq!(refusal_with(None, Some(none()), &reviewed), None);
}

/// R08, Z6.1: a review is matched by type, permission, name, address and age; a dismissed one
/// never. A review that meets a requirement also meets a reject, of a pipeline and of a trigger.
/// Names and addresses are searched.
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
    let robot = || ChangeReview {
        by: "bot-2".to_owned(),
        email: None,
        ..review(yes, RepositoryPermission::Write, 0)
    };
    for (requirement, reviews, met) in [
        (approved(), vec![], false),
        (approved(), vec![review(yes, RepositoryPermission::Write, 0)], true),
        (approved(), vec![review(yes, RepositoryPermission::Admin, 0)], true),
        (approved(), vec![review(yes, RepositoryPermission::Read, 0)], false),
        (approved(), vec![review(ReviewState::Commented, RepositoryPermission::Write, 0)], false),
        (
            approved(),
            vec![review(ReviewState::ChangesRequested, RepositoryPermission::Write, 0)],
            false,
        ),
        (any(), vec![review(ReviewState::Dismissed, RepositoryPermission::Admin, 0)], false),
        (recent(), vec![review(yes, RepositoryPermission::Write, 1)], true),
        (recent(), vec![review(yes, RepositoryPermission::Write, 3)], false),
        (older(), vec![review(yes, RepositoryPermission::Write, 3)], true),
        (older(), vec![review(yes, RepositoryPermission::Write, 1)], false),
        (by("gra.*"), vec![review(yes, RepositoryPermission::Write, 0)], true),
        (by("race$"), vec![review(yes, RepositoryPermission::Write, 0)], true),
        (by("^race"), vec![review(yes, RepositoryPermission::Write, 0)], false),
        (by("bot"), vec![robot()], true),
        (by("^bot$"), vec![robot()], false),
        (at("@example\\.com$"), vec![review(yes, RepositoryPermission::Write, 0)], true),
        (at("^example"), vec![review(yes, RepositoryPermission::Write, 0)], false),
        (at("@example\\.org$"), vec![review(yes, RepositoryPermission::Write, 0)], false),
        (at("bot@"), vec![review(yes, RepositoryPermission::Write, 0)], false),
        // A hidden address matches nothing, and another reviewer's address does not help.
        (at(".*"), vec![robot()], false),
        (
            ReviewRequirement { username: Some(pattern("bot")), ..at("grace") },
            vec![robot(), review(yes, RepositoryPermission::Write, 0)],
            false,
        ),
    ] {
        let facts = ChangeFacts { reviews, ..facts() };
        let filter =
            || GitHubFilter { review: vec![requirement.clone()], ..GitHubFilter::default() };
        let refused = refusal_with(Some(filter()), None, &facts);
        assert_eq!(refused.is_none(), met, "{requirement:?} {:?}: {refused:?}", facts.reviews);
        let rejected = refusal_with(None, Some(filter()), &facts);
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

/// Z6.1: where a review may be missed because its author's address is hidden, the reason says so.
#[test]
fn a_review_with_a_hidden_address_is_explained() {
    let wanted = ReviewRequirement {
        email: Some(pattern("@example\\.org$")),
        ..ReviewRequirement::default()
    };
    let refusal_text = |email: Option<&str>| {
        let email = email.map(str::to_owned);
        let reviews = vec![ChangeReview {
            email,
            ..review(ReviewState::Approved, RepositoryPermission::Write, 0)
        }];
        let filter = GitHubFilter { review: vec![wanted.clone()], ..GitHubFilter::default() };
        refusal_with(Some(filter), None, &ChangeFacts { reviews, ..facts() })
    };
    let missing = "pipeline gate requires a review: any by the address @example\\.org$";
    assert_eq!(refusal_text(Some("grace@example.com")).as_deref(), Some(missing));
    let hidden = refusal_text(None).unwrap();
    assert!(hidden.starts_with(missing) && hidden.contains("hides the email address"), "{hidden}");
    assert_eq!(refusal_text(Some("grace@example.org")), None);
}

/// Z6.1: filters of other connections are ignored; the reason names the pipeline and the
/// requirement.
#[test]
fn a_refusal_names_the_missing_requirement() {
    let review = vec![ReviewRequirement {
        r#type: Some("approved".to_owned()),
        permission: Some(Needed::Write),
        ..ReviewRequirement::default()
    }];
    let refusal_text =
        refusal_with(Some(GitHubFilter { review, ..GitHubFilter::default() }), None, &facts());
    assert_eq!(
        refusal_text.as_deref(),
        Some("pipeline gate requires a review: approved by a user with write permission")
    );
    let mut other = Pipeline::new("gate", Manager::Dependent);
    let kind = FilterKind::GitHub(GitHubFilter { open: Some(false), ..GitHubFilter::default() });
    other.require = vec![Filter { connection: "another".into(), kind }];
    assert_eq!(refusal(&other, &facts(), NOW), None);
}

/// Z6.1: reviews and statuses beyond the limit grant nothing and may be ones that are rejected.
#[test]
fn unread_reviews_and_statuses_never_admit_a_change() {
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
        let required = |facts| refusal_with(Some(filter.clone()), None, facts);
        let rejected = |facts| refusal_with(None, Some(filter.clone()), facts);
        assert!(required(&whole).is_some() && required(&cut_short).is_some());
        assert_eq!(rejected(&whole), None);
        let refusal_text = rejected(&cut_short).unwrap();
        assert!(refusal_text.contains("than Sluice reads"), "{refusal_text}");
        assert_eq!(
            refusal_with(
                None,
                Some(GitHubFilter { open: Some(false), ..GitHubFilter::default() }),
                &cut_short
            ),
            None
        );
    }
}

/// Z6.1: check runs that the token may not read meet no requirement, and the reason says so; they
/// are not rejected.
#[test]
fn a_status_that_may_be_a_hidden_check_run_is_explained() {
    let filter =
        || GitHubFilter { status: vec![pattern("ci:unit:success")], ..GitHubFilter::default() };
    let with = |check_runs| ChangeFacts {
        statuses: Vec::new(),
        truncated: Truncation { check_runs, ..Truncation::default() },
        ..facts()
    };
    let refusal_text = |check_runs| refusal_with(Some(filter()), None, &with(check_runs)).unwrap();
    assert!(
        refusal_text(true).contains("may not read check runs")
            && !refusal_text(false).contains("may not read check runs"),
        "{}",
        refusal_text(true)
    );
    assert_eq!(refusal_with(None, Some(filter()), &with(true)), None);
}

/// Z6.1
#[test]
fn requirements_on_changes_exclude_refs() {
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

/// G12, Z6.4: before the merge, the requirements are checked again. A review that has become too
/// old does not count against the change; a dismissed review, or the forge's own refusal, does.
#[test]
fn a_landing_is_refused_for_new_facts_and_not_for_time_alone() {
    let mut pipeline = Pipeline::new("gate", Manager::Dependent);
    let young = ReviewRequirement {
        r#type: Some("approved".to_owned()),
        newer_than_seconds: Some(2 * DAY_SECONDS),
        ..ReviewRequirement::default()
    };
    let github = GitHubFilter { review: vec![young], ..GitHubFilter::default() };
    pipeline.require =
        vec![Filter { connection: "github".into(), kind: FilterKind::GitHub(github) }];
    let requirements = MergeRequirements::of(&pipeline, Timestamp(NOW.0 - 2 * DAY_SECONDS * 1_000));
    let of = |state, days_ago| ChangeFacts {
        reviews: vec![review(state, RepositoryPermission::Write, days_ago)],
        ..facts()
    };
    let refused_now = |facts: &ChangeFacts| requirements.refusal(&pipeline.name, facts, NOW);
    assert!(
        refusal(&pipeline, &of(ReviewState::Approved, 3), NOW).is_some(),
        "it would be refused at entry"
    );
    assert_eq!(refused_now(&of(ReviewState::Approved, 3)), None);
    assert_eq!(refused_now(&of(ReviewState::Approved, 1)), None, "given after it entered");
    for refused in [of(ReviewState::Dismissed, 3), of(ReviewState::Approved, 5), facts()] {
        assert!(refused_now(&refused).unwrap().contains("pipeline gate requires a review"));
    }
    let refused = ChangeFacts { submittable: Some(false), ..of(ReviewState::Approved, 1) };
    assert!(refused_now(&refused).unwrap().contains("own merge requirements"));
}
