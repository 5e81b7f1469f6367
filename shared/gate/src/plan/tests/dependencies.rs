//! What changes need that landed, or that somebody else merged: nobody loses by that.

use super::bench::Bench;
use crate::landing::LandingEnd;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::git::Commit;

fn refused() -> LandingEnd {
    LandingEnd::Refused { why: "it is not open any more".to_owned() }
}

/// Z6.4, D08: a landing that is refused, since somebody has just merged the change, takes nothing
/// from what needs that.
#[test]
fn what_needs_a_change_that_somebody_merged_stays_though_its_landing_is_refused() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.tips.insert("one".to_owned(), "0xA".to_owned());
    bench.merged_outside('A');
    assert_snapshot!(bench.run(), @"");
    bench.end_landing(refused());
    bench.finish();
    assert_eq!(bench.left, ["A MERGE_FAILURE", "B SUCCESS"]);
    assert_eq!((bench.landed.as_slice(), bench.arrivals.len()), (&["0xAB".to_owned()][..], 0));
}

/// D08: nobody said that it is merged, so that what needs it may not land.
#[test]
fn what_needs_a_change_whose_landing_is_refused_leaves() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.end_landing(refused());
    bench.finish();
    assert_eq!(bench.left, ["A MERGE_FAILURE", "B FAILURE"]);
}

/// Z6.5, D08: of changes that need each other, and that somebody merged by hand, the news come
/// together, and all leave by the first of them; what needs them has all of them in its branch.
#[test]
fn what_needs_changes_that_need_each_other_stays_when_somebody_merges_all_of_them() {
    for (is_landing, result) in [(false, "DEQUEUED"), (true, "MERGE_FAILURE")] {
        let mut bench = Bench::gate(&["unit"]);
        bench.in_project('B', "two");
        bench.approve_cycle("AB", "");
        bench.approve_needing('C', "AB");
        bench.run();
        if is_landing {
            bench.pass("AB");
            bench.run();
        }
        bench.tips.insert("one".to_owned(), "0xA".to_owned());
        bench.tips.insert("two".to_owned(), "0xB".to_owned());
        bench.merged_outside('A');
        bench.merged_outside('B');
        bench.run();
        if is_landing {
            bench.end_landing(refused());
        }
        bench.finish();
        assert_eq!(
            bench.left,
            [format!("A {result}"), format!("B {result}"), "C SUCCESS".to_owned()]
        );
        assert_eq!(bench.landed, ["0xAC"]);
    }
}

/// Z6.5, D08: of two that need each other the first landed and somebody else merged the second,
/// which stops the queue. Once an operator has looked, what needs both has both in its branch;
/// where the second was not merged, that is so of the first alone.
#[test]
fn what_needs_the_second_of_two_that_somebody_merged_stays_when_an_operator_has_looked() {
    let elsewhere =
        LandingEnd::MergedElsewhere { tip: Commit { id: "abc".into(), tree: "0x".into() } };
    for (end, is_told, result) in [(elsewhere, true, "SUCCESS"), (refused(), false, "FAILURE")] {
        let mut bench = Bench::gate(&["unit"]);
        bench.in_project('B', "two");
        bench.approve_cycle("AB", "");
        bench.approve_needing('C', "AB");
        bench.run();
        bench.pass("AB");
        bench.run();
        bench.land();
        bench.run();
        bench.end_landing(end);
        bench.run();
        let frozen = bench.head.halted.clone().unwrap_or_default();
        assert!(frozen.contains("until an operator has looked"), "{frozen}");
        assert_eq!(frozen.contains("merged by somebody else"), is_told, "{frozen}");
        bench.thaw();
        bench.finish();
        assert_eq!(
            bench.left,
            ["A SUCCESS".to_owned(), "B MERGE_FAILURE".to_owned(), format!("C {result}")]
        );
    }
}

/// Z6.5: what a push landed is one revision. Elsewhere than in a dependent pipeline another one of
/// it counts as landed only once its forge says so.
#[test]
fn another_revision_than_the_one_that_a_push_landed_does_not_count_as_landed() {
    for is_revised in [false, true] {
        let mut bench = Bench::new(Manager::Serial, &["unit"]);
        bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
        bench.kept = true;
        bench.in_project('A', "two");
        bench.approve("B");
        bench.finish();
        if is_revised {
            bench.revise('B');
        }
        bench.approve_needing('A', "B");
        bench.finish();
        let landing =
            bench.landings.values().find(|landing| landing.change == bench.change('A')).unwrap();
        let is_needed = landing.needs.contains(&bench.change('B').key);
        assert_eq!((is_needed, landing.needs.len()), (!is_revised, usize::from(!is_revised)));
    }
}

/// C01, Z6.6: what is asked for when a change has landed, and what that brings is not live yet, is
/// asked for by what was live before: that it runs nothing by that, or that its jobs are not to be
/// found, says nothing.
#[test]
fn a_change_does_not_leave_by_a_configuration_that_is_about_to_go() {
    for has_mistakes in [false, true] {
        let mut bench = Bench::gate(&["unit"]);
        (bench.head.window, bench.pipeline.window.floor) = (1, 1);
        bench.configuring.insert('A');
        if has_mistakes {
            bench.misconfigured.insert('B');
        } else {
            bench.own_jobs.insert('B', Vec::new());
        }
        bench.approve("A");
        bench.approve_needing('B', "A");
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS"], "mistakes: {has_mistakes}");
        bench.layout.live = bench.layout.wanted;
        bench.misconfigured.clear();
        bench.own_jobs.clear();
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"], "mistakes: {has_mistakes}");
    }
}

/// C01: what is still so by the configuration that is live then is told.
#[test]
fn a_change_that_runs_nothing_by_the_new_configuration_either_leaves() {
    let mut bench = Bench::gate(&["unit"]);
    (bench.head.window, bench.pipeline.window.floor) = (1, 1);
    bench.configuring.insert('A');
    bench.own_jobs.insert('B', Vec::new());
    bench.approve("AB");
    bench.finish();
    bench.layout.live = bench.layout.wanted;
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B NO_JOBS"]);
}
