//! Which changes are enqueued, and which are dequeued before their end.

use super::bench::{Bench, job};
use crate::inbox::{Candidate, InboxMessageKind};
use crate::report::ReportAction;
use insta::assert_snapshot;
use sluice_config::pipeline::Manager;
use sluice_model::Timestamp;
use sluice_model::build::BuildResult::Failure;
use sluice_model::job::JobSummary;

/// D01
#[test]
fn a_change_is_enqueued_only_behind_its_dependencies() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve_needing('A', "B");
    assert_snapshot!(bench.run(), @"");
    assert!(bench.head.entries.is_empty());
    bench.approve("B");
    bench.approve_needing('A', "B");
    assert_snapshot!(bench.run(), @r"
    run B unit on 0B
    run A unit on 0BA
    ");
}

/// Z6.5, D01: a change that gets a new dependency while queued waits for it.
#[test]
fn a_change_that_depends_on_something_new_leaves_and_comes_back_behind_it() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.update_needing('A', "B");
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"], "B is nowhere");
    bench.approve("BA");
    bench.run();
    bench.update_needing('A', "B");
    assert_snapshot!(bench.run(), @r"
    stop A unit
    A leaves: DEQUEUED
    run A unit on 0BA
    ");
    bench.end('B', "unit", Failure);
    bench.finish();
    assert_eq!(
        bench.left,
        ["A DEQUEUED", "A DEQUEUED", "B FAILURE", "A FAILURE"],
        "it depends on B now"
    );
}

/// Z6.5: an update without changes keeps all results.
#[test]
fn a_change_whose_needs_are_the_same_or_have_landed_stays() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("B");
    bench.approve_needing('A', "B");
    bench.run();
    bench.update_needing('A', "B");
    assert_snapshot!(bench.run(), @"");
    bench.pass("B");
    bench.run();
    bench.land();
    bench.run();
    bench.update_needing('A', "");
    bench.update_needing('A', "B");
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.left, ["B SUCCESS"]);
}

/// Z6.5: the forge shows a change as merged before its queue knows.
#[test]
fn a_change_stays_whose_need_is_being_put_into_its_branch() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("B");
    bench.approve_needing('A', "B");
    bench.run();
    bench.pass("B");
    bench.run();
    bench.update_needing('A', "");
    assert_snapshot!(bench.run(), @"");
    bench.finish();
    assert_eq!(bench.left, ["B SUCCESS", "A SUCCESS"]);
}

/// Z6.3: messages are ordered by the clocks of the functions that wrote them; for one change the
/// forge's clock decides.
#[test]
fn messages_about_a_change_are_ordered_by_the_clock_of_its_forge() {
    let mut bench = Bench::gate(&["unit"]);
    let gone = |bench: &Bench, at: u64| InboxMessageKind::ChangeUpdated {
        change: bench.change('A'),
        gone: Some("it is not approved".to_owned()),
        merged: false,
        needs: None,
        as_of: Timestamp(at),
    };
    let enqueue = |bench: &Bench, at: u64| InboxMessageKind::Enqueue {
        candidates: vec![Candidate { as_of: Timestamp(at), ..bench.candidate('A', "") }],
    };
    for (first, second) in [
        (gone(&bench, 2_001), enqueue(&bench, 2_000)),
        (enqueue(&bench, 2_000), gone(&bench, 2_001)),
    ] {
        bench.deliver(first);
        bench.deliver(second);
        bench.run();
        assert!(bench.head.entries.is_empty(), "the newer message dequeued it");
    }
    for (first, second) in [
        (gone(&bench, 1_000), enqueue(&bench, 3_000)),
        (enqueue(&bench, 3_001), gone(&bench, 2_500)),
    ] {
        bench.deliver(first);
        bench.deliver(second);
        bench.run();
        assert_eq!(bench.head.slots().count(), 1, "what let it in is");
    }
    let again = enqueue(&bench, 5_000);
    bench.deliver(again);
    bench.run();
    let late = gone(&bench, 4_000);
    bench.deliver(late);
    bench.run();
    assert_eq!(bench.head.slots().count(), 1, "it was approved again since");
    let last = gone(&bench, 5_001);
    bench.deliver(last);
    bench.run();
    assert!(bench.head.entries.is_empty());
}

/// D01: an outdated update does not refuse a change whose dependency was just merged.
#[test]
fn a_change_is_enqueued_after_its_dependency_was_merged_here() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("B");
    bench.finish();
    bench.approve_needing('A', "B");
    assert_snapshot!(bench.run(), @"run A unit on 0BA");
}

