//! References between objects are resolved, and every unresolved one is reported.

use crate::common::*;
use sluice_config::{
    ConfigError, Coverage, DiagnosticKind, FreezeInput, Layout, Scope, Severity, parse_main,
};

fn errors(layout: &Layout) -> Vec<&ConfigError> {
    layout.errors().iter().filter(|error| error.diagnostic.severity == Severity::Error).collect()
}

/// Returns the diagnostics that prevent a change's jobs from being frozen.
fn not_frozen(layout: &Layout) -> Vec<ConfigError> {
    layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap_err()
}

const PARTS: &str = "
- image: {name: debian, type: cloud}
- flavor: {name: small}
- label: {name: usual, image: debian, flavor: small}
";

/// L3.2, L3.9: a label in a section or provider refers to existing objects, or is reported where it
/// names a missing one.
#[test]
fn references_of_a_label_in_a_section_or_provider_are_resolved() {
    // The second file, each wrong name, and the suggested one.
    let rows: [(&str, &[(&str, &str)]); 4] = [
        (
            "- section:\n    name: s\n    connection: ec2\n    labels: [{name: usual, flavor: smal}]\n- provider: {name: p, section: s}\n",
            &[("smal", "small")],
        ),
        (
            "- section: {name: s, connection: ec2}\n- provider:\n    name: p\n    section: s\n    labels:\n      - name: usual\n        image: debain\n        flavor: smal\n",
            &[("debain", "debian"), ("smal", "small")],
        ),
        (
            "- section:\n    name: s\n    connection: ec2\n    labels: [{name: usual, image: debain}]\n",
            &[("debain", "debian")],
        ),
        (
            "- section: {name: s, connection: ec2, labels: [{name: usual, image: debian, flavor: small}]}\n- provider: {name: p, section: s}\n",
            &[],
        ),
    ];
    for (text, expected) in rows {
        let layout = tenant()
            .at("org/config", "master", "zuul.d/a.yaml", PARTS)
            .at("org/config", "master", "zuul.d/b.yaml", text)
            .build();
        let found = errors(&layout);
        let diagnostics: Vec<(String, String)> = found
            .iter()
            .map(|error| {
                (marked(text, error), error.diagnostic.suggestion.clone().unwrap_or_default())
            })
            .collect();
        let diagnostics: Vec<(&str, &str)> =
            diagnostics.iter().map(|(one, other)| (one.as_str(), other.as_str())).collect();
        assert_eq!(diagnostics, expected, "{text}: {found:#?}");
        let is_of_label = |error: &&ConfigError| {
            let attribute = error.diagnostic.attribute.as_deref().unwrap_or_default();
            attribute.starts_with("labels.") && error.diagnostic.kind == DiagnosticKind::UnknownName
        };
        assert!(found.iter().all(is_of_label), "{text}: {found:#?}");
    }
}

/// L3.8: a section's parent is resolved even if no provider uses the section, and is reported once.
#[test]
fn a_missing_parent_of_a_section_is_reported_once() {
    let users = "- provider: {name: p, section: s}\n- provider: {name: q, section: s}\n";
    let rows: [(&str, &[&str]); 3] = [
        (
            "- section: {name: s, parent: eest}\n- section: {name: east, connection: ec2}\n",
            &["The section \"eest\" was not found. (did you mean \"east\"?)"],
        ),
        ("- section: {name: s, parent: s}\n", &["The section \"s\" inherits from itself: s → s"]),
        (
            "- section: {name: s, parent: between}\n- section: {name: between, parent: top}\n- section: {name: top, parent: between}\n",
            &[
                "The section \"between\" inherits from itself: between → top → between",
                "The section \"top\" inherits from itself: top → between → top",
            ],
        ),
    ];
    for (sections, expected) in rows {
        for users in ["", users] {
            let layout = tenant().file("org/config", &format!("{sections}{users}")).build();
            assert_eq!(messages(&layout), expected, "{sections}{users}");
            assert!(layout.providers().is_empty());
        }
    }
}

