//! What attributes mean, a table each: how values combine, what secrets see, which branches and
//! projects count.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use serde_json::{Value, json};
use sluice_config::{FreezeInput, Layout, Scope};
use sluice_model::job::FrozenJob;

fn frozen(layout: &Layout, branch: &str) -> Vec<FrozenJob> {
    let name = project("org/project");
    layout
        .freeze(&FreezeInput::change("check", &name, branch))
        .unwrap_or_else(|errors| panic!("{errors:#?}"))
        .jobs
}

/// Z4.1: a list or mapping is added to or replaced as its attribute has the habit, and a tag says
/// otherwise.
#[test]
fn tags_say_whether_a_value_is_added_or_replaces() {
    // The attribute, the parent's value, the child's; what comes of it plain, with !override, and
    // with !inherit.
    let rows = [
        (
            "vars",
            "{a: 1, m: {x: 1}}",
            "{b: 2, m: {y: 2}}",
            [
                json!({"a": 1, "b": 2, "m": {"x": 1, "y": 2}}),
                json!({"b": 2, "m": {"y": 2}}),
                json!({"a": 1, "b": 2, "m": {"x": 1, "y": 2}}),
            ],
        ),
        (
            "extra-vars",
            "{a: 1}",
            "{b: 2}",
            [json!({"a": 1, "b": 2}), json!({"b": 2}), json!({"a": 1, "b": 2})],
        ),
        (
            "host-vars",
            "{h: {a: 1}}",
            "{h: {b: 2}}",
            [
                json!({"h": {"a": 1, "b": 2}}),
                json!({"h": {"b": 2}}),
                json!({"h": {"a": 1, "b": 2}}),
            ],
        ),
        (
            "group-vars",
            "{g: {a: 1}}",
            "{o: {b: 2}}",
            [
                json!({"g": {"a": 1}, "o": {"b": 2}}),
                json!({"o": {"b": 2}}),
                json!({"g": {"a": 1}, "o": {"b": 2}}),
            ],
        ),
        (
            "tags",
            "[b, a]",
            "[c, a]",
            [json!(["a", "b", "c"]), json!(["a", "c"]), json!(["a", "b", "c"])],
        ),
        ("provides", "[b]", "[a]", [json!(["a", "b"]), json!(["a"]), json!(["a", "b"])]),
        ("requires", "[b]", "[a]", [json!(["a", "b"]), json!(["a"]), json!(["a", "b"])]),
        (
            "dependencies",
            "[x]",
            "[{name: y, soft: true}]",
            [json!(["y"]), json!(["y"]), json!(["x", "y"])],
        ),
        (
            "required-projects",
            "[org/project1]",
            "[org/project2]",
            [
                json!(["github.com/org/project1", "github.com/org/project2"]),
                json!(["github.com/org/project2"]),
                json!(["github.com/org/project1", "github.com/org/project2"]),
            ],
        ),
    ];
    for (attribute, parent, child, expected) in rows {
        for (tag, expected) in ["", "!override ", "!inherit "].into_iter().zip(expected) {
            let text = format!(
                "{BASE}- job: {{name: x, run: r}}\n- job: {{name: y, run: r}}\n- job: {{name: top, run: r, {attribute}: {parent}}}\n- job: {{name: test, parent: top, {attribute}: {tag}{child}}}\n- project: {{name: org/project, check: {{jobs: [x, y, test]}}}}\n"
            );
            let jobs = frozen(&tenant().file("org/config", &text).sound(), "master");
            let whole =
                serde_json::to_value(jobs.iter().find(|job| job.name.as_str() == "test").unwrap())
                    .unwrap();
            let found = &whole[attribute.replace('-', "_")];
            // Of what is an object here and a name there, the name.
            let named = |one: &Value| {
                ["project", "name"]
                    .iter()
                    .find_map(|key| one.get(key).cloned())
                    .unwrap_or_else(|| one.clone())
            };
            let found = found
                .as_array()
                .map_or_else(|| found.clone(), |list| list.iter().map(named).collect());
            assert_eq!(found, expected, "{attribute}: {tag}{child}");
        }
    }
}

