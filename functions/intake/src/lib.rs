//! Intake turns a stored delivery into inbox messages for the queues that its change concerns.
//!
//! How one delivery is processed:
//!
//! - [`process_delivery`] is the entry point. It reads the change from its forge and commits the
//!   effects with the delivery.
//! - [`change_context`] reads what is stored about the change and the tenants, in one call where it
//!   can.
//! - [`seen_events`] and [`attributes`] record which events of a change were already processed.
//!   Such an event starts no pipeline, but queues that hold the change still learn its state.
//! - [`route`] decides which pipelines of which tenants are concerned and builds the messages.
//! - [`dependencies`] resolves what a change depends on, [`bundle`] adds the members of its
//!   dependency cycle, [`oversized_messages`] splits messages that are too large for a record.
//! - [`deferred`] keeps events until the configuration they depend on is live.
//!
//! Other sources of events:
//!
//! - [`commit_statuses`] for statuses and check runs of a commit.
//! - [`pushes`] for branches and tags that moved.
//! - [`schedule`] for timers.
//! - [`operator_enqueue`] for changes and refs that an operator enqueues.
//! - [`zuul_events`] for what happened to a change in another queue.
//! - [`image_events`] for requests to build, validate or delete images.
//! - [`sweep`], [`missed_events`] and [`closed_changes`] for events that no webhook reported, found
//!   by comparing with the forge.
//! - [`ref_poll`] for branches and tags at plain git servers, which send no webhooks.
//!
//! [`self_authored`] recognises events that Sluice itself caused. [`trigger_outcomes`] records why
//! each pipeline did or did not enqueue a change.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod attributes;
mod bundle;
mod change_context;
mod change_tree;
mod closed_changes;
mod commit_statuses;
mod deferred;
mod dependencies;
mod image_events;
mod missed_events;
mod operator_enqueue;
mod oversized_messages;
mod process_delivery;
mod pushes;
mod ref_poll;
mod route;
mod schedule;
mod seen_events;
mod self_authored;
mod sweep;
mod trigger_outcomes;
mod zuul_events;

use crate::change_context::{ConsumedMarks, TenantListCache};
use async_trait::async_trait;
use sluice_forge::{ErrorClass, Forge, ForgeError};
use sluice_model::ConnectionName;
use sluice_model::wakeup::Wakeup;
use sluice_records::connection;
use sluice_records::layout::Layouts;
use sluice_repos::Repos;
use sluice_runtime::Ports;
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Processes deliveries and timers.
pub struct Intake {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The cache of layouts.
    layouts: Layouts,
    /// The cached names of all tenants.
    tenant_list: TenantListCache,
    /// The cached push marks that no longer exist.
    consumed_marks: ConsumedMarks,
    /// The forges by connection.
    forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
    /// The repositories, of which the refs of plain git servers are listed.
    repos: Arc<dyn Repos>,
}

impl Intake {
    /// Creates an intake that reads from these forges, by connection, and lists the refs of
    /// repositories at plain git servers.
    pub fn new(
        ports: Ports,
        forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
        repos: Arc<dyn Repos>,
    ) -> Self {
        Self {
            ports,
            layouts: Layouts::default(),
            tenant_list: TenantListCache::default(),
            consumed_marks: ConsumedMarks::default(),
            forges,
            repos,
        }
    }

    /// Returns the forge of a connection, or an error that has the message redelivered if this
    /// function has none.
    fn forge(&self, connection: &ConnectionName) -> Result<&Arc<dyn Forge>, ReconcileError> {
        self.forges.get(connection).ok_or_else(|| {
            ReconcileError::Retry(format!(
                "the connection {connection} is not configured here; store it and deploy the function again"
            ))
        })
    }

    /// Returns the forge of a connection; the inner error says why it has none, which is final: it
    /// was removed, or leads to no forge. A stored connection that this instance has not loaded is
    /// a retry.
    ///
    /// # Errors
    ///
    /// [`ReconcileError::Retry`] when the connection is stored but this instance has not loaded it
    /// yet, and when the stored connections cannot be read.
    async fn find_forge(
        &self,
        connection: &ConnectionName,
    ) -> Result<Result<&Arc<dyn Forge>, String>, ReconcileError> {
        if let Some(forge) = self.forges.get(connection) {
            return Ok(Ok(forge));
        }
        let stored = connection::load(&self.ports).await?;
        match stored.0.get(connection) {
            Some(stored) if stored.supports_changes() => self.forge(connection).map(Ok),
            Some(_) => Ok(Err(format!("the connection {connection} does not lead to a forge"))),
            None => Ok(Err(format!("the connection {connection} was removed"))),
        }
    }
}

#[async_trait]
impl Reconciler for Intake {
    /// Processes a delivery, or fires a tenant's due timers. Any other wakeup is an error.
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Delivery { delivery, .. } => self.process_delivery(delivery, reception).await,
            Wakeup::Schedule { tenant } => self.fire_due_timers(tenant).await,
            other => Err(ReconcileError::Retry(format!(
                "intake received an unsupported wakeup: {other:?}"
            ))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

/// Returns the error that has a message redelivered after a forge call failed, after the forge's
/// delay if it names one. A final error gives a retry as well.
fn retry_error(error: ForgeError) -> ReconcileError {
    match error.class() {
        ErrorClass::RedeliverAfter { seconds } => {
            ReconcileError::RetryAfter { why: error.to_string(), seconds }
        }
        ErrorClass::Final | ErrorClass::Redeliver => ReconcileError::Retry(error.to_string()),
    }
}
