//! What statuses and check runs may start anything: of those that we set ourselves the webhook
//! passes on these alone.

use crate::codec::{decode_foreign, encode_first, get};
use serde::{Deserialize, Serialize};
use sluice_gate::filter::StatusTrigger;
use sluice_model::TenantName;
use sluice_model::event::ForgeEvent;
use sluice_runtime::record::{Expect, Key, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// Triggers of one tenant that are kept; what others are for is found by the sweep.
const TRIGGERS_MAX: usize = 20;

/// The triggers that statuses and check runs may fire, of each tenant that has any, by the layouts
/// that are live.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StatusTriggers(BTreeMap<TenantName, Vec<StatusTrigger>>);

impl StatusTriggers {
    /// Returns whether a trigger of any tenant is for this status or check run.
    pub fn is_for(&self, event: &ForgeEvent) -> bool {
        self.0.values().flatten().any(|trigger| trigger.is_for(event))
    }

    /// Puts the triggers of a tenant in the place of those it had, and returns whether that changes
    /// anything.
    fn set(&mut self, tenant: &TenantName, triggers: &[StatusTrigger]) -> bool {
        let kept: Vec<StatusTrigger> = triggers.iter().take(TRIGGERS_MAX).cloned().collect();
        let before = match kept.is_empty() {
            true => self.0.remove(tenant),
            false => self.0.insert(tenant.clone(), kept.clone()),
        };
        before.unwrap_or_default() != kept
    }
}

/// Returns the key of the record with all of them.
pub fn key() -> Key {
    Key::new("tenants-listing", "status-triggers")
}

/// Reads all of them. A record that cannot be read has none: the sweep finds what is missed.
///
/// # Errors
/// When the store does not answer.
pub async fn load(ports: &Ports) -> Result<StatusTriggers, PortError> {
    Ok(get(ports, &key()).await?.as_ref().and_then(decode_foreign).unwrap_or_default())
}

/// Returns the write that says what a tenant's triggers are, for the commit by which its layout is
/// live; `None` where that is said already, and where there is no place for it. Of two tenants that
/// write at once one comes again.
///
/// # Errors
/// When the store does not answer.
pub async fn put(
    ports: &Ports,
    tenant: &TenantName,
    triggers: &[StatusTrigger],
) -> Result<Option<Write>, PortError> {
    let known = get(ports, &key()).await?;
    let mut all: StatusTriggers = known.as_ref().and_then(decode_foreign).unwrap_or_default();
    if !all.set(tenant, triggers) {
        return Ok(None);
    }
    match encode_first(key(), &all) {
        Ok(mut record) => {
            let seen = known.map(|record| record.revision);
            record.revision = seen.unwrap_or_default() + 1;
            Ok(Some(Write::Put { record, expect: seen.map_or(Expect::Absent, Expect::Revision) }))
        }
        // Nothing but speed depends on it.
        Err(error) => {
            tracing::warn!(%tenant, %error, "statuses of ours that start its pipelines are found by the sweep alone");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::pipeline::GitHubTrigger;

    /// Z6.1: what a tenant has no more is forgotten, and what is said already is not written again.
    #[test]
    fn the_triggers_of_a_tenant_take_the_place_of_those_it_had() {
        let on =
            GitHubTrigger { event: vec!["pull_request".to_owned()], ..GitHubTrigger::default() };
        let trigger = StatusTrigger { connection: "github".into(), on };
        let (one, two) = (TenantName::from("one"), TenantName::from("two"));
        let mut all = StatusTriggers::default();
        assert!(!all.set(&one, &[]));
        let of_one = std::slice::from_ref(&trigger);
        assert!(all.set(&one, of_one) && !all.set(&one, of_one));
        assert!(all.set(&two, &vec![trigger.clone(); TRIGGERS_MAX + 1]));
        assert!(!all.set(&two, &vec![trigger; TRIGGERS_MAX]), "there is no place for more");
        assert!(all.set(&one, &[]) && all.set(&two, &[]));
        assert_eq!(all, StatusTriggers::default());
    }
}
