//! Names that one object has of another, each followed to what bears it; and every mistake told,
//! where there are several of a kind.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use sluice_config::{
    ConfigError, FreezeInput, Known, Layout, ProblemKind, Scope, Severity, parse_main,
};

fn errors(layout: &Layout) -> Vec<&ConfigError> {
    layout.errors().iter().filter(|error| error.problem.severity == Severity::Error).collect()
}

/// Returns what keeps the jobs of a change from being frozen.
fn not_frozen(layout: &Layout) -> Vec<ConfigError> {
    layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap_err()
}

const PARTS: &str = "
- image: {name: debian, type: cloud}
- flavor: {name: small}
- label: {name: usual, image: debian, flavor: small}
";

/// L3.2, L3.9: what a section or provider makes a label of is there, or is told where it is named.
#[test]
fn a_label_within_a_section_or_provider_is_made_of_what_there_is() {
    // The second file; each name that is wrong, with the one that is meant.
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
        let told: Vec<(String, String)> = found
            .iter()
            .map(|error| {
                (marked(text, error), error.problem.suggestion.clone().unwrap_or_default())
            })
            .collect();
        let told: Vec<(&str, &str)> =
            told.iter().map(|(one, other)| (one.as_str(), other.as_str())).collect();
        assert_eq!(told, expected, "{text}: {found:#?}");
        let is_of_label = |error: &&ConfigError| {
            let attribute = error.problem.attribute.as_deref().unwrap_or_default();
            attribute.starts_with("labels.") && error.problem.kind == ProblemKind::UnknownName
        };
        assert!(found.iter().all(is_of_label), "{text}: {found:#?}");
    }
}

/// L3.8: what a section inherits from is followed whether or not a provider uses it, and told once
/// however many do.
#[test]
fn what_a_section_inherits_from_is_told_once() {
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

/// L3.4, L3.7: whether an image is built here its definition says, for all that have to do with it;
/// who contradicts it is told.
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
        let told: Vec<(ProblemKind, String)> = layout
            .errors()
            .iter()
            .map(|error| (error.problem.kind, marked(&text, error)))
            .collect();
        (built, told)
    };
    let all = |is_built: bool| (is_built, is_built, is_built);
    for (own, is_built) in [("zuul", true), ("cloud", false)] {
        assert_eq!(with(own, ""), (all(is_built), Vec::new()));
        assert_eq!(with(own, &format!(", type: {own}")), (all(is_built), Vec::new()));
        let other = if is_built { "cloud" } else { "zuul" };
        let expected = vec![(ProblemKind::Conflict, other.to_owned())];
        assert_eq!(with(own, &format!(", type: {other}")), (all(is_built), expected));
    }
}

/// Z2.2: projects that one may shadow are the tenant's, its Ansible is one that there is; both are
/// mistakes to Zuul too. Connections that it allows and that there are none of keep nothing from
/// working.
#[test]
fn what_a_tenant_names_is_followed() {
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
    let told: Vec<(&str, String, String)> = found
        .iter()
        .map(|error| (error.problem.severity.word(), marked(main, error), error.short_text()))
        .collect();
    let told: Vec<(&str, &str, &str)> =
        told.iter().map(|(word, marked, text)| (*word, marked.as_str(), text.as_str())).collect();
    assert_eq!(
        told,
        [
            ("error", "7", "Ansible version 7 is not supported; there are 9 and 11"),
            (
                "warning",
                "gihub",
                "Unknown connection named \"gihub\", so \"allowed-triggers\" allows nothing by it (did you mean \"github\"?)"
            ),
            (
                "warning",
                "smpt",
                "Unknown connection named \"smpt\", so \"allowed-reporters\" allows nothing by it (did you mean \"smtp\"?)"
            ),
            (
                "error",
                "org/confg",
                "The project \"org/confg\" was not found. (did you mean \"org/config\"?)"
            ),
            ("error", "elsewhere/confg", "The project \"elsewhere/confg\" was not found."),
        ]
    );
    assert!(found.iter().all(|error| error.problem.stanza == "tenant one"), "{found:#?}");
    assert_eq!(config.tenants[0].projects.len(), 4);
    // Which projects an unknown connection would have, nobody knows.
    let main = "- tenant: {name: one, source: {githbu: {config-projects: [org/config]}, github: {untrusted-projects: [org/project: {shadow: org/config}]}}}\n";
    let (_, found) = parse_main("main.yaml", main, &connections());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].short_text().starts_with("Unknown connection named \"githbu\""), "{found:#?}");
}

