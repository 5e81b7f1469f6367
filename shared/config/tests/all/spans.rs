//! Diagnostics mark the exact wrong name and suggest the nearest existing one, all at once.

use crate::common::*;
use sluice_config::{ConfigError, FreezeInput, Layout, Severity, parse_main};

const KNOWN: &str = "
- nodeset: {name: small-nodes, nodes: [{name: n, label: small}]}
- secret: {name: password, data: {a: b}}
- project-template: {name: python-jobs, check: {jobs: []}}
";

/// E2, C08–C11, Z6.6: each unresolved name is marked by line and columns, with the nearest existing
/// name.
#[test]
fn a_wrong_name_is_marked_itself_and_the_nearest_is_suggested() {
    // A stanza, the reported attribute, the marked text, and the suggestion.
    let rows = [
        ("- job:\n    name: j\n    parent: bose\n", "parent", "bose", Some("base")),
        (
            "- job:\n    name: j\n    nodeset: small-node\n",
            "nodeset",
            "small-node",
            Some("small-nodes"),
        ),
        (
            "- job:\n    name: j\n    secrets:\n      - pasword\n",
            "secrets",
            "pasword",
            Some("password"),
        ),
        (
            "- job:\n    name: j\n    secrets:\n      - {name: p, secret: pasword}\n",
            "secrets",
            "pasword",
            Some("password"),
        ),
        (
            "- job:\n    name: j\n    auth: {secrets: [pasword]}\n",
            "secrets",
            "pasword",
            Some("password"),
        ),
        (
            "- job:\n    name: j\n    required-projects:\n      - org/project1\n      - org/projekt2\n",
            "required-projects",
            "org/projekt2",
            Some("org/project2"),
        ),
        (
            "- job:\n    name: j\n    required-projects:\n      - {name: org/projekt, override-checkout: x}\n",
            "required-projects",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    required-projects: !override [org/projekt]\n",
            "required-projects",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    repos: [org/projekt]\n",
            "required-projects",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    allowed-projects: [org/project, org/projekt]\n",
            "allowed-projects",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    include-projects: org/projekt\n",
            "include-projects",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    exclude-projects: [{type: name, name: org/projekt}]\n",
            "exclude-projects",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    include-vars: [a.yaml, {name: b.yaml, project: org/projekt}]\n",
            "include-vars",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    roles:\n      - galaxy: a.b\n      - zuul: org/projekt\n",
            "roles",
            "org/projekt",
            Some("org/project"),
        ),
        (
            "- job:\n    name: j\n    nodeset: {alternatives: [small-nodes, smal-nodes]}\n",
            "nodeset",
            "smal-nodes",
            Some("small-nodes"),
        ),
        (
            "- nodeset:\n    name: n\n    alternatives: [small-nodes, smal-nodes]\n",
            "nodeset",
            "smal-nodes",
            Some("small-nodes"),
        ),
        (
            "- project:\n    templates: [python-jobs, python-job]\n",
            "templates",
            "python-job",
            Some("python-jobs"),
        ),
        ("- project:\n    chek:\n      jobs: []\n", "chek", "chek", Some("check")),
        ("- project:\n    check:\n      jobs:\n        - bose\n", "check", "bose", Some("base")),
        (
            "- project:\n    check:\n      jobs:\n        - base:\n            nodeset: small-node\n",
            "nodeset",
            "small-node",
            Some("small-nodes"),
        ),
        (
            "- project:\n    name: org/projekt\n    check: {jobs: []}\n",
            "name",
            "org/projekt",
            Some("org/project"),
        ),
    ];
    for (text, attribute, name, suggestion) in rows {
        let layout = tenant()
            .file("org/config", BASE)
            .at("org/project", "master", "zuul.d/a.yaml", KNOWN)
            .at("org/project", "master", "zuul.d/b.yaml", text)
            .build();
        let found = layout.errors();
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        let problem = &found[0].diagnostic;
        assert_eq!(marked(text, &found[0]), name, "{text}");
        assert_eq!(
            (problem.attribute.as_deref(), problem.suggestion.as_deref()),
            (Some(attribute), suggestion),
            "{text}"
        );
        // A comment on the change begins at the stanza's start.
        assert_eq!(found[0].review_comment().start_line, 1, "{text}");
    }
}

