//! Explains a frozen job: each definition that was examined, what it sets, or why it does not
//! apply.

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
    /// Why it does not run; the errors if it cannot be frozen.
    pub reason: Option<String>,
    /// The examined definitions in the order of application: ancestors first, then the project's
    /// entries.
    pub steps: Vec<TraceStep>,
}

/// A definition of the job or an ancestor, or an entry of a project's job list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// The job that it defines.
    pub name: String,
    /// Whether it is a `job` stanza or an entry of a project's list.
    pub kind: StepKind,
    /// Project, branch, path and line.
    pub place: String,
    /// The attributes that it sets; empty if it does not apply.
    pub sets: Vec<String>,
    /// Why it does not apply; `None` if it was applied.
    pub left_out: Option<String>,
}

/// Forms of definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// A `job` stanza.
    Definition,
    /// An entry of a project's or template's list of jobs.
    Entry,
}

impl TraceStep {
    /// Returns a step for a definition or entry that was applied, with the attributes that it sets.
    pub(super) fn applied(kind: StepKind, job: &JobStanza, source: &Source) -> Self {
        Self { sets: set_attributes(job), ..Self::step(kind, job, source, None) }
    }

    /// Returns a step for a definition or entry, without the attributes that it sets. `reason` says
    /// why the definition does not apply; with `None` the step counts as applied, and the caller
    /// adds the attributes, as `Self::applied` does.
    pub(super) fn step(
        kind: StepKind,
        job: &JobStanza,
        source: &Source,
        reason: Option<String>,
    ) -> Self {
        let Source { project, branch, path, .. } = source;
        let place = format!("{}@{branch} {path}:{}", project.name(), job.span.start.line());
        Self { name: job.name.clone(), kind, place, sets: Vec::new(), left_out: reason }
    }
}

/// Returns the names of the attributes that a definition or entry sets, in the order of the fields.
/// They are spelled as in configuration (`post-run`, `type`), except that `attribute-control`
/// appears as `final-attributes`, and `auth` as `auth-inherit` or `containers`. The name of the job
/// is left out. `false` and 0 count as set. An empty list or mapping counts as set only in
/// attributes that can have a control tag (`!override`).
fn set_attributes(job: &JobStanza) -> Vec<String> {
    let Ok(Json::Object(all)) = serde_json::to_value(job) else { return Vec::new() };
    let is_set = |value: &Json| match value {
        Json::Null => false,
        Json::Object(members) => !members.is_empty(),
        Json::Array(members) => !members.is_empty(),
        // The parent, if the definition does not set one.
        Json::String(text) => text != "unset",
        _ => true,
    };
    let attribute = |name: &str| match name {
        "kind" => "type".to_owned(),
        _ => name.trim_end_matches("_seconds").replace('_', "-"),
    };
    let mut names: Vec<String> = Vec::new();
    for (name, value) in &all {
        match (name.as_str(), value) {
            ("name" | "span" | "spans", _) => {}
            ("run_time", Json::Object(set_attributes)) => {
                names.extend(
                    set_attributes
                        .iter()
                        .filter(|(_, value)| is_set(value))
                        .map(|(name, _)| attribute(name)),
                );
            }
            _ if is_set(value) => names.push(attribute(name)),
            _ => {}
        }
    }
    names
}

/// Returns the text with invisible characters escaped.
fn shown(text: &str) -> String {
    plain(text.to_owned())
}

impl fmt::Display for JobTrace {
    /// Writes one line that says whether the job runs, or why not, and a line for each step. `+`
    /// marks a step that was applied, with the attributes that it sets; `-` marks a step that was
    /// not applied, with the reason. Invisible characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.runs) {
            (Some(reason), _) => {
                writeln!(f, "job {} does not run: {}", shown(&self.job), shown(reason))?
            }
            (None, _) => writeln!(f, "job {} runs", shown(&self.job))?,
        }
        for step in &self.steps {
            let attribute = match step.kind {
                StepKind::Definition => "job",
                StepKind::Entry => "entry",
            };
            write!(
                f,
                "  {} {attribute} {} from {}",
                if step.left_out.is_some() { "-" } else { "+" },
                shown(&step.name),
                shown(&step.place)
            )?;
            match &step.left_out {
                Some(reason) => writeln!(f, ": not applied, {}", shown(reason))?,
                None if step.sets.is_empty() => writeln!(f, ": sets nothing")?,
                None => writeln!(f, ": {}", step.sets.join(", "))?,
            }
        }
        Ok(())
    }
}
