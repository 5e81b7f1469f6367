//! Tests `sluice config check` and `sluice config freeze` as programs, on directories.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use sluice_config::fragment::{Source, SourceFile, parse};
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::{Connections, Driver, parse_main};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

const CENTRAL: &str = "
- pipeline: {name: check, manager: independent}
- job: {name: base, parent: null, run: base.yaml}
- job: {name: unit, run: unit.yaml, timeout: 40}
- job: {name: unit, branches: ^stable/, timeout: 80}
";
const OWN: &str = "- project: {check: {jobs: [unit: {attempts: 1}]}}\n";

fn sluice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice")).args(arguments).output().unwrap()
}

fn output_of(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Writes a snapshot of a tenant with `org/central` and `org/own`.
fn snapshot(file: &Path) {
    let connections = Connections::new().with("github", Driver::GitHub, "github.com");
    let main = "- tenant: {name: one, source: {github: {config-projects: [org/central], untrusted-projects: [org/own, org/other]}}}";
    let tenant = parse_main("main.yaml", main, &connections).0.tenants.remove(0);
    let texts = [
        ("org/central", CENTRAL),
        ("org/own", OWN),
        ("org/other", "- project: {check: {jobs: [made]}}"),
    ];
    let fragments = texts.map(|(name, text)| {
        let project = connections.project("github", name).unwrap();
        let trust = tenant.project(&project).unwrap().trust;
        let source = Source {
            connection: "github".into(),
            project,
            branch: "master".into(),
            path: ".zuul.yaml".into(),
            trust,
        };
        Arc::new(parse(&SourceFile { source, text: text.to_owned() }))
    });
    let sources = LayoutSources {
        tenant,
        connections,
        branches: BTreeMap::new(),
        fragments: fragments.into(),
    };
    std::fs::write(file, Layout::build(sources).to_bytes()).unwrap();
}

/// Z6.6: an error has its file and line; the exit status is 0 without errors, 1 with errors, 2
/// without configuration.
#[test]
fn a_directory_is_checked_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let nothing = sluice(&["config", "check", path]);
    assert_eq!(nothing.status.code(), Some(2), "{}", output_of(&nothing));
    std::fs::write(folder.path().join(".zuul.yaml"), OWN).unwrap();
    let sound = sluice(&["config", "check", path]);
    assert_eq!(sound.status.code(), Some(0), "{}", output_of(&sound));
    // The pipeline and the job.
    assert!(
        output_of(&sound).contains("not checked: 2 names that other repositories define"),
        "{}",
        output_of(&sound)
    );
    std::fs::write(folder.path().join(".zuul.yaml"), "- job:\n    name: unit\n    vottng: true\n")
        .unwrap();
    let broken = sluice(&["config", "check", path]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(
        output_of(&broken).contains(".zuul.yaml:3:5")
            && output_of(&broken).contains("did you mean \"voting\"?"),
        "{}",
        output_of(&broken)
    );
    let json: Value =
        serde_json::from_slice(&sluice(&["config", "check", path, "--json"]).stdout).unwrap();
    assert_eq!(
        (&json["findings"][0]["line"], &json["findings"][0]["severity"]),
        (&3.into(), &"error".into()),
        "{json:#}"
    );
    let sarif: Value =
        serde_json::from_slice(&sluice(&["config", "check", path, "--sarif"]).stdout).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(
        (&result["ruleId"], &result["level"]),
        (&"syntax".into(), &"error".into()),
        "{sarif:#}"
    );
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 3);
}

/// C06: with a snapshot, unknown names are found, here and where this directory causes them
/// elsewhere.
#[test]
fn a_directory_is_checked_within_its_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = folder.path().join("tenant");
    snapshot(&tenant);
    let tenant = tenant.to_str().unwrap();
    let central = folder.path().join("central");
    std::fs::create_dir(&central).unwrap();
    std::fs::write(central.join("zuul.yaml"), CENTRAL).unwrap();
    for playbook in ["base.yaml", "unit.yaml"] {
        std::fs::write(central.join(playbook), "[]\n").unwrap();
    }
    let check = || sluice(&["config", "check", central.to_str().unwrap(), "--snapshot", tenant]);
    assert_eq!(check().status.code(), Some(0), "{}", output_of(&check()));
    std::fs::write(central.join("zuul.yaml"), CENTRAL.replace("name: unit", "name: units"))
        .unwrap();
    let renamed = check();
    assert_eq!(renamed.status.code(), Some(1));
    assert!(
        output_of(&renamed).contains("Job unit not defined")
            && output_of(&renamed).contains("org/own"),
        "{}",
        output_of(&renamed)
    );
    assert!(
        !output_of(&renamed).contains("Job made not defined"),
        "what was wrong before is not this directory's doing"
    );
}

