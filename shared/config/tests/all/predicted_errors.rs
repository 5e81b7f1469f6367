//! Diagnostics of freezing jobs, predicted before there is a change.

use crate::common::{BASE, project, tenant};
use sluice_config::{Coverage, Layout};

/// Returns the predicted diagnostics of `org/project` on branches, one line each.
fn foreseen(layout: &Layout, branches: &[&str], known: Coverage) -> Vec<String> {
    let branches = branches.iter().map(|branch| (*branch).into()).collect();
    let found = layout.foresee(&[(project("org/project"), branches)], known).diagnostics;
    let line = |error: &sluice_config::ConfigError| {
        let problem = &error.diagnostic;
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

/// Z6.6, Z4.7, J07, J08, J10: everything that prevents jobs from being frozen is predicted at its
/// place, once.
#[test]
fn freezing_errors_are_predicted() {
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
        // The last definition that set the attribute is marked.
        (
            "check: {jobs: [slow: {timeout: 60}]}",
            &[
                "org/project@master:1 error: The job \"slow\" has a pre-timeout of 90 seconds, which exceeds its timeout of 60 seconds",
            ],
        ),
        (
            "check: {jobs: [unit: {dependencies: [shut]}]}",
            &["org/project@master:1 error: Job unit depends on shut which was not run."],
        ),
        // A job that depends on a broken one yields no diagnostic of its own.
        (
            "check: {jobs: [parent, unit: {dependencies: [parent]}]}",
            &["org/project@master:1 error: Job parent is abstract and may not be directly run"],
        ),
        (
            "open: {jobs: [secretive]}",
            &[
                "org/project@master:1 error: Pipeline open does not allow jobs with secrets, but secretive uses secrets",
            ],
        ),
    ];
    for (lists, expected) in cases {
        let layout = tenant()
            .file("org/config", &format!("{BASE}{jobs}"))
            .file("org/project", &format!("- project: {{{lists}}}"))
            .sound();
        assert_eq!(foreseen(&layout, &["master"], Coverage::Tenant), expected, "{lists}");
    }
}

/// Z6.6, C08, C09, C11: diagnostics of the layout and their consequences are not repeated.
#[test]
fn diagnostics_of_the_layout_are_not_repeated() {
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
        assert_eq!(foreseen(&layout, &["master"], Coverage::Tenant), Vec::<String>::new(), "{job}");
    }
}

/// Z4.2: a job whose parent has no definition for a branch does not run there, which is not visible
/// in its file.
#[test]
fn a_branch_without_the_parent_job_is_reported() {
    let layout = tenant()
        .branches("org/project", &["master", "stable"])
        .branches("org/project1", &["main", "old"])
        .file("org/config", &format!("{BASE}- job: {{name: unit, parent: lib}}\n- project: {{name: org/project, check: {{jobs: [unit, late]}}}}\n- job: {{name: late, branches: master, run: r}}\n"))
        .at("org/project1", "main", ".zuul.yaml", "- job: {name: lib, branches: [stable], run: r}\n")
        .sound();
    let diagnostics = "Job unit does not run: no definition of lib, which it inherits from, matches this branch (for master)";
    let found = foreseen(&layout, &["master", "stable"], Coverage::Tenant);
    // A job restricted to some branches does so on purpose.
    assert_eq!(found, [format!("org/config@master:19 warning: {diagnostics}")]);
}

/// Z6.6: when only one repository is checked, references to other repositories are not errors.
#[test]
fn references_to_other_repositories_are_not_errors() {
    let own = "
- job: {name: unit, parent: elsewhere, nodeset: big, secrets: [key], image-build-name: disk, run: r}
- job: {name: only, allowed-projects: [another], run: r}
- job: {name: parent, abstract: true, run: r}
- project:
    templates: [usual]
    check: {jobs: [unit, only, other: {dependencies: [unit, another]}]}
    somewhere: {jobs: [unit: {dependencies: [only]}, parent]}
";
    let layout = tenant().file("org/project", own).build();
    let found = foreseen(&layout, &["master"], Coverage::Repository);
    assert_eq!(
        found,
        [
            "org/project@master:8 warning: Job unit depends on only which was not run.",
            "org/project@master:8 error: Job parent is abstract and may not be directly run",
        ]
    );
}

/// Z4.9: jobs that would run the playbook of their own name are listed, so that the file can be
/// checked.
#[test]
fn jobs_without_run_are_listed() {
    let own = "- job: {name: own}\n- project: {check: {jobs: [own, base]}}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", own).sound();
    let foreseen =
        layout.foresee(&[(project("org/project"), vec!["master".into()])], Coverage::Tenant);
    let names: Vec<&str> = foreseen.implied.iter().map(|job| job.name.as_str()).collect();
    assert_eq!((names, foreseen.untried), (vec!["base", "own"], 0));
}
