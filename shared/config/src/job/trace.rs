//! Why a job is as it is: each definition that was looked at, what it says, or why it was left out.

use crate::error::plain;
use crate::fragment::Source;
use crate::objects::JobStanza;
use serde::Serialize;
use serde_json::Value as Json;
use std::fmt;

/// How one job was frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobTrace {
    /// The job's name.
    pub job: String,
    /// Whether it runs.
    pub runs: bool,
    /// Why it does not run; what is wrong where it can not be frozen.
    pub reason: Option<String>,
    /// What was looked at, in the order of application: parents first, then the project's own
    /// entries.
    pub steps: Vec<Step>,
}

/// One definition of a job or of one it inherits from, or one entry of a project's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The job that it defines.
    pub name: String,
    /// Whether it is a `job` stanza or an entry of a project's list.
    pub kind: StepKind,
    /// Project, branch, path and line.
    pub place: String,
    /// The attributes it says something about, as written there; empty where it was left out.
    pub sets: Vec<String>,
    /// Why it was left out; `None` where it was applied.
    pub left_out: Option<String>,
}

/// Sorts of definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A `job` stanza.
    Definition,
    /// An entry of a project's or template's list of jobs.
    Entry,
}

impl Step {
    /// Returns a definition that was applied.
    pub(super) fn applied(kind: StepKind, job: &JobStanza, source: &Source) -> Self {
        Self { sets: said(job), ..Self::left_out(kind, job, source, None) }
    }

    /// Returns a definition that was looked at, and why it was left out.
    pub(super) fn left_out(
        kind: StepKind,
        job: &JobStanza,
        source: &Source,
        reason: Option<String>,
    ) -> Self {
        let Source { project, branch, path, .. } = source;
        let place = format!("{}@{branch} {path}:{}", project.name(), job.place.start.line());
        Self { name: job.name.clone(), kind, place, sets: Vec::new(), left_out: reason }
    }
}

/// Returns which attributes a definition says something about.
fn said(job: &JobStanza) -> Vec<String> {
    let Ok(Json::Object(all)) = serde_json::to_value(job) else { return Vec::new() };
    let is_said = |value: &Json| match value {
        Json::Null => false,
        Json::Object(members) => !members.is_empty(),
        Json::Array(members) => !members.is_empty(),
        // Whom it inherits from, where nothing is said.
        Json::String(text) => text != "unset",
        _ => true,
    };
    let word = |name: &str| match name {
        "kind" => "type".to_owned(),
        _ => name.trim_end_matches("_seconds").replace('_', "-"),
    };
    let mut names: Vec<String> = Vec::new();
    for (name, value) in &all {
        match (name.as_str(), value) {
            ("name" | "place" | "places", _) => {}
            ("run_time", Json::Object(said)) => {
                names.extend(
                    said.iter().filter(|(_, value)| is_said(value)).map(|(name, _)| word(name)),
                );
            }
            _ if is_said(value) => names.push(word(name)),
            _ => {}
        }
    }
    names
}

/// Returns what a file says, fit to be shown in a line.
fn shown(text: &str) -> String {
    plain(text.to_owned())
}

impl fmt::Display for JobTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.runs) {
            (Some(reason), _) => {
                writeln!(f, "job {} does not run: {}", shown(&self.job), shown(reason))?
            }
            (None, _) => writeln!(f, "job {} runs", shown(&self.job))?,
        }
        for step in &self.steps {
            let word = match step.kind {
                StepKind::Definition => "job",
                StepKind::Entry => "entry",
            };
            write!(
                f,
                "  {} {word} {} from {}",
                if step.left_out.is_some() { "-" } else { "+" },
                shown(&step.name),
                shown(&step.place)
            )?;
            match &step.left_out {
                Some(reason) => writeln!(f, ": left out, {}", shown(reason))?,
                None if step.sets.is_empty() => writeln!(f, ": says nothing more")?,
                None => writeln!(f, ": {}", step.sets.join(", "))?,
            }
        }
        Ok(())
    }
}
