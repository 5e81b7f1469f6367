//! What other jobs must know about a job before jobs are frozen: who may inherit from it, its
//! parents, and the image it builds (Z4.1, Z4.4).

use super::{Definition, Layout};
use crate::objects::{JobStanza, Parent};
use sluice_model::ProjectName;
use std::collections::BTreeSet;

/// The rules for inheriting from a job.
///
/// Which of its definitions apply is only known when a job is frozen. So a restriction counts only
/// if every definition has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InheritanceRules {
    /// Whether no job may inherit from it.
    pub(super) is_final: bool,
    /// Whether only abstract jobs may inherit from it.
    pub(super) intermediate: bool,
    /// The only project whose jobs may inherit from it; `None` if any may.
    pub(super) protected_in: Option<ProjectName>,
    /// Whether it does not share its credentials with children.
    pub(super) withholds_credentials: bool,
    /// The jobs it inherits from on every branch.
    pub(super) certain_parents: BTreeSet<String>,
    /// The image it builds on every branch according to its own definitions.
    pub(super) built_image: Option<String>,
}

impl InheritanceRules {
    /// Returns the rules of a job; `None` if it is not defined. A restriction is set only if every
    /// definition of the job has it.
    pub(super) fn of(layout: &Layout, name: &str) -> Option<Self> {
        let definitions: Vec<Definition<'_, JobStanza>> = layout.jobs(name).collect();
        let first = definitions.first()?;
        let all = |is_so: fn(&JobStanza) -> bool| definitions.iter().all(|one| is_so(one.object));
        let is_protected = all(|job| job.protected == Some(true));
        Some(Self {
            is_final: all(|job| job.is_final == Some(true)),
            intermediate: all(|job| job.intermediate == Some(true)),
            protected_in: is_protected.then(|| first.source().project.clone()),
            withholds_credentials: all(|job| job.auth_inherit == Some(false)),
            certain_parents: certain_parents(&layout.tenant().default_parent, name, &definitions),
            built_image: built_image(&definitions),
        })
    }
}

/// Returns the parents of a job that apply on every branch: a parent that all `definitions` name,
/// and the parent of each definition that applies to every branch. `default` is the tenant's
/// default parent, which counts as the parent of a first definition without `parent`, unless it is
/// the job itself. Later definitions without `parent` have none.
fn certain_parents(
    default: &str,
    name: &str,
    definitions: &[Definition<'_, JobStanza>],
) -> BTreeSet<String> {
    let named: Vec<Option<&str>> = definitions
        .iter()
        .enumerate()
        .map(|(number, defined)| match &defined.object.parent {
            Parent::Named(parent) => Some(parent.as_str()),
            // A further definition does not inherit, and neither does the default parent itself.
            Parent::Unset if number == 0 && name != default => Some(default),
            Parent::Unset | Parent::Base => None,
        })
        .collect();
    let agreed = named
        .first()
        .copied()
        .flatten()
        .filter(|first| named.iter().all(|one| *one == Some(*first)));
    let certain = definitions.iter().zip(&named).filter(|(defined, _)| applies_everywhere(defined));
    certain.filter_map(|(_, parent)| *parent).chain(agreed).map(str::to_owned).collect()
}

/// Returns the image that a job builds on every branch. The definitions that name an image must
/// name the same one, and either all definitions must name it or one of those that do must apply to
/// every branch; otherwise `None`. What the job inherits is ignored.
fn built_image(definitions: &[Definition<'_, JobStanza>]) -> Option<String> {
    let naming: Vec<&Definition<'_, JobStanza>> =
        definitions.iter().filter(|one| image(one).is_some()).collect();
    let first = image(naming.first()?)?;
    let is_agreed = naming.iter().all(|one| image(one) == Some(first));
    let is_certain =
        naming.len() == definitions.len() || naming.iter().any(|one| applies_everywhere(one));
    (is_agreed && is_certain).then(|| first.to_owned())
}

/// Returns the image that a definition builds; `None` if it names none.
fn image<'l>(defined: &Definition<'l, JobStanza>) -> Option<&'l str> {
    defined.object.image_build_name.as_deref()
}

/// Returns whether a definition applies to every branch: it has an empty `branches`, or none and
/// its file implies no branches.
fn applies_everywhere(defined: &Definition<'_, JobStanza>) -> bool {
    match defined.object.branches.as_deref() {
        None => defined.file.implied.is_none(),
        // An empty list matches every branch.
        Some(branches) => branches.is_empty(),
    }
}