/// Z4.1, J05: files and irrelevant files replace what was there, unless they say that they add to
/// it.
#[test]
fn patterns_of_files_replace_unless_they_inherit() {
    // The attribute and the child's value, and the files that make the job run.
    let rows = [
        ("files", "[^b$]", ["b"].as_slice()),
        ("files", "!override [^b$]", &["b"]),
        ("files", "!inherit [^b$]", &["a", "b"]),
        ("files", "!override []", &["a", "b", "c"]),
        ("irrelevant-files", "[^b$]", &["a", "c"]),
        ("irrelevant-files", "!inherit [^b$]", &["c"]),
    ];
    for (attribute, child, runs) in rows {
        let text = format!(
            "{BASE}- job: {{name: top, run: r, {attribute}: [^a$]}}\n- job: {{name: test, parent: top, {attribute}: {child}}}\n- project: {{name: org/project, check: {{jobs: [test]}}}}\n"
        );
        let layout = tenant().file("org/config", &text).sound();
        let name = project("org/project");
        let does_run = |file: &&str| {
            let files = [(*file).to_owned()];
            !layout
                .freeze(&FreezeInput::change("check", &name, "master").touching(&files))
                .unwrap()
                .jobs
                .is_empty()
        };
        let found: Vec<&str> = ["a", "b", "c"].into_iter().filter(does_run).collect();
        assert_eq!(found, runs, "{attribute}: {child}");
    }
}

/// X01, Z5.3: a secret is seen under the name that the job gives it, by its own playbooks, and by
/// its parents' where it is passed.
#[test]
fn secrets_have_the_jobs_name_and_go_to_parents_only_when_passed() {
    // How the secret is listed; the variable; which playbooks see it.
    let rows = [
        ("password", "password", ["child"].as_slice()),
        ("{name: login, secret: password}", "login", &["child"]),
        ("{name: login, secret: password, pass-to-parent: false}", "login", &["child"]),
        (
            "{name: login, secret: password, pass-to-parent: true}",
            "login",
            &["playbooks/pre.yaml", "top-pre", "child", "top-post", "playbooks/post.yaml"],
        ),
    ];
    for (listed, variable, seen) in rows {
        let text = format!(
            "{BASE}- secret: {{name: password, data: {{word: x}}}}\n- job: {{name: top, pre-run: top-pre, run: top, post-run: top-post}}\n- job: {{name: test, parent: top, run: child, secrets: [{listed}]}}\n- project: {{name: org/project, check: {{jobs: [test]}}}}\n"
        );
        let job = &frozen(&tenant().file("org/config", &text).sound(), "master")[0];
        let playbooks = job.pre_run.iter().chain(&job.run).chain(&job.post_run);
        let with: Vec<&str> = playbooks
            .clone()
            .filter(|playbook| playbook.secrets.contains_key(variable))
            .map(|playbook| playbook.path.as_str())
            .collect();
        assert_eq!(with, seen, "{listed}");
        let used = playbooks.flat_map(|playbook| playbook.secrets.iter());
        assert!(
            used.clone().all(|(name, secret)| name == variable && secret.secret == "password"),
            "{listed}"
        );
        assert!(used.count() >= 1);
    }
}

/// J04, J18: to which branches a definition belongs that names none: those of its file, of its
/// pragma, or all of them.
#[test]
fn a_definition_belongs_to_the_branches_that_are_implied() {
    // What the tenant says of the project, the file's pragma, the project's branches; where the job
    // of `stable` runs.
    let both: &[&str] = &["master", "stable"];
    let rows = [
        ("", "", both, [false, true, false].as_slice()),
        ("", "- pragma: {implied-branch-matchers: false}\n", both, &[true, true, true]),
        ("", "- pragma: {implied-branches: other}\n", both, &[false, false, true]),
        ("", "- pragma: {implied-branches: [master, ^o]}\n", both, &[true, false, true]),
        ("implied-branch-matchers: false", "", both, &[true, true, true]),
        (
            "implied-branch-matchers: false",
            "- pragma: {implied-branch-matchers: true}\n",
            both,
            &[false, true, false],
        ),
        ("", "", &["stable"], &[true, true, true]),
        ("implied-branch-matchers: true", "", &["stable"], &[false, true, false]),
        ("", "- pragma: {implied-branches: stable}\n", &["stable"], &[true, true, true]),
        (
            "implied-branch-matchers: true",
            "- pragma: {implied-branches: other}\n",
            &["stable"],
            &[false, false, true],
        ),
    ];
    for (of_project, pragma, branches, runs) in rows {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [{{org/project: {{{of_project}}}}}]\n"
        );
        let layout = tenant_of(&main)
            .file(
                "org/config",
                &format!("{BASE}- project: {{name: org/project, check: {{jobs: [test]}}}}\n"),
            )
            .at(
                "org/project",
                "stable",
                ".zuul.yaml",
                &format!("{pragma}- job: {{name: test, run: r}}\n"),
            )
            .branches("org/project", branches)
            .sound();
        let found = ["master", "stable", "other"].map(|branch| !frozen(&layout, branch).is_empty());
        assert_eq!(found, runs, "{of_project} {pragma} {branches:?}");
    }
}

