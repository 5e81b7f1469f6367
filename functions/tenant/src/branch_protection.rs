//! Reads from a forge which branches are protected or locked (Z2.2).
//!
//! The forge is asked only where the tenant excludes branches by that. A plain git server has no
//! protection, so no branch of it is excluded.

use crate::Tenants;
use sluice_config::connection::{Connections, Driver};
use sluice_config::tenant::{BranchFacts, TenantConfig, TenantProject};
use sluice_forge::{ErrorClass, ForgeError, Protection};
use sluice_model::git::BranchKey;
use sluice_model::{BranchName, Timestamp};
use sluice_repos::{Branches, ReposError};
use std::collections::BTreeMap;

/// The most branches of a project whose lock is read, one by one; the others count as unknown.
const LOCKS_MAX: usize = 50;

/// Seconds after which protections are read again: no webhook reports when they change.
const REREAD_SECONDS: u64 = 3_600;

/// The protections of a project's branches.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct BranchProtections {
    /// The protection of each branch.
    by_branch: BTreeMap<BranchName, BranchProtection>,
    /// Whether the forge was asked; if not, no branch has a known protection.
    is_read: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct BranchProtection {
    /// Whether the branch is protected; `None` if unknown.
    is_protected: Option<bool>,
    /// Whether the branch is locked; `None` if unknown.
    is_locked: Option<bool>,
}

impl BranchProtections {
    /// Returns what the layout has to know about a branch: its name, whether it is the default one,
    /// and whether it is protected or locked as far as that was read.
    pub(crate) fn facts<'b>(&self, branch: &'b BranchName, all: &Branches) -> BranchFacts<'b> {
        let BranchProtection { is_protected, is_locked } =
            self.by_branch.get(branch).copied().unwrap_or_default();
        let is_default = Some(all.default.as_ref() == Some(branch));
        BranchFacts { is_default, is_protected, is_locked, ..BranchFacts::named(branch.as_str()) }
    }

    /// Returns when the branch protections have to be read again, or `None` if the tenant does not
    /// use them.
    pub(crate) fn reread_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.is_read.then(|| now.plus_seconds(REREAD_SECONDS))
    }
}

impl Tenants {
    /// Reads from the forge the branch protections and locks that the tenant excludes branches by;
    /// empty if it excludes none by them, or the connection is a plain git server. Locks are read
    /// only if it excludes locked branches, and of at most [`LOCKS_MAX`] protected branches; those
    /// of further protected branches are unknown, and an unprotected branch has none. The error is
    /// `Unreadable` if this function has no token for the connection or the forge refuses for good,
    /// otherwise `Unreachable`.
    pub(crate) async fn branch_protections(
        &self,
        config: &TenantConfig,
        connections: &Connections,
        project: &TenantProject,
        branches: &Branches,
    ) -> Result<BranchProtections, ReposError> {
        let wants_locks = config.leaves_out_locked(project);
        if !wants_locks && !config.leaves_out_unprotected(project) {
            return Ok(BranchProtections::default());
        }
        let Some(forge) = self.forges.get(&project.connection) else {
            if connections.driver(project.connection.as_str()) == Some(Driver::Git) {
                return Ok(BranchProtections::default());
            }
            let why = format!(
                "the branch protection of {} cannot be read, but the tenant excludes branches by it: store a token \
                 for the connection {} with `sluice connection rotate`, or exclude none",
                project.name, project.connection
            );
            return Err(ReposError::Unreadable(why));
        };
        let mut said = BTreeMap::new();
        for branch in forge.branches(&project.name).await.map_err(unreadable)? {
            let is_protected = branch.protection == Protection::Protected;
            said.insert(
                branch.name,
                BranchProtection { is_protected: Some(is_protected), is_locked: None },
            );
        }
        let mut lock_reads = 0;
        for (name, _) in branches.tips.iter().filter(|_| wants_locks) {
            let Some(protection) = said.get_mut(name) else { continue };
            // A branch without protection rules has no lock.
            if protection.is_protected == Some(false) {
                protection.is_locked = Some(false);
            } else if lock_reads < LOCKS_MAX {
                lock_reads += 1;
                let key = BranchKey { project: project.name.clone(), branch: name.clone() };
                protection.is_locked = forge.is_locked(&key).await.map_err(unreadable)?;
            }
        }
        if lock_reads == LOCKS_MAX {
            tracing::warn!(project = %project.name, lock_reads, "the locks of some branches were not read: those branches count as not locked");
        }
        Ok(BranchProtections { by_branch: said, is_read: true })
    }
}

/// Converts a forge's error: a final one makes the project unreadable, any other one is retried.
fn unreadable(error: ForgeError) -> ReposError {
    match error.class() {
        ErrorClass::Final => ReposError::Unreadable(error.to_string()),
        ErrorClass::RedeliverAfter { .. } | ErrorClass::Redeliver => {
            ReposError::Unreachable(error.to_string())
        }
    }
}
