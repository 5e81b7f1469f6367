//! Semaphores that a queue's decision may need: which one a name means, their records, and builds
//! that hold on to one.

use crate::aside::{broken, readable};
use crate::load::{Loaded, get_all};
use sluice_config::layout::Layout;
use sluice_gate::semaphore::Holder;
use sluice_gate::{Job, MergeResult, RunSeen, Semaphore, SemaphoreKey, StoredHead, Waiter};
use sluice_model::build::{Phase, Run};
use sluice_model::{BuildId, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, decode_foreign};
use sluice_records::{build, queue, semaphore};
use sluice_runtime::batch::LookError;
use sluice_runtime::quarantine::frozen_key;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Queues in a line that are looked at: whoever is behind them gets no place before they are gone.
const LOOKED_AT_MAX: usize = 8;

/// Semaphores with their records, whose revisions guard what is written.
pub(crate) type Semaphores = BTreeMap<SemaphoreKey, (Record, Semaphore)>;

/// Returns the semaphore that a job of a tenant means by a name, and how many builds may hold it.
pub(crate) fn named(layout: &Layout, tenant: &TenantName, name: &str) -> (SemaphoreKey, u32) {
    let (is_global, max) = layout.semaphore(name);
    (SemaphoreKey { tenant: (!is_global).then(|| tenant.clone()), name: name.to_owned() }, max)
}

/// Reads the semaphores that the queue's builds hold, and those that its jobs name, the ones just
/// frozen too.
pub(crate) async fn load(
    ports: &Ports,
    queue: &QueueKey,
    loaded: &Loaded,
) -> Result<Semaphores, LookError> {
    let tenant = &queue.tenant;
    let frozen =
        loaded.queue.items.values().flat_map(|(_, item)| item.jobs.iter().map(|job| &job.summary));
    let just_frozen = loaded.outcomes.values().flat_map(|outcome| match &outcome.result {
        MergeResult::Merged(merged) => merged.jobs.as_slice(),
        MergeResult::Conflict { .. } | MergeResult::Misconfigured { .. } => &[],
    });
    let used = frozen.chain(just_frozen).flat_map(|job| &job.semaphores);
    let named = used.map(|used| named(&loaded.live.layout, tenant, &used.name).0);
    let listed = loaded.queue.head.iter().flat_map(|head| head.semaphores.iter().cloned());
    let wanted: BTreeSet<SemaphoreKey> = named.chain(listed).collect();
    let keys: Vec<Key> = wanted.iter().map(semaphore::key).collect();
    let mut semaphores = Semaphores::new();
    for (_, record) in get_all(ports, &keys).await? {
        let found: Semaphore = decode(&record).map_err(|bad| broken(queue, &bad))?;
        semaphores.insert(found.key.clone(), (record, found));
    }
    Ok(semaphores)
}

/// Returns which of the queues that stand before the others in line cannot come, so that nothing is
/// kept for them: nothing stands in them any more, or they wait for an operator.
pub(crate) async fn gone(
    ports: &Ports,
    queue: &QueueKey,
    semaphores: &Semaphores,
) -> Result<BTreeSet<QueueKey>, PortError> {
    let first =
        semaphores.values().flat_map(|(_, semaphore)| semaphore.waiting.iter().take(LOOKED_AT_MAX));
    let others: BTreeSet<QueueKey> =
        first.map(Waiter::key).filter(|other| other != queue).collect();
    if others.is_empty() {
        return Ok(others);
    }
    let keys_of = |other: &QueueKey| [queue::head_key(other), frozen_key(&queue::partition(other))];
    let found = get_all(ports, &others.iter().flat_map(keys_of).collect::<Vec<_>>()).await?;
    let is_gone = |other: &QueueKey| {
        let [head, frozen] = keys_of(other);
        // Whose head cannot be read is frozen sooner or later, and that by its own mark.
        let can_come = found.get(&head).is_some_and(|record| {
            decode_foreign::<StoredHead>(record)
                .is_none_or(|head| head.frozen.is_none() && !head.slots.is_empty())
        });
        !can_come || found.contains_key(&frozen)
    };
    Ok(others.into_iter().filter(is_gone).collect())
}

