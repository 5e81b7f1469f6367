//! Removes a tenant that the main configuration omits: empties its queues and takes it off the
//! list.
//!
//! It gets a layout without pipelines, under which everything is dequeued. Its head stays, so that
//! layout numbers continue if it returns; the sources of its projects are deleted. Buildsets,
//! builds and logs expire as usual.

use crate::Tenants;
use bytes::Bytes;
use sluice_config::layout::Layout;
use sluice_config::tenant::TenantConfig;
use sluice_model::wakeup::Wakeup;
use sluice_model::{TenantName, Timestamp};
use sluice_records::codec::{decode_or_log, get, with_body};
use sluice_records::status_triggers;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Query, Record, Write};
use sluice_runtime::{CellCommit, CommitOutcome, cell};

/// Seconds after which a second run has to find the tenant omitted as well.
const SURE_SECONDS: u64 = 30;
/// Records that are deleted in one write.
const FORGOTTEN_AT_ONCE: usize = 50;
/// The most such writes of one run; a tenant with more projects takes several runs.
const WRITES_MAX: usize = 100;

/// Returns when a tenant may be removed that the main configuration has omitted since
/// `omitted_since`.
pub(crate) fn sure_at(omitted_since: Timestamp) -> Timestamp {
    omitted_since.plus_seconds(SURE_SECONDS)
}

impl Tenants {
    /// Removes an omitted tenant step by step; each step is safe to run twice. The first run only
    /// notes since when it is omitted. A run at least [`SURE_SECONDS`] later removes it, or any run
    /// if an operator confirmed the removal under the main configuration with the digest `main`.
    /// Later runs finish that. `record` is the tenant's record as it was just read and `head` its
    /// content. Without them the tenant was never read, and only what was stored for it is deleted.
    /// The error is a retry if another run committed first.
    pub(crate) async fn remove_omitted(
        &self,
        name: &TenantName,
        main: &str,
        record: Option<Record>,
        head: Option<Tenant>,
    ) -> Result<(), ReconcileError> {
        let (Some(record), Some(head)) = (record, head) else {
            // Never read; a reread may have been requested all the same.
            return self.forget_all(name).await;
        };
        if head.is_removed {
            return self.clear(record, head).await;
        }
        // An operator who confirmed the removal cannot have omitted it by accident.
        let confirmed = get(&self.ports, &tenant::removal_key(name)).await?;
        let is_meant =
            confirmed.as_ref().and_then(decode_or_log::<String>).is_some_and(|of| of == main);
        match head.omitted_since {
            _ if is_meant => self.remove(record, head).await,
            Some(at) if sure_at(at) <= self.ports.clock.now() => self.remove(record, head).await,
            Some(_) => self.postpone(Some(record), &head).await,
            None => {
                tracing::warn!(tenant = %name, "the main configuration does not name this tenant any more; it is removed if that does not change soon");
                let next = Tenant { omitted_since: Some(self.ports.clock.now()), ..head };
                self.write(record, &next, Vec::new()).await.map(drop)
            }
        }
    }

    /// Makes an empty layout live under a new number and takes the tenant off the list; then
    /// deletes what was read for it and notifies its queues. The error is a retry if another run
    /// committed first.
    async fn remove(&self, record: Record, head: Tenant) -> Result<(), ReconcileError> {
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
            is_notifying_queues: true,
            is_removed: true,
            // If it returns before its landings end, they are awaited as usual.
            landings: head.landings.clone(),
            ..Tenant::new(name.clone())
        };
        // No landing is awaited any more: its queues decide at once.
        let number = head.layout.wanted.max(head.layout.live) + 1;
        (next.layout.wanted, next.layout.live) = (number, number);
        tracing::warn!(tenant = %name, "a tenant is removed, and its queues are emptied");
        let confirmed = Write::Delete { key: tenant::removal_key(name), expect: Expect::Anything };
        let mut others = vec![
            tenant::remove_from_tenant_list(name),
            tenant::put_tenant_list_version(name, now)?,
            confirmed,
        ];
        others.extend(status_triggers::put(&self.ports, name, &[]).await?);
        let record = self.write(record, &next, others).await?;
        self.clear(record, next).await
    }

    /// Finishes the removal: deletes what was read for the tenant, then notifies its queues if that
    /// is still to do, otherwise forgets its last landings once none of them is in progress.
    async fn clear(&self, record: Record, head: Tenant) -> Result<(), ReconcileError> {
        self.forget_all(&head.name).await?;
        if head.is_notifying_queues {
            return self.notify_queues(record, head).await.map(drop);
        }
        if head.landings.is_empty() || self.await_landings(&head).await?.is_none() {
            return self.postpone(Some(record), &head).await;
        }
        let next = Tenant { landings: Vec::new(), ..head };
        self.write(record, &next, Vec::new()).await.map(drop)
    }

    /// Commits the next version of the tenant's record with other writes and returns the new
    /// record. An error if another run committed first.
    async fn write(
        &self,
        record: Record,
        next: &Tenant,
        others: Vec<Write>,
    ) -> Result<Record, ReconcileError> {
        let commit = CellCommit {
            head: with_body(record, next)?,
            others,
            wakeups: Vec::new(),
            due: self.due(next),
        };
        match cell::commit_and_deliver(&self.ports, commit).await? {
            CommitOutcome::Written(record) => Ok(record),
            CommitOutcome::Stale => Err(ReconcileError::Retry(format!(
                "tenant {} moved while it was removed",
                next.name
            ))),
        }
    }

    /// Deletes the sources of the tenant's projects, the requests to read them again, and its
    /// deferred events. If they are too many for one run, wakes the tenant to continue.
    async fn forget_all(&self, name: &TenantName) -> Result<(), ReconcileError> {
        for kind in [tenant::REREAD, tenant::LAST_REREAD, tenant::DEFERRED, tenant::SOURCES] {
            if !self.forget(name, kind).await? {
                // Another run continues.
                return Ok(
                    cell::send(&self.ports, &[Wakeup::Tenant { tenant: name.clone() }]).await?
                );
            }
        }
        Ok(())
    }

    /// Deletes a tenant's records of one kind, a prefix of sort keys, and returns whether none is
    /// left; false after [`WRITES_MAX`] writes.
    async fn forget(&self, name: &TenantName, kind: &str) -> Result<bool, ReconcileError> {
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
