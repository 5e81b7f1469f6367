//! Rows for what earlier requests, third parties and the forge's answers lead to.

use super::*;

/// A change that the forge shows as merged, as this commit.
fn shown_merged(case: Case, named: Option<&str>, tree: &str) -> Case {
    let merged = commit("merged", tree);
    case.facts(|facts| {
        facts.status = ChangeStatus::Merged;
        facts.merge_commit = named.map(Oid::from);
    })
    .with(|case| case.answers.before.merged = Some(Ok(merged)))
}

/// Z6.4: while an earlier request may be in flight, an obstacle may be newer than the request: no
/// result is stored.
#[test]
fn an_obstacle_is_no_result_while_a_request_may_be_in_flight() {
    for case in [Case::merging, Case::pushing] {
        let rows: Vec<Case> = vec![
            case().facts(|facts| facts.status = ChangeStatus::Closed),
            case().facts(|facts| facts.change.head = "newer".into()),
            case().facts(|facts| facts.change.branch = "stable".into()),
            case().facts(|facts| facts.submittable = Some(false)),
            case().with(|case| case.answers.before.change = no()),
            case().with(|case| case.answers.dependencies = Some(Err("needs p3".to_owned()))),
            case().with(|case| case.answers.before.tip = no()),
        ];
        for row in rows {
            let steps = row.steps();
            assert!(steps.len() == 1 && steps[0].starts_with("wait: "), "{steps:?}");
            assert!(steps[0].ends_with("may be in flight"), "{steps:?}");
            // Afterwards it is a result.
            let steps = row.much_later().steps();
            assert!(steps.len() == 1 && steps[0].starts_with("refused: "), "{steps:?}");
        }
    }
}

/// Z6.4: a branch that moved while a request may be in flight was moved by it, perhaps.
#[test]
fn a_moved_branch_is_no_result_while_a_request_may_have_moved_it() {
    let moved = |case: Case| {
        case.with(|case| case.answers.before.tip = Some(Ok(commit("new", "new-tree"))))
    };
    moved(Case::merging()).leads_to(&["wait: main moved while a merge of"]);
    moved(Case::pushing()).leads_to(&["wait: main moved while a merge of"]);
    moved(Case::merging().much_later()).leads_to(&["base moved to new"]);
    moved(Case::pushing().much_later()).leads_to(&["base moved to new"]);
    // It was there before the request already.
    let at_new = |case: &mut Case| {
        case.landing.state = LandingState::Merging(Attempt {
            tip: commit("new", "new-tree"),
            in_flight_until: Some(NOW.plus_seconds(60)),
        });
    };
    moved(Case::merging()).with(at_new).leads_to(&["base moved to new"]);
}

/// Z6.4: after a crash the forge is read first: what an earlier request merged is compared.
#[test]
fn a_merge_of_an_earlier_run_is_compared_and_not_repeated() {
    let merging = || shown_merged(Case::merging(), Some("merged"), "tested-tree");
    merging().leads_to(&["landed as merged"]);
    merging().much_later().leads_to(&["landed as merged"]);
    shown_merged(Case::merging(), Some("merged"), "other-tree").leads_to(&["mismatch"]);
    // A forge that names no commit: the tip of the branch is compared.
    shown_merged(Case::merging(), None, "tested-tree").leads_to(&["landed as merged"]);
    shown_merged(Case::merging(), None, "other-tree").leads_to(&["mismatch"]);
    // In time for a further request, which may be sent while the first cannot be over.
    Case::merging().leads_to(&["intend merge", "merge", "landed as merged"]);
    let little_time = |case: &mut Case| {
        case.landing.state = LandingState::Merging(Attempt {
            tip: commit("base", "base-tree"),
            in_flight_until: Some(NOW.plus_seconds(20)),
        });
    };
    Case::merging().with(little_time).leads_to(&["wait: its branch does not contain it yet"]);
}