/// J04, J18, Z4.2: what an untrusted repository says of its own project is for the branch that says
/// it, whatever pragmas and the tenant say; stanzas of others and templates go by those.
#[test]
fn a_projects_own_stanza_is_for_its_branch_whatever_is_implied() {
    let free = "- pragma: {implied-branch-matchers: false}\n";
    let other = "- pragma: {implied-branches: other}\n";
    let (own, of_other) = (
        "- project: {check: {jobs: [noop]}}\n",
        "- project: {name: org/other, check: {jobs: [noop]}}\n",
    );
    let named = "- project: {branches: other, check: {jobs: [noop]}}\n";
    // What the tenant says of the project, the file of its branch `stable`, and where the job of
    // the project and of the other runs.
    let rows = [
        ("", own.to_owned(), [false, true, false], [false; 3]),
        ("", format!("{free}{own}"), [false, true, false], [false; 3]),
        ("", format!("{other}{own}"), [false, true, false], [false; 3]),
        ("implied-branch-matchers: false", own.to_owned(), [false, true, false], [false; 3]),
        ("", format!("{free}{named}"), [false, false, true], [false; 3]),
        ("configure-projects: org/other", of_other.to_owned(), [false; 3], [false, true, false]),
        ("configure-projects: org/other", format!("{free}{of_other}"), [false; 3], [true; 3]),
        (
            "configure-projects: org/other",
            format!("{other}{of_other}"),
            [false; 3],
            [false, false, true],
        ),
    ];
    for (of_project, file, runs, runs_other) in rows {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [{{org/project: {{{of_project}}}}}, org/other]\n"
        );
        let layout = tenant_of(&main)
            .file("org/config", BASE)
            .at("org/project", "stable", ".zuul.yaml", &file)
            .branches("org/project", &["master", "stable"])
            .sound();
        let of = |name: &str| {
            let name = project(name);
            ["master", "stable", "other"].map(|branch| {
                !layout
                    .freeze(&FreezeInput::change("check", &name, branch))
                    .unwrap()
                    .jobs
                    .is_empty()
            })
        };
        assert_eq!((of("org/project"), of("org/other")), (runs, runs_other), "{of_project} {file}");
    }
}

/// Z2.2: which kinds of objects a project may define: by default, by `include` and `exclude`, of
/// itself and of its group.
#[test]
fn a_project_defines_the_kinds_that_it_is_let() {
    let text = "- job: {name: j, run: r}\n- semaphore: {name: s}\n- nodeset: {name: n, nodes: []}\n- label: {name: l}\n";
    // The project in the tenant's list; whether job, semaphore, nodeset and label are there.
    let rows = [
        ("org/project", [true, true, true, false]),
        ("org/project: {include: [job]}", [true, false, false, false]),
        ("org/project: {include: jobs}", [true, false, false, false]),
        ("org/project: {include: [label, job]}", [true, false, false, true]),
        ("org/project: {exclude: [job]}", [false, true, true, false]),
        ("org/project: {include: [job, semaphore], exclude: [job]}", [false, true, false, false]),
        ("org/project: {include-provider-config: true}", [true, true, true, true]),
        (
            "org/project: {include-provider-config: true, exclude: nodeset}",
            [true, true, false, true],
        ),
        (
            "org/project: {include: [job], include-provider-config: true}",
            [true, false, false, true],
        ),
        (
            "org/project: {include: [job], include-provider-config: true, exclude: label}",
            [true, false, false, false],
        ),
        ("{projects: [org/project], include: [semaphore]}", [false, true, false, false]),
        ("{projects: [org/project], exclude: [semaphore]}", [true, false, true, false]),
        (
            "{projects: [org/project: {include: [job]}], include: [semaphore]}",
            [true, false, false, false],
        ),
        (
            "{projects: [org/project: {exclude: [job]}], exclude: [semaphore]}",
            [false, false, true, false],
        ),
        (
            "{projects: [org/project: {include: [job, nodeset]}], exclude: [job]}",
            [true, false, true, false],
        ),
        (
            "{projects: [org/project: {include: job}], include: nodeset, exclude: job}",
            [true, false, false, false],
        ),
        (
            "{projects: [org/project: {exclude: job}], include: [job, semaphore]}",
            [false, true, false, false],
        ),
        (
            "{projects: [org/project], include: [job, semaphore], exclude: job}",
            [false, true, false, false],
        ),
        ("{projects: [org/project], include-provider-config: true}", [true, true, true, true]),
    ];
    for (listed, expected) in rows {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n          - {listed}\n"
        );
        let users = "- job: {name: user, run: r, nodeset: n}\n- section: {name: x, connection: null}\n- provider: {name: p, section: x, labels: [l]}\n";
        let layout = tenant_of(&main)
            .file("org/config", &format!("{BASE}{users}"))
            .file("org/project", text)
            .build();
        let found = [
            layout.job_names().any(|name| name == "j"),
            layout.semaphore_names().any(|name| name == "s"),
            !messages(&layout).iter().any(|text| text.contains("The nodeset \"n\" was not found")),
            !messages(&layout).iter().any(|text| text.contains("The label \"l\" was not found")),
        ];
        assert_eq!(found, expected, "{listed}: {:?}", messages(&layout));
    }
}

