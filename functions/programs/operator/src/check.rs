//! `sluice config check`: checks the configuration of a repository, or the main configuration,
//! offline.

use super::counted;
use super::local_config::{self, LocalConfig, LocalConfigOptions};
use super::main_file::MainFile;
use crate::output::{print_json, print_line};
use anyhow::bail;
use serde_json::{Value, json};
use sluice_config::job::NamedPlaybook;
use sluice_config::{ConfigError, Coverage, DiagnosticKind, Forecast, Severity, plain};
use sluice_model::job::{Playbook, playbook_files};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

/// The maximum number of notes about ignored files.
const NOTES_MAX: usize = 10;

/// The output format of the diagnostics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckFormat {
    /// Text, with the source lines.
    Text,
    /// A JSON list.
    Json,
    /// SARIF 2.1.0, which forges show next to the lines.
    Sarif,
}

/// The outcome of a check.
#[derive(Debug)]
pub struct CheckResult {
    /// The diagnostics.
    pub diagnostics: Vec<ConfigError>,
    /// How many names could not be checked, because other repositories define them.
    pub unknown: usize,
    /// How many pipelines and branches were skipped when freezing jobs, because there are too many.
    pub untried: usize,
}

/// Checks a directory or file offline and prints the diagnostics in the given format. Returns exit
/// status 1 if there is an error among them, else 0, also with warnings. A main configuration is
/// recognised by its content; an error if a snapshot is given for it.
///
/// # Errors
/// When a file cannot be read, so that the check cannot run.
pub fn run(options: &LocalConfigOptions, format: CheckFormat) -> anyhow::Result<ExitCode> {
    let (checked, rendered) = match MainFile::check_if_main(&options.path)? {
        Some(_) if options.tenant.is_some() => {
            bail!(
                "could not check {} with --snapshot: it is the main configuration, which belongs to no tenant; omit --snapshot",
                options.path.display()
            )
        }
        Some(main) => {
            let rendered = main.render();
            (CheckResult { diagnostics: main.diagnostics, unknown: 0, untried: 0 }, rendered)
        }
        None => {
            let config = local_config::open(options)?;
            let checked = check(&config);
            let rendered = text(&config, &checked);
            (checked, rendered)
        }
    };
    match format {
        CheckFormat::Text => print_line!("{}", rendered.trim_end()),
        CheckFormat::Json => print_json(&json(&checked)),
        CheckFormat::Sarif => print_json(&sarif(&checked)),
    }
    let has_errors =
        checked.diagnostics.iter().any(|error| error.diagnostic.severity == Severity::Error);
    Ok(if has_errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the diagnostics of a directory: errors in its files, unsupported attributes, missing
/// playbooks, and errors when its jobs are frozen. With a snapshot of the tenant, also the errors
/// that it causes in other repositories, without those that exist anyway. Without one, an unknown
/// name is a warning if a similar name exists, else it is only counted.
pub fn check(config: &LocalConfig) -> CheckResult {
    let is_own = |error: &ConfigError| {
        (&error.project, &error.branch) == (&config.project, &config.branch)
            && config.texts.contains_key(&error.path)
    };
    let mut diagnostics: Vec<ConfigError> =
        config.layout.errors().iter().filter(|error| is_own(error)).cloned().collect();
    let mut unknown = 0;
    // Which labels exist is only known with a snapshot of the tenant.
    let is_known = |error: &ConfigError| {
        config.tenant.is_some() || error.diagnostic.attribute.as_deref() != Some("nodes.label")
    };
    let unserved = config
        .layout
        .ignored_attributes()
        .into_iter()
        .filter(|error| is_own(error) && is_known(error));
    match &config.tenant {
        Some(before) => {
            let caused =
                config.layout.errors_since(before).into_iter().filter(|error| !is_own(error));
            diagnostics.extend(caused);
        }
        None => diagnostics.retain_mut(|error| {
            if error.diagnostic.kind != DiagnosticKind::UnknownName {
                return true;
            }
            // A similar name is defined here, so this is probably a typo, but another repository
            // may define it.
            error.diagnostic.severity = Severity::Warning;
            unknown += usize::from(error.diagnostic.suggestion.is_none());
            error.diagnostic.suggestion.is_some()
        }),
    }
    let scope = if config.tenant.is_some() { Coverage::Tenant } else { Coverage::Repository };
    let foreseen = config.layout.foresee(&config.listed, scope);
    let missing = missing_playbooks(config, &foreseen);
    let (own, elsewhere): (Vec<_>, Vec<_>) = foreseen.diagnostics.into_iter().partition(is_own);
    diagnostics.extend(own);
    if let Some(before) = config.tenant.as_ref().filter(|_| !elsewhere.is_empty()) {
        // Errors that exist without this directory are not its fault.
        let existing = before.foresee(&config.listed, Coverage::Tenant).diagnostics;
        diagnostics.extend(elsewhere.into_iter().filter(|error| !existing.contains(error)));
    }
    diagnostics.extend(missing);
    diagnostics.extend(unserved);
    CheckResult { diagnostics, unknown, untried: foreseen.untried }
}

/// Returns a diagnostic for each playbook that the directory's jobs name, or imply by their own
/// name, and that does not exist there (Z4.9), sorted and each once. `foreseen` must come from
/// freezing the jobs of `config`; it has the implied playbooks. Empty if only a file was given.
/// Playbooks of other repositories are not checked.
fn missing_playbooks(config: &LocalConfig, foreseen: &Forecast) -> Vec<ConfigError> {
    let Some(root) = &config.root else { return Vec::new() };
    let is_there = |name: &str| playbook_files(name).iter().any(|file| root.join(file).is_file());
    let named = config.layout.named_playbooks(&config.own, &config.layout);
    let named =
        named.iter().filter(|playbook| !is_there(playbook.name)).map(NamedPlaybook::missing_error);
    // Playbooks of other repositories cannot be checked here.
    let is_own = |playbook: &Playbook| {
        (&playbook.project, &playbook.branch) == (&config.project, &config.branch)
    };
    let implied = foreseen.implied.iter().filter(|job| {
        job.run.iter().all(is_own) && !job.run.iter().any(|playbook| is_there(&playbook.path))
    });
    let mut missing: Vec<ConfigError> =
        named.chain(implied.filter_map(|job| config.layout.missing_playbook_error(job))).collect();
    missing.sort();
    missing.dedup();
    missing
}

/// Returns the text output: the diagnostics with their source lines, notes about ignored files, the
/// numbers of errors and warnings, and what could not be checked.
fn text(config: &LocalConfig, checked: &CheckResult) -> String {
    let mut text = String::new();
    for error in &checked.diagnostics {
        let source =
            (error.project == config.project).then(|| config.texts.get(&error.path)).flatten();
        let _ = writeln!(text, "{}", error.render(source.map(String::as_str)));
    }
    let count = |severity| {
        checked.diagnostics.iter().filter(|error| error.diagnostic.severity == severity).count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    for note in ignored_files(config) {
        let _ = writeln!(text, "note: {}", plain(note));
    }
    let (files, project, branch) =
        (counted(config.read.len(), "file"), &config.project, &config.branch);
    let whose =
        config.tenant.as_ref().map(|_| format!(" of {project}@{branch}")).unwrap_or_default();
    let _ = writeln!(
        text,
        "{files}{whose}: {}, {}",
        counted(errors, "error"),
        counted(warnings, "warning")
    );
    if checked.unknown > 0 {
        let _ = writeln!(
            text,
            "not checked: {} that other repositories define; pass a snapshot of the tenant with --snapshot",
            counted(checked.unknown, "name")
        );
    }
    if checked.untried > 0 {
        let _ = writeln!(
            text,
            "not checked: whether jobs can be frozen in {} more pipelines and branches",
            checked.untried
        );
    }
    text
}

/// Returns a note for each file in a configuration location that is not read, with the reason;
/// `.zuul.ignore` itself has none. After the first 10, one note says how many more there are.
fn ignored_files(config: &LocalConfig) -> Vec<String> {
    let is_marker = |path: &str| path.ends_with(".zuul.ignore");
    let left: Vec<&str> = config
        .texts
        .keys()
        .map(String::as_str)
        .filter(|path| !config.read.contains(*path) && !is_marker(path))
        .collect();
    let root = |path: &str| {
        path.split_once('/').map_or_else(|| path.to_owned(), |(root, _)| format!("{root}/"))
    };
    let first = config.read.first().map(|path| root(path)).unwrap_or_default();
    let why = |path: &&str| match path.split_once('/') {
        _ if root(path) != first => {
            format!(
                "{path} is ignored: {first} exists, and only the first of these locations is read"
            )
        }
        Some(_) if !path.ends_with(".yaml") => {
            format!("{path} is ignored: its name does not end in .yaml")
        }
        _ => format!("{path} is ignored: there is a .zuul.ignore next to or above it"),
    };
    let mut notes: Vec<String> = left.iter().take(NOTES_MAX).map(why).collect();
    notes.extend(
        (left.len() > NOTES_MAX)
            .then(|| format!("{} more files are ignored", left.len() - NOTES_MAX)),
    );
    notes
}

/// Returns the JSON output: `findings`, one for each diagnostic with its position and text, and the
/// numbers of names and pipelines that were not checked.
fn json(checked: &CheckResult) -> Value {
    let row = |error: &ConfigError| {
        let problem = &error.diagnostic;
        json!({
            "project": error.project, "branch": error.branch, "path": error.path,
            "line": problem.start.line(), "column": problem.start.column(),
            "end_line": problem.end.line(), "end_column": problem.end.column(),
            "severity": problem.severity, "kind": problem.kind, "stanza": problem.stanza, "attribute": problem.attribute,
            "message": problem.message, "suggestion": problem.suggestion,
        })
    };
    json!({"findings": checked.diagnostics.iter().map(row).collect::<Vec<_>>(), "unchecked_names": checked.unknown, "untried_pipelines": checked.untried})
}

/// Percent-encodes a path as a relative URI reference: all bytes except ASCII letters, digits and
/// `-._~/`.
fn as_uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

/// Returns the diagnostics as a SARIF 2.1.0 document with one run. The rules are the kinds of
/// diagnostics that occur.
fn sarif(checked: &CheckResult) -> Value {
    let rule =
        |error: &ConfigError| serde_json::to_value(error.diagnostic.kind).unwrap_or_default();
    let rules: BTreeSet<String> = checked
        .diagnostics
        .iter()
        .filter_map(|error| rule(error).as_str().map(str::to_owned))
        .collect();
    let result = |error: &ConfigError| {
        let (start, end) =
            (error.diagnostic.start, error.diagnostic.end.max(error.diagnostic.start));
        json!({
            "ruleId": rule(error),
            "level": error.diagnostic.severity,
            "message": {"text": error.short_text()},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": as_uri(&error.path)},
                // Lines and columns start with 1, and an end is never before its start.
                "region": {
                    "startLine": start.line().max(1), "startColumn": start.column().max(1),
                    "endLine": end.line().max(1), "endColumn": end.column().max(1),
                },
            }}],
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "sluice",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.into_iter().map(|id| json!({"id": id})).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": checked.diagnostics.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}
