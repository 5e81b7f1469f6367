//! A tenant that the main configuration left out: its queues are emptied, and it is listed no more.
//!
//! It gets a layout without pipelines, under which the gate lets everything leave its queues. Its head stays, so that the numbers
//! of its layouts go on when it comes back; what was read of its projects goes.

use crate::Tenants;
use bytes::Bytes;
use sluice_config::Connections;
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::tenant::TenantConfig;
use sluice_model::TenantName;
use sluice_records::codec::{decode, get, with_body};
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::batch::LookError;
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Query, Write};
use sluice_runtime::{Commit, Saved, cell};
use std::collections::BTreeMap;

/// Records that are forgotten in one write.
const FORGOTTEN_AT_ONCE: usize = 50;
/// Such writes in one look; a tenant with more projects takes several looks.
const WRITES_MAX: usize = 100;

impl Tenants {
    /// Removes a tenant, if there is anything left of it. Safe to run twice.
    pub(crate) async fn remove(&self, name: &TenantName) -> Result<(), LookError> {
        self.forget(name, tenant::DIRTY).await?;
        self.forget(name, tenant::SOURCES).await?;
        let Some(record) = get(&self.ports, &tenant::key(name)).await? else { return Ok(()) };
        let head: Tenant = decode(&record)?;
        if head.is_removed {
            return Ok(());
        }
        let layout = Layout::build(LayoutSources {
            tenant: TenantConfig::new(name.as_str()),
            connections: Connections::new(),
            branches: BTreeMap::new(),
            fragments: Vec::new(),
        });
        let object = format!("layouts/{}", layout.id());
        self.ports.objects.put(&object, Bytes::from(layout.to_bytes()), PutMode::Always, "application/json").await?;
        let number = head.layout.wanted.max(head.layout.live) + 1;
        let mut next = Tenant {
            layout_object: Some(object),
            live_since: self.ports.clock.now(),
            telling: true,
            is_removed: true,
            ..Tenant::new(name.clone())
        };
        (next.layout.wanted, next.layout.live) = (number, number);
        tracing::warn!(tenant = %name, "the main configuration names this tenant no more: it is removed, and its queues are emptied");
        let commit = Commit {
            head: with_body(record, &next)?,
            others: vec![tenant::remove_listed(name), tenant::put_listing(name, self.ports.clock.now())?],
            pokes: Vec::new(),
            due: self.due(&next),
        };
        match cell::commit_and_deliver(&self.ports, commit).await? {
            Saved::Yes(record) => self.tell(record, next).await,
            Saved::Stale => Err(LookError::Again(format!("tenant {name} moved while it was removed"))),
        }
    }

    /// Deletes a tenant's records of one kind.
    async fn forget(&self, name: &TenantName, kind: &str) -> Result<(), LookError> {
        for _ in 0..WRITES_MAX {
            let query = Query::prefix(tenant::partition(name), kind, FORGOTTEN_AT_ONCE);
            let records = self.ports.records.query(&query).await?;
            if records.is_empty() {
                return Ok(());
            }
            let delete = records.into_iter().map(|record| Write::Delete { key: record.key, expect: Expect::Anything });
            self.ports.records.commit(delete.collect(), &self.ports.entropy.token()).await?;
        }
        Err(LookError::Again(format!("more records of the tenant {name} than one look forgets")))
    }
}