/// Z2.2: configuration of branches that the tenant leaves out is not read; of some it counts for
/// their own changes only, and `load-branch` names the one that counts.
#[test]
fn only_the_branches_that_count_are_read() {
    let text = |branch: &str| {
        format!(
            "- pragma: {{implied-branch-matchers: false}}\n- job: {{name: of-{branch}, run: r}}\n"
        )
    };
    // What the tenant says; the jobs that are read; those that a change of the branch `feature`
    // brings besides.
    let rows = [
        ("", "of-feature of-master of-stable", "of-proposed"),
        ("include-branches: [master, stable]", "of-master of-stable", ""),
        ("exclude-branches: [f.*]", "of-master of-stable", ""),
        ("load-branch: stable", "of-stable", ""),
        ("load-branch: feature", "of-feature", "of-proposed"),
        ("always-dynamic-branches: [f.*]", "of-master of-stable", "of-proposed"),
        (
            "always-dynamic-branches: [f.*], exclude-branches: [feature]",
            "of-master of-stable",
            "of-proposed",
        ),
        ("always-dynamic-branches: [f.*], include-branches: [master]", "of-master", "of-proposed"),
        (
            "always-dynamic-branches: [f.*], include-branches: [feature]",
            "of-feature",
            "of-proposed",
        ),
        ("exclude-unprotected-branches: true", "of-feature of-master of-stable", "of-proposed"),
    ];
    for (said, read, proposed) in rows {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [{{org/project: {{{said}}}}}]\n"
        );
        let mut tenant = tenant_of(&main).file("org/config", BASE);
        for branch in ["master", "stable", "feature"] {
            tenant = tenant.at("org/project", branch, ".zuul.yaml", &text(branch));
        }
        let layout = tenant.sound();
        let jobs = |layout: &Layout| {
            let mut names: Vec<String> = layout
                .job_names()
                .filter(|name| name.starts_with("of-"))
                .map(str::to_owned)
                .collect();
            names.sort();
            names
        };
        assert_eq!(jobs(&layout).join(" "), read, "{said}");
        let overlay = layout.overlay(
            &[tenant.proposal("org/project", "feature", &text("proposed"))],
            Scope::UntrustedOnly,
        );
        let new: Vec<String> =
            jobs(&overlay).into_iter().filter(|name| !jobs(&layout).contains(name)).collect();
        assert_eq!(new.join(" "), proposed, "{said}");
    }
}

/// Z2.2: a proposal for a branch that is left out for want of protection, as for any other that the
/// tenant leaves out, does not count: the layout knows the branches that do.
#[test]
fn a_branch_without_protection_proposes_nothing() {
    let with = |said: &str| {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [{{org/project: {{{said}}}}}]\n"
        );
        let tenant = tenant_of(&main).file("org/config", BASE).branches("org/project", &["master"]);
        let proposal = tenant.proposal("org/project", "mine", "- job: {name: proposed, run: r}\n");
        let overlay = tenant.sound().overlay(&[proposal], Scope::UntrustedOnly);
        overlay.job_names().any(|name| name == "proposed")
    };
    assert!(with(""));
    assert!(!with("exclude-unprotected-branches: true"));
    assert!(!with("exclude-locked-branches: true"));
    assert!(with("exclude-unprotected-branches: true, always-dynamic-branches: m.*"));
}

