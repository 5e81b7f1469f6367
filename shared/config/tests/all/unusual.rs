//! Legal but rare forms of Zuul's configuration language.

use crate::common::*;
use serde_json::json;
use sluice_config::{FreezeInput, Layout};
use sluice_model::git::MergeMode;
use sluice_model::job::FrozenJob;

fn frozen_in(layout: &Layout, pipeline: &str, project_name: &str, branch: &str) -> Vec<FrozenJob> {
    layout.freeze(&FreezeInput::change(pipeline, &project(project_name), branch)).unwrap().jobs
}

fn names_on(layout: &Layout, branch: &str) -> Vec<String> {
    frozen_in(layout, "check", "org/project", branch)
        .iter()
        .map(|job| job.name.to_string())
        .collect()
}

fn one(layout: &Layout, name: &str) -> FrozenJob {
    frozen_in(layout, "check", "org/project", "master")
        .into_iter()
        .find(|job| job.name.as_str() == name)
        .unwrap()
}

fn sound(text: &str) -> Layout {
    tenant().file("org/config", &format!("{BASE}{text}")).sound()
}

/// Z4.1, Z4.3: anchors and merge keys across stanzas: mappings, list members, names and tagged
/// values. The first of several merged mappings wins, and explicit keys win over all.
#[test]
fn anchors_and_merge_keys_reach_across_stanzas() {
    let layout = sound(
        "
- job:
    name: &first first
    run: first
    timeout: 10
    vars: &vars !override {a: 1, deep: {b: 2}}
    files: &files [^src/, ^lib/]
- job: &second
    <<: {timeout: 20, attempts: 4}
    name: second
    run: second
    files: *files
    vars: {<<: *vars, a: 3}
- job:
    <<: [{attempts: 7}, *second]
    name: third
    vars: {<<: [{a: 4}, *vars], c: 5}
- project:
    name: org/project
    check:
      jobs: &jobs
        - *first
        - second: {voting: off}
        - *first : {voting: no, timeout: 0x10}
        - third
    gate:
      jobs: *jobs
",
    );
    let first = one(&layout, "first");
    assert_eq!((first.voting, first.timeout_seconds, first.attempts), (false, Some(16), 3));
    let second = one(&layout, "second");
    assert_eq!((second.voting, second.timeout_seconds, second.attempts), (false, Some(20), 4));
    assert_eq!(json!(second.vars), json!({"a": 3, "deep": {"b": 2}}));
    let third = one(&layout, "third");
    assert_eq!(
        (third.attempts, third.run[0].path.as_str()),
        (7, "second"),
        "the first of a list counts"
    );
    assert_eq!(json!(third.vars), json!({"a": 4, "deep": {"b": 2}, "c": 5}));
    assert_eq!(frozen_in(&layout, "gate", "org/project", "master").len(), 3);
}

/// Z4.1, Z6.2: tags work in entries of projects and templates as in definitions.
#[test]
fn control_tags_work_in_entries_of_projects_and_templates() {
    let layout = sound(
        "
- job: {name: setup, run: r}
- job: {name: other, run: r}
- job:
    name: test
    run: r
    tags: [a]
    vars: {x: {y: 1}, z: 2}
    files: [^a/]
    dependencies: [setup]
    required-projects: [org/project1]
- project-template:
    name: t
    check:
      jobs:
        - setup
        - other
        - test: {tags: [b], vars: {x: {w: 3}}, files: !inherit [^b/], dependencies: !inherit [{name: other, soft: true}]}
- project:
    name: org/project
    templates: [t]
    check:
      jobs:
        - test: {tags: !override [c], vars: !override {v: 4}, required-projects: !override []}
",
    );
    let test = one(&layout, "test");
    assert_eq!(
        (test.tags.as_slice(), json!(test.vars)),
        (["c".to_owned()].as_slice(), json!({"v": 4}))
    );
    let waits: Vec<(&str, bool)> =
        test.dependencies.iter().map(|one| (one.name.as_str(), one.soft)).collect();
    assert_eq!(waits, [("setup", false), ("other", true)]);
    assert!(test.required_projects.is_empty());
    let touching = |file: &str| {
        let (name, files) = (project("org/project"), [file.to_owned()]);
        let graph =
            layout.freeze(&FreezeInput::change("check", &name, "master").touching(&files)).unwrap();
        graph.jobs.iter().any(|job| job.name.as_str() == "test")
    };
    assert_eq!([touching("a/1"), touching("b/1"), touching("c/1")], [true, true, false]);
}