/// L3.4, L3.7: the image's definition alone decides whether it is built by Sluice; contradictions
/// are reported.
#[test]
fn the_type_of_an_image_is_that_of_its_definition() {
    let with = |own: &str, said: &str| {
        let text = format!(
            "- image: {{name: i, type: {own}}}\n- flavor: {{name: f}}\n- label: {{name: l, image: i, flavor: f}}\n- section:\n    name: s\n    connection: ec2\n    images: [{{name: i{said}}}]\n- provider: {{name: p, section: s, labels: [l]}}\n"
        );
        let layout = tenant().file("org/config", &text).build();
        let provider = &layout.providers()[0];
        let built = (
            provider.images[0].is_built,
            provider.labels[0].image_is_built,
            layout.image_to_build("i").is_ok(),
        );
        let diagnostics: Vec<(DiagnosticKind, String)> = layout
            .errors()
            .iter()
            .map(|error| (error.diagnostic.kind, marked(&text, error)))
            .collect();
        (built, diagnostics)
    };
    let all = |is_built: bool| (is_built, is_built, is_built);
    for (own, is_built) in [("zuul", true), ("cloud", false)] {
        assert_eq!(with(own, ""), (all(is_built), Vec::new()));
        assert_eq!(with(own, &format!(", type: {own}")), (all(is_built), Vec::new()));
        let other = if is_built { "cloud" } else { "zuul" };
        let expected = vec![(DiagnosticKind::Conflict, other.to_owned())];
        assert_eq!(with(own, &format!(", type: {other}")), (all(is_built), expected));
    }
}

/// Z2.2: unknown shadowed projects and Ansible versions are errors, as in Zuul. Unknown allowed
/// connections are not.
#[test]
fn references_of_a_tenant_are_resolved() {
    let main = "- tenant:
    name: one
    default-ansible-version: 7
    allowed-triggers: [github, timer, gihub]
    allowed-reporters: smpt
    source:
      github:
        config-projects: [org/config]
        untrusted-projects:
          - org/project: {shadow: [org/config, org/confg]}
          - projects: [org/other: {shadow: github.com/org/config}, org/last: {shadow: elsewhere/confg}]
";
    let (config, found) = parse_main("main.yaml", main, &connections());
    let diagnostics: Vec<(&str, String, String)> = found
        .iter()
        .map(|error| (error.diagnostic.severity.word(), marked(main, error), error.short_text()))
        .collect();
    let diagnostics: Vec<(&str, &str, &str)> = diagnostics
        .iter()
        .map(|(word, marked, text)| (*word, marked.as_str(), text.as_str()))
        .collect();
    assert_eq!(
        diagnostics,
        [
            ("error", "7", "Ansible version 7 is not supported; supported versions are 9 and 11"),
            (
                "warning",
                "gihub",
                "Unknown connection named \"gihub\"; \"allowed-triggers\" ignores it (did you mean \"github\"?)"
            ),
            (
                "warning",
                "smpt",
                "Unknown connection named \"smpt\"; \"allowed-reporters\" ignores it (did you mean \"smtp\"?)"
            ),
            (
                "error",
                "org/confg",
                "The project \"org/confg\" was not found. (did you mean \"org/config\"?)"
            ),
            ("error", "elsewhere/confg", "The project \"elsewhere/confg\" was not found."),
        ]
    );
    assert!(found.iter().all(|error| error.diagnostic.stanza == "tenant one"), "{found:#?}");
    assert_eq!(config.tenants[0].projects.len(), 4);
    // The projects of an unknown connection cannot be checked.
    let main = "- tenant: {name: one, source: {githbu: {config-projects: [org/config]}, github: {untrusted-projects: [org/project: {shadow: org/config}]}}}\n";
    let (_, found) = parse_main("main.yaml", main, &connections());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].short_text().starts_with("Unknown connection named \"githbu\""), "{found:#?}");
}

