//! The decision about one queue. [`plan`] takes a snapshot of the whole queue cell and returns a
//! [`QueuePlan`] with its reasons.
//!
//! The steps, in order:
//!
//! 1. Record the results of merger and executors ([`observe`]).
//! 2. Apply operators' commands ([`commands`]) and consume the other inbox messages ([`admit`],
//!    [`enqueue`]).
//! 3. Put every entry behind the nearest predecessor that may still pass ([`align`]).
//! 4. Order and follow landings, and report and remove entries that are complete ([`finish`],
//!    [`landings`], [`reporter_jobs`]).
//! 5. Request what is missing: tested states, builds, nodes ([`advance`]).

mod admit;
mod advance;
mod align;
mod artifacts;
mod branch_locks;
mod bundles;
mod commands;
mod enqueue;
mod finish;
mod forward;
mod hosting;
mod job_graph;
mod landings;
mod limits;
mod observe;
mod pending_messages;
mod reporter_jobs;
mod semaphores;
mod shared_builds;
#[cfg(test)]
mod tests;

pub use bundles::BUNDLE_MAX;
pub use hosting::{Residency, mentioned_changes, release_request};
pub use limits::ChangesLimit;
pub use shared_builds::may_share_build;

use crate::branch_lock::{BranchLock, BranchLockView};
use crate::health::Health;
use crate::inbox::InboxMessage;
use crate::item::{Item, MergeStatus};
use crate::items::Items;
use crate::landing::Landing;
use crate::merge::MergeOutcome;
use crate::provided::ProvidedArtifacts;
use crate::queue::Head;
use crate::report::{Report, ReportState};
use crate::semaphore::{Semaphore, SemaphoreKey, WaitingSince};
use finish::Progress;
use observe::DecidedBy;
use semaphores::WaitingJob;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::build::{BuildResult, RequestRef, RunEnd};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::{BranchKey, MergeMode, Oid};
use sluice_model::{
    BuildId, InboxMessageId, ItemId, JobName, LabelName, PipelineName, ProviderName, QueueKey,
    QueueName, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// Records that one plan may write besides the head. A DynamoDB transaction holds 100.
pub const RECORDS_MAX: usize = 90;

/// Seconds after which a queue with pending work is reconciled even without a wakeup.
pub const RECONCILE_SECONDS: u64 = 30;

/// Everything that [`plan`] may read to decide about one queue.
pub struct QueueSnapshot<'a> {
    /// The queue's head: its entries in order and their speculative states.
    pub head: Head,
    /// The records of the queue's items.
    pub items: Items,
    /// Inbox messages that were not consumed yet, oldest first.
    pub inbox: Vec<InboxMessage>,
    /// The merger's results for requested merges.
    pub merge_outcomes: BTreeMap<ItemId, MergeOutcome>,
    /// The observed states of builds that are under way.
    pub observed_builds: BTreeMap<BuildId, ObservedBuild>,
    /// The records of landings that this queue ordered.
    pub landings: BTreeMap<ItemId, Landing>,
    /// The states of reports that reporter jobs wait for ([`crate::item::Reporting`]).
    pub reports: BTreeMap<ItemId, ReportState>,
    /// The artifacts provided by changes of other queues that items here depend on, as far as
    /// known.
    pub provided: BTreeMap<ChangeRef, ProvidedArtifacts>,
    /// For each change hosted here or mentioned in the inbox: the state of its own queue. Only for
    /// changes whose own queue is not this one.
    pub residencies: BTreeMap<ChangeKey, Residency>,
    /// The pipeline by the live layout; `None` if the live layout has no such pipeline.
    pub pipeline: Option<&'a Pipeline>,
    /// The records of semaphores that the head lists or that waiting jobs name, if they exist.
    pub semaphores: BTreeMap<SemaphoreKey, Semaphore>,
    /// The branch locks that the next landings need, if a record of them exists.
    pub branch_locks: BTreeMap<BranchKey, BranchLockView>,
    /// Queues that wait for a semaphore but cannot take it: they are empty or halted.
    pub absent_queues: BTreeSet<QueueKey>,
    /// Idle semaphore holders that block a build which already has nodes, with the time since when.
    /// A build is idle while no executor has claimed it or while it is paused.
    pub idle_holders: BTreeMap<BuildId, Timestamp>,
    /// Resolves a semaphore name of a job to its key and the number of holders allowed.
    pub resolve_semaphore: &'a dyn Fn(&str) -> (SemaphoreKey, u32),
    /// Returns the queue of a pipeline that a change belongs to by the live layout; `None` if the
    /// layout has no such pipeline.
    pub queue_of: &'a dyn Fn(&PipelineName, &ChangeRef) -> Option<QueueKey>,
    /// Returns how changes of a branch are merged.
    pub merge_mode: &'a dyn Fn(&BranchKey) -> MergeMode,
    /// Returns the provider that serves a set of labels; `None` if no provider does.
    pub provider_for: &'a dyn Fn(&[LabelName]) -> Option<ProviderName>,
    /// The limit on changes in the pipeline; `None` for no limit.
    pub changes_limit: Option<ChangesLimit>,
    /// The pipeline's count of consecutive failures, if it is disabled after too many.
    pub health: Option<Health>,
    /// What operators have paused or discarded in this tenant.
    pub hold: TenantHold,
    /// Zuul events that some pipeline of this tenant triggers on.
    pub triggering_events: Vec<ZuulEvent>,
    /// The tenant's layout numbers.
    pub layout: LayoutNumbers,
    /// URL prefix of an item's status page; the item's id is appended.
    pub item_url_prefix: String,
}