/// Z4.1: tags have no meaning within variables, and are refused there.
#[test]
fn a_control_tag_within_variables_is_refused() {
    for vars in ["{a: !override [1]}", "{a: {b: [{c: !inherit {d: 1}}]}}"] {
        let layout = tenant()
            .file("org/config", &format!("{BASE}- job: {{name: test, vars: {vars}}}\n"))
            .build();
        let diagnostics = messages(&layout);
        assert!(
            diagnostics.len() == 1
                && diagnostics[0]
                    .contains("a control tag can only be applied to \"vars\" as a whole"),
            "{diagnostics:?}"
        );
    }
    sound("- job: {name: test, vars: !override {a: !unsafe '{{ b }}'}}\n");
}

/// Z6.2: a nested job depends on its outer job in addition to the dependencies of its definition.
#[test]
fn a_job_tree_adds_dependencies_to_those_of_the_definition() {
    let list = |entry: &str| {
        let layout = sound(&format!(
            "- job: {{name: setup, run: r}}\n- job: {{name: top, run: r}}\n- job: {{name: below, run: r, dependencies: [setup]}}\n\
             - project: {{name: org/project, check: {{jobs: [setup, {{top: {{jobs: [{entry}]}}}}]}}}}\n"
        ));
        one(&layout, "below")
            .dependencies
            .iter()
            .map(|one| one.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(list("below"), ["setup", "top"]);
    assert_eq!(list("below: {dependencies: []}"), ["top"]);
    assert_eq!(list("below: {dependencies: !inherit []}"), ["setup", "top"]);
}

/// Z4.1: `attribute-control` makes an attribute final for children, variants and entries, with and
/// without tags.
#[test]
fn attribute_control_applies_to_children_variants_and_entries() {
    let after = |more: &str| {
        let control = "attribute-control: {vars: {final: true}, pre-run: {final: true}}";
        let text = format!(
            "{BASE}- job: {{name: top, run: r, vars: {{a: 1}}, pre-run: own, {control}}}\n- job: {{name: test, parent: top}}\n{more}"
        );
        let layout = tenant().file("org/config", &text).sound();
        match layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")) {
            Ok(graph) => graph.jobs.len().to_string(),
            Err(errors) => errors[0].short_text(),
        }
    };
    let listed =
        |entry: &str| format!("- project: {{name: org/project, check: {{jobs: [{entry}]}}}}\n");
    assert_eq!(after(&listed("test: {run: s, post-run: t, extra-vars: {a: 2}}")), "1");
    assert!(
        after(&listed("test: {vars: {b: 2}}")).contains("attribute vars"),
        "{}",
        after(&listed("test: {vars: {b: 2}}"))
    );
    assert!(after(&listed("test: {vars: !override {}}")).contains("attribute vars"));
    assert!(after(&listed("test: {pre-run: p}")).contains("attribute pre-run"));
    let variant = |branches: &str| {
        format!("- job: {{name: test, branches: {branches}, vars: {{b: 1}}}}\n{}", listed("test"))
    };
    assert!(after(&variant("master")).contains("attribute vars"));
    assert_eq!(after(&variant("stable")), "1", "a variant that does not apply says nothing");
}

/// Z4.2: negated branch patterns, alone and in lists, of variants, entries and project stanzas.
#[test]
fn negated_branches_choose_variants_entries_and_stanzas() {
    let layout = sound(
        "
- job: {name: test, run: r, vars: {at: all}}
- job: {name: test, branches: {regex: ^stable/, negate: true}, vars: {at: new}}
- job: {name: test, branches: [{regex: ^(stable|feature)/, negate: true}, ^feature/x$], vars: {more: true}}
- job: {name: only-old, run: r}
- project:
    name: org/project
    check:
      jobs: [test, {only-old: {branches: {regex: ^master$, negate: true}}}]
- project:
    name: ^org/pro.*
    branches: {regex: ^stable/, negate: true}
    check: {jobs: [noop]}
",
    );
    let vars = |branch: &str| json!(frozen_in(&layout, "check", "org/project", branch)[0].vars);
    assert_eq!(vars("master"), json!({"at": "new", "more": true}));
    assert_eq!(vars("stable/1"), json!({"at": "all"}));
    assert_eq!(vars("feature/x"), json!({"at": "new", "more": true}));
    assert_eq!(vars("feature/y"), json!({"at": "new"}));
    assert_eq!(names_on(&layout, "master"), ["test", "noop"]);
    assert_eq!(names_on(&layout, "stable/1"), ["test", "only-old"]);
    assert_eq!(names_on(&layout, "feature/y"), ["test", "only-old", "noop"]);
}

/// Z6.2: a pattern as a project's name must match the whole short or canonical name.
#[test]
fn a_pattern_of_projects_covers_their_whole_names() {
    let running = |pattern: &str| {
        let layout = tenant()
            .file(
                "org/config",
                &format!("{BASE}- project: {{name: '{pattern}', check: {{jobs: [noop]}}}}\n"),
            )
            .sound();
        let all = ["org/config", "org/project", "org/project1", "org/project2"];
        all.into_iter()
            .filter(|name| refusals(&layout, "check", name) == "runs noop")
            .collect::<Vec<_>>()
    };
    assert_eq!(running("^org/project"), ["org/project"]);
    assert_eq!(running("^org/project."), ["org/project1", "org/project2"]);
    assert_eq!(running("^github.com/org/.*g$"), ["org/config"]);
    assert_eq!(running("^org/(config|project1)"), ["org/config", "org/project1"]);
    assert!(running("^org").is_empty());
}

/// Z4.2, J18: a pragma's patterns may be negated, and apply to templates as to jobs.
#[test]
fn a_pragma_may_imply_every_branch_but_some() {
    let file = "
- pragma: {implied-branches: [{regex: ^stable/, negate: true}]}
- job: {name: new, run: r}
- project-template: {name: t, check: {jobs: [new, noop]}}
";
    let config = format!("{BASE}- project: {{name: org/project, templates: [t]}}\n");
    let tenant =
        tenant().file("org/config", &config).branches("org/project", &["master", "stable/1"]);
    let layout = tenant.file("org/project", file).sound();
    assert_eq!(names_on(&layout, "master"), ["new", "noop"]);
    assert_eq!(names_on(&layout, "feature"), ["new", "noop"]);
    assert_eq!(names_on(&layout, "stable/1"), Vec::<String>::new());
}

/// Z4.2: an empty list of branches restricts nothing, at any level.
#[test]
fn an_empty_list_of_branches_restricts_nothing() {
    let of_file = |pragma: &str, of_job: &str, of_entry: &str, of_project: &str| {
        let file = format!(
            "{pragma}- job: {{name: test, run: r{of_job}}}\n- project: {{{of_project}check: {{jobs: [{{test: {{{of_entry}}}}}]}}}}\n"
        );
        let tenant =
            tenant().file("org/config", BASE).branches("org/project", &["master", "stable"]);
        let layout = tenant.at("org/project", "stable", ".zuul.yaml", &file).sound();
        [names_on(&layout, "master").len(), names_on(&layout, "stable").len()]
    };
    assert_eq!(of_file("", "", "", ""), [0, 1], "both are the file's branch's");
    assert_eq!(of_file("", ", branches: []", "", ""), [0, 1], "the project's stanza still is");
    assert_eq!(of_file("", ", branches: []", "branches: []", "branches: [], "), [1, 1]);
    let pragma = "- pragma: {implied-branches: []}\n";
    assert_eq!(of_file(pragma, "", "", ""), [0, 1], "the project's stanza is its branch's");
    assert_eq!(of_file(pragma, "", "", "branches: [], "), [1, 1]);
}

/// Z6.1, Z6.3: ineffective attributes of queues and pipelines are reported and ignored; impossible
/// ones are refused.
#[test]
fn conflicting_attributes_are_reported() {
    // A stanza, whether it still takes effect, the reported attribute, and the message.
    let rows = [
        (
            "- queue: {name: q, dependencies-by-topic: true}",
            false,
            "dependencies-by-topic",
            "circular-dependencies",
        ),
        (
            "- queue: {name: q, type: all-branches, per-branch: true}",
            true,
            "per-branch",
            "next to \"type\"",
        ),
        (
            "- queue: {name: q, type: per-branch, per-branch: false}",
            true,
            "per-branch",
            "next to \"type\"",
        ),
        (
            "- pipeline: {name: q, manager: dependent, window-floor: 4, window-ceiling: 3}",
            false,
            "window-ceiling",
            "is 3, but must be at least \"window-floor\", which is 4",
        ),
        (
            "- pipeline: {name: q, manager: dependent, window-ceiling: 2}",
            false,
            "window-ceiling",
            "which is 3",
        ),
        (
            "- pipeline: {name: q, manager: dependent, supersedes: [], supercedes: [check]}",
            false,
            "supersedes",
            "another name for \"supercedes\"",
        ),
        (
            "- pipeline: {name: q, manager: dependent, merge-failure-message: a, merge-conflict-message: b}",
            false,
            "merge-failure-message",
            "another name for \"merge-conflict-message\"",
        ),
        ("- pipeline: {name: q, manager: serial, window: 4}", true, "window", "has no effect"),
        (
            "- pipeline: {name: q, manager: supercedent, window-ceiling: 9}",
            true,
            "window-ceiling",
            "has no effect",
        ),
    ];
    for (stanza, takes_effect, attribute, words) in rows {
        let users = "- project: {name: org/project, queue: q, q: {jobs: [noop]}}\n";
        let layout = tenant().file("org/config", &format!("{BASE}{stanza}\n{users}")).build();
        let is_expected = |error: &&sluice_config::ConfigError| {
            error.diagnostic.attribute.as_deref() == Some(attribute)
        };
        let diagnostics: Vec<_> = layout.errors().iter().filter(is_expected).collect();
        assert!(
            diagnostics.len() == 1 && diagnostics[0].short_text().contains(words),
            "{stanza}: {:#?}",
            layout.errors()
        );
        let severity = if takes_effect {
            sluice_config::Severity::Warning
        } else {
            sluice_config::Severity::Error
        };
        assert_eq!(diagnostics[0].diagnostic.severity, severity, "{stanza}");
        let is_queue = stanza.starts_with("- queue");
        let found = if is_queue { queue_is_there(&layout) } else { layout.pipeline("q").is_some() };
        assert_eq!(found, takes_effect, "{stanza}");
        if let Some(pipeline) = layout.pipeline("q") {
            assert_eq!(
                (pipeline.window.initial, pipeline.window.ceiling),
                (1, Some(1)),
                "{stanza}"
            );
        }
    }
    for fine in [
        "- queue: {name: q, dependencies-by-topic: true, allow-circular-dependencies: true}\n",
        "- queue: {name: q, dependencies-by-topic: false, type: per-branch}\n",
        "- pipeline: {name: q, manager: dependent, window-floor: 3, window-ceiling: 3}\n",
        "- pipeline: {name: q, manager: dependent, window-ceiling: null}\n",
    ] {
        assert_eq!(
            messages(&tenant().file("org/config", &format!("{BASE}{fine}")).build()),
            [""; 0],
            "{fine}"
        );
    }
}

/// Z6.1: as in Zuul only dependent pipelines have windows; those of other pipelines are reported
/// and ignored.
#[test]
fn windows_of_an_independent_pipeline_are_ignored() {
    let text = "
- pipeline: {name: q, manager: independent, window: 4, window-floor: 2, window-ceiling: 9, window-increase-factor: 3}
- pipeline: {name: silent, manager: independent}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).build();
    let of = |name: &str| layout.pipeline(name).unwrap().window;
    assert_eq!(of("q"), of("silent"));
    assert!(!of("q").is_limited());
    let diagnostics = messages(&layout);
    assert_eq!(diagnostics.len(), 4, "{diagnostics:?}");
    assert!(
        diagnostics
            .iter()
            .all(|diagnostics| diagnostics
                .contains("has no effect because in an independent pipeline")),
        "{diagnostics:?}"
    );
    assert!(
        layout
            .errors()
            .iter()
            .all(|error| error.diagnostic.severity == sluice_config::Severity::Warning)
    );
}

