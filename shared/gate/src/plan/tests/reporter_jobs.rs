//! Reporter jobs: when they run, what waits for them, and what they affect.

use super::bench::{Bench, after, job};
use super::semaphores::holding;
use crate::item::JobStatus;
use crate::plan::{LayoutNumbers, ObservedBuild};
use crate::queue::SlotStatus;
use crate::report::ReportState;
use insta::assert_snapshot;
use serde_json::Map;
use sluice_config::pipeline::Manager;
use sluice_model::build::BuildResult::{Failure, Success};
use sluice_model::job::JobSummary;

/// Returns a reporter job without nodes.
fn reporter(name: &str) -> JobSummary {
    JobSummary { reporter: true, labels: Vec::new(), ..job(name) }
}

fn bench(manager: Manager) -> Bench {
    let mut bench = Bench::new(manager, &["unit"]);
    bench.jobs.push(reporter("publish"));
    bench
}

/// Returns a gate whose first change was merged and has a reporter job; the others have passed.
fn landed(changes: &str) -> Bench {
    let mut bench = bench(Manager::Dependent);
    bench.approve(changes);
    bench.run();
    bench.pass(changes);
    bench.run();
    bench.land();
    assert_eq!(bench.run(), "A stays: SUCCESS");
    bench
}

/// Returns the same gate, with these jobs for the second change.
fn landed_before(jobs: Vec<JobSummary>) -> Bench {
    let mut bench = bench(Manager::Dependent);
    bench.own_jobs.insert('B', jobs);
    bench.approve("AB");
    bench.run();
    bench.pass("A");
    bench.run();
    bench.land();
    bench.run();
    bench
}

/// Returns the same gate with its report delivered.
fn publishing(changes: &str) -> Bench {
    let mut bench = landed(changes);
    bench.deliver_reports();
    assert_eq!(bench.run(), "run A publish on 0A");
    bench
}

fn published(bench: &Bench) -> usize {
    bench.orders.iter().filter(|order| order.job.as_str() == "publish").count()
}

/// Z4.3: it runs after the change is merged and reported, and gets the merge commit; the queue
/// waits for it.
#[test]
fn a_reporter_runs_after_the_landing_and_its_report_and_the_queue_waits_for_it() {
    let mut bench = publishing("AB");
    assert_eq!(bench.orders.last().unwrap().merge_commit, Some("commit-0A".into()));
    assert!(bench.orders[..2].iter().all(|order| order.merge_commit.is_none()));
    bench.approve("C");
    assert_snapshot!(bench.run(), @"");
    assert_eq!(
        (bench.head.slots().count(), bench.landings.len()),
        (3, 1),
        "what arrives enters, and waits"
    );
    bench.end('A', "publish", Success);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    land B as 0AB
    run C unit on 0ABC
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB", "0ABC"]);
    assert_eq!((bench.left.len(), published(&bench)), (3, 3));
    assert_eq!(bench.comments().len(), 3, "each is reported once");
    assert!(
        !bench.comments().join("").contains("publish"),
        "what runs after the report is not in it"
    );
}

/// Z4.3: builds under way behind it run to their end, and nothing new is started.
#[test]
fn nothing_is_ordered_behind_a_reporter() {
    let mut bench = landed_before(vec![job("build"), after("test", &["build"])]);
    bench.end('B', "build", Success);
    assert_snapshot!(bench.run(), @"");
    bench.deliver_reports();
    bench.run();
    bench.end('A', "publish", Success);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    run B test on 0AB
    ");
}

/// Z4.3, Z7.6: a paused build holds nodes that the reporter job may need, so its dependents still
/// run.
#[test]
fn dependents_of_a_paused_build_behind_a_reporter_job_run() {
    let mut bench = landed_before(vec![job("registry"), after("test", &["registry"])]);
    bench.show('B', "registry", ObservedBuild::Paused { started_at: None, data: Map::new() });
    assert_snapshot!(bench.run(), @"run B test on 0AB");
    bench.end('B', "test", Success);
    assert_snapshot!(bench.run(), @"resume B registry");
}

/// Z4.3, R01: the same under a new layout; otherwise the resources of the paused build would never
/// be released.
#[test]
fn under_a_new_layout_dependents_of_a_paused_build_behind_a_reporter_job_run() {
    let mut bench = landed_before(vec![job("registry"), after("test", &["registry"])]);
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    bench.show('B', "registry", ObservedBuild::Paused { started_at: None, data: Map::new() });
    assert_snapshot!(bench.run(), @"run B test on 0AB");
}