/// Z6.6: every error of a stanza is reported at its own place.
#[test]
fn all_errors_of_a_stanza_are_reported_at_once() {
    let text = "
- job:
    name: j
    parent: nothing-like-it
    nodeset: nowhere
    secrets: [unknown, password]
    required-projects: [a/b, c/d]
    timeout: 90
    post-timeout: 80
";
    let main = "- tenant:\n    name: one\n    max-job-timeout: 60\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project]\n";
    let layout = tenant_of(main)
        .file("org/config", BASE)
        .at("org/project", "master", "zuul.d/a.yaml", KNOWN)
        .at("org/project", "master", "zuul.d/b.yaml", text)
        .build();
    let mut diagnostics: Vec<(u32, String)> = layout
        .errors()
        .iter()
        .map(|error| (error.diagnostic.start.line(), marked(text, error)))
        .collect();
    diagnostics.sort();
    let diagnostics: Vec<&str> = diagnostics.iter().map(|(_, marked)| marked.as_str()).collect();
    assert_eq!(diagnostics, ["nothing-like-it", "nowhere", "unknown", "a/b", "c/d", "90", "80"]);
}

/// Z3.3: a forbidden or unknown label is marked, also within alternatives.
#[test]
fn the_wrong_label_of_a_nodeset_is_marked() {
    let main = |more: &str| {
        format!(
            "- tenant:\n    name: one\n    {more}\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project]\n"
        )
    };
    let labels = "- label: {name: small}\n- label: {name: large}\n";
    let rows = [
        (
            "use-nodepool: false",
            "- nodeset:\n    name: n\n    nodes: [{name: a, label: small}, {name: b, label: smal}]\n",
            "smal",
            Some("small"),
        ),
        (
            "use-nodepool: false",
            "- nodeset:\n    name: n\n    alternatives: [{nodes: [{name: a, label: small}]}, {nodes: [{name: a, label: larg}]}]\n",
            "larg",
            Some("large"),
        ),
        (
            "use-nodepool: false",
            "- job:\n    name: j\n    nodeset: {nodes: [{name: a, label: larg}]}\n",
            "larg",
            Some("large"),
        ),
        (
            "use-nodepool: false",
            "- job:\n    name: j\n    nodes: [{name: a, image: larg}]\n",
            "larg",
            Some("large"),
        ),
        (
            "disallowed-labels: large",
            "- nodeset:\n    name: n\n    nodes: [{name: a, label: small}, {name: b, label: large}]\n",
            "large",
            None,
        ),
        (
            "max-nodes-per-job: 1",
            "- job:\n    name: j\n    nodeset: {nodes: [{name: a, label: small}, {name: b, label: large}]}\n",
            "{nodes: [{name: a, label: small}, {name: b, label: large}]}",
            None,
        ),
    ];
    for (more, text, name, suggestion) in rows {
        let layout = tenant_of(&main(more))
            .at("org/config", "master", "zuul.d/a.yaml", BASE)
            .at("org/config", "master", "zuul.d/b.yaml", labels)
            .file("org/project", text)
            .build();
        let found = layout.errors();
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert_eq!(marked(text, &found[0]), name, "{text}");
        assert_eq!(found[0].diagnostic.suggestion.as_deref(), suggestion, "{text}");
    }
}

