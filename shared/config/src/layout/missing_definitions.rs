//! Explains names that are undefined because their own definition has an error. A plain "not
//! defined" would send users looking for a definition that is there.

use crate::error::{ConfigError, DiagnosticKind, Severity};
use crate::objects::ObjectKind;
use std::collections::BTreeMap;

/// Returns whether any of the errors is about an undefined name, so that [`explain_missing`] may
/// reword it.
pub(super) fn may_need_rewording(errors: &[ConfigError]) -> bool {
    errors.iter().any(|error| missing(error).is_some())
}

/// Rewords those of `errors` that report a name as undefined for which a definition exists that has
/// an error itself: the message then names the file of that definition. Their kind becomes
/// `Conflict`, and their suggestion is removed. `all` are the errors of the whole layout, in which
/// the errors of definitions are found; warnings among them do not count. Other errors stay as they
/// are.
///
/// The message does not give the line of the definition, so that an error that only moved within
/// its file stays the same error.
pub(super) fn explain_missing(errors: &mut [ConfigError], all: &[ConfigError]) {
    let mut causes: BTreeMap<&str, &ConfigError> = BTreeMap::new();
    let is_of_shape = |error: &&ConfigError| error.diagnostic.kind == DiagnosticKind::Syntax;
    let (of_shape, others): (Vec<_>, Vec<_>) = all
        .iter()
        .filter(|error| error.diagnostic.severity == Severity::Error)
        .partition(is_of_shape);
    // A stanza that does not parse is not checked any further, so syntax errors come first.
    for error in of_shape.into_iter().chain(others) {
        causes.entry(error.diagnostic.stanza.as_str()).or_insert(error);
    }
    for error in errors {
        let Some(cause) = missing(error).and_then(|stanza| causes.get(stanza.as_str()).copied())
        else {
            continue;
        };
        let (stanza, span) = (
            &cause.diagnostic.stanza,
            format!("{}@{}: {}", cause.project, cause.branch, cause.path),
        );
        let state = match cause.diagnostic.kind {
            DiagnosticKind::Syntax => "could not be read:",
            _ => "is left out, because",
        };
        let diagnostic = &mut error.diagnostic;
        diagnostic.message = format!("The {stanza} {state} its definition has a mistake ({span})");
        (diagnostic.suggestion, diagnostic.kind) = (None, DiagnosticKind::Conflict);
    }
}

/// Returns the keyword and name of the stanza that would define the name that an error reports as
/// undefined (`nodeset large`). `None` for other errors, and for projects, which the tenant
/// defines.
fn missing(error: &ConfigError) -> Option<String> {
    let diagnostic = &error.diagnostic;
    if diagnostic.kind != DiagnosticKind::UnknownName {
        return None;
    }
    let message = diagnostic.message.as_str();
    if let Some(job) =
        message.strip_prefix("Job ").and_then(|rest| rest.strip_suffix(" not defined"))
    {
        return Some(format!("job {job}"));
    }
    let (state, name) =
        message.strip_prefix("The ")?.strip_suffix("\" was not found.")?.split_once(" \"")?;
    let state = state.replace(' ', "-");
    let kind = ObjectKind::WORDS.iter().find(|(word, _)| *word == state).map(|(_, kind)| *kind)?;
    // The tenant defines which projects exist, not their stanzas.
    (kind != ObjectKind::Project).then(|| format!("{state} {name}"))
}
