//! The job graph over time: paused builds, nodesets in turn, jobs that wait for changes ahead, and
//! artifacts.

use super::bench::{Bench, after, job};
use crate::inbox::{Candidate, InboxMessageKind};
use crate::item::JobStatus;
use crate::plan::{ObservedBuild, OrderDraft};
use crate::provided::{ProvidedArtifacts, ProvidingJob, ProvidingJobState};
use insta::assert_snapshot;
use serde_json::{Map, Value, json};
use sluice_config::pipeline::Manager;
use sluice_model::LabelName;
use sluice_model::build::BuildResult::{self, Failure, Retry, RetryLimit, Skipped, Success};
use sluice_model::job::{BuildSharing, JobDependency, JobSummary};

fn map(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn pause(bench: &mut Bench, change: char, name: &str, data: Value) {
    bench.show(change, name, ObservedBuild::Paused { started_at: None, data: map(data) });
}

fn result(bench: &Bench, name: &str) -> (Option<BuildResult>, String) {
    let mut jobs = bench.items.values().flat_map(|item| &item.jobs);
    let job = jobs.find(|job| job.summary.name.as_str() == name).unwrap();
    let detail = match &job.status {
        JobStatus::Ended { detail, .. } => detail.clone().unwrap_or_default(),
        _ => String::new(),
    };
    (job.result(), detail)
}

fn waiting_jobs(bench: &Bench, name: &str) -> String {
    let jobs = bench.items.values().flat_map(|item| &item.jobs);
    let waiting = jobs
        .filter(|job| job.summary.name.as_str() == name)
        .filter_map(|job| job.waits_for.as_ref());
    waiting.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn order<'a>(bench: &'a Bench, change: char, name: &str) -> &'a OrderDraft {
    let is_it = |order: &&OrderDraft| {
        order.job.as_str() == name
            && order.change.key.number() == Some(u64::from(u32::from(change)))
    };
    bench.orders.iter().rfind(is_it).unwrap()
}

/// Z4.3: dependents of a paused job run while it is paused; it is resumed when the last of them is
/// over.
#[test]
fn a_paused_build_goes_on_when_everything_behind_it_is_over() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![
        job("registry"),
        after("build", &["registry"]),
        after("test", &["build"]),
        job("alone"),
    ];
    bench.approve("A");
    bench.run();
    pause(&mut bench, 'A', "registry", json!({}));
    assert_snapshot!(bench.run(), @"run A build on 0A");
    bench.end('A', "build", Success);
    assert_snapshot!(bench.run(), @"run A test on 0A");
    bench.end('A', "test", Failure);
    assert_snapshot!(bench.run(), @"resume A registry");
    bench.end('A', "registry", Success);
    assert_snapshot!(bench.run(), @"");
    bench.end('A', "alone", Success);
    assert_snapshot!(bench.run(), @"A leaves: FAILURE");
}

/// Z4.3: `child_jobs` counts from the pause on; if no dependent is left, the build is resumed at
/// once.
#[test]
fn a_paused_build_chooses_its_children_and_without_any_goes_on_at_once() {
    let mut bench = Bench::gate(&[]);
    bench.jobs =
        vec![job("pick"), after("yes", &["pick"]), after("no", &["pick"]), after("later", &["no"])];
    bench.approve("AB");
    bench.run();
    pause(&mut bench, 'A', "pick", json!({ "zuul": { "child_jobs": ["yes"] } }));
    assert_snapshot!(bench.run(), @"run A yes on 0A");
    let why = "Skipped due to child_jobs return value in job pick".to_owned();
    assert_eq!(result(&bench, "no"), (Some(Skipped), why.clone()));
    assert_eq!(result(&bench, "later"), (Some(Skipped), why));
    pause(&mut bench, 'B', "pick", json!({ "zuul": { "child_jobs": [] } }));
    assert_snapshot!(bench.run(), @"resume B pick");
}

