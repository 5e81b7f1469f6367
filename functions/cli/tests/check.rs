//! `sluice check` and `sluice freeze` as programs, on directories.
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

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Writes a snapshot of a tenant of `org/central` and `org/own`.
fn snapshot(file: &Path) {
    let connections = Connections::new().with("github", Driver::GitHub, "github.com");
    let main = "- tenant: {name: one, source: {github: {config-projects: [org/central], untrusted-projects: [org/own, org/other]}}}";
    let tenant = parse_main("main.yaml", main, &connections).0.tenants.remove(0);
    let texts = [("org/central", CENTRAL), ("org/own", OWN), ("org/other", "- project: {check: {jobs: [made]}}")];
    let fragments = texts.map(|(name, text)| {
        let project = connections.project("github", name).unwrap();
        let trust = tenant.project(&project).unwrap().trust;
        let source =
            Source { connection: "github".into(), project, branch: "master".into(), path: ".zuul.yaml".into(), trust };
        Arc::new(parse(&SourceFile { source, text: text.to_owned() }))
    });
    let sources = LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments: fragments.into() };
    std::fs::write(file, Layout::build(sources).to_bytes()).unwrap();
}

/// Z6.6: an error is told with its file and line; a sound directory ends with 0, one with errors with 1, none at all with 2.
#[test]
fn a_directory_is_checked_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let nothing = sluice(&["check", path]);
    assert_eq!(nothing.status.code(), Some(2), "{}", said(&nothing));
    std::fs::write(folder.path().join(".zuul.yaml"), OWN).unwrap();
    let sound = sluice(&["check", path]);
    assert_eq!(sound.status.code(), Some(0), "{}", said(&sound));
    // The pipeline and the job.
    assert!(said(&sound).contains("2 name(s) are of other repositories"), "{}", said(&sound));
    std::fs::write(folder.path().join(".zuul.yaml"), "- job:\n    name: unit\n    vottng: true\n").unwrap();
    let broken = sluice(&["check", path]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(
        said(&broken).contains(".zuul.yaml:3:5") && said(&broken).contains("did you mean \"voting\"?"),
        "{}",
        said(&broken)
    );
    let json: Value = serde_json::from_slice(&sluice(&["check", path, "--format", "json"]).stdout).unwrap();
    assert_eq!(
        (&json["findings"][0]["line"], &json["findings"][0]["severity"]),
        (&3.into(), &"error".into()),
        "{json:#}"
    );
    let sarif: Value = serde_json::from_slice(&sluice(&["check", path, "--format", "sarif"]).stdout).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!((&result["ruleId"], &result["level"]), (&"syntax".into(), &"error".into()), "{sarif:#}");
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 3);
}

/// C06: with the tenant at hand, what is wrong with names is found too, here and where it is caused elsewhere.
#[test]
fn a_directory_is_checked_within_its_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = folder.path().join("tenant");
    snapshot(&tenant);
    let tenant = tenant.to_str().unwrap();
    let central = folder.path().join("central");
    std::fs::create_dir(&central).unwrap();
    std::fs::write(central.join("zuul.yaml"), CENTRAL).unwrap();
    let check = || sluice(&["check", central.to_str().unwrap(), "--tenant", tenant]);
    assert_eq!(check().status.code(), Some(0), "{}", said(&check()));
    std::fs::write(central.join("zuul.yaml"), CENTRAL.replace("name: unit", "name: units")).unwrap();
    let renamed = check();
    assert_eq!(renamed.status.code(), Some(1));
    assert!(
        said(&renamed).contains("Job unit not defined") && said(&renamed).contains("org/own"),
        "{}",
        said(&renamed)
    );
    assert!(!said(&renamed).contains("Job made not defined"), "what was wrong before is not this directory's doing");
}

/// Z4.7: a frozen job is shown with what each definition said and why others were left out.
#[test]
fn a_frozen_job_is_shown_with_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let tenant = folder.path().join("tenant");
    snapshot(&tenant);
    let freeze = |more: &[&str]| {
        let mut arguments = vec!["freeze", "--tenant", tenant.to_str().unwrap(), "--project", "org/own"];
        arguments.extend(more);
        sluice(&arguments)
    };
    let shown = freeze(&["unit"]);
    assert_eq!(shown.status.code(), Some(0), "{}", said(&shown));
    for line in [
        "job unit runs",
        "  + job unit from org/central@master .zuul.yaml:4: timeout, run",
        "  - job unit from org/central@master .zuul.yaml:5: left out, its branches do not match master",
        "  + entry unit from org/own@master .zuul.yaml:1: attempts",
        "\"timeout_seconds\": 40",
    ] {
        assert!(said(&shown).contains(line), "{line} is missing from:\n{}", said(&shown));
    }
    let json: Value = serde_json::from_slice(&freeze(&["--json", "--branch", "stable/1"]).stdout).unwrap();
    assert_eq!(json["jobs"][0]["timeout_seconds"], 80, "{json:#}");
    assert_eq!(freeze(&["nothing"]).status.code(), Some(2));
}