/// A tenant's layout numbers. While they differ, no change is enqueued and none is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutNumbers {
    /// The number of the requested layout. Each landing that changes configuration increases it.
    pub wanted: u64,
    /// The number of the layout that jobs are frozen under.
    pub live: u64,
}

/// What operators pause or discard in a tenant (Zuul's tenant state).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantHold {
    /// Drop enqueue messages, except those of an operator.
    pub discard_triggers: bool,
    /// Leave messages in the inbox, except operators' commands.
    pub pause_triggers: bool,
    /// Do not process results of merger and executors.
    pub pause_results: bool,
}

/// What is known about a build that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedBuild {
    /// No provider can deliver its nodes, for this reason.
    NoNodes(String),
    /// Its nodes are ready; the queue has to send it to the executors.
    NodesReady,
    /// An executor runs it.
    Running {
        /// When the executor claimed it.
        started_at: Option<Timestamp>,
        /// Whether it is already known that it will fail.
        pre_fail: bool,
    },
    /// Its executor keeps it paused until the dependent jobs are over.
    Paused {
        /// When the executor claimed it.
        started_at: Option<Timestamp>,
        /// The data that it has returned so far.
        data: Map<String, Value>,
    },
    /// It ended.
    Ended(RunEnd),
    /// It was stopped before an executor claimed it, and no executor will.
    NeverClaimed,
    /// Its executor is gone.
    Lost {
        /// How the executor was lost.
        why: String,
    },
}

/// The decisions about one queue: what to write, which messages to send, whom to wake. Carrying it
/// out involves no further decision.
#[derive(Debug, Default)]
pub struct QueuePlan {
    /// The decisions and their reasons, for the log.
    pub reasons: Vec<String>,
    /// The new head; `None` if it does not change.
    pub head: Option<Head>,
    /// Items to write.
    pub items: BTreeMap<ItemId, Item>,
    /// Items that leave the queue.
    pub removed: Vec<RemovedItem>,
    /// Items that succeeded and stay for their reporter jobs. Their results are already final.
    pub succeeded: Vec<RemovedItem>,
    /// Inbox messages to delete.
    pub consumed: Vec<InboxMessageId>,
    /// Enqueue messages that stay in the inbox and are marked as in progress
    /// ([`InboxMessage::in_progress`]).
    pub in_progress: BTreeSet<InboxMessageId>,
    /// Builds to order.
    pub orders: Vec<OrderDraft>,
    /// Builds to stop.
    pub stops: Vec<BuildStop>,
    /// Builds to send to the executors: their nodes are ready, and they hold their semaphores.
    pub sends: Vec<(BuildId, RequestRef)>,
    /// Builds without nodes to send to the executors again, since none has claimed them for long.
    pub resends: Vec<BuildId>,
    /// Paused builds to resume: the dependent jobs are over.
    pub resumes: Vec<BuildId>,
    /// Landings to order.
    pub landings: Vec<Landing>,
    /// Landings to end before they were started. Each is written only if its record is unchanged.
    pub withdrawn_landings: Vec<Landing>,
    /// Semaphores to write. Each is written only if its record is unchanged.
    pub semaphores: Vec<Semaphore>,
    /// Branch locks to write: acquired, released, or waited for. Each is written only if its record
    /// is unchanged.
    pub branch_locks: Vec<BranchLock>,
    /// The pipeline's failure count to write, only if its record is unchanged; `None` if it does
    /// not change.
    pub health: Option<Health>,
    /// Events that may trigger pipelines, each with the item and the change that it is about.
    pub events: Vec<(ZuulEvent, ItemId, ChangeRef)>,
    /// Inbox messages to write to other queues of the tenant.
    pub forwards: Vec<(QueueKey, InboxMessage)>,
    /// For each hosted change: the host queue to record in the head of its own queue, `None` once
    /// it is released. Each is written only if that head is unchanged.
    pub residencies: BTreeMap<ChangeKey, Option<QueueName>>,
    /// Queues to wake: a semaphore or a branch lock that they wait for is free.
    pub wake: Vec<QueueKey>,
    /// Reports to make.
    pub reports: Vec<Report>,
    /// Merges to request of the merger: item and generation.
    pub merge_requests: Vec<(ItemId, u64)>,
    /// Items whose landing is overdue: the reporter is woken again.
    pub landing_reminders: Vec<ItemId>,
    /// Whether to request a new layout.
    pub requests_layout: bool,
    /// Whether to wake the tenant.
    pub wake_tenant: bool,
    /// When to reconcile again without a wakeup; `None` for never.
    pub due: Option<Timestamp>,
}

