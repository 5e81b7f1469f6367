//! What is wrong with a job that is frozen, and where that was written: its definition, or an entry of a project's list.

use super::apply::Refused;
use super::collect::Variant;
use super::freeze::FreezeInput;
use super::listed::Entry;
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::objects;

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
        let problem = problem.in_stanza(&format!("job {}", job.name)).from_stanza_at(job.place.start);
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
        // An entry that says nothing of the attribute is wrong as a whole: a member of its pipeline's list.
        let about = if entry.job.places.of(attribute).is_some() { attribute } else { input.pipeline };
        let problem = problem
            .in_stanza(&format!("project {}", input.project.name()))
            .from_stanza_at(entry.stanza.place.start)
            .about(about);
        Self { error: entry.source.error(problem), attribute, is_told }
    }
}
