//! The triggers that statuses and check runs may match. The webhook forwards a status that Sluice
//! set itself only when it matches one of them.

use crate::codec::{decode_or_log, encode_first, get};
use serde::{Deserialize, Serialize};
use sluice_gate::filter::StatusTrigger;
use sluice_model::TenantName;
use sluice_model::event::ForgeEvent;
use sluice_runtime::record::{Expect, Key, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// The most triggers of one tenant that are stored. The sweep finds events for further ones.
const TRIGGERS_MAX: usize = 20;

/// The status and check run triggers of each tenant that has any, from the live layouts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StatusTriggers(BTreeMap<TenantName, Vec<StatusTrigger>>);

impl StatusTriggers {
    /// Returns whether a status or check run event matches a stored trigger of any tenant. Triggers
    /// beyond those that are stored do not count.
    pub fn is_for(&self, event: &ForgeEvent) -> bool {
        self.0.values().flatten().any(|trigger| trigger.is_for(event))
    }

    /// Replaces the triggers of a tenant by the first `TRIGGERS_MAX` of these, and returns whether
    /// that changed anything. A tenant without triggers is removed.
    fn set(&mut self, tenant: &TenantName, triggers: &[StatusTrigger]) -> bool {
        let stored: Vec<StatusTrigger> = triggers.iter().take(TRIGGERS_MAX).cloned().collect();
        let before = match stored.is_empty() {
            true => self.0.remove(tenant),
            false => self.0.insert(tenant.clone(), stored.clone()),
        };
        before.unwrap_or_default() != stored
    }
}

/// Returns the key of the record with the triggers of all tenants.
pub fn key() -> Key {
    Key::new("tenants-listing", "status-triggers")
}

/// Reads the triggers of all tenants; none when there is no record. A record that cannot be decoded
/// is logged and has none; the sweep then finds the events.
///
/// # Errors
/// When the store does not answer.
pub async fn load(ports: &Ports) -> Result<StatusTriggers, PortError> {
    Ok(get(ports, &key()).await?.as_ref().and_then(decode_or_log).unwrap_or_default())
}

/// Returns the write of a tenant's triggers, the first `TRIGGERS_MAX`, for the commit that makes
/// its layout live. `None` when they are unchanged, or (logged) do not fit into the record. A
/// stored record that cannot be decoded is logged and replaced, without the triggers of other
/// tenants. The write is conditional on the record that was read here: when two tenants write at
/// the same time, one of the commits fails and is retried.
///
/// # Errors
/// When the store does not answer.
pub async fn put(
    ports: &Ports,
    tenant: &TenantName,
    triggers: &[StatusTrigger],
) -> Result<Option<Write>, PortError> {
    let stored = get(ports, &key()).await?;
    let mut all: StatusTriggers = stored.as_ref().and_then(decode_or_log).unwrap_or_default();
    if !all.set(tenant, triggers) {
        return Ok(None);
    }
    match encode_first(key(), &all) {
        Ok(mut record) => {
            let seen = stored.map(|record| record.revision);
            record.revision = seen.unwrap_or_default() + 1;
            Ok(Some(Write::Put { record, expect: seen.map_or(Expect::Absent, Expect::Revision) }))
        }
        // Only latency depends on this record.
        Err(error) => {
            tracing::warn!(%tenant, %error, "its status triggers do not fit into the record; the sweep alone finds their events");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::pipeline::GitHubTrigger;

    /// Z6.1: removed triggers are forgotten, and unchanged triggers are not written again.
    #[test]
    fn new_triggers_of_a_tenant_replace_its_old_ones() {
        let on =
            GitHubTrigger { event: vec!["pull_request".to_owned()], ..GitHubTrigger::default() };
        let trigger = StatusTrigger { connection: "github".into(), on };
        let (one, two) = (TenantName::from("one"), TenantName::from("two"));
        let mut all = StatusTriggers::default();
        assert!(!all.set(&one, &[]));
        let of_one = std::slice::from_ref(&trigger);
        assert!(all.set(&one, of_one) && !all.set(&one, of_one));
        assert!(all.set(&two, &vec![trigger.clone(); TRIGGERS_MAX + 1]));
        assert!(!all.set(&two, &vec![trigger; TRIGGERS_MAX]), "further triggers are dropped");
        assert!(all.set(&one, &[]) && all.set(&two, &[]));
        assert_eq!(all, StatusTriggers::default());
    }
}