/// Z5.1, Z5.5: a secret has values, or is a token.
#[test]
fn an_empty_secret_is_reported() {
    let found =
        messages(&tenant().file("org/config", &format!("{BASE}- secret: {{name: s}}\n")).build());
    assert_eq!(
        found,
        ["syntax error: required key not provided: \"data\" (or \"oidc\" for a token)"]
    );
    for fine in ["data: {}", "data: {a: b}", "oidc: null", "oidc: {ttl: 5}"] {
        tenant().file("org/config", &format!("{BASE}- secret: {{name: s, {fine}}}\n")).sound();
    }
}

/// Z6.2: attributes that only projects have are reported in a template, with a remedy.
#[test]
fn project_attributes_in_a_template_are_reported_with_a_remedy() {
    for (word, value) in [
        ("branches", "stable"),
        ("branches", "{regex: ^stable/}"),
        ("templates", "[other]"),
        ("merge-mode", "rebase"),
        ("default-branch", "trunk"),
    ] {
        let text =
            format!("- project-template: {{name: t, {word}: {value}, check: {{jobs: []}}}}\n");
        let found = messages(&tenant().file("org/config", &format!("{BASE}{text}")).build());
        let diagnostics = format!(
            "syntax error: a template can not have \"{word}\": set it in the \"project\" that uses the template"
        );
        assert_eq!(found, [diagnostics]);
    }
    // A pipeline may have the same name.
    let text = "- pipeline: {name: branches, manager: independent}\n- project-template: {name: t, branches: {jobs: []}}\n";
    tenant().file("org/config", &format!("{BASE}{text}")).sound();
}

