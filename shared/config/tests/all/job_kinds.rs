//! Initializer and reporter jobs, and their order among the jobs of an item.

use crate::common::*;
use sluice_config::FreezeInput;
use sluice_model::job::JobGraph;

const LIST: &str = "- project: {name: org/project, check: {jobs: [first, a, b]}}\n";

fn needs(graph: &JobGraph, name: &str) -> Vec<String> {
    let of = |soft| if soft { " softly" } else { "" };
    job(graph, name)
        .dependencies
        .iter()
        .map(|one| format!("{}{}", one.name, of(one.soft)))
        .collect()
}

/// Z4.3: no other job runs before the initializers have succeeded, whatever its dependencies.
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

/// Z4.3: a dependency of an initializer closes a cycle
#[test]
fn a_dependency_of_an_initializer_on_another_job_is_a_cycle() {
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

/// Z4.3: a reporter is marked when frozen. It may depend on other jobs, but no job may depend on
/// it.
#[test]
fn a_reporter_is_frozen_apart_from_the_jobs_that_are_reported() {
    let jobs = "
- job: {name: first, type: reporter, run: r, dependencies: [a], provides: [docs], hold-following-changes: true}
- job: {name: a, run: r}
- job: {name: b, run: r, dependencies: [{name: first, soft: true}]}
";
    let layout = tenant().file("org/config", &format!("{BASE}{jobs}{LIST}")).sound();
    let name = project("org/project");
    let (graph, trace) = layout.freeze_with_trace(&FreezeInput::change("check", &name, "master"));
    let graph = graph.unwrap();
    assert!(trace.iter().any(|job| job.job == "first" && job.runs), "{trace:?}");
    let reporters: Vec<bool> = graph.summaries().iter().map(|summary| summary.reporter).collect();
    assert_eq!(reporters, [true, false, false]);
    assert_eq!((needs(&graph, "first"), needs(&graph, "b")), (vec!["a".to_owned()], vec![]));
    let first = &graph.summaries()[0];
    assert!(
        first.provides.is_empty() && !first.hold_following_changes,
        "no job depends on it: {first:?}"
    );
}

/// Z4.3: a reported job cannot depend on a job that runs after the report.
#[test]
fn a_dependency_on_a_reporter_is_an_error() {
    let jobs = "
- job: {name: first, type: reporter, run: r}
- job: {name: a, run: r}
- job: {name: b, run: r}
";
    let list =
        "- project: {name: org/project, check: {jobs: [first, a, b: {dependencies: [first]}]}}\n";
    let layout = tenant().file("org/config", &format!("{BASE}{jobs}{list}")).sound();
    let name = project("org/project");
    let errors = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].short_text().contains("Job b depends on first, a reporter"), "{errors:#?}");
}

/// Z4.3, Z2.2: the project that lists a reporter needs the permission, wherever the job is defined.
/// The diagnostic is at the list.
#[test]
fn only_config_projects_and_permitted_projects_list_a_reporter() {
    let job = "- job: {name: publish, type: reporter, run: r}\n";
    let list = "- project:\n    check:\n      jobs:\n        - publish\n";
    let of_tenant = |let_it: &str| {
        tenant_of(&format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n          - org/project: {{{let_it}}}\n"
        ))
    };
    let name = project("org/project");
    let freeze = |let_it: &str| {
        let tenant =
            of_tenant(let_it).file("org/config", &format!("{BASE}{job}")).file("org/project", list);
        tenant.sound().freeze(&FreezeInput::change("check", &name, "master"))
    };
    let errors = freeze("").unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].short_text().contains("Job publish is a reporter"), "{errors:#?}");
    assert_eq!(
        (errors[0].project.as_str(), errors[0].diagnostic.start.line()),
        ("github.com/org/project", 4)
    );
    assert_eq!(freeze("allow-reporter-jobs: true").unwrap().jobs.len(), 1);
    let listed = "- project: {name: org/project, check: {jobs: [publish]}}\n";
    let layout = of_tenant("").file("org/config", &format!("{BASE}{job}{listed}")).sound();
    assert_eq!(
        layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap().jobs.len(),
        1
    );
}

/// Z4.3, Z2.2: the project that uses a template needs the permission, not the one that defines it.
#[test]
fn a_template_with_a_reporter_is_checked_where_it_is_used() {
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n          - org/project\n          - org/project1: {allow-reporter-jobs: true}\n";
    let job = "- job: {name: publish, type: reporter, run: r}\n";
    let template = "- project-template: {name: t, check: {jobs: [publish]}}\n";
    let names_it = "- project: {name: org/project, templates: [t]}\n";
    // The projects that define and use the template.
    let rows = [
        ("org/project1", "org/project", false),
        ("org/config", "org/project", false),
        ("org/project1", "org/config", true),
        ("org/project", "org/config", true),
    ];
    let name = project("org/project");
    for (of_template, of_stanza, is_let) in rows {
        let texts = ["org/config", "org/project", "org/project1"].map(|file| {
            let base = if file == "org/config" { format!("{BASE}{job}") } else { String::new() };
            let template = if file == of_template { template } else { "" };
            let names_it = if file == of_stanza { names_it } else { "" };
            (file, format!("{base}{template}{names_it}"))
        });
        let written = texts.iter().filter(|(_, text)| !text.is_empty());
        let tenant = written.fold(tenant_of(main), |tenant, (file, text)| tenant.file(file, text));
        match tenant.sound().freeze(&FreezeInput::change("check", &name, "master")) {
            Ok(graph) => {
                assert!(is_let && graph.jobs.len() == 1, "{of_template} {of_stanza}: {graph:#?}")
            }
            Err(errors) => {
                assert!(!is_let && errors.len() == 1, "{of_template} {of_stanza}: {errors:#?}");
                let text = errors[0].short_text();
                assert!(
                    text.contains(
                        "github.com/org/project lists it, directly or through a template"
                    ),
                    "{text}"
                );
            }
        }
    }
}