/// Z4.3: two paused builds, one dependent on the other, are resumed from the inside out.
#[test]
fn a_paused_build_behind_a_paused_build_goes_on_first() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![job("outer"), after("inner", &["outer"]), after("leaf", &["inner"])];
    bench.approve("A");
    bench.run();
    pause(&mut bench, 'A', "outer", json!({}));
    bench.run();
    pause(&mut bench, 'A', "inner", json!({}));
    assert_snapshot!(bench.run(), @"run A leaf on 0A");
    bench.end('A', "leaf", Success);
    assert_snapshot!(bench.run(), @"resume A inner");
    bench.end('A', "inner", Success);
    assert_snapshot!(bench.run(), @"resume A outer");
    bench.end('A', "outer", Success);
    assert_snapshot!(bench.run(), @"land A as 0A");
}

/// Z7.3, Z4.3: if a paused build is lost, all its dependents run again, and their lost attempts do
/// not count.
#[test]
fn children_of_a_paused_build_that_is_lost_run_again_with_its_next_attempt() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![job("registry"), after("build", &["registry"]), after("test", &["registry"])];
    bench.approve("A");
    bench.run();
    pause(&mut bench, 'A', "registry", json!({}));
    bench.run();
    bench.end('A', "test", Success);
    bench.run();
    bench.show('A', "registry", ObservedBuild::Lost { why: "the executor is silent".to_owned() });
    assert_snapshot!(bench.run(), @r"
    stop A registry
    stop A build
    run A registry (attempt 2) on 0A
    ");
    pause(&mut bench, 'A', "registry", json!({}));
    assert_snapshot!(bench.run(), @r"
    run A build on 0A
    run A test on 0A
    ");
    bench.end('A', "registry", Retry);
    bench.run();
    pause(&mut bench, 'A', "registry", json!({}));
    bench.run();
    bench.end('A', "registry", Retry);
    bench.run();
    assert_eq!(result(&bench, "registry").0, Some(RetryLimit));
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE"]);
}

/// Z4.3, J18: a job that another job did not choose stays skipped when a paused build is lost.
#[test]
fn unchosen_jobs_stay_skipped_when_a_paused_build_is_lost() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![
        job("registry"),
        job("chooser"),
        after("both", &["registry", "chooser"]),
        after("last", &["both"]),
        after("own", &["registry"]),
    ];
    bench.approve("A");
    bench.run();
    bench.end_returning('A', "chooser", Success, map(json!({"zuul": {"child_jobs": []}})));
    bench.run();
    pause(&mut bench, 'A', "registry", json!({"zuul": {"child_jobs": []}}));
    assert_snapshot!(bench.run(), @"resume A registry");
    bench.show('A', "registry", ObservedBuild::Lost { why: "the executor is silent".to_owned() });
    assert_snapshot!(bench.run(), @r"
    stop A registry
    run A registry (attempt 2) on 0A
    ");
    bench.end('A', "registry", Success);
    assert_snapshot!(bench.run(), @"run A own on 0A");
    assert_eq!([result(&bench, "both").0, result(&bench, "last").0], [Some(Skipped); 2]);
}

/// Z4.3, R01: if the job of a paused build changes, the build is stopped, and its dependents run
/// again after the new one.
#[test]
fn children_of_a_paused_build_whose_job_changes_begin_again() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![job("registry"), after("build", &["registry"]), job("alone")];
    bench.approve("A");
    bench.run();
    pause(&mut bench, 'A', "registry", json!({}));
    bench.run();
    bench.jobs[0].hash = "registry-2".to_owned();
    bench.layout.wanted = 2;
    bench.layout.live = 2;
    assert_snapshot!(bench.run(), @r"
    stop A build
    stop A registry
    run A registry on 0A
    ");
}

/// Z4.3: a dequeued change stops its paused builds.
#[test]
fn a_paused_build_is_stopped_when_its_change_leaves() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![job("registry"), after("build", &["registry"])];
    bench.approve("A");
    bench.run();
    pause(&mut bench, 'A', "registry", json!({}));
    bench.run();
    bench.dequeue('A');
    assert_snapshot!(bench.run(), @r"
    stop A registry
    stop A build
    A leaves: DEQUEUED
    ");
}

/// J12: the reason of a skipped job names the job that failed, at any distance.
#[test]
fn a_skipped_job_names_the_job_that_failed() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![job("a"), after("b", &["a"]), after("c", &["b"]), job("alone")];
    bench.approve("A");
    bench.run();
    bench.end('A', "a", Failure);
    bench.run();
    for name in ["b", "c"] {
        assert_eq!(result(&bench, name), (Some(Skipped), "Skipped due to failed job a".to_owned()));
    }
}

