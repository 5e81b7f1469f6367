//! Jobs of one item: their graph, attempts, nodes, votes.

use super::bench::{Bench, after, job};
use crate::plan::ObservedBuild;
use insta::assert_snapshot;
use sluice_model::Timestamp;
use sluice_model::build::BuildResult::{
    self, Failure, NodeFailure, Retry, RetryLimit, Skipped, Success, TimedOut,
};
use sluice_model::build::{EndWithoutRun, RunEnd};
use sluice_model::job::{JobDependency, JobSummary};

fn results(bench: &Bench) -> Vec<(String, Option<BuildResult>)> {
    let jobs = bench.items.values().flat_map(|item| &item.jobs);
    jobs.map(|job| (job.summary.name.to_string(), job.result())).collect()
}

/// J12
#[test]
fn jobs_behind_a_failed_one_are_never_run() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![
        job("a"),
        after("b", &["a"]),
        after("c", &["a"]),
        after("d", &["b"]),
        after("e", &["c"]),
        after("f", &["b", "c"]),
        after("g", &["f"]),
    ];
    bench.approve("A");
    assert_snapshot!(bench.run(), @"run A a on 0A");
    bench.end('A', "a", Success);
    assert_snapshot!(bench.run(), @r"
    run A b on 0A
    run A c on 0A
    ");
    bench.end('A', "c", Failure);
    bench.run();
    for (name, result) in
        results(&bench).into_iter().filter(|(name, _)| "efg".contains(name.as_str()))
    {
        assert_eq!(result, Some(Skipped), "{name}");
    }
    bench.end('A', "b", Success);
    assert_snapshot!(bench.run(), @"run A d on 0A");
    bench.end('A', "d", Success);
    assert_snapshot!(bench.run(), @"A leaves: FAILURE");
}