/// Z6.4: the time left of a request is measured by the forge's clock, or by the stored deadline
/// where the forge does not send its time.
#[test]
fn the_time_left_of_a_request_is_measured_by_the_forge() {
    let closed = |case: Case| case.facts(|facts| facts.status = ChangeStatus::Closed);
    // The function's clock is a day ahead.
    let ahead = closed(Case::merging()).with(|case| {
        case.now.own = NOW.plus_seconds(86_400);
        case.answers.started.own = case.now.own;
    });
    ahead.leads_to(&["wait: "]);
    let no_time = |case: Case, due: u64| {
        case.with(|case| {
            case.now.forge = None;
            case.answers.started.forge = None;
            case.answers.due = Some(NOW.plus_seconds(due));
        })
    };
    no_time(closed(Case::merging()), 60).leads_to(&["wait: "]);
    no_time(closed(Case::merging()), 0).leads_to(&["refused: the change was closed"]);
    // An ordered landing is due as well, but nothing was sent.
    no_time(closed(Case::new()), 60).leads_to(&["refused: the change was closed"]);
}

/// Z6.4: the branch shows whether a push was made, whatever the change shows.
#[test]
fn a_push_of_an_earlier_run_is_found_in_the_branch() {
    let pushed = |case: Case| case.with(|case| case.answers.before.contains_tested = Some(true));
    for closed in [false, true] {
        let case = pushed(Case::pushing()).facts(|facts| {
            if closed {
                facts.status = ChangeStatus::Closed;
            }
        });
        case.leads_to(&["landed as tested"]);
    }
    pushed(Case::merging())
        .with(|case| case.landing.has_unanswered_push = true)
        .leads_to(&["landed as tested"]);
    // Without a push, a branch that contains the commit says nothing.
    pushed(Case::new()).leads_to(&["intend merge", "merge", "landed as merged"]);
    // Of several changes in one push the forge names the last one's commit.
    shown_merged(Case::pushing().much_later(), Some("last"), "last-tree")
        .with(|case| case.answers.contains_tested_at_end = Some(true))
        .leads_to(&["landed as tested"]);
    shown_merged(Case::pushing(), Some("last"), "last-tree").leads_to(&["wait: it was merged as"]);
    shown_merged(Case::pushing().much_later(), Some("last"), "last-tree").leads_to(&["mismatch"]);
    // The branch is read once more before a failure is stored.
    Case::pushing()
        .much_later()
        .facts(|facts| facts.status = ChangeStatus::Closed)
        .with(|case| case.answers.contains_tested_at_end = Some(true))
        .leads_to(&["landed as tested"]);
}

/// Z6.4: an earlier landing of the same item may have pushed and was withdrawn.
#[test]
fn a_withdrawn_push_is_found_in_the_branch() {
    let withdrawn = |contains: bool| {
        shown_merged(Case::new(), Some("last"), "last-tree").with(|case| {
            case.landing.merge_attempted = true;
            case.answers.contains_tested_at_end = Some(contains);
        })
    };
    withdrawn(true).leads_to(&["landed as tested"]);
    withdrawn(false).leads_to(&["mismatch"]);
    withdrawn(true).with(|case| case.landing.mode = MergeMode::SquashMerge).leads_to(&["mismatch"]);
}

/// Z6.4: a merge by a third party is never a mismatch.
#[test]
fn a_merge_by_a_third_party_is_no_mismatch() {
    let foreign = |tree: &str| {
        shown_merged(Case::new(), Some("merged"), tree).with(|case| {
            case.answers.before.tip = Some(Ok(commit("tip", "tip-tree")));
        })
    };
    foreign("tested-tree").leads_to(&["landed as merged"]);
    foreign("other-tree").leads_to(&["merged elsewhere"]);
    foreign("other-tree")
        .with(|case| case.answers.before.tip = Some(Ok(commit("tip", "tested-tree"))))
        .leads_to(&["landed as tip"]);
    foreign("other-tree").with(|case| case.answers.before.tip = no()).leads_to(&["refused: 404"]);
    foreign("tested-tree")
        .with(|case| case.answers.before.merged = no())
        .leads_to(&["merged elsewhere"]);
    // Another branch is not this queue's.
    foreign("tested-tree")
        .facts(|facts| facts.change.branch = "stable".into())
        .leads_to(&["refused: it was merged into stable, but it was tested on main"]);
    // The later members of a bundle were not checked.
    let bundle = Case::bundle().landing.later_members;
    foreign("tested-tree")
        .with(|case| case.landing.later_members = bundle)
        .leads_to(&["merged elsewhere"]);
    // Of a later member a part is merged already: an operator has to check.
    foreign("other-tree").with(|case| case.landing.requirements = None).leads_to(&["mismatch"]);
    // Sluice's own request, by an earlier landing.
    foreign("other-tree").with(|case| case.landing.merge_attempted = true).leads_to(&["mismatch"]);
}

