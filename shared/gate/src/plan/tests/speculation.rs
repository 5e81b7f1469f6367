//! Which state each item is tested on (Z6.4).

use super::bench::{Bench, after};
use crate::inbox::InboxMessageKind;
use crate::landing::LandingEnd;
use insta::assert_snapshot;
use sluice_config::pipeline::{Growth, GrowthKind};
use sluice_model::build::BuildResult::{Failure, Success};

/// Z6.4, G02
#[test]
fn each_change_is_tested_on_all_that_are_ahead_of_it_at_once() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @r"
    run A unit on 0A
    run B unit on 0AB
    run C unit on 0ABC
    ");
}

/// G02
#[test]
fn passed_changes_are_merged_in_order_and_never_tested_twice() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("ABC");
    bench.run();
    bench.pass("C");
    bench.pass("B");
    assert_snapshot!(bench.run(), @"");
    bench.pass("A");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB", "0ABC"]);
    assert_eq!(bench.orders.len(), 3);
}

/// S01, Z6.3
#[test]
fn projects_of_one_queue_are_tested_together_and_land_each_in_its_own_branch() {
    let mut bench = Bench::gate(&["unit"]);
    bench.in_project('B', "two");
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @r"
    run A unit on 0A
    run B unit on 0B
    run C unit on 0AC
    ");
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @r"
    stop B unit
    stop C unit
    A leaves: FAILURE
    run B unit on 0B
    run C unit on 0C
    ");
    bench.finish();
    assert_eq!((bench.tip("one"), bench.tip("two")), ("0C".to_owned(), "0B".to_owned()));
}

