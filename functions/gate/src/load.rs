//! Reads everything that a decision about a queue may need: one query for the cell and one read by
//! keys for the answers that it waits for.
//!
//! A gate instance caches the cells that it read or wrote. Every write to a queue's items
//! increments the head's revision, so while the stored head is the cached one, so are the items: an
//! answer then costs one read by keys and no query. Of a long queue, only the items written since
//! are read, which the head names.

use crate::branch_locks;
use crate::host_queues::{self, OwnQueues};
use crate::lost_builds;
use crate::provided;
use crate::queue_context::{CachedCell, QueueContext};
use crate::semaphores;
use crate::sessions::{self, ExecutorWatch};
use crate::unreadable_records::{decode_or_quarantine, quarantine_record, unreadable_cell};
use sluice_config::layout::Layout;
use sluice_config::pipeline::Manager;
use sluice_gate::landing::lands_in;
use sluice_gate::plan::ObservedBuild;
use sluice_gate::{
    Head, Item, MergeOutcome, MergeResult, MergeStatus, Report, ReportState, SlotStatus,
};
use sluice_model::build::{RequestRef, Run};
use sluice_model::git::BranchKey;
use sluice_model::{BuildId, ItemId, QueueKey, Timestamp};
use sluice_pool::{NodeRequest, ReadyRecipient, RequestRow, RequestState};
use sluice_records::codec::{decode, get_all};
use sluice_records::layout::{Layouts, LiveLayout};
use sluice_records::{
    branch_lock, build, landing, merge_outcome, provider, queue, report, session, tenant,
};
use sluice_runtime::Ports;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::quarantine::halt_key;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// The number of items from which on only items written since are read, not all.
const LONG_ITEMS: usize = 20;

/// Milliseconds for which a tenant's head may be used for an idle queue after it was read.
const TENANT_MILLIS: u64 = 10_000;

/// Reads the records of one queue.
pub(crate) struct Reader<'a> {
    /// The store, clock and other ports.
    pub(crate) ports: &'a Ports,
    /// The layouts that were read.
    pub(crate) layouts: &'a Layouts,
    /// The queue that is read.
    pub(crate) key: &'a QueueKey,
    /// The name of the gate instance whose clock is used.
    pub(crate) name: &'a str,
}

