//! Operators' commands: dequeue, promote, resume.

use super::bench::Bench;
use crate::inbox::InboxMessageKind;
use crate::landing::{Attempt, LandingEnd, LandingState, LandingTrouble};
use crate::plan::LayoutNumbers;
use crate::report::ReportAction;
use insta::assert_snapshot;
use sluice_config::pipeline::{
    CheckConclusion, CommitStatusState, GitHubReporter, Manager, PipelineReporter, ReporterKind,
};
use sluice_model::Timestamp;
use sluice_model::git::Commit;

fn passed(changes: &str) -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve(changes);
    bench.run();
    bench.pass(changes);
    bench.run();
    bench
}

fn resume(reason: &str) -> InboxMessageKind {
    InboxMessageKind::Resume { by: "jo".to_owned(), reason: reason.to_owned() }
}

/// Makes A's landing result in another tree than the tested one.
fn mismatch(bench: &mut Bench) {
    bench.tips.insert("one".to_owned(), "0xA".to_owned());
    bench.end_landing(LandingEnd::Mismatch {
        landed: Commit { id: "abc".into(), tree: "0xA".into() },
    });
    bench.run();
}

/// R06: the report gives the reason, and the item's record also names the operator.
#[test]
fn a_change_that_an_operator_takes_out_is_reported_as_canceled() {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.reporters.dequeue = bench.pipeline.reporters.failure.clone();
    bench.approve("AB");
    bench.run();
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @r"
    stop A unit
    stop B unit
    A leaves: DEQUEUED
    run B unit on 0B
    ");
    assert_snapshot!(bench.comments().last().unwrap().lines().take(3).collect::<Vec<_>>().join("\n"), @r"
    Build canceled.

    an operator dequeued it: it hangs
    ");
    assert!(!bench.comments().join("").contains("jo"), "the report does not name the operator");
    let reasons = &bench.removed_reasons;
    assert!(reasons.iter().any(|reason| reason == "jo dequeued it: it hangs"), "{reasons:?}");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B SUCCESS"]);
}

/// R06, D08: a change cannot pass without a dependency that was dequeued.
#[test]
fn dependents_of_a_change_dequeued_by_an_operator_are_dequeued() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.dequeue('A');
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B FAILURE"]);
}

/// R06: neither a pending layout nor a waiting message delays an operator.
#[test]
fn a_command_overtakes_waiting_messages() {
    let mut bench = passed("ABC");
    bench.revise('A');
    bench.update('A', None);
    bench.layout.wanted += 1;
    bench.run();
    assert_eq!(bench.inbox.len(), 1, "the update of A waits for the end of its landing");
    bench.dequeue('B');
    bench.run();
    assert_eq!((bench.left.as_slice(), bench.inbox.len()), (&["B DEQUEUED".to_owned()][..], 1));
}

/// R06: a command about one revision does not dequeue a newer one.
#[test]
fn a_command_about_a_revision_dequeues_no_other_revision() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    let seen = bench.change('A');
    bench.revise('A');
    bench.approve("A");
    bench.run();
    let left = bench.left.len();
    let (by, reason) = (String::new(), String::new());
    let word = |head| InboxMessageKind::Dequeue {
        key: seen.key.clone(),
        head,
        by: by.clone(),
        reason: reason.clone(),
    };
    bench.deliver(word(Some(seen.head.clone())));
    bench.run();
    assert_eq!((bench.left.len(), bench.head.slots().count(), bench.inbox.len()), (left, 1, 0));
    bench.deliver(word(Some(bench.change('A').head)));
    bench.run();
    assert_eq!((bench.left.len(), bench.head.slots().count()), (left + 1, 0));
}

/// Z6.4: after an operator resumes the queue, it goes on from the branch's actual state; dependents
/// of the change may stay.
#[test]
fn a_resumed_queue_tests_again_on_the_current_branch() {
    let mut bench = passed("A");
    bench.approve_needing('B', "A");
    bench.run();
    mismatch(&mut bench);
    // The update of the change waits for the landing that halted the queue; the command does not
    // wait behind it.
    bench.revise('A');
    bench.update('A', None);
    bench.run();
    bench.deliver(resume("the merge driver was switched off"));
    bench.run();
    assert_eq!(
        (bench.head.halted.as_deref(), bench.left.as_slice()),
        (None, &["A MERGE_FAILURE".to_owned()][..])
    );
    let comments = bench.comments().join("");
    assert!(
        comments.contains("tree 0xA") && comments.contains("the merge driver was switched off"),
        "{comments}"
    );
    bench.finish();
    assert_eq!(bench.left, ["A MERGE_FAILURE", "B SUCCESS"]);
    assert!(bench.inbox.is_empty());
}

/// A resume command has no effect on a queue that is not halted, and is not kept for later.
#[test]
fn resuming_a_queue_that_is_not_halted_changes_nothing() {
    let mut bench = passed("A");
    let head = bench.head.clone();
    bench.deliver(resume("to be sure"));
    bench.run();
    assert_eq!((bench.head.clone(), bench.inbox.len()), (head, 0));
}

/// R03, Z6.4: removing a tenant leaves no halted queue that no one can resume.
#[test]
fn a_halted_queue_of_a_removed_pipeline_can_be_resumed() {
    let mut bench = passed("AB");
    mismatch(&mut bench);
    bench.is_pipeline_gone = true;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(bench.left, ["B DEQUEUED"]);
    bench.deliver(resume("the tenant is gone"));
    bench.run();
    assert_eq!((bench.head.slots().count(), bench.head.halted.as_deref()), (0, None));
}