/// Returns whether any queue is defined.
fn queue_is_there(layout: &Layout) -> bool {
    layout
        .fragments()
        .iter()
        .flat_map(|file| file.stanzas())
        .any(|stanza| matches!(stanza, sluice_config::objects::Stanza::Queue(_)))
}

/// Z4.6, Z5.1: mutually exclusive attributes are refused together.
#[test]
fn mutually_exclusive_attributes_are_reported() {
    for (text, diagnostics) in [
        (
            "- job: {name: test, roles: [{zuul: org/project, galaxy: a.b}]}\n",
            "either \"zuul\" or \"galaxy\", not both",
        ),
        (
            "- secret: {name: s, data: {a: b}, oidc: {ttl: 5}}\n",
            "a secret has \"data\" or is a token (\"oidc\"), but not both",
        ),
        (
            "- job: {name: test, include-vars: [{name: a.yaml, project: org/project, zuul-project: true}]}\n",
            "a file is the one of \"project\" or of the change's (\"zuul-project\"), but not both",
        ),
    ] {
        let found = messages(&tenant().file("org/config", &format!("{BASE}{text}")).build());
        assert!(found.len() == 1 && found[0].contains(diagnostics), "{found:?}");
    }
}

/// Z6.2, Z6.3: the first value of queue, merge mode and default branch counts, pattern stanzas
/// included, before those of templates. Jobs and variables are combined; later ones win, and those
/// of patterns come last.
#[test]
fn the_first_value_of_a_project_counts_and_jobs_are_combined() {
    let layout = sound(
        "
- job: {name: one, run: r}
- job: {name: two, run: r}
- project-template: {name: t, queue: of-template, vars: {x: template, t: 1}, check: {jobs: [one]}}
- project: {name: org/project1, templates: [t]}
- project: {name: '^org/project.*', vars: {x: all, a: 1}, templates: [t], check: {jobs: [two]}}
- project: {name: org/project, queue: own, merge-mode: cherry-pick, vars: {x: own}, check: {jobs: [one: {voting: false}]}}
- project: {name: github.com/org/project, queue: late, merge-mode: rebase, default-branch: trunk}
",
    );
    let name = project("org/project");
    assert_eq!(layout.queue(&name, "check").name.as_str(), "own");
    assert_eq!(layout.queue(&project("org/project1"), "check").name.as_str(), "of-template");
    assert_eq!(layout.merge_mode(&name), MergeMode::CherryPick);
    assert_eq!(layout.default_branch(&name).as_str(), "trunk");
    let jobs = frozen_in(&layout, "check", "org/project", "master");
    let found: Vec<(&str, bool)> = jobs.iter().map(|job| (job.name.as_str(), job.voting)).collect();
    assert_eq!(found, [("one", false), ("two", true)]);
    assert_eq!(json!(jobs[0].vars), json!({"x": "all", "t": 1, "a": 1}));
}