/// Returns the diagnostics of a directory with one file, with or without the tenant's snapshot:
/// line, severity and message.
fn findings(folder: &Path, text: &str, tenant: Option<&Path>) -> Vec<String> {
    std::fs::write(folder.join(".zuul.yaml"), text).unwrap();
    let mut arguments = vec!["config", "check", folder.to_str().unwrap(), "--json"];
    arguments.extend(tenant.iter().flat_map(|file| ["--snapshot", file.to_str().unwrap()]));
    let output = sluice(&arguments);
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", output_of(&output)));
    let findings = json["findings"].as_array().unwrap();
    let has_error = findings.iter().any(|one| one["severity"] == "error");
    assert_eq!(output.status.code(), Some(i32::from(has_error)), "{}", output_of(&output));
    let word = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    findings
        .iter()
        .map(|one| format!("{} {}: {}", one["line"], word(one, "severity"), word(one, "message")))
        .collect()
}

/// Z6.6, Z4.7, Z4.9: errors of freezing jobs are found offline; without a snapshot, only those that
/// no other repository can fix.
#[test]
fn errors_of_freezing_jobs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (tenant, own) = (folder.path().join("tenant"), folder.path().join("own"));
    snapshot(&tenant);
    std::fs::create_dir(&own).unwrap();
    let listing =
        |job: &str, entries: &str| format!("{job}- project: {{check: {{jobs: [{entries}]}}}}\n");
    let part = "- job: {name: part, abstract: true, parent: unit}\n";
    let expected = "2 error: Job part is abstract and may not be directly run";
    for known in [None, Some(tenant.as_path())] {
        assert_eq!(findings(&own, &listing(part, "part, unit"), known), [expected], "{known:?}");
        let missing = findings(&own, "- job: {name: late, run: play/late.yaml}\n", known);
        assert!(
            missing[0].starts_with("1 error: Playbook \"play/late.yaml\" was not found"),
            "{missing:?}"
        );
    }
    let text = sluice(&["config", "check", own.to_str().unwrap()]);
    assert!(output_of(&text).contains("was not found in "), "{}", output_of(&text));
    let waits = listing("", "unit: {dependencies: [made]}");
    let needs =
        |severity: &str| format!("2 {severity}: Job unit depends on made which was not run.");
    assert_eq!(
        findings(&own, &waits, None),
        Vec::<String>::new(),
        "another repository may define and list it"
    );
    std::fs::create_dir(own.join("playbooks")).unwrap();
    std::fs::write(own.join("playbooks/made.yml"), "[]\n").unwrap();
    let waits = format!("- job: {{name: made}}\n{waits}");
    assert_eq!(findings(&own, &waits, Some(&tenant)), [needs("error")]);
    assert_eq!(findings(&own, &waits, None), [needs("warning")], "another repository may list it");
    let sarif: Value = serde_json::from_slice(
        &sluice(&["config", "check", own.to_str().unwrap(), "--sarif"]).stdout,
    )
    .unwrap();
    assert_eq!(faults(&sarif), Vec::<String>::new(), "{sarif:#}");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "not-permitted", "{sarif:#}");
}