/// Z2.1, Z9.1: a tenant's name is one part of the path of its URLs.
#[test]
fn a_tenant_name_that_is_no_part_of_a_path_is_refused() {
    for name in ["org/one", "/", ".", ".."] {
        let main =
            format!("- tenant: {{name: {name}, max-dependencies: 3}}\n- tenant: {{name: two}}\n");
        let (config, found) = parse_main("main.yaml", &main, &connections());
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(marked(&main, &found[0]), name);
        let text = found[0].short_text();
        assert!(text.contains("must not contain \"/\", and must not be \".\" or \"..\""), "{text}");
        assert_eq!(config.tenants.len(), 1, "the other tenant is kept");
    }
    for name in ["'...'", "a.b", "Größe", "a b", "100%", "'#1'"] {
        let (_, found) =
            parse_main("main.yaml", &format!("- tenant: {{name: {name}}}\n"), &connections());
        assert_eq!(found.len(), 0, "{name}: {found:#?}");
    }
}

/// Z2.2, X12: a pattern by which an untrusted project would only match config projects allows
/// nothing, which yields a warning.
#[test]
fn a_pattern_that_only_matches_config_projects_yields_a_warning() {
    let main = "- tenant:
    name: one
    source:
      github:
        config-projects: [org/config, org/central]
        untrusted-projects:
          - org/project: {configure-projects: [org/con.*, org/c.*, org/other, org/gone]}
          - org/cake: {configure-projects: github.com/org/central}
          - org/other
";
    let (config, found) = parse_main("main.yaml", main, &connections());
    let diagnostics: Vec<(&str, String)> =
        found.iter().map(|error| (error.diagnostic.severity.word(), marked(main, error))).collect();
    assert_eq!(
        diagnostics,
        [("warning", "org/con.*".to_owned()), ("warning", "github.com/org/central".to_owned())],
        "{found:#?}"
    );
    assert!(found[0].short_text().contains("it matches github.com/org/config, and"), "{found:#?}");
    assert_eq!(config.tenants[0].projects.len(), 5);
}

/// L1.1, L3.3: the image that a job builds is resolved in definitions and lists. A change may add
/// both together, and removing the image is reported.
#[test]
fn the_image_that_a_job_builds_is_resolved() {
    let image = "- image: {name: debian, type: zuul}\n";
    let with = |text: &str| {
        tenant().file("org/config", &format!("{BASE}{image}")).file("org/project", text)
    };
    let diagnostics = ["The image \"debain\" was not found. (did you mean \"debian\"?)"];
    assert_eq!(
        messages(&with("- job: {name: build, run: r, image-build-name: debain}\n").build()),
        diagnostics
    );
    let entry = "- project: {check: {jobs: [base: {image-build-name: debain}]}}\n";
    assert_eq!(messages(&with(entry).build()), diagnostics);
    let sound = with("- job: {name: build, run: r, image-build-name: debian}\n");
    let layout = sound.sound();
    let without =
        layout.overlay(&[sound.proposal("org/config", "master", BASE)], Scope::ToValidate);
    let diagnostics: Vec<String> =
        without.errors_since(&layout).iter().map(ConfigError::short_text).collect();
    assert_eq!(diagnostics, ["The image \"debian\" was not found."]);
    let renamed = format!("{BASE}- image: {{name: trixie, type: zuul}}\n");
    let job = "- job: {name: build, run: r, image-build-name: trixie}\n";
    let proposed = [
        sound.proposal("org/config", "master", &renamed),
        sound.proposal("org/project", "master", job),
    ];
    assert_eq!(layout.overlay(&proposed, Scope::ToValidate).errors_since(&layout), []);
    // A project that may not define images defines none, whatever its file contains.
    let own = format!("- image: {{name: trixie, type: zuul}}\n{job}");
    let proposed = [sound.proposal("org/project", "master", &own)];
    let diagnostics = layout.overlay(&proposed, Scope::ToValidate).errors_since(&layout);
    let diagnostics: Vec<String> = diagnostics.iter().map(ConfigError::short_text).collect();
    assert_eq!(diagnostics, ["The image \"trixie\" was not found."]);
}

