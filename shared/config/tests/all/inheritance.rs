//! Inheritance, variants and matchers.

use crate::common::*;
use sluice_config::{FreezeInput, Layout, Scope};
use sluice_model::job::{JobGraph, Playbook};

fn freeze(layout: &Layout, branch: &str) -> JobGraph {
    let org_project = project("org/project");
    layout
        .freeze(&FreezeInput::change("check", &org_project, branch))
        .unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn refusal(layout: &Layout) -> String {
    let org_project = project("org/project");
    let errors = layout.freeze(&FreezeInput::change("check", &org_project, "master")).unwrap_err();
    errors.iter().map(|error| error.short_text()).collect::<Vec<_>>().join("\n")
}

fn paths(playbooks: &[Playbook]) -> Vec<&str> {
    playbooks.iter().map(|playbook| playbook.path.as_str()).collect()
}

const CHECK: &str = "- project:\n    name: org/project\n    check:\n      jobs: [test]\n";

/// J01
#[test]
fn variants_apply_in_order_and_playbooks_nest() {
    let text = "
- job: {name: py27, pre-run: py27-pre, post-run: py27-post, run: py27, timeout: 40, nodeset: {nodes: [{name: n, label: new}]}}
- job: {name: py27, branches: stable/diablo, pre-run: diablo-pre, post-run: diablo-post, run: diablo, timeout: 50, nodeset: {nodes: [{name: n, label: old}]}}
- job: {name: py27, branches: stable/essex, pre-run: essex-pre, run: essex}
- project: {name: org/project, check: {jobs: [py27]}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let seen = |branch: &str| {
        let graph = freeze(&layout, branch);
        let found = job(&graph, "py27").clone();
        (found.timeout_seconds.unwrap(), found.nodesets[0].nodes[0].label.to_string(), found)
    };
    let (timeout, label, master) = seen("master");
    assert_eq!((timeout, label.as_str()), (40, "new"));
    assert_eq!(paths(&master.pre_run), ["playbooks/pre.yaml", "py27-pre"]);
    let (timeout, label, diablo) = seen("stable/diablo");
    assert_eq!((timeout, label.as_str()), (50, "old"));
    assert_eq!(paths(&diablo.pre_run), ["playbooks/pre.yaml", "py27-pre", "diablo-pre"]);
    assert_eq!(paths(&diablo.post_run), ["diablo-post", "py27-post", "playbooks/post.yaml"]);
    assert_eq!(paths(&diablo.run), ["diablo"]);
    let (timeout, label, essex) = seen("stable/essex");
    assert_eq!((timeout, label.as_str(), paths(&essex.run)), (40, "new", vec!["essex"]));
    let levels: Vec<u32> = diablo.pre_run.iter().map(|playbook| playbook.nesting_level).collect();
    assert_eq!(levels, [0, 1, 1]);
}

/// J03
#[test]
fn override_checkout_supplies_the_branch_to_match() {
    let layout = tenant()
        .file("org/config", BASE)
        .at("org/project1", "master", ".zuul.yaml", "- job: {name: parent, run: parent-master}")
        .at("org/project1", "stable", ".zuul.yaml", "- job: {name: parent, run: parent-stable}")
        .at("org/project", "devel", ".zuul.yaml", "- job: {name: test1, parent: parent, override-checkout: stable}\n- project: {check: {jobs: [test1, parent: {override-checkout: master}]}}")
        .branches("org/project", &["master", "devel"])
        .sound();
    let graph = freeze(&layout, "devel");
    assert_eq!(names(&graph), ["test1", "parent"]);
    assert_eq!(
        (paths(&graph.jobs[0].run), paths(&graph.jobs[1].run)),
        (vec!["parent-stable"], vec!["parent-master"])
    );
}

/// J04
#[test]
fn a_stanza_of_one_branch_holds_for_that_branch() {
    let layout = tenant()
        .file("org/config", &format!("{BASE}- job: {{name: central, run: central}}\n"))
        .file("org/project", "- project: {check: {jobs: [central]}}")
        .branches("org/project", &["master", "stable"])
        .sound();
    assert_eq!(names(&freeze(&layout, "master")), ["central"]);
    assert!(freeze(&layout, "stable").jobs.is_empty());
}

/// J18: a pragma removes the implied branch of a job, but not that of a project stanza in the same
/// file.
#[test]
fn a_pragma_removes_the_implied_branch_of_a_job() {
    let list = "- project: {check: {jobs: [everywhere]}}\n";
    let file = format!(
        "- pragma: {{implied-branch-matchers: false}}\n- job: {{name: everywhere, run: r}}\n{list}"
    );
    let with = |stable: &str| {
        let tenant = tenant().file("org/config", BASE).file("org/project", &file);
        tenant.at("org/project", "stable", ".zuul.yaml", stable).sound()
    };
    assert_eq!(names(&freeze(&with(list), "stable")), ["everywhere"]);
    assert!(freeze(&with(""), "stable").jobs.is_empty());
}

/// J05, J06: irrelevant files
#[test]
fn changes_to_irrelevant_files_only_do_not_run_a_job() {
    let text = "
- job: {name: test, run: r, irrelevant-files: [^README$, ^docs/]}
- job: {name: reset, parent: test, irrelevant-files: !override []}
- job: {name: other, run: r}
- project: {name: org/project, check: {jobs: [test, reset, other]}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let org_project = project("org/project");
    let run = |files: &[&str]| {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        let graph = layout
            .freeze(&FreezeInput::change("check", &org_project, "master").touching(&files))
            .unwrap();
        names(&graph).join(" ")
    };
    assert_eq!(run(&["README", "/COMMIT_MSG"]), "reset other");
    assert_eq!(run(&["README", "docs/a", "src"]), "test reset other");
    assert_eq!(run(&["src"]), "test reset other");
}

/// J05: file matchers do not apply to a change without files, such as an empty commit.
#[test]
fn file_matchers_apply_only_to_changes_with_files() {
    let text = "
- job: {name: code, run: r, files: ^src/}
- job: {name: checks, run: r, irrelevant-files: ^docs/}
- job: {name: rest, run: r, files: {regex: ^docs/, negate: true}}
- project: {name: org/project, check: {jobs: [code, checks, rest]}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let org_project = project("org/project");
    // The touched files, and the jobs that run.
    let rows: [(&[&str], &[&str]); 6] = [
        (&[], &["code", "checks", "rest"]),
        (&["/COMMIT_MSG"], &["code", "checks", "rest"]),
        (&["/COMMIT_MSG", "README"], &["checks", "rest"]),
        (&["docs/a"], &[]),
        (&["/COMMIT_MSG", "docs/a"], &[]),
        (&["src/a", "docs/a"], &["code", "checks", "rest"]),
    ];
    for (files, expected) in rows {
        let touched: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        let graph = layout
            .freeze(&FreezeInput::change("check", &org_project, "master").touching(&touched))
            .unwrap();
        assert_eq!(names(&graph), expected, "{files:?}");
    }
}

/// J07, J10: the nodes and the required review are among the attributes that may not change.
#[test]
fn a_final_job_is_not_modified() {
    let text = "- job: {name: test, final: true, run: r}\n";
    for said in ["vars: {a: 1}", "post-review: true", "allowed-projects: [org/project]"] {
        let with = |word: &str| {
            let list = format!("- project: {{check: {{jobs: [test: {{{said}}}]}}}}");
            let text = text.replace("final", word);
            refusal(
                &tenant()
                    .file("org/config", &format!("{BASE}{text}"))
                    .file("org/project", &list)
                    .sound(),
            )
        };
        assert!(with("final").contains("Unable to modify final job"), "{}", with("final"));
        assert!(
            with("protected").contains("is a protected job of a different project"),
            "{}",
            with("protected")
        );
    }
    let harmless = tenant()
        .file("org/config", &format!("{BASE}{text}"))
        .file("org/project", "- project: {check: {jobs: [test: {voting: false}]}}")
        .sound();
    assert!(!freeze(&harmless, "master").jobs[0].voting, "J14");
}

/// J08: abstract jobs
#[test]
fn an_abstract_job_is_not_run() {
    let layout = tenant()
        .file("org/config", &format!("{BASE}- job: {{name: test, abstract: true}}\n{CHECK}"))
        .sound();
    assert!(refusal(&layout).contains("may not be directly run"));
    let child = format!(
        "{BASE}- job: {{name: top, abstract: true, run: r}}\n- job: {{name: test, parent: top}}\n{CHECK}"
    );
    assert_eq!(names(&freeze(&tenant().file("org/config", &child).sound(), "master")), ["test"]);
}

/// J08: only a child of an abstract job can run, not a variant or a list's entry.
#[test]
fn an_abstract_job_stays_abstract_until_something_inherits_from_it() {
    let with = |more: &str, entry: &str| {
        let text = format!(
            "{BASE}- job: {{name: test, abstract: true, run: r}}\n{more}- project: {{name: org/project, check: {{jobs: [{entry}]}}}}\n"
        );
        refusal(&tenant().file("org/config", &text).sound())
    };
    for (more, entry) in
        [("- job: {name: test, abstract: false}\n", "test"), ("", "test: {abstract: false}")]
    {
        assert_eq!(
            with(more, entry),
            "Job test is abstract and may not be directly run",
            "{more}{entry}"
        );
    }
}

/// J09
#[test]
fn a_child_of_an_intermediate_job_is_abstract() {
    let text = format!(
        "{BASE}- job: {{name: top, intermediate: true, abstract: true}}\n- job: {{name: test, parent: top, run: r}}\n{CHECK}"
    );
    let layout = tenant().file("org/config", &text).build();
    assert_eq!(
        messages(&layout),
        [
            "The job \"top\" is intermediate and only abstract jobs can inherit from it, but \"test\" is not abstract"
        ]
    );
    assert!(refusal(&layout).contains("is not abstract"));
}

/// J10: protected jobs
#[test]
fn a_protected_job_has_children_in_its_own_project_only() {
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project1", "- job: {name: guarded, protected: true, run: r}")
        .file(
            "org/project",
            "- job: {name: test, parent: guarded}\n- project: {check: {jobs: [test]}}",
        )
        .build();
    let diagnostics = "The job \"guarded\" is protected in project github.com/org/project1, so jobs in other projects can not inherit from it";
    assert_eq!(messages(&layout), [diagnostics]);
    assert!(
        refusal(&layout).contains("is a protected job of a different project"),
        "{}",
        refusal(&layout)
    );
}

/// J10: the protection cannot be avoided by an unprotected job in between or by another project's
/// list, and cannot be removed. Attributes that do not affect the run may be set in a list.
#[test]
fn a_protected_job_is_changed_in_its_own_project_only() {
    let guarded =
        "- job: {name: guarded, protected: true, run: r}\n- job: {name: middle, parent: guarded}\n";
    let with = |more: &str, own: &str| {
        tenant()
            .file("org/config", BASE)
            .file("org/project1", &format!("{guarded}{more}"))
            .file("org/project", own)
            .sound()
    };
    let list = |entry: &str| format!("- project: {{check: {{jobs: [{entry}]}}}}\n");
    let different = "guarded is a protected job of a different project, github.com/org/project1";
    let child = format!("- job: {{name: test, parent: middle, run: own}}\n{}", list("test"));
    let rows = [
        (child, format!("Job test of github.com/org/project can not inherit from middle: {different}")),
        (list("guarded: {vars: {a: 1}}"), format!("Unable to modify job guarded attribute vars: {different}")),
        (list("middle: {run: own}"), format!("Unable to modify job middle attribute run: {different}")),
        (list("{guarded: {protected: true}}, {guarded: {run: own}}"), String::new()),
        (
            list("guarded: {protected: false}"),
            "Unable to reset protected attribute of job guarded: guarded of github.com/org/project1 is protected, and that can not be undone"
                .to_owned(),
        ),
    ];
    for (own, diagnostics) in rows {
        let refused = refusal(&with("", &own));
        match diagnostics.is_empty() {
            // A variant that sets `protected` too does not take the job over.
            true => assert!(
                refused.contains(&format!("attribute run: {different}")),
                "{own}: {refused}"
            ),
            false => assert_eq!(refused, diagnostics, "{own}"),
        }
    }
    let reset = with("- job: {name: open, parent: guarded, protected: false}\n", &list("open"));
    assert!(
        refusal(&reset).contains("Unable to reset protected attribute of job open"),
        "{}",
        refusal(&reset)
    );
    let harmless = freeze(&with("", &list("guarded: {voting: false, files: [^src/]}")), "master");
    assert!(!harmless.jobs[0].voting);
}

/// Z4.2, C11, J09, J10: which definitions of a parent apply is only known at freezing. A child is
/// refused at load only if every definition of its parent refuses it.
#[test]
fn a_child_is_accepted_at_load_if_any_definition_of_its_parent_allows_it() {
    const FINAL: &str = "is final and can not act as a parent";
    const AUTH: &str = "does not share its credentials with children";
    let child = "- job: {name: test, parent: top, run: own}\n- project: {check: {jobs: [test]}}\n";
    // An attribute of the parent, and what is reported at freezing and at load.
    let rows = [
        ("final: true", FINAL, FINAL),
        ("intermediate: true, abstract: true", "is not abstract", "is not abstract"),
        ("protected: true", "is a protected job of a different project", "is protected in project"),
        ("auth: {secrets: []}", AUTH, AUTH),
    ];
    for (barrier, at_freezing, at_load) in rows {
        let with = |first: &str| {
            let text = format!(
                "- job: {{name: top, run: r{first}}}\n- job: {{name: top, branches: stable, {barrier}}}\n"
            );
            tenant().file("org/config", &format!("{BASE}{text}")).file("org/project", child).build()
        };
        let some = with("");
        assert_eq!(
            (messages(&some), names(&freeze(&some, "master"))),
            (Vec::new(), vec!["test"]),
            "{barrier}"
        );
        let name = project("org/project");
        let refused = some.freeze(&FreezeInput::change("check", &name, "stable")).unwrap_err();
        assert!(refused[0].short_text().contains(at_freezing), "{barrier}: {refused:?}");
        let all = messages(&with(&format!(", {barrier}")));
        assert!(all.len() == 1 && all[0].contains(at_load), "{barrier}: {all:?}");
    }
}

/// X10, Z4.1: a job that names itself as parent is refused at load and does not run, even if an
/// earlier definition of its name is valid.
#[test]
fn a_job_is_not_its_own_parent() {
    let list = "- project: {check: {jobs: [loop]}}\n";
    let own = "- job: {name: loop, parent: loop, run: evil}\n";
    for before in ["", "- job: {name: loop, run: r}\n"] {
        let layout = tenant()
            .file("org/config", BASE)
            .file("org/project", &format!("{before}{own}{list}"))
            .build();
        let diagnostics = "Dependency cycle detected in the parents of job loop: loop → loop";
        assert_eq!(messages(&layout), [diagnostics]);
        assert_eq!(refusal(&layout), diagnostics);
    }
    let circle = "- job: {name: loop, parent: back, run: r}\n- job: {name: back, parent: loop}\n";
    let layout =
        tenant().file("org/config", BASE).file("org/project", &format!("{circle}{list}")).build();
    assert_eq!(
        refusal(&layout),
        "Dependency cycle detected in the parents of job loop: loop → back → loop"
    );
}

/// J13: if a dependency does not run, a soft one is dropped. A hard one is reported in Zuul's
/// words, and nothing runs.
#[test]
fn a_soft_dependency_is_dropped_and_a_hard_one_refused() {
    let org_project = project("org/project");
    let files = ["README".to_owned()];
    // Attributes of the job and of its entry.
    for (job, entry) in [
        ("files: ^src/", "voting: true"),
        ("irrelevant-files: ^README", "voting: true"),
        ("branches: stable", "voting: true"),
        ("voting: true", "branches: stable"),
        ("voting: true", "files: ^src/"),
    ] {
        let with = |soft: bool| {
            let jobs = format!(
                "- job: {{name: build, run: r, {job}}}\n- job: {{name: deploy, run: r}}\n- job: {{name: other, run: r}}\n"
            );
            let list = format!(
                "- project: {{name: org/project, check: {{jobs: [build: {{{entry}}}, deploy: {{dependencies: [{{name: build, soft: {soft}}}]}}, other]}}}}\n"
            );
            let layout = tenant().file("org/config", &format!("{BASE}{jobs}{list}")).sound();
            layout.freeze(&FreezeInput::change("check", &org_project, "master").touching(&files))
        };
        let graph = with(true).unwrap();
        assert_eq!(
            (names(&graph), graph.jobs[0].dependencies.len()),
            (vec!["deploy", "other"], 0),
            "{job} {entry}"
        );
        let errors = with(false).unwrap_err();
        let diagnostics: Vec<String> = errors.iter().map(|error| error.short_text()).collect();
        assert_eq!(
            diagnostics,
            ["Job deploy depends on build which was not run."],
            "{job} {entry}"
        );
    }
}

/// J15
#[test]
fn noop_is_built_in() {
    let layout = tenant()
        .file(
            "org/config",
            &format!("{BASE}- project: {{name: org/project, check: {{jobs: [noop]}}}}\n"),
        )
        .sound();
    let graph = freeze(&layout, "master");
    assert!(graph.jobs[0].run.is_empty() && graph.summaries()[0].labels == [vec![]]);
}

/// J17
#[test]
fn a_job_whose_definition_the_change_edits_runs() {
    let tenant = tenant().file("org/config", BASE).file(
        "org/project",
        "- job: {name: one, run: r, files: ^src/}\n- job: {name: two, run: r, files: ^src/}\n- job: {name: three, run: r, files: ^src/, match-on-config-updates: false}\n- job: {name: four, run: r, irrelevant-files: ^.zuul}\n- project: {check: {jobs: [one, two, three, four]}}",
    );
    let layout = tenant.sound();
    let edited = tenant.proposal(
        "org/project",
        "master",
        "- job: {name: one, run: other, files: ^src/}\n- job: {name: two, run: r, files: ^src/, vars: {a: 1}}\n- job: {name: three, run: other, files: ^src/, match-on-config-updates: false}\n- job: {name: four, run: r, irrelevant-files: ^.zuul}\n- project: {check: {jobs: [one, two, three, four]}}",
    );
    let overlay = layout.overlay(&[edited], Scope::UntrustedOnly);
    let org_project = project("org/project");
    let files = [".zuul.yaml".to_owned()];
    let input = FreezeInput {
        before: Some(&layout),
        ..FreezeInput::change("check", &org_project, "master").touching(&files)
    };
    assert_eq!(names(&overlay.freeze(&input).unwrap()), ["one", "two"]);
    assert!(
        names(&layout.freeze(&FreezeInput { before: None, ..input }).unwrap()).is_empty(),
        "no file of theirs was touched"
    );
}

/// Z4.7, J05, J07, J17: an error of a job is reported only where the job would run: if its files
/// match, or the change edits it. A disallowed attribute is always reported.
#[test]
fn a_disallowed_job_does_not_block_changes_that_do_not_match_its_files() {
    let open =
        "- pipeline: {name: open, manager: independent, post-review: true, allow-secrets: false}\n";
    let name = project("org/project");
    for (said, pipeline, diagnostics) in [
        ("abstract: true", "check", "Job own is abstract and may not be directly run"),
        (
            "allowed-projects: [org/project1]",
            "check",
            "Project org/project is not allowed to run job own",
        ),
        (
            "post-review: true",
            "check",
            "Pre-review pipeline check does not allow post-review job own",
        ),
        (
            "secrets: [key]",
            "open",
            "Pipeline open does not allow jobs with secrets, but own uses secrets",
        ),
    ] {
        let own = format!(
            "- secret: {{name: key, data: {{a: b}}}}\n- job: {{name: own, run: r, files: ^src/, {said}}}\n- job: {{name: other, run: r}}\n- project: {{{pipeline}: {{jobs: [own, other]}}}}\n"
        );
        let tenant =
            tenant().file("org/config", &format!("{BASE}{open}")).file("org/project", &own);
        let layout = tenant.sound();
        let found = |layout: &Layout, before: Option<&Layout>, file: &str| {
            let files = [file.to_owned()];
            let input = FreezeInput::change(pipeline, &name, "master").touching(&files);
            match layout.freeze(&FreezeInput { before, ..input }) {
                Ok(graph) => format!("runs {}", names(&graph).join(" ")),
                Err(errors) => {
                    errors.iter().map(|error| error.short_text()).collect::<Vec<_>>().join("\n")
                }
            }
        };
        assert_eq!(found(&layout, None, "README"), "runs other", "{said}");
        let refused = found(&layout, None, "src/a");
        assert!(
            refused.starts_with(diagnostics) && refused.lines().count() == 1,
            "{said}: {refused}"
        );
        let edited = |from: &str, to: &str| {
            let proposal = tenant.proposal("org/project", "master", &own.replace(from, to));
            found(&layout.overlay(&[proposal], Scope::UntrustedOnly), Some(&layout), ".zuul.yaml")
        };
        assert_eq!(edited("name: own, run: r", "name: own, run: changed"), refused, "{said}");
        assert_eq!(
            edited("name: other, run: r", "name: other, run: changed"),
            "runs other",
            "{said}"
        );
    }
    let fixed = "- job: {name: own, final: true, run: r, files: ^src/}\n- project: {name: org/project, check: {jobs: [own: {timeout: 3}]}}\n";
    let layout = tenant().file("org/config", &format!("{BASE}{fixed}")).sound();
    let files = ["README".to_owned()];
    let errors =
        layout.freeze(&FreezeInput::change("check", &name, "master").touching(&files)).unwrap_err();
    assert_eq!(errors[0].short_text(), "Unable to modify final job own attribute timeout");
}

/// Z4.10: a global job, a variant for stable branches, and an entry with files.
#[test]
fn the_worked_example_freezes_as_documented() {
    let text = "
- job: {name: python27, nodes: [{name: controller, image: ubuntu-trusty}], run: python27}
- job: {name: python27, branches: stable/, nodes: [{name: controller, image: ubuntu-lucid}]}
- project: {name: org/project, check: {jobs: [python27: {files: tests/}]}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let org_project = project("org/project");
    let label = |branch: &str, file: &str| {
        let files = [file.to_owned()];
        let graph = layout
            .freeze(&FreezeInput::change("check", &org_project, branch).touching(&files))
            .unwrap();
        graph.jobs.first().map(|job| job.nodesets[0].nodes[0].label.to_string())
    };
    assert_eq!(label("master", "tests/a").as_deref(), Some("ubuntu-trusty"));
    assert_eq!(label("stable/one", "tests/a").as_deref(), Some("ubuntu-lucid"));
    assert_eq!(label("master", "src/a"), None);
}

/// Z4.9: without `run`, the first existing playbook of the job's name runs.
#[test]
fn a_job_without_run_names_candidates() {
    let layout = tenant()
        .file("org/config", &format!("{BASE}- job: {{name: lint}}\n"))
        .file(
            "org/project",
            "- job: {name: test, parent: lint}\n- project: {check: {jobs: [test]}}",
        )
        .sound();
    let graph = freeze(&layout, "master");
    assert_eq!(paths(&graph.jobs[0].run), ["test", "lint", "base"]);
    assert!(graph.jobs[0].run_time.implied_run);
    let trust: Vec<bool> = graph.jobs[0].run.iter().map(|playbook| playbook.trusted).collect();
    assert_eq!(trust, [false, true, true]);
}

/// Z6.2: a nested job tree becomes dependencies; templates precede the project's own entries.
#[test]
fn job_trees_and_templates_are_flattened() {
    let text = "
- job: {name: tarball, run: r}
- job: {name: pypi-upload, run: r}
- job: {name: docs, run: r}
- project-template: {name: standard, vars: {a: template, b: template}, check: {jobs: [docs, tarball: {voting: false}]}}
- project:
    name: org/project
    templates: [standard]
    vars: {b: project}
    check:
      jobs:
        - tarball:
            jobs: [pypi-upload]
";
    let graph = freeze(&tenant().file("org/config", &format!("{BASE}{text}")).sound(), "master");
    assert_eq!(names(&graph), ["docs", "tarball", "pypi-upload"]);
    assert_eq!(job(&graph, "pypi-upload").dependencies[0].name.as_str(), "tarball");
    assert!(!job(&graph, "tarball").voting);
    assert_eq!(
        serde_json::to_string(&job(&graph, "docs").vars).unwrap(),
        r#"{"a":"template","b":"project"}"#
    );
}

/// Z6.2: a template's variables apply to its own pipelines, a project's variables to all.
#[test]
fn variables_of_a_template_are_for_its_own_pipelines() {
    let text = "
- job: {name: docs, run: r}
- project-template: {name: one, vars: {a: one, b: one}, check: {jobs: [docs]}}
- project-template: {name: two, vars: {a: two, c: two}, gate: {jobs: [docs]}}
- project: {name: org/project, templates: [one, two], vars: {b: project}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let name = project("org/project");
    for (pipeline, expected) in [
        ("check", r#"{"a":"one","b":"project"}"#),
        ("gate", r#"{"a":"two","b":"project","c":"two"}"#),
    ] {
        let graph = layout.freeze(&FreezeInput::change(pipeline, &name, "master")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
        assert_eq!(
            serde_json::to_value(&job(&graph, "docs").vars).unwrap(),
            expected,
            "{pipeline}"
        );
    }
}

/// Z4.6: a child's roles extend its parent's; each playbook uses those of its own definition.
#[test]
fn roles_extend_those_of_the_parent() {
    let layout = tenant()
        .file("org/config", &format!("{BASE}- job: {{name: top, pre-run: p, roles: [{{zuul: org/project1}}]}}\n"))
        .file("org/project", "- job: {name: test, parent: top, run: r, roles: [{zuul: org/project2, name: two}]}\n- project: {check: {jobs: [test]}}")
        .sound();
    let graph = freeze(&layout, "master");
    let roles = |playbook: &Playbook| {
        playbook.role_repositories().map(|role| role.target_name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(roles(&graph.jobs[0].run[0]), ["project", "two", "config", "project1"]);
    assert_eq!(roles(&graph.jobs[0].pre_run[1]), ["config", "project1"]);
}

/// N14: nested alternatives are flattened.
#[test]
fn alternatives_are_flattened() {
    let text = "
- nodeset: {name: fast, nodes: [{name: n, label: fast}]}
- nodeset: {name: any-fast, alternatives: [fast, {nodes: [{name: n, label: faster}]}]}
- nodeset: {name: any, alternatives: [any-fast, {nodes: [{name: n, label: slow}]}]}
- job: {name: test, run: r, nodeset: any}
";
    let graph =
        freeze(&tenant().file("org/config", &format!("{BASE}{text}{CHECK}")).sound(), "master");
    let labels: Vec<String> =
        graph.jobs[0].nodesets.iter().map(|set| set.nodes[0].label.to_string()).collect();
    assert_eq!(labels, ["fast", "faster", "slow"]);
}

/// Z4.7: the trace shows what each variant contributed, and why others did not apply.
#[test]
fn a_trace_shows_what_each_definition_contributed_and_why_others_did_not_apply() {
    let text = "
- job: {name: unit, run: unit.yaml, timeout: 40}
- job: {name: unit, branches: stable, voting: false}
- project: {name: org/project, check: {jobs: [unit: {attempts: 2}, docs: {files: ^docs/}]}}
- job: {name: docs, run: docs.yaml}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let (name, files) = (project("org/project"), ["src/main.c".to_owned()]);
    let input = FreezeInput::change("check", &name, "master").touching(&files);
    let (graph, trace) = layout.freeze_with_trace(&input);
    assert_eq!(names(&graph.unwrap()), ["unit"]);
    let lines: Vec<String> = trace.iter().map(ToString::to_string).collect();
    let lines: Vec<&str> = lines.iter().flat_map(|text| text.lines()).collect();
    let line = BASE.lines().count() + 2;
    assert_eq!(
        lines,
        [
            "job unit runs".to_owned(),
            format!(
                "  + job base from org/config@master .zuul.yaml:{}: parent, pre-run, post-run",
                line - 6
            ),
            format!("  + job unit from org/config@master .zuul.yaml:{line}: timeout, run"),
            format!(
                "  - job unit from org/config@master .zuul.yaml:{}: not applied, its branches do not match master",
                line + 1
            ),
            format!("  + entry unit from org/config@master .zuul.yaml:{}: attempts", line + 2),
            "job docs does not run: no changed file matches its \"files\"".to_owned(),
            format!(
                "  + job base from org/config@master .zuul.yaml:{}: parent, pre-run, post-run",
                line - 6
            ),
            format!("  + job docs from org/config@master .zuul.yaml:{}: run", line + 3),
            format!("  + entry docs from org/config@master .zuul.yaml:{}: files", line + 2),
        ]
    );
}

/// Z4.7: the trace also shows stanzas for other branches.
#[test]
fn a_trace_shows_stanzas_for_other_branches() {
    let text = "
- job: {name: both, run: r}
- job: {name: old, run: r}
- project: {name: org/project, check: {jobs: [both]}}
- project: {name: org/project, branches: ^stable, check: {jobs: [{both: {voting: false}}, old]}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let name = project("org/project");
    let (_, trace) = layout.freeze_with_trace(&FreezeInput::change("check", &name, "master"));
    let entries: Vec<(&str, bool, Vec<bool>)> = trace
        .iter()
        .map(|one| {
            (
                one.job.as_str(),
                one.runs,
                one.steps.iter().map(|step| step.left_out.is_none()).collect(),
            )
        })
        .collect();
    assert_eq!(
        entries,
        [("both", true, vec![true, true, true, false]), ("old", false, vec![false])]
    );
    assert_eq!(trace[1].reason.as_deref(), Some("the branches of its stanza do not match master"));
    assert_eq!(trace[0].steps[3].left_out, trace[1].reason);
    let (_, trace) = layout.freeze_with_trace(&FreezeInput::change("check", &name, "stable"));
    assert!(
        trace.iter().all(|one| one.runs && one.steps.iter().all(|step| step.left_out.is_none())),
        "{trace:#?}"
    );
}
