//! What others have to know of a job: what keeps them from inheriting from it, whom it inherits
//! from itself and what it builds, as far as it can be told before jobs are frozen (Z4.1, Z4.4).

use super::{Defined, Layout};
use crate::objects::{JobStanza, Parent};
use sluice_model::ProjectName;
use std::collections::BTreeSet;

/// What a job is to others, whichever of its definitions apply: which of them do is known only when
/// it is frozen, so that one that lets children be is enough.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Barriers {
    /// Whether it may not be inherited from at all.
    pub(super) is_final: bool,
    /// Whether only abstract jobs may inherit from it.
    pub(super) intermediate: bool,
    /// The project that alone may have children of it.
    pub(super) protected_in: Option<ProjectName>,
    /// Whether it keeps its credentials to itself.
    pub(super) keeps_credentials: bool,
    /// The jobs that it inherits from wherever it runs.
    pub(super) parents: BTreeSet<String>,
    /// The image that it builds wherever it runs, by its own definitions.
    pub(super) builds: Option<String>,
}

impl Barriers {
    /// Returns those of a job; `None` where nothing bears the name.
    pub(super) fn of(layout: &Layout, name: &str) -> Option<Self> {
        let definitions: Vec<Defined<'_, JobStanza>> = layout.jobs(name).collect();
        let first = definitions.first()?;
        let all = |is_so: fn(&JobStanza) -> bool| definitions.iter().all(|one| is_so(one.object));
        let is_protected = all(|job| job.protected == Some(true));
        Some(Self {
            is_final: all(|job| job.is_final == Some(true)),
            intermediate: all(|job| job.intermediate == Some(true)),
            protected_in: is_protected.then(|| first.source().project.clone()),
            keeps_credentials: all(|job| job.auth_inherit == Some(false)),
            parents: parents(&layout.tenant().default_parent, name, &definitions),
            builds: builds(&definitions),
        })
    }
}

/// Returns the jobs that definitions inherit from wherever the job runs: one that all of them name,
/// and what one names that counts everywhere.
fn parents(default: &str, name: &str, definitions: &[Defined<'_, JobStanza>]) -> BTreeSet<String> {
    let named: Vec<Option<&str>> = definitions
        .iter()
        .enumerate()
        .map(|(number, defined)| match &defined.object.parent {
            Parent::Named(parent) => Some(parent.as_str()),
            // A further definition inherits from nothing, nor does the default parent itself.
            Parent::Unset if number == 0 && name != default => Some(default),
            Parent::Unset | Parent::Base => None,
        })
        .collect();
    let agreed = named
        .first()
        .copied()
        .flatten()
        .filter(|first| named.iter().all(|one| *one == Some(*first)));
    let certain = definitions.iter().zip(&named).filter(|(defined, _)| counts_everywhere(defined));
    certain.filter_map(|(_, parent)| *parent).chain(agreed).map(str::to_owned).collect()
}

/// Returns the image of definitions that say one: all of those the same, and one of them everywhere
/// or all that there are.
fn builds(definitions: &[Defined<'_, JobStanza>]) -> Option<String> {
    let said: Vec<&Defined<'_, JobStanza>> =
        definitions.iter().filter(|one| image(one).is_some()).collect();
    let first = image(said.first()?)?;
    let is_agreed = said.iter().all(|one| image(one) == Some(first));
    let is_certain =
        said.len() == definitions.len() || said.iter().any(|one| counts_everywhere(one));
    (is_agreed && is_certain).then(|| first.to_owned())
}

fn image<'l>(defined: &Defined<'l, JobStanza>) -> Option<&'l str> {
    defined.object.image_build_name.as_deref()
}

/// Returns whether a definition counts whatever the branch.
fn counts_everywhere(defined: &Defined<'_, JobStanza>) -> bool {
    match defined.object.branches.as_deref() {
        None => defined.file.implied.is_none(),
        // An empty list names all of them.
        Some(branches) => branches.is_empty(),
    }
}
