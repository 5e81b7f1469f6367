//! Events that came before the configuration that they belong to: intake keeps them, and is told
//! when that is live.

use crate::Tenants;
use sluice_model::TenantName;
use sluice_model::poke::Poke;
use sluice_records::codec::decode_foreign;
use sluice_records::tenant::{self, Early};
use sluice_runtime::batch::LookError;
use sluice_runtime::cell;
use sluice_runtime::record::{Committed, Expect, Query, Record, Write};

/// Deliveries that are poked, and struck off, together.
const AT_ONCE: usize = 50;

/// Such steps in one look; what is left is due by itself.
const STEPS_MAX: usize = 20;

impl Tenants {
    /// Has deliveries that waited for what is live now go on, the oldest first. One that is too
    /// early still says so again.
    pub(crate) async fn wake(&self, name: &TenantName) -> Result<(), LookError> {
        let mut after = None;
        for _ in 0..STEPS_MAX {
            let query =
                Query { after, ..Query::prefix(tenant::partition(name), tenant::WAITING, AT_ONCE) };
            let mut records = self.ports.records.query(&query).await?;
            let Some(last) = records.last().map(|record| record.key.sort.clone()) else {
                return Ok(());
            };
            let is_last = records.len() < AT_ONCE;
            let early = records.iter().filter_map(decode_foreign::<Early>);
            let poke = |early: Early| Poke::Delivery {
                delivery: early.waiting.delivery,
                project: early.project,
            };
            cell::send(&self.ports, &early.map(poke).collect::<Vec<_>>()).await?;
            while !records.is_empty() {
                let strike = |record: &Record| {
                    let expect = Expect::Revision(record.revision);
                    Write::Delete { key: record.key.clone(), expect }
                };
                let strikes = records.iter().map(strike).collect();
                match self.ports.records.commit(strikes, &self.ports.entropy.token()).await? {
                    Committed::Yes => break,
                    Committed::Lost(keys) if keys.is_empty() => break,
                    // One that was looked at since waits for something else by now, and is left.
                    Committed::Lost(keys) => records.retain(|record| !keys.contains(&record.key)),
                }
            }
            if is_last {
                return Ok(());
            }
            after = Some(last);
        }
        Ok(())
    }
}
