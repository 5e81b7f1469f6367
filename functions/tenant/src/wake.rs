//! Events that came before the configuration that they belong to: intake keeps them, and is told when that is live.

use crate::Tenants;
use sluice_model::TenantName;
use sluice_model::poke::Poke;
use sluice_records::codec::decode_foreign;
use sluice_records::tenant::{self, Early};
use sluice_runtime::batch::LookError;
use sluice_runtime::cell;
use sluice_runtime::record::{Expect, Query, Write};

/// Deliveries that are poked, and struck off, together.
const AT_ONCE: usize = 50;

/// Such steps in one look; what is left is due by itself.
const STEPS_MAX: usize = 20;

impl Tenants {
    /// Has deliveries that waited for what is live now go on, the oldest first. One that is too early still says so again.
    pub(crate) async fn wake(&self, name: &TenantName) -> Result<(), LookError> {
        for _ in 0..STEPS_MAX {
            let query = Query::prefix(tenant::partition(name), tenant::WAITING, AT_ONCE);
            let records = self.ports.records.query(&query).await?;
            if records.is_empty() {
                return Ok(());
            }
            let early = records.iter().filter_map(decode_foreign::<Early>);
            let poke = |early: Early| Poke::Delivery { delivery: early.waiting.delivery, project: early.project };
            cell::send(&self.ports, &early.map(poke).collect::<Vec<_>>()).await?;
            let is_last = records.len() < AT_ONCE;
            let strike = records.into_iter().map(|record| Write::Delete { key: record.key, expect: Expect::Anything });
            self.ports.records.commit(strike.collect(), &self.ports.entropy.token()).await?;
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }
}