impl QueuePlan {
    /// Returns whether the plan writes nothing.
    pub fn is_empty(&self) -> bool {
        self.head.is_none() && self.records() == 0
    }

    /// Returns how many records the plan writes besides the head, at most. Names every field, so
    /// that none is forgotten.
    fn records(&self) -> usize {
        let Self {
            items,
            removed,
            succeeded,
            consumed,
            in_progress,
            orders,
            stops,
            resumes,
            landings,
            withdrawn_landings,
            semaphores,
            branch_locks,
            health,
            events,
            forwards,
            residencies,
            reports,
            requests_layout,
            // The head is written in any case.
            head: _,
            // Wakeups, which go to the head's outbox. What they announce is written by the fields
            // above; a reminder needs no record.
            sends: _,
            resends: _,
            wake: _,
            merge_requests: _,
            landing_reminders: _,
            wake_tenant: _,
            reasons: _,
            due: _,
        } = self;
        items.len()
            + removed.len() * 4
            + succeeded.len()
            + consumed.len()
            + in_progress.len()
            + orders.len() * 2
            + stops.len()
            + resumes.len()
            + landings.len()
            + withdrawn_landings.len()
            + semaphores.len()
            + branch_locks.len()
            + usize::from(health.is_some())
            + events.len()
            + forwards.len()
            + residencies.len() * hosting::RESIDENCY_RECORDS
            + reports.iter().map(Report::records_count).sum::<usize>()
            + usize::from(*requests_layout)
    }
}

/// An item that leaves its queue, or has succeeded and stays for its reporter jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedItem {
    /// The final state of the item.
    pub item: Item,
    /// Zuul's name of the buildset's result: `SUCCESS`, `FAILURE`, `MERGE_CONFLICT`,
    /// `MERGE_FAILURE`, `CONFIG_ERROR`, `NO_JOBS`, `DEQUEUED`.
    pub result: &'static str,
    /// The reason that users see.
    pub why: String,
}

/// The content of a build to order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderDraft {
    /// The build's id.
    pub build: BuildId,
    /// The item that it tests.
    pub item: ItemId,
    /// The generation of the item's speculative state.
    pub generation: u64,
    /// The job's name.
    pub job: JobName,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How many attempts the job has.
    pub max_attempts: u32,
    /// Whether its result counts.
    pub voting: bool,
    /// The name of the object that holds the job graph.
    pub graph: String,
    /// The name of the object that holds the tested state.
    pub speculation: String,
    /// The tested change.
    pub change: ChangeRef,
    /// The id of the event that enqueued the item.
    pub event_id: String,
    /// The commit that merged the change; `None` if it is not merged.
    pub merge_commit: Option<Oid>,
    /// Builds whose returned data it receives. A later one overrides an earlier one.
    pub parents: Vec<BuildId>,
    /// Builds of changes ahead whose artifacts it receives, the nearest change first.
    pub artifact_builds: Vec<BuildId>,
    /// Index of the requested nodeset among the job's nodesets, from 0.
    pub nodeset: u32,
    /// Labels of the requested nodes.
    pub labels: Vec<LabelName>,
    /// Whether the queue sends the build once it has nodes and semaphores; otherwise the provider
    /// sends it.
    pub nodes_first: bool,
    /// The node request; `None` if the job needs no nodes.
    pub request: Option<RequestRef>,
}

