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
mod decisions;
mod enqueue;
mod finish;
mod forward;
mod hosting;
mod job_graph;
mod landings;
mod ledger;
mod limits;
mod observe;
mod pending_messages;
mod reporter_jobs;
mod semaphores;
mod shared_builds;
#[cfg(test)]
mod tests;

pub use admit::change_outside_tenant_reason;
pub use bundles::BUNDLE_MAX;
pub use decisions::{
    BuildStop, OrderDraft, QueueAction, QueuePlan, RECORDS_MAX, RemovedItem, StopCause,
};
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
use crate::report::ReportState;
use crate::semaphore::{Semaphore, SemaphoreKey, WaitingSince};
use finish::Progress;
use ledger::{Full, Ledger};
use observe::DecidedBy;
use semaphores::WaitingJob;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::build::{BuildResult, RunEnd};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::{BranchKey, MergeMode};
use sluice_model::{BuildId, ItemId, LabelName, PipelineName, ProviderName, QueueKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Queues other than this one that wait for a semaphore and cannot take it now: they have no
    /// head, are empty or are halted. Only the first eight waiting queues of each semaphore are
    /// examined, so a later one is never listed.
    pub blocked_queues: BTreeSet<QueueKey>,
    /// Builds that hold a semaphore for which a build of this queue waits that has its nodes and
    /// was not sent yet. The time is that from which the holder counts as idle. A build that no
    /// executor has claimed counts from 600 seconds after it took the semaphore, which may lie in
    /// the future. A paused build counts from its pause. A build that works or has ended is not
    /// listed.
    pub idle_holders: BTreeMap<BuildId, Timestamp>,
    /// Resolves a semaphore name of a job to its key and the number of holders allowed.
    pub resolve_semaphore: &'a dyn Fn(&str) -> (SemaphoreKey, u32),
    /// Returns the queue of a pipeline that a change belongs to by the live layout; `None` if the
    /// layout has no such pipeline.
    pub queue_of: &'a dyn Fn(&PipelineName, &ChangeRef) -> Option<QueueKey>,
    /// Returns whether the live layout has the project of a change.
    pub has_project: &'a dyn Fn(&ChangeKey) -> bool,
    /// Returns how changes of a branch are merged.
    pub merge_mode: &'a dyn Fn(&BranchKey) -> MergeMode,
    /// Returns the provider that serves a set of labels. The error says why no provider does.
    pub provider_for: &'a dyn Fn(&[LabelName]) -> Result<ProviderName, String>,
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

/// Returns what one commit has to write and send for one queue, the reasons, and when to reconcile
/// it next. Reads only the snapshot and `now`, and has no side effects. What does not fit into one
/// transaction is left to the next plan, which is then due at once; in a halted queue only if a
/// command, or a reset that an earlier plan decided, is left. While the queue's own change is
/// hosted in another queue, the plan only follows the live layout and forwards the inbox there. In
/// a halted queue it still applies results and messages, but requests and merges nothing.
pub fn plan(snapshot: QueueSnapshot<'_>, now: Timestamp) -> QueuePlan {
    let mut planner = Planner::new(snapshot, now);
    if planner.follow_live_layout() == Err(Full) {
        return planner.into_plan();
    }
    if let Some(to) = planner.head.hosted_in.clone() {
        planner.forward_inbox(&to);
        // The queue is empty, so that it neither holds a semaphore nor waits for one.
        planner.update_semaphores();
        return planner.into_plan();
    }
    planner.refreeze_outdated_items();
    if planner.apply_resets(DecidedBy::EarlierPlan) == Err(Full) {
        // Resets that an earlier plan decided fill the transaction. The rest is decided after they
        // are written. This applies to a halted queue too: the command that resumes it may have to
        // wait for them.
        return QueuePlan { due: Some(now), ..planner.into_plan() };
    }
    if !planner.snapshot.hold.pause_results {
        planner.apply_results();
    }
    if planner.apply_commands() == Err(Full) {
        planner.is_incomplete = true; // The next plan applies the rest.
    }
    planner.consume_inbox();
    if planner.dequeue_if_pipeline_removed() == Err(Full)
        || planner.dequeue_of_removed_projects() == Err(Full)
    {
        planner.is_incomplete = true; // The next plan dequeues the rest.
    }
    // Each removal may move the entries behind it; there are at most as many rounds as items.
    for _ in 0..=planner.head.slots().count() {
        planner.align();
        if planner.finish() != Ok(Progress::Reordered) {
            break;
        }
    }
    if planner.apply_resets(DecidedBy::ThisPlan) == Err(Full) {
        planner.is_incomplete = true; // The next plan resets the rest.
    }
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
    ledger: Ledger,
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
    /// Returns the planner for a snapshot, with no decisions yet. Its items and head start in the
    /// state of the snapshot; the items are moved out of it.
    fn new(mut snapshot: QueueSnapshot<'a>, now: Timestamp) -> Self {
        let items = std::mem::take(&mut snapshot.items);
        Self {
            head: snapshot.head.clone(),
            cursor: 0,
            health: snapshot.health.clone(),
            ledger: Ledger::new(snapshot.head.manager),
            snapshot,
            now,
            items,
            changed_items: BTreeSet::new(),
            retest_reasons: BTreeMap::new(),
            is_incomplete: false,
            semaphores: BTreeMap::new(),
            semaphore_waits: BTreeMap::new(),
            waiting_jobs: Vec::new(),
            branch_locks: BTreeMap::new(),
            awaited_branches: BTreeSet::new(),
        }
    }

    /// Returns whether `records` more records fit into the transaction besides those of
    /// [`Self::records_used`]; reserves nothing. If they do not fit, marks the plan as incomplete,
    /// so that the queue is reconciled again at once.
    fn has_room(&mut self, records: usize) -> bool {
        let fits = self.records_used() + records <= RECORDS_MAX;
        self.is_incomplete |= !fits;
        fits
    }

    /// Fails with [`Full`] if `records` more records do not fit into the transaction. Then the
    /// queue is reconciled again at once. Reserves nothing.
    fn require_room(&mut self, records: usize) -> Result<(), Full> {
        if self.has_room(records) { Ok(()) } else { Err(Full) }
    }

    /// Returns how many records the plan writes at most so far, without the head. Includes what
    /// [`Self::into_plan`] adds at the end: changed items, semaphores, branch locks with the checks
    /// of their takeovers, and the failure count.
    fn records_used(&self) -> usize {
        // What is added to the plan at its end is counted here.
        self.ledger.records()
            + self.changed_items.len()
            + self.semaphores.len()
            + self.branch_locks.len()
            + self.lock_takeovers()
            + usize::from(self.health.is_some())
    }

    /// Returns the position of the entry with an item, in the plan's new order; `None` if the item
    /// is not queued. Tries [`Self::cursor`] first.
    fn position(&self, id: &ItemId) -> Option<usize> {
        let is_here = self.head.entries.get(self.cursor).is_some_and(|entry| entry.contains(id));
        if is_here { Some(self.cursor) } else { self.head.position(id) }
    }

    /// Returns an item to change it, and marks it to be written; `None` if it is not queued. The
    /// caller has made sure that its record fits into the transaction.
    fn item_mut(&mut self, id: &ItemId) -> Option<&mut Item> {
        self.changed_items.insert(id.clone());
        self.items.get_mut(id)
    }

    /// Adds a reason to the log and to the item, which is then written. Only the log gets it if the
    /// item is not queued, or if it is not written yet and the transaction has no room. A reason
    /// that equals the item's last one is not added to the item again.
    fn note(&mut self, id: &ItemId, reason: String) {
        let is_written = self.changed_items.contains(id) || self.records_used() < RECORDS_MAX;
        // An item that is not written must not be copied.
        if is_written
            && let Some(item) = self.items.get_mut(id)
            && item.add_reason(self.now, reason.clone())
        {
            self.changed_items.insert(id.clone());
        }
        self.ledger.explain(reason);
    }

    /// Has the plan emit an event about the change of the item `id`, if some pipeline of the tenant
    /// triggers on it. Does nothing for a ref, which has no change number. The caller has made sure
    /// that one record fits.
    fn emit_event(&mut self, event: ZuulEvent, id: &ItemId, change: &ChangeRef) {
        if self.snapshot.triggering_events.contains(&event) && change.key.number().is_some() {
            let (item, change) = (id.clone(), change.clone());
            self.ledger.push(QueueAction::EmitEvent { event, item, change });
        }
    }

    /// Returns whether a newer layout was requested and is not live yet.
    fn awaits_layout(&self) -> bool {
        self.snapshot.layout.wanted > self.snapshot.layout.live
    }

    /// Has the plan stop all builds of an item that are under way and withdraw their node requests;
    /// also those that another item shares. Their jobs end as aborted with the reason `why`;
    /// waiting jobs are unchanged. Where not all fit into the transaction, stops those that fit and
    /// returns [`Full`]; the next plan stops the rest.
    fn stop_builds(&mut self, id: &ItemId, why: &str) -> Result<(), Full> {
        let jobs = self.items.get(id).map_or(0, |item| item.jobs.len());
        for at in 0..jobs {
            if !self.items.get(id).is_some_and(|item| item.jobs[at].is_under_way()) {
                continue;
            }
            self.require_room(3)?;
            let Some(job) = self.items.get_mut(id).and_then(|item| item.jobs.get_mut(at)) else {
                continue;
            };
            if let Some(build) = job.build.clone() {
                self.ledger.push(QueueAction::StopBuild(BuildStop {
                    build,
                    request: job.request.take(),
                    why: why.to_owned(),
                    cause: StopCause::Cancelled,
                }));
            }
            job.status = job_graph::ended(BuildResult::Aborted, Some(why.to_owned()), self.now);
            self.changed_items.insert(id.clone());
        }
        Ok(())
    }

    /// Returns whether an item was frozen under the layout that the queue uses.
    fn has_current_layout(&self, item: &Item) -> bool {
        item.layout == self.head.layout
    }

    /// Moves the queue to the live layout and to the manager of its pipeline there. The window
    /// becomes 0 if the pipeline does not limit it, the initial size if it was 0 or the queue is
    /// empty, and otherwise keeps its size; manager and window stay if that layout has no such
    /// pipeline. Before that, moves the changes that belong to other queues under that layout, and
    /// dequeues bundles that it does not support. Does nothing while a newer layout is pending, or
    /// while the queue is halted and has changes to move. Where not all changes fit into the
    /// transaction, the queue keeps its layout, and the next plan moves the rest.
    fn follow_live_layout(&mut self) -> Result<(), Full> {
        if self.awaits_layout() || self.head.layout == self.snapshot.layout.live {
            return Ok(());
        }
        if self.head.halted.is_some() && self.has_changes_to_move() {
            return Ok(()); // Nothing moves until an operator resumes the queue; then it follows.
        }
        self.move_to_other_queues()?;
        self.dequeue_unsupported_bundles()?;
        self.head.layout = self.snapshot.layout.live;
        if let Some(pipeline) = self.snapshot.pipeline {
            self.head.manager = pipeline.manager;
            if !pipeline.window.is_limited() {
                self.head.window = 0;
            } else if self.head.window == 0 || self.head.entries.is_empty() {
                self.head.window = pipeline.window.initial;
            }
        }
        Ok(())
    }

    /// Has the jobs of items of another layout frozen again, by withdrawing their tested state.
    /// Items whose state was never requested, that are being merged or that have succeeded are left
    /// as they are. Builds whose job and tested tree are unchanged go on (R01). A long queue takes
    /// several plans; until then such an item neither orders builds, merges nor leaves.
    fn refreeze_outdated_items(&mut self) {
        let is_older = |item: &Item| {
            item.merge_status != MergeStatus::NotRequested && !self.has_current_layout(item)
        };
        let outdated = self.head.slots().filter(|slot| {
            !slot.status.is_decided() && self.items.get(&slot.id).is_some_and(is_older)
        });
        let now = self.now;
        for id in outdated.map(|slot| slot.id.clone()).collect::<Vec<_>>() {
            if !self.has_room(1) {
                return;
            }
            if let Some(item) = self.item_mut(&id) {
                item.merge_status = MergeStatus::NotRequested;
                item.add_reason(
                    now,
                    "the tenant's configuration changed: its jobs are frozen again",
                );
            }
        }
    }

    /// Completes the plan: adds the changed items, semaphores, branch locks and the failure count,
    /// and leaves out the head if it is unchanged. The next reconcile is due at once if the plan is
    /// incomplete, otherwise after [`RECONCILE_SECONDS`]. It is never due for a halted queue, nor
    /// for one without entries, semaphores and messages that were read.
    fn into_plan(mut self) -> QueuePlan {
        self.put_changed_items();
        let (semaphores, locks) = (self.changed_semaphores(), self.changed_branch_locks());
        self.ledger.extend(semaphores.into_iter().map(Box::new).map(QueueAction::PutSemaphore));
        self.ledger.extend(locks.into_iter().map(Box::new).map(QueueAction::PutBranchLock));
        let health = self.health.filter(|health| self.snapshot.health.as_ref() != Some(health));
        self.ledger.extend(health.map(QueueAction::PutHealth));
        let recorded = &self.snapshot.residencies;
        let (actions, reasons) = self.ledger.into_actions(|change, host| {
            recorded.get(change).is_none_or(|residency| residency.hosted_in != *host)
        });
        let is_idle = self.head.entries.is_empty() && self.head.semaphores.is_empty();
        let waits = !is_idle || !self.snapshot.inbox.is_empty();
        let seconds = if self.is_incomplete { 0 } else { RECONCILE_SECONDS };
        let due = (waits && self.head.halted.is_none()).then(|| self.now.plus_seconds(seconds));
        let head = (self.head != self.snapshot.head).then_some(self.head);
        QueuePlan { head, actions, reasons, due }
    }

    /// Moves the changed items that are still queued to the plan, each with its next version, which
    /// the head records too. Afterwards the planner no longer has them.
    fn put_changed_items(&mut self) {
        let mut versions = BTreeMap::new();
        for id in std::mem::take(&mut self.changed_items) {
            let Some(mut item) = self.items.remove(&id) else { continue };
            item.version += 1;
            versions.insert(id, item.version);
            self.ledger.push(QueueAction::PutItem(Box::new(item)));
        }
        for slot in self.head.slots_mut().filter(|_| !versions.is_empty()) {
            if let Some(version) = versions.get(&slot.id) {
                slot.version = *version;
            }
        }
    }

    /// Takes all semaphores out of the planner and returns those whose records change. A semaphore
    /// without a record is returned only if it has a holder or a waiting queue.
    fn changed_semaphores(&mut self) -> Vec<Semaphore> {
        let read = &self.snapshot.semaphores;
        let has_changed = |semaphore: &Semaphore| {
            read.get(&semaphore.key).map_or(!semaphore.is_unused(), |before| before != semaphore)
        };
        std::mem::take(&mut self.semaphores).into_values().filter(has_changed).collect()
    }

    /// Takes all branch locks out of the planner and returns those whose records change. A lock
    /// without a record is returned only if it is held or waited for.
    fn changed_branch_locks(&mut self) -> Vec<BranchLock> {
        let read = &self.snapshot.branch_locks;
        let has_changed = |lock: &BranchLock| {
            let before = read.get(&lock.branch).map(|seen| &seen.lock);
            before.map_or(!lock.is_unused(), |before| before != lock)
        };
        std::mem::take(&mut self.branch_locks).into_values().filter(has_changed).collect()
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