/// L1.1: as in Zuul, only the repository that defines an image may list the job that builds it.
/// Other lists are reported, and their jobs do not run.
#[test]
fn only_the_repository_of_an_image_lists_the_job_that_builds_it() {
    let config = format!(
        "{BASE}- image: {{name: debian, type: zuul}}\n- job: {{name: build, run: r, image-build-name: debian, files: ^images/}}\n- project-template: {{name: all, check: {{jobs: [build]}}}}\n"
    );
    let diagnostics = |job: &str| {
        format!(
            "Job {job} builds the image \"debian\" of project github.com/org/config and can only be listed there, not in github.com/org/project"
        )
    };
    let frozen = |layout: &Layout| {
        let (name, files) = (project("org/project"), ["README".to_owned()]);
        let frozen = layout.freeze(&FreezeInput::change("check", &name, "master").touching(&files));
        let errors = frozen.err().unwrap_or_default();
        errors.iter().map(ConfigError::short_text).collect::<Vec<_>>()
    };
    let list = "- project: {name: org/project, check: {jobs: [build]}}\n";
    for (of_config, own) in [(list, ""), ("", "- project: {templates: [all]}\n")] {
        let layout = tenant()
            .file("org/config", &format!("{config}{of_config}"))
            .file("org/project", own)
            .sound();
        assert_eq!(frozen(&layout), [""; 0], "{of_config}{own}");
    }
    // The entry, the job that is reported, and the marked text.
    for (own, job, mark) in [
        ("- project: {check: {jobs: [build]}}\n", "build", "build"),
        ("- project: {check: {jobs: [base: {image-build-name: debian}]}}\n", "base", "debian"),
        (
            "- project-template: {name: own, check: {jobs: [build]}}\n- project: {templates: [own]}\n",
            "build",
            "build",
        ),
    ] {
        let layout = tenant().file("org/config", &config).file("org/project", own).build();
        assert_eq!(
            (messages(&layout), frozen(&layout)),
            (vec![diagnostics(job)], vec![diagnostics(job)]),
            "{own}"
        );
        assert_eq!(marked(own, &layout.errors()[0]), mark, "{own}");
        let foreseen =
            layout.foresee(&[(project("org/project"), vec!["master".into()])], Coverage::Tenant);
        assert_eq!(foreseen.diagnostics, [], "{own}");
    }
    // Inherited attributes are only checked when the job is frozen.
    let own = "- job: {name: mine, parent: build}\n- project: {check: {jobs: [mine]}}\n";
    let layout = tenant().file("org/config", &config).file("org/project", own).sound();
    assert_eq!(frozen(&layout), [diagnostics("mine")]);
}

/// L1.1, Z6.6: a change of the image that a job builds is checked against existing lists.
#[test]
fn changing_the_image_of_a_job_is_checked_against_its_lists() {
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [{org/project: {include-provider-config: true}}, org/project1]\n";
    let tenant = tenant_of(main)
        .file("org/config", &format!("{BASE}- image: {{name: trixie, type: zuul}}\n"))
        .file(
            "org/project",
            "- image: {name: debian, type: zuul}\n- project: {check: {jobs: [build]}}\n",
        )
        .file("org/project1", "- job: {name: build, run: r, image-build-name: debian}\n");
    let layout = tenant.sound();
    let another = "- job: {name: build, run: r, image-build-name: trixie}\n";
    let overlay =
        layout.overlay(&[tenant.proposal("org/project1", "master", another)], Scope::UntrustedOnly);
    let diagnostics: Vec<String> =
        overlay.errors_since(&layout).iter().map(ConfigError::short_text).collect();
    assert_eq!(
        diagnostics,
        [
            "Job build builds the image \"trixie\" of project github.com/org/config and can only be listed there, not in github.com/org/project"
        ]
    );
}

