//! What is missing because its own definition has a mistake: said so where it is named, for "not
//! defined" sends people looking for something that is there.

use crate::error::{ConfigError, ProblemKind, Severity};
use crate::objects::ObjectKind;
use std::collections::BTreeMap;

/// Returns whether any of these mistakes could be that a definition is missing which has a mistake
/// itself.
pub(super) fn concerns(errors: &[ConfigError]) -> bool {
    errors.iter().any(|error| missing(error).is_some())
}

/// Rewords what refers to stanzas that could not be read, or that may not stand; `all` are the
/// mistakes of the whole layout.
///
/// The line of the definition is not told: a mistake that only moved within its file is no other
/// one.
pub(super) fn reword(errors: &mut [ConfigError], all: &[ConfigError]) {
    let mut causes: BTreeMap<&str, &ConfigError> = BTreeMap::new();
    let is_of_shape = |error: &&ConfigError| error.problem.kind == ProblemKind::Syntax;
    let (of_shape, others): (Vec<_>, Vec<_>) =
        all.iter().filter(|error| error.problem.severity == Severity::Error).partition(is_of_shape);
    // What could not be read is not looked at any further: that comes first.
    for error in of_shape.into_iter().chain(others) {
        causes.entry(error.problem.stanza.as_str()).or_insert(error);
    }
    for error in errors {
        let Some(cause) = missing(error).and_then(|stanza| causes.get(stanza.as_str()).copied())
        else {
            continue;
        };
        let (stanza, place) =
            (&cause.problem.stanza, format!("{}@{}: {}", cause.project, cause.branch, cause.path));
        let what = match cause.problem.kind {
            ProblemKind::Syntax => "could not be read",
            _ => "does not count",
        };
        let problem = &mut error.problem;
        problem.message = format!("The {stanza} {what}: its definition has a mistake ({place})");
        (problem.suggestion, problem.kind) = (None, ProblemKind::Conflict);
    }
}

/// Returns the stanza that would define what a mistake says is not there (`nodeset large`).
fn missing(error: &ConfigError) -> Option<String> {
    let problem = &error.problem;
    if problem.kind != ProblemKind::UnknownName {
        return None;
    }
    let message = problem.message.as_str();
    if let Some(job) =
        message.strip_prefix("Job ").and_then(|rest| rest.strip_suffix(" not defined"))
    {
        return Some(format!("job {job}"));
    }
    let (what, name) =
        message.strip_prefix("The ")?.strip_suffix("\" was not found.")?.split_once(" \"")?;
    let what = what.replace(' ', "-");
    let kind = ObjectKind::WORDS.iter().find(|(word, _)| *word == what).map(|(_, kind)| *kind)?;
    // Which projects there are the tenant says, not their stanzas.
    (kind != ObjectKind::Project).then(|| format!("{what} {name}"))
}