/// Z6.4: what the forge merged is compared with what was tested.
#[test]
fn a_forge_that_merges_something_else_is_a_mismatch() {
    let merged = |case: Case| {
        case.with(|case| case.answers.after.merged = Some(Ok(commit("merged", "other-tree"))))
    };
    merged(Case::new()).leads_to(&["intend merge", "merge", "mismatch"]);
    // The change was retargeted between the read and the merge.
    merged(Case::new())
        .with(|case| {
            if let Some(Ok(facts)) = &mut case.answers.after.change {
                facts.change.branch = "stable".into();
                facts.status = ChangeStatus::Merged;
            }
        })
        .leads_to(&["intend merge", "merge", "refused: it was merged into stable"]);
    merged(Case::new()).with(|case| case.answers.after.change = no()).leads_to(&[
        "intend merge",
        "merge",
        "wait: 404",
    ]);
    // An unanswered push may explain it.
    let unanswered = |contains: bool| {
        merged(Case::merging().much_later()).with(|case| {
            case.landing.has_unanswered_push = true;
            case.answers.contains_tested_at_end = Some(contains);
        })
    };
    unanswered(true).leads_to(&["intend merge", "merge", "landed as tested"]);
    unanswered(false).leads_to(&["intend merge", "merge", "mismatch"]);
}

/// Z6.4: a forge that does not show the merged commit has five minutes.
#[test]
fn a_merged_commit_that_is_not_shown_is_unproven_after_five_minutes() {
    let hidden = |since: Option<u64>| {
        Case::new().with(|case| {
            case.answers.after.merged = no();
            case.landing.unverifiable_since = since.map(|ago| Timestamp(NOW.0 - ago * 1_000));
        })
    };
    hidden(None).leads_to(&["intend merge", "merge", "note unverifiable"]);
    hidden(Some(UNVERIFIABLE_SECONDS - 1)).leads_to(&["intend merge", "merge", "wait: 404"]);
    hidden(Some(UNVERIFIABLE_SECONDS)).leads_to(&["intend merge", "merge", "unproven"]);
    Case::by_push().with(|case| case.answers.tested = no()).leads_to(&[
        "intend push",
        "push",
        "note unverifiable",
    ]);
}

/// Z6.4: a refused merge request is a refusal, unless an earlier request or a third party explains
/// it.
#[test]
fn a_refused_merge_is_explained_by_what_the_change_shows() {
    let refused = |case: Case| {
        case.with(|case| case.answers.merge = Some(MergeAnswer::Refused("405".to_owned())))
    };
    let merged_since = |case: &mut Case| {
        if let Some(Ok(facts)) = &mut case.answers.after.change {
            facts.status = ChangeStatus::Merged;
        }
        case.answers.after.tip = Some(Ok(commit("tip", "tip-tree")));
    };
    refused(Case::new()).leads_to(&["intend merge", "merge", "refused: 405"]);
    refused(Case::new()).with(|case| case.answers.after.change = no()).leads_to(&[
        "intend merge",
        "merge",
        "refused: 405",
    ]);
    refused(Case::new()).with(merged_since).leads_to(&[
        "intend merge",
        "merge",
        "merged elsewhere",
    ]);
    refused(Case::new())
        .with(merged_since)
        .with(|case| case.answers.after.tip = Some(Ok(commit("tip", "tested-tree"))))
        .leads_to(&["intend merge", "merge", "landed as tip"]);
    refused(Case::merging()).leads_to(&[
        "intend merge",
        "merge",
        "wait: 405; a merge requested earlier may be in",
    ]);
    refused(Case::merging().much_later()).leads_to(&["intend merge", "merge", "refused: 405"]);
    refused(Case::merging().much_later()).with(merged_since).leads_to(&[
        "intend merge",
        "merge",
        "wait: p1#1 at head was merged in the meantime",
    ]);
    refused(Case::merging().much_later())
        .with(|case| case.answers.after.change = no())
        .leads_to(&["intend merge", "merge", "wait: 404"]);
}

