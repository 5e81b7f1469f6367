//! Jobs that run after the reports: when they run, what waits for them, and what they decide.

use super::bench::{Bench, after, job};
use super::semaphores::holding;
use crate::plan::{LayoutNumbers, ObservedBuild};
use crate::queue::SlotStatus;
use crate::report::ReportState;
use insta::assert_snapshot;
use serde_json::Map;
use sluice_config::pipeline::Manager;
use sluice_model::build::BuildResult::{Failure, Success};
use sluice_model::job::JobSummary;

/// Returns a job that runs after the reports, on the executor alone.
fn reporter(name: &str) -> JobSummary {
    JobSummary { reporter: true, labels: Vec::new(), ..job(name) }
}

fn bench(manager: Manager) -> Bench {
    let mut bench = Bench::new(manager, &["unit"]);
    bench.jobs.push(reporter("publish"));
    bench
}

/// Returns a gate whose first change has landed and is to publish; the others have passed.
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

/// Returns a gate whose first change has landed and is to publish, and the one behind it has these
/// jobs.
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

/// The same, its report made.
fn publishing(changes: &str) -> Bench {
    let mut bench = landed(changes);
    bench.make_reports();
    assert_eq!(bench.run(), "run A publish on 0A");
    bench
}

fn published(bench: &Bench) -> usize {
    bench.orders.iter().filter(|order| order.job.as_str() == "publish").count()
}

/// Z4.3: it runs when the change is in its branch and that was told, and knows by which commit; the
/// queue waits for it.
#[test]
fn a_reporter_runs_after_the_landing_and_its_report_and_the_queue_waits_for_it() {
    let mut bench = publishing("AB");
    assert_eq!(bench.orders.last().unwrap().merge_commit, Some("commit-0A".into()));
    assert!(bench.orders[..2].iter().all(|order| order.merge_commit.is_none()));
    bench.approve("C");
    assert_snapshot!(bench.run(), @"");
    assert_eq!(
        (bench.head.slots.len(), bench.landings.len()),
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
    assert_eq!(bench.comments().len(), 3, "each is told of once");
    assert!(
        !bench.comments().join("").contains("publish"),
        "what runs after the report is not in it"
    );
}

/// Z4.3: what is under way behind it comes to its end, and nothing is begun.
#[test]
fn nothing_is_ordered_behind_a_reporter() {
    let mut bench = landed_before(vec![job("build"), after("test", &["build"])]);
    bench.end('B', "build", Success);
    assert_snapshot!(bench.run(), @"");
    bench.make_reports();
    bench.run();
    bench.end('A', "publish", Success);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    run B test on 0AB
    ");
}

/// Z4.3, Z7.6: a paused build holds nodes that the reporter may wait for, so what it waits for
/// itself is run.
#[test]
fn what_a_paused_build_behind_a_reporter_waits_for_is_run() {
    let mut bench = landed_before(vec![job("registry"), after("test", &["registry"])]);
    bench.show('B', "registry", ObservedBuild::Paused { started_at: None, data: Map::new() });
    assert_snapshot!(bench.run(), @"run B test on 0AB");
    bench.end('B', "test", Success);
    assert_snapshot!(bench.run(), @"resume B registry");
}

/// Z4.3, R01: nor does a new layout keep it from running, or what the paused build has in hand
/// would be waited for without end.
#[test]
fn a_new_layout_keeps_nothing_from_what_a_paused_build_behind_a_reporter_waits_for() {
    let mut bench = landed_before(vec![job("registry"), after("test", &["registry"])]);
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    bench.show('B', "registry", ObservedBuild::Paused { started_at: None, data: Map::new() });
    assert_snapshot!(bench.run(), @"run B test on 0AB");
}

/// Z4.3: jobs that run after the reports decide nothing, so that a change without any other is not
/// tested, and does not land.
#[test]
fn a_change_with_nothing_but_a_reporter_has_no_jobs() {
    let mut bench = bench(Manager::Dependent);
    bench.own_jobs.insert('A', vec![reporter("publish")]);
    bench.approve("A");
    bench.run();
    assert_eq!((bench.left.as_slice(), published(&bench)), (&["A NO_JOBS".to_owned()][..], 0));
    assert!(bench.landed.is_empty());
}

/// Z4.3: a paused job that a reporter comes after does not wait for it: it would wait for a landing
/// that waits for the job.
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

/// Z4.3: what it was to make is not there, so everything behind is tested on what the repositories
/// are.
#[test]
fn a_reporter_that_fails_resets_what_is_behind_and_takes_nothing_back() {
    let mut bench = bench(Manager::Dependent);
    bench.approve("ABC");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.land();
    bench.run();
    bench.make_reports();
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

/// Z4.3: one that does not vote resets nothing.
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
    bench.make_reports();
    bench.run();
    bench.end('A', "publish", Failure);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    land B as 0AB
    ");
}

/// Z4.3
#[test]
fn a_reporter_is_not_run_for_what_fails() {
    let mut bench = bench(Manager::Dependent);
    bench.approve("A");
    bench.run();
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @"A leaves: FAILURE");
    assert_eq!(published(&bench), 0);
}

