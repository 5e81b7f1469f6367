//! Jobs of a kind have their place among those of an item.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use sluice_config::FreezeInput;
use sluice_model::job::JobGraph;

const LIST: &str = "- project: {name: org/project, check: {jobs: [first, a, b]}}\n";

fn needs(graph: &JobGraph, name: &str) -> Vec<String> {
    let of = |soft| if soft { " softly" } else { "" };
    job(graph, name).dependencies.iter().map(|one| format!("{}{}", one.name, of(one.soft))).collect()
}

/// Z4.3: nothing of an item runs before its initializers have succeeded, whatever the jobs say themselves.
#[test]
fn every_other_job_waits_for_the_initializers() {
    let jobs = "
- job: {name: first, type: initializer, run: r}
- job: {name: a, run: r}
- job: {name: b, run: r, dependencies: [a, {name: first, soft: true}]}
";
    let layout = tenant().file("org/config", &format!("{BASE}{jobs}{LIST}")).sound();
    let name = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap();
    assert_eq!((needs(&graph, "first"), needs(&graph, "a")), (vec![], vec!["first".to_owned()]));
    assert_eq!(needs(&graph, "b"), ["a", "first"]);
}

/// Z4.3
#[test]
fn an_initializer_that_waits_for_another_job_closes_a_circle() {
    let jobs = "
- job: {name: first, type: initializer, run: r, dependencies: [a]}
- job: {name: a, run: r}
- job: {name: b, run: r}
";
    let layout = tenant().file("org/config", &format!("{BASE}{jobs}{LIST}")).sound();
    let name = project("org/project");
    let errors = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap_err();
    assert!(errors[0].short_text().contains("Dependency cycle detected"), "{errors:#?}");
}

/// Z4.3: a job whose place is after the reports is never run among the others, where it would publish what is not merged yet.
#[test]
fn a_reporter_is_not_run_among_the_jobs_that_are_reported() {
    let jobs = "
- job: {name: first, type: reporter, run: r}
- job: {name: a, run: r}
- job: {name: b, run: r, dependencies: [{name: first, soft: true}]}
";
    let layout = tenant().file("org/config", &format!("{BASE}{jobs}{LIST}")).sound();
    let name = project("org/project");
    let (graph, trace) = layout.freeze_with_trace(&FreezeInput::change("check", &name, "master"));
    let graph = graph.unwrap();
    assert_eq!(graph.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(needs(&graph, "b"), Vec::<String>::new());
    let told = trace.iter().find(|job| job.job == "first").unwrap();
    assert!(!told.runs && told.reason.as_deref().unwrap().contains("after the reports"), "{told:?}");
}
