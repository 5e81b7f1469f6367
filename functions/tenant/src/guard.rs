//! What a forge says of branches beside where they are: which it guards, and for which it takes
//! nothing any more (Z2.2).
//!
//! It is asked only where the tenant leaves branches out by it. A plain git server has no such
//! words, so there nothing is left out.

use crate::Tenants;
use sluice_config::connection::{Connections, Driver};
use sluice_config::tenant::{BranchFacts, TenantConfig, TenantProject};
use sluice_forge::{ForgeError, Protection, Verdict};
use sluice_model::git::BranchKey;
use sluice_model::{BranchName, Timestamp};
use sluice_repos::{Branches, ReposError};
use std::collections::BTreeMap;

/// Branches of one project whose lock is asked for, one by one; nothing is said of the others.
const LOCKS_MAX: usize = 50;

/// Seconds after which a forge is asked again: nobody tells when a branch comes to be guarded, or
/// ceases to be.
const ASK_AGAIN_SECONDS: u64 = 3_600;

/// What a forge said of a project's branches.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Guards {
    said: BTreeMap<BranchName, Guard>,
    is_asked: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Guard {
    is_protected: Option<bool>,
    is_locked: Option<bool>,
}

impl Guards {
    /// Returns what is known of a branch. Which one is the default, the forge says: whoever may
    /// push a branch may give it any name.
    pub(crate) fn facts<'b>(&self, branch: &'b BranchName, all: &Branches) -> BranchFacts<'b> {
        let Guard { is_protected, is_locked } = self.said.get(branch).copied().unwrap_or_default();
        let is_default = Some(all.default.as_ref() == Some(branch));
        BranchFacts { is_default, is_protected, is_locked, ..BranchFacts::named(branch.as_str()) }
    }

    /// Returns when the forge is to be asked again, if it has anything to say.
    pub(crate) fn ask_again_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.is_asked.then(|| now.plus_seconds(ASK_AGAIN_SECONDS))
    }
}

impl Tenants {
    /// Asks a project's forge for what the tenant leaves branches out by.
    pub(crate) async fn guards(
        &self,
        config: &TenantConfig,
        connections: &Connections,
        project: &TenantProject,
        branches: &Branches,
    ) -> Result<Guards, ReposError> {
        let wants_locks = config.leaves_out_locked(project);
        if !wants_locks && !config.leaves_out_unprotected(project) {
            return Ok(Guards::default());
        }
        let Some(forge) = self.forges.get(&project.connection) else {
            if connections.driver(project.connection.as_str()) == Some(Driver::Git) {
                return Ok(Guards::default());
            }
            let why = format!(
                "nobody can ask the forge of {} which branches it guards, by which the tenant leaves some out: store a token of \
                 the connection {} with `sluice connection rotate`, or leave none out",
                project.name, project.connection
            );
            return Err(ReposError::Unreadable(why));
        };
        let mut said = BTreeMap::new();
        for branch in forge.branches(&project.name).await.map_err(unreadable)? {
            let is_protected = branch.protection == Protection::Protected;
            said.insert(branch.name, Guard { is_protected: Some(is_protected), is_locked: None });
        }
        let mut asked = 0;
        for (name, _) in branches.tips.iter().filter(|_| wants_locks) {
            let Some(guard) = said.get_mut(name) else { continue };
            // A lock is one of the rules by which a branch is guarded.
            if guard.is_protected == Some(false) {
                guard.is_locked = Some(false);
            } else if asked < LOCKS_MAX {
                asked += 1;
                let key = BranchKey { project: project.name.clone(), branch: name.clone() };
                guard.is_locked = forge.is_locked(&key).await.map_err(unreadable)?;
            }
        }
        if asked == LOCKS_MAX {
            tracing::warn!(project = %project.name, asked, "not every branch's lock was asked for: those count as open");
        }
        Ok(Guards { said, is_asked: true })
    }
}

fn unreadable(error: ForgeError) -> ReposError {
    match error.verdict() {
        Verdict::Final => ReposError::Unreadable(error.to_string()),
        Verdict::After { .. } | Verdict::Retry => ReposError::Unreachable(error.to_string()),
    }
}
