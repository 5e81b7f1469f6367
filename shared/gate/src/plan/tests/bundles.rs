//! Bundles from enqueueing to merging (Z6.5).

use super::bench::{Bench, after, job};
use crate::landing::LandingEnd;
use crate::plan::LayoutNumbers;
use crate::queue::SlotStatus;
use insta::assert_snapshot;
use sluice_model::Timestamp;
use sluice_model::build::BuildResult::{Failure, Retry, Success};
use sluice_model::git::Commit;
use sluice_model::job::{BuildSharing, JobSummary};

fn gate() -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.in_project('B', "two");
    bench
}

fn passed() -> Bench {
    let mut bench = gate();
    bench.approve_bundle("AB", "");
    bench.approve("C");
    bench.run();
    bench.pass("ABC");
    bench.run();
    bench
}

fn refused(why: &str) -> LandingEnd {
    LandingEnd::Refused { why: why.to_owned() }
}

/// D10, Z6.5: the members are tested on one state, merged one after the other, and leave together.
#[test]
fn a_bundle_is_tested_on_one_state_and_merged_in_order() {
    let mut bench = gate();
    bench.approve("X");
    bench.approve_bundle("AB", "");
    bench.approve("C");
    assert_snapshot!(bench.run(), @r"
    run X unit on 0X
    run A unit on 0XA
    run B unit on 0B
    run C unit on 0XAC
    ");
    let started = bench.orders.iter().map(|order| order.speculation.clone()).collect::<Vec<_>>();
    assert_eq!(started[1], started[2], "A and B are tested on one state");
    bench.finish();
    assert_eq!(bench.landed, ["0X", "0XA", "0B", "0XAC"]);
    assert_eq!(bench.left, ["X SUCCESS", "A SUCCESS", "B SUCCESS", "C SUCCESS"]);
    assert_eq!(bench.orders.len(), 4, "entries behind were tested on what was merged");
}

/// D10: the first member is not reported before the second is merged.
#[test]
fn nothing_is_reported_before_all_of_a_bundle_have_landed() {
    let mut bench = passed();
    let said = bench.comments().len();
    bench.land();
    assert_snapshot!(bench.run(), @"land B as 0B");
    assert_eq!(
        bench.head.slots().map(|slot| slot.status).collect::<Vec<_>>()[..2],
        [SlotStatus::Landed, SlotStatus::Landing]
    );
    assert_eq!((bench.comments().len(), bench.left.len()), (said, 0));
    bench.land();
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"]);
    assert_eq!(bench.comments().len(), said + 2);
}

/// Z6.5: members of one branch are merged on top of each other.
#[test]
fn members_of_one_branch_are_merged_on_top_of_each_other() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve_bundle("ABC", "");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB", "0ABC"]);
}

/// D13: a failing member fails all; entries behind go on without them.
#[test]
fn a_failure_in_a_bundle_is_reported_for_all_of_it_and_none_lands() {
    let mut bench = gate();
    bench.approve_bundle("AB", "");
    bench.approve("C");
    bench.run();
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @r"
    stop C unit
    run C unit on 0C
    ");
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE", "C SUCCESS"]);
    assert_eq!(bench.landed, ["0C"]);
    let reported = bench
        .comments()
        .iter()
        .filter(|text| text.contains("dependency cycle that failed"))
        .count();
    assert_eq!(reported, 2);
}

/// D13: a member that does not merge gets the reason; the others get that the bundle failed.
#[test]
fn a_conflict_in_a_bundle_takes_all_of_it_out() {
    let mut bench = Bench::gate(&["unit"]);
    bench.conflicts = vec![('A', 'B')];
    bench.approve_bundle("AB", "");
    bench.finish();
    assert_eq!(bench.left, ["A MERGE_CONFLICT", "B FAILURE"]);
    assert_eq!(bench.landed, Vec::<String>::new());
}

/// D11: a bundle is enqueued as a whole or not at all.
#[test]
fn a_cycle_of_which_one_may_not_enter_stays_out() {
    let mut bench = gate();
    let mut some = bench.bundle("AB", "");
    some.pop();
    bench.deliver(crate::inbox::InboxMessageKind::Enqueue { candidates: some });
    assert_snapshot!(bench.run(), @"");
    bench.approve_bundle("AB", "N");
    assert_snapshot!(bench.run(), @"");
    assert!(
        bench.head.entries.is_empty() && bench.comments().is_empty(),
        "their outside dependency is missing"
    );
    bench.approve("N");
    bench.approve_bundle("AB", "N");
    bench.approve_bundle("AB", "N");
    bench.finish();
    assert_eq!(bench.landed, ["0N", "0NA", "0B"]);
}