/// R06, Z6.5: if the connection of a partly merged bundle is removed, an operator's command ends
/// all of it. Each member is reported as what it is: merged, unknown or not started.
#[test]
fn an_operator_ends_a_bundle_of_which_a_part_has_landed_where_its_connection_is_gone() {
    for (has_begun, named) in [(true, 'C'), (true, 'A'), (false, 'B')] {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve_bundle("ABC", "");
        bench.approve("D");
        bench.run();
        bench.pass("ABC");
        bench.run();
        bench.land();
        bench.run();
        let id = bench.head.slots().nth(1).unwrap().id.clone();
        let landing = bench.landings.get_mut(&id).unwrap();
        if has_begun {
            landing.state =
                LandingState::Merging(Attempt { tip: landing.base.clone(), in_flight_until: None });
        }
        bench.dequeue(named);
        bench.run();
        assert_eq!((bench.left.len(), bench.inbox.len()), (0, 1), "its end may still be known");
        let landing = bench.landings.get_mut(&id).unwrap();
        landing.trouble = Some(LandingTrouble {
            since: Timestamp(1),
            why: "the connection is gone".to_owned(),
            is_connection_removed: true,
        });
        bench.run();
        assert_eq!(bench.left, ["A SUCCESS", "B DEQUEUED", "C DEQUEUED"]);
        let why = match &bench.landings[&id].state {
            LandingState::Ended { end: LandingEnd::Unproven { why }, .. } if has_begun => why,
            LandingState::Ended { end: LandingEnd::Refused { why }, .. } if !has_begun => why,
            other => panic!("{other:?}"),
        };
        assert!(
            why.starts_with("an operator dequeued it: it hangs; ")
                && why.contains("the connection github"),
            "{why}"
        );
        assert_eq!(why.contains("it is unknown whether"), has_begun, "{why}");
        let reasons =
            bench.removed_reasons.iter().filter(|reason| reason.contains("it is unknown whether"));
        assert_eq!(reasons.count() > 0, has_begun);
        // Entries behind go on from what was merged.
        bench.finish();
        assert_eq!(
            (bench.landed.last().map(String::as_str), bench.head.slots().count()),
            (Some("0AD"), 0)
        );
    }
}

fn promote(bench: &mut Bench, changes: &str) {
    let keys = changes.chars().map(|change| bench.change(change).key).collect();
    bench.deliver(InboxMessageKind::Promote { keys, by: "jo".to_owned() });
}

fn order(bench: &Bench) -> String {
    let letter = |key: &sluice_model::change::ChangeKey| {
        char::from_u32(key.number().unwrap() as u32).unwrap()
    };
    bench.head.slots().map(|slot| letter(&slot.change.key)).collect()
}

/// Z6.4: a promoted change is tested first; the others are tested on top of it.
#[test]
fn a_promoted_change_is_first_and_the_others_keep_their_order() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("ABC");
    bench.run();
    promote(&mut bench, "C");
    assert_snapshot!(bench.run(), @r"
    stop C unit
    stop A unit
    stop B unit
    run C unit on 0C
    run A unit on 0CA
    run B unit on 0CAB
    ");
    assert_eq!(order(&bench), "CAB");
    bench.finish();
    assert_eq!(bench.left, ["C SUCCESS", "A SUCCESS", "B SUCCESS"]);
}

/// Z6.4, Z6.5: a change cannot be promoted before its dependencies, nor before one that is being
/// merged.
#[test]
fn a_promoted_change_brings_its_dependencies_and_stays_behind_a_landing() {
    let mut bench = passed("A");
    bench.approve("B");
    bench.approve("C");
    bench.approve_needing('D', "C");
    bench.run();
    promote(&mut bench, "DB");
    bench.run();
    assert_eq!(order(&bench), "ACDB");
    // A change that is not queued changes nothing.
    promote(&mut bench, "X");
    bench.run();
    assert_eq!((order(&bench).as_str(), bench.inbox.len()), ("ACDB", 0));
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "C SUCCESS", "D SUCCESS", "B SUCCESS"]);
}

/// Z6.1: in a serial queue an item that has started keeps its place.
#[test]
fn in_a_serial_queue_a_started_item_stays_first() {
    let mut bench = Bench::new(Manager::Serial, &["unit"]);
    bench.approve("ABC");
    bench.run();
    promote(&mut bench, "C");
    bench.run();
    assert_eq!(order(&bench), "ACB");
}

/// Z6.1: so does one whose merge was requested.
#[test]
fn in_a_serial_queue_an_item_with_a_requested_merge_stays_first() {
    let mut bench = Bench::new(Manager::Serial, &["unit"]);
    bench.approve("ABC");
    bench.plan_once();
    promote(&mut bench, "C");
    bench.plan_once();
    assert_eq!(order(&bench), "ACB");
    bench.run();
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "C SUCCESS", "B SUCCESS"]);
}

/// G12: an operator's dequeue ends what the start report left pending, also where the pipeline has
/// no `dequeue` reporter.
#[test]
fn a_dequeue_ends_what_the_start_report_left_pending() {
    let mut bench = Bench::gate(&["unit"]);
    let started = GitHubReporter {
        status: Some(CommitStatusState::Pending),
        check: Some(CheckConclusion::InProgress),
        ..GitHubReporter::default()
    };
    bench.pipeline.reporters.start =
        vec![PipelineReporter { connection: "github".into(), kind: ReporterKind::GitHub(started) }];
    bench.pipeline.reporters.dequeue = Vec::new();
    bench.approve("A");
    bench.run();
    bench.dequeue('A');
    bench.run();
    let ended = bench.reports.last().unwrap();
    let states: Vec<&str> = (ended.actions.iter())
        .filter_map(|action| match action {
            ReportAction::Status { state, .. } | ReportAction::Check { state, .. } => {
                Some(state.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!((states.as_slice(), ended.actions.len()), (&["failure", "cancelled"][..], 2));
}