/// Z2.2, X12: an expression by which an untrusted project would configure config projects alone
/// allows nothing, which is warned of.
#[test]
fn who_may_configure_config_projects_alone_is_told_that_nothing_is_allowed() {
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
    let told: Vec<(&str, String)> =
        found.iter().map(|error| (error.problem.severity.word(), marked(main, error))).collect();
    assert_eq!(
        told,
        [("warning", "org/con.*".to_owned()), ("warning", "github.com/org/central".to_owned())],
        "{found:#?}"
    );
    assert!(found[0].short_text().contains("it means github.com/org/config, and"), "{found:#?}");
    assert_eq!(config.tenants[0].projects.len(), 5);
}

/// L1.1, L3.3: an image that a job says it builds is looked up when the job is read, as a
/// definition and in a list; it may come with the job, and who takes it away is told.
#[test]
fn the_image_that_a_job_builds_is_followed() {
    let image = "- image: {name: debian, type: zuul}\n";
    let with = |text: &str| {
        tenant().file("org/config", &format!("{BASE}{image}")).file("org/project", text)
    };
    let told = ["The image \"debain\" was not found. (did you mean \"debian\"?)"];
    assert_eq!(
        messages(&with("- job: {name: build, run: r, image-build-name: debain}\n").build()),
        told
    );
    let entry = "- project: {check: {jobs: [base: {image-build-name: debain}]}}\n";
    assert_eq!(messages(&with(entry).build()), told);
    let sound = with("- job: {name: build, run: r, image-build-name: debian}\n");
    let layout = sound.sound();
    let without =
        layout.overlay(&[sound.proposal("org/config", "master", BASE)], Scope::ToValidate);
    let told: Vec<String> =
        without.errors_since(&layout).iter().map(ConfigError::short_text).collect();
    assert_eq!(told, ["The image \"debian\" was not found."]);
    let renamed = format!("{BASE}- image: {{name: trixie, type: zuul}}\n");
    let job = "- job: {name: build, run: r, image-build-name: trixie}\n";
    let proposed = [
        sound.proposal("org/config", "master", &renamed),
        sound.proposal("org/project", "master", job),
    ];
    assert_eq!(layout.overlay(&proposed, Scope::ToValidate).errors_since(&layout), []);
    // Of a project that may define none it is no image, whatever its file says.
    let own = format!("- image: {{name: trixie, type: zuul}}\n{job}");
    let proposed = [sound.proposal("org/project", "master", &own)];
    let told = layout.overlay(&proposed, Scope::ToValidate).errors_since(&layout);
    let told: Vec<String> = told.iter().map(ConfigError::short_text).collect();
    assert_eq!(told, ["The image \"trixie\" was not found."]);
}

/// L1.1: as in Zuul a job that builds an image is listed by the repository that defines the image,
/// for whichever project: others are told where they list it, and their changes run nothing,
/// whatever files the job is for.
#[test]
fn only_the_repository_of_an_image_lists_the_job_that_builds_it() {
    let config = format!(
        "{BASE}- image: {{name: debian, type: zuul}}\n- job: {{name: build, run: r, image-build-name: debian, files: ^images/}}\n- project-template: {{name: all, check: {{jobs: [build]}}}}\n"
    );
    let told = |job: &str| {
        format!(
            "Job {job} builds the image \"debian\" of github.com/org/config, and may only be listed there, not in github.com/org/project"
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
    // What it lists, which job is told, and what is marked.
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
            (vec![told(job)], vec![told(job)]),
            "{own}"
        );
        assert_eq!(marked(own, &layout.errors()[0]), mark, "{own}");
        let foreseen =
            layout.foresee(&[(project("org/project"), vec!["master".into()])], Known::Tenant);
        assert_eq!(foreseen.found, [], "{own}");
    }
    // What is inherited shows when it is frozen.
    let own = "- job: {name: mine, parent: build}\n- project: {check: {jobs: [mine]}}\n";
    let layout = tenant().file("org/config", &config).file("org/project", own).sound();
    assert_eq!(frozen(&layout), [told("mine")]);
}

