//! Limits on short files that expand to large configurations. Exceeding a limit yields a diagnostic
//! at the cause.

use crate::common::*;
use sluice_config::{ConfigError, FreezeInput, Layout, Scope};
use std::fmt::Write as _;
use std::path::Path;

fn corpus_file(name: &str) -> String {
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

/// Z3.1, C09: nodesets in a cycle are refused at their definitions, and so is a job that uses one.
#[test]
fn nodesets_in_a_cycle_are_refused_at_their_definitions() {
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", &corpus_file("alternatives.yaml"))
        .build();
    let diagnostics: Vec<(u32, String)> = layout
        .errors()
        .iter()
        .map(|error| (error.diagnostic.start.line(), error.short_text()))
        .collect();
    let circle = |names: &str| names.to_owned();
    assert_eq!(
        diagnostics,
        [
            (4, circle("The nodeset \"itself\" contains itself: itself → itself")),
            (5, circle("The nodeset \"one\" contains itself: one → other → one")),
            (6, circle("The nodeset \"other\" contains itself: other → one → other")),
            (12, circle("The nodeset \"third\" has more than 256 alternatives; remove some")),
            (13, circle("The nodeset \"fourth\" has more than 256 alternatives; remove some")),
        ]
    );
    let refused: Vec<String> = refusals(&layout).iter().map(ConfigError::short_text).collect();
    assert_eq!(
        refused,
        [
            "The nodeset itself of job around contains itself: itself → itself",
            "The nodeset fourth of job wide has more than 256 alternatives; remove some",
        ]
    );
}

/// Z6.6: a cycle closed by a change is reported at both ends, including the file that the change
/// does not edit.
#[test]
fn a_nodeset_cycle_closed_by_a_change_is_reported_at_both_ends() {
    let tenant = tenant()
        .file("org/config", BASE)
        .file("org/project1", "- nodeset: {name: one, alternatives: [other]}")
        .file("org/project", "- nodeset: {name: other, nodes: [{name: n, label: l}]}");
    let layout = tenant.sound();
    let closing =
        tenant.proposal("org/project", "master", "- nodeset: {name: other, alternatives: [one]}");
    let found = layout.overlay(&[closing], Scope::UntrustedOnly).errors_since(&layout);
    let mut diagnostics: Vec<&str> = found.iter().map(|error| error.project.name()).collect();
    diagnostics.sort_unstable();
    assert_eq!(diagnostics, ["org/project", "org/project1"], "{found:#?}");
}

/// Z3.1: a chain of alternatives that is too deep is refused, not truncated.
#[test]
fn the_nesting_depth_of_nodesets_is_limited() {
    let mut text = "- nodeset: {name: n0, nodes: [{name: n, label: l}]}\n".to_owned();
    for number in 1..=40 {
        let _ = writeln!(text, "- nodeset: {{name: n{number}, alternatives: [n{}]}}", number - 1);
    }
    let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
    let diagnostics: Vec<u32> =
        layout.errors().iter().map(|error| error.diagnostic.start.line()).collect();
    assert_eq!(diagnostics, (34..=41).collect::<Vec<u32>>());
    let many = vec!["{nodes: [{name: n, label: l}]}"; 257].join(", ");
    let wide = format!("- nodeset: {{name: wide, alternatives: [{many}]}}\n");
    let layout = tenant().file("org/config", BASE).file("org/project", &wide).build();
    assert!(messages(&layout)[0].contains("at most 256 alternatives"), "{:?}", messages(&layout));
}

/// Z6.2: a template that is listed several times is applied once, at its first place.
#[test]
fn a_template_listed_twice_is_applied_once() {
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
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", &corpus_file("templates.yaml"))
        .build();
    assert_eq!(frozen(&layout).iter().map(|job| job.inheritance.len()).max(), Some(3));
}

/// Z6.2: the number of jobs per pipeline is limited; the diagnostic marks the first entry beyond
/// the limit.
#[test]
fn the_number_of_jobs_of_a_project_is_limited() {
    let mut text = "- job: {name: a, run: r}\n- project:\n    check:\n      jobs:\n".to_owned();
    text += &"        - a\n".repeat(2_001);
    let layout = tenant().file("org/config", BASE).file("org/project", &text).sound();
    let refused = refusals(&layout);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].short_text(), "The project lists more than 2000 jobs in the pipeline");
    assert_eq!(refused[0].diagnostic.start.line(), 5 + 2_000);
}

/// Z4.1: many children of one long parent would each copy it. The total is limited, and reported
/// once.
#[test]
fn the_total_size_of_inherited_jobs_is_limited() {
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
    assert!(refused[0].short_text().contains("exceed 64 MiB for one change"), "{refused:#?}");
    let variants = "- job: {name: a, run: r}\n".repeat(1_001) + "- project: {check: {jobs: [a]}}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", &variants).sound();
    assert!(refusals(&layout)[0].short_text().contains("More than 1000 definitions of job a"));
}

/// Z2.2: an untrusted repository may not match projects of the tenant by a pattern.
#[test]
fn project_patterns_are_reserved_to_config_projects() {
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", "- project: {name: ^.*/project$, check: {jobs: []}}")
        .build();
    assert_eq!(
        messages(&layout),
        [
            "Within github.com/org/project, only a stanza for the project itself is permitted, but this stanza is for ^.*/project$"
        ]
    );
}

/// L3.2: each label inherits all attributes of its section, so both the number of labels and their
/// total size are limited.
#[test]
fn the_number_and_total_size_of_labels_are_limited() {
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
            .filter(|error| error.diagnostic.severity == sluice_config::Severity::Error);
        let diagnostics: Vec<String> = errors.map(ConfigError::short_text).collect();
        (diagnostics, layout.providers()[0].labels.len())
    };
    assert_eq!(with(1_000, ""), (vec![], 1_000));
    assert_eq!(
        with(1_001, ""),
        (vec!["A provider can have at most 1000 labels, but this one has 1001".to_owned()], 1_000)
    );
    let (diagnostics, labels) = with(1_000, &"x".repeat(200_000));
    assert_eq!(diagnostics.len(), 1);
    assert!(diagnostics[0].contains("exceed 64 MiB") && labels < 1_000, "{diagnostics:?} {labels}");
}

/// Z4.1, X10, Z6.6: an inheritance cycle is reported when the jobs are read, for each job of the
/// cycle at its parent. This includes jobs that the change does not edit, but not jobs that only
/// inherit from the cycle.
#[test]
fn inheritance_cycles_are_reported_before_a_job_is_frozen() {
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
    // If definitions are limited to branches, a cycle is only known for a specific branch.
    let apart = "- job: {name: c, run: r}\n- job: {name: c, branches: old, parent: a}\n";
    let own = "- job: {name: a, parent: b}\n- job: {name: b, branches: new, parent: c}\n- job: {name: b, branches: old, run: r}\n";
    tenant().file("org/config", BASE).file("org/project", own).file("org/project1", apart).sound();
    // A cycle back to a job with an earlier definition ends there: that definition runs.
    let twice = "- job: {name: a, run: r}\n- job: {name: a, parent: b}\n- job: {name: b, parent: a}\n- project: {check: {jobs: [a]}}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", twice).build();
    assert_eq!(messages(&layout), ["Dependency cycle detected in the parents of job b: b → a → b"]);
    assert!(
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).is_ok()
    );
}