/// Z3.1: nodes with several names, groups that share nodes, and duplicate group names.
#[test]
fn groups_may_share_nodes_and_have_a_name_each() {
    let nodes = "nodes: [{name: [db, cache], label: x}, {name: web, label: x}]";
    let layout = sound(&format!(
        "- nodeset: {{name: n, {nodes}, groups: [{{name: all-of-it, nodes: [db, cache, web]}}, {{name: stores, nodes: [cache, db]}}]}}\n\
         - job: {{name: test, run: r, nodeset: n, group-vars: {{stores: {{a: 1}}}}, host-vars: {{cache: {{b: 2}}}}}}\n\
         - project: {{name: org/project, check: {{jobs: [test]}}}}\n"
    ));
    let set = one(&layout, "test").nodesets.remove(0);
    assert_eq!(set.nodes[0].names, ["db", "cache"]);
    assert_eq!(set.groups.iter().map(|group| group.nodes.len()).collect::<Vec<_>>(), [3, 2]);
    let twice = format!(
        "- nodeset: {{name: n, {nodes}, groups: [{{name: g, nodes: db}}, {{name: g, nodes: web}}]}}\n"
    );
    let diagnostics = messages(&tenant().file("org/config", &twice).build());
    assert!(
        diagnostics.len() == 1
            && diagnostics[0].contains("Group named \"g\" appears multiple times in nodeset"),
        "{diagnostics:?}"
    );
    // Of Ansible's own groups, `ungrouped` may be listed and `all` may not.
    let own = format!(
        "- nodeset: {{name: n, {nodes}, groups: [{{name: all, nodes: db}}, {{name: ungrouped, nodes: web}}]}}\n"
    );
    let diagnostics = messages(&tenant().file("org/config", &own).build());
    assert!(
        diagnostics.len() == 1 && diagnostics[0].contains("Groups named 'all' are not allowed"),
        "{diagnostics:?}"
    );
}

