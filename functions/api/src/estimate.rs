//! Estimates how long jobs take, from recent successful builds. Cached for a minute, because the
//! page polls every two seconds.

use crate::builds;
use crate::reply::ErrorResponse;
use sluice_model::{JobName, ProjectName, TenantName, Timestamp};
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of recent builds that an estimate is based on.
const BUILDS_MAX: usize = 200;
/// The maximum number of successful builds of one job that are averaged.
const SUCCESSES_MAX: u64 = 10;
/// Seconds for which an estimate is cached.
const CACHED_SECONDS: u64 = 60;
/// The maximum number of tenants with cached estimates.
const TENANTS_MAX: usize = 64;

/// The estimated duration of each job of a project, in milliseconds.
pub(crate) type Durations = BTreeMap<(JobName, ProjectName), u64>;

/// The cached estimates of each tenant, with the time they were made.
#[derive(Debug, Default)]
pub(crate) struct DurationEstimates {
    /// For each tenant, when its estimates were made, and the estimates.
    cache: Mutex<BTreeMap<TenantName, (Timestamp, Arc<Durations>)>>,
}

impl DurationEstimates {
    /// Returns the estimated durations of a tenant's jobs in milliseconds, by job and the project
    /// of its changes, from the cache if they are less than a minute old; otherwise reads and
    /// caches them. Jobs without a recent success are missing.
    pub(crate) async fn of(
        &self,
        ports: &Ports,
        tenant: &TenantName,
    ) -> Result<Arc<Durations>, ErrorResponse> {
        let now = ports.clock.now();
        if let Some((made_at, cached)) = self.lock().get(tenant)
            && now.since(*made_at) < CACHED_SECONDS * 1_000
        {
            return Ok(cached.clone());
        }
        let estimates = Arc::new(estimate_durations(ports, tenant).await?);
        let mut cache = self.lock();
        if cache.len() >= TENANTS_MAX && !cache.contains_key(tenant) {
            cache.pop_first();
        }
        cache.insert(tenant.clone(), (now, estimates.clone()));
        Ok(estimates)
    }

    /// Locks the cache of estimates.
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TenantName, (Timestamp, Arc<Durations>)>> {
        // Each update is a single call, so the map is consistent even after a panic.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns, for each job and the project of its changes, the average duration in milliseconds of
/// the newest successful builds: at most [`SUCCESSES_MAX`] of each pair, among the newest
/// [`BUILDS_MAX`] builds of the tenant. Pairs without one are missing.
async fn estimate_durations(
    ports: &Ports,
    tenant: &TenantName,
) -> Result<Durations, ErrorResponse> {
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