/// Z6.6, Z6.1: jobs that a config project lists for other projects are frozen too; existing errors
/// of those are not reported.
#[test]
fn jobs_that_are_listed_for_others_are_tried_too() {
    let folder = tempfile::tempdir().unwrap();
    let central = folder.path().join("central");
    std::fs::create_dir(&central).unwrap();
    let text = format!(
        "{CENTRAL}- job: {{name: part, abstract: true}}\n- project: {{name: org/own, check: {{jobs: [part]}}}}\n"
    );
    for playbook in ["base.yaml", "unit.yaml"] {
        std::fs::write(central.join(playbook), "[]\n").unwrap();
    }
    let expected = ["7 error: Job part is abstract and may not be directly run"];
    assert_eq!(findings(&central, &text, None), expected);
    let twice = format!("{text}- project: {{name: github.com/org/own, check: {{jobs: [unit]}}}}\n");
    assert_eq!(findings(&central, &twice, None), expected, "one project by two names");
    let tenant = folder.path().join("tenant");
    snapshot(&tenant);
    assert_eq!(findings(&central, &text, Some(&tenant)), expected);
    // This definition breaks another project's list of jobs.
    let shut = CENTRAL.replace("run: unit.yaml, timeout: 40", "run: unit.yaml, final: true");
    let mut found = findings(
        &central,
        &format!("{shut}- project: {{name: org/own, check: {{jobs: []}}}}\n"),
        Some(&tenant),
    );
    assert_eq!(found.pop().unwrap(), "1 error: Unable to modify final job unit attribute attempts");
}

/// Z6.6: invalid text is an error at its position, and control characters do not reach the
/// terminal.
#[test]
fn a_file_of_any_bytes_is_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".zuul.yaml");
    let path = folder.path().to_str().unwrap();
    for (bytes, place) in [
        (&b"- job: {name: \xff\x1b[31m}\n"[..], ".zuul.yaml:1:15"),
        (b"# \x1b]0;title\x07\n", ".zuul.yaml:1:3"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        for format in ["text", "json", "sarif"] {
            let output = sluice(&["config", "check", path, "--format", format]);
            assert_eq!(output.status.code(), Some(1), "{}", output_of(&output));
            assert!(
                !output_of(&output).contains(|c: char| c.is_control() && c != '\n'),
                "{:?}",
                output_of(&output)
            );
            assert!(
                format != "text" || output_of(&output).contains(place),
                "{}",
                output_of(&output)
            );
        }
    }
}

/// Z4.7: a frozen job is shown with what each definition sets, and why others do not apply.
#[test]
fn a_frozen_job_is_shown_with_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = folder.path().join("tenant");
    snapshot(&tenant);
    let freeze = |more: &[&str]| {
        let mut arguments = vec![
            "config",
            "freeze",
            "--snapshot",
            tenant.to_str().unwrap(),
            "--project",
            "org/own",
        ];
        arguments.extend(more);
        sluice(&arguments)
    };
    let shown = freeze(&["unit"]);
    assert_eq!(shown.status.code(), Some(0), "{}", output_of(&shown));
    for line in [
        "job unit runs",
        "  + job unit from org/central@master .zuul.yaml:4: timeout, run",
        "  - job unit from org/central@master .zuul.yaml:5: not applied, its branches do not match master",
        "  + entry unit from org/own@master .zuul.yaml:1: attempts",
        "\"timeout_seconds\": 40",
    ] {
        assert!(output_of(&shown).contains(line), "{line} is missing from:\n{}", output_of(&shown));
    }
    let json: Value =
        serde_json::from_slice(&freeze(&["--json", "--branch", "stable/1"]).stdout).unwrap();
    assert_eq!(json["jobs"][0]["timeout_seconds"], 80, "{json:#}");
    assert_eq!(freeze(&["nothing"]).status.code(), Some(2));
}