/// Z6.1: a bundle counts as one in the window, and is never split by it.
#[test]
fn a_bundle_is_tested_as_a_whole_in_a_window_of_one() {
    let mut bench = gate();
    (bench.head.window, bench.pipeline.window.floor) = (1, 1);
    bench.approve_bundle("AB", "");
    bench.approve_bundle("CD", "");
    assert_snapshot!(bench.run(), @r"
    run A unit on 0A
    run B unit on 0B
    ");
    bench.finish();
    assert_eq!(bench.landed.len(), 4);
    assert_eq!(bench.head.window, 3, "each bundle opened it by one");
}

/// D15: a job that both members have runs once, and both wait for it.
#[test]
fn a_job_of_both_runs_once_for_the_bundle() {
    let shared = |name: &str| JobSummary { sharing: BuildSharing::InBundle, ..job(name) };
    let mut bench = gate();
    bench.own_jobs.insert('A', vec![shared("common"), job("one")]);
    bench.own_jobs.insert('B', vec![shared("common"), job("two")]);
    bench.approve_bundle("AB", "");
    assert_snapshot!(bench.run(), @r"
    run A one on 0A
    run A common on 0A
    run B two on 0B
    ");
    bench.end('A', "common", Retry);
    assert_snapshot!(bench.run(), @"run A common (attempt 2) on 0A");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0B"]);
    assert_eq!(bench.orders.len(), 4);
}

/// D15: a failure counts for both members; the build is stopped once.
#[test]
fn a_shared_job_that_fails_fails_both() {
    let shared = || vec![JobSummary { sharing: BuildSharing::InBundle, ..job("common") }];
    let mut bench = gate();
    bench.own_jobs.insert('A', shared());
    bench.own_jobs.insert('B', shared());
    bench.approve_bundle("AB", "");
    bench.run();
    bench.end('A', "common", Failure);
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.orders.len()),
        (&["A FAILURE".to_owned(), "B FAILURE".to_owned()][..], 1)
    );
}