/// Z4.3: nor where the report met an error, which one that cannot be made for long is; the queue
/// goes on.
#[test]
fn a_reporter_is_not_run_where_the_report_could_not_be_made() {
    for is_refused in [true, false] {
        let mut bench = landed("AB");
        let item = bench.head.slots[0].id.clone();
        if is_refused {
            let refused = ReportState::Refused {
                why: "the conversation is locked".to_owned(),
                at: bench.now,
            };
            bench.told.insert(item, refused);
        } else {
            bench.told.insert(item, ReportState::Pending);
            bench.now = bench.now.plus_seconds(599);
            assert_eq!(bench.run(), "");
            bench.now = bench.now.plus_seconds(1);
        }
        assert_eq!(bench.run(), "A leaves: SUCCESS\nland B as 0AB");
        assert_eq!(published(&bench), 0);
        let why = if is_refused {
            "the conversation is locked"
        } else {
            "could not be made for 600 seconds"
        };
        assert!(
            bench.removed_reasons.iter().any(|reason| reason.contains(why)),
            "{:?}",
            bench.removed_reasons
        );
    }
}

/// Z7.6: a lost build of it is attempted again as any.
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

/// R06, Z4.3: an operator ends its last jobs; the change has landed all the same, as was told.
#[test]
fn an_operator_takes_out_what_runs_its_last_jobs_and_it_stays_merged() {
    let mut bench = publishing("AB");
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @r"
    stop A publish
    A leaves: SUCCESS
    land B as 0AB
    ");
    assert_eq!(bench.comments().len(), 1);
    assert!(bench.removed_reasons.iter().any(|reason| reason.contains("jo took it out")));
}

/// Z4.3: forges tell of what landed as merged, and of what its author uploads to it; its last jobs
/// are run to their end.
#[test]
fn news_of_what_has_landed_do_not_end_its_last_jobs() {
    let mut bench = publishing("A");
    bench.merged_outside('A');
    bench.revise('A');
    bench.seen('A', None);
    bench.approve("A");
    assert_snapshot!(bench.run(), @"");
    assert_eq!((bench.head.slots[0].status, bench.arrivals.len()), (SlotStatus::Reporting, 0));
    bench.finish();
    assert_eq!((bench.left.as_slice(), bench.landed.len()), (&["A SUCCESS".to_owned()][..], 1));
}

/// Z4.3, G14: a revision that a push did not bring is open still: it enters when the last jobs of
/// the one before are over.
#[test]
fn a_revision_that_no_push_brought_waits_for_the_last_jobs_of_the_one_before() {
    let mut bench = bench(Manager::Dependent);
    bench.kept = true;
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    bench.land();
    bench.run();
    bench.make_reports();
    assert_snapshot!(bench.run(), @"run A publish on 0A");
    bench.revise('A');
    bench.seen('A', None);
    bench.approve("AC");
    assert_snapshot!(bench.run(), @"");
    assert_eq!((bench.head.slots.len(), bench.arrivals.len()), (1, 2), "nothing passes it by");
    bench.end('A', "publish", Success);
    bench.run();
    assert_eq!(bench.left, ["A SUCCESS"]);
    let here: Vec<_> = bench.head.slots.iter().map(|slot| slot.change.clone()).collect();
    assert_eq!((here, bench.arrivals.len()), (vec![bench.change('A'), bench.change('C')], 0));
}

