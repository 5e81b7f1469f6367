//! What changes would be told when their jobs are frozen, found before there is one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{BASE, project, tenant};
use sluice_config::{Known, Layout};

/// Returns what is foreseen of `org/project` on branches, a line each.
fn foreseen(layout: &Layout, branches: &[&str], known: Known) -> Vec<String> {
    let branches = branches.iter().map(|branch| (*branch).into()).collect();
    let found = layout.foresee(&[(project("org/project"), branches)], known).found;
    let line = |error: &sluice_config::ConfigError| {
        let problem = &error.problem;
        format!(
            "{}@{}:{} {}: {}",
            error.project.name(),
            error.branch,
            problem.start.line(),
            problem.severity.word(),
            problem.message
        )
    };
    found.iter().map(line).collect()
}

/// Z6.6, Z4.7, J07, J08, J10: whatever keeps jobs from being frozen is known before there is a
/// change, at its place, once.
#[test]
fn what_can_not_be_frozen_is_foreseen() {
    let jobs = "
- job: {name: shut, final: true, run: r}
- job: {name: parent, abstract: true, run: r}
- job: {name: reviewed, post-review: true, run: r}
- job: {name: unit, run: r}
- job: {name: slow, pre-timeout: 90, run: r}
- job: {name: secretive, run: r, secrets: [token]}
- secret: {name: token, data: {a: b}}
- pipeline: {name: open, manager: independent, post-review: true, allow-secrets: false}
";
    let cases: [(&str, &[&str]); 9] = [
        ("check: {jobs: [unit]}", &[]),
        (
            "check: {jobs: [unit, shut: {timeout: 3}]}",
            &["org/project@master:1 error: Unable to modify final job shut attribute timeout"],
        ),
        (
            "check: {jobs: [parent]}",
            &["org/project@master:1 error: Job parent is abstract and may not be directly run"],
        ),
        (
            "check: {jobs: [reviewed]}",
            &[
                "org/project@master:1 error: Pre-review pipeline check does not allow post-review job reviewed",
            ],
        ),
        ("open: {jobs: [reviewed]}", &[]),
        // Whoever spoke last is told.
        (
            "check: {jobs: [slow: {timeout: 60}]}",
            &[
                "org/project@master:1 error: The job \"slow\" has a pre-timeout of 90 seconds, which may be at most its timeout of 60",
            ],
        ),
        (
            "check: {jobs: [unit: {dependencies: [shut]}]}",
            &["org/project@master:1 error: Job unit depends on shut which was not run."],
        ),
        // One mistake is told once: the job that waits for a broken one is not another.
        (
            "check: {jobs: [parent, unit: {dependencies: [parent]}]}",
            &["org/project@master:1 error: Job parent is abstract and may not be directly run"],
        ),
        (
            "open: {jobs: [secretive]}",
            &[
                "org/project@master:1 error: Pipeline open does not allow jobs with secrets, but secretive has some",
            ],
        ),
    ];
    for (lists, expected) in cases {
        let layout = tenant()
            .file("org/config", &format!("{BASE}{jobs}"))
            .file("org/project", &format!("- project: {{{lists}}}"))
            .sound();
        assert_eq!(foreseen(&layout, &["master"], Known::Tenant), expected, "{lists}");
    }
}

/// Z6.6, C08, C09, C11: what the layout tells by itself is not told again, and what depends on it
/// is not told at all.
#[test]
fn what_is_told_already_is_not_told_again() {
    let jobs = "
- job: {name: shut, final: true, run: r}
- nodeset: {name: one, alternatives: [two]}
- nodeset: {name: two, alternatives: [one]}
- secret: {name: foreign, data: {a: b}}
";
    let cases = [
        "- job: {name: own, parent: shut, run: r}",
        "- job: {name: own, parent: nothing}",
        "- job: {name: own, parent: own}",
        "- job: {name: own, run: r, nodeset: nothing}",
        "- job: {name: own, run: r, nodeset: one}",
        "- job: {name: own, run: r, secrets: [nothing]}",
        "- job: {name: own, run: r, secrets: [foreign]}",
        "- job: {name: own, run: r, required-projects: [nothing]}",
        "- job: {name: own, run: r, ansible-version: 7}",
        "- job: {name: own, run: r, pre-timeout: 90, timeout: 60}",
        "- job: {name: own, run: r, semaphores: [s], pre-run: {name: p, semaphores: [s]}}",
        "- job: {name: own, run: r, dependencies: [nothing]}",
        "- job: {name: own, nam: own}",
    ];
    for job in cases {
        let file = format!(
            "{job}\n- project: {{gate: {{jobs: [own]}}, nowhere: {{jobs: [own]}}, templates: [none]}}\n"
        );
        let layout = tenant()
            .file("org/config", &format!("{BASE}{jobs}"))
            .file("org/project", &file)
            .build();
        assert!(!layout.errors().is_empty(), "{job}");
        assert_eq!(foreseen(&layout, &["master"], Known::Tenant), Vec::<String>::new(), "{job}");
    }
}

/// Z4.2: a job that inherits from one without a definition for a branch does not run there; who
/// reads the file does not see it.
#[test]
fn a_branch_without_the_parent_is_named() {
    let layout = tenant()
        .branches("org/project", &["master", "stable"])
        .branches("org/project1", &["main", "old"])
        .file("org/config", &format!("{BASE}- job: {{name: unit, parent: lib}}\n- project: {{name: org/project, check: {{jobs: [unit, late]}}}}\n- job: {{name: late, branches: master, run: r}}\n"))
        .at("org/project1", "main", ".zuul.yaml", "- job: {name: lib, branches: [stable], run: r}\n")
        .sound();
    let told = "Job unit does not run: no definition of lib, which it inherits from, is for this branch (for master)";
    let found = foreseen(&layout, &["master", "stable"], Known::Tenant);
    // A job of its own that is for some branches only is meant so.
    assert_eq!(found, [format!("org/config@master:19 warning: {told}")]);
}

/// Z6.6: of one repository alone, what other repositories may say is no mistake.
#[test]
fn what_others_may_define_is_no_mistake() {
    let own = "
- job: {name: unit, parent: elsewhere, nodeset: big, secrets: [key], image-build-name: disk, run: r}
- job: {name: only, allowed-projects: [somebody], run: r}
- job: {name: parent, abstract: true, run: r}
- project:
    templates: [usual]
    check: {jobs: [unit, only, other: {dependencies: [unit, another]}]}
    somewhere: {jobs: [unit: {dependencies: [only]}, parent]}
";
    let layout = tenant().file("org/project", own).build();
    let found = foreseen(&layout, &["master"], Known::Repository);
    assert_eq!(
        found,
        [
            "org/project@master:8 warning: Job unit depends on only which was not run.",
            "org/project@master:8 error: Job parent is abstract and may not be directly run",
        ]
    );
}

/// Z4.9: jobs that would run the playbook of their name are told, so that somebody may look for it.
#[test]
fn jobs_without_a_run_are_told() {
    let own = "- job: {name: own}\n- project: {check: {jobs: [own, base]}}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", own).sound();
    let foreseen =
        layout.foresee(&[(project("org/project"), vec!["master".into()])], Known::Tenant);
    let names: Vec<&str> = foreseen.implied.iter().map(|job| job.name.as_str()).collect();
    assert_eq!((names, foreseen.untried), (vec!["base", "own"], 0));
}