/// Z2.2, X11: whose stanza a project may write, and where base jobs may be defined.
#[test]
fn who_may_configure_whom_is_said_by_the_tenant() {
    let only = "the only project definition permitted is its own";
    let named = "and those of the untrusted projects that configure-projects names";
    let base = "Base jobs may only be defined in config-projects";
    // What is said of the config and the untrusted project; where the text stands; what is told.
    let rows = [
        ("", "", "org/project", "- project: {name: org/other, check: {jobs: []}}\n", only),
        (
            "",
            "configure-projects: [org/other]",
            "org/project",
            "- project: {name: org/other, check: {jobs: []}}\n",
            "",
        ),
        (
            "",
            "configure-projects: [github.com/org/o.*]",
            "org/project",
            "- project: {name: org/other, check: {jobs: []}}\n",
            "",
        ),
        (
            "",
            "configure-projects: [org/o]",
            "org/project",
            "- project: {name: org/other, check: {jobs: []}}\n",
            named,
        ),
        (
            "",
            "configure-projects: .*",
            "org/project",
            "- project: {name: org/other, check: {jobs: []}}\n",
            "",
        ),
        (
            "",
            "configure-projects: .*",
            "org/project",
            "- project: {name: org/config, check: {jobs: []}}\n",
            named,
        ),
        (
            "",
            "configure-projects: .*",
            "org/project",
            "- project: {name: ^.*/(config|other)$, check: {jobs: []}}\n",
            named,
        ),
        (
            "",
            "configure-projects: [org/other]",
            "org/project",
            "- project: {name: ^.*other$, check: {jobs: []}}\n",
            "",
        ),
        (
            "",
            "configure-projects: [org/other]",
            "org/project",
            "- project: {name: ^.*$, check: {jobs: []}}\n",
            named,
        ),
        ("", "", "org/config", "- project: {name: ^.*$, check: {jobs: []}}\n", ""),
        ("", "", "org/project", "- job: {name: mine, parent: null}\n", base),
        ("", "", "org/config", "- job: {name: mine, parent: null}\n", ""),
        ("allow-base-jobs: false", "", "org/config", "- job: {name: mine, parent: null}\n", base),
        ("allow-base-jobs: true", "", "org/config", "- job: {name: mine, parent: null}\n", ""),
    ];
    for (of_config, of_project, place, text, told) in rows {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/central, {{org/config: {{{of_config}}}}}]\n        untrusted-projects: [{{org/project: {{{of_project}}}}}, org/other]\n"
        );
        let layout = tenant_of(&main).file("org/central", BASE).file(place, text).build();
        let found = messages(&layout);
        assert_eq!(
            found.len(),
            usize::from(!told.is_empty()),
            "{of_config} {of_project} {text}: {found:?}"
        );
        assert!(found.iter().all(|message| message.contains(told)), "{text}: {found:?}");
    }
}

/// Z6.2, X11: a push to one of these may change which pipelines a project takes part in.
#[test]
fn a_layout_tells_who_configures_a_project() {
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/central, org/config]\n        untrusted-projects: [{org/project: {configure-projects: [org/other]}}, org/other, org/third, org/last]\n";
    let layout = tenant_of(main)
        .file("org/central", BASE)
        .file("org/config", "- project: {name: org/last, check: {jobs: []}}\n")
        .file("org/third", "- project-template: {name: shared, check: {jobs: []}}\n")
        .file("org/last", "- project: {templates: [shared]}\n")
        .build();
    let by = |name: &str| -> Vec<String> {
        layout.configured_by(&project(name)).into_iter().map(|one| one.name().to_owned()).collect()
    };
    assert_eq!(by("org/last"), ["org/config", "org/third"]);
    assert_eq!(by("org/other"), ["org/project"]);
    assert_eq!(by("org/third"), Vec::<String>::new());
    assert_eq!(by("org/config"), Vec::<String>::new());
}

