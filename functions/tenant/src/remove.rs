//! A tenant that the main configuration left out: its queues are emptied, and it is listed no more.
//!
//! It gets a layout without pipelines, under which the gate lets everything leave its queues. Its
//! head stays, so that the numbers of its layouts go on when it comes back; what was read of its
//! projects goes. Buildsets, builds and logs stay as long as others.

use crate::Tenants;
use bytes::Bytes;
use sluice_config::layout::Layout;
use sluice_config::tenant::TenantConfig;
use sluice_model::poke::Poke;
use sluice_model::{TenantName, Timestamp};
use sluice_records::codec::{decode_foreign, get, with_body};
use sluice_records::status;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::batch::LookError;
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Query, Record, Write};
use sluice_runtime::{Commit, Saved, cell};

/// Seconds after which a second look at the main configuration has to find the tenant left out as
/// well.
const SURE_SECONDS: u64 = 30;
/// Records that are forgotten in one write.
const FORGOTTEN_AT_ONCE: usize = 50;
/// Such writes in one look; a tenant with more projects takes several looks.
const WRITES_MAX: usize = 100;

/// Returns when a tenant may be removed that was first left out then.
pub(crate) fn sure_at(left_out_at: Timestamp) -> Timestamp {
    left_out_at.plus_seconds(SURE_SECONDS)
}

impl Tenants {
    /// Removes a tenant that the main configuration does not name, step by step; each is safe to
    /// run twice.
    pub(crate) async fn left_out(
        &self,
        name: &TenantName,
        main: &str,
        record: Option<Record>,
        head: Option<Tenant>,
    ) -> Result<(), LookError> {
        let (Some(record), Some(head)) = (record, head) else {
            // Never read; somebody may have had it read all the same.
            return self.forget_all(name).await;
        };
        if head.is_removed {
            return self.clear(record, head).await;
        }
        // An operator who removes tenants says so beside: then it cannot be a slip.
        let word = get(&self.ports, &tenant::leaving_key(name)).await?;
        let is_meant =
            word.as_ref().and_then(decode_foreign::<String>).is_some_and(|of| of == main);
        match head.left_out_at {
            _ if is_meant => self.remove(record, head).await,
            Some(at) if sure_at(at) <= self.ports.clock.now() => self.remove(record, head).await,
            Some(_) => self.look_later(Some(record), &head).await,
            None => {
                tracing::warn!(tenant = %name, "the main configuration names this tenant no more; it is removed if it stays so");
                let next = Tenant { left_out_at: Some(self.ports.clock.now()), ..head };
                self.write(record, &next, Vec::new()).await.map(drop)
            }
        }
    }

    /// Gives it an empty layout and takes it off the list; then its queues are told.
    async fn remove(&self, record: Record, head: Tenant) -> Result<(), LookError> {
        let name = &head.name;
        let layout = Layout::empty(TenantConfig::new(name.as_str()));
        let object = format!("layouts/{}", layout.id());
        self.ports
            .objects
            .put(&object, Bytes::from(layout.to_bytes()), PutMode::Always, "application/json")
            .await?;
        let now = self.ports.clock.now();
        let mut next = Tenant {
            layout_object: Some(object),
            live_since: now,
            telling: true,
            is_removed: true,
            // Should it come back before they are over, what they bring is waited for as ever.
            landings: head.landings.clone(),
            ..Tenant::new(name.clone())
        };
        // Nothing of it is settling any more: its queues decide at once.
        let number = head.layout.wanted.max(head.layout.live) + 1;
        (next.layout.wanted, next.layout.live) = (number, number);
        tracing::warn!(tenant = %name, "a tenant is removed, and its queues are emptied");
        let word = Write::Delete { key: tenant::leaving_key(name), expect: Expect::Anything };
        let mut others = vec![tenant::remove_listed(name), tenant::put_listing(name, now)?, word];
        others.extend(status::put(&self.ports, name, &[]).await?);
        let record = self.write(record, &next, others).await?;
        self.clear(record, next).await
    }

    /// Does what is left to do of a removed tenant: forgets what was read for it, tells its queues,
    /// waits for its last landings.
    async fn clear(&self, record: Record, head: Tenant) -> Result<(), LookError> {
        self.forget_all(&head.name).await?;
        if head.telling {
            return self.tell(record, head).await.map(drop);
        }
        if head.landings.is_empty() || self.settled(&head).await?.is_none() {
            return self.look_later(Some(record), &head).await;
        }
        let next = Tenant { landings: Vec::new(), ..head };
        self.write(record, &next, Vec::new()).await.map(drop)
    }

    async fn write(
        &self,
        record: Record,
        next: &Tenant,
        others: Vec<Write>,
    ) -> Result<Record, LookError> {
        let commit = Commit {
            head: with_body(record, next)?,
            others,
            pokes: Vec::new(),
            due: self.due(next),
        };
        match cell::commit_and_deliver(&self.ports, commit).await? {
            Saved::Yes(record) => Ok(record),
            Saved::Stale => {
                Err(LookError::Again(format!("tenant {} moved while it was removed", next.name)))
            }
        }
    }

    /// Deletes what was read of its projects, the marks of those to read again, and who waits for
    /// that.
    async fn forget_all(&self, name: &TenantName) -> Result<(), LookError> {
        for kind in [tenant::DIRTY, tenant::PUSHED, tenant::WAITING, tenant::SOURCES] {
            if !self.forget(name, kind).await? {
                // More than one look forgets.
                return Ok(cell::send(&self.ports, &[Poke::Tenant { tenant: name.clone() }]).await?);
            }
        }
        Ok(())
    }

    /// Deletes a tenant's records of one kind. Returns whether none is left.
    async fn forget(&self, name: &TenantName, kind: &str) -> Result<bool, LookError> {
        for _ in 0..WRITES_MAX {
            let query = Query::prefix(tenant::partition(name), kind, FORGOTTEN_AT_ONCE);
            let records = self.ports.records.query(&query).await?;
            let is_last = records.len() < FORGOTTEN_AT_ONCE;
            let delete = records
                .into_iter()
                .map(|record| Write::Delete { key: record.key, expect: Expect::Anything });
            let delete: Vec<Write> = delete.collect();
            if !delete.is_empty() {
                self.ports.records.commit(delete, &self.ports.entropy.token()).await?;
            }
            if is_last {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
