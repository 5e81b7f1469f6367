//! What is missing because its own definition has a mistake: said so where it is named, for "not defined" sends people looking
//! for something that is there.

use crate::error::{ConfigError, ProblemKind, Severity};
use std::collections::BTreeMap;

/// Returns whether any of these mistakes could be one of a definition that has a mistake itself.
pub(super) fn concerns(errors: &[ConfigError]) -> bool {
    errors.iter().any(|error| missing_job(error).is_some())
}

/// Rewords what refers to jobs whose definition could not be read; `all` are the mistakes of the whole layout.
///
/// The line of the definition is not told: a mistake that only moved within its file is no other one.
pub(super) fn reword(errors: &mut [ConfigError], all: &[ConfigError]) {
    let mut unread: BTreeMap<&str, &ConfigError> = BTreeMap::new();
    let is_unread =
        |error: &&ConfigError| error.problem.kind == ProblemKind::Syntax && error.problem.severity == Severity::Error;
    for error in all.iter().filter(is_unread) {
        if let Some(job) = error.problem.stanza.strip_prefix("job ") {
            unread.entry(job).or_insert(error);
        }
    }
    for error in errors {
        let Some(cause) = missing_job(error).and_then(|job| unread.get(job)) else { continue };
        let (job, place) = (&cause.problem.stanza, format!("{}@{}: {}", cause.project, cause.branch, cause.path));
        let problem = &mut error.problem;
        problem.message = format!("The {job} could not be read: its definition has a mistake ({place})");
        (problem.suggestion, problem.kind) = (None, ProblemKind::Conflict);
    }
}

/// Returns the job that a mistake says is not defined.
fn missing_job(error: &ConfigError) -> Option<&str> {
    let problem = &error.problem;
    if problem.kind != ProblemKind::UnknownName {
        return None;
    }
    problem.message.strip_prefix("Job ")?.strip_suffix(" not defined")
}
