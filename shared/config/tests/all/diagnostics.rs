//! All diagnostics of a file are reported, each at its attribute. A syntax error hides no other
//! error of its stanza, and errors found later are marked at their origin.

use crate::common::*;
use sluice_config::{ConfigError, FreezeInput, Layout, Scope};
use std::collections::BTreeSet;

/// Returns the text that a diagnostic marks, on the line where the mark begins.
fn marked(text: &str, error: &ConfigError) -> String {
    let (start, end) = (error.diagnostic.start, error.diagnostic.end);
    let line = text.lines().nth(start.line() as usize - 1).unwrap_or_default();
    let until =
        if end.line() == start.line() { end.column() as usize - 1 } else { line.chars().count() };
    line.chars().take(until).skip(start.column() as usize - 1).collect()
}

const MAIN: &str = "
- tenant:
    name: one
    use-nodepool: false
    max-oidc-ttl: 60
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/project, org/project1]
";

/// Objects to which the stanzas of a row may refer, in the same project.
const KNOWN: &str = "
- nodeset: {name: small-nodes, nodes: [{name: n, label: small}]}
- secret: {name: password, data: {a: b}}
- project-template: {name: python-jobs, check: {jobs: []}}
";

/// Z6.6: other errors of a stanza with an invalid attribute are reported too, also for proposals.
#[test]
fn an_invalid_attribute_hides_no_other_error_of_its_stanza() {
    // The project, its stanza, and the marked texts.
    let rows: [(&str, &str, &[&str]); 15] = [
        (
            "org/project",
            "- job:\n    name: j\n    parent: bose\n    votng: false\n    timeout: soon\n    nodeset: small-node\n    secrets: [password, pasword]\n",
            &["bose", "votng", "soon", "small-node", "pasword"],
        ),
        // An unreadable member is missing from the list: the list is marked, and no other member.
        ("org/project", "- job:\n    name: j\n    secrets: [7, pasword]\n", &["7", "[7, pasword]"]),
        // A stanza without a name.
        ("org/project", "- job:\n    nam: j\n    parent: bose\n", &["nam: j", "nam", "bose"]),
        // A disallowed stanza.
        (
            "org/project",
            "- job:\n    name: j\n    parent: null\n    votng: false\n",
            &["null", "votng"],
        ),
        (
            "org/project",
            "- nodeset:\n    name: n\n    nodes: [{name: a}, {name: b, label: smal}]\n    groups: [{name: g, nodes: [a, c]}]\n",
            &["{name: a}", "c", "[{name: a}, {name: b, label: smal}]"],
        ),
        (
            "org/project",
            "- project:\n    templates: [python-job]\n    merge-mode: merg\n    check:\n      fail-fast: 7\n      jobs:\n        - bose\n        - base: {nodeset: small-node, attempts: none}\n",
            &["python-job", "merg", "7", "bose", "small-node", "none"],
        ),
        (
            "org/project",
            "- secret:\n    name: s\n    oidc: {ttl: 61, algorithm: 7}\n",
            &["61", "7"],
        ),
        (
            "org/config",
            "- pipeline:\n    manager: independnt\n    trigger: {githbu: [{event: push}]}\n",
            &["manager: independnt", "independnt", "githbu"],
        ),
        (
            "org/config",
            "- provider:\n    name: p\n    section: s\n    labels: [{slots: few}]\n    flavor-defaults: {final: perhaps, tag: 1}\n",
            // References of an invalid provider are resolved too.
            &["{slots: few}", "few", "perhaps", "tag", "s"],
        ),
        // Each wrong member of a list is marked, not the list.
        ("org/project", "- job:\n    name: j\n    intermediate: true\n", &["true"]),
        (
            "org/project",
            "- job:\n    name: j\n    secrets: [{name: zuul, secret: password}, {name: nodepool, secret: password}]\n",
            &["zuul", "nodepool"],
        ),
        (
            "org/project",
            "- job:\n    name: j\n    failure-output: ['(', fine, '[']\n",
            &["'('", "'['"],
        ),
        (
            "org/project",
            "- nodeset:\n    name: n\n    nodes: [{name: [a, a, '{{x}}'], label: small}]\n",
            &["a", "'{{x}}'"],
        ),
        (
            "org/config",
            "- image:\n    name: i\n    type: cloud\n    upload-methods: [copy, cpy, uplod]\n",
            &["cpy", "uplod"],
        ),
        (
            "org/config",
            "- pipeline:\n    name: p\n    manager: independent\n    trigger: {github: [{event: [push, pul_request, psh]}]}\n",
            &["pul_request", "psh"],
        ),
    ];
    for (name, stanza, expected) in rows {
        let config = format!("{BASE}- label: {{name: small}}\n");
        let text =
            format!("{}{stanza}", if name == "org/config" { config.as_str() } else { KNOWN });
        let before = tenant_of(MAIN).file("org/config", &config).file("org/project", KNOWN);
        let layout = match name {
            "org/config" => {
                tenant_of(MAIN).file("org/config", &text).file("org/project", KNOWN).build()
            }
            _ => tenant_of(MAIN).file("org/config", &config).file("org/project", &text).build(),
        };
        let expected: BTreeSet<String> = expected.iter().map(|mark| (*mark).to_owned()).collect();
        let marks = |errors: &[ConfigError]| -> BTreeSet<String> {
            assert_eq!(errors.len(), expected.len(), "{stanza}{errors:#?}");
            errors.iter().map(|error| marked(&text, error)).collect()
        };
        assert_eq!(marks(layout.errors()), expected, "{stanza}");
        let reopened = Layout::from_bytes(&layout.to_bytes()).unwrap();
        assert_eq!(reopened.errors(), layout.errors(), "{stanza}");
        let sound = before.sound();
        let proposed = sound.overlay(&[before.proposal(name, "master", &text)], Scope::ToValidate);
        assert_eq!(marks(&proposed.errors_since(&sound)), expected, "{stanza}");
    }
}

