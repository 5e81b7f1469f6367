//! Numbers of any size: each is preserved exactly, or is refused at its place.

use crate::common::*;
use serde_json::json;
use sluice_config::FreezeInput;

/// Returns the diagnostics of one file as line, column and message.
fn diagnostics(text: &str) -> Vec<String> {
    let layout = tenant().file("org/config", &format!("{text}{BASE}")).build();
    let line = |error: &sluice_config::ConfigError| {
        let problem = &error.diagnostic;
        format!("{}:{} {}", problem.start.line(), problem.start.column(), problem.message)
    };
    layout.errors().iter().map(line).collect()
}

/// Z2.4, Z4.1: a job's variables keep every digit in the frozen job, in any base.
#[test]
fn variables_keep_every_digit() {
    let text = "
- job:
    name: test
    run: r
    vars:
      most: 18_446_744_073_709_551_615
      least: -9223372036854775808
      above: 0x8000000000000000
      octal: 01777777777777777777777
      sixty: 1_000_000_000_000_000:30
      quoted: '340282366920938463463374607431768211456'
- project: {name: org/project, vars: {deep: [{of: 9223372036854775808}]}, check: {jobs: [test]}}
";
    let layout = tenant().file("org/config", &format!("{BASE}{text}")).sound();
    let graph =
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap();
    // As text, since a comparison of numbers would treat different texts as equal.
    let vars = &job(&graph, "test").vars;
    let frozen = |name: &str| vars[name].to_string();
    assert_eq!(frozen("most"), "18446744073709551615");
    assert_eq!(frozen("least"), "-9223372036854775808");
    assert_eq!(frozen("above"), "9223372036854775808");
    assert_eq!(frozen("octal"), "18446744073709551615");
    assert_eq!(frozen("sixty"), "60000000000000030");
    assert_eq!(frozen("quoted"), "\"340282366920938463463374607431768211456\"");
    assert_eq!(vars["deep"], json!([{"of": 9_223_372_036_854_775_808_u64}]));
    // The same for a stored frozen job.
    let stored = serde_json::to_string(job(&graph, "test")).unwrap();
    assert!(stored.contains("\"most\":18446744073709551615"), "{stored}");
}

/// Z2.4, Z6.6: a number that JSON cannot represent is reported at its place with a remedy, and
/// never changed.
#[test]
fn integers_that_json_cannot_represent_are_reported() {
    let what = "must be from -9223372036854775808 to 18446744073709551615: quote a larger one";
    let long = "340282366920938463463374607431768211456";
    for (stanza, column, attribute) in [
        (format!("- job: {{name: a, run: r, vars: {{n: {long}}}}}\n"), 36, "vars"),
        (format!("- job: {{name: a, run: r, vars: {{n: -{long}}}}}\n"), 36, "vars"),
        (format!("- job: {{name: a, run: r, vars: {{n: [1, {long}]}}}}\n"), 40, "vars"),
        (
            "- job: {name: a, run: r, vars: {n: 0x1ffffffffffffffffffffffffffffffff}}\n".to_owned(),
            36,
            "vars",
        ),
        (format!("- job: {{name: a, run: r, host-vars: {{h: {{n: {long}}}}}}}\n"), 45, "host-vars"),
        (format!("- secret: {{name: s, data: {{n: {long}}}}}\n"), 31, "data"),
    ] {
        let found = diagnostics(&stanza);
        let place = format!("1:{column} ");
        let is_expected = |one: &&String| {
            one.starts_with(&place) && one.contains(attribute) && one.contains(what)
        };
        assert_eq!(found.iter().filter(is_expected).count(), 1, "{stanza}: {found:#?}");
        // The number may belong to a secret.
        assert!(!found.iter().any(|one| one.contains(long)), "{found:#?}");
    }
}

/// Z6.6: the diagnostic of an attribute with a range states the range, for numbers of any size.
#[test]
fn attributes_with_a_range_state_it() {
    let long = "99999999999999999999";
    for (stanza, expected) in [
        (format!("- job: {{name: a, run: r, attempts: {long}}}\n"), "\"attempts\" must be at most 4294967295"),
        (format!("- job: {{name: a, run: r, attempts: -{long}}}\n"), "\"attempts\" must be at least 1"),
        (format!("- semaphore: {{name: a, max: {long}}}\n"), "\"max\" must be at most 4294967295"),
        (
            format!("- pipeline: {{name: q, manager: dependent, window-ceiling: {long}}}\n"),
            "\"window-ceiling\" must be at most 4294967295",
        ),
        (
            "- pipeline: {name: q, manager: dependent, window-ceiling: 4294967296}\n".to_owned(),
            "\"window-ceiling\" must be at most 4294967295",
        ),
        ("- label: {name: l, min-ready: 4294967296}\n".to_owned(), "\"min-ready\" must be at most 4294967295"),
        ("- label: {name: l, max-age: -1}\n".to_owned(), "\"max-age\" must be at least 0"),
        ("- image: {name: i, type: zuul, retain-count: 0}\n".to_owned(), "\"retain-count\" must be at least 1"),
        (
            "- image: {name: i, type: cloud, connection-port: 65536}\n".to_owned(),
            "\"connection-port\" must be at most 65535",
        ),
        (
            "- section: {name: s, connection: null, nodes: [{name: a, label: l, connection-port: 70000}]}\n".to_owned(),
            "must be at most 65535",
        ),
        (
            format!("- section: {{name: s, connection: ec2, quota: {{instances: {long}}}}}\n"),
            "expected an integer from 0 to 9223372036854775807",
        ),
        (
            format!("- job: {{name: a, run: r, nodeset: {{nodes: [{{name: {long}, label: x}}]}}}}\n"),
            "an integer beyond 64 bits; YAML reads this word that way, so quote it",
        ),
    ] {
        let found = diagnostics(&stanza);
        assert!(found.iter().any(|one| one.contains(expected)), "{stanza}: {found:#?}");
    }
}