/// L1.1, Z6.6: a list is looked at again when a change has the job build another image.
#[test]
fn who_has_a_job_build_another_image_is_told_of_its_lists() {
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
    let told: Vec<String> =
        overlay.errors_since(&layout).iter().map(ConfigError::short_text).collect();
    assert_eq!(
        told,
        [
            "Job build builds the image \"trixie\" of github.com/org/config, and may only be listed there, not in github.com/org/project"
        ]
    );
}

/// X10, X12, Z4.8, Z6.6: a stanza is told everything that its repository may not say, not the first
/// of it.
#[test]
fn everything_that_a_repository_may_not_say_is_told() {
    let rows: [(&str, &[&str]); 3] = [
        (
            "- job: {name: a, parent: null, run: r, type: reporter, auth: {swift: [{container: logs}]}}\n",
            &[
                "Base jobs may only be defined",
                "Swift credentials may only",
                "Reporter jobs may be defined",
            ],
        ),
        (
            "- project:\n    name: org/project1\n    check:\n      jobs:\n        - noop: {type: reporter}\n        - base: {type: reporter}\n",
            &[
                "Reporter jobs may be defined",
                "Reporter jobs may be defined",
                "Within github.com/org/project, the only project definition permitted",
            ],
        ),
        (
            "- project-template: {name: t, check: {jobs: [noop: {type: reporter}]}, gate: {jobs: [noop: {type: reporter}]}}\n",
            &["Reporter jobs may be defined", "Reporter jobs may be defined"],
        ),
    ];
    for (text, expected) in rows {
        let layout = tenant().file("org/config", BASE).file("org/project", text).build();
        let told = messages(&layout);
        assert_eq!(told.len(), expected.len(), "{text}: {told:#?}");
        assert!(
            told.iter().zip(expected).all(|(told, words)| told.starts_with(words)),
            "{text}: {told:#?}"
        );
    }
}

/// Z2.2: every connection that a tenant may not use is told, where the pipeline names it.
#[test]
fn every_connection_that_a_pipeline_may_not_use_is_told() {
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
    let told: Vec<(String, String)> =
        layout.errors().iter().map(|error| (marked(text, error), error.short_text())).collect();
    let told: Vec<(&str, &str)> =
        told.iter().map(|(one, other)| (one.as_str(), other.as_str())).collect();
    assert_eq!(
        told,
        [
            ("gerrit", "Unknown trigger: tenant one may not use connection \"gerrit\""),
            ("github", "Unknown trigger: tenant one may not use connection \"github\""),
            ("smtp", "Unknown reporter: tenant one may not use connection \"smtp\""),
        ]
    );
    assert!(layout.pipelines().is_empty());
}

/// J07, J10, Z4.1: every attribute that may not be said of a job is told.
#[test]
fn every_attribute_that_may_not_be_changed_is_told() {
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
                "Unable to modify job test attribute tags: it is final by attribute-control",
                "Unable to modify job test attribute voting: it is final by attribute-control",
            ],
        ),
        // Of one attribute one reason is enough.
        (
            "final: true, attribute-control: {vars: {final: true}, tags: {final: true}}",
            "vars: {a: 1}, tags: [x]",
            &[
                "Unable to modify final job test attribute vars",
                "Unable to modify job test attribute tags: it is final by attribute-control",
            ],
        ),
        (
            "protected: true",
            "protected: false, run: own",
            &[
                "Unable to modify job test attribute run: test of github.com/org/config is a protected job in a different project",
                "Unable to reset protected attribute of job test: test of github.com/org/config is protected and stays so",
            ],
        ),
    ];
    for (barrier, entry, expected) in rows {
        let layout = tenant()
            .file("org/config", &format!("{BASE}- job: {{name: test, run: r, {barrier}}}\n"))
            .file("org/project", &format!("- project: {{check: {{jobs: [test: {{{entry}}}]}}}}\n"))
            .sound();
        let told: Vec<String> = not_frozen(&layout).iter().map(ConfigError::short_text).collect();
        assert_eq!(told, expected, "{barrier}");
    }
}