/// A build to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStop {
    /// The build's id.
    pub build: BuildId,
    /// The node request to withdraw, if there is one.
    pub request: Option<RequestRef>,
    /// The reason that users see.
    pub why: String,
    /// Whether its executor is gone: the build needs no stop message, and its nodes are free at
    /// once.
    pub executor_lost: bool,
}

/// Decides what happens next in one queue. Reads only the snapshot and has no side effects.
pub fn plan(snapshot: QueueSnapshot<'_>, now: Timestamp) -> QueuePlan {
    let mut planner = Planner::new(snapshot, now);
    if !planner.follow_live_layout() {
        return planner.into_plan();
    }
    if let Some(to) = planner.head.hosted_in.clone() {
        planner.forward_inbox(&to);
        // The queue is empty, so that it neither holds a semaphore nor waits for one.
        planner.update_semaphores();
        return planner.into_plan();
    }
    planner.refreeze_outdated_items();
    if !planner.apply_resets(DecidedBy::EarlierPlan) {
        // Resets that an earlier plan decided fill the transaction. The rest is decided after they
        // are written. This applies to a halted queue too: the command that resumes it may have to
        // wait for them.
        return QueuePlan { due: Some(now), ..planner.into_plan() };
    }
    if !planner.snapshot.hold.pause_results {
        planner.apply_results();
    }
    planner.apply_commands();
    planner.consume_inbox();
    planner.dequeue_if_pipeline_removed();
    // Each removal may move the entries behind it; there are at most as many rounds as items.
    for _ in 0..=planner.head.slots().count() {
        planner.align();
        if planner.finish() != Progress::Reordered {
            break;
        }
    }
    planner.apply_resets(DecidedBy::ThisPlan);
    planner.advance();
    planner.list_unclaimed();
    planner.update_semaphores();
    planner.update_branch_locks();
    planner.is_incomplete |= planner.can_consume_more();
    match planner.has_pending_command() {
        true => QueuePlan { due: Some(now), ..planner.into_plan() },
        false => planner.into_plan(),
    }
}

/// The state of one planning run: the snapshot, and the plan that is being built.
pub(crate) struct Planner<'a> {
    /// What was read of the queue and its surroundings; its items are moved to [`Self::items`].
    pub(crate) snapshot: QueueSnapshot<'a>,
    /// The current time.
    pub(crate) now: Timestamp,
    /// The head in its new state.
    pub(crate) head: Head,
    /// The position of the entry that is being processed: [`Self::position`] tries it before it
    /// searches.
    cursor: usize,
    /// The items in their new state.
    items: Items,
    /// The items that this plan writes.
    changed_items: BTreeSet<ItemId>,
    /// Why this plan retests items. The reason is written together with the item's reset: an item
    /// is not written for its reason alone.
    retest_reasons: BTreeMap<ItemId, String>,
    /// The decisions so far.
    plan: QueuePlan,
    /// Whether more can be decided at once, as when the transaction was full: the queue is
    /// reconciled again without delay.
    is_incomplete: bool,
    /// The semaphores that this plan changes, in their new state.
    semaphores: BTreeMap<SemaphoreKey, Semaphore>,
    /// The pipeline's failure count after this plan.
    pub(crate) health: Option<Health>,
    /// Semaphores that jobs of this queue wait for, each with the earliest time that one asked.
    semaphore_waits: BTreeMap<SemaphoreKey, WaitingSince>,
    /// Jobs of this queue that wait for semaphores, in queue order.
    waiting_jobs: Vec<WaitingJob>,
    /// The branch locks that this plan changes, in their new state.
    branch_locks: BTreeMap<BranchKey, BranchLock>,
    /// Branches whose lock an entry waits for while another queue holds it or comes first.
    awaited_branches: BTreeSet<BranchKey>,
}