/// Z4.3: reporter jobs do not decide about a change: one without other jobs is not tested and not
/// merged.
#[test]
fn a_change_with_nothing_but_a_reporter_has_no_jobs() {
    let mut bench = bench(Manager::Dependent);
    bench.own_jobs.insert('A', vec![reporter("publish")]);
    bench.approve("A");
    bench.run();
    assert_eq!((bench.left.as_slice(), published(&bench)), (&["A NO_JOBS".to_owned()][..], 0));
    assert!(bench.landed.is_empty());
}

/// Z4.3: a paused job does not wait for its dependent reporter jobs, which wait for the landing.
#[test]
fn a_paused_job_goes_on_before_the_reporter_behind_it_has_run() {
    let mut bench = Bench::gate(&["registry"]);
    let behind = after("publish", &["registry"]);
    bench.jobs.push(JobSummary { reporter: true, ..behind });
    bench.approve("A");
    bench.run();
    bench.show('A', "registry", ObservedBuild::Paused { started_at: None, data: Map::new() });
    assert_snapshot!(bench.run(), @"resume A registry");
    bench.end('A', "registry", Success);
    bench.finish();
    assert_eq!((bench.left.as_slice(), published(&bench)), (&["A SUCCESS".to_owned()][..], 1));
}

/// Z4.3: if it fails, everything behind is tested again on the current repositories.
#[test]
fn a_failed_reporter_job_resets_the_entries_behind_only() {
    let mut bench = bench(Manager::Dependent);
    bench.approve("ABC");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.land();
    bench.run();
    bench.deliver_reports();
    bench.run();
    bench.end('A', "publish", Failure);
    assert_snapshot!(bench.run(), @r"
    stop C unit
    A leaves: SUCCESS
    run B unit on 0AB
    run C unit on 0ABC
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB", "0ABC"]);
    assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS", "C SUCCESS"]);
}

/// Z4.3: a non-voting one that fails resets nothing.
#[test]
fn a_reporter_that_does_not_vote_and_fails_resets_nothing() {
    let mut bench = Bench::gate(&["unit"]);
    bench.jobs.push(JobSummary { voting: false, ..reporter("publish") });
    bench.approve("AB");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.land();
    bench.run();
    bench.deliver_reports();
    bench.run();
    bench.end('A', "publish", Failure);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    land B as 0AB
    ");
}

/// Z4.3
#[test]
fn no_reporter_job_runs_for_a_failed_change() {
    let mut bench = bench(Manager::Dependent);
    bench.approve("A");
    bench.run();
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @"A leaves: FAILURE");
    assert_eq!(published(&bench), 0);
}

/// Z4.3: it is skipped if the report failed or was not delivered for long; the queue goes on.
#[test]
fn a_reporter_is_not_run_where_the_report_could_not_be_made() {
    for is_refused in [true, false] {
        let mut bench = landed("AB");
        let item = bench.head.entries[0].first().id.clone();
        if is_refused {
            let refused = ReportState::Refused {
                why: "the conversation is locked".to_owned(),
                at: bench.now,
            };
            bench.report_states.insert(item, refused);
        } else {
            bench.report_states.insert(item, ReportState::Pending);
            bench.now = bench.now.plus_seconds(599);
            assert_eq!(bench.run(), "");
            bench.now = bench.now.plus_seconds(1);
        }
        assert_eq!(bench.run(), "A leaves: SUCCESS\nland B as 0AB");
        assert_eq!(published(&bench), 0);
        let why = if is_refused {
            "the conversation is locked"
        } else {
            "could not be delivered for 600 seconds"
        };
        assert!(
            bench.removed_reasons.iter().any(|reason| reason.contains(why)),
            "{:?}",
            bench.removed_reasons
        );
    }
}

