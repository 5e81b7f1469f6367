//! Each precondition of a merge has a row that fails if that one check is gone: without the check,
//! the forge would be asked to merge.

use super::*;

/// Z6.4: a change is merged when all preconditions hold; only then is the forge asked.
#[test]
fn a_change_with_all_preconditions_is_merged() {
    Case::new().leads_to(&["intend merge", "merge", "landed as merged"]);
    Case::by_push().leads_to(&["intend push", "push", "landed as tested"]);
    Case::bundle().leads_to(&["intend merge", "merge", "landed as merged"]);
}

/// Z6.4, Z6.5, G12: no request is sent for a change that is not as tested and approved.
#[test]
fn a_change_that_misses_a_precondition_is_not_merged() {
    let rows: Vec<(Case, &str)> = vec![
        (Case::new().facts(|facts| facts.status = ChangeStatus::Closed), "refused: the change was"),
        (Case::new().facts(|facts| facts.change.head = "newer".into()), "refused: its head is now"),
        (
            Case::new().facts(|facts| facts.change.branch = "stable".into()),
            "refused: it now targets stable, but it was tested on main",
        ),
        (Case::new().facts(|facts| facts.submittable = Some(false)), "refused: This change is"),
        (Case::new().with(|case| case.answers.before.change = no()), "refused: 404"),
        (
            Case::new().with(|case| case.answers.dependencies = Some(Err("needs p3".to_owned()))),
            "refused: needs p3",
        ),
        (
            Case::new().with(|case| case.answers.before.tip = Some(Ok(commit("new", "new-tree")))),
            "base moved to new",
        ),
        (Case::new().with(|case| case.answers.before.tip = no()), "refused: 404"),
    ];
    for (case, end) in rows {
        case.leads_to(&[end]);
        // A push needs the same.
        case.with(|case| case.landing.method = LandingMethod::FastForward).leads_to(&[end]);
    }
}

/// G12: a missing approval that is stored as a requirement prevents the merge, and the report names
/// it.
#[test]
fn a_change_without_its_approval_is_not_merged() {
    let filter = Filter {
        connection: "forge".into(),
        kind: FilterKind::GitHub(GitHubFilter {
            label: vec!["approved".to_owned()],
            ..GitHubFilter::default()
        }),
    };
    let requirements = MergeRequirements { require: vec![filter], entered_at: NOW, reject: vec![] };
    let case = || Case::new().with(|case| case.landing.requirements = Some(requirements.clone()));
    case()
        .leads_to(&["refused: This change is unable to merge due to a missing merge requirement"]);
    case().facts(|facts| facts.labels = vec!["approved".to_owned()]).leads_to(&[
        "intend merge",
        "merge",
        "landed",
    ]);
}

/// Z6.4: a branch at another commit with the same tree was tested.
#[test]
fn a_branch_with_the_tested_base_tree_is_where_it_was() {
    Case::by_push()
        .with(|case| case.answers.before.tip = Some(Ok(commit("other", "base-tree"))))
        .leads_to(&["intend merge", "merge", "landed as merged"]);
}

/// Z6.5: nothing of a bundle is merged unless every later member can be.
#[test]
fn a_bundle_with_a_member_that_cannot_follow_is_not_merged() {
    let member = change(2).key;
    let rows: Vec<(Case, &str)> = vec![
        (
            Case::bundle().with(|case| case.answers.members = vec![MemberView::ConnectionRemoved]),
            "cannot be read: the connection forge was removed",
        ),
        (
            Case::bundle()
                .with(|case| case.answers.members = vec![MemberView::Unreadable("404".to_owned())]),
            "cannot be read: 404",
        ),
        (
            Case::bundle().member(|member| member.facts.status = ChangeStatus::Closed),
            "is no longer open",
        ),
        (
            Case::bundle().member(|member| member.facts.status = ChangeStatus::Merged),
            "is no longer open",
        ),
        (
            Case::bundle().member(|member| member.facts.change.head = "newer".into()),
            "is now newer for main",
        ),
        (
            Case::bundle().member(|member| member.facts.change.branch = "stable".into()),
            "is now head for stable",
        ),
        (
            Case::bundle().member(|member| member.facts.submittable = Some(false)),
            "is unable to merge due to a missing merge requirement",
        ),
        (
            Case::bundle().member(|member| member.dependencies = Err("needs p3".to_owned())),
            "may not be merged yet: needs p3",
        ),
        (
            Case::bundle().member(|member| member.facts.mergeable = Some(false)),
            "cannot be merged according to its forge",
        ),
        (Case::bundle().member(|member| member.tip = no()), "has no branch: 404"),
    ];
    for (case, why) in rows {
        case.leads_to(&[&format!("refused: {member}, a member of its bundle, {why}")]);
    }
    Case::bundle()
        .member(|member| member.tip = Some(Ok(commit("new2", "new2-tree"))))
        .leads_to(&["base moved to new2"]);
}

/// Z6.5: the branch of a later member is not compared where an earlier member moves it.
#[test]
fn the_branch_that_an_earlier_member_moves_is_not_compared() {
    let case = Case::bundle().with(|case| {
        case.landing.later_members[0].change.key.project = change(1).key.project;
    });
    assert!(!observation::reads_tip_of_member(&case.landing, 0));
    assert!(observation::reads_tip_of_member(&Case::bundle().landing, 0));
    assert!(!observation::reads_tip_of_member(&Case::bundle().landing, 1));
    case.member(|member| {
        member.tip = None;
        member.facts.mergeable = Some(false);
    })
    .leads_to(&["intend merge", "merge", "landed"]);
}

/// Z6.4: a landing whose branch lock was lost, or that a concurrent run executes, sends nothing.
#[test]
fn no_request_is_sent_without_the_stored_intent() {
    let intent = |intent| Case::new().with(|case| case.answers.intent = Some(intent));
    intent(IntentResult::BranchLockLost).leads_to(&["intend merge", "base moved to base"]);
    intent(IntentResult::Stale).leads_to(&["intend merge", "wait: another reporter"]);
    // Others might consider the request over when it takes effect.
    intent(IntentResult::Stored(Some(NOW.plus_seconds(20))))
        .leads_to(&["intend merge", "wait: storing its intent took too long"]);
    intent(IntentResult::Stored(Some(NOW.plus_seconds(20))))
        .with(|case| case.landing.method = LandingMethod::FastForward)
        .leads_to(&["intend push", "wait: storing its intent took too long"]);
}

/// Z6.5: after a part of a bundle was merged, the rest is tried again for ten minutes; then an alarm
/// is raised.
#[test]
fn the_rest_of_a_bundle_is_tried_again_for_ten_minutes() {
    let rest = |seconds: u64| {
        let case = Case::new().facts(|facts| facts.status = ChangeStatus::Closed);
        case.with(|case| {
            case.landing.merged_members = vec![change(3).key];
            case.now.own = NOW.plus_seconds(seconds);
        })
    };
    rest(0).leads_to(&["postpone: the change was closed"]);
    rest(599).leads_to(&["postpone: the change was closed"]);
    rest(600).leads_to(&["refused: the change was closed with alarm"]);
    rest(0)
        .with(|case| case.answers.before.tip = Some(Ok(commit("new", "new-tree"))))
        .facts(|facts| facts.status = ChangeStatus::Open)
        .leads_to(&["postpone: main is at new"]);
}
