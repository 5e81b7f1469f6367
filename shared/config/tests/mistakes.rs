//! All mistakes at once, each at its attribute: one of shape hides no other of its stanza, and what
//! is found only when names are followed or jobs are frozen is marked where it was said.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use sluice_config::{ConfigError, FreezeInput, Layout, Scope};
use std::collections::BTreeSet;

/// Returns what a mistake's marks enclose on the line where they begin.
fn marked(text: &str, error: &ConfigError) -> String {
    let (start, end) = (error.problem.start, error.problem.end);
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

/// What the stanzas of a row may name, in the same project.
const KNOWN: &str = "
- nodeset: {name: small-nodes, nodes: [{name: n, label: small}]}
- secret: {name: password, data: {a: b}}
- project-template: {name: python-jobs, check: {jobs: []}}
";

/// Z6.6: whatever is wrong with the shape of a stanza, what else is wrong with it is told beside
/// it, to whoever proposes it too.
#[test]
fn a_mistake_of_shape_hides_no_other_of_its_stanza() {
    // The project, its stanza, and what is marked.
    let rows: [(&str, &str, &[&str]); 15] = [
        (
            "org/project",
            "- job:\n    name: j\n    parent: bose\n    votng: false\n    timeout: soon\n    nodeset: small-node\n    secrets: [password, pasword]\n",
            &["bose", "votng", "soon", "small-node", "pasword"],
        ),
        // What could not be read is missing from the list: the list is marked, and no other member.
        ("org/project", "- job:\n    name: j\n    secrets: [7, pasword]\n", &["7", "[7, pasword]"]),
        // Without its name.
        ("org/project", "- job:\n    nam: j\n    parent: bose\n", &["nam: j", "nam", "bose"]),
        // What a repository may not do.
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
            // What a provider with mistakes names is looked for all the same.
            &["{slots: few}", "few", "perhaps", "tag", "s"],
        ),
        // Each member of a list that is wrong, and not the list.
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

/// Z6.6, C07: keys that are there twice, and tags that nobody knows, hide no other mistake of their
/// file; nothing of it counts.
#[test]
fn a_mistake_of_yaml_hides_no_other_of_its_file() {
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
    let told: Vec<(u32, u32)> = layout
        .errors()
        .iter()
        .map(|error| (error.problem.start.line(), error.problem.start.column()))
        .collect();
    assert_eq!(
        told,
        [(4, 5), (7, 5), (8, 15), (8, 25), (9, 37), (9, 72)],
        "{:#?}",
        layout.errors()
    );
    let jobs: Vec<&str> = layout.job_names().collect();
    assert_eq!(jobs, ["base"]);
    // Of an alias that nobody knows what it stands for, its own stanza is not looked through.
    let text = "- job: {name: a, votng: true, vars: *gone}\n- job: {name: b, votng: true, vars: &x {}}\n- job: {name: c, vars: &x {}}\n- job: {name: d, <<: *x}\n- job: {name: e, votng: true}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", text).build();
    let told: Vec<(u32, u32)> = layout
        .errors()
        .iter()
        .map(|error| (error.problem.start.line(), error.problem.start.column()))
        .collect();
    assert_eq!(told, [(1, 37), (2, 18), (3, 24), (5, 18)], "{:#?}", layout.errors());
    // What cannot be parsed is told last.
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", "- job: {name: a, name: b}\n- job: [\n")
        .build();
    let lines: Vec<u32> = layout.errors().iter().map(|error| error.problem.start.line()).collect();
    assert!(lines.len() == 2 && lines[0] == 1 && lines[1] > 1, "{:#?}", layout.errors());
}

/// Z6.6, C07: what cannot be parsed hides no mistake of the stanzas above it; they count for
/// nothing, as the whole file.
#[test]
fn what_breaks_off_hides_no_mistake_above_it() {
    let text = "- job: {name: a, votng: true}
- job: {name: b, run: r}
- pragma: {implied-branches: [stable]}
- job: {name: c, votng: true, run: [
";
    let layout = tenant().file("org/config", BASE).file("org/project", text).build();
    let told: Vec<(u32, u32)> = layout
        .errors()
        .iter()
        .map(|error| (error.problem.start.line(), error.problem.start.column()))
        .collect();
    assert!(told.len() == 2 && told[0] == (1, 18) && told[1].0 > 3, "{:#?}", layout.errors());
    let jobs: Vec<&str> = layout.job_names().collect();
    assert_eq!(jobs, ["base"]);
    let reopened = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert_eq!(reopened.errors(), layout.errors());
    // The same above a character that no text may have, but for the stanza that it may be in.
    let text = "- job: {name: a, votng: true}\n- job: {name: b, votng: true}\n# \u{1b}\n";
    let layout = tenant().file("org/config", BASE).file("org/project", text).build();
    let lines: Vec<u32> = layout.errors().iter().map(|error| error.problem.start.line()).collect();
    assert_eq!(lines, [1, 3], "{:#?}", layout.errors());
}

/// Z6.6: a stanza with a mistake defines nothing; what it names is followed as others' names are,
/// when these come and go.
#[test]
fn names_in_a_stanza_with_mistakes_are_followed_when_others_change() {
    let own = "- job: {name: faulty, votng: false, parent: to-come}\n";
    let to_come = "- job: {name: to-come, run: r}\n";
    let tenant = tenant().file("org/config", BASE).file("org/project", own);
    let layout = tenant.build();
    let extra = "syntax error: extra keys not allowed: \"votng\" is not known here (did you mean \"voting\"?)";
    assert_eq!(messages(&layout), [extra, "Job to-come not defined"]);
    assert!(!layout.job_names().any(|name| name == "faulty"));
    let reopened = Layout::from_bytes(&layout.to_bytes()).unwrap();
    assert!(!reopened.job_names().any(|name| name == "faulty"));
    for before in [&layout, &reopened] {
        let over = before
            .overlay(&[tenant.proposal("org/project1", "master", to_come)], Scope::UntrustedOnly);
        assert_eq!(messages(&over), [extra]);
        // And as nothing is said again that was said before, a mistake that stays is nobody's news.
        assert!(over.errors_since(before).is_empty());
        let again =
            over.overlay(&[tenant.proposal("org/project1", "master", "")], Scope::UntrustedOnly);
        assert_eq!(again.errors(), layout.errors());
    }
    let whole = tenant.file("org/project1", to_come).build();
    assert_eq!(messages(&whole), [extra]);
}

/// Z6.6, J07: whichever attribute of an entry a final job does not take, that one is marked and
/// named.
#[test]
fn what_is_found_when_jobs_are_frozen_is_marked_at_its_attribute() {
    // What the entry says, the attribute that is told, and what is marked.
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
            error.problem.message,
            format!("Unable to modify final job last attribute {attribute}"),
            "{said}"
        );
        assert_eq!(
            (error.problem.attribute.as_deref(), marked(&text, error).as_str()),
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
        named.iter().map(|playbook| marked(text, &playbook.missing())).collect();
    assert_eq!(marks, ["one.yaml", "two.yaml", "three.yaml", "four.yaml", "five.yaml"]);
}

/// L3.2, L3.7: what is of one image, flavor or label is no default of all of them: it is refused
/// where it would do nothing.
#[test]
fn what_is_said_of_one_alone_is_no_default() {
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
        let told = format!(
            "extra keys not allowed: \"{word}\" is no default, for each {of} says it of itself"
        );
        assert!(error.problem.message.starts_with(&told), "{said}: {}", error.problem.message);
        assert_eq!(marked(&text, error), value, "{said}");
        assert_eq!(error.problem.attribute, Some(format!("{of}-defaults.{word}")));
    }
}

/// Z2.2, Z6.6: of kinds that the tenant leaves out of a repository no mistake is told, and of one
/// that it reads nothing of none at all, however the layout came about.
#[test]
fn mistakes_of_what_a_tenant_leaves_out_are_not_told() {
    let shapes = "- job: {name: a, votng: false}\n- nodeset: {name: n, nodes: [], nods: []}\n- jbo: {name: b}\n";
    let yaml = "- job: {name: a, name: b}\n- nodeset: {name: n, nodes: [], nods: []}\n";
    // What is said of the repository, its file, and the lines that are told of.
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
            errors.iter().map(|error| error.problem.start.line()).collect()
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
