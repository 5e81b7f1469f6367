//! Why a change may not be merged although it was tested: a dependency that is not merged.

use crate::Reporter;
use crate::land::retryable;
use sluice_forge::{DEPENDENCIES_MAX, ErrorClass, names_too_many, urls_of_no_change};
use sluice_model::ConnectionName;
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeStatus};
use sluice_records::connection;
use sluice_runtime::batch::ReconcileError;
use std::collections::BTreeSet;

/// The most dependencies of one change that are checked before it is merged. Intake refuses changes
/// with more.
const NEEDS_MAX: usize = 30;

impl Reporter {
    /// Returns why a change may not be merged yet: too many dependencies, an address that is no
    /// change, or a dependency that is not known to be merged (Z6.5). `None` if there is no reason.
    /// `needs` are dependencies that its queue merged before it; they and addresses on hosts without
    /// a connection do not count.
    pub(crate) async fn dependency_refusal(
        &self,
        change: &ChangeKey,
        needs: &[ChangeKey],
        facts: &ChangeFacts,
    ) -> Result<Option<String>, ReconcileError> {
        if names_too_many(&facts.depends_on) {
            return Ok(Some(format!("it now has more than {DEPENDENCIES_MAX} Depends-On lines")));
        }
        let parents = facts.parents.iter().cloned().map(|parent| vec![parent]);
        // As at entry, addresses outside all connections are ignored.
        let strange = connection::addresses_on_unknown_hosts(
            &self.ports,
            urls_of_no_change(&self.forges, &facts.depends_on),
        )
        .await?;
        let named = facts.depends_on.iter().filter(|url| !strange.contains(url));
        let named: Vec<_> = named.map(|url| self.changes_at(url, &change.connection)).collect();
        let mut looked_at = BTreeSet::new();
        for keys in parents.chain(named) {
            let Some(key) = keys.first() else {
                return Ok(Some(
                    "it depends on an address that is not a change of a configured forge"
                        .to_owned(),
                ));
            };
            // A dependency on itself is ignored.
            if keys.iter().any(|key| key == change || needs.contains(key)) {
                continue;
            }
            if !looked_at.insert(key.clone()) {
                continue;
            }
            // Dependencies beyond the limit are not known to be merged.
            if looked_at.len() > NEEDS_MAX {
                return Ok(Some(format!(
                    "it depends on more than {NEEDS_MAX} changes that its queue did not merge before it"
                )));
            }
            if !self.is_change_merged(&keys).await? {
                // One text for both cases: whether the change exists is visible only to users who
                // may see its project.
                return Ok(Some(format!(
                    "it now depends on {key}, which is not known to be merged"
                )));
            }
        }
        Ok(None)
    }

    /// Returns the keys that a change at a URL may have, one for each connection to its host; empty
    /// if no connection leads to a change there. The tenant's connection is not known here; that of
    /// the dependent change comes first.
    fn changes_at(&self, url: &str, own: &ConnectionName) -> Vec<ChangeKey> {
        let mut keys: Vec<ChangeKey> =
            self.forges.values().filter_map(|forge| forge.change_at(url)).collect();
        keys.sort_by_key(|key| key.connection != *own);
        keys
    }

    /// Returns whether a change is merged. `keys` are its possible keys; the first that a forge
    /// finds decides. False if none is found.
    async fn is_change_merged(&self, keys: &[ChangeKey]) -> Result<bool, ReconcileError> {
        for key in keys {
            match self.forge(&key.connection)?.read_change(key).await {
                // All keys mean the same change, so the first answer decides.
                Ok(need) => return Ok(need.status == ChangeStatus::Merged),
                Err(error) if error.class() != ErrorClass::Final => return Err(retryable(error)),
                Err(_) => {}
            }
        }
        Ok(false)
    }
}
