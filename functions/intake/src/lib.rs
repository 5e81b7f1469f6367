//! Intake: a delivery becomes the change as it is now, and the change reaches the queues that it
//! concerns.
//!
//! [`deliver`] is the story; [`before`] reads what was known before, in one call where it can;
//! [`route`] says which pipelines of which tenants are concerned; [`needs`] resolves what a change
//! depends on, [`mates`] brings in what needs it in turn, [`fit`] has it fit into records;
//! [`commits`] finds the changes that a status is about; [`refs`] is the same for branches and tags
//! that moved; [`early`] keeps what came before the configuration that it belongs to; [`schedule`]
//! looks at timers; [`operators`] and [`zuul`] bring what people and other queues started,
//! [`images`] what is asked of images; [`own`] knows what we said ourselves; [`sweep`], [`lost`]
//! and [`over`] mend what no webhook told, [`attributes`] knows what of a change was told.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod attributes;
mod before;
mod commits;
mod deliver;
mod early;
mod fit;
mod images;
mod lost;
mod mates;
mod needs;
mod operators;
mod over;
mod own;
mod refs;
mod route;
mod schedule;
mod sweep;
mod told;
mod verdicts;
mod zuul;

use crate::before::{Gone, Tenants};
use async_trait::async_trait;
use sluice_forge::{Forge, ForgeError, Verdict};
use sluice_model::ConnectionName;
use sluice_model::poke::Poke;
use sluice_records::connection;
use sluice_records::layout::Layouts;
use sluice_runtime::Ports;
use sluice_runtime::batch::{Heard, Look, LookError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Handles deliveries.
pub struct Intake {
    ports: Ports,
    layouts: Layouts,
    tenants: Tenants,
    gone: Gone,
    forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
}

impl Intake {
    /// Makes an intake that reads these forges.
    pub fn new(ports: Ports, forges: BTreeMap<ConnectionName, Arc<dyn Forge>>) -> Self {
        Self {
            ports,
            layouts: Layouts::default(),
            tenants: Tenants::default(),
            gone: Gone::default(),
            forges,
        }
    }

    fn forge(&self, connection: &ConnectionName) -> Result<&Arc<dyn Forge>, LookError> {
        self.forges.get(connection).ok_or_else(|| {
            LookError::Again(format!(
                "the connection {connection} is not configured here; store it and deploy the function again"
            ))
        })
    }

    /// Returns the forge of a connection; the inner error says that there is none any more, which
    /// is final. A connection that is stored and not known here yet comes again, and so does one of
    /// which nobody can tell.
    async fn forge_if_any(
        &self,
        connection: &ConnectionName,
    ) -> Result<Result<&Arc<dyn Forge>, String>, LookError> {
        if let Some(forge) = self.forges.get(connection) {
            return Ok(Ok(forge));
        }
        let stored = connection::load(&self.ports).await?;
        match stored.0.get(connection) {
            Some(stored) if stored.is_asked() => self.forge(connection).map(Ok),
            Some(_) => Ok(Err(format!(
                "the connection {connection} leads to no forge that could be asked"
            ))),
            None => Ok(Err(format!(
                "the connection {connection} was removed; nobody can be asked any more"
            ))),
        }
    }
}

#[async_trait]
impl Look for Intake {
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Delivery { delivery, .. } => self.handle(delivery, heard).await,
            Poke::Schedule { tenant } => self.tick(tenant).await,
            other => Err(LookError::Again(format!("intake was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

/// Whatever a forge could not answer, and is not final, comes again.
fn again(error: ForgeError) -> LookError {
    match error.verdict() {
        Verdict::After { seconds } => LookError::Later { why: error.to_string(), seconds },
        Verdict::Final | Verdict::Retry => LookError::Again(error.to_string()),
    }
}
