//! What keeps others from inheriting from a job, as far as it can be told before jobs are frozen (Z4.1, Z4.4).

use super::{Defined, Layout};
use crate::objects::JobStanza;
use sluice_model::ProjectName;

/// What keeps others from inheriting from a job, whichever of its definitions apply: which of them do is known only when it is
/// frozen, so that one that lets children be is enough.
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
}

impl Barriers {
    /// Returns those of a job; `None` where nothing bears the name.
    pub(super) fn of(layout: &Layout, name: &str) -> Option<Self> {
        let mut definitions = layout.jobs(name);
        let first = definitions.next()?;
        let protected_in = |defined: Defined<'_, JobStanza>| {
            (defined.object.protected == Some(true)).then(|| defined.source().project.clone())
        };
        let of_one = |defined: Defined<'_, JobStanza>| Self {
            is_final: defined.object.is_final == Some(true),
            intermediate: defined.object.intermediate == Some(true),
            protected_in: protected_in(defined),
            keeps_credentials: defined.object.auth_inherit == Some(false),
        };
        Some(definitions.map(of_one).fold(of_one(first), |all, one| Self {
            is_final: all.is_final && one.is_final,
            intermediate: all.intermediate && one.intermediate,
            protected_in: all.protected_in.filter(|_| one.protected_in.is_some()),
            keeps_credentials: all.keeps_credentials && one.keeps_credentials,
        }))
    }
}
