//! The semaphores that a decision about a queue may need: their keys, their records, and builds
//! that keep holding one.

use crate::queue_context::{QueueContext, Semaphores};
use crate::unreadable_records::{decode_or_quarantine, unreadable_cell};
use sluice_config::layout::Layout;
use sluice_gate::semaphore::SemaphoreHolder;
use sluice_gate::{
    Job, MergeResult, ObservedBuild, Semaphore, SemaphoreKey, SemaphoreWaiter, StoredHead,
};
use sluice_model::build::{Phase, Run};
use sluice_model::{BuildId, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, decode_or_log, get_all};
use sluice_records::{build, queue, semaphore};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::quarantine::halt_key;
use sluice_runtime::record::Key;
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// The most waiting queues per semaphore whose state is read. Later ones get no unit before these
/// have left the list.
const LOOKED_AT_MAX: usize = 8;

/// Returns the key of the semaphore that a tenant's job names, and the number of builds that may
/// hold it.
pub(crate) fn named(layout: &Layout, tenant: &TenantName, name: &str) -> (SemaphoreKey, u32) {
    let (is_global, max) = layout.semaphore(name);
    (SemaphoreKey { tenant: (!is_global).then(|| tenant.clone()), name: name.to_owned() }, max)
}

/// Reads the semaphores that the head lists, held or waited for, and those that the queue's jobs
/// name, including just frozen jobs, for which `loaded` must hold the merge outcomes already. A
/// semaphore without a record is left out. An unreadable record is an error that halts the queue
/// after a few deliveries.
pub(crate) async fn load(
    ports: &Ports,
    queue: &QueueKey,
    loaded: &QueueContext,
) -> Result<Semaphores, ReconcileError> {
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
        let found: Semaphore = decode(&record).map_err(|bad| unreadable_cell(queue, &bad))?;
        semaphores.insert(found.key.clone(), (record, found));
    }
    Ok(semaphores)
}

/// Returns which of the first [`LOOKED_AT_MAX`] waiting queues of each semaphore, other than this
/// queue, cannot take it now, because they have no head, are empty or are halted. No unit is
/// reserved for these. A queue whose head cannot be read is not among them.
pub(crate) async fn blocked_waiters(
    ports: &Ports,
    queue: &QueueKey,
    semaphores: &Semaphores,
) -> Result<BTreeSet<QueueKey>, PortError> {
    let first =
        semaphores.values().flat_map(|(_, semaphore)| semaphore.waiting.iter().take(LOOKED_AT_MAX));
    let others: BTreeSet<QueueKey> =
        first.map(SemaphoreWaiter::key).filter(|other| other != queue).collect();
    if others.is_empty() {
        return Ok(others);
    }
    let keys_of = |other: &QueueKey| [queue::head_key(other), halt_key(&queue::partition(other))];
    let found = get_all(ports, &others.iter().flat_map(keys_of).collect::<Vec<_>>()).await?;
    let is_gone = |other: &QueueKey| {
        let [head, frozen] = keys_of(other);
        // A queue whose head cannot be read is halted soon, which has a record of its own.
        let can_come = found.get(&head).is_some_and(|record| {
            decode_or_log::<StoredHead>(record)
                .is_none_or(|head| head.halted.is_none() && !head.entries.is_empty())
        });
        !can_come || found.contains_key(&frozen)
    };
    Ok(others.into_iter().filter(is_gone).collect())
}

/// Seconds that a build may wait for a busy executor before it counts as an idle holder.
const CLAIM_SECONDS: u64 = 600;

/// Returns the idle builds that hold a semaphore for which a build of this queue waits with its
/// nodes, and from when they count as idle. `loaded` must hold the semaphores and the state of the
/// node requests already. An unclaimed build counts from [`CLAIM_SECONDS`] after it took the
/// semaphore, which may be in the future; a paused one from its pause. Working, ended and
/// unreadable builds are left out. Reads nothing where no build waits like this.
pub(crate) async fn idle_holders(
    ports: &Ports,
    loaded: &QueueContext,
) -> Result<BTreeMap<BuildId, Timestamp>, PortError> {
    let has_nodes = |job: &&Job| {
        let seen = job.build.as_ref().and_then(|build| loaded.runs.get(build));
        job.sent_at.is_none() && matches!(seen, Some(ObservedBuild::NodesReady))
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
    let holders: Vec<&SemaphoreHolder> =
        wanted.flat_map(|(_, semaphore)| &semaphore.holders).collect();
    // A build may hold several semaphores, and a read must not repeat a key.
    let keys: BTreeSet<Key> = holders.iter().map(|holder| build::run_key(&holder.build)).collect();
    let found = get_all(ports, &keys.into_iter().collect::<Vec<_>>()).await?;
    let since = |holder: &SemaphoreHolder| match found.get(&build::run_key(&holder.build)) {
        // It may be waiting for an executor, which is not its fault until it is sent again.
        None => Some(holder.since.plus_seconds(CLAIM_SECONDS)),
        Some(record) => match decode_or_log::<Run>(record)?.phase {
            Phase::Paused(pause) => Some(pause.since),
            Phase::Running | Phase::Failing | Phase::Ended(_) => None,
        },
    };
    Ok(holders
        .into_iter()
        .filter_map(|holder| Some((holder.build.clone(), since(holder)?)))
        .collect())
}

/// Reads the runs of this queue's cancelled builds that still hold a semaphore and appends them to
/// `running`, unless they are there already. Returns the builds that were cancelled before an
/// executor claimed them; no executor can claim them later. A build whose run cannot be read is
/// returned, too.
pub(crate) async fn cancelled_holders(
    ports: &Ports,
    queue: &QueueKey,
    semaphores: &Semaphores,
    running: &mut Vec<Run>,
) -> Result<Vec<BuildId>, ReconcileError> {
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
            Some(record) => match decode_or_quarantine(ports, record).await? {
                Ok(run) => running.push(run),
                // It was cancelled, and its result cannot be read.
                Err(_) => never_begun.push(build.clone()),
            },
            None if found.contains_key(&build::stop_key(build)) => never_begun.push(build.clone()),
            None => {}
        }
    }
    Ok(never_begun)
}