/// J13
#[test]
fn a_soft_dependency_is_waited_for_only_where_it_runs() {
    let mut bench = Bench::gate(&[]);
    let soft = |name: &str| vec![JobDependency { name: name.into(), soft: true }];
    bench.jobs = vec![
        job("build"),
        JobSummary { dependencies: soft("build"), ..job("deploy") },
        JobSummary { dependencies: soft("absent"), ..job("alone") },
    ];
    bench.approve("A");
    assert_snapshot!(bench.run(), @r"
    run A build on 0A
    run A alone on 0A
    ");
    bench.end('A', "build", Failure);
    assert_snapshot!(bench.run(), @"run A deploy on 0A");
}

/// J14
#[test]
fn a_failed_non_voting_job_does_not_fail_the_change() {
    let mut bench = Bench::gate(&["unit"]);
    bench.jobs.push(JobSummary { voting: false, ..job("lint") });
    bench.approve("A");
    bench.run();
    bench.end('A', "lint", Failure);
    bench.finish();
    assert_eq!(bench.landed, ["0A"]);
    assert!(bench.comments().iter().any(|text| text.contains(") : FAILURE (non-voting)")));
}

/// J15
#[test]
fn noop_passes_with_a_build_that_no_executor_runs() {
    let mut bench = Bench::gate(&["noop"]);
    bench.approve("A");
    assert_snapshot!(bench.run(), @"land A as 0A");
    assert!(bench.orders.is_empty());
    let end = EndWithoutRun { result: Success, detail: None };
    assert_eq!(bench.ended_orders, [("noop".to_owned(), end)]);
}

/// J16
#[test]
fn a_build_is_attempted_three_times_and_then_ends_as_retry_limit() {
    let mut bench = Bench::gate(&["unit", "other"]);
    bench.approve("A");
    bench.run();
    bench.end('A', "unit", Retry);
    assert_snapshot!(bench.run(), @"run A unit (attempt 2) on 0A");
    bench.end('A', "unit", Retry);
    bench.run();
    bench.end('A', "unit", Retry);
    assert_snapshot!(bench.run(), @"");
    assert_eq!(results(&bench)[0].1, Some(RetryLimit));
}

/// J16, Z7.3
#[test]
fn a_build_whose_executor_is_gone_is_stopped_and_attempted_again() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("AB");
    bench.run();
    bench.show('A', "unit", ObservedBuild::Lost { why: "the executor is silent".to_owned() });
    assert_snapshot!(bench.run(), @r"
    stop A unit
    run A unit (attempt 2) on 0A
    ");
}

/// J16, Z7.3, Z9.1: a job that is attempted again says why, in the reasons of its item and with the
/// job; a change that leaves names the job that failed, with the first line of its explanation.
#[test]
fn a_retry_says_why_and_a_failure_names_its_job() {
    let mut bench = Bench::gate(&["unit", "other"]);
    bench.approve("A");
    bench.run();
    bench.show('A', "unit", ObservedBuild::Lost { why: "ci-1 is silent".to_owned() });
    bench.run();
    let unit = |bench: &Bench| bench.items.values().next().unwrap().jobs[0].clone();
    let lost = "executor lost: ci-1 is silent";
    assert_eq!(unit(&bench).retry_reason.as_deref(), Some(lost));
    let item = bench.items.values().next().unwrap();
    let follows = format!("unit: RETRY ({lost}), attempt 2 of 3 follows");
    assert!(item.reasons.iter().any(|one| one.text == follows), "{:?}", item.reasons);
    let end = |result, detail: &str| RunEnd {
        result,
        detail: Some(detail.to_owned()),
        started_at: Some(Timestamp(1)),
        ended_at: Timestamp(2),
        data: serde_json::Map::new(),
        data_object: None,
        log_url: None,
    };
    let detail = "Node lost: host one could not be reached\nIn the run playbook x.";
    bench.show('A', "unit", ObservedBuild::Ended(end(Retry, detail)));
    bench.run();
    let lost = "Node lost: host one could not be reached";
    assert_eq!(unit(&bench).retry_reason.as_deref(), Some(lost));
    let detail = "Task \"x\" failed on one (exit code 1)\nIn the run playbook x.";
    bench.show('A', "unit", ObservedBuild::Ended(end(Failure, detail)));
    bench.run();
    assert_eq!(unit(&bench).retry_reason, None);
    bench.end('A', "other", Success);
    bench.run();
    let left = "left gate: FAILURE: job unit failed: Task \"x\" failed on one (exit code 1)";
    assert!(bench.removed_reasons.iter().any(|one| one == left), "{:?}", bench.removed_reasons);
    let comment = &bench.comments()[0];
    assert!(comment.contains(": Task \"x\" failed on one (exit code 1)\n"), "{comment}");
    assert!(comment.contains("Pipeline gate: https://"), "{comment}");
}

/// Z9.1: a change that leaves because of several jobs names them with their results.
#[test]
fn several_failed_jobs_are_named() {
    let mut bench = Bench::gate(&["unit", "other"]);
    bench.approve("A");
    bench.run();
    bench.end('A', "unit", Failure);
    bench.end('A', "other", TimedOut);
    bench.run();
    let left = "left gate: FAILURE: 2 jobs failed: unit, other (TIMED_OUT)";
    assert!(bench.removed_reasons.iter().any(|one| one == left), "{:?}", bench.removed_reasons);
}

/// N02
#[test]
fn a_label_that_no_provider_offers_fails_the_job_at_once() {
    let mut bench = Bench::gate(&["unit"]);
    bench.has_provider = false;
    bench.approve("A");
    assert_snapshot!(bench.run(), @"A leaves: FAILURE");
    let (result, detail) = (NodeFailure, "no provider of the tenant offers small".to_owned());
    let end = EndWithoutRun { result, detail: Some(detail) };
    assert_eq!(bench.ended_orders, [("unit".to_owned(), end)]);
    let comment = &bench.comments()[0];
    assert!(comment.contains("- [unit](https://sluice.test/t/"), "{comment}");
    assert!(comment.contains(") : NODE_FAILURE: no provider"), "{comment}");
}

/// N03
#[test]
fn a_request_that_failed_ends_the_job_without_another_attempt() {
    let mut bench = Bench::gate(&["unit", "other"]);
    bench.approve("A");
    bench.run();
    bench.show('A', "unit", ObservedBuild::NoNodes("no machine of it ever answered".to_owned()));
    assert_snapshot!(bench.run(), @"stop A unit");
    assert_eq!(results(&bench)[0].1, Some(NodeFailure));
}

/// Z3.1: a job without nodes needs no provider.
#[test]
fn a_job_without_nodes_is_ordered_without_a_request() {
    let mut bench = Bench::gate(&["unit"]);
    bench.has_provider = false;
    bench.jobs[0].labels = vec![Vec::new()];
    bench.approve("A");
    bench.run();
    assert_eq!(bench.orders[0].request, None);
}

/// C2: the queue sends an unclaimed build again by itself, since its message may be lost.
#[test]
fn an_unclaimed_build_without_nodes_is_sent_again_every_quarter_of_an_hour() {
    let mut bench = Bench::gate(&["unit"]);
    bench.jobs[0].labels = vec![Vec::new()];
    bench.approve("A");
    bench.run();
    bench.now = bench.now.plus_seconds(899);
    assert_snapshot!(bench.run(), @"");
    bench.now = bench.now.plus_seconds(1);
    assert_snapshot!(bench.run(), @"send A unit again");
    bench.now = bench.now.plus_seconds(899);
    assert_snapshot!(bench.run(), @"");
    bench.now = bench.now.plus_seconds(1);
    assert_snapshot!(bench.run(), @"send A unit again");
    // Each message is young; the head lists the build after the third send.
    assert!(bench.head.unclaimed.is_empty());
    bench.now = bench.now.plus_seconds(900);
    assert_snapshot!(bench.run(), @"send A unit again");
    assert_eq!(bench.head.unclaimed, [bench.orders[0].build.clone()]);
    bench.show('A', "unit", ObservedBuild::Running { started_at: None, pre_fail: false });
    bench.run();
    assert!(bench.head.unclaimed.is_empty());
    bench.now = bench.now.plus_seconds(9_000);
    assert_snapshot!(bench.run(), @"");
}

/// G20: with `fail-fast` the first failure ends the other jobs, with one report.
#[test]
fn a_project_that_fails_fast_stops_the_other_jobs_of_the_change() {
    let mut bench = Bench::gate(&[]);
    bench.fail_fast = true;
    bench.jobs = vec![job("one"), job("two"), after("three", &["two"])];
    bench.approve("A");
    bench.run();
    bench.end('A', "one", Failure);
    assert_snapshot!(bench.run(), @r"
    stop A two
    A leaves: FAILURE
    ");
    assert_eq!(bench.reports.len(), 1);
}

/// G05: entries behind do not wait for the end of a build that is known to fail.
#[test]
fn a_build_known_to_fail_resets_the_entries_behind_before_it_ends() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("AB");
    bench.run();
    bench.show('A', "unit", ObservedBuild::Running { started_at: None, pre_fail: true });
    assert_snapshot!(bench.run(), @r"
    stop B unit
    run B unit on 0B
    ");
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @"A leaves: FAILURE");
}

/// Z4.3: `zuul.child_jobs` chooses which dependents run.
#[test]
fn a_job_chooses_which_jobs_follow_it() {
    let mut bench = Bench::gate(&[]);
    bench.jobs =
        vec![job("pick"), after("yes", &["pick"]), after("no", &["pick"]), after("later", &["no"])];
    bench.approve("A");
    bench.run();
    let returned = serde_json::json!({ "zuul": { "child_jobs": ["yes"] } });
    bench.end_returning('A', "pick", Success, returned.as_object().cloned().unwrap());
    assert_snapshot!(bench.run(), @"run A yes on 0A");
    bench.end('A', "yes", Success);
    assert_snapshot!(bench.run(), @"land A as 0A");
    let skipped: Vec<String> = results(&bench)
        .into_iter()
        .filter(|(_, result)| *result == Some(Skipped))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(skipped, ["no", "later"]);
}

/// Z4.3: returned data is passed to dependents; the nearer job overrides.
#[test]
fn a_job_is_given_the_builds_of_all_jobs_before_it_the_nearest_last() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![job("a"), after("b", &["a"]), after("c", &["b", "a"])];
    bench.approve("A");
    for name in ["a", "b"] {
        bench.run();
        bench.end('A', name, Success);
    }
    bench.run();
    let parents = &bench.orders.iter().find(|order| order.job.as_str() == "c").unwrap().parents;
    let names: Vec<&str> = parents
        .iter()
        .map(|build| bench.orders.iter().find(|order| order.build == *build).unwrap().job.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
}