fn on(name: &str, alternatives: &[&str]) -> JobSummary {
    JobSummary {
        labels: alternatives.iter().map(|label| vec![LabelName::from(*label)]).collect(),
        ..job(name)
    }
}

/// N14: nodesets are tried in order within one attempt, and NODE_FAILURE is reported only after the
/// last.
#[test]
fn nodesets_are_tried_in_order_and_the_last_one_fails_the_job() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![on("unit", &["one", "two", "three", "four"]), job("other")];
    bench.approve("AB");
    bench.run();
    bench.show('A', "unit", ObservedBuild::NoNodes("no machine of it ever answered".to_owned()));
    assert_snapshot!(bench.run(), @r"
    stop A unit
    run A unit on 0A
    ");
    let second = order(&bench, 'A', "unit").clone();
    assert_eq!((second.nodeset, second.attempt, second.labels), (1, 1, vec!["two".into()]));
    assert_ne!(bench.orders[0].build, second.build);
    bench.end('A', "unit", Success);
    bench.end('A', "other", Success);
    assert_snapshot!(bench.run(), @"land A as 0A");
    // No node is available to B.
    for label in ["two", "three", "four"] {
        bench.show(
            'B',
            "unit",
            ObservedBuild::NoNodes("no machine of it ever answered".to_owned()),
        );
        bench.run();
        assert_eq!(order(&bench, 'B', "unit").labels, [LabelName::from(label)]);
    }
    bench.show('B', "unit", ObservedBuild::NoNodes("no machine of it ever answered".to_owned()));
    bench.run();
    let unit =
        bench.items.values().flat_map(|item| &item.jobs).find(|job| job.fails_item()).unwrap();
    assert_eq!((unit.result(), unit.attempt), (Some(BuildResult::NodeFailure), 1));
}

/// N14: a nodeset that no provider offers is skipped; a further attempt continues with the current
/// nodeset.
#[test]
fn a_nodeset_that_no_provider_offers_is_skipped() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![on("unit", &["one", "two", "three"])];
    bench.unoffered = ["one".into()].into();
    bench.approve("A");
    bench.run();
    assert_eq!((order(&bench, 'A', "unit").nodeset, order(&bench, 'A', "unit").attempt), (1, 1));
    bench.end('A', "unit", Retry);
    bench.run();
    assert_eq!((order(&bench, 'A', "unit").nodeset, order(&bench, 'A', "unit").attempt), (1, 2));
    bench.unoffered = ["one".into(), "two".into(), "three".into()].into();
    bench.show(
        'A',
        "unit",
        ObservedBuild::NoNodes("the provider is full of broken machines".to_owned()),
    );
    assert_snapshot!(bench.run(), @r"
    stop A unit (attempt 2)
    A leaves: FAILURE
    ");
    assert!(
        bench.comments()[0].contains("no provider of the tenant offers three"),
        "{:?}",
        bench.comments()
    );
    let ends: Vec<(&str, BuildResult)> =
        bench.ended_orders.iter().map(|(job, end)| (job.as_str(), end.result)).collect();
    assert_eq!(ends, [("unit", BuildResult::NodeFailure)], "it has a build that no executor runs");
}