/// L3.2, L3.5: errors of providers are marked at the name, also if their section contains it.
#[test]
fn errors_of_providers_are_marked() {
    let parts = "- image: {name: debian, type: cloud}\n- flavor: {name: small}\n- label: {name: debian-small, image: debian, flavor: small}\n";
    let rows = [
        ("- section:\n    name: s\n    connection: ec3\n", "ec3", Some("ec2")),
        (
            "- section: {name: east, connection: ec2}\n- provider:\n    name: p\n    section: eeast\n",
            "eeast",
            Some("east"),
        ),
        (
            "- section:\n    name: s\n    parent: estern\n- section: {name: eastern, connection: ec2}\n- provider: {name: p, section: s}\n",
            "estern",
            Some("eastern"),
        ),
        ("- label:\n    name: l\n    image: debain\n    flavor: small\n", "debain", Some("debian")),
        ("- label:\n    name: l\n    image: debian\n    flavor: smal\n", "smal", Some("small")),
        (
            "- section: {name: s, connection: ec2}\n- provider:\n    name: p\n    section: s\n    labels:\n      - debian-small\n      - debian-smal\n",
            "debian-smal",
            Some("debian-small"),
        ),
        (
            "- section: {name: s, connection: ec2}\n- provider:\n    name: p\n    section: s\n    labels: [{name: debian-smal, slots: 2}]\n",
            "debian-smal",
            Some("debian-small"),
        ),
        (
            "- section:\n    name: s\n    connection: ec2\n    labels: [debian-smal]\n- provider: {name: p, section: s}\n",
            "debian-smal",
            Some("debian-small"),
        ),
        (
            "- section: {name: s, connection: ec2}\n- provider:\n    name: p\n    section: s\n    connection: github\n",
            "github",
            None,
        ),
        (
            "- section: {name: top, connection: ec2}\n- section:\n    name: s\n    parent: top\n    connection: github\n",
            "github",
            None,
        ),
        (
            "- section:\n    name: s\n    connection: ec2\n    images: [debain]\n",
            "debain",
            Some("debian"),
        ),
        (
            "- section:\n    name: s\n    connection: ec2\n    flavors: [{name: smal}]\n",
            "smal",
            Some("small"),
        ),
    ];
    for (text, name, suggestion) in rows {
        let layout = tenant()
            .at("org/config", "master", "zuul.d/a.yaml", parts)
            .at("org/config", "master", "zuul.d/b.yaml", text)
            .build();
        let found: Vec<&ConfigError> = layout
            .errors()
            .iter()
            .filter(|error| error.diagnostic.severity == Severity::Error)
            .collect();
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert_eq!(marked(text, found[0]), name, "{text}");
        assert_eq!(found[0].diagnostic.suggestion.as_deref(), suggestion, "{text}");
    }
}

fn refusals(layout: &Layout) -> Vec<ConfigError> {
    let name = project("org/project");
    layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap_err()
}