/// D08: a merged dependency is remembered, however many changes are merged meanwhile.
#[test]
fn a_merged_dependency_is_remembered_while_a_queued_change_depends_on_it() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    let others: String = ('b'..='z').chain('F'..='Z').collect();
    bench.approve(&others);
    bench.approve_needing('B', "A");
    bench.finish();
    assert_eq!(bench.left.last().map(String::as_str), Some("B SUCCESS"));
    assert_eq!(bench.landed.len(), others.len() + 2);
}

/// C03, G14
#[test]
fn a_new_patchset_replaces_the_older_one() {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.reporters.dequeue = bench.pipeline.reporters.failure.clone();
    bench.approve("AB");
    bench.run();
    bench.revise('A');
    bench.update('A', None);
    assert_snapshot!(bench.run(), @r"
    stop A unit
    stop B unit
    A leaves: DEQUEUED
    run B unit on 0B
    ");
    bench.approve("A");
    assert_snapshot!(bench.run(), @"run A unit on 0BA");
    let comments = bench.comments();
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(
        comments[0].starts_with("Build canceled.\n\na new revision was uploaded\n"),
        "{comments:?}"
    );
}

/// R06: a change whose start was not reported gets no dequeue report.
#[test]
fn a_change_dequeued_before_its_start_report_leaves_silently() {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.reporters.dequeue = bench.pipeline.reporters.failure.clone();
    bench.head.window = 1;
    bench.approve("AB");
    bench.run();
    bench.dequeue('B');
    bench.run();
    assert_eq!((bench.left.clone(), bench.comments()), (vec!["B DEQUEUED".to_owned()], Vec::new()));
    bench.dequeue('A');
    bench.run();
    assert_eq!(bench.comments().len(), 1);
}

/// R06, G02: the start is reported once, when the jobs are known, even if a change ahead holds them
/// back. Dequeued after that, the change gets a dequeue report.
#[test]
fn the_start_is_reported_before_the_first_job_is_ordered() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![JobSummary { hold_following_changes: true, ..job("merge") }];
    bench.pipeline.reporters.start = bench.pipeline.reporters.failure.clone();
    bench.pipeline.reporters.dequeue = bench.pipeline.reporters.failure.clone();
    bench.own_jobs.insert('C', Vec::new());
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @"run A merge on 0A");
    let begun = bench.comments();
    assert_eq!(
        begun.iter().filter(|text| text.starts_with("Starting gate jobs.")).count(),
        2,
        "{begun:?}"
    );
    assert_eq!(begun.len(), 2, "C has no jobs: {begun:?}");
    bench.dequeue('B');
    bench.run();
    let comments = bench.comments();
    assert_eq!(bench.left, ["B DEQUEUED"]);
    assert_eq!(comments.len(), 3, "{comments:?}");
    assert!(comments[2].starts_with("Build canceled.\n\nan operator dequeued it"), "{comments:?}");
}

/// Returns the queued revisions, in queue order.
fn heads(bench: &Bench) -> Vec<&str> {
    bench.head.slots().map(|slot| slot.change.head.as_str()).collect()
}

/// Returns a queue that tests two revisions of one change.
fn two_revisions() -> Bench {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    bench.pipeline.dequeue_on_new_patchset = false;
    bench.approve("A");
    bench.run();
    bench.revise('A');
    bench.update('A', None);
    bench.approve("A");
    bench.run();
    bench
}

/// Z6.4: with `dequeue-on-new-patchset: false` the new revision is tested next to the old one.
#[test]
fn an_older_patchset_goes_on_beside_the_new_one_where_the_pipeline_says_so() {
    let mut bench = two_revisions();
    assert_eq!((heads(&bench), bench.under_way().len()), (vec!["A1", "A2"], 2));
    bench.approve("A");
    bench.run();
    assert_eq!(heads(&bench), ["A1", "A2"], "each is queued once");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "A SUCCESS"]);
}

/// Z6.4, R06: closing or dequeueing a change affects all its revisions.
#[test]
fn each_revision_of_a_change_leaves_with_it() {
    let mut bench = two_revisions();
    bench.update('A', Some("the change was closed"));
    bench.run();
    assert_eq!((heads(&bench), bench.under_way().len()), (Vec::new(), 0));
    let mut bench = two_revisions();
    bench.dequeue('A');
    bench.run();
    assert_eq!((heads(&bench), bench.under_way().len()), (Vec::new(), 0));
    let mut bench = two_revisions();
    bench.retarget('A', "release");
    bench.approve("A");
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "A DEQUEUED"]);
    assert_eq!(bench.head.entries[0].first().change.branch.as_str(), "release");
}