/// Z4.3: a reporter job that was skipped before keeps its reason when the report fails.
#[test]
fn a_report_that_fails_skips_only_reporter_jobs_that_are_left() {
    let mut bench = Bench::gate(&["unit"]);
    bench.jobs.push(JobSummary { voting: false, ..job("optional") });
    bench.jobs.push(JobSummary { reporter: true, ..after("publish", &["optional"]) });
    bench.jobs.push(reporter("announce"));
    bench.approve("A");
    bench.run();
    bench.end('A', "optional", Failure);
    bench.end('A', "unit", Success);
    bench.run();
    bench.land();
    bench.run();
    let item = bench.head.entries[0].first().id.clone();
    let refused = ReportState::Refused { why: "it is locked".to_owned(), at: bench.now };
    bench.report_states.insert(item, refused);
    assert_eq!(bench.run(), "A leaves: SUCCESS");
    let details: Vec<String> = bench.removed_items[0]
        .jobs
        .iter()
        .filter_map(|job| match &job.status {
            JobStatus::Ended { detail, .. } => detail.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(
        details,
        [
            "Skipped due to failed job optional",
            "Skipped because the report was rejected: it is locked"
        ]
    );
}

/// Z7.6: a lost build of it is retried like any other.
#[test]
fn a_reporter_whose_executor_dies_is_attempted_again() {
    let mut bench = publishing("A");
    bench.show('A', "publish", ObservedBuild::Lost { why: "its executor is gone".to_owned() });
    assert_snapshot!(bench.run(), @r"
    stop A publish
    run A publish (attempt 2) on 0A
    ");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS"]);
}

/// R06, Z4.3: an operator ends its reporter jobs; the change stays merged and reported.
#[test]
fn an_operator_ends_reporter_jobs_and_the_change_stays_merged() {
    let mut bench = publishing("AB");
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @r"
    stop A publish
    A leaves: SUCCESS
    land B as 0AB
    ");
    assert_eq!(bench.comments().len(), 1);
    assert!(bench.removed_reasons.iter().any(|reason| reason.contains("jo dequeued it")));
}

/// Z4.3: updates that a change was merged, or has a new revision, do not end its reporter jobs.
#[test]
fn updates_of_a_merged_change_do_not_end_its_reporter_jobs() {
    let mut bench = publishing("A");
    bench.merge_by_other('A');
    bench.revise('A');
    bench.update('A', None);
    bench.approve("A");
    assert_snapshot!(bench.run(), @"");
    assert_eq!(
        (bench.head.entries[0].first().status, bench.inbox.len()),
        (SlotStatus::Reporting, 0)
    );
    bench.finish();
    assert_eq!((bench.left.as_slice(), bench.landed.len()), (&["A SUCCESS".to_owned()][..], 1));
}

/// Z4.3, G14: a revision that the push did not contain is enqueued after the reporter jobs of the
/// previous one.
#[test]
fn a_revision_that_no_push_brought_waits_for_the_last_jobs_of_the_one_before() {
    let mut bench = bench(Manager::Dependent);
    bench.keeps_tested_commits = true;
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    bench.land();
    bench.run();
    bench.deliver_reports();
    assert_snapshot!(bench.run(), @"run A publish on 0A");
    bench.revise('A');
    bench.update('A', None);
    bench.approve("AC");
    assert_snapshot!(bench.run(), @"");
    assert_eq!((bench.head.slots().count(), bench.inbox.len()), (1, 2), "nothing passes it by");
    bench.end('A', "publish", Success);
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS"]);
    let here: Vec<_> = bench.head.slots().map(|slot| slot.change.clone()).collect();
    assert_eq!((here, bench.inbox.len()), (vec![bench.change('A'), bench.change('C')], 0));
}

/// Z4.3: in a pipeline that does not merge it runs after the report; a newer revision replaces its
/// change.
#[test]
fn in_an_independent_pipeline_a_reporter_runs_after_the_report() {
    let mut bench = bench(Manager::Independent);
    bench.approve("A");
    bench.run();
    bench.pass("A");
    assert_snapshot!(bench.run(), @"A stays: SUCCESS");
    bench.deliver_reports();
    assert_snapshot!(bench.run(), @"run A publish on 0A");
    assert_eq!(bench.orders.last().unwrap().merge_commit, None);
    bench.update('A', Some("the change was closed"));
    assert_snapshot!(bench.run(), @"");
    bench.revise('A');
    bench.update('A', None);
    assert_snapshot!(bench.run(), @r"
    stop A publish
    A leaves: SUCCESS
    ");
}

/// Z4.3, Z6.4: if older revisions stay queued, the reporter jobs of one do not affect the others.
#[test]
fn the_last_jobs_of_an_older_revision_keep_the_newer_one_from_nothing() {
    for result in [Success, Failure] {
        let mut bench = bench(Manager::Independent);
        bench.pipeline.dequeue_on_new_patchset = false;
        bench.approve("A");
        bench.run();
        bench.pass("A");
        bench.run();
        bench.deliver_reports();
        assert_eq!(bench.run(), "run A publish on 0A");
        bench.revise('A');
        bench.update('A', None);
        bench.approve("A");
        assert_eq!(bench.run(), "run A unit on 0A", "the newer revision is tested meanwhile");
        bench.end('A', "unit", Success);
        assert_eq!(bench.run(), "A stays: SUCCESS");
        bench.deliver_reports();
        assert_eq!((bench.run().as_str(), published(&bench)), ("run A publish on 0A", 2));
        let statuses: Vec<SlotStatus> = bench.head.slots().map(|slot| slot.status).collect();
        assert_eq!(statuses, [SlotStatus::Reporting; 2]);
        // The first of two builds under way is the older revision's.
        bench.end('A', "publish", result);
        assert_eq!(bench.run(), "A leaves: SUCCESS");
        let heads: Vec<&str> = bench.head.slots().map(|slot| slot.change.head.as_str()).collect();
        assert_eq!(heads, ["A2"]);
        assert_eq!(bench.orders.iter().filter(|order| order.job.as_str() == "unit").count(), 2);
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS", "A SUCCESS"]);
    }
}

/// Z4.3: an older revision that succeeds is reported and leaves, whatever a newer one still tests.
#[test]
fn a_revision_whose_tests_take_longer_keeps_no_other_ones_last_jobs() {
    let mut bench = bench(Manager::Independent);
    bench.pipeline.dequeue_on_new_patchset = false;
    bench.approve("A");
    bench.run();
    bench.revise('A');
    bench.update('A', None);
    bench.approve("A");
    bench.run();
    bench.end('A', "unit", Success);
    assert_eq!(bench.run(), "A stays: SUCCESS");
    bench.deliver_reports();
    assert_eq!(bench.run(), "run A publish on 0A");
    bench.end('A', "publish", Success);
    assert_eq!(bench.run(), "A leaves: SUCCESS");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "A SUCCESS"]);
}