/// D15: members of different projects share a build only if the job allows it and its dependencies
/// are shared.
#[test]
fn a_job_is_not_shared_across_projects_or_behind_other_builds() {
    let of_project = |name: &str| JobSummary { sharing: BuildSharing::InProject, ..job(name) };
    let mut bench = gate();
    for change in ['A', 'B', 'C'] {
        let behind = JobSummary { sharing: BuildSharing::InBundle, ..after("deploy", &["build"]) };
        bench.own_jobs.insert(change, vec![of_project("build"), behind]);
    }
    bench.approve_bundle("ABC", "");
    assert_snapshot!(bench.run(), @r"
    run A build on 0A
    run B build on 0B
    ");
    bench.end('A', "build", Success);
    bench.end('B', "build", Success);
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    run B deploy on 0B
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0B", "0AC"]);
}

/// D15: each member has a build of its own of `noop`, which keeps the jobs behind it not apart.
#[test]
fn a_job_behind_noop_runs_once_for_the_bundle() {
    let mut bench = gate();
    for change in ['A', 'B'] {
        let behind = JobSummary { sharing: BuildSharing::InBundle, ..after("deploy", &["noop"]) };
        bench.own_jobs.insert(change, vec![job("noop"), behind]);
    }
    bench.approve_bundle("AB", "");
    bench.run();
    bench.finish();
    assert_eq!((bench.orders.len(), bench.landed.as_slice()), (1, &["0A".into(), "0B".into()][..]));
}

/// D15, Z6.4: members of different branches of one project share no builds.
#[test]
fn a_job_is_shared_within_a_project_only_where_the_branch_is_the_same() {
    for (branch, builds) in [("main", 1), ("stable", 2)] {
        let mut bench = gate();
        for change in ['A', 'C'] {
            bench.own_jobs.insert(
                change,
                vec![JobSummary { sharing: BuildSharing::InProject, ..job("build") }],
            );
        }
        bench.retarget('C', branch);
        bench.approve_bundle("AC", "");
        bench.run();
        assert_eq!(bench.orders.len(), builds, "{branch}");
    }
}

/// Z6.5: if the forge refuses the first member, nothing was merged and all leave.
#[test]
fn a_bundle_whose_first_is_refused_leaves_without_anything_in_its_branches() {
    let mut bench = passed();
    bench.end_landing(refused("a review is missing"));
    assert_snapshot!(bench.run(), @r"
    A leaves: MERGE_FAILURE
    B leaves: MERGE_FAILURE
    run C unit on 0C
    ");
    assert!(
        bench.comments().iter().filter(|text| text.contains("a review is missing")).count() == 2
    );
}

/// Z6.5: if a branch moved before any member was merged, all are tested again.
#[test]
fn a_bundle_is_tested_again_when_a_branch_moved_before_the_first_landed() {
    let mut bench = passed();
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.land();
    assert_snapshot!(bench.run(), @r"
    run A unit on 0xA
    run B unit on 0B
    run C unit on 0xAC
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0xA", "0B", "0xAC"]);
}

/// Z6.4, Z6.5: if another party merged the first member, the bundle leaves unmerged; changes that
/// depend on that member stay.
#[test]
fn a_bundle_whose_first_member_someone_else_merged_leaves() {
    let mut bench = passed();
    bench.tips.insert("one".to_owned(), "0A".to_owned());
    bench.end_landing(LandingEnd::MergedElsewhere {
        tip: Commit { id: "abc".into(), tree: "0A".into() },
    });
    assert_snapshot!(bench.run(), @r"
    A leaves: DEQUEUED
    B leaves: DEQUEUED
    run C unit on 0AC
    ");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B DEQUEUED", "C SUCCESS"]);
    assert_eq!(bench.landed, ["0AC"], "nothing of it lands without the other");
}

/// Z6.5, Z6.4: something that was not tested in the place of a member halts the queue until an
/// operator resumes it.
#[test]
fn a_later_member_that_was_merged_as_something_else_halts_the_queue() {
    let mut bench = passed();
    bench.land();
    bench.run();
    bench.end_landing(LandingEnd::Mismatch {
        landed: Commit { id: "abc".into(), tree: "strange".into() },
    });
    assert_eq!(bench.run(), "");
    let halted = bench.head.halted.clone().unwrap_or_default();
    assert!(halted.contains("until an operator resumes it"), "{halted}");
    bench.dequeue('B');
    bench.update('A', Some("the change was merged"));
    bench.run();
    assert_eq!(bench.left, Vec::<String>::new(), "nothing leaves meanwhile");
    bench.resume();
    bench.run();
    assert_eq!(bench.left[..2], ["A SUCCESS", "B MERGE_FAILURE"]);
    assert_eq!((bench.head.halted.as_deref(), bench.head.slots().count()), (None, 1), "C goes on");
}

/// Z6.5: when a part of a bundle was merged and the rest fails, both authors get one report while
/// it is tried again; then the bundle leaves, and what is behind is tested on the branches as they
/// are.
#[test]
fn a_partly_merged_bundle_is_reported_at_once_and_does_not_halt_the_queue() {
    let moved = LandingEnd::BaseMoved { tip: Commit { id: "abc".into(), tree: "0x".into() } };
    for end in [refused("the branch is protected"), moved] {
        let mut bench = passed();
        bench.land();
        bench.run();
        let of_b = bench.head.slots().nth(1).unwrap().id.clone();
        let landing = bench.landings.get_mut(&of_b).unwrap();
        assert_eq!(landing.merged_members.len(), 1);
        landing.trouble = Some(crate::LandingTrouble {
            since: Timestamp(1),
            why: "the branch is protected".to_owned(),
            is_connection_removed: false,
        });
        let before = bench.comments().len();
        bench.run();
        bench.run();
        let comments = bench.comments()[before..].join("\n");
        assert_eq!(comments.matches("Only a part of this bundle was merged").count(), 2);
        assert!(comments.contains("the branch is protected; merging it is tried again until"));
        assert_eq!(bench.left, Vec::<String>::new());
        bench.end_landing(end);
        bench.run();
        assert_eq!(bench.left[..2], ["A SUCCESS", "B MERGE_FAILURE"]);
        assert_eq!(bench.head.halted, None);
        bench.finish();
        assert_eq!(bench.left[2..], ["C SUCCESS"], "C goes on");
    }
}

/// C01, Z6.5: a bundle with configuration is merged completely, although a layout is pending.
#[test]
fn a_bundle_that_edits_configuration_lands_whole_before_the_layout_is_live() {
    let mut bench = gate();
    bench.configuring.insert('A');
    bench.approve_bundle("AB", "");
    bench.run();
    bench.pass("AB");
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    want a layout
    ");
    bench.land();
    assert_snapshot!(bench.run(), @"land B as 0B");
    bench.land();
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"]);
}

/// R01: a layout that becomes live between two landings of a bundle does not affect it.
#[test]
fn a_new_layout_in_the_middle_of_a_landing_bundle_is_not_followed_by_it() {
    let mut bench = passed();
    bench.land();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.jobs[0].hash = "unit-2".to_owned();
    bench.run();
    bench.land();
    bench.run();
    assert_eq!(
        (bench.landed.as_slice(), bench.left.len()),
        (&["0A".to_owned(), "0B".to_owned()][..], 2)
    );
}

/// G14, Z6.5: a member that is dequeued takes the other members along.
#[test]
fn a_new_revision_of_one_takes_the_bundle_out_until_it_comes_again() {
    let mut bench = gate();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.revise('B');
    bench.update('B', None);
    assert_snapshot!(bench.run(), @r"
    stop A unit
    stop B unit
    A leaves: DEQUEUED
    B leaves: DEQUEUED
    ");
    bench.approve_bundle("AB", "");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0B"]);
}

/// Z6.5: a dependency that was removed ends the bundle.
#[test]
fn a_bundle_whose_cycle_was_cut_leaves_and_its_rest_may_be_enqueued_again() {
    let mut bench = gate();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.update_needing('A', "B");
    assert_snapshot!(bench.run(), @"");
    bench.update_needing('A', "");
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B DEQUEUED"]);
    bench.approve_needing('B', "A");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0B"]);
}

/// Z6.7: the largest bundle fits into one transaction, with many jobs in each member.
#[test]
fn a_bundle_of_ten_leaves_in_plans_that_fit() {
    let names: Vec<String> = (0..20).map(|number| format!("job-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::gate(&names);
    bench.approve_bundle("ABCDEFGHIJ", "");
    bench.run();
    assert_eq!(bench.under_way().len(), 200);
    bench.dequeue('E');
    bench.run();
    assert_eq!((bench.left.len(), bench.head.slots().count()), (10, 0));
    bench.approve_bundle("ABCDEFGHIJ", "");
    bench.finish();
    assert_eq!(bench.landed.last().map(String::as_str), Some("0ABCDEFGHIJ"));
    bench.approve_bundle("abcdefghijk", "");
    bench.run();
    assert!(bench.head.entries.is_empty(), "eleven are too many");
}

/// Returns a gate with reporters only for `dequeue`.
fn gate_with_dequeue_reports() -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.reporters.dequeue = std::mem::take(&mut bench.pipeline.reporters.failure);
    bench
}

/// Z6.5, D11: when queued changes form a new dependency cycle, each gets one dequeue report, as in
/// Zuul.
#[test]
fn queued_changes_with_a_new_cycle_are_dequeued_without_a_failure() {
    let mut bench = gate_with_dequeue_reports();
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve("C");
    bench.run();
    bench.update_needing('A', "B");
    assert_snapshot!(bench.run(), @r"
    stop A unit
    stop B unit
    stop C unit
    A leaves: DEQUEUED
    B leaves: DEQUEUED
    run C unit on 0C
    ");
    let comments = bench.comments();
    let said = |text: &&String| {
        text.contains(
            "org/one#65, org/one#66 form a dependency cycle now and were enqueued separately",
        )
    };
    assert_eq!((comments.len(), comments.iter().filter(said).count()), (2, 2), "{comments:?}");
    // The update of the other change comes later, or again.
    bench.update_needing('B', "A");
    bench.update_needing('A', "B");
    assert_snapshot!(bench.run(), @"");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B DEQUEUED", "C SUCCESS"]);
}

/// D11: the reason names at most five of the changes of a cycle, and says whether there are more.
#[test]
fn the_report_of_a_new_cycle_names_five_changes_and_says_whether_there_are_more() {
    for (changes, more) in [("ABCDE", ""), ("ABCDEF", " and others")] {
        let mut bench = gate_with_dequeue_reports();
        bench.approve("A");
        for (change, dependency) in changes.chars().skip(1).zip(changes.chars()) {
            bench.approve_needing(change, &dependency.to_string());
        }
        bench.run();
        bench.update_needing('A', &changes[changes.len() - 1..]);
        bench.run();
        let comments = bench.comments();
        let why = format!(
            "org/one#65, org/one#66, org/one#67, org/one#68, org/one#69{more} form a dependency cycle"
        );
        let with_reason = comments.iter().filter(|text| text.contains(&why)).count();
        assert_eq!((comments.len(), with_reason), (changes.len(), changes.len()), "{comments:?}");
    }
}

/// D04, D11: if the queue forbids cycles, an update refuses one change; the other one is dequeued
/// too.
#[test]
fn a_cycle_that_is_forbidden_takes_out_both_as_dequeued() {
    let mut bench = gate_with_dequeue_reports();
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    let why = "Dependency cycle detected and project org/one doesn't allow circular dependencies";
    bench.deliver(crate::inbox::InboxMessageKind::ChangeUpdated {
        change: bench.change('A'),
        gone: Some(why.to_owned()),
        merged: false,
        needs: Some(vec![bench.change('B')]),
        as_of: sluice_model::Timestamp(0),
    });
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B DEQUEUED"]);
    assert!(bench.comments().len() == 2 && bench.comments().iter().all(|text| text.contains(why)));
}

/// Z6.5: a change that depends on a bundle and becomes its dependency is dequeued with it; so are
/// its dependents.
#[test]
fn a_bundle_with_a_new_cycle_leaves_and_is_enqueued_again_as_one() {
    let mut bench = gate();
    bench.approve_bundle("AB", "");
    bench.approve_needing('C', "AB");
    bench.approve_needing('D', "C");
    bench.run();
    bench.update_needing('A', "BC");
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B DEQUEUED", "C DEQUEUED", "D FAILURE"]);
    bench.approve_bundle("ABC", "");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0B", "0AC"]);
}

/// Z6.5: a bundle enqueued by one message needs no dequeueing first.
#[test]
fn changes_with_a_new_cycle_that_are_enqueued_as_one_are_a_bundle() {
    let mut bench = gate_with_dequeue_reports();
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.update_needing('A', "B");
    bench.approve_bundle("AB", "");
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.comments().len()),
        (&["A DEQUEUED".into(), "B DEQUEUED".into()][..], 0)
    );
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
}

/// Z6.5: so it is if one of them is enqueued again with other dependencies.
#[test]
fn a_change_marked_for_dequeueing_and_approved_at_once_is_enqueued_again() {
    let mut bench = gate_with_dequeue_reports();
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.update_needing('A', "B");
    bench.approve("A");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B DEQUEUED", "A SUCCESS"]);
}

/// Z6.5, Z6.7: a new dependency cycle with more builds than fit into a transaction leaves in
/// several plans, without a failure.
#[test]
fn a_long_ring_of_changes_leaves_in_plans_that_fit_and_none_of_it_failed() {
    let names: Vec<String> = (0..6).map(|number| format!("job-{number}")).collect();
    let mut bench = Bench::gate(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let ring: Vec<char> = ('A'..='R').collect();
    bench.approve("A");
    for pair in ring.windows(2) {
        bench.approve_needing(pair[1], &pair[0].to_string());
    }
    bench.run();
    assert_eq!(bench.under_way().len(), 6 * ring.len());
    bench.update_needing('A', "R");
    bench.run();
    let all: Vec<String> = ring.iter().map(|change| format!("{change} DEQUEUED")).collect();
    assert_eq!(bench.left, all);
    assert!(bench.head.entries.is_empty() && bench.plans > 4, "it took {} plans", bench.plans);
}

/// Z6.5, D09: a change that depends on one that left is an orphan, not part of a cycle.
#[test]
fn a_dependent_of_a_dequeued_change_is_an_orphan() {
    let mut bench = gate();
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.dequeue('A');
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B FAILURE"]);
}