/// Z4.2, Z4.7: jobs of pushed refs are frozen offline: a branch's like its changes', a tag's by its
/// full ref.
#[test]
fn jobs_of_a_branch_and_of_a_tag_are_frozen_offline() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = folder.path().join("tenant");
    snapshot(&tenant);
    let freeze = |more: &[&str]| {
        let mut arguments = vec![
            "config",
            "freeze",
            "unit",
            "--snapshot",
            tenant.to_str().unwrap(),
            "--project",
            "org/own",
        ];
        arguments.extend(more);
        sluice(&arguments)
    };
    for (named, whole) in [
        (["--tag", "1.0"], "refs/tags/1.0"),
        (["--tag", "refs/tags/1.0"], "refs/tags/1.0"),
        (["--ref", "refs/tags/2"], "refs/tags/2"),
    ] {
        let shown = freeze(&named);
        let left_out = format!("not applied, its branches do not match {whole}");
        assert_eq!(shown.status.code(), Some(0), "{}", output_of(&shown));
        let note = String::from_utf8_lossy(&shown.stderr).into_owned();
        assert!(note.contains("name them with --on BRANCH"), "{note}");
        assert!(
            output_of(&shown).contains(&left_out)
                && output_of(&shown).contains("\"timeout_seconds\": 40"),
            "{}",
            output_of(&shown)
        );
    }
    for named in [["--ref", "refs/heads/stable/1"], ["--ref", "stable/1"], ["--branch", "stable/1"]]
    {
        let shown = freeze(&named);
        assert!(
            output_of(&shown).contains("\"timeout_seconds\": 80"),
            "{named:?}: {}",
            output_of(&shown)
        );
    }
    for (on, seconds) in [("master", 40), ("stable/1", 80)] {
        let shown = freeze(&["--tag", "1.0", "--on", on]);
        assert!(
            output_of(&shown).contains(&format!("\"timeout_seconds\": {seconds}")),
            "{on}: {}",
            output_of(&shown)
        );
        assert!(!output_of(&shown).contains("--on BRANCH"), "{}", output_of(&shown));
    }
    let both = freeze(&["--tag", "1.0", "--branch", "master"]);
    assert!(
        !both.status.success() && output_of(&both).contains("cannot be used with"),
        "{}",
        output_of(&both)
    );
    let mut arguments = vec![
        "config",
        "freeze",
        "nothing",
        "--snapshot",
        tenant.to_str().unwrap(),
        "--project",
        "org/own",
    ];
    arguments.extend(["--tag", "1.0"]);
    let missing = sluice(&arguments);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        output_of(&missing).contains("does not run a job nothing in check for refs/tags/1.0"),
        "{}",
        output_of(&missing)
    );
}

/// Returns the violations of version 2.1.0 in a SARIF log, for the parts that are used.
fn faults(log: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            faults.push(what);
        }
    };
    must(log["version"] == "2.1.0", "version".to_owned());
    must(
        log["$schema"].as_str().is_some_and(|uri| uri.starts_with("https://")),
        "$schema".to_owned(),
    );
    for run in log["runs"].as_array().into_iter().flatten() {
        let driver = &run["tool"]["driver"];
        must(
            driver["name"].as_str().is_some_and(|name| !name.is_empty()),
            "a tool has a name".to_owned(),
        );
        must(
            ["unicodeCodePoints", "utf16CodeUnits"]
                .contains(&run["columnKind"].as_str().unwrap_or_default()),
            "columnKind".to_owned(),
        );
        let rules: Vec<&str> = driver["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|rule| rule["id"].as_str())
            .collect();
        let mut once = rules.clone();
        once.dedup();
        must(once == rules, format!("rules are there once: {rules:?}"));
        for result in run["results"].as_array().into_iter().flatten() {
            must(
                rules.contains(&result["ruleId"].as_str().unwrap_or_default()),
                format!("a known rule: {result}"),
            );
            must(
                ["none", "note", "warning", "error"]
                    .contains(&result["level"].as_str().unwrap_or_default()),
                format!("a level: {result}"),
            );
            must(
                result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()),
                format!("a message: {result}"),
            );
            let place = &result["locations"][0]["physicalLocation"];
            let uri = place["artifactLocation"]["uri"].as_str().unwrap_or_default();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
            must(
                !uri.is_empty() && !uri.starts_with('/') && uri.chars().all(plain),
                format!("a relative URI: {result}"),
            );
            let at = |name: &str| place["region"][name].as_u64().unwrap_or(0);
            let (start, end) =
                ((at("startLine"), at("startColumn")), (at("endLine"), at("endColumn")));
            must(start.0 >= 1 && start.1 >= 1 && end >= start, format!("a region: {result}"));
        }
    }
    must(log["runs"].as_array().is_some_and(|runs| !runs.is_empty()), "runs".to_owned());
    faults
}