/// X10, X12, Z4.8, Z6.6: all disallowed attributes of a stanza are reported, not just the first.
#[test]
fn every_disallowed_attribute_of_a_repository_is_reported() {
    let rows: [(&str, &[&str]); 3] = [
        (
            "- job: {name: a, parent: null, run: r, type: reporter, auth: {swift: [{container: logs}]}}\n",
            &[
                "Base jobs may only be defined",
                "Swift credentials may only",
                "Reporter jobs may only be defined",
            ],
        ),
        (
            "- project:\n    name: org/project1\n    check:\n      jobs:\n        - noop: {type: reporter}\n        - base: {type: reporter}\n",
            &[
                "Reporter jobs may only be defined",
                "Reporter jobs may only be defined",
                "Within github.com/org/project, only a stanza for the project itself is permitted",
            ],
        ),
        (
            "- project-template: {name: t, check: {jobs: [noop: {type: reporter}]}, gate: {jobs: [noop: {type: reporter}]}}\n",
            &["Reporter jobs may only be defined", "Reporter jobs may only be defined"],
        ),
    ];
    for (text, expected) in rows {
        let layout = tenant().file("org/config", BASE).file("org/project", text).build();
        let diagnostics = messages(&layout);
        assert_eq!(diagnostics.len(), expected.len(), "{text}: {diagnostics:#?}");
        assert!(
            diagnostics
                .iter()
                .zip(expected)
                .all(|(diagnostics, words)| diagnostics.starts_with(words)),
            "{text}: {diagnostics:#?}"
        );
    }
}

/// Z2.2: every disallowed connection is reported where the pipeline names it.
#[test]
fn every_disallowed_connection_of_a_pipeline_is_reported() {
    let main = "- tenant:\n    name: one\n    allowed-triggers: [timer]\n    allowed-reporters: [github]\n    source: {github: {config-projects: [org/config]}}\n";
    let text = "- pipeline:
    name: p
    manager: independent
    trigger:
      github: [{event: push}, {event: pull_request}]
      timer: [{time: 0 0 * * *}]
      gerrit: [{event: patchset-created}]
    success:
      github: {comment: true}
    failure:
      smtp: {}
    start:
      smtp: {}
";
    let layout = tenant_of(main).file("org/config", text).build();
    let diagnostics: Vec<(String, String)> =
        layout.errors().iter().map(|error| (marked(text, error), error.short_text())).collect();
    let diagnostics: Vec<(&str, &str)> =
        diagnostics.iter().map(|(one, other)| (one.as_str(), other.as_str())).collect();
    assert_eq!(
        diagnostics,
        [
            ("gerrit", "Unknown trigger: tenant one may not use connection \"gerrit\""),
            ("github", "Unknown trigger: tenant one may not use connection \"github\""),
            ("smtp", "Unknown reporter: tenant one may not use connection \"smtp\""),
        ]
    );
    assert!(layout.pipelines().is_empty());
}