/// Z6.4: a pipeline that merges never holds two revisions of one change.
#[test]
fn a_new_patchset_replaces_the_older_one_in_every_merging_pipeline() {
    for manager in [Manager::Dependent, Manager::Independent] {
        let mut bench = Bench::new(manager, &["unit"]);
        bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
        bench.pipeline.dequeue_on_new_patchset = false;
        bench.approve("A");
        bench.run();
        bench.revise('A');
        bench.approve("A");
        bench.run();
        assert_eq!(
            (heads(&bench), bench.left.clone()),
            (vec!["A2"], vec!["A DEQUEUED".to_owned()])
        );
    }
}

/// Z6.5, D10: in check a change is retested if it is enqueued again with a new dependency, or with
/// a newer revision of one.
#[test]
fn a_separately_tested_change_is_retested_with_a_new_dependency() {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    bench.approve_needing('A', "B");
    assert_snapshot!(bench.run(), @"run A unit on 0BA");
    bench.approve_needing('A', "B");
    assert_snapshot!(bench.run(), @"");
    bench.revise('B');
    bench.approve_needing('A', "B");
    assert_snapshot!(bench.run(), @r"
    stop A unit
    A leaves: DEQUEUED
    run A unit on 0BA
    ");
    bench.approve_needing('A', "BC");
    assert_snapshot!(bench.run(), @r"
    stop A unit
    A leaves: DEQUEUED
    run A unit on 0BCA
    ");
    bench.approve_needing('A', "B");
    bench.approve_needing('A', "");
    assert_snapshot!(bench.run(), @"");
    assert_eq!(
        bench.comments(),
        Vec::<String>::new(),
        "it goes on, so that nothing is said of what left"
    );
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "A DEQUEUED", "A SUCCESS"]);
}

/// Z6.3, Z6.5: an outdated dependency does not cause a retest, whatever the time of the change
/// itself.
#[test]
fn a_change_offered_with_an_outdated_dependency_stays() {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    let on = |bench: &Bench, own: u64, needed: u64| {
        let needs = vec![Candidate { as_of: Timestamp(needed), ..bench.candidate('B', "") }];
        let one = Candidate { needs, as_of: Timestamp(own), ..bench.candidate('A', "") };
        InboxMessageKind::Enqueue { candidates: vec![one] }
    };
    let older = on(&bench, 5_000, 1_000);
    bench.revise('B');
    let newer = on(&bench, 4_000, 2_000);
    bench.deliver(older.clone());
    bench.run();
    bench.deliver(newer);
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"]);
    bench.deliver(older);
    assert_snapshot!(bench.run(), @"");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "A SUCCESS"]);
}

/// Z6.1, C2: a pipeline that merges does not retest for other dependencies.
#[test]
fn a_change_that_lands_by_itself_stays_though_it_comes_again_on_more() {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    bench.pipeline.reporters.success = Bench::gate(&[]).pipeline.reporters.success;
    bench.approve_needing('A', "B");
    bench.run();
    bench.revise('B');
    bench.approve_needing('A', "BC");
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.left, Vec::<String>::new());
}

/// Z6.4: another target branch counts as another revision, in check as in the gate.
#[test]
fn a_change_that_is_for_another_branch_now_leaves_whatever_the_pipeline_says_of_new_patchsets() {
    for manager in [Manager::Dependent, Manager::Independent] {
        let mut bench = Bench::new(manager, &["unit"]);
        bench.pipeline.dequeue_on_new_patchset = false;
        bench.approve("A");
        bench.run();
        bench.retarget('A', "release");
        bench.update('A', None);
        bench.run();
        assert_eq!(bench.left, ["A DEQUEUED"]);
        bench.approve("A");
        bench.run();
        assert_eq!(bench.head.entries[0].first().change.branch.as_str(), "release");
    }
}

/// Z6.4: so it does if only a new approval shows the new branch.
#[test]
fn a_change_enqueued_for_another_branch_replaces_itself() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.retarget('A', "release");
    bench.approve("A");
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED"]);
    assert_eq!(bench.head.slots().count(), 1);
    assert_eq!(bench.head.entries[0].first().change.branch.as_str(), "release");
}

/// G14: a change that depends on the older patch set is dequeued with it.
#[test]
fn dependents_of_a_replaced_patchset_are_dequeued() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    bench.revise('A');
    bench.update('A', None);
    bench.run();
    assert_eq!(bench.left, ["A DEQUEUED", "B FAILURE"]);
}

/// G12, G13, R06
#[test]
fn a_change_that_may_no_longer_be_here_leaves_and_its_builds_stop() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("ABC");
    bench.run();
    bench.update(
        'A',
        Some("This change is unable to merge due to a missing merge requirement: a review."),
    );
    bench.update('B', Some("the change was closed"));
    bench.dequeue('C');
    bench.run();
    assert_eq!(bench.left, ["C DEQUEUED", "A DEQUEUED", "B DEQUEUED"]);
    assert!(bench.under_way().is_empty() && bench.head.entries.is_empty());
}