/// Z6.6: the SARIF output conforms to its specification, whatever is found.
#[test]
fn sarif_is_as_its_specification_says() {
    let folder = tempfile::tempdir().unwrap();
    let zuul = folder.path().join("zuul.d");
    std::fs::create_dir(&zuul).unwrap();
    let texts = [
        (
            "a b.yaml",
            "- queue: {name: token, allow-circular-dependencies: true, dependencies-by-topic: true}\n- job: {nam: x}\n",
        ),
        ("broken.yaml", "- job: [\n"),
        ("empty.yaml", ""),
        ("ä.yaml", "- nodeset:\n    name: n\n    alternatives: [n]\n"),
    ];
    for (name, text) in texts {
        std::fs::write(zuul.join(name), text).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let log: Value =
        serde_json::from_slice(&sluice(&["config", "check", path, "--sarif"]).stdout).unwrap();
    assert_eq!(faults(&log), Vec::<String>::new(), "{log:#}");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let mut places: Vec<&str> = results
        .iter()
        .filter_map(|result| {
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str()
        })
        .collect();
    places.dedup();
    assert!(
        ["zuul.d/a%20b.yaml", "zuul.d/broken.yaml", "zuul.d/%C3%A4.yaml"]
            .iter()
            .all(|one| places.contains(one)),
        "{places:?}"
    );
    assert!(results.iter().any(|result| result["ruleId"] == "unsupported"), "{log:#}");
}

/// README: unsupported attributes are reported for the directory's own files.
#[test]
fn unsupported_attributes_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = folder.path().join("tenant");
    snapshot(&tenant);
    let own = folder.path().join("own");
    std::fs::create_dir(&own).unwrap();
    let text = "- nodeset: {name: n, nodes: [{name: a, label: nowhere}]}\n- queue: {name: token, allow-circular-dependencies: true, dependencies-by-topic: true}\n";
    std::fs::write(own.join(".zuul.yaml"), text).unwrap();
    let alone = sluice(&["config", "check", own.to_str().unwrap()]);
    assert_eq!(alone.status.code(), Some(0), "warnings are no errors: {}", output_of(&alone));
    assert!(output_of(&alone).contains("no supported forge has topics"), "{}", output_of(&alone));
    assert!(
        !output_of(&alone).contains("no provider of the tenant"),
        "labels are unknown without a snapshot: {}",
        output_of(&alone)
    );
    let within =
        sluice(&["config", "check", own.to_str().unwrap(), "--snapshot", tenant.to_str().unwrap()]);
    assert!(
        output_of(&within).contains("no provider of the tenant offers label nowhere"),
        "{}",
        output_of(&within)
    );
}

/// Z2.2, Z6.6: the main configuration is checked offline; only the system knows the connections.
#[test]
fn a_main_configuration_is_checked_offline() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.yaml");
    let path = main.to_str().unwrap();
    let sound = "- tenant:\n    name: one\n    source:\n      hub:\n        config-projects: [org/config]\n        untrusted-projects: [org/own]\n";
    std::fs::write(&main, sound).unwrap();
    let checked = sluice(&["config", "check", path]);
    assert_eq!(checked.status.code(), Some(0), "{}", output_of(&checked));
    assert!(
        output_of(&checked).contains("1 tenant, 2 projects: 0 errors"),
        "{}",
        output_of(&checked)
    );
    assert!(output_of(&checked).contains("the connections hub"), "{}", output_of(&checked));
    let limited = "    allowed-triggers: [hub, timer]\n    allowed-reporters: mail\n    source:";
    std::fs::write(&main, sound.replace("    source:", limited)).unwrap();
    let checked = sluice(&["config", "check", path]);
    assert!(
        output_of(&checked).contains("the connections hub, mail exist"),
        "{}",
        output_of(&checked)
    );
    assert!(!output_of(&checked).contains("Unknown connection"), "{}", output_of(&checked));
    std::fs::write(&main, sound.replace("untrusted-projects", "untrusted-project")).unwrap();
    let wrong = sluice(&["config", "check", path]);
    assert_eq!(wrong.status.code(), Some(1), "{}", output_of(&wrong));
    assert!(output_of(&wrong).contains("main.yaml:6"), "{}", output_of(&wrong));
    assert!(
        output_of(&wrong).contains("did you mean \"untrusted-projects\"?"),
        "{}",
        output_of(&wrong)
    );
    let json: Value =
        serde_json::from_slice(&sluice(&["config", "check", path, "--json"]).stdout).unwrap();
    assert_eq!(
        (&json["findings"][0]["line"], &json["findings"][0]["path"]),
        (&6.into(), &"main.yaml".into())
    );
    let including =
        sound.replace("    source:", "    include: [global.yaml, other.yaml]\n    source:");
    std::fs::write(&main, including).unwrap();
    std::fs::write(
        folder.path().join("global.yaml"),
        "- job:\n    name: base\n    parrent: null\n",
    )
    .unwrap();
    let checked = sluice(&["config", "check", path]);
    assert_eq!(checked.status.code(), Some(1), "{}", output_of(&checked));
    assert!(output_of(&checked).contains("global.yaml:3"), "{}", output_of(&checked));
    assert!(output_of(&checked).contains("main.yaml:3"), "{}", output_of(&checked));
    assert!(
        output_of(&checked).contains("The tenant includes \"other.yaml\""),
        "{}",
        output_of(&checked)
    );
    let with_tenant = sluice(&["config", "check", path, "--snapshot", "x"]);
    assert!(output_of(&with_tenant).contains("omit --snapshot"), "{}", output_of(&with_tenant));
    let nothing = sluice(&["config", "check", folder.path().to_str().unwrap()]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(
        output_of(&nothing).contains("is the main configuration, pass its path"),
        "{}",
        output_of(&nothing)
    );
}

