//! Wakes deferred events: intake keeps events that wait for a configuration, this wakes them when
//! it is live.

use crate::Tenants;
use sluice_model::TenantName;
use sluice_model::wakeup::Wakeup;
use sluice_records::codec::decode_or_log;
use sluice_records::tenant::{self, DeferredWakeup};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::cell;
use sluice_runtime::record::{Expect, Query, Record, TransactionOutcome, Write};

/// Deliveries that are woken, and whose records are deleted, at a time.
const AT_ONCE: usize = 50;

/// The most such steps of one run; the other deliveries have due times.
const STEPS_MAX: usize = 20;

impl Tenants {
    /// Wakes the deferred deliveries of a tenant, the oldest first, and deletes their records; of
    /// very many only the first. One that still has to wait is deferred again by intake. An
    /// unreadable record is only deleted, and one that changed meanwhile is left.
    pub(crate) async fn wake_deferred(&self, name: &TenantName) -> Result<(), ReconcileError> {
        let mut after = None;
        for _ in 0..STEPS_MAX {
            let query = Query {
                after,
                ..Query::prefix(tenant::partition(name), tenant::DEFERRED, AT_ONCE)
            };
            let mut records = self.ports.records.query(&query).await?;
            let Some(last) = records.last().map(|record| record.key.sort.clone()) else {
                return Ok(());
            };
            let is_last = records.len() < AT_ONCE;
            let deferred = records.iter().filter_map(decode_or_log::<DeferredWakeup>);
            let wakeup = |deferred: DeferredWakeup| Wakeup::Delivery {
                delivery: deferred.waiting.delivery,
                project: deferred.project,
            };
            cell::send(&self.ports, &deferred.map(wakeup).collect::<Vec<_>>()).await?;
            while !records.is_empty() {
                let deletions = |record: &Record| {
                    let expect = Expect::Revision(record.revision);
                    Write::Delete { key: record.key.clone(), expect }
                };
                let deletions = records.iter().map(deletions).collect();
                match self.ports.records.commit(deletions, &self.ports.entropy.token()).await? {
                    TransactionOutcome::Written => break,
                    TransactionOutcome::ConditionFailed(keys) if keys.is_empty() => break,
                    // A record that changed meanwhile waits for something else, and is left.
                    TransactionOutcome::ConditionFailed(keys) => {
                        records.retain(|record| !keys.contains(&record.key))
                    }
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
