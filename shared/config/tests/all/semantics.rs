//! Tables of attribute semantics: how values combine, which playbooks see secrets, and which
//! branches and projects apply.

use crate::common::*;
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

/// Z4.1: by default each list or mapping extends or replaces its parent's; a tag inverts that.
#[test]
fn tags_say_whether_a_value_is_added_or_replaces() {
    // The attribute, the parent's value, the child's, and the results without tag, with !override
    // and with !inherit.
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
            // Objects are compared by their names.
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

/// Z4.1, J05: file matchers replace inherited ones, unless tagged to extend them.
#[test]
fn patterns_of_files_replace_unless_they_inherit() {
    // The attribute, the child's value, and the files that run the job.
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

/// X01, Z5.3: a secret has the name given by the job. Its own playbooks see it, and its parents'
/// only if it is passed.
#[test]
fn secrets_have_the_jobs_name_and_go_to_parents_only_when_passed() {
    // How the secret is listed; the variable; the playbooks that see it.
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

/// J04, J18: the implied branches of a definition: those of its file, of its pragma, or all.
#[test]
fn a_definition_applies_to_its_implied_branches() {
    // The tenant's entry, the file's pragma, the project's branches, and where the job of `stable`
    // runs.
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

/// J04, J18, Z4.2: an untrusted repository's stanza for its own project applies to its own branch
/// only. Stanzas for other projects and templates follow pragmas and the tenant's entry.
#[test]
fn a_projects_own_stanza_always_applies_to_its_branch() {
    let free = "- pragma: {implied-branch-matchers: false}\n";
    let other = "- pragma: {implied-branches: other}\n";
    let (own, of_other) = (
        "- project: {check: {jobs: [noop]}}\n",
        "- project: {name: org/other, check: {jobs: [noop]}}\n",
    );
    let named = "- project: {branches: other, check: {jobs: [noop]}}\n";
    // The tenant's entry, the file of branch `stable`, and where the job runs for the project
    // itself and for another one.
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

/// Z2.2: which kinds of objects a project may define: by default, and by `include` and `exclude` of
/// the project and its group.
#[test]
fn a_project_defines_only_permitted_kinds() {
    let text = "- job: {name: j, run: r}\n- semaphore: {name: s}\n- nodeset: {name: n, nodes: []}\n- label: {name: l}\n";
    // The project's entry in the tenant; whether job, semaphore, nodeset and label exist.
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

/// Z2.2: excluded branches are not read, some branches apply only to their own changes, and
/// `load-branch` names the only one that applies.
#[test]
fn only_included_branches_are_read() {
    let text = |branch: &str| {
        format!(
            "- pragma: {{implied-branch-matchers: false}}\n- job: {{name: of-{branch}, run: r}}\n"
        )
    };
    // The tenant's entry; the jobs that are read; those added by a change of branch `feature`.
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

/// Z2.2: a proposal for an excluded or unprotected branch has no effect.
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

/// Z2.2, X11: which projects may configure which others, and where base jobs may be defined.
#[test]
fn the_tenant_decides_which_projects_may_configure_others() {
    let only = "only a stanza for the project itself is permitted";
    let named = "for untrusted projects in \"configure-projects\" are permitted";
    let base = "Base jobs may only be defined in config projects";
    // Entries of the config and the untrusted project; the location of the text; the diagnostics.
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
    for (of_config, of_project, place, text, diagnostics) in rows {
        let main = format!(
            "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/central, {{org/config: {{{of_config}}}}}]\n        untrusted-projects: [{{org/project: {{{of_project}}}}}, org/other]\n"
        );
        let layout = tenant_of(&main).file("org/central", BASE).file(place, text).build();
        let found = messages(&layout);
        assert_eq!(
            found.len(),
            usize::from(!diagnostics.is_empty()),
            "{of_config} {of_project} {text}: {found:?}"
        );
        assert!(found.iter().all(|message| message.contains(diagnostics)), "{text}: {found:?}");
    }
}

/// Z6.2, X11: the projects whose pushes may change a project's pipelines.
#[test]
fn a_layout_lists_the_projects_that_configure_a_project() {
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

/// Z4.1: a job without a parent inherits from the tenant's default parent.
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

/// Z6.2: pipeline attributes of a project besides jobs, from its stanza or a template, by branch.
#[test]
fn a_layout_returns_debug_and_parameters_of_a_project() {
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

/// Z6.2, G20: the first stanza or template that sets fail-fast decides, so that a config project
/// can force it.
#[test]
fn the_first_stanza_that_sets_fail_fast_decides() {
    let with = |config: &str, own: &str| {
        let stanza = |said: &str| format!("- project: {{name: org/project, check: {{{said}}}}}\n");
        let text = format!("{BASE}{}", stanza(config));
        let layout = tenant().file("org/config", &text).file("org/project", &stanza(own)).sound();
        layout.fail_fast(&FreezeInput::change("check", &project("org/project"), "master"))
    };
    let [yes, no, nothing] = ["fail-fast: true", "fail-fast: false", "jobs: [noop]"];
    assert!(with(yes, no) && !with(no, yes), "the config project's value counts");
    assert!(
        with(nothing, yes) && with(yes, nothing) && !with(nothing, no) && !with(nothing, nothing)
    );
}

/// Z7.1: a job that requests an unavailable Ansible version is refused rather than run with another
/// one.
#[test]
fn an_unavailable_ansible_version_is_refused() {
    let with = |version: &str| {
        let text = format!(
            "{BASE}- job: {{name: test, run: r, ansible-version: {version}}}\n- project: {{name: org/project, check: {{jobs: [test]}}}}\n"
        );
        let layout = tenant().file("org/config", &text).build();
        let name = project("org/project");
        let frozen = layout.freeze(&FreezeInput::change("check", &name, "master"));
        // The proposal is refused whether or not the job runs for the change.
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
    let diagnostics = with("2.9").unwrap_err();
    assert!(
        diagnostics.contains(
            "Ansible version 2.9, which is not supported; supported versions are 9 and 11"
        ),
        "{diagnostics}"
    );
}

/// Z6.2: parameters of a manual enqueue are checked against the project's, all errors at once.
/// Missing ones have their defaults.
#[test]
fn parameters_of_a_manual_enqueue_are_checked() {
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
            "Parameter \"size\" is required",
        ]
    );
    assert_eq!(
        accept("manual", json!({"size": 3})).unwrap_err(),
        ["Parameter \"size\" must be one of 1, 2"]
    );
    assert_eq!(accept("closed", json!({})), Ok(json!({})));
    assert!(accept("closed", json!({"kind": "a"})).unwrap_err()[0].contains("allow-parameters"));
}

/// Z6.2, Z6.6: an invalid default of a parameter is reported at its place, before it is used.
#[test]
fn an_invalid_default_of_a_parameter_is_reported() {
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
            "must be a string, as its \"type\" says; YAML reads this word that way, so quote it",
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
    for (parameter, at, diagnostics) in rows {
        let layout = with(parameter);
        let [error] = layout.errors() else { panic!("{parameter}: {:#?}", layout.errors()) };
        let problem = &error.diagnostic;
        assert_eq!(problem.attribute.as_deref(), Some("parameters.default"), "{parameter}");
        let text = &problem.message;
        assert!(
            text.contains("the default of the parameter \"kind\"") && text.contains(diagnostics),
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
