//! How long jobs take, guessed from builds that succeeded of late; kept for a minute, since a page
//! asks every two seconds.

use crate::builds;
use crate::reply::Refusal;
use sluice_model::{JobName, ProjectName, TenantName, Timestamp};
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Builds that a guess looks back on.
const BUILDS_MAX: usize = 200;
/// Successes of one job that count.
const SUCCESSES_MAX: u64 = 10;
/// Seconds that a guess is kept.
const KEPT_SECONDS: u64 = 60;
/// Tenants whose guesses are kept.
const TENANTS_MAX: usize = 64;

/// Milliseconds that a job of a project takes.
pub(crate) type Durations = BTreeMap<(JobName, ProjectName), u64>;

/// Guesses by tenant, with the time they were made.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    kept: Mutex<BTreeMap<TenantName, (Timestamp, Arc<Durations>)>>,
}

impl Estimates {
    /// Returns how long the jobs of a tenant take; jobs that never succeeded of late are missing.
    pub(crate) async fn of(
        &self,
        ports: &Ports,
        tenant: &TenantName,
    ) -> Result<Arc<Durations>, Refusal> {
        let now = ports.clock.now();
        if let Some((made_at, kept)) = self.lock().get(tenant)
            && now.since(*made_at) < KEPT_SECONDS * 1_000
        {
            return Ok(kept.clone());
        }
        let guessed = Arc::new(guess(ports, tenant).await?);
        let mut kept = self.lock();
        if kept.len() >= TENANTS_MAX && !kept.contains_key(tenant) {
            kept.pop_first();
        }
        kept.insert(tenant.clone(), (now, guessed.clone()));
        Ok(guessed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TenantName, (Timestamp, Arc<Durations>)>> {
        // Each change is one call, so the map is whole after any panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn guess(ports: &Ports, tenant: &TenantName) -> Result<Durations, Refusal> {
    let mut sums: BTreeMap<(JobName, ProjectName), (u64, u64)> = BTreeMap::new();
    for (order, ended) in builds::newest_ended(ports, tenant, BUILDS_MAX).await? {
        let Some(started_at) = ended.started_at.filter(|_| ended.result.passed()) else {
            continue;
        };
        let (sum, count) = sums.entry((order.job, order.change.key.project)).or_default();
        if *count < SUCCESSES_MAX {
            *sum += ended.ended_at.since(started_at);
            *count += 1;
        }
    }
    Ok(sums.into_iter().map(|(key, (sum, count))| (key, sum / count.max(1))).collect())
}