impl Reader<'_> {
    /// Reads the whole cell, or only what is new where a long one is cached, with the answers. The
    /// state of executors may come from the cache.
    pub(crate) async fn whole(
        &self,
        cached: Option<CachedCell>,
    ) -> Result<QueueContext, ReconcileError> {
        match cached {
            Some(cached) if cached.queue.items.len() >= LONG_ITEMS => {
                self.changed_records(cached).await
            }
            Some(cached) => self.all_records(cached.watch).await,
            None => self.all_records(ExecutorWatch::default()).await,
        }
    }

    /// Reads the whole cell by a query, and the answers. For an idle queue with a recently read
    /// layout, that layout is used, and besides the cell only the own queues of the changes that
    /// its messages are about are read. `watch` is what was known of the executors before.
    async fn all_records(&self, watch: ExecutorWatch) -> Result<QueueContext, ReconcileError> {
        let queue = queue::load(self.ports, self.key).await?;
        if let Some(live) = self.recent_layout(&queue) {
            let mut loaded = QueueContext::new(live, queue, watch);
            loaded.own_queues = self.load_own_queues(&loaded).await?;
            return Ok(loaded);
        }
        let guess = self.layouts.last_read(&self.key.tenant).map(|live| live.number());
        let guess = guess.or(queue.head.as_ref().map(|head| head.layout)).unwrap_or_default();
        let found = self.read_answers(&queue, guess, &watch, Vec::new()).await?;
        self.complete(queue, watch, found).await
    }

    /// Reads the answers, the inbox and the items written since the cell was cached. Reads the
    /// whole cell where it is halted, has no head or cannot be refreshed.
    async fn changed_records(&self, cached: CachedCell) -> Result<QueueContext, ReconcileError> {
        let CachedCell { queue, layout, watch } = cached;
        let (head, frozen) = (queue::head_key(self.key), halt_key(&queue::partition(self.key)));
        let mut found =
            self.read_answers(&queue, layout, &watch, vec![head.clone(), frozen.clone()]).await?;
        if found.records.contains_key(&frozen) {
            return self.all_records(watch).await;
        }
        let Some(head) = found.records.remove(&head) else { return self.all_records(watch).await };
        if !queue.is_at(&head) {
            found.wanted = None;
        }
        match queue::refresh(self.ports, self.key, queue, head).await? {
            Some(queue) => self.complete(queue, watch, found).await,
            None => self.all_records(watch).await,
        }
    }

    /// Reads the answers alone, by keys, where the cached cell is still current and not halted; the
    /// inbox is then the cached one, since new messages come with wakeups of their own. Otherwise
    /// reads as [`Self::whole`].
    pub(crate) async fn answers(&self, cached: CachedCell) -> Result<QueueContext, ReconcileError> {
        let (head, frozen) = (queue::head_key(self.key), halt_key(&queue::partition(self.key)));
        let found = self
            .read_answers(
                &cached.queue,
                cached.layout,
                &cached.watch,
                vec![head.clone(), frozen.clone()],
            )
            .await?;
        let is_same = found.records.get(&head).is_some_and(|head| cached.queue.is_at(head));
        if !is_same || found.records.contains_key(&frozen) {
            return self.whole(Some(cached)).await;
        }
        self.complete(cached.queue, cached.watch, found).await
    }

    /// Returns the recently read layout for an idle queue, or `None` where the layout has to be
    /// read: the queue is not idle, an operator holds the tenant's events, the layout is too old or
    /// older than the one that a message was routed by, or a message does not name the layout it
    /// was routed by. New changes are only admitted and their states requested under it. If a newer
    /// layout is live, the next reconcile requests the states again, as after any new layout.
    fn recent_layout(&self, queue: &queue::LoadedQueue) -> Option<LiveLayout> {
        let is_idle = queue.items.is_empty()
            && queue
                .head
                .as_ref()
                .is_none_or(|head| head.entries.is_empty() && head.semaphores.is_empty());
        // Paused events are always read again, so that a resume takes effect at once.
        let live = self
            .layouts
            .last_read(&self.key.tenant)
            .filter(|live| is_idle && !live.tenant.events.is_active())?;
        let knows = |layout: u64| layout > 0 && layout <= live.number();
        let is_fresh = self.ports.clock.now().since(live.read_at) < TENANT_MILLIS;
        (is_fresh && queue.inbox.iter().all(|message| knows(message.layout))).then_some(live)
    }

    /// Reads the own queues of changes that this queue hosts or may host.
    async fn load_own_queues(&self, loaded: &QueueContext) -> Result<OwnQueues, ReconcileError> {
        let pipeline = loaded.live.layout.pipeline(self.key.pipeline.as_str());
        host_queues::load(self.ports, self.key, &loaded.queue, pipeline).await
    }

    /// Reads, by keys, the tenant's head, the answers that a queue waits for under the layout with
    /// the number `layout`, the sessions that are due, and `more`. The branch locks are among the
    /// answers only if the queue is known to merge by its head alone.
    async fn read_answers(
        &self,
        queue: &queue::LoadedQueue,
        layout: u64,
        watch: &ExecutorWatch,
        more: Vec<Key>,
    ) -> Result<ReadAnswers, ReconcileError> {
        let at = self.ports.clock.now();
        let mut keys = vec![tenant::key(&self.key.tenant)];
        keys.extend(more);
        let lands = lands(queue, None);
        let wanted = awaited_answers(queue, layout, lands);
        keys.extend(wanted.keys().cloned());
        keys.extend(watch.keys_due(at));
        let records = get_all(self.ports, &keys).await?;
        Ok(ReadAnswers { records, asked: keys, at, wanted: Some(((layout, lands), wanted)) })
    }

    /// Combines the records that were read into a context. Reads further records where the layout
    /// or the head differs from the expected one, where sessions are missing, and those that the
    /// answers lead to. Lists unreadable records in the quarantine and stores new suspicions about
    /// executors. Fails where the tenant has no layout, and where a landing, a lock, a semaphore or
    /// provided artifacts cannot be read. Other unreadable answers count as failed ones.
    async fn complete(
        &self,
        queue: queue::LoadedQueue,
        mut watch: ExecutorWatch,
        mut found: ReadAnswers,
    ) -> Result<QueueContext, ReconcileError> {
        let name = &self.key.tenant;
        let record = found.records.remove(&tenant::key(name));
        let live = self.layouts.open_live(self.ports, name, record, found.at).await?;
        let live =
            live.ok_or_else(|| ReconcileError::Retry(format!("tenant {name} has no layout yet")))?;
        let by = (live.number(), lands(&queue, Some((&live.layout, self.key))));
        let wanted = match found.wanted.take() {
            // The keys of a long queue are not computed twice.
            Some((asked_by, asked)) if asked_by == by => asked,
            _ => {
                let wanted = awaited_answers(&queue, by.0, by.1);
                let asked: BTreeSet<&Key> = found.asked.iter().collect();
                let keys: Vec<Key> =
                    wanted.keys().filter(|key| !asked.contains(key)).cloned().collect();
                if !keys.is_empty() {
                    found.records.extend(get_all(self.ports, &keys).await?);
                }
                wanted
            }
        };
        let mut loaded = QueueContext::new(live, queue, ExecutorWatch::default());
        let mut running: Vec<Run> = Vec::new();
        for (key, wanted) in wanted {
            let Some(record) = found.records.get(&key) else { continue };
            match wanted {
                Answer::Outcome(item) => {
                    let outcome = match decode_or_quarantine(self.ports, record).await? {
                        Ok(outcome) => outcome,
                        Err(why) => unmergeable(&loaded.queue, &item, loaded.live.number(), why)?,
                    };
                    loaded.outcomes.insert(item, outcome);
                }
                Answer::Landing(item) => {
                    // Whether a change is merged must not be guessed: an operator has to repair the
                    // record.
                    let landing = decode(record).map_err(|bad| unreadable_cell(self.key, &bad))?;
                    loaded.landing_records.insert(item.clone(), record.clone());
                    loaded.landings.insert(item, landing);
                }
                Answer::Report(item) => {
                    let state = match decode_or_quarantine::<Report>(self.ports, record).await? {
                        Ok(report) => report.state,
                        Err(why) => ReportState::Refused { why, at: found.at },
                    };
                    loaded.reports.insert(item, state);
                }
                Answer::BranchLock(branch) => {
                    branch_locks::insert(&mut loaded.branch_locks, self.key, branch, record)?
                }
                Answer::Run(build) => match decode_or_quarantine(self.ports, record).await? {
                    Ok(run) => running.push(run),
                    Err(why) => {
                        loaded.runs.insert(build, ObservedBuild::Lost { why });
                    }
                },
                Answer::Request(build) => {
                    let seen = match decode_or_quarantine::<NodeRequest>(self.ports, record).await?
                    {
                        Ok(request) => match request.state {
                            RequestState::Failed { reason } => Some(ObservedBuild::NoNodes(reason)),
                            RequestState::Fulfilled(_)
                                if request.ready_recipient == ReadyRecipient::Queue =>
                            {
                                Some(ObservedBuild::NodesReady)
                            }
                            _ => None,
                        },
                        Err(why) => Some(ObservedBuild::NoNodes(why)),
                    };
                    // Its run's state is newer.
                    if let Some(seen) = seen {
                        loaded.runs.entry(build).or_insert(seen);
                    }
                }
            }
        }
        branch_locks::find_abandoned(self.ports, self.key, &mut loaded.branch_locks).await?;
        loaded.own_queues = self.load_own_queues(&loaded).await?;
        loaded.provided = provided::load(self.ports, self.key, &loaded).await?;
        loaded.semaphores = semaphores::load(self.ports, self.key, &loaded).await?;
        loaded.blocked_queues =
            semaphores::blocked_waiters(self.ports, self.key, &loaded.semaphores).await?;
        loaded.idle_holders = semaphores::idle_holders(self.ports, &loaded).await?;
        for build in
            semaphores::cancelled_holders(self.ports, self.key, &loaded.semaphores, &mut running)
                .await?
        {
            loaded.runs.insert(build, ObservedBuild::NeverClaimed);
        }
        let asked = watch.track(&running, found.at);
        let due = asked.iter().flat_map(sessions::keys);
        let missing = due.filter(|key| !found.records.contains_key(key));
        found.records.extend(get_all(self.ports, &missing.collect::<Vec<_>>()).await?);
        let mut judged =
            watch.assess(self.name, running, &asked, &found.records, self.ports.clock.now());
        lost_builds::end_lost_runs(self.ports, &loaded.queue, &found.records, &mut judged.runs)
            .await?;
        for bad in &judged.unreadable {
            quarantine_record(self.ports, bad).await?;
        }
        for (id, doubt) in &judged.doubts {
            tracing::warn!(session = %id, "an executor may be dead: its session has expired");
            let write = session::put_suspected_expiry(id, doubt)?;
            self.ports.records.commit(vec![write], &self.ports.entropy.token()).await?;
        }
        loaded.runs.extend(judged.runs);
        (loaded.watch, loaded.recheck_at) = (watch, judged.look_at);
        Ok(loaded)
    }
}

