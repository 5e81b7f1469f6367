//! Short files that ask for much: what they come to is bounded, and whoever wrote them is told
//! where.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use sluice_config::{ConfigError, FreezeInput, Layout, Scope};
use std::fmt::Write as _;
use std::path::Path;

fn kept(name: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name),
    )
    .unwrap()
}

fn refusals(layout: &Layout) -> Vec<ConfigError> {
    let name = project("org/project");
    layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap_err()
}

fn frozen(layout: &Layout) -> Vec<sluice_model::job::FrozenJob> {
    let name = project("org/project");
    layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap().jobs
}

/// Z3.1, C09: a nodeset that comes back to itself is refused where it stands, by all that are part
/// of the circle, and a job that asks for it is told of it instead of being worked out without end.
#[test]
fn nodesets_that_name_each_other_are_refused_at_their_place() {
    let layout =
        tenant().file("org/config", BASE).file("org/project", &kept("alternatives.yaml")).build();
    let told: Vec<(u32, String)> = layout
        .errors()
        .iter()
        .map(|error| (error.problem.start.line(), error.short_text()))
        .collect();
    let circle = |names: &str| names.to_owned();
    assert_eq!(
        told,
        [
            (4, circle("The nodeset \"itself\" comes back to itself: itself → itself")),
            (5, circle("The nodeset \"one\" comes back to itself: one → other → one")),
            (6, circle("The nodeset \"other\" comes back to itself: other → one → other")),
            (12, circle("The nodeset \"third\" comes to more than 256 alternatives; give fewer")),
            (13, circle("The nodeset \"fourth\" comes to more than 256 alternatives; give fewer")),
        ]
    );
    let refused: Vec<String> = refusals(&layout).iter().map(ConfigError::short_text).collect();
    assert_eq!(
        refused,
        [
            "The nodeset itself of job around comes back to itself: itself → itself",
            "The nodeset fourth of job wide comes to more than 256 alternatives; give fewer",
        ]
    );
}

/// Z6.6: a circle that a change closes is told of at both ends, also at the one that the change
/// leaves as it is.
#[test]
fn a_change_that_closes_a_circle_of_nodesets_is_told_of_both_ends() {
    let tenant = tenant()
        .file("org/config", BASE)
        .file("org/project1", "- nodeset: {name: one, alternatives: [other]}")
        .file("org/project", "- nodeset: {name: other, nodes: [{name: n, label: l}]}");
    let layout = tenant.sound();
    let closing =
        tenant.proposal("org/project", "master", "- nodeset: {name: other, alternatives: [one]}");
    let found = layout.overlay(&[closing], Scope::UntrustedOnly).errors_since(&layout);
    let mut told: Vec<&str> = found.iter().map(|error| error.project.name()).collect();
    told.sort_unstable();
    assert_eq!(told, ["org/project", "org/project1"], "{found:#?}");
}

/// Z3.1: names that lead on and on are refused, not cut off.
#[test]
fn nodesets_below_nodesets_have_an_end() {
    let mut text = "- nodeset: {name: n0, nodes: [{name: n, label: l}]}\n".to_owned();
    for number in 1..=40 {
        let _ = writeln!(text, "- nodeset: {{name: n{number}, alternatives: [n{}]}}", number - 1);
    }
    let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
    let told: Vec<u32> = layout.errors().iter().map(|error| error.problem.start.line()).collect();
    assert_eq!(told, (34..=41).collect::<Vec<u32>>());
    let many = vec!["{nodes: [{name: n, label: l}]}"; 257].join(", ");
    let wide = format!("- nodeset: {{name: wide, alternatives: [{many}]}}\n");
    let layout = tenant().file("org/config", BASE).file("org/project", &wide).build();
    assert!(messages(&layout)[0].contains("at most 256 alternatives"), "{:?}", messages(&layout));
}

/// Z6.2: a template counts where it is named first, however often it is named: its entries are
/// applied once.
#[test]
fn a_template_named_again_is_not_applied_again() {
    let text = "
- job: {name: a, run: r}
- project-template: {name: t, check: {jobs: [a: {vars: {x: template}}]}}
- project: {name: org/project, templates: [t, t], check: {jobs: [a: {vars: {x: own}}]}}
- project: {name: org/project, templates: [t]}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let jobs = frozen(&layout);
    assert_eq!(jobs[0].vars["x"], "own");
    let entries = jobs[0].inheritance.iter().filter(|step| step.starts_with("entry ")).count();
    assert_eq!(entries, 2, "{:?}", jobs[0].inheritance);
    let layout =
        tenant().file("org/config", BASE).file("org/project", &kept("templates.yaml")).build();
    assert_eq!(frozen(&layout).iter().map(|job| job.inheritance.len()).max(), Some(3));
}

/// Z6.2: what a project may list for one pipeline is limited; the first entry that is too many is
/// pointed at.
#[test]
fn a_project_lists_so_many_jobs_and_no_more() {
    let mut text = "- job: {name: a, run: r}\n- project:\n    check:\n      jobs:\n".to_owned();
    text += &"        - a\n".repeat(2_001);
    let layout = tenant().file("org/config", BASE).file("org/project", &text).sound();
    let refused = refusals(&layout);
    assert_eq!(refused.len(), 1);
    assert_eq!(
        refused[0].short_text(),
        "More than 2000 jobs are listed for the project in the pipeline"
    );
    assert_eq!(refused[0].problem.start.line(), 5 + 2_000);
}