/// Z6.6, C07: duplicate keys and unknown tags hide no other error of their file, but nothing of it
/// takes effect.
#[test]
fn a_yaml_error_hides_no_other_error_of_its_file() {
    let text = "- job:
    name: a
    run: x
    run: y
- job:
    name: b
    votng: true
    vars: {k: !foo bar, [a]: b}
- nodeset: {name: n, nodes: [{name: !!binary YQ==, label: l}], groups: !!set {x}}
- job: {name: fine, run: r}
";
    let layout = tenant().file("org/config", BASE).file("org/project", text).build();
    let diagnostics: Vec<(u32, u32)> = layout
        .errors()
        .iter()
        .map(|error| (error.diagnostic.start.line(), error.diagnostic.start.column()))
        .collect();
    assert_eq!(
        diagnostics,
        [(4, 5), (7, 5), (8, 15), (8, 25), (9, 37), (9, 72)],
        "{:#?}",
        layout.errors()
    );
    let jobs: Vec<&str> = layout.job_names().collect();
    assert_eq!(jobs, ["base"]);
    // A stanza with an unresolved alias is not checked further.
    let text = "- job: {name: a, votng: true, vars: *gone}\n- job: {name: b, votng: true, vars: &x {}}\n- job: {name: c, vars: &x {}}\n- job: {name: d, <<: *x}\n- job: {name: e, votng: true}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", text).build();
    let diagnostics: Vec<(u32, u32)> = layout
        .errors()
        .iter()
        .map(|error| (error.diagnostic.start.line(), error.diagnostic.start.column()))
        .collect();
    assert_eq!(diagnostics, [(1, 37), (2, 18), (3, 24), (5, 18)], "{:#?}", layout.errors());
    // Syntax errors are reported last.
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", "- job: {name: a, name: b}\n- job: [\n")
        .build();
    let lines: Vec<u32> =
        layout.errors().iter().map(|error| error.diagnostic.start.line()).collect();
    assert!(lines.len() == 2 && lines[0] == 1 && lines[1] > 1, "{:#?}", layout.errors());
}

