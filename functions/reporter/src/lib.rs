//! The reporter: executes the landings and reports that the gate wrote, each with its effect once.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod fast_forward;
mod land;
mod landing_run;
mod message;
mod refusals;
mod report;

use async_trait::async_trait;
use sluice_forge::Forge;
use sluice_model::ConnectionName;
use sluice_model::wakeup::Wakeup;
use sluice_notify::Notify;
use sluice_runtime::Ports;
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Executes landings and reports.
pub struct Reporter {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The forges by connection.
    forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
    /// The channels for mail and MQTT by connection.
    notifiers: BTreeMap<ConnectionName, Arc<dyn Notify>>,
}

impl Reporter {
    /// Creates a reporter that writes to these forges, by connection.
    pub fn new(ports: Ports, forges: BTreeMap<ConnectionName, Arc<dyn Forge>>) -> Self {
        Self { ports, forges, notifiers: BTreeMap::new() }
    }

    /// Returns the reporter with the connections through which reports are sent by mail or MQTT;
    /// they replace those it had.
    #[must_use]
    pub fn with_notifiers(self, notifiers: BTreeMap<ConnectionName, Arc<dyn Notify>>) -> Self {
        Self { notifiers, ..self }
    }

    /// Returns the forge of a connection, or an error that has the message redelivered if this
    /// function has none.
    fn forge(&self, connection: &ConnectionName) -> Result<&Arc<dyn Forge>, ReconcileError> {
        self.forges.get(connection).ok_or_else(|| {
            ReconcileError::Retry(format!(
                "the connection {connection} is not configured here; store it and redeploy the function"
            ))
        })
    }
}

#[async_trait]
impl Reconciler for Reporter {
    /// Executes a landing or sends a report, whichever the wakeup names. Any other wakeup is an
    /// error.
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Report { report, .. } => match sluice_records::landing::parse(report) {
                Some((item, generation)) => self.land(&item, generation, reception).await,
                None => self.report(report, reception).await,
            },
            other => Err(ReconcileError::Retry(format!(
                "the reporter cannot handle the wakeup {other:?}"
            ))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
