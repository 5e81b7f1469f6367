//! Locates the errors of a job that is frozen: in a job definition, or in an entry of a project's
//! job list.

use super::apply::Rejection;
use super::collect::Variant;
use super::freeze::{ALLOWED_PROJECTS, FreezeInput};
use super::job_lists::Entry;
use super::limits;
use crate::error::{ConfigError, Diagnostic, DiagnosticKind};
use crate::layout::Layout;
use crate::objects::{self, JobStanza};

/// Why a job cannot be frozen.
pub(super) struct JobError {
    /// The located diagnostic.
    pub(super) error: ConfigError,
    /// The attribute that is wrong; empty for the job as a whole.
    pub(super) attribute: &'static str,
    /// Whether the reference checks of the layout report it too.
    pub(super) is_reported_elsewhere: bool,
}

impl JobError {
    /// Returns the error of a job definition, located in its file: at the attribute that is wrong
    /// if the definition sets it, otherwise at the whole stanza.
    pub(super) fn of_definition(variant: &Variant<'_>, rejection: Rejection) -> Self {
        let Rejection { attribute, message, is_reported_elsewhere } = rejection;
        let job = variant.job;
        let attribute_span = job.spans.of(attribute);
        let span = attribute_span.unwrap_or(job.span);
        let diagnostic =
            Diagnostic::new(DiagnosticKind::NotPermitted, span.start, span.end, message);
        let diagnostic =
            if attribute_span.is_some() { diagnostic.about(attribute) } else { diagnostic };
        let diagnostic =
            diagnostic.in_stanza(&format!("job {}", job.name)).from_stanza_at(job.span.start);
        Self { error: variant.defined.source().error(diagnostic), attribute, is_reported_elsewhere }
    }

    /// Returns the error of a job list entry, located in its file: at the attribute that is wrong
    /// if the entry sets it, otherwise at the whole entry.
    pub(super) fn of_entry(
        entry: &Entry<'_>,
        input: &FreezeInput<'_>,
        rejection: Rejection,
    ) -> Self {
        let span = entry.job.spans.of(rejection.attribute).unwrap_or(entry.job.span);
        Self::at(entry, input, span, rejection)
    }

    /// Returns the error of a job list entry, located at `span` in the entry's file. The diagnostic
    /// names the project's stanza and the wrong attribute. If the entry does not set that
    /// attribute, the diagnostic names the pipeline instead, whose job list has the entry.
    pub(super) fn at(
        entry: &Entry<'_>,
        input: &FreezeInput<'_>,
        span: objects::Span,
        Rejection { attribute, message, is_reported_elsewhere }: Rejection,
    ) -> Self {
        let diagnostic =
            Diagnostic::new(DiagnosticKind::NotPermitted, span.start, span.end, message);
        // If the entry does not set the attribute, the entry as a whole is wrong: a member of its
        // pipeline's list.
        let about =
            if entry.job.spans.of(attribute).is_some() { attribute } else { input.pipeline };
        let diagnostic = diagnostic
            .in_stanza(&format!("project {}", input.project.name()))
            .from_stanza_at(entry.stanza.span.start)
            .about(about);
        Self { error: entry.source.error(diagnostic), attribute, is_reported_elsewhere }
    }
}

/// Locates an error at the last entry in `matching` that sets the attribute, or else at the last of
/// `variants` that does, since the last value counts. If none sets it, or it is not an attribute
/// that `limits::sets` knows, the error is at the first entry. `None` if there is no entry either.
/// Entries and definitions are given in order of application.
pub(super) fn error_at_last(
    matching: &[&Entry<'_>],
    variants: &[Variant<'_>],
    input: &FreezeInput<'_>,
    rejection: Rejection,
) -> Option<JobError> {
    let attribute = rejection.attribute;
    if let Some(entry) = matching.iter().rev().find(|entry| limits::sets(entry.job, attribute)) {
        return Some(JobError::of_entry(entry, input, rejection));
    }
    match variants.iter().rev().find(|variant| limits::sets(variant.job, attribute)) {
        Some(variant) => Some(JobError::of_definition(variant, rejection)),
        None => matching.first().map(|entry| JobError::of_entry(entry, input, rejection)),
    }
}

/// Locates an error about where a job may run, always at an entry in `matching`. If no definition
/// in `variants` causes the error by itself, this is the first entry that does, or else the first
/// entry. If a definition causes it, this is the first entry. `None` if there are no entries.
pub(super) fn error_at_first(
    layout: &Layout,
    matching: &[&Entry<'_>],
    variants: &[Variant<'_>],
    input: &FreezeInput<'_>,
    rejection: Rejection,
) -> Option<JobError> {
    let attribute = rejection.attribute;
    let is_defined_so =
        variants.iter().any(|variant| forbids(layout, input, variant.job, attribute));
    let cause = matching
        .iter()
        .find(|entry| !is_defined_so && forbids(layout, input, entry.job, attribute));
    let entry = cause.or(matching.first())?;
    Some(JobError::of_entry(entry, input, rejection))
}

/// Returns whether a definition or entry by itself sets what `attribute` forbids where the job is
/// listed: for `abstract` and `post-review`, it sets them to true; for `semaphores` and
/// `allow-secrets`, it sets `semaphores` or `secrets`, even to an empty list; for
/// `allowed-projects`, its list is not empty and lacks the project of the change. `false` for any
/// other attribute. Whether the pipeline forbids it is not checked.
fn forbids(layout: &Layout, input: &FreezeInput<'_>, job: &JobStanza, attribute: &str) -> bool {
    match attribute {
        "abstract" => job.is_abstract == Some(true),
        "post-review" => job.post_review == Some(true),
        "semaphores" => job.semaphores.is_some(),
        "allow-secrets" => job.secrets.is_some(),
        ALLOWED_PROJECTS => job.allowed_projects.as_ref().is_some_and(|allowed| {
            let mut named = allowed.iter().filter_map(|name| layout.project(name));
            // An empty list restricts nothing.
            !allowed.is_empty() && !named.any(|project| project.name == *input.project)
        }),
        _ => false,
    }
}