/// Z4.3: of jobs that wait for each other in a circle the circle is told, in order and where one
/// waits for the next; of several each, and not what only waits for one.
#[test]
fn circles_of_jobs_are_told_themselves() {
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
    let told: Vec<(u32, String, String)> = found
        .iter()
        .map(|error| {
            (error.problem.start.line(), marked(list, error), error.problem.message.clone())
        })
        .collect();
    assert_eq!(
        told,
        [
            (5, "d".to_owned(), "Dependency cycle detected in job c: c → d → b → c".to_owned()),
            (9, "u".to_owned(), "Dependency cycle detected in job v: v → u → v".to_owned()),
        ]
    );
}

/// C08, C09, C02: whatever is there and could not be read is not called missing where it is named.
#[test]
fn what_could_not_be_read_is_not_called_missing() {
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
        let told: Vec<String> = of_user.iter().map(|error| error.short_text()).collect();
        let place = "github.com/org/config@master: zuul.d/b.yaml";
        assert_eq!(
            told,
            [format!("The {kind} x could not be read: its definition has a mistake ({place})")]
        );
        assert!(layout.errors().len() > of_user.len(), "what is wrong with it is told as well");
    }
}

/// L3.2, L3.8: what an image, flavor, label or section with a mistake would bear is not called
/// missing by what nodes are made of.
#[test]
fn what_nodes_are_made_of_and_could_not_be_read_is_not_called_missing() {
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
        let told: Vec<String> = of_user.map(|error| error.short_text()).collect();
        let place = "github.com/org/config@master: zuul.d/a.yaml";
        assert_eq!(
            told,
            [format!("The {kind} x could not be read: its definition has a mistake ({place})")],
            "{user}"
        );
    }
}

/// L3.2, L3.8, Z6.6: what objects with mistakes name of others is followed all the same, as merged
/// and as proposed; nothing is made of them.
#[test]
fn what_objects_with_mistakes_name_is_followed() {
    let text = "
- section: {name: s, connection: nowhere, parent: gone, labels: [none], bogus: 1}
- provider: {name: p, section: missing, images: [none], bogus: 1}
- label: {name: l, image: none, flavor: none, bogus: 1}
";
    let names = |errors: &[ConfigError]| -> Vec<String> {
        let missing = errors.iter().filter(|error| error.problem.kind == ProblemKind::UnknownName);
        let mut names: Vec<String> = missing.map(|error| error.problem.message.clone()).collect();
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

/// L3.2: a label is told to have no image where nobody names one for it; where it names one that
/// nothing bears, or bears the name of one with a mistake, that is told, and nothing that only
/// follows from it.
#[test]
fn a_label_whose_image_has_a_mistake_is_told_nothing_besides() {
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
    let told = ["The label \"other\" has no image here, so this provider declines requests for it"
        .to_owned()];
    assert_eq!(warnings("zuul", "name: other"), told);
    assert_eq!(warnings("zuul", "name: other, image: gone"), [""; 0]);
    assert_eq!(warnings("zuul", "name: debian"), [""; 0]);
    // Its own name is that of the image, which could not be read.
    assert_eq!(warnings("zool", "name: debian"), [""; 0]);
}

/// L3.3: one name is given once in a file, and once in the files of a branch, whatever both say.
#[test]
fn an_object_is_not_given_twice_in_one_branch() {
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
            let told: Vec<(u32, String)> = found
                .iter()
                .map(|error| (error.problem.start.line(), error.short_text()))
                .collect();
            assert_eq!(told, [(3, format!("The {kind} \"x\" is already defined in {path}"))]);
            assert_eq!(found[0].problem.kind, ProblemKind::Duplicate);
        }
    }
}

/// C02, C08: what is there and may not stand, for a mistake that is none of shape, is not called
/// missing where it is named.
#[test]
fn what_may_not_stand_is_not_called_missing() {
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
        let told: Vec<String> = of_user.iter().map(|error| error.short_text()).collect();
        let place = format!("github.com/{home}@master: zuul.d/b.yaml");
        assert_eq!(
            told,
            [format!("The {kind} x does not count: its definition has a mistake ({place})")]
        );
        assert_eq!(
            layout.errors().len(),
            2,
            "what is wrong with it is told as well: {:#?}",
            layout.errors()
        );
    }
}