/// Returns a conflict, with the reason `detail`, as the outcome of an item whose own outcome cannot
/// be read: that is written once and never again. Fails where the item is not in its queue.
fn unmergeable(
    queue: &queue::LoadedQueue,
    item: &ItemId,
    layout: u64,
    detail: String,
) -> Result<MergeOutcome, ReconcileError> {
    let Some((_, of)) = queue.items.get(item) else {
        return Err(ReconcileError::Retry(format!("{item} is not in its queue: {detail}")));
    };
    let result = MergeResult::Conflict { change: of.candidate.change.clone(), detail };
    Ok(MergeOutcome { item: item.clone(), generation: of.generation, layout, result })
}

/// The records that were read for a queue, and what they were read for.
struct ReadAnswers {
    /// The records that were found.
    records: BTreeMap<Key, Record>,
    /// The keys that were read, with or without a record.
    asked: Vec<Key>,
    /// When the read started.
    at: Timestamp,
    /// The answers that the queue waits for, with the layout's number and whether the queue merges
    /// changes; `None` where the queue has changed since.
    wanted: Option<((u64, bool), BTreeMap<Key, Answer>)>,
}

/// A record that a queue waits for, by what it is about.
enum Answer {
    /// The merger's outcome for this item.
    Outcome(ItemId),
    /// The landing of this item.
    Landing(ItemId),
    /// The report that this item's last jobs wait for.
    Report(ItemId),
    /// The lock of this branch.
    BranchLock(BranchKey),
    /// The run of this build.
    Run(BuildId),
    /// The node request of this build.
    Request(BuildId),
}

