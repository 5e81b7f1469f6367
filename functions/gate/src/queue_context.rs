//! A queue cell with the records that its decisions depend on.

use crate::branch_locks::BranchLocks;
use crate::host_queues::OwnQueues;
use crate::sessions::ExecutorWatch;
use sluice_gate::plan::ObservedBuild;
use sluice_gate::{Landing, MergeOutcome, ProvidedArtifacts, ReportState, Semaphore, SemaphoreKey};
use sluice_model::change::ChangeRef;
use sluice_model::{BuildId, ItemId, QueueKey, Timestamp};
use sluice_records::layout::LiveLayout;
use sluice_records::queue;
use sluice_runtime::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Semaphores with their records, whose revisions guard the writes.
pub(crate) type Semaphores = BTreeMap<SemaphoreKey, (Record, Semaphore)>;

/// A queue cell with everything that a decision about it reads.
pub(crate) struct QueueContext {
    /// The tenant's live layout.
    pub(crate) live: LiveLayout,
    /// The queue's cell.
    pub(crate) queue: queue::LoadedQueue,
    /// The merger's outcomes that items wait for, by item.
    pub(crate) outcomes: BTreeMap<ItemId, MergeOutcome>,
    /// The observed state of the builds that the queue waits for. A build that has ended is among
    /// them until a plan applies its end. A build of which nothing is known yet is not.
    pub(crate) runs: BTreeMap<BuildId, ObservedBuild>,
    /// The landings of items that are being merged.
    pub(crate) landings: BTreeMap<ItemId, Landing>,
    /// The records of these landings, whose revisions guard a withdrawal.
    pub(crate) landing_records: BTreeMap<ItemId, Record>,
    /// The state of the reports that last jobs wait for, by item.
    pub(crate) reports: BTreeMap<ItemId, ReportState>,
    /// The artifacts that changes of other queues provide to items of this one.
    pub(crate) provided: BTreeMap<ChangeRef, ProvidedArtifacts>,
    /// The semaphores that its builds hold or its jobs may take.
    pub(crate) semaphores: Semaphores,
    /// Waiting queues that cannot take a semaphore now: they have no head, are empty or are halted.
    pub(crate) blocked_queues: BTreeSet<QueueKey>,
    /// Builds that hold a semaphore while they are not working, where a build of this queue waits
    /// for it with its nodes; with the time from which they count as idle, which may be in the
    /// future.
    pub(crate) idle_holders: BTreeMap<BuildId, Timestamp>,
    /// The locks of the branches that its next landings need.
    pub(crate) branch_locks: BranchLocks,
    /// The own queues of changes that this queue hosts or may host.
    pub(crate) own_queues: OwnQueues,
    /// When executors were last known to be alive.
    pub(crate) watch: ExecutorWatch,
    /// When a suspicion about an executor has to be checked again; `None` without one.
    pub(crate) recheck_at: Option<Timestamp>,
}

impl QueueContext {
    /// Creates the context of a cell without any further records.
    pub(crate) fn new(live: LiveLayout, queue: queue::LoadedQueue, watch: ExecutorWatch) -> Self {
        let (outcomes, runs, landings, landing_records, reports) = Default::default();
        let (provided, semaphores, blocked_queues, idle_holders, locks, own_queues) =
            Default::default();
        Self {
            live,
            queue,
            outcomes,
            runs,
            landings,
            landing_records,
            reports,
            provided,
            semaphores,
            blocked_queues,
            idle_holders,
            branch_locks: locks,
            own_queues,
            watch,
            recheck_at: None,
        }
    }

    /// Returns the part that is cached for the next reconcile.
    pub(crate) fn into_cached(self) -> CachedCell {
        CachedCell { layout: self.live.number(), queue: self.queue, watch: self.watch }
    }
}

/// A cell in the cache of a gate instance.
pub(crate) struct CachedCell {
    /// The queue's cell.
    pub(crate) queue: queue::LoadedQueue,
    /// The number of the layout of the last decision; the next one may use another.
    pub(crate) layout: u64,
    /// When executors were last known to be alive.
    pub(crate) watch: ExecutorWatch,
}