/// Z6.6, C07: a syntax error hides no error of the stanzas above it. Nothing of the file takes
/// effect.
#[test]
fn a_syntax_error_hides_no_error_above_it() {
    let text = "- job: {name: a, votng: true}
- job: {name: b, run: r}
- pragma: {implied-branches: [stable]}
- job: {name: c, votng: true, run: [
";
    let layout = tenant().file("org/config", BASE).file("org/project", text).build();
    let diagnostics: Vec<(u32, u32)> = layout
        .errors()
        .iter()
        .map(|error| (error.diagnostic.start.line(), error.diagnostic.start.column()))
        .collect();
    assert!(
        diagnostics.len() == 2 && diagnostics[0] == (1, 18) && diagnostics[1].0 > 3,
        "{:#?}",
        layout.errors()
    );
    let jobs: Vec<&str> = layout.job_names().collect();
    assert_eq!(jobs, ["base"]);
    let reopened = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert_eq!(reopened.errors(), layout.errors());
    // The same above an invalid character, except for the stanza that contains it.
    let text = "- job: {name: a, votng: true}\n- job: {name: b, votng: true}\n# \u{1b}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", text).build();
    let lines: Vec<u32> =
        layout.errors().iter().map(|error| error.diagnostic.start.line()).collect();
    assert_eq!(lines, [1, 3], "{:#?}", layout.errors());
}

/// Z6.6: an invalid stanza defines nothing, but its references are still resolved when other files
/// change.
#[test]
fn references_of_an_invalid_stanza_are_resolved_when_other_files_change() {
    let own = "- job: {name: faulty, votng: false, parent: to-come}\n";
    let to_come = "- job: {name: to-come, run: r}\n";
    let tenant = tenant().file("org/config", BASE).file("org/project", own);
    let layout = tenant.build();
    let extra = "syntax error: extra keys not allowed: \"votng\" is not an attribute here (did you mean \"voting\"?)";
    assert_eq!(messages(&layout), [extra, "Job to-come not defined"]);
    assert!(!layout.job_names().any(|name| name == "faulty"));
    let reopened = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert!(!reopened.job_names().any(|name| name == "faulty"));
    for before in [&layout, &reopened] {
        let over = before
            .overlay(&[tenant.proposal("org/project1", "master", to_come)], Scope::UntrustedOnly);
        assert_eq!(messages(&over), [extra]);
        // A diagnostic that remains is not reported again.
        assert!(over.errors_since(before).is_empty());
        let again =
            over.overlay(&[tenant.proposal("org/project1", "master", "")], Scope::UntrustedOnly);
        assert_eq!(again.errors(), layout.errors());
    }
    let whole = tenant.file("org/project1", to_come).build();
    assert_eq!(messages(&whole), [extra]);
}

/// Z6.6, J07: the attribute that a final job refuses is the one that is marked and named.
#[test]
fn freezing_errors_are_marked_at_their_attribute() {
    // The entry's attributes, the reported attribute, and the marked text.
    let rows = [
        ("parent: base", "parent", "base"),
        ("semaphores: s", "semaphores", "s"),
        ("semaphore: s", "semaphores", "s"),
        ("secrets: [password]", "secrets", "[password]"),
        ("nodeset: {nodes: []}", "nodeset", "{nodes: []}"),
        ("nodes: small-nodes", "nodeset", "small-nodes"),
        ("pre-timeout: 7", "pre-timeout", "7"),
        ("timeout: 7", "timeout", "7"),
        ("post-timeout: 7", "post-timeout", "7"),
        ("attempts: 2", "attempts", "2"),
        ("pre-run: own", "pre-run", "own"),
        ("post-run: own", "post-run", "own"),
        ("cleanup-run: own", "post-run", "own"),
        ("run: own", "run", "own"),
        ("roles: [{zuul: org/project1}]", "roles", "[{zuul: org/project1}]"),
        ("required-projects: [org/project1]", "required-projects", "[org/project1]"),
        ("repos: [org/project1]", "required-projects", "[org/project1]"),
        ("vars: {a: 1}", "vars", "{a: 1}"),
        ("extra-vars: {a: 1}", "extra-vars", "{a: 1}"),
        ("host-vars: {h: {a: 1}}", "host-vars", "{h: {a: 1}}"),
        ("group-vars: {g: {a: 1}}", "group-vars", "{g: {a: 1}}"),
        ("allowed-projects: [org/project]", "allowed-projects", "[org/project]"),
        ("override-checkout: other", "override-checkout", "other"),
        ("override-branch: other", "override-checkout", "other"),
        ("post-review: true", "post-review", "true"),
        ("workspace-scheme: flat", "workspace-scheme", "flat"),
        ("ansible-version: 9", "ansible-version", "9"),
        ("image-build-name: debian", "image-build-name", "debian"),
        ("type: initializer", "type", "initializer"),
        ("secret-exposure: fail", "secret-exposure", "fail"),
        ("failure-output: oops", "failure-output", "oops"),
        ("include-projects: org/project1", "include-projects", "org/project1"),
        ("exclude-projects: org/project1", "exclude-projects", "org/project1"),
        ("include-vars: a.yaml", "include-vars", "a.yaml"),
        ("ansible-split-streams: true", "ansible-split-streams", "true"),
        ("workspace-checkout: true", "workspace-checkout", "true"),
        ("preserve-home-paths: [a]", "preserve-home-paths", "[a]"),
        ("workspace: /opt", "workspace", "/opt"),
    ];
    let name = project("org/project");
    for (said, attribute, mark) in rows {
        let text = format!(
            "{KNOWN}- project:\n    check:\n      jobs:\n        - last:\n            {said}\n"
        );
        let layout = tenant()
            .file("org/config", &format!("{BASE}- job: {{name: last, final: true, run: r}}\n"))
            .file("org/project", &text)
            .build();
        let errors = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap_err();
        let [error] = &errors[..] else { panic!("{said}: {errors:#?}") };
        assert_eq!(
            error.diagnostic.message,
            format!("Unable to modify final job last attribute {attribute}"),
            "{said}"
        );
        assert_eq!(
            (error.diagnostic.attribute.as_deref(), marked(&text, error).as_str()),
            (Some(attribute), mark),
            "{said}"
        );
    }
}

/// Z6.6, Z4.9: a playbook that is not there is marked where the job names it.
#[test]
fn a_playbook_that_is_missing_is_marked_where_it_is_named() {
    let text = "- job:\n    name: a\n    pre-run: one.yaml\n    run:\n      - two.yaml\n      - {name: three.yaml, semaphores: s}\n    post-run: [four.yaml]\n    cleanup-run: five.yaml\n";
    let tenant = tenant().file("org/config", BASE).file("org/project", text);
    let layout = tenant.build();
    let config = tenant.proposal("org/project", "master", text);
    let named = layout.named_playbooks(&config, &layout);
    let marks: Vec<String> =
        named.iter().map(|playbook| marked(text, &playbook.missing_error())).collect();
    assert_eq!(marks, ["one.yaml", "two.yaml", "three.yaml", "four.yaml", "five.yaml"]);
}

/// L3.2, L3.7: attributes of a single image, flavor or label are refused as defaults, where they
/// have no effect.
#[test]
fn attributes_of_a_single_object_are_refused_as_defaults() {
    let rows = [
        ("label", "min-ready: 1"),
        ("label", "image: debian"),
        ("label", "flavor: small"),
        ("label", "max-nodes: 2"),
        ("label", "description: text"),
        ("image", "type: cloud"),
        ("image", "image-id: ami-1"),
        ("image", "description: text"),
        ("flavor", "instance-type: m5.large"),
        ("flavor", "description: text"),
    ];
    for (of, said) in rows {
        let (word, value) = said.split_once(": ").unwrap();
        let text = format!(
            "- section: {{name: s, connection: ec2}}\n- provider:\n    name: p\n    section: s\n    {of}-defaults: {{{said}, final: true}}\n"
        );
        let layout = tenant().file("org/config", &text).build();
        let [error] = layout.errors() else { panic!("{said}: {:#?}", layout.errors()) };
        let diagnostics = format!(
            "extra keys not allowed: \"{word}\" can not have a default: set it in each {of}"
        );
        assert!(
            error.diagnostic.message.starts_with(&diagnostics),
            "{said}: {}",
            error.diagnostic.message
        );
        assert_eq!(marked(&text, error), value, "{said}");
        assert_eq!(error.diagnostic.attribute, Some(format!("{of}-defaults.{word}")));
    }
}

/// Z2.2, Z6.6: kinds of objects that the tenant excludes yield no diagnostics, and an excluded
/// repository yields none at all.
#[test]
fn excluded_objects_yield_no_diagnostics() {
    let shapes = "- job: {name: a, votng: false}\n- nodeset: {name: n, nodes: [], nods: []}\n- jbo: {name: b}\n";
    let yaml = "- job: {name: a, name: b}\n- nodeset: {name: n, nodes: [], nods: []}\n";
    // The tenant's entry for the repository, its file, and the lines of its diagnostics.
    let rows: [(&str, &str, &[u32]); 7] = [
        ("", shapes, &[1, 2, 3]),
        ("include: [job]", shapes, &[1, 3]),
        ("exclude: nodeset", shapes, &[1, 3]),
        ("exclude: [job]", shapes, &[2, 3]),
        ("include: []", shapes, &[]),
        ("exclude: [job, nodeset]", yaml, &[1]),
        ("include: []", yaml, &[]),
    ];
    for (said, text, expected) in rows {
        let main = format!(
            "- tenant: {{name: one, source: {{github: {{config-projects: [org/config], untrusted-projects: [org/project: {{{said}}}]}}}}}}\n"
        );
        let lines = |errors: &[ConfigError]| -> Vec<u32> {
            errors.iter().map(|error| error.diagnostic.start.line()).collect()
        };
        let before = tenant_of(&main).file("org/config", BASE);
        let sound = before.sound();
        let proposed =
            sound.overlay(&[before.proposal("org/project", "master", text)], Scope::ToValidate);
        assert_eq!(lines(&proposed.errors_since(&sound)), expected, "{said}");
        let layout = before.file("org/project", text).build();
        assert_eq!(lines(layout.errors()), expected, "{said}: {:#?}", layout.errors());
        assert_eq!(
            Layout::from_bytes(&layout.to_bytes()).unwrap().errors(),
            layout.errors(),
            "{said}"
        );
    }
}