/// Z2.2, X08: variants in a shadowing project belong to the shadowed definition and are ignored.
/// Its other jobs may use the shadowing one.
#[test]
fn a_shadowed_jobs_variants_are_left_out_and_its_children_stay() {
    let layout = tenant_of(
        "- tenant: {name: one, source: {github: {config-projects: [org/config], untrusted-projects: [org/project1, org/project: {shadow: org/project1}]}}}\n",
    )
    .file("org/config", BASE)
    .file("org/project1", "- job: {name: lint, run: theirs, timeout: 5}\n")
    .file(
        "org/project",
        "- job: {name: lint, run: ours}\n- job: {name: lint, timeout: 9}\n- job: {name: mine, parent: lint}\n- project: {check: {jobs: [lint, mine]}}\n",
    )
    .sound();
    for name in ["lint", "mine"] {
        let job = one(&layout, name);
        assert_eq!(
            (job.timeout_seconds, job.run[0].project.name()),
            (Some(5), "org/project1"),
            "{name}"
        );
    }
}

/// Z2.2: groups and their members may include and exclude one or several kinds each.
#[test]
fn include_lists_of_groups_and_members_come_together() {
    let layout = tenant_of(
        "
- tenant:
    name: one
    source:
      github:
        config-projects: [org/config]
        untrusted-projects:
          - include: [jobs, project]
            exclude: secret
            projects:
              - org/project
              - org/project1: {include: [], shadow: []}
              - org/project2: {include: nodeset, exclude: [nodeset]}
",
    )
    .file("org/config", BASE)
    .file("org/project", "- job: {name: a, run: r}\n- nodeset: {name: n, nodes: []}\n- project: {check: {jobs: [a]}}\n")
    .file("org/project1", "- job: {name: b, run: r}\n- project: {check: {jobs: [nothing]}}\n")
    .file("org/project2", "- nodeset: {name: m, nodes: []}\n- job: {name: c, run: r}\n")
    .sound();
    assert_eq!(names_on(&layout, "master"), ["a"]);
    assert_eq!(layout.job_names().collect::<Vec<_>>(), ["a", "base"]);
}

/// Returns the diagnostics of one file as place and message.
fn diagnostics(bytes: &[u8]) -> Vec<String> {
    let text = sluice_config::text_of(bytes.to_vec());
    let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
    let line = |error: &sluice_config::ConfigError| {
        let problem = &error.diagnostic;
        format!("{}:{} {}", problem.start.line(), problem.start.column(), problem.message)
    };
    layout.errors().iter().map(line).collect()
}