/// Seconds that a build may wait for an executor, all of which are busy, before its semaphore
/// counts as held by somebody idle.
const CLAIM_SECONDS: u64 = 600;

/// Returns which builds hold a semaphore that a build of this queue waits for with its nodes in
/// hand, and are not at work, each with since when: nobody has begun them, or they are paused.
/// Nothing is read where no build waits so.
pub(crate) async fn idle(
    ports: &Ports,
    loaded: &Loaded,
) -> Result<BTreeMap<BuildId, Timestamp>, PortError> {
    let has_nodes = |job: &&Job| {
        let seen = job.build.as_ref().and_then(|build| loaded.runs.get(build));
        job.sent_at.is_none() && matches!(seen, Some(RunSeen::NodesReady))
    };
    let jobs = loaded.queue.items.values().flat_map(|(_, item)| item.jobs.iter());
    let names: BTreeSet<&str> = jobs
        .filter(has_nodes)
        .flat_map(|job| &job.summary.semaphores)
        .map(|used| used.name.as_str())
        .collect();
    let wanted = loaded
        .semaphores
        .values()
        .filter(|(_, semaphore)| names.contains(semaphore.key.name.as_str()));
    let holders: Vec<&Holder> = wanted.flat_map(|(_, semaphore)| &semaphore.holders).collect();
    // A build may hold several of them, and a read names no key twice.
    let keys: BTreeSet<Key> = holders.iter().map(|holder| build::run_key(&holder.build)).collect();
    let found = get_all(ports, &keys.into_iter().collect::<Vec<_>>()).await?;
    let since = |holder: &Holder| match found.get(&build::run_key(&holder.build)) {
        // It may have been sent and wait for an executor, with its nodes: until it is sent again
        // that is nobody's fault.
        None => Some(holder.since.plus_seconds(CLAIM_SECONDS)),
        Some(record) => match decode_foreign::<Run>(record)?.phase {
            Phase::Paused(pause) => Some(pause.since),
            Phase::Running | Phase::Failing | Phase::Ended(_) => None,
        },
    };
    Ok(holders
        .into_iter()
        .filter_map(|holder| Some((holder.build.clone(), since(holder)?)))
        .collect())
}

/// Finds what became of builds of this queue that hold a semaphore and are not wanted any more:
/// their runs are added to `running`; returned are those that were told to stop before anybody
/// claimed them, which nobody can do after that.
pub(crate) async fn leaving(
    ports: &Ports,
    queue: &QueueKey,
    semaphores: &Semaphores,
    running: &mut Vec<Run>,
) -> Result<Vec<BuildId>, LookError> {
    let holders = semaphores.values().flat_map(|(_, semaphore)| &semaphore.holders);
    let is_known = |build: &BuildId, running: &[Run]| running.iter().any(|run| run.build == *build);
    let leaving: BTreeSet<&BuildId> = holders
        .filter(|holder| {
            holder.queue == *queue && holder.leaving && !is_known(&holder.build, running)
        })
        .map(|holder| &holder.build)
        .collect();
    let keys: Vec<Key> =
        leaving.iter().flat_map(|build| [build::run_key(build), build::stop_key(build)]).collect();
    let found = get_all(ports, &keys).await?;
    let mut never_begun = Vec::new();
    for build in leaving {
        match found.get(&build::run_key(build)) {
            Some(record) => match readable(ports, record).await? {
                Ok(run) => running.push(run),
                // It was told to stop, and nobody can tell any more how it ends.
                Err(_) => never_begun.push(build.clone()),
            },
            None if found.contains_key(&build::stop_key(build)) => never_begun.push(build.clone()),
            None => {}
        }
    }
    Ok(never_begun)
}
