//! Dependencies that were merged here or elsewhere: their dependents stay.

use super::bench::Bench;
use crate::landing::LandingEnd;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::git::Commit;

fn refused() -> LandingEnd {
    LandingEnd::Refused { why: "it is not open any more".to_owned() }
}

/// Z6.4, D08: if a landing is refused because someone else merged the change, its dependents stay.
#[test]
fn dependents_of_a_change_merged_by_someone_else_stay_although_its_landing_is_refused() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.tips.insert("one".to_owned(), "0xA".to_owned());
    bench.merge_by_other('A');
    assert_snapshot!(bench.run(), @"");
    bench.end_landing(refused());
    bench.finish();
    assert_eq!(bench.left, ["A MERGE_FAILURE", "B SUCCESS"]);
    assert_eq!((bench.landed.as_slice(), bench.inbox.len()), (&["0xAB".to_owned()][..], 0));
}

/// D08: no message says that it is merged, so its dependents cannot be merged.
#[test]
fn dependents_of_a_change_whose_landing_is_refused_leave() {
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

/// Z6.5, D08: if all members of a bundle were merged by hand, they leave with the first update;
/// their dependents stay.
#[test]
fn dependents_of_a_bundle_stay_when_someone_else_merges_all_members() {
    for (is_landing, result) in [(false, "DEQUEUED"), (true, "MERGE_FAILURE")] {
        let mut bench = Bench::gate(&["unit"]);
        bench.in_project('B', "two");
        bench.approve_bundle("AB", "");
        bench.approve_needing('C', "AB");
        bench.run();
        if is_landing {
            bench.pass("AB");
            bench.run();
        }
        bench.tips.insert("one".to_owned(), "0xA".to_owned());
        bench.tips.insert("two".to_owned(), "0xB".to_owned());
        bench.merge_by_other('A');
        bench.merge_by_other('B');
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

/// Z6.5, D08: the first member was merged, the second was merged by someone else: dependents of
/// both find both merged. If the second was not merged, only the first counts.
#[test]
fn dependents_of_a_second_member_merged_by_someone_else_stay() {
    let elsewhere =
        LandingEnd::MergedElsewhere { tip: Commit { id: "abc".into(), tree: "0x".into() } };
    for (end, is_merged, result) in [(elsewhere, true, "SUCCESS"), (refused(), false, "FAILURE")] {
        let mut bench = Bench::gate(&["unit"]);
        bench.in_project('B', "two");
        bench.approve_bundle("AB", "");
        bench.approve_needing('C', "AB");
        bench.run();
        bench.pass("AB");
        bench.run();
        bench.land();
        bench.run();
        bench.end_landing(end);
        bench.run();
        assert_eq!(bench.head.halted, None);
        let why = bench.removed_reasons.join("\n");
        assert_eq!(why.contains("merged outside this queue"), is_merged, "{why}");
        bench.finish();
        assert_eq!(
            bench.left,
            ["A SUCCESS".to_owned(), "B MERGE_FAILURE".to_owned(), format!("C {result}")]
        );
    }
}

/// Z6.5: a push merges one revision. In other pipelines another revision counts as merged only once
/// the forge says so.
#[test]
fn another_revision_than_the_one_that_a_push_landed_does_not_count_as_landed() {
    for is_revised in [false, true] {
        let mut bench = Bench::new(Manager::Serial, &["unit"]);
        bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
        bench.keeps_tested_commits = true;
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

/// C01, Z6.6: while a merged layout is not live yet, missing jobs or configuration errors are not
/// final.
#[test]
fn a_change_does_not_leave_by_a_configuration_that_is_about_to_go() {
    for has_errors in [false, true] {
        let mut bench = Bench::gate(&["unit"]);
        (bench.head.window, bench.pipeline.window.floor) = (1, 1);
        bench.configuring.insert('A');
        if has_errors {
            bench.misconfigured.insert('B');
        } else {
            bench.own_jobs.insert('B', Vec::new());
        }
        bench.approve("A");
        bench.approve_needing('B', "A");
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS"], "errors: {has_errors}");
        bench.layout.live = bench.layout.wanted;
        bench.misconfigured.clear();
        bench.own_jobs.clear();
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"], "errors: {has_errors}");
    }
}

/// C01: what the live configuration then still shows is reported.
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