/// Z6.4: a merge request without a clear answer is repeated after the forge was read.
#[test]
fn an_unclear_answer_is_no_result() {
    Case::new().with(|case| case.answers.merge = Some(MergeAnswer::Unclear(later()))).leads_to(&[
        "intend merge",
        "merge",
        "wait: 502",
    ]);
    Case::by_push()
        .with(|case| case.answers.push = Some(PushAnswer::Unclear(later())))
        .leads_to(&["intend push", "push", "wait: 502"]);
}

/// Z6.4, S02: where a push is refused, the forge merges; where it is not answered twice, the forge
/// merges after the branch was read again.
#[test]
fn a_push_that_fails_is_replaced_by_a_merge() {
    let answered =
        |case: Case, answer: PushAnswer| case.with(|case| case.answers.push = Some(answer));
    let refused = || PushAnswer::Refused("protected".to_owned());
    answered(Case::by_push(), refused()).leads_to(&[
        "intend push",
        "push",
        "replace refused push",
        "merge",
        "landed as merged",
    ]);
    answered(Case::by_push(), PushAnswer::BranchMoved(later())).leads_to(&[
        "intend push",
        "push",
        "wait: 502",
    ]);
    for answer in [refused(), PushAnswer::Unclear(later())] {
        answered(Case::pushing().much_later(), answer).leads_to(&[
            "intend push",
            "push",
            "replace unanswered push",
            "wait: a push to its branch was not answered",
        ]);
    }
    // The first one may still take effect.
    answered(Case::pushing(), refused()).leads_to(&["intend push", "push", "wait: protected"]);
    answered(Case::pushing(), PushAnswer::Unclear(later())).leads_to(&[
        "intend push",
        "push",
        "wait: 502",
    ]);
}

/// Z6.4: without its stored commits a change is merged by the forge, but not while a push may be in
/// flight.
#[test]
fn a_push_without_stored_commits_is_a_merge() {
    let gone = |case: Case| case.with(|case| case.answers.is_push_ready = Some(false));
    gone(Case::by_push()).leads_to(&["intend merge", "merge", "landed as merged"]);
    gone(Case::pushing()).leads_to(&["wait: its tested commit is no longer stored"]);
    gone(Case::pushing().much_later()).leads_to(&["intend merge", "merge", "landed as merged"]);
}

/// Z6.4: the intent says what is sent, and that a push may still take effect.
#[test]
fn an_intent_remembers_a_push_that_may_take_effect() {
    let attempt = || Attempt { tip: commit("base", "base-tree"), in_flight_until: None };
    let ordered = Case::by_push().landing;
    let pushed = ordered.clone().with_intent(LandingMethod::FastForward, attempt());
    assert!(pushed.is_moving() && pushed.merge_attempted && pushed.may_have_been_pushed());
    let merged = pushed.clone().with_intent(LandingMethod::Merge, attempt());
    assert!(!merged.is_moving() && merged.has_unanswered_push && merged.may_have_been_pushed());
    let refused = pushed.clone().with_push_replaced(FailedPush::Refused, attempt());
    assert!(!refused.may_have_been_pushed() && refused.method == LandingMethod::Merge);
    let unanswered = pushed.with_push_replaced(FailedPush::Unanswered, attempt());
    assert!(unanswered.may_have_been_pushed() && !unanswered.is_moving());
    assert!(!ordered.with_intent(LandingMethod::Merge, attempt()).may_have_been_pushed());
}