/// Z4.1: a job that names no parent inherits from the tenant's default one.
#[test]
fn the_default_parent_is_the_tenants() {
    let with = |said: &str| {
        let main = format!(
            "- tenant:\n    name: one\n    {said}\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project]\n"
        );
        let text = format!(
            "{BASE}- job: {{name: other, parent: null, pre-run: other-pre}}\n- job: {{name: test, run: r}}\n- project: {{name: org/project, check: {{jobs: [test]}}}}\n"
        );
        let job = frozen(&tenant_of(&main).file("org/config", &text).sound(), "master").remove(0);
        job.pre_run.iter().map(|playbook| playbook.path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(with("max-dependencies: 1"), ["playbooks/pre.yaml"]);
    assert_eq!(with("default-parent: other"), ["other-pre"]);
}

/// Z6.2: what a project says of a pipeline besides jobs: from its own stanza or a template, for the
/// branches that it is for.
#[test]
fn debug_and_parameters_are_asked_of_the_layout() {
    let text = "
- project-template: {name: t, check: {parameters: [{name: kind, type: string, default: a}, {name: loud, type: bool}]}}
- project: {name: org/project, templates: [t], check: {parameters: [{name: kind, type: string, default: b}]}}
- project: {name: org/project, branches: stable, check: {debug: true, fail-fast: true}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let name = project("org/project");
    let on = |branch| {
        let parameters = layout.parameters(&name, "check", Some(branch));
        let parameters: Vec<_> =
            parameters.iter().map(|one| (one.name.as_str(), one.default.clone())).collect();
        let input = FreezeInput::change("check", &name, branch);
        (layout.debug(&input), layout.fail_fast(&input), parameters)
    };
    let parameters = vec![("kind", Some(json!("b"))), ("loud", None)];
    assert_eq!(on("master"), (false, false, parameters.clone()));
    assert_eq!(on("stable"), (true, true, parameters));
    assert!(!layout.debug(&FreezeInput::change("gate", &name, "stable")));
}

/// Z6.2, G20: of a project's stanzas and templates the first that says whether to fail fast has
/// said it for all, so that a config project can force it either way.
#[test]
fn fail_fast_is_not_taken_back_by_a_later_stanza() {
    let with = |config: &str, own: &str| {
        let stanza = |said: &str| format!("- project: {{name: org/project, check: {{{said}}}}}\n");
        let text = format!("{BASE}{}", stanza(config));
        let layout = tenant().file("org/config", &text).file("org/project", &stanza(own)).sound();
        layout.fail_fast(&FreezeInput::change("check", &project("org/project"), "master"))
    };
    let [yes, no, nothing] = ["fail-fast: true", "fail-fast: false", "jobs: [noop]"];
    assert!(with(yes, no) && !with(no, yes), "the config project's word stands");
    assert!(
        with(nothing, yes) && with(yes, nothing) && !with(nothing, no) && !with(nothing, nothing)
    );
}

/// Z7.1: a job that asks for an Ansible that is not there is told so, and is not run with another
/// one unsaid.
#[test]
fn an_ansible_version_that_is_not_there_is_refused() {
    let with = |version: &str| {
        let text = format!(
            "{BASE}- job: {{name: test, run: r, ansible-version: {version}}}\n- project: {{name: org/project, check: {{jobs: [test]}}}}\n"
        );
        let layout = tenant().file("org/config", &text).build();
        let name = project("org/project");
        let frozen = layout.freeze(&FreezeInput::change("check", &name, "master"));
        // Whoever proposes it is told, whether or not the job runs for that change.
        assert_eq!(
            messages(&layout).len(),
            usize::from(frozen.is_err()),
            "{:?}",
            messages(&layout)
        );
        frozen.map(|frozen| frozen.jobs.len()).map_err(|errors| format!("{errors:?}"))
    };
    assert_eq!(with("9"), Ok(1));
    assert_eq!(with("'11'"), Ok(1));
    let told = with("2.9").unwrap_err();
    assert!(
        told.contains("Ansible version 2.9, which is not supported; there are 9 and 11"),
        "{told}"
    );
}

/// Z6.2: what an enqueue by hand gives is held against the project's parameters, all mistakes at
/// once; what it leaves out has its default.
#[test]
fn parameters_of_an_enqueue_by_hand_are_held_against_those_of_the_project() {
    let config = "
- pipeline: {name: manual, manager: independent, allow-parameters: true}
- pipeline: {name: closed, manager: independent}
- project:
    name: org/project
    closed: {parameters: [{name: kind, type: string}]}
    manual:
      parameters:
        - {name: kind, type: string, default: a}
        - {name: loud, type: bool}
        - {name: size, type: selection, values: [1, 2], required: true}
        - {name: parts, type: multiple-selection, values: [x, y], default: [x]}
";
    let layout = tenant().file("org/config", config).sound();
    let name = project("org/project");
    let accept = |pipeline: &str, given: serde_json::Value| {
        layout
            .accept_parameters(&name, pipeline, Some("master"), given.as_object().unwrap())
            .map(serde_json::Value::Object)
    };
    assert_eq!(
        accept("manual", json!({"size": 2})),
        Ok(json!({"kind": "a", "parts": ["x"], "size": 2}))
    );
    let all = json!({"kind": "b", "loud": false, "parts": ["x", "y"], "size": 1});
    assert_eq!(accept("manual", all.clone()), Ok(all));
    let wrong =
        accept("manual", json!({"kind": 1, "loud": "yes", "parts": "x", "sise": 1})).unwrap_err();
    assert_eq!(
        wrong,
        [
            "org/project has no parameter \"sise\" in manual (did you mean \"size\"?)",
            "Parameter \"kind\" must be a string",
            "Parameter \"loud\" must be true or false",
            "Parameter \"parts\" must be a list of some of \"x\", \"y\"",
            "Parameter \"size\" must be given",
        ]
    );
    assert_eq!(
        accept("manual", json!({"size": 3})).unwrap_err(),
        ["Parameter \"size\" must be one of 1, 2"]
    );
    assert_eq!(accept("closed", json!({})), Ok(json!({})));
    assert!(accept("closed", json!({"kind": "a"})).unwrap_err()[0].contains("allow-parameters"));
}

/// Z6.2, Z6.6: a default that its parameter may not hold is told where it stands, and not when
/// somebody relies on it.
#[test]
fn a_parameters_default_is_one_that_its_type_allows() {
    let with = |parameter: &str| {
        let text = format!(
            "- project: {{name: org/project, check: {{parameters: [{{name: kind, {parameter}}}]}}}}\n{BASE}"
        );
        tenant().file("org/config", &text).build()
    };
    let rows = [
        (
            "type: string, default: 1",
            "1",
            "must be a string, as its \"type\" says: that is how YAML reads this word, so put it in quotes",
        ),
        ("type: string, default: [a]", "[a]", "must be a string"),
        ("type: bool, default: 'yes'", "'yes'", "must be true or false"),
        ("type: selection, values: [a, b], default: c", "c", "must be one of \"a\", \"b\""),
        ("type: selection, default: c", "c", "of which it has none"),
        (
            "type: multiple-selection, values: [a, 2], default: [a, 3]",
            "[a, 3]",
            "must be a list of some of \"a\", 2",
        ),
        (
            "type: multiple-selection, values: [a], default: b",
            "b}",
            "must be a list of some of \"a\"",
        ),
    ];
    for (parameter, at, told) in rows {
        let layout = with(parameter);
        let [error] = layout.errors() else { panic!("{parameter}: {:#?}", layout.errors()) };
        let problem = &error.problem;
        assert_eq!(problem.attribute.as_deref(), Some("parameters.default"), "{parameter}");
        let text = &problem.message;
        assert!(
            text.contains("the default of the parameter \"kind\"") && text.contains(told),
            "{parameter}: {text}"
        );
        let before = format!(
            "- project: {{name: org/project, check: {{parameters: [{{name: kind, {parameter}}}"
        );
        let column = before.rfind(at).unwrap() + 1;
        assert_eq!(
            (problem.start.line(), problem.start.column()),
            (1, column as u32),
            "{parameter}"
        );
    }
    let fine = [
        ("type: string, default: ''", json!("")),
        ("type: bool, default: no", json!(false)),
        ("type: selection, values: [1, 2], default: 2", json!(2)),
        ("type: multiple-selection, values: [a, b], default: b", json!(["b"])),
        ("type: multiple-selection, values: [a, b], default: []", json!([])),
    ];
    for (parameter, expected) in fine {
        let layout = with(parameter);
        assert_eq!(messages(&layout), [""; 0], "{parameter}");
        let found = layout.parameters(&project("org/project"), "check", Some("master"));
        assert_eq!(found[0].default, Some(expected), "{parameter}");
    }
}