/// J07, J10, Z4.1: every disallowed change of a job's attributes is reported.
#[test]
fn every_disallowed_attribute_change_is_reported() {
    let rows: [(&str, &str, &[&str]); 4] = [
        (
            "final: true",
            "voting: false, timeout: 3, vars: {a: 1}, host: h, fingerprint: '4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b'",
            &[
                "Unable to modify final job test attribute timeout",
                "Unable to modify final job test attribute vars",
                "Unable to modify final job test attribute host",
            ],
        ),
        (
            "attribute-control: {tags: {final: true}, voting: {final: true}}",
            "tags: [x], voting: false, timeout: 3",
            &[
                "Unable to modify job test attribute tags: attribute-control makes it final",
                "Unable to modify job test attribute voting: attribute-control makes it final",
            ],
        ),
        // One reason per attribute is enough.
        (
            "final: true, attribute-control: {vars: {final: true}, tags: {final: true}}",
            "vars: {a: 1}, tags: [x]",
            &[
                "Unable to modify final job test attribute vars",
                "Unable to modify job test attribute tags: attribute-control makes it final",
            ],
        ),
        (
            "protected: true",
            "protected: false, run: own",
            &[
                "Unable to modify job test attribute run: test is a protected job of a different project, github.com/org/config",
                "Unable to reset protected attribute of job test: test of github.com/org/config is protected, and that can not be undone",
            ],
        ),
    ];
    for (barrier, entry, expected) in rows {
        let layout = tenant()
            .file("org/config", &format!("{BASE}- job: {{name: test, run: r, {barrier}}}\n"))
            .file("org/project", &format!("- project: {{check: {{jobs: [test: {{{entry}}}]}}}}\n"))
            .sound();
        let diagnostics: Vec<String> =
            not_frozen(&layout).iter().map(ConfigError::short_text).collect();
        assert_eq!(diagnostics, expected, "{barrier}");
    }
}

/// Z4.3: each cycle of job dependencies is reported in order, at one of its dependencies. Jobs that
/// only depend on a cycle are not.
#[test]
fn every_cycle_of_job_dependencies_is_reported() {
    let names = ["after", "c", "d", "b", "u", "v", "alone"];
    let jobs: String =
        names.iter().map(|name| format!("- job: {{name: {name}, run: r}}\n")).collect();
    let list = "- project:
    check:
      jobs:
        - after: {dependencies: [c]}
        - c: {dependencies: [alone, d]}
        - d: {dependencies: [b]}
        - b: {dependencies: [c]}
        - alone
        - v: {dependencies: [after, u]}
        - u: {dependencies: [v]}
";
    let layout =
        tenant().file("org/config", &format!("{BASE}{jobs}")).file("org/project", list).sound();
    let found = not_frozen(&layout);
    let diagnostics: Vec<(u32, String, String)> = found
        .iter()
        .map(|error| {
            (error.diagnostic.start.line(), marked(list, error), error.diagnostic.message.clone())
        })
        .collect();
    assert_eq!(
        diagnostics,
        [
            (5, "d".to_owned(), "Dependency cycle detected in job c: c → d → b → c".to_owned()),
            (9, "u".to_owned(), "Dependency cycle detected in job v: v → u → v".to_owned()),
        ]
    );
}

/// C08, C09, C02: a reference to an object that exists but could not be read is not reported as
/// missing.
#[test]
fn unreadable_objects_are_not_reported_as_missing() {
    let rows = [
        (
            "nodeset",
            "{name: x, nodes: [{name: a, lable: l}]}",
            "- job: {name: j, run: r, nodeset: x}\n",
        ),
        ("project-template", "{name: x, queue: []}", "- project: {templates: [x]}\n"),
        ("pipeline", "{name: x, manager: dependnt}", "- project: {x: {jobs: []}}\n"),
        ("job", "{name: x, voting: maybe}", "- job: {name: j, parent: x}\n"),
        ("image", "{name: x, type: zool}", "- job: {name: j, run: r, image-build-name: x}\n"),
        ("secret", "{name: x, dta: {a: b}}", "- job: {name: j, run: r, secrets: [x]}\n"),
    ];
    for (kind, body, user) in rows {
        let layout = tenant()
            .at("org/config", "master", "zuul.d/a.yaml", BASE)
            .at("org/config", "master", "zuul.d/b.yaml", &format!("- {kind}: {body}\n"))
            .file("org/project", user)
            .build();
        let of_user: Vec<&ConfigError> =
            layout.errors().iter().filter(|error| error.project.name() == "org/project").collect();
        let diagnostics: Vec<String> = of_user.iter().map(|error| error.short_text()).collect();
        let place = "github.com/org/config@master: zuul.d/b.yaml";
        assert_eq!(
            diagnostics,
            [format!("The {kind} x could not be read: its definition has a mistake ({place})")]
        );
        assert!(layout.errors().len() > of_user.len(), "its own errors are reported as well");
    }
}