/// Z4.1: many jobs below one long parent would say all of it again for each: there is an end to it,
/// told once.
#[test]
fn jobs_do_not_inherit_more_than_memory_holds() {
    let long = "x".repeat(100_000);
    let mut text = format!("- job: {{name: top, run: r, vars: {{a: {long}}}}}\n");
    let mut list = String::new();
    for number in 0..1_000 {
        let _ = writeln!(text, "- job: {{name: j{number}, parent: top}}");
        let _ = write!(list, "j{number}, ");
    }
    let _ = writeln!(text, "- project: {{check: {{jobs: [{list}]}}}}");
    let layout = tenant().file("org/config", BASE).file("org/project", &text).sound();
    let refused = refusals(&layout);
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].short_text().contains("come to more than 64 MiB for one change"),
        "{refused:#?}"
    );
    let variants = "- job: {name: a, run: r}\n".repeat(1_001) + "- project: {check: {jobs: [a]}}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", &variants).sound();
    assert!(refusals(&layout)[0].short_text().contains("More than 1000 definitions of job a"));
}

/// Z2.2: a repository that may write its own project's stanza only does not have its patterns tried
/// on the whole tenant.
#[test]
fn a_pattern_of_projects_is_for_config_projects() {
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", "- project: {name: ^.*/project$, check: {jobs: []}}")
        .build();
    assert_eq!(
        messages(&layout),
        [
            "Within github.com/org/project, the only project definition permitted is its own, but this is for ^.*/project$"
        ]
    );
}

/// L3.2: each label has all of its section's attributes, so many labels of long sections are too
/// much, and so are too many labels.
#[test]
fn labels_do_not_inherit_more_than_memory_holds() {
    let list =
        |count: usize| (0..count).map(|number| format!("l{number}")).collect::<Vec<_>>().join(", ");
    let with = |labels: usize, userdata: &str| {
        let mut text =
            format!("- section: {{name: s, connection: null, userdata: '{userdata}'}}\n")
                .replace(", userdata: ''", "");
        text = text.replace(
            "connection: null",
            if userdata.is_empty() { "connection: null" } else { "connection: ec2" },
        );
        for number in 0..labels {
            let _ = writeln!(text, "- label: {{name: l{number}}}");
        }
        let _ = writeln!(text, "- provider: {{name: p, section: s, labels: [{}]}}", list(labels));
        let layout = tenant().file("org/config", &text).build();
        let errors = layout
            .errors()
            .iter()
            .filter(|error| error.problem.severity == sluice_config::Severity::Error);
        let told: Vec<String> = errors.map(ConfigError::short_text).collect();
        (told, layout.providers()[0].labels.len())
    };
    assert_eq!(with(1_000, ""), (vec![], 1_000));
    assert_eq!(
        with(1_001, ""),
        (vec!["A provider has at most 1000 labels, and this one 1001".to_owned()], 1_000)
    );
    let (told, labels) = with(1_000, &"x".repeat(200_000));
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("come to more than 64 MiB") && labels < 1_000, "{told:?} {labels}");
}

/// Z4.1, X10, Z6.6: jobs that inherit from each other in a circle are told so when they are read,
/// each with the way back to itself and where it names its parent, by a change that closes the
/// circle also where it edits nothing; not what only inherits from them.
#[test]
fn circles_of_parents_are_told_before_a_job_is_frozen() {
    let own = "- job: {name: beside, parent: b}\n- job: {name: a, parent: b}\n- job: {name: b, parent: c}\n- job: {name: below, parent: a}\n";
    let (open, closed) = ("- job: {name: c, run: r}\n", "- job: {name: c, parent: a, run: r}\n");
    let of = |text: &str| {
        tenant().file("org/config", BASE).file("org/project", own).file("org/project1", text)
    };
    let expected = ["a: a → b → c → a", "b: b → c → a → b", "c: c → a → b → c"]
        .map(|way| format!("Dependency cycle detected in the parents of job {way}"));
    let (sound, broken) = (of(open).sound(), of(closed).build());
    assert_eq!(messages(&broken), expected);
    assert_eq!(marked(own, &broken.errors()[0]), "b");
    let proposed = |layout: &Layout, text: &str| {
        layout.overlay(&[of(text).proposal("org/project1", "master", text)], Scope::UntrustedOnly)
    };
    let closing = proposed(&sound, closed);
    assert_eq!(
        closing.errors_since(&sound).iter().map(ConfigError::short_text).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(messages(&proposed(&broken, open)), [""; 0]);
    // Where definitions are for other branches, nobody can say before a branch is asked about.
    let apart = "- job: {name: c, run: r}\n- job: {name: c, branches: old, parent: a}\n";
    let own = "- job: {name: a, parent: b}\n- job: {name: b, branches: new, parent: c}\n- job: {name: b, branches: old, run: r}\n";
    tenant().file("org/config", BASE).file("org/project", own).file("org/project1", apart).sound();
    // A way back to a job that has an earlier definition ends there: that job runs, and only the
    // other one never does.
    let twice = "- job: {name: a, run: r}\n- job: {name: a, parent: b}\n- job: {name: b, parent: a}\n- project: {check: {jobs: [a]}}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", twice).build();
    assert_eq!(messages(&layout), ["Dependency cycle detected in the parents of job b: b → a → b"]);
    assert!(
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).is_ok()
    );
}