/// Z4.3: without reporters there is no report to wait for.
#[test]
fn a_reporter_job_in_a_pipeline_without_reporters_runs_at_once() {
    let mut bench = bench(Manager::Independent);
    bench.pipeline.reporters.success.clear();
    bench.approve("A");
    bench.run();
    bench.pass("A");
    assert_snapshot!(bench.run(), @r"
    A stays: SUCCESS
    run A publish on 0A
    ");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS"]);
}

/// C01, Z4.3: a merged configuration may become live during its reporter jobs, which stay as they
/// were frozen.
#[test]
fn last_jobs_outlive_a_new_layout() {
    let mut bench = bench(Manager::Dependent);
    bench.configuring.insert('A');
    bench.approve("AB");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.land();
    bench.run();
    bench.jobs.pop();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    assert_snapshot!(bench.run(), @"");
    bench.deliver_reports();
    assert_snapshot!(bench.run(), @"run A publish on 0A");
    bench.end('A', "publish", Success);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    land B as 0AB
    ");
    bench.finish();
    assert_eq!((bench.landed.len(), published(&bench)), (2, 1), "B has no such job any more");
}

/// Z6.5, Z4.3: members of a bundle leave together, when the reporter jobs of all are over.
#[test]
fn a_bundle_stays_until_the_last_jobs_of_all_are_over() {
    let mut bench = bench(Manager::Dependent);
    bench.approve_bundle("AB", "");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.land();
    bench.run();
    bench.land();
    assert_snapshot!(bench.run(), @r"
    A stays: SUCCESS
    B stays: SUCCESS
    ");
    bench.deliver_reports();
    assert_snapshot!(bench.run(), @r"
    run A publish on 0A
    run B publish on 0AB
    ");
    bench.end('A', "publish", Success);
    assert_snapshot!(bench.run(), @"");
    bench.end('B', "publish", Success);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    B leaves: SUCCESS
    ");
}

/// N16, Z4.3: it holds semaphores like any job.
#[test]
fn a_reporter_holds_its_semaphores() {
    let mut bench = Bench::gate(&["unit"]);
    bench.jobs.push(JobSummary { reporter: true, ..holding("publish", &["mirror"]) });
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    bench.land();
    bench.run();
    let held = |bench: &Bench| {
        bench.semaphores.values().map(|semaphore| semaphore.holders.len()).sum::<usize>()
    };
    assert_eq!(held(&bench), 0, "not before its turn");
    bench.deliver_reports();
    bench.run();
    assert_eq!(held(&bench), 1);
    bench.end('A', "publish", Success);
    bench.run();
    assert_eq!((held(&bench), bench.left.len()), (0, 1));
}