/// N14, L2.4: a job without a provider for any of its nodesets says of each why.
#[test]
fn a_job_without_a_provider_says_why_for_each_nodeset() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![on("unit", &["one", "two"])];
    bench.unoffered = ["one".into(), "two".into()].into();
    bench.approve("A");
    bench.run();
    let both = "no provider of the tenant offers one; no provider of the tenant offers two";
    assert!(bench.comments()[0].contains(both), "{:?}", bench.comments());
}

/// G02, Z4.3: with `hold-following-changes`, jobs behind start only after the holding job of each
/// change ahead succeeded.
#[test]
fn a_job_that_holds_following_changes_keeps_their_jobs_from_starting() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![
        JobSummary { hold_following_changes: true, ..job("merge") },
        after("test", &["merge"]),
    ];
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @"run A merge on 0A");
    assert_eq!(
        waiting_jobs(&bench, "merge"),
        "job of a change ahead: merge; job of a change ahead: merge"
    );
    bench.end('A', "merge", Success);
    assert_snapshot!(bench.run(), @r"
    run A test on 0A
    run B merge on 0AB
    ");
    bench.end('B', "merge", Success);
    assert_snapshot!(bench.run(), @r"
    run B test on 0AB
    run C merge on 0ABC
    ");
    // A failed holding job leaves with its change.
    bench.end('A', "test", Success);
    bench.end('C', "merge", Failure);
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
}

/// D08: if the first of a chain fails its holding job, nothing else is built.
#[test]
fn nothing_behind_a_failed_holding_job_is_built() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![
        JobSummary { hold_following_changes: true, ..job("merge") },
        after("test", &["merge"]),
    ];
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve_needing('C', "AB");
    bench.run();
    bench.end('A', "merge", Failure);
    bench.finish();
    assert_eq!(bench.orders.len(), 1);
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE", "C FAILURE"]);
    let comments = bench.comments();
    assert_eq!(
        comments
            .iter()
            .filter(|text| text.contains("depends on a change that failed to merge"))
            .count(),
        2
    );
}

fn image_jobs(bench: &mut Bench) {
    let requires = vec!["image".to_owned()];
    let provides = requires.clone();
    bench.jobs = vec![
        JobSummary { provides, ..job("build") },
        JobSummary {
            requires,
            dependencies: vec![JobDependency { name: "build".into(), soft: true }],
            ..job("user")
        },
    ];
}