/// G05
#[test]
fn a_failure_ahead_retests_everything_behind_it_and_nothing_else() {
    let mut bench = Bench::gate(&["one", "two"]);
    bench.approve("ABC");
    bench.run();
    bench.end('A', "one", Failure);
    assert_snapshot!(bench.run(), @r"
    stop B one
    stop B two
    stop C one
    stop C two
    run B one on 0B
    run B two on 0B
    run C one on 0BC
    run C two on 0BC
    ");
    let a: Vec<_> = bench.under_way().into_iter().filter(|(change, _, _)| *change == 'A').collect();
    assert_eq!(a.len(), 1, "A's other job runs on");
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B SUCCESS", "C SUCCESS"]);
    assert_eq!(bench.orders.len(), 10);
}

/// Z6.4, Z9.1: a change that is tested again says on what, and which change ahead failed.
#[test]
fn a_retest_says_which_change_ahead_failed() {
    let mut bench = Bench::gate(&["one", "two"]);
    bench.approve("ABC");
    bench.run();
    bench.end('A', "one", Failure);
    bench.run();
    let (a, b) = (bench.change('A'), bench.change('B'));
    let why = |nth: usize| {
        let id = &bench.head.slots().nth(nth).unwrap().id;
        let mut texts = bench.items[id].reasons.iter().map(|reason| reason.text.clone());
        texts.rfind(|text| text.starts_with("testing again")).unwrap()
    };
    let of_b = format!("testing again on top of the current branch: {a} ahead failed");
    let of_c = format!("testing again on top of {b}: {b} ahead is tested again");
    assert_eq!((why(1), why(2)), (of_b, of_c));
}

/// Z6.4: entries ahead of the failing one are not affected.
#[test]
fn a_failure_behind_changes_nothing_ahead_of_it() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("ABC");
    bench.run();
    bench.end('B', "unit", Failure);
    assert_snapshot!(bench.run(), @r"
    stop C unit
    run C unit on 0AC
    ");
}

/// G08
#[test]
fn a_second_failing_job_resets_nothing_again() {
    let mut bench = Bench::gate(&["one", "two"]);
    bench.approve("AB");
    bench.run();
    bench.end('A', "one", Failure);
    bench.run();
    bench.end('A', "two", Failure);
    assert_snapshot!(bench.run(), @"A leaves: FAILURE");
}

/// Z6.4: an entry that failed on a state that was given up is tested again.
#[test]
fn a_failing_item_gets_another_chance_when_the_one_ahead_fails() {
    let mut bench = Bench::gate(&["unit", "slow"]);
    bench.approve("AB");
    bench.run();
    bench.end('B', "unit", Failure);
    assert_snapshot!(bench.run(), @"");
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @r"
    stop B slow
    run B unit on 0B
    run B slow on 0B
    ");
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B SUCCESS"]);
}

/// S02
#[test]
fn a_conflict_with_an_entry_ahead_waits_and_is_left_out_by_those_behind() {
    let mut bench = Bench::gate(&["unit"]);
    bench.conflicts = vec![('A', 'B')];
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @r"
    run A unit on 0A
    run C unit on 0AC
    ");
    bench.pass("AC");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B MERGE_CONFLICT", "C SUCCESS"]);
    assert!(bench.comments().iter().any(|text| text.starts_with("Merge Failed.")));
}

/// S02: a conflict ends when the other change leaves.
#[test]
fn a_conflict_is_forgotten_when_the_one_ahead_fails() {
    let mut bench = Bench::gate(&["unit"]);
    bench.conflicts = vec![('A', 'B')];
    bench.approve("AB");
    bench.run();
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @r"
    A leaves: FAILURE
    run B unit on 0B
    ");
}

/// G16
#[test]
fn a_window_shrinks_to_its_floor_and_grows_to_its_ceiling() {
    let mut bench = Bench::gate(&["unit"]);
    (bench.pipeline.window.initial, bench.pipeline.window.floor, bench.pipeline.window.ceiling) =
        (2, 1, Some(2));
    bench.head.window = 2;
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @r"
    run A unit on 0A
    run B unit on 0AB
    ");
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @r"
    stop B unit
    A leaves: FAILURE
    run B unit on 0B
    ");
    assert_eq!(bench.head.window, 1);
    bench.end('B', "unit", Success);
    bench.run();
    bench.land();
    bench.run();
    assert_eq!(bench.head.window, 2);
    bench.finish();
    assert_eq!((bench.head.window, bench.landed), (2, vec!["0B".to_owned(), "0BC".to_owned()]));
}

/// G16: a window that doubles and decreases by one; leaving without a test result does not change
/// it.
#[test]
fn a_window_grows_and_shrinks_as_its_pipeline_says() {
    let mut bench = Bench::gate(&["unit"]);
    let window = &mut bench.pipeline.window;
    (window.initial, window.floor, window.ceiling) = (2, 2, Some(6));
    window.increase = Growth { kind: GrowthKind::Exponential, factor: 2 };
    window.decrease = Growth { kind: GrowthKind::Linear, factor: 1 };
    bench.head.window = 2;
    bench.approve("ABCDEFGHIJ");
    bench.run();
    let mut seen = Vec::new();
    for change in ["A", "B", "C"] {
        bench.pass(change);
        bench.run();
        bench.land();
        bench.run();
        seen.push(bench.head.window);
    }
    assert_eq!(seen, [4, 6, 6]);
    bench.end('D', "unit", Failure);
    bench.run();
    assert_eq!((bench.head.window, bench.head.active_count()), (5, 5));
    bench.update('E', Some("the change was closed"));
    bench.run();
    assert_eq!(bench.head.window, 5);
}

/// G16: failed jobs shrink the window, and so does NO_JOBS; a merge failure or a dequeue does not
/// change it.
#[test]
fn a_window_moves_by_how_a_change_left() {
    type Ending = fn(&mut Bench);
    let table: [(&str, Ending, u32); 7] = [
        ("SUCCESS", passes, 5),
        ("FAILURE", |bench| bench.end('A', "unit", Failure), 3),
        ("MERGE_CONFLICT", |_| {}, 3),
        ("CONFIG_ERROR", |_| {}, 3),
        ("NO_JOBS", |_| {}, 3),
        ("MERGE_FAILURE", is_refused, 4),
        ("DEQUEUED", |bench| bench.dequeue('A'), 4),
    ];
    for (result, ending, size) in table {
        let mut bench = Bench::gate(&["unit"]);
        let window = &mut bench.pipeline.window;
        (window.initial, window.floor) = (4, 1);
        window.decrease = Growth { kind: GrowthKind::Linear, factor: 1 };
        bench.head.window = 4;
        match result {
            "MERGE_CONFLICT" => {
                bench.tips.insert("one".to_owned(), "0x".to_owned());
                bench.conflicts.push(('A', 'x'));
            }
            "CONFIG_ERROR" => {
                bench.misconfigured.insert('A');
            }
            "NO_JOBS" => {
                bench.own_jobs.insert('A', Vec::new());
            }
            _ => {}
        }
        bench.approve("A");
        bench.run();
        ending(&mut bench);
        bench.run();
        assert_eq!(bench.left, [format!("A {result}")]);
        assert_eq!(bench.head.window, size, "{result}");
    }
}

fn passes(bench: &mut Bench) {
    bench.pass("A");
    bench.run();
    bench.land();
}

fn is_refused(bench: &mut Bench) {
    bench.pass("A");
    bench.run();
    bench.end_landing(LandingEnd::Refused { why: "a review by an owner is missing".to_owned() });
}

/// G14: a new revision in a chain dequeues its dependents, and nothing else.
#[test]
fn a_new_revision_in_a_chain_dequeues_the_old_one_and_its_dependents() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve_needing('C', "AB");
    bench.approve("D");
    bench.run();
    bench.revise('B');
    bench.update('B', None);
    bench.finish();
    assert_eq!(bench.left, ["B DEQUEUED", "C FAILURE", "A SUCCESS", "D SUCCESS"]);
    assert_eq!(bench.landed, ["0A", "0AD"]);
    assert!(
        bench
            .comments()
            .iter()
            .any(|text| text.contains("depends on a change that failed to merge"))
    );
}