/// Z6.5, D08: a change merged by hand counts as merged: its dependents stay and are tested on the
/// branch's current state.
#[test]
fn a_change_stays_if_its_dependency_was_merged_by_someone_else() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.run();
    let previous = bench.tips.insert("one".to_owned(), "0A".to_owned());
    assert_eq!(previous, None);
    bench.merge_by_other('A');
    assert_snapshot!(bench.run(), @r"
    stop A unit
    stop B unit
    A leaves: DEQUEUED
    run B unit on 0AB
    ");
    bench.finish();
    assert_eq!(bench.left, ["A DEQUEUED", "B SUCCESS"]);
    assert_eq!(bench.landed, ["0AB"]);
    assert!(bench.comments().iter().all(|comment| !comment.contains("failed to merge")));
}

/// Z6.5: so do dependents that are enqueued later by an outdated message.
#[test]
fn a_change_is_enqueued_after_its_dependency_was_merged_by_someone_else() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.merge_by_other('A');
    bench.tips.insert("one".to_owned(), "0A".to_owned());
    bench.approve_needing('B', "A");
    bench.finish();
    assert_eq!(bench.landed, ["0AB"]);
}

/// Z6.1: one revision is queued once.
#[test]
fn a_repeated_approval_enqueues_once() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("AA");
    bench.run();
    bench.approve("A");
    bench.run();
    assert_eq!(bench.head.slots().count(), 1);
    assert_eq!(bench.orders.len(), 1);
}

/// D04: a change that cannot be tested gets a report with the reason.
#[test]
fn a_candidate_that_was_refused_is_reported_and_not_enqueued() {
    let mut bench = Bench::gate(&["unit"]);
    let mut candidate = bench.candidate('A', "");
    candidate.refused = Some("it depends on org/one#66, which depends on it again".to_owned());
    bench.deliver(InboxMessageKind::Enqueue { candidates: vec![candidate] });
    bench.run();
    assert!(bench.head.entries.is_empty());
    assert_snapshot!(bench.comments().join("\n"), @r"
    Build failed.

    it depends on org/one#66, which depends on it again
    ");
}

/// C05
#[test]
fn a_change_with_wrong_configuration_reports_its_errors() {
    let mut bench = Bench::gate(&["unit"]);
    bench.misconfigured.insert('A');
    bench.approve("AB");
    assert_snapshot!(bench.run(), @r"
    A leaves: CONFIG_ERROR
    run B unit on 0B
    ");
    assert!(bench.comments()[0].contains("the job nosuch is not defined"));
}

/// C02: an error in the change's own files is reported once, as a comment on its line.
#[test]
fn an_error_is_reported_on_its_line() {
    let mut bench = Bench::gate(&["unit"]);
    bench.misconfigured.insert('A');
    bench.approve("A");
    bench.run();
    let actions: Vec<&ReportAction> =
        bench.reports.iter().flat_map(|report| &report.actions).collect();
    let lines: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            ReportAction::Lines { marker, notes, .. } => Some((marker, notes)),
            _ => None,
        })
        .collect();
    let [(marker, notes)] = lines.as_slice() else { panic!("{actions:?}") };
    assert!(marker.ends_with("/lines"), "{marker}");
    assert_eq!((notes[0].path.as_str(), notes[0].line), ("zuul.yaml", 4));
    assert_eq!(notes[0].text, "the job nosuch is not defined");
    assert_eq!(
        bench.comments().len(),
        1,
        "the comment says it, too, for forges that refuse the line"
    );
}

/// Z6.1
#[test]
fn a_change_without_jobs_leaves_and_does_not_land() {
    let mut bench = Bench::gate(&[]);
    bench.approve("A");
    assert_snapshot!(bench.run(), @"A leaves: NO_JOBS");
    assert!(bench.landings.is_empty());
}

/// D09: an orphan is dequeued even if a later plan finds it.
#[test]
fn orphans_are_found_although_they_did_not_fit_into_the_plan_that_lost_their_need() {
    let mut bench = Bench::gate(&["one", "two", "three"]);
    bench.head.window = 0;
    bench.pipeline.window.initial = 0;
    bench.approve("A");
    for orphan in 'a'..='y' {
        bench.approve_needing(orphan, "A");
    }
    bench.run();
    for job in ["one", "two", "three"] {
        bench.end('A', job, Failure);
    }
    bench.finish();
    assert_eq!(bench.left.len(), 26);
    assert_eq!(bench.landed, Vec::<String>::new());
}
