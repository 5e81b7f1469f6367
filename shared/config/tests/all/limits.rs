//! Limits that a tenant sets for its jobs.

use crate::common::*;

/// X13
#[test]
fn labels_that_the_tenant_disallows_are_refused() {
    let tenant = tenant_of(
        "- tenant:\n    name: one\n    disallowed-labels: [^big-.*]\n    max-nodes-per-job: 1\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project]\n",
    );
    let layout = tenant
        .file("org/config", BASE)
        .file("org/project", "- job: {name: a, run: r, nodeset: {nodes: [{name: n, label: big-one}]}}\n- nodeset: {name: two, nodes: [{name: a, label: x}, {name: b, label: x}]}")
        .build();
    let found = messages(&layout);
    assert!(
        found
            .iter()
            .any(|text| text.contains("Label named \"big-one\" is not part of the allowed")),
        "{found:?}"
    );
    assert!(found.iter().any(|text| text.contains("max-nodes-per-job")), "{found:?}");
}

/// X13, Z2.2: configuration merged before the operator set a limit does not run, and the diagnostic
/// names the limit. The frozen job counts, with all its variants.
#[test]
fn a_job_that_exceeds_a_limit_of_the_tenant_is_not_run() {
    let with = |limit: &str, attributes: &str, entry: &str| {
        let main = format!(
            "- tenant:\n    name: one\n    {limit}\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects: [org/project]\n"
        );
        let own = format!(
            "- secret: {{name: token, oidc: {{ttl: 61, iss: 'https://a.example.com'}}}}\n- job: {{name: a, run: r, {attributes}}}\n- project: {{gate: {{jobs: [{entry}]}}}}\n"
        );
        refusals(
            &tenant_of(&main).file("org/config", BASE).file("org/project", &own).build(),
            "gate",
            "org/project",
        )
    };
    let nodes = "nodeset: {nodes: [{name: a, label: big-one}, {name: b, label: small}]}";
    let either = "nodeset: {alternatives: [{nodes: [{name: a, label: small}]}, {nodes: [{name: a, label: big-one}]}]}";
    let issuer = "allowed-oidc-issuers: 'https://a.example.com'";
    // A limit that allows the job, one that does not, the job's attributes, and the diagnostic.
    let rows = [
        (
            "allowed-labels: [small, big-one]",
            "disallowed-labels: [^big-.*]",
            nodes,
            "Label named \"big-one\" is not",
        ),
        ("allowed-labels: .*", "allowed-labels: [small]", nodes, "Label named \"big-one\" is not"),
        (
            "disallowed-labels: [big]",
            "disallowed-labels: [^big-.*]",
            either,
            "Label named \"big-one\" is not",
        ),
        (
            "max-nodes-per-job: 2",
            "max-nodes-per-job: 1",
            nodes,
            "exceeds tenant max-nodes-per-job 1: it has 2 nodes",
        ),
        (
            "max-job-timeout: 61",
            "max-job-timeout: 60",
            "timeout: 61",
            "exceeds tenant max-job-timeout 60",
        ),
        (
            "max-dependencies: 9",
            "max-job-timeout: 10799",
            "pre-timeout: 3h",
            "exceeds tenant max-job-timeout 10799",
        ),
        (
            "max-job-timeout: -1",
            "max-dependencies: 9",
            "post-timeout: 4h",
            "exceeds tenant max-job-timeout 10800",
        ),
        (issuer, "max-dependencies: 9", "secrets: token", "is not in allowed-oidc-issuers"),
    ];
    for (wide, narrow, attributes, diagnostics) in rows {
        assert_eq!(with(wide, attributes, "a"), "runs a", "{wide}: {attributes}");
        let found = with(narrow, attributes, "a");
        assert!(
            found.contains(diagnostics) && found.lines().count() == 1,
            "{narrow}: {attributes}: {found}"
        );
    }
    let short = with(&format!("{issuer}\n    max-oidc-ttl: 60"), "secrets: token", "a");
    assert!(short.contains("exceeds tenant max-oidc-ttl 60: its ttl is 61"), "{short}");
    assert_eq!(with("max-job-timeout: 60", "timeout: 61", "a: {timeout: 60}"), "runs a");
}

/// Z4.3: the pre-run timeout may not exceed the job's, whichever stanza sets them. A job without a
/// timeout allows any.
#[test]
fn a_pre_run_that_may_outlast_its_job_is_refused() {
    let shared =
        "- job: {name: lib, run: r, pre-timeout: 90}\n- job: {name: short, run: r, timeout: 60}\n";
    let layout = |own: &str, entry: &str| {
        let own = format!(
            "- job: {{name: a, run: r, {own}}}\n- project: {{gate: {{jobs: [{entry}]}}}}\n"
        );
        tenant().file("org/config", &format!("{BASE}{shared}")).file("org/project", &own).build()
    };
    for (own, entry) in [
        ("pre-timeout: 1m, timeout: 60", "a"),
        ("pre-timeout: 90", "a"),
        ("parent: lib, timeout: 90", "a"),
        ("parent: short, pre-timeout: 90", "a: {timeout: 90}"),
    ] {
        assert_eq!(
            refusals(&layout(own, entry), "gate", "org/project"),
            "runs a",
            "{own}: {entry}"
        );
    }
    let diagnostics =
        "The job \"a\" has a pre-timeout of 90 seconds, which exceeds its timeout of 60 seconds";
    for (own, entry) in [
        ("pre-timeout: 90, timeout: 60", "a"),
        ("parent: lib, timeout: 60", "a"),
        ("parent: short, pre-timeout: 90", "a"),
        ("parent: lib", "a: {timeout: 60}"),
        ("pre-timeout: 2, timeout: 60", "a: {pre-timeout: 90}"),
    ] {
        assert_eq!(
            refusals(&layout(own, entry), "gate", "org/project"),
            diagnostics,
            "{own}: {entry}"
        );
    }
    // A conflict within one stanza is reported at load, one between several stanzas at freezing.
    assert_eq!(messages(&layout("pre-timeout: 90, timeout: 60", "a")), [diagnostics]);
    assert_eq!(
        messages(&layout("voting: true", "a: {pre-timeout: 90, timeout: 60}")),
        [diagnostics]
    );
    assert!(messages(&layout("parent: lib, timeout: 60", "a")).is_empty());
}