/// Z4.7, J07, J08, J13, C11: a freezing error is marked at the entry or variant that causes it, and
/// every reason is reported.
#[test]
fn freezing_errors_are_marked_at_their_cause() {
    /// The marked text, and the message.
    type ExpectedMarks<'a> = &'a [(&'a str, &'a str)];
    // The config project's definitions, the project's file, the marked file, and the diagnostics.
    let rows: [(&str, &str, &str, ExpectedMarks<'_>); 12] = [
        (
            "- job: {name: last, final: true, run: r}\n",
            "- project:\n    check:\n      jobs:\n        - last: {voting: false}\n        - last: {timeout: 4}\n",
            "org/project",
            &[("4", "Unable to modify final job last attribute timeout")],
        ),
        (
            "- job: {name: last, final: true, run: r}\n",
            "- job: {name: a, run: r}\n- job:\n    name: a\n    parent: last\n- project: {check: {jobs: [a]}}\n",
            "org/project",
            &[(
                "last",
                "Unable to inherit from final job last: it is final and can not act as a parent",
            )],
        ),
        (
            "- job: {name: a, run: r}\n",
            "- project:\n    check:\n      jobs: [a: {nodeset: nowhere}]\n",
            "org/project",
            &[("nowhere", "The nodeset of job a was not found.")],
        ),
        (
            "- job: {name: a, run: r}\n- job: {name: b, run: r, files: ^never$}\n",
            "- project:\n    check:\n      jobs:\n        - b: {branches: other}\n        - a\n        - a:\n            dependencies: [b]\n",
            "org/project",
            &[("b", "Job a depends on b which was not run.")],
        ),
        (
            "- job: {name: a, abstract: true, post-review: true, run: r}\n",
            "- project:\n    check:\n      jobs:\n        - a: {branches: other}\n        - a\n",
            "org/project",
            &[
                ("a", "Job a is abstract and may not be directly run"),
                ("a", "Pre-review pipeline check does not allow post-review job a"),
            ],
        ),
        (
            "- job: {name: a, run: r, attribute-control: {tags: {final: true}}}\n",
            "- project:\n    check:\n      jobs:\n        - a: {tags: [x]}\n        - a: {tags: [y], voting: false}\n",
            "org/project",
            &[
                ("[x]", "Unable to modify job a attribute tags: attribute-control makes it final"),
                ("[y]", "Unable to modify job a attribute tags: attribute-control makes it final"),
            ],
        ),
        // Of several entries, the one that causes the error is marked.
        (
            "- job: {name: a, run: r}\n",
            "- project:\n    check:\n      jobs:\n        - a: {post-review: true}\n        - a: {voting: false}\n",
            "org/project",
            &[("true", "Pre-review pipeline check does not allow post-review job a")],
        ),
        (
            "- job: {name: a, run: r}\n",
            "- project:\n    check:\n      jobs:\n        - a: {voting: false}\n        - a: {abstract: true}\n",
            "org/project",
            &[("true", "Job a is abstract and may not be directly run")],
        ),
        (
            "- job: {name: a, abstract: true, run: r}\n",
            "- project:\n    check:\n      jobs:\n        - a\n        - a: {voting: false}\n",
            "org/project",
            &[("a", "Job a is abstract and may not be directly run")],
        ),
        (
            "- job: {name: a, run: r, allowed-projects: [org/project, org/project1]}\n",
            "- project:\n    check:\n      jobs:\n        - a: {attempts: 2}\n        - a: {allowed-projects: [org/project1]}\n        - a: {voting: false}\n",
            "org/project",
            &[("[org/project1]", "Project org/project is not allowed to run job a")],
        ),
        (
            "- job: {name: a, run: r}\n",
            "- project:\n    check:\n      jobs:\n        - a: {ansible-version: 2.9}\n        - a: {voting: false}\n",
            "org/project",
            &[(
                "2.9",
                "Job a uses Ansible version 2.9, which is not supported; supported versions are 9 and 11",
            )],
        ),
        (
            "- job: {name: a, parent: b}\n- job:\n    name: b\n    parent: a\n",
            "- project: {check: {jobs: [a]}}\n",
            "org/config",
            &[("a", "Dependency cycle detected in the parents of job a: a → b → a")],
        ),
    ];
    for (config, own, file, expected) in rows {
        let layout = tenant()
            .at("org/config", "master", "zuul.d/a.yaml", BASE)
            .at("org/config", "master", "zuul.d/b.yaml", config)
            .file("org/project", own)
            .build();
        let found = refusals(&layout);
        let text = if file == "org/project" { own } else { config };
        let diagnostics: Vec<(String, String)> =
            found.iter().map(|error| (marked(text, error), error.short_text())).collect();
        let diagnostics: Vec<(&str, &str)> =
            diagnostics.iter().map(|(one, other)| (one.as_str(), other.as_str())).collect();
        assert_eq!(diagnostics, expected, "{own}");
        assert!(found.iter().all(|error| error.project.name() == file), "{found:#?}");
    }
}

/// Z2.2: references in the tenants' file and in pipelines are resolved too.
#[test]
fn references_of_tenants_and_pipelines_are_resolved() {
    let rules = "- authorization-rule: {name: admins, conditions: [{sub: root}]}\n";
    let main = format!(
        "{rules}- authorization-role: {{name: operator, permissions: {{read: true}}}}\n- api-root:\n    access-rules: [admin]\n    role-mappings: {{admins: operator, admns: [read, operater]}}\n"
    );
    let (_, errors) = parse_main("main.yaml", &main, &connections());
    let diagnostics: Vec<(String, Option<&str>)> = errors
        .iter()
        .map(|error| (error.short_text(), error.diagnostic.attribute.as_deref()))
        .collect();
    assert_eq!(
        diagnostics,
        [
            (
                "The authorization rule \"admin\" was not found. (did you mean \"admins\"?)"
                    .to_owned(),
                Some("access-rules")
            ),
            (
                "The authorization rule \"admns\" was not found. (did you mean \"admins\"?)"
                    .to_owned(),
                Some("role-mappings")
            ),
            (
                "The authorization role \"operater\" was not found. (did you mean \"operator\"?)"
                    .to_owned(),
                Some("role-mappings")
            ),
        ]
    );
    // If a name is used twice, the first definition counts and the second is reported.
    let main = "- api-root: {access-rules: admins}\n- api-root: {anonymous-read-access: true}\n- authorization-rule: {name: admins, conditions: [{sub: root}]}\n";
    let (config, errors) = parse_main("main.yaml", main, &connections());
    let diagnostics: Vec<(String, u32)> =
        errors.iter().map(|error| (error.short_text(), error.diagnostic.start.line())).collect();
    assert_eq!(diagnostics, [("api-root is already defined".to_owned(), 2)]);
    assert_eq!(
        (config.api_root.access_rules.len(), config.api_root.anonymous_read_access),
        (1, None)
    );
    let text =
        "- pipeline:\n    name: experimental\n    manager: independent\n    supercedes: [chek]\n";
    let layout = tenant()
        .at("org/config", "master", "zuul.d/a.yaml", BASE)
        .at("org/config", "master", "zuul.d/b.yaml", text)
        .build();
    assert_eq!(
        messages(&layout),
        ["The pipeline \"chek\" was not found. (did you mean \"check\"?)"]
    );
    assert_eq!(marked(text, &layout.errors()[0]), "chek");
    let main = "- tenant:\n    name: one\n    default-parent: bose\n    source:\n      github:\n        config-projects: [org/config]\n";
    let layout = tenant_of(main)
        .file("org/config", &format!("{BASE}- job: {{name: a}}\n- job: {{name: a, branches: x}}\n"))
        .build();
    assert_eq!(messages(&layout), ["Job bose not defined (did you mean \"base\"?)"]);
}

/// Z2.2: the default limits are Zuul's. -1 removes the limits of nodes and time; other negative
/// numbers are reported.
#[test]
fn the_default_limits_are_zuuls() {
    let read = |said: &str| {
        parse_main("main.yaml", &format!("- tenant: {{name: one, {said}}}\n"), &connections())
    };
    // The configuration; the limits of nodes, time, tokens, dependencies and changes.
    let rows = [
        ("default-parent: base", (Some(5), Some(10_800), Some(10_800), None, None)),
        ("max-nodes-per-job: -1", (None, Some(10_800), Some(10_800), None, None)),
        ("max-job-timeout: -1", (Some(5), None, Some(10_800), None, None)),
        (
            "max-nodes-per-job: 0, max-job-timeout: 60",
            (Some(0), Some(60), Some(10_800), None, None),
        ),
        ("max-oidc-ttl: 1, max-dependencies: 0", (Some(5), Some(10_800), Some(1), Some(0), None)),
        ("max-changes-per-pipeline: 0", (Some(5), Some(10_800), Some(10_800), None, Some(0))),
    ];
    for (said, expected) in rows {
        let (config, errors) = read(said);
        assert!(errors.is_empty(), "{said}: {errors:#?}");
        let tenant = &config.tenants[0];
        let found = (
            tenant.max_nodes_per_job,
            tenant.max_job_timeout_seconds,
            tenant.max_oidc_ttl_seconds,
            tenant.max_dependencies,
            tenant.max_changes_per_pipeline,
        );
        assert_eq!(found, expected, "{said}");
    }
    let wrong = [
        ("max-nodes-per-job", "-2", "must be at least 0"),
        ("max-job-timeout", "4294967296", "must be at most 4294967295"),
        ("max-dependencies", "-1", "must be at least 0"),
        ("max-changes-per-pipeline", "-1", "must be at least 0"),
        ("max-oidc-ttl", "-1", "must be at least 1"),
        ("max-oidc-ttl", "0", "must be at least 1"),
    ];
    for (attribute, number, diagnostics) in wrong {
        let (_, errors) = read(&format!("{attribute}: {number}"));
        let [error] = &errors[..] else { panic!("{attribute}: {number}: {errors:#?}") };
        assert!(error.short_text().contains(diagnostics), "{}", error.short_text());
        assert_eq!(error.diagnostic.attribute.as_deref(), Some(attribute));
        assert_eq!(
            marked(&format!("- tenant: {{name: one, {attribute}: {number}}}\n"), error),
            number
        );
    }
}

/// Z2.2: reporter jobs need the tenant's permission, as definitions and as entries, and tokens
/// their permitted claims.
#[test]
fn reporter_jobs_and_tokens_need_the_tenants_permission() {
    let main = |of_project: &str, more: &str| {
        format!(
            "- tenant:\n    name: one\n    {more}\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n          - org/project: {{{of_project}}}\n"
        )
    };
    let report = "Reporter jobs may only be defined in config projects";
    let rows = [
        ("", "x", "- job:\n    name: a\n    type: reporter\n", Some((report, "reporter"))),
        ("allow-reporter-jobs: true", "x", "- job:\n    name: a\n    type: reporter\n", None),
        ("", "x", "- job:\n    name: a\n    type: initializer\n", None),
        (
            "",
            "x",
            "- project:\n    check:\n      jobs:\n        - base: {type: reporter}\n",
            Some((report, "reporter")),
        ),
        (
            "",
            "x",
            "- project-template:\n    name: t\n    check:\n      jobs:\n        - base: {type: reporter}\n",
            Some((report, "reporter")),
        ),
        (
            "",
            "max-oidc-ttl: 60",
            "- secret:\n    name: s\n    oidc: {ttl: 61}\n",
            Some(("exceeds tenant max-oidc-ttl 60", "61")),
        ),
        ("", "max-oidc-ttl: 60", "- secret:\n    name: s\n    oidc: {ttl: 60}\n", None),
        (
            "",
            "allowed-oidc-issuers: 'https://a'",
            "- secret:\n    name: s\n    oidc: {iss: 'https://a'}\n",
            None,
        ),
        (
            "",
            "allowed-oidc-issuers: 'https://a.example.com'",
            "- secret:\n    name: s\n    oidc: {iss: 'https://b.example.com'}\n",
            Some(("is not in allowed-oidc-issuers", "'https://b.example.com'")),
        ),
    ];
    for (of_project, more, text, expected) in rows {
        let more = if more == "x" { "max-dependencies: 4" } else { more };
        let layout = tenant_of(&main(of_project, more))
            .file("org/config", BASE)
            .file("org/project", text)
            .build();
        let found = layout.errors();
        match expected {
            None => assert!(found.is_empty(), "{text}: {found:#?}"),
            Some((message, name)) => {
                assert_eq!(found.len(), 1, "{text}: {found:#?}");
                assert!(found[0].short_text().contains(message), "{}", found[0].short_text());
                assert_eq!(marked(text, &found[0]), name, "{text}");
            }
        }
    }
}

/// Z2.1: an unresolved name in the main configuration is reported at its place.
#[test]
fn an_unresolved_name_in_the_main_configuration_is_reported_at_its_place() {
    let main = "- tenant:
    name: one
    semaphores: [shared, shard]
    access-rules: [staff, stuff]
    role-mappings:
      helper: [absent]
    source:
      githbu:
        config-projects: [org/config]
- global-semaphore: {name: shared}
- authorization-rule: {name: staff, conditions: [{groups: staff}]}
- api-root:
    access-rules:
      - noone
";
    let (_, errors) = parse_main("main.yaml", main, &connections());
    let diagnostics: Vec<(u32, u32, &str)> = errors
        .iter()
        .map(|error| {
            (
                error.diagnostic.start.line(),
                error.diagnostic.start.column(),
                error.diagnostic.message.as_str(),
            )
        })
        .collect();
    assert_eq!(
        diagnostics,
        [
            (8, 7, "Unknown connection named \"githbu\""),
            (3, 26, "The global semaphore \"shard\" was not found."),
            (4, 27, "The authorization rule \"stuff\" was not found."),
            (6, 7, "The authorization rule \"helper\" was not found."),
            (6, 16, "The authorization role \"absent\" was not found."),
            (14, 9, "The authorization rule \"noone\" was not found."),
        ]
    );
}