/// Returns whether a queue may merge changes: it is dependent, it is merging one, or its pipeline
/// merges. The last is unknown, and ignored, if `live` is `None`. `false` without a head.
fn lands(queue: &queue::LoadedQueue, live: Option<(&Layout, &QueueKey)>) -> bool {
    let Some(head) = &queue.head else { return false };
    let is_dependent = head.manager == Manager::Dependent;
    let pipeline = live.and_then(|(layout, key)| layout.pipeline(key.pipeline.as_str()));
    is_dependent
        || head.slots().any(|slot| slot.status.is_landing())
        || pipeline.is_some_and(lands_in)
}

/// Returns the keys of the answers that a queue waits for under the layout with the number
/// `layout`: merge outcomes of that layout, landings, reports, runs and node requests. The branch
/// locks are among them only if it `lands`, that is, may merge changes.
fn awaited_answers(queue: &queue::LoadedQueue, layout: u64, lands: bool) -> BTreeMap<Key, Answer> {
    let mut wanted = BTreeMap::new();
    if lands {
        wanted.extend(
            branch_locks::needed(queue)
                .into_iter()
                .map(|branch| (branch_lock::key(&branch), Answer::BranchLock(branch))),
        );
    }
    let landing_slots =
        queue.head.iter().flat_map(Head::slots).filter(|slot| slot.status == SlotStatus::Landing);
    for slot in landing_slots {
        wanted.insert(landing::key(&slot.id, slot.generation), Answer::Landing(slot.id.clone()));
    }
    for (_, item) in queue.items.values() {
        if matches!(item.merge_status, MergeStatus::Requested { .. }) {
            wanted.insert(
                merge_outcome::key(&item.id, item.generation, layout),
                Answer::Outcome(item.id.clone()),
            );
        }
        if let Some(awaited) =
            item.reporting.as_ref().and_then(|reporting| reporting.awaits.as_ref())
        {
            wanted.insert(report::key(awaited), Answer::Report(item.id.clone()));
        }
        add_answers_of_jobs(item, &mut wanted);
    }
    wanted
}

/// Adds the runs and node requests of an item's builds that are under way.
fn add_answers_of_jobs(item: &Item, wanted: &mut BTreeMap<Key, Answer>) {
    for job in item.jobs.iter().filter(|job| job.is_under_way()) {
        let Some(build) = &job.build else { continue };
        wanted.insert(build::run_key(build), Answer::Run(build.clone()));
        if let Some(RequestRef { provider, row }) = &job.request {
            wanted.insert(
                provider::request_key(provider, &RequestRow(row.clone())),
                Answer::Request(build.clone()),
            );
        }
    }
}