impl<'a> Planner<'a> {
    /// Returns the planner for a snapshot, with no decisions yet.
    fn new(mut snapshot: QueueSnapshot<'a>, now: Timestamp) -> Self {
        let items = std::mem::take(&mut snapshot.items);
        Self {
            head: snapshot.head.clone(),
            cursor: 0,
            health: snapshot.health.clone(),
            snapshot,
            now,
            items,
            changed_items: BTreeSet::new(),
            retest_reasons: BTreeMap::new(),
            plan: QueuePlan::default(),
            is_incomplete: false,
            semaphores: BTreeMap::new(),
            semaphore_waits: BTreeMap::new(),
            waiting_jobs: Vec::new(),
            branch_locks: BTreeMap::new(),
            awaited_branches: BTreeSet::new(),
        }
    }

    /// Returns whether `records` more records fit into the transaction. If not, marks the plan as
    /// incomplete, so that the queue is reconciled again at once.
    fn has_room(&mut self, records: usize) -> bool {
        let fits = self.records_used() + records <= RECORDS_MAX;
        self.is_incomplete |= !fits;
        fits
    }

    /// Returns how many records the plan writes so far, without the head.
    fn records_used(&self) -> usize {
        // Outside dependent pipelines the item's provided artifacts may be written with a stop.
        let provided = if is_dependent(&self.snapshot.head) { 0 } else { self.plan.stops.len() };
        // What is added to the plan at its end is counted here.
        self.plan.records()
            + provided
            + self.changed_items.len()
            + self.semaphores.len()
            + self.branch_locks.len()
            + self.lock_takeovers()
            + usize::from(self.health.is_some())
    }

    /// Returns the position of the entry with an item, or `None` if it is not queued. Tries
    /// [`Self::cursor`] first.
    fn position(&self, id: &ItemId) -> Option<usize> {
        let is_here = self.head.entries.get(self.cursor).is_some_and(|entry| entry.contains(id));
        if is_here { Some(self.cursor) } else { self.head.position(id) }
    }

    /// Returns an item to change it, and marks it to be written; `None` if it is not queued.
    fn item_mut(&mut self, id: &ItemId) -> Option<&mut Item> {
        self.changed_items.insert(id.clone());
        self.items.get_mut(id)
    }

    /// Adds a reason to the log and to the item. If the transaction is full, only to the log.
    fn note(&mut self, id: &ItemId, reason: String) {
        let is_written = self.changed_items.contains(id) || self.records_used() < RECORDS_MAX;
        // An item that is not written must not be copied.
        if is_written && let Some(item) = self.items.get_mut(id) {
            // The count does not show it: a full list drops its oldest reason.
            let before = item.reasons.last().cloned();
            item.add_reason(reason.clone());
            if item.reasons.last() != before.as_ref() {
                self.changed_items.insert(id.clone());
            }
        }
        self.plan.reasons.push(reason);
    }

    /// Records an event about a change, if some pipeline triggers on it.
    fn emit_event(&mut self, event: ZuulEvent, id: &ItemId, change: &ChangeRef) {
        if self.snapshot.triggering_events.contains(&event) && change.key.number().is_some() {
            self.plan.events.push((event, id.clone(), change.clone()));
        }
    }

    /// Returns whether a newer layout was requested and is not live yet.
    fn awaits_layout(&self) -> bool {
        self.snapshot.layout.wanted > self.snapshot.layout.live
    }

    /// Stops all builds of an item. Returns false if the transaction was full and some are left for
    /// the next plan.
    fn stop_builds(&mut self, id: &ItemId, why: &str) -> bool {
        let jobs = self.items.get(id).map_or(0, |item| item.jobs.len());
        for at in 0..jobs {
            if !self.items.get(id).is_some_and(|item| item.jobs[at].is_under_way()) {
                continue;
            }
            if !self.has_room(3) {
                return false;
            }
            let Some(job) = self.items.get_mut(id).and_then(|item| item.jobs.get_mut(at)) else {
                continue;
            };
            if let Some(build) = job.build.clone() {
                self.plan.stops.push(BuildStop {
                    build,
                    request: job.request.take(),
                    why: why.to_owned(),
                    executor_lost: false,
                });
            }
            job.status = job_graph::ended(BuildResult::Aborted, Some(why.to_owned()), self.now);
            self.changed_items.insert(id.clone());
        }
        true
    }