/// D08, D09
#[test]
fn dependents_of_a_failing_change_are_dequeued_and_the_rest_goes_on() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve_needing('C', "AB");
    bench.approve("D");
    bench.run();
    bench.end('A', "unit", Failure);
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE", "C FAILURE", "D SUCCESS"]);
    assert_eq!(bench.landed, ["0D"]);
    let orphans = bench
        .comments()
        .iter()
        .filter(|text| text.contains("depends on a change that failed to merge"))
        .count();
    assert_eq!(orphans, 2);
}

/// Passes A and starts its landing, offers a new revision meanwhile, and completes the landing.
fn lands_before_its_next_revision(bench: &mut Bench) {
    bench.pass("A");
    bench.run();
    bench.revise('A');
    bench.approve("A");
    bench.land();
    bench.run();
}

/// Z6.5, D08: a change tested on the pushed revision has its dependency. A newer revision behind it
/// that fails leaves later, and does not hold up its jobs.
#[test]
fn dependents_of_a_pushed_revision_go_on_ahead_of_a_failing_newer_one() {
    let mut bench = Bench::gate(&["unit"]);
    bench.keeps_tested_commits = true;
    bench.jobs.push(after("late", &["unit"]));
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.pass("A");
    bench.run();
    lands_before_its_next_revision(&mut bench);
    let order: Vec<_> = bench.head.slots().map(|slot| slot.change.clone()).collect();
    assert_eq!(order, [bench.change('B'), bench.change('A')]);
    bench.end('A', "unit", Failure);
    bench.run();
    bench.pass("B");
    assert_snapshot!(bench.run(), @"run B late on 0AB");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS", "A FAILURE"]);
}

/// Z6.5, D08: so it is if an operator moves the newer revision before it.
#[test]
fn dependents_of_a_pushed_revision_go_on_behind_a_failing_newer_one() {
    let mut bench = Bench::gate(&["unit", "slow"]);
    bench.keeps_tested_commits = true;
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    lands_before_its_next_revision(&mut bench);
    bench.deliver(InboxMessageKind::Promote {
        keys: vec![bench.change('A').key],
        by: "jo".to_owned(),
    });
    bench.run();
    let order: Vec<_> = bench.head.slots().map(|slot| slot.change.clone()).collect();
    assert_eq!(order, [bench.change('A'), bench.change('B')]);
    bench.end('A', "unit", Failure);
    bench.run();
    let jobs_under_way: Vec<_> =
        bench.under_way().into_iter().map(|(change, job, _)| (change, job)).collect();
    let expected =
        [('A', "slow"), ('B', "unit"), ('B', "slow")].map(|(change, job)| (change, job.to_owned()));
    assert_eq!(jobs_under_way, expected);
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
    assert_eq!(bench.left, ["A SUCCESS", "A FAILURE", "B SUCCESS"]);
}

/// Z6.1: in an independent pipeline no entry waits for another.
#[test]
fn changes_of_an_independent_pipeline_are_tested_on_the_branch_alone() {
    let mut bench = Bench::new(sluice_config::pipeline::Manager::Independent, &["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve("C");
    assert_snapshot!(bench.run(), @r"
    run A unit on 0A
    run B unit on 0AB
    run C unit on 0C
    ");
    bench.pass("C");
    assert_snapshot!(bench.run(), @"C leaves: SUCCESS");
    assert_eq!(bench.landed, Vec::<String>::new());
}
