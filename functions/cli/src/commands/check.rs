//! `sluice check`: a repository's configuration, or the tenants' file, checked on a laptop or
//! before a commit, without asking anybody.

use super::folder::{self, Opened, Wanted};
use super::main_file::MainFile;
use crate::say::say;
use anyhow::bail;
use serde_json::{Value, json};
use sluice_config::job::NamedPlaybook;
use sluice_config::{ConfigError, Foreseen, Known, ProblemKind, Severity, plain, plain_json};
use sluice_model::job::{Playbook, playbook_files};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Files that are not read, told one by one.
const NOTES_MAX: usize = 10;

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With the lines they are about, for people.
    Text,
    /// A list.
    Json,
    /// SARIF 2.1.0, which forges show beside the lines.
    Sarif,
}

/// What a check came to.
#[derive(Debug)]
pub struct Checked {
    /// What was found, in the order of configuration.
    pub found: Vec<ConfigError>,
    /// Names that only the tenant's other repositories could know.
    pub unknown: usize,
    /// Pipelines and branches that were too many to have their jobs frozen.
    pub untried: usize,
}

/// Checks and prints. The exit status is 0 without errors and 1 with some; 2 is for what could not
/// be checked at all.
///
/// # Errors
/// When something cannot be read.
pub fn run(wanted: &Wanted, format: Format) -> anyhow::Result<ExitCode> {
    let (checked, told) = match MainFile::read(&wanted.path)? {
        Some(_) if wanted.tenant.is_some() => {
            bail!(
                "{} is the tenants' file, which is of no tenant: leave --tenant out",
                wanted.path.display()
            )
        }
        Some(main) => {
            let told = main.told();
            (Checked { found: main.found, unknown: 0, untried: 0 }, told)
        }
        None => {
            let opened = folder::open(wanted)?;
            let checked = check(&opened);
            let told = text(&opened, &checked);
            (checked, told)
        }
    };
    match format {
        Format::Text => say!("{}", told.trim_end()),
        Format::Json => say!("{}", plain_json(&format!("{:#}", json(&checked)))),
        Format::Sarif => say!("{}", plain_json(&format!("{:#}", sarif(&checked)))),
    }
    let has_errors = checked.found.iter().any(|error| error.problem.severity == Severity::Error);
    Ok(if has_errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns every mistake of the directory's files, what of them is not carried out, what its
/// changes would be told when their jobs are frozen, and the mistakes that they cause elsewhere in
/// the tenant.
pub fn check(opened: &Opened) -> Checked {
    let is_own = |error: &ConfigError| {
        (&error.project, &error.branch) == (&opened.project, &opened.branch)
            && opened.texts.contains_key(&error.path)
    };
    let mut found: Vec<ConfigError> =
        opened.layout.errors().iter().filter(|error| is_own(error)).cloned().collect();
    let mut unknown = 0;
    // Which labels there are, nobody knows without the tenant.
    let is_known = |error: &ConfigError| {
        opened.tenant.is_some() || error.problem.attribute.as_deref() != Some("nodes.label")
    };
    let unserved =
        opened.layout.unserved().into_iter().filter(|error| is_own(error) && is_known(error));
    match &opened.tenant {
        Some(before) => {
            let caused =
                opened.layout.errors_since(before).into_iter().filter(|error| !is_own(error));
            found.extend(caused);
        }
        None => found.retain_mut(|error| {
            if error.problem.kind != ProblemKind::UnknownName {
                return true;
            }
            // Something here bears nearly that name: probably a misprint, but another repository
            // may know better.
            error.problem.severity = Severity::Warning;
            unknown += usize::from(error.problem.suggestion.is_none());
            error.problem.suggestion.is_some()
        }),
    }
    let known = if opened.tenant.is_some() { Known::Tenant } else { Known::Repository };
    let foreseen = opened.layout.foresee(&opened.listed, known);
    let missing = missing_playbooks(opened, &foreseen);
    let (own, elsewhere): (Vec<_>, Vec<_>) = foreseen.found.into_iter().partition(is_own);
    found.extend(own);
    if let Some(before) = opened.tenant.as_ref().filter(|_| !elsewhere.is_empty()) {
        // What was so before is not this directory's doing.
        let known = before.foresee(&opened.listed, Known::Tenant).found;
        found.extend(elsewhere.into_iter().filter(|error| !known.contains(error)));
    }
    found.extend(missing);
    found.extend(unserved);
    Checked { found, unknown, untried: foreseen.untried }
}

/// Returns the playbooks that jobs of the directory name, or would run by their own name, and that
/// do not lie there (Z4.9).
fn missing_playbooks(opened: &Opened, foreseen: &Foreseen) -> Vec<ConfigError> {
    let Some(root) = &opened.root else { return Vec::new() };
    let is_there = |name: &str| playbook_files(name).iter().any(|file| root.join(file).is_file());
    let named = opened.layout.named_playbooks(&opened.own, &opened.layout);
    let named =
        named.iter().filter(|playbook| !is_there(playbook.name)).map(NamedPlaybook::missing);
    // Where other repositories could have it nobody knows here.
    let is_own = |playbook: &Playbook| {
        (&playbook.project, &playbook.branch) == (&opened.project, &opened.branch)
    };
    let implied = foreseen.implied.iter().filter(|job| {
        job.run.iter().all(is_own) && !job.run.iter().any(|playbook| is_there(&playbook.path))
    });
    let mut missing: Vec<ConfigError> =
        named.chain(implied.filter_map(|job| opened.layout.without_playbook(job))).collect();
    missing.sort();
    missing.dedup();
    missing
}

fn text(opened: &Opened, checked: &Checked) -> String {
    let mut text = String::new();
    for error in &checked.found {
        let source =
            (error.project == opened.project).then(|| opened.texts.get(&error.path)).flatten();
        let _ = writeln!(text, "{}", error.render(source.map(String::as_str)));
    }
    let count =
        |severity| checked.found.iter().filter(|error| error.problem.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    for note in unread(opened) {
        let _ = writeln!(text, "note: {}", plain(note));
    }
    let (files, project, branch) = (opened.read.len(), &opened.project, &opened.branch);
    let whose =
        opened.tenant.as_ref().map(|_| format!(" of {project}@{branch}")).unwrap_or_default();
    let _ = writeln!(text, "{files} file(s){whose}: {errors} error(s), {warnings} warning(s)");
    if checked.unknown > 0 {
        let _ = writeln!(
            text,
            "{} name(s) are of other repositories and were not checked; give a snapshot of the tenant with --tenant",
            checked.unknown
        );
    }
    if checked.untried > 0 {
        let _ = writeln!(
            text,
            "whether jobs can be frozen was not tried in {} more pipelines and branches",
            checked.untried
        );
    }
    text
}

/// Returns what lies where configuration may lie and is not read, with the reason.
fn unread(opened: &Opened) -> Vec<String> {
    let is_marker = |path: &str| path.ends_with(".zuul.ignore");
    let left: Vec<&str> = opened
        .texts
        .keys()
        .map(String::as_str)
        .filter(|path| !opened.read.contains(*path) && !is_marker(path))
        .collect();
    let root = |path: &str| {
        path.split_once('/').map_or_else(|| path.to_owned(), |(root, _)| format!("{root}/"))
    };
    let first = opened.read.first().map(|path| root(path)).unwrap_or_default();
    let why = |path: &&str| match path.split_once('/') {
        _ if root(path) != first => {
            format!(
                "{path} is not read: there is {first}, and only the first of these places counts"
            )
        }
        Some(_) if !path.ends_with(".yaml") => {
            format!("{path} is not read: its name does not end in .yaml")
        }
        _ => format!("{path} is not read: a .zuul.ignore lies beside or above it"),
    };
    let mut notes: Vec<String> = left.iter().take(NOTES_MAX).map(why).collect();
    notes.extend(
        (left.len() > NOTES_MAX).then(|| format!("{} more are not read", left.len() - NOTES_MAX)),
    );
    notes
}

fn json(checked: &Checked) -> Value {
    let row = |error: &ConfigError| {
        let problem = &error.problem;
        json!({
            "project": error.project, "branch": error.branch, "path": error.path,
            "line": problem.start.line(), "column": problem.start.column(),
            "end_line": problem.end.line(), "end_column": problem.end.column(),
            "severity": problem.severity, "kind": problem.kind, "stanza": problem.stanza, "attribute": problem.attribute,
            "message": problem.message, "suggestion": problem.suggestion,
        })
    };
    json!({"findings": checked.found.iter().map(row).collect::<Vec<_>>(), "unchecked_names": checked.unknown, "untried_pipelines": checked.untried})
}

/// Returns a path as a relative reference: whatever means something else in a URI is written as its
/// bytes.
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

fn sarif(checked: &Checked) -> Value {
    let rule = |error: &ConfigError| serde_json::to_value(error.problem.kind).unwrap_or_default();
    let rules: BTreeSet<String> =
        checked.found.iter().filter_map(|error| rule(error).as_str().map(str::to_owned)).collect();
    let result = |error: &ConfigError| {
        let (start, end) = (error.problem.start, error.problem.end.max(error.problem.start));
        json!({
            "ruleId": rule(error),
            "level": error.problem.severity,
            "message": {"text": error.short_text()},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": as_uri(&error.path)},
                // Lines and columns begin with 1, and nothing ends before it begins.
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
            "results": checked.found.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}