    /// Returns whether an item was frozen under the layout that the queue uses.
    fn has_current_layout(&self, item: &Item) -> bool {
        item.layout == self.head.layout
    }

    /// Moves the queue to the live layout. Returns false while changes that belong to other queues
    /// under that layout are not forwarded yet.
    fn follow_live_layout(&mut self) -> bool {
        if self.awaits_layout() || self.head.layout == self.snapshot.layout.live {
            return true;
        }
        if self.head.halted.is_some() && self.has_changes_to_move() {
            return true; // Nothing moves until an operator resumes the queue; then it follows.
        }
        if !self.move_to_other_queues() || !self.dequeue_unsupported_bundles() {
            return false;
        }
        self.head.layout = self.snapshot.layout.live;
        if let Some(pipeline) = self.snapshot.pipeline {
            self.head.manager = pipeline.manager;
            if !pipeline.window.is_limited() {
                self.head.window = 0;
            } else if self.head.window == 0 || self.head.entries.is_empty() {
                self.head.window = pipeline.window.initial;
            }
        }
        true
    }

    /// Freezes the jobs of items of an older layout again. Builds whose job and tested tree are
    /// unchanged go on (R01). A long queue takes several plans; until then such an item neither
    /// orders builds, merges nor leaves.
    fn refreeze_outdated_items(&mut self) {
        let is_older = |item: &Item| {
            item.merge_status != MergeStatus::NotRequested && !self.has_current_layout(item)
        };
        let outdated = self.head.slots().filter(|slot| {
            !slot.status.is_decided() && self.items.get(&slot.id).is_some_and(is_older)
        });
        for id in outdated.map(|slot| slot.id.clone()).collect::<Vec<_>>() {
            if !self.has_room(1) {
                return;
            }
            if let Some(item) = self.item_mut(&id) {
                item.merge_status = MergeStatus::NotRequested;
                item.add_reason("the tenant's configuration changed: its jobs are frozen again");
            }
        }
    }

    /// Completes the plan: keeps only records that changed, and sets when to reconcile next.
    fn into_plan(self) -> QueuePlan {
        let mut plan = self.plan;
        let (mut items, mut head) = (self.items, self.head);
        for id in self.changed_items {
            if let Some(mut item) = items.remove(&id) {
                item.version += 1;
                plan.items.insert(id, item);
            }
        }
        for slot in head.slots_mut().filter(|_| !plan.items.is_empty()) {
            if let Some(item) = plan.items.get(&slot.id) {
                slot.version = item.version;
            }
        }
        let read = &self.snapshot.semaphores;
        plan.semaphores = (self.semaphores.into_values())
            .filter(|semaphore| {
                read.get(&semaphore.key)
                    .map_or(!semaphore.is_unused(), |before| before != semaphore)
            })
            .collect();
        let before =
            |lock: &BranchLock| self.snapshot.branch_locks.get(&lock.branch).map(|seen| &seen.lock);
        plan.branch_locks = (self.branch_locks.into_values())
            .filter(|lock| before(lock).map_or(!lock.is_unused(), |before| before != lock))
            .collect();
        let recorded = &self.snapshot.residencies;
        plan.residencies.retain(|key, host| {
            recorded.get(key).is_none_or(|residency| residency.hosted_in != *host)
        });
        plan.health = self.health.filter(|health| self.snapshot.health.as_ref() != Some(health));
        let is_idle = head.entries.is_empty() && head.semaphores.is_empty();
        let waits = !is_idle || !self.snapshot.inbox.is_empty();
        let seconds = if self.is_incomplete { 0 } else { RECONCILE_SECONDS };
        plan.due = (waits && head.halted.is_none()).then(|| self.now.plus_seconds(seconds));
        plan.head = (head != self.snapshot.head).then_some(head);
        plan
    }
}

/// Returns whether the queue belongs to a dependent pipeline.
fn is_dependent(head: &Head) -> bool {
    head.manager == Manager::Dependent
}

/// Returns the id of the item for a change revision that an inbox message enqueues. It is a digest
/// of queue, revision and message, so that a repeated plan makes the same item.
pub(crate) fn item_id(head: &Head, change: &ChangeRef, message: &InboxMessage) -> ItemId {
    ItemId::derive(&[
        &head.key.to_string(),
        &change.key.to_string(),
        change.head.as_str(),
        message.id.as_str(),
    ])
}