/// Z2.5, Z4.9: playbooks and roles next to the main configuration are checked, including whether
/// they can be stored.
#[test]
fn playbooks_next_to_the_main_configuration_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.yaml");
    std::fs::write(&main, "- tenant: {name: one, include: [global.yaml]}\n").unwrap();
    let jobs = "- job:\n    name: base\n    parent: null\n    run: playbooks/base.yaml\n    post-run: archive\n";
    std::fs::write(folder.path().join("global.yaml"), jobs).unwrap();
    let path = main.to_str().unwrap();
    let plain = sluice(&["config", "check", path]);
    assert!(!output_of(&plain).contains("was not found in "), "{}", output_of(&plain));
    std::fs::create_dir(folder.path().join("playbooks")).unwrap();
    std::fs::write(folder.path().join("playbooks/base.yaml"), "- hosts: all\n").unwrap();
    let checked = sluice(&["config", "check", path]);
    assert_eq!(checked.status.code(), Some(0), "{}", output_of(&checked));
    assert!(output_of(&checked).contains("global.yaml:"), "{}", output_of(&checked));
    assert!(
        output_of(&checked).contains("Playbook \"archive\" was not found in playbooks/"),
        "{}",
        output_of(&checked)
    );
    assert!(
        !output_of(&checked).contains("Playbook \"playbooks/base.yaml\" was not found"),
        "{}",
        output_of(&checked)
    );
    std::os::unix::fs::symlink("../main.yaml", folder.path().join("playbooks/archive.yaml"))
        .unwrap();
    let refused = sluice(&["config", "check", path]);
    assert_eq!(refused.status.code(), Some(2), "{}", output_of(&refused));
    assert!(
        output_of(&refused).contains("playbooks/archive.yaml: it is a link to ../main.yaml"),
        "{}",
        output_of(&refused)
    );
}

/// The pre-commit hook runs for exactly the files that are read as configuration.
#[test]
fn the_hook_runs_for_the_files_that_are_read() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.pre-commit-hooks.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let hook = sluice_config::yaml::compose(&text).unwrap().to_json()[0].clone();
    assert_eq!(
        (hook["entry"].as_str(), hook["pass_filenames"].as_bool()),
        (Some("sluice config check"), Some(false))
    );
    let files = sluice_config::Pattern::new(hook["files"].as_str().unwrap()).unwrap();
    let paths = [
        "zuul.yaml",
        ".zuul.yaml",
        "zuul.d/a.yaml",
        ".zuul.d/x/b.yaml",
        "zuul.d/a.txt",
        "zuul.yamll",
        "src/zuul.yaml",
        "README",
    ];
    for path in paths {
        let is_read = !sluice_config::config_paths([path], &[]).is_empty();
        assert_eq!(files.matches(path), is_read, "{path}");
    }
}
