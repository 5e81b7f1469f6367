//! The reporter: carries out landings and reports that the gate wrote down, each with its effect
//! once.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod asked;
mod forward;
mod judge;
mod land;
mod message;
mod report;

use async_trait::async_trait;
use sluice_forge::Forge;
use sluice_model::ConnectionName;
use sluice_model::poke::Poke;
use sluice_notify::Notify;
use sluice_runtime::Ports;
use sluice_runtime::batch::{Heard, Look, LookError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Carries out landings and reports.
pub struct Reporter {
    ports: Ports,
    forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
    notifiers: BTreeMap<ConnectionName, Arc<dyn Notify>>,
}

impl Reporter {
    /// Makes a reporter that speaks to these forges.
    pub fn new(ports: Ports, forges: BTreeMap<ConnectionName, Arc<dyn Forge>>) -> Self {
        Self { ports, forges, notifiers: BTreeMap::new() }
    }

    /// Returns the same reporter, which sends mail and publishes by these connections.
    #[must_use]
    pub fn with_notifiers(self, notifiers: BTreeMap<ConnectionName, Arc<dyn Notify>>) -> Self {
        Self { notifiers, ..self }
    }

    fn forge(&self, connection: &ConnectionName) -> Result<&Arc<dyn Forge>, LookError> {
        self.forges.get(connection).ok_or_else(|| {
            LookError::Again(format!(
                "the connection {connection} is not configured here; store it and deploy the function again"
            ))
        })
    }
}

#[async_trait]
impl Look for Reporter {
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Report { report, .. } => match sluice_records::landing::parse(report) {
                Some((item, generation)) => self.land(&item, generation, heard).await,
                None => self.report(report, heard).await,
            },
            other => Err(LookError::Again(format!("the reporter was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