/// Z6.6, C07: invalid UTF-8 and characters that YAML does not allow are reported at their place.
#[test]
fn invalid_characters_are_reported_at_their_place() {
    let latin = diagnostics(b"- job:\n    name: caf\xe9\n    run: r\n");
    assert_eq!(latin, ["2:14 this is not UTF-8, the encoding that configuration is written in"]);
    let escape = diagnostics(b"- job: {name: a, run: r}\n# \x1b[2J\n");
    assert_eq!(
        escape,
        ["2:3 the character U+001B is not allowed here; write it as \"\\u001b\" in double quotes"]
    );
    // A replacement character in the file is a character like any other.
    assert_eq!(
        diagnostics("- job: {name: a\u{fffd}\u{a0}ä\u{1f600}, run: r}\n".as_bytes()),
        Vec::<String>::new()
    );
}

/// Z6.6: a plain word that YAML reads as another type must be quoted; an empty name is refused.
#[test]
fn a_name_is_a_text_with_something_in_it() {
    let quote = "YAML reads this word that way, so quote it";
    for (name, kind) in [
        ("1.10", "a float"),
        ("yes", "a boolean"),
        ("on", "a boolean"),
        ("12", "an integer"),
        ("0x1f", "an integer"),
        ("1:30", "an integer"),
        ("010", "an integer"),
        ("2024-01-31", "a date"),
        ("2024-1-31 10:00:00", "a date"),
    ] {
        for stanza in ["job", "nodeset", "secret", "semaphore", "queue", "label"] {
            let found = diagnostics(format!("- {stanza}: {{name: {name}}}\n").as_bytes());
            let expected = format!("expected a string for \"name\", but found {kind}; {quote}");
            assert!(found.iter().any(|one| one.ends_with(&expected)), "{stanza} {name}: {found:?}");
        }
    }
    let key = diagnostics(b"- project: {check: {jobs: [noop]}, on: {jobs: [noop]}}\n");
    assert!(
        key[0].ends_with(&format!("expected a string as a key, but found a boolean; {quote}")),
        "{key:?}"
    );
    let parent = diagnostics(b"- job: {name: a, parent: 2024-01-31, run: r}\n");
    assert!(parent[0].ends_with(&format!("but found a date; {quote}")), "{parent:?}");
    // Within variables a value is not a name, and is passed on as written.
    assert_eq!(
        diagnostics(b"- job: {name: '2024-01-31', run: r, vars: {since: 2024-01-31}}\n"),
        Vec::<String>::new()
    );
    assert_eq!(
        diagnostics(b"- job: {name: 2024-01, run: r}\n- job: {name: 2024-01-31-nightly, run: r}\n"),
        Vec::<String>::new()
    );
    for stanza in ["job", "nodeset", "secret", "semaphore", "queue", "project-template"] {
        for name in ["''", "' '"] {
            let found = diagnostics(format!("- {stanza}: {{name: {name}}}\n").as_bytes());
            assert!(
                found.iter().any(|one| one.contains("\"name\" must not be empty")),
                "{stanza}: {found:?}"
            );
        }
    }
}

/// Z6.6: control characters in a name are escaped in messages, comments and traces.
#[test]
fn control_characters_in_names_are_escaped() {
    let own = "- job: {name: \"a\\e[31m\\u202e\", run: r}\n- project: {check: {jobs: [\"a\\e[31m\\u202e\", \"b\\e]0;\\a\"]}}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", own).build();
    let error = &layout.errors()[0];
    let source = "- x \u{1b}[2J\r\n- y\u{9b}\u{1b}\n";
    let (_, trace) =
        layout.freeze_with_trace(&FreezeInput::change("check", &project("org/project"), "master"));
    let shown = [
        error.render(Some(source)),
        error.to_string(),
        error.review_comment().message,
        trace[0].to_string(),
    ];
    for text in &shown {
        let hidden = |c: char| (c.is_control() && !"\n\t".contains(c)) || c == '\u{202e}';
        assert!(!text.contains(hidden), "{text:?}");
    }
    assert!(
        shown[0].contains("Job b\\u{1b}]0;\\u{7} not defined")
            && shown[3].contains("a\\u{1b}[31m\\u{202e}"),
        "{shown:#?}"
    );
}