/// L3.2, L3.8: a reference to an invalid image, flavor, label or section is not reported as
/// missing.
#[test]
fn invalid_node_objects_are_not_reported_as_missing() {
    let rows = [
        ("section", "{name: x, connection: null, bogus: 1}", "- provider: {name: p, section: x}\n"),
        ("section", "{name: x, connection: null, bogus: 1}", "- section: {name: s, parent: x}\n"),
        ("image", "{name: x, type: zool}", "- section: {name: s, connection: null, images: [x]}\n"),
        ("flavor", "{name: x, bogus: 1}", "- label: {name: l, flavor: x}\n"),
        ("label", "{name: x, bogus: 1}", "- section: {name: s, connection: null, labels: [x]}\n"),
    ];
    for (kind, body, user) in rows {
        let layout = tenant()
            .at("org/config", "master", "zuul.d/a.yaml", &format!("- {kind}: {body}\n"))
            .at("org/config", "master", "zuul.d/b.yaml", user)
            .build();
        let of_user = errors(&layout).into_iter().filter(|error| error.path == "zuul.d/b.yaml");
        let diagnostics: Vec<String> = of_user.map(|error| error.short_text()).collect();
        let place = "github.com/org/config@master: zuul.d/a.yaml";
        assert_eq!(
            diagnostics,
            [format!("The {kind} x could not be read: its definition has a mistake ({place})")],
            "{user}"
        );
    }
}

/// L3.2, L3.8, Z6.6: references of invalid objects are resolved too, both merged and proposed ones.
#[test]
fn references_of_invalid_objects_are_resolved() {
    let text = "
- section: {name: s, connection: nowhere, parent: gone, labels: [none], bogus: 1}
- provider: {name: p, section: missing, images: [none], bogus: 1}
- label: {name: l, image: none, flavor: none, bogus: 1}
";
    let names = |errors: &[ConfigError]| -> Vec<String> {
        let missing =
            errors.iter().filter(|error| error.diagnostic.kind == DiagnosticKind::UnknownName);
        let mut names: Vec<String> =
            missing.map(|error| error.diagnostic.message.clone()).collect();
        names.sort();
        names
    };
    let expected = [
        "The flavor \"none\" was not found.",
        "The image \"none\" was not found.",
        "The image \"none\" was not found.",
        "The label \"none\" was not found.",
        "The section \"gone\" was not found.",
        "The section \"missing\" was not found.",
        "Unknown connection named \"nowhere\"",
    ];
    let (empty, whole) = (tenant().file("org/config", ""), tenant().file("org/config", text));
    let (before, after) = (empty.build(), whole.build());
    assert_eq!(names(after.errors()), expected);
    assert!(after.providers().is_empty() && before.errors().is_empty());
    let proposed =
        before.overlay(&[empty.proposal("org/config", "master", text)], Scope::ToValidate);
    assert_eq!(names(&proposed.errors_since(&before)), expected);
    let mended = after.overlay(&[whole.proposal("org/config", "master", "")], Scope::ToValidate);
    assert_eq!(names(mended.errors()), Vec::<String>::new());
}

