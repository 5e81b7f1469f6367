//! What is wrong with a job that is frozen, and where that was written: its definition, or an entry
//! of a project's list.

use super::apply::Refused;
use super::collect::Variant;
use super::freeze::{ALLOWED_PROJECTS, FreezeInput};
use super::limits;
use super::listed::Entry;
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::layout::Layout;
use crate::objects::{self, JobStanza};

/// A reason why a job can not be frozen.
pub(super) struct Blame {
    pub(super) error: ConfigError,
    /// The attribute by which; empty for the job as a whole.
    pub(super) attribute: &'static str,
    /// Whether the checks of references tell it too, where the name stands.
    pub(super) is_told: bool,
}

impl Blame {
    /// Blames a definition of a job, by the attribute that is wrong with it.
    pub(super) fn of_definition(variant: &Variant<'_>, refused: Refused) -> Self {
        let Refused { attribute, message, is_told } = refused;
        let job = variant.job;
        let known = job.places.of(attribute);
        let place = known.unwrap_or(job.place);
        let problem = Problem::new(ProblemKind::NotPermitted, place.start, place.end, message);
        let problem = if known.is_some() { problem.about(attribute) } else { problem };
        let problem =
            problem.in_stanza(&format!("job {}", job.name)).from_stanza_at(job.place.start);
        Self { error: variant.defined.source().error(problem), attribute, is_told }
    }

    /// Blames an entry of a project's list, by the attribute that is wrong with it.
    pub(super) fn of_entry(entry: &Entry<'_>, input: &FreezeInput<'_>, refused: Refused) -> Self {
        let place = entry.job.places.of(refused.attribute).unwrap_or(entry.job.place);
        Self::at(entry, input, place, refused)
    }

    /// Blames a place within an entry of a project's list.
    pub(super) fn at(
        entry: &Entry<'_>,
        input: &FreezeInput<'_>,
        place: objects::Place,
        Refused { attribute, message, is_told }: Refused,
    ) -> Self {
        let problem = Problem::new(ProblemKind::NotPermitted, place.start, place.end, message);
        // An entry that says nothing of the attribute is wrong as a whole: a member of its
        // pipeline's list.
        let about =
            if entry.job.places.of(attribute).is_some() { attribute } else { input.pipeline };
        let problem = problem
            .in_stanza(&format!("project {}", input.project.name()))
            .from_stanza_at(entry.stanza.place.start)
            .about(about);
        Self { error: entry.source.error(problem), attribute, is_told }
    }
}

/// Blames the entry, or else the definition, that says something of an attribute last: its word
/// counts. The first entry where none does.
pub(super) fn blame_last(
    matching: &[&Entry<'_>],
    variants: &[Variant<'_>],
    input: &FreezeInput<'_>,
    why: Refused,
) -> Option<Blame> {
    let attribute = why.attribute;
    if let Some(entry) = matching.iter().rev().find(|entry| limits::says(entry.job, attribute)) {
        return Some(Blame::of_entry(entry, input, why));
    }
    match variants.iter().rev().find(|variant| limits::says(variant.job, attribute)) {
        Some(variant) => Some(Blame::of_definition(variant, why)),
        None => matching.first().map(|entry| Blame::of_entry(entry, input, why)),
    }
}

/// Blames the entry by which a job may not run where it is listed: the first one that says so
/// itself, where the job's definitions do not; else the first one, which has it run there at all.
pub(super) fn blame_first(
    layout: &Layout,
    matching: &[&Entry<'_>],
    variants: &[Variant<'_>],
    input: &FreezeInput<'_>,
    why: Refused,
) -> Option<Blame> {
    let attribute = why.attribute;
    let is_defined_so = variants.iter().any(|variant| bars(layout, input, variant.job, attribute));
    let sayer =
        matching.iter().find(|entry| !is_defined_so && bars(layout, input, entry.job, attribute));
    let entry = sayer.or(matching.first())?;
    Some(Blame::of_entry(entry, input, why))
}

/// Returns whether a definition or an entry bars a job, by itself, from where it is listed.
fn bars(layout: &Layout, input: &FreezeInput<'_>, job: &JobStanza, attribute: &str) -> bool {
    match attribute {
        "abstract" => job.is_abstract == Some(true),
        "post-review" => job.post_review == Some(true),
        "semaphores" => job.semaphores.is_some(),
        "allow-secrets" => job.secrets.is_some(),
        ALLOWED_PROJECTS => job.allowed_projects.as_ref().is_some_and(|allowed| {
            let mut named = allowed.iter().filter_map(|name| layout.project(name));
            // An empty list keeps nobody out.
            !allowed.is_empty() && !named.any(|project| project.name == *input.project)
        }),
        _ => false,
    }
}