/// Z4.3: where nothing lands it runs after the report; a newer revision takes the place of what
/// runs it.
#[test]
fn in_an_independent_pipeline_a_reporter_runs_after_the_report() {
    let mut bench = bench(Manager::Independent);
    bench.approve("A");
    bench.run();
    bench.pass("A");
    assert_snapshot!(bench.run(), @"A stays: SUCCESS");
    bench.make_reports();
    assert_snapshot!(bench.run(), @"run A publish on 0A");
    assert_eq!(bench.orders.last().unwrap().merge_commit, None);
    bench.seen('A', Some("the change was closed"));
    assert_snapshot!(bench.run(), @"");
    bench.revise('A');
    bench.seen('A', None);
    assert_snapshot!(bench.run(), @r"
    stop A publish
    A leaves: SUCCESS
    ");
}

/// Z4.3, Z6.4: where older revisions go on beside newer ones, the last jobs of one keep the others
/// from nothing, and decide nothing about them.
#[test]
fn the_last_jobs_of_an_older_revision_keep_the_newer_one_from_nothing() {
    for result in [Success, Failure] {
        let mut bench = bench(Manager::Independent);
        bench.pipeline.dequeue_on_new_patchset = false;
        bench.approve("A");
        bench.run();
        bench.pass("A");
        bench.run();
        bench.make_reports();
        assert_eq!(bench.run(), "run A publish on 0A");
        bench.revise('A');
        bench.seen('A', None);
        bench.approve("A");
        assert_eq!(bench.run(), "run A unit on 0A", "the newer revision is tested meanwhile");
        bench.end('A', "unit", Success);
        assert_eq!(bench.run(), "A stays: SUCCESS");
        bench.make_reports();
        assert_eq!((bench.run().as_str(), published(&bench)), ("run A publish on 0A", 2));
        let standing: Vec<SlotStatus> = bench.head.slots.iter().map(|slot| slot.status).collect();
        assert_eq!(standing, [SlotStatus::Reporting; 2]);
        // The first of the two that run, which is the older revision's.
        bench.end('A', "publish", result);
        assert_eq!(bench.run(), "A leaves: SUCCESS");
        let heads: Vec<&str> =
            bench.head.slots.iter().map(|slot| slot.change.head.as_str()).collect();
        assert_eq!(heads, ["A2"]);
        assert_eq!(bench.orders.iter().filter(|order| order.job.as_str() == "unit").count(), 2);
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS", "A SUCCESS"]);
    }
}

/// Z4.3: an older revision that succeeds meanwhile is told of, and leaves, whatever a newer one
/// still tests.
#[test]
fn a_revision_whose_tests_take_longer_keeps_no_other_ones_last_jobs() {
    let mut bench = bench(Manager::Independent);
    bench.pipeline.dequeue_on_new_patchset = false;
    bench.approve("A");
    bench.run();
    bench.revise('A');
    bench.seen('A', None);
    bench.approve("A");
    bench.run();
    bench.end('A', "unit", Success);
    assert_eq!(bench.run(), "A stays: SUCCESS");
    bench.make_reports();
    assert_eq!(bench.run(), "run A publish on 0A");
    bench.end('A', "publish", Success);
    assert_eq!(bench.run(), "A leaves: SUCCESS");
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "A SUCCESS"]);
}

/// Z4.3: a pipeline that tells nobody has no report to wait for.
#[test]
fn a_reporter_of_a_pipeline_that_tells_nobody_runs_at_once() {
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

/// C01, Z4.3: configuration that landed may be live before its last jobs are over; those are as
/// they were frozen.
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
    bench.make_reports();
    assert_snapshot!(bench.run(), @"run A publish on 0A");
    bench.end('A', "publish", Success);
    assert_snapshot!(bench.run(), @r"
    A leaves: SUCCESS
    land B as 0AB
    ");
    bench.finish();
    assert_eq!((bench.landed.len(), published(&bench)), (2, 1), "B has no such job any more");
}

/// Z6.5, Z4.3: changes that need each other leave together, when the last jobs of all are over.
#[test]
fn a_bundle_stays_until_the_last_jobs_of_all_are_over() {
    let mut bench = bench(Manager::Dependent);
    bench.approve_cycle("AB", "");
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
    bench.make_reports();
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

/// N16, Z4.3: it holds its semaphores as any job.
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
    bench.make_reports();
    bench.run();
    assert_eq!(held(&bench), 1);
    bench.end('A', "publish", Success);
    bench.run();
    assert_eq!((held(&bench), bench.left.len()), (0, 1));
}