/// Z4.3: a job that requires artifacts of changes ahead waits for them and gets the nearest first.
/// A paused provider is enough. Jobs of its own change do not count.
#[test]
fn a_job_waits_for_artifacts_of_a_change_ahead_and_gets_them() {
    let mut bench = Bench::gate(&[]);
    image_jobs(&mut bench);
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @r"
    run A build on 0A
    run B build on 0AB
    run C build on 0ABC
    ");
    bench.end('C', "build", Success);
    assert_snapshot!(bench.run(), @"");
    assert_eq!(waiting_jobs(&bench, "user"), "requirements: image");
    bench.end('A', "build", Success);
    assert_snapshot!(bench.run(), @"run A user on 0A");
    pause(&mut bench, 'B', "build", json!({}));
    assert_snapshot!(bench.run(), @r"
    run B user on 0AB
    run C user on 0ABC
    ");
    let build = |change| order(&bench, change, "build").build.clone();
    assert_eq!(order(&bench, 'A', "user").artifact_builds, []);
    assert_eq!(order(&bench, 'B', "user").artifact_builds, [build('A')]);
    assert_eq!(order(&bench, 'C', "user").artifact_builds, [build('B'), build('A')]);
}

/// Z4.3, D15: artifacts of a build that two changes ahead share are listed once.
#[test]
fn artifacts_of_a_shared_build_are_given_once() {
    let mut bench = Bench::gate(&[]);
    image_jobs(&mut bench);
    bench.jobs[0].sharing = BuildSharing::InBundle;
    bench.in_project('B', "two");
    bench.approve_bundle("AB", "");
    bench.approve("C");
    bench.run();
    bench.end('A', "build", Success);
    bench.end('C', "build", Success);
    bench.run();
    assert_eq!(
        order(&bench, 'C', "user").artifact_builds,
        [order(&bench, 'A', "build").build.clone()]
    );
}

/// S07: a merged change provides no artifacts.
#[test]
fn a_provider_that_is_merged_gives_nothing() {
    let mut bench = Bench::gate(&[]);
    image_jobs(&mut bench);
    bench.approve("A");
    bench.finish();
    assert_eq!(bench.landed, ["0A"]);
    bench.approve_needing('B', "");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
    assert_eq!(order(&bench, 'B', "user").artifact_builds, []);
}

/// Z4.3: if a non-voting provider failed, the requiring job fails with that reason.
#[test]
fn a_job_whose_artifact_provider_failed_fails_with_the_reason() {
    let mut bench = Bench::gate(&[]);
    image_jobs(&mut bench);
    bench.jobs[0].voting = false;
    bench.approve("AB");
    bench.run();
    bench.end('A', "build", Failure);
    bench.run();
    bench.end('B', "build", Success);
    bench.run();
    bench.end('A', "user", Success);
    bench.finish();
    assert_eq!(bench.left, ["A SUCCESS", "B FAILURE"]);
    assert!(
        bench.comments()[1].contains("Job user requires artifact(s) image"),
        "{:?}",
        bench.comments()
    );
    let ends: Vec<(&str, BuildResult)> =
        bench.ended_orders.iter().map(|(job, end)| (job.as_str(), end.result)).collect();
    assert_eq!(ends, [("user", Failure)], "it has a build that no executor runs");
}

/// Z4.3: in check, dependencies tested in the same queue provide artifacts.
#[test]
fn in_an_independent_pipeline_a_dependency_provides() {
    let mut bench = Bench::new(Manager::Independent, &[]);
    image_jobs(&mut bench);
    bench.approve("A");
    bench.approve_needing('B', "A");
    bench.approve("C");
    bench.run();
    bench.end('B', "build", Success);
    bench.end('C', "build", Success);
    assert_snapshot!(bench.run(), @"run C user on 0C");
    bench.end('A', "build", Success);
    assert_snapshot!(bench.run(), @r"
    run A user on 0A
    run B user on 0AB
    ");
    assert_eq!(
        order(&bench, 'B', "user").artifact_builds,
        [order(&bench, 'A', "build").build.clone()]
    );
    assert_eq!(order(&bench, 'C', "user").artifact_builds, []);
}

/// Z4.3: so do dependencies tested in their own queues, as far as known; unknown ones provide
/// nothing.
#[test]
fn a_dependency_in_another_queue_provides() {
    let mut bench = Bench::new(Manager::Independent, &[]);
    image_jobs(&mut bench);
    bench.jobs.remove(0);
    bench.jobs[0].dependencies.clear();
    let provided = |bench: &Bench, state| {
        let offer = ProvidingJob { job: "build".into(), provides: vec!["image".to_owned()], state };
        ProvidedArtifacts { change: bench.change('A'), jobs: vec![offer] }
    };
    let awaited = provided(&bench, ProvidingJobState::Pending);
    bench.provided.insert(bench.change('A'), awaited);
    bench.approve_needing('B', "A");
    bench.approve_needing('C', "X");
    assert_snapshot!(bench.run(), @"run C user on 0XC");
    assert_eq!(waiting_jobs(&bench, "user"), "requirements: image");
    let there = provided(&bench, ProvidingJobState::Available(Some("image-of-a".into())));
    bench.provided.insert(bench.change('A'), there);
    assert_snapshot!(bench.run(), @"run B user on 0AB");
    assert_eq!(order(&bench, 'B', "user").artifact_builds, ["image-of-a".into()]);
    let failed = provided(&bench, ProvidingJobState::Failed(BuildResult::Failure));
    bench.provided.insert(bench.change('A'), failed);
    bench.approve_needing('D', "A");
    assert_snapshot!(bench.run(), @"D leaves: FAILURE");
    assert!(
        bench.comments()[0].contains("Job user requires artifact(s) image"),
        "{:?}",
        bench.comments()
    );
    let ends: Vec<(&str, BuildResult)> =
        bench.ended_orders.iter().map(|(job, end)| (job.as_str(), end.result)).collect();
    assert_eq!(ends, [("user", Failure)], "it has a build that no executor runs");
}

/// Z4.3, J16: a job whose artifact is gone when it is to be tried again fails with a build that no
/// executor runs. It does not name the build that ended with `RETRY`, which has that result.
#[test]
fn a_retried_job_whose_artifact_is_gone_fails_with_a_build_of_its_own() {
    let mut bench = Bench::new(Manager::Independent, &[]);
    image_jobs(&mut bench);
    bench.jobs[0] = job("slow");
    bench.jobs[1].dependencies.clear();
    let change = bench.change('A');
    let provided = |state| {
        let offer = ProvidingJob { job: "build".into(), provides: vec!["image".to_owned()], state };
        ProvidedArtifacts { change: change.clone(), jobs: vec![offer] }
    };
    let there = ProvidingJobState::Available(Some("image-of-a".into()));
    bench.provided.insert(change.clone(), provided(there));
    bench.approve_needing('B', "A");
    bench.run();
    let first = order(&bench, 'B', "user").build.clone();
    let failed = ProvidingJobState::Failed(BuildResult::Failure);
    bench.provided.insert(change.clone(), provided(failed));
    bench.end('B', "user", Retry);
    bench.run();
    let (failure, why) = result(&bench, "user");
    assert_eq!(failure, Some(Failure), "{why}");
    assert!(why.contains("Job user requires artifact(s) image"), "{why}");
    let item = bench.items.values().next().expect("the other job goes on");
    let user = item.jobs.iter().find(|job| job.summary.name.as_str() == "user").unwrap();
    assert!(user.build.as_ref().is_some_and(|build| *build != first), "{user:?}");
    assert!(item.builds.contains(&first), "the build of the first attempt stays listed");
}

/// J16, G20: a job that waits for its next attempt and is skipped does not name the build of the
/// attempt before.
#[test]
fn a_retried_job_that_is_skipped_names_no_build() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![job("unit"), job("other"), job("slow")];
    bench.fail_fast = true;
    bench.approve("BA");
    bench.run();
    // In one plan: the retry is not ordered before the failure is known.
    bench.end('A', "unit", Retry);
    bench.end('A', "other", Failure);
    bench.run();
    let items = bench.items.values().filter(|item| item.candidate.change == bench.change('A'));
    let unit = items.flat_map(|item| &item.jobs).find(|job| job.summary.name.as_str() == "unit");
    let unit = unit.expect("it waits for the change ahead");
    assert_eq!((unit.result(), &unit.build), (Some(Skipped), &None));
}

/// Z4.3, Z6.5: members of a dependency cycle that are tested separately do not wait for each
/// other's artifacts.
#[test]
fn members_of_a_cycle_do_not_wait_for_each_others_artifacts() {
    for is_tied in [false, true] {
        let mut bench = Bench::new(Manager::Independent, &[]);
        image_jobs(&mut bench);
        bench.jobs.remove(0);
        bench.jobs[0].dependencies.clear();
        let offer = ProvidingJob {
            job: "build".into(),
            provides: vec!["image".to_owned()],
            state: ProvidingJobState::Pending,
        };
        let a = bench.change('A');
        bench
            .provided
            .insert(a.clone(), ProvidedArtifacts { change: a.clone(), jobs: vec![offer] });
        let cycle_needs = if is_tied { vec![a.key] } else { Vec::new() };
        let candidates = vec![Candidate { cycle_needs, ..bench.candidate('B', "A") }];
        bench.deliver(InboxMessageKind::Enqueue { candidates });
        let done = bench.run();
        assert_eq!(done.trim(), if is_tied { "run B user on 0AB" } else { "" });
        assert_eq!(waiting_jobs(&bench, "user"), if is_tied { "" } else { "requirements: image" });
    }
}