/// L3.2: a label without an image is reported. If its image is missing or invalid, only that is
/// reported.
#[test]
fn an_invalid_image_yields_no_further_diagnostic_for_its_label() {
    let warnings = |image: &str, label: &str| -> Vec<String> {
        let text = format!(
            "- image: {{name: debian, type: {image}}}\n- flavor: {{name: f}}\n- label: {{{label}, flavor: f}}\n- section: {{name: s, connection: ec2}}\n- provider: {{name: p, section: s, labels: [{{name: debian}}, {{name: other}}]}}\n- label: {{name: {}, image: debian, flavor: f}}\n",
            if label.contains("other") { "debian" } else { "other" }
        );
        let layout = tenant().file("org/config", &text).build();
        let warnings =
            layout.errors().iter().filter(|error| error.short_text().contains("declines requests"));
        warnings.map(|error| error.short_text()).collect()
    };
    let diagnostics =
        ["The label \"other\" has no image here, so this provider declines requests for it: add \"image\" to the label"
            .to_owned()];
    assert_eq!(warnings("zuul", "name: other"), diagnostics);
    assert_eq!(warnings("zuul", "name: other, image: gone"), [""; 0]);
    assert_eq!(warnings("zuul", "name: debian"), [""; 0]);
    // The label has the name of the image that could not be read.
    assert_eq!(warnings("zool", "name: debian"), [""; 0]);
}

/// L3.3: a name may be defined once per file and once per branch, whatever the definitions contain.
#[test]
fn an_object_is_defined_once_per_branch() {
    let rows = [
        ("image", "{name: x, type: cloud}"),
        ("flavor", "{name: x}"),
        ("label", "{name: x}"),
        ("section", "{name: x, connection: null}"),
        ("provider", "{name: x, section: rack}"),
    ];
    let rack = "- section: {name: rack, connection: null}\n";
    for (kind, body) in rows {
        let stanza = format!("- {kind}: {body}\n");
        let one_file = tenant().file("org/config", &format!("{rack}{stanza}{stanza}"));
        let two_files = tenant()
            .at("org/config", "master", "zuul.d/a.yaml", &format!("{rack}{stanza}"))
            .at("org/config", "master", "zuul.d/b.yaml", &format!("\n\n{stanza}"));
        for (tenant, path) in [(one_file, ".zuul.yaml"), (two_files, "zuul.d/a.yaml")] {
            let layout = tenant.build();
            let found = errors(&layout);
            let diagnostics: Vec<(u32, String)> = found
                .iter()
                .map(|error| (error.diagnostic.start.line(), error.short_text()))
                .collect();
            assert_eq!(
                diagnostics,
                [(3, format!("The {kind} \"x\" is already defined in {path}"))]
            );
            assert_eq!(found[0].diagnostic.kind, DiagnosticKind::Duplicate);
        }
    }
}

/// C02, C08: a reference to an object that is not allowed is not reported as missing.
#[test]
fn disallowed_objects_are_not_reported_as_missing() {
    let rows = [
        (
            "org/config",
            "- pipeline: {name: x, manager: independent, trigger: {gihub: [{event: push}]}}\n",
            "- project: {x: {jobs: []}}\n",
            "pipeline",
        ),
        (
            "org/project1",
            "- pipeline: {name: x, manager: independent}\n",
            "- project: {x: {jobs: []}}\n",
            "pipeline",
        ),
        (
            "org/project1",
            "- job: {name: x, parent: null, run: r}\n",
            "- job: {name: j, parent: x}\n",
            "job",
        ),
    ];
    for (home, stanza, user, kind) in rows {
        let layout = tenant()
            .at("org/config", "master", "zuul.d/a.yaml", BASE)
            .at(home, "master", "zuul.d/b.yaml", stanza)
            .file("org/project", user)
            .build();
        let of_user: Vec<&ConfigError> =
            layout.errors().iter().filter(|error| error.project.name() == "org/project").collect();
        let diagnostics: Vec<String> = of_user.iter().map(|error| error.short_text()).collect();
        let place = format!("github.com/{home}@master: zuul.d/b.yaml");
        assert_eq!(
            diagnostics,
            [format!("The {kind} x is left out, because its definition has a mistake ({place})")]
        );
        assert_eq!(
            layout.errors().len(),
            2,
            "its own errors are reported as well: {:#?}",
            layout.errors()
        );
    }
}
