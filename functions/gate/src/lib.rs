//! The gate: loads one queue cell, decides, commits and sends wakeups, until nothing more can be
//! decided.
//!
//! It waits only for the store. Work on forges, clouds or git repositories is requested from other
//! functions by wakeups.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod branch_locks;
mod host_queues;
mod load;
mod lost_builds;
mod prepare_commit;
mod provided;
mod queue_context;
mod semaphores;
mod sessions;
mod unreadable_records;

use crate::load::Reader;
use crate::queue_context::{CachedCell, QueueContext};
use async_trait::async_trait;
use sluice_config::layout::{LabelOffer, LabelOffers, Layout};
use sluice_config::pipeline::Manager;
use sluice_gate::plan::{QueueAction, QueuePlan, QueueSnapshot, TenantHold, plan};
use sluice_gate::{ChangesLimit, Head, Health, InboxMessage, InboxMessageKind, Item, filter};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::BranchKey;
use sluice_model::hold::EventProcessing;
use sluice_model::wakeup::Wakeup;
use sluice_model::{LabelName, PipelineName, ProviderName, QueueKey};
use sluice_records::codec::{decode, get};
use sluice_records::layout::{Layouts, LiveLayout};
use sluice_records::{pipeline_health, queue, tenant};
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use sluice_runtime::record::Record;
use sluice_runtime::{CellCommit, CommitOutcome, Ports, cell};
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The most plans that one reconcile executes; the next one continues.
const MOVES_MAX: u32 = 40;

/// The most cached cells.
const CACHED_CELLS_MAX: usize = 64;
/// The most items of all cached cells together. The newest cell is cached even if it alone has
/// more.
const CACHED_ITEMS_MAX: usize = 4_000;

/// The part of a queue that a reconcile reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainScope {
    /// The whole queue.
    Whole,
    /// Only the answers that it waits for: merge outcomes, runs, node requests, landings, reports
    /// and branch locks. Without a current cached cell, the whole queue is read.
    Answers,
}

/// The log target of lines that people follow: which change entered, is about to merge, or left.
pub const PROGRESS_TARGET: &str = "sluice::news";

/// Reconciles queues.
pub struct Gate {
    /// The store, clock and other ports.
    ports: Ports,
    /// The layouts that were read.
    layouts: Layouts,
    /// The address of the pages that reports link to, with a final `/`.
    web_root: String,
    /// The name of this instance in measurements by its own clock.
    name: String,
    /// The cached cells. One is used only while the stored head is the cached one.
    cached: Mutex<VecDeque<(QueueKey, CachedCell)>>,
}

impl Gate {
    /// Creates a gate. `web_root` is the address of the pages that reports link to, with a final
    /// `/`.
    pub fn new(ports: Ports, web_root: impl Into<String>) -> Self {
        let name = ports.entropy.token();
        Self {
            ports,
            layouts: Layouts::default(),
            web_root: web_root.into(),
            name,
            cached: Mutex::default(),
        }
    }

    /// Plans and commits for one queue until nothing is left to do. `scope` says what is read
    /// first. Stops where the queue is halted because a record could not be read. After a bounded
    /// number of plans, sends a wakeup that continues. For a redelivery (`reception`), first sends
    /// the wakeups that an earlier run may have failed to send. May be repeated: a second run plans
    /// from the first one's result.
    pub async fn drain(
        &self,
        queue: &QueueKey,
        scope: DrainScope,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let reader =
            Reader { ports: &self.ports, layouts: &self.layouts, key: queue, name: &self.name };
        let mut loaded = match (self.take_cached(queue), scope) {
            (Some(cached), DrainScope::Answers) => reader.answers(cached).await?,
            (cached, _) => reader.whole(cached).await?,
        };
        self.resend_wakeups(&mut loaded, reception).await?;
        let mut has_consumed = false;
        for _ in 0..MOVES_MAX {
            if loaded.queue.is_halted {
                tracing::error!(%queue, "the queue is halted; check it, then run `sluice queue resume`");
                return Ok(());
            }
            let changes = self.changes_limit(queue, &loaded).await?;
            let failures = self.failures(queue, &loaded.live).await?;
            let health = failures.as_ref().map(|(_, health)| health.clone());
            let Some(plan) = self.plan(queue, &loaded, changes, health) else { return Ok(()) };
            for reason in &plan.reasons {
                tracing::info!(%queue, "{reason}");
            }
            if plan.is_empty() {
                self.finish_empty_plan(&mut loaded, plan, queue).await?;
                return self.finish(queue, loaded, has_consumed).await;
            }
            has_consumed |= plan.actions.iter().any(consumes_message);
            let changes_other_cells = plan.actions.iter().any(changes_other_cells);
            let progress = progress_lines(queue, &loaded, &plan);
            let counted = failures.as_ref().and_then(|(record, _)| record.as_ref());
            let now = self.ports.clock.now();
            let carried = prepare_commit::prepare_commit(queue, &loaded, plan, counted, now)?;
            match cell::commit_and_send(&self.ports, carried.commit).await? {
                CommitOutcome::Stale => {
                    // A concurrent writer committed, and may have failed to send its wakeups.
                    loaded = reader.whole(Some(loaded.into_cached())).await?;
                    self.resend_wakeups(&mut loaded, Reception::Redelivery).await?;
                }
                CommitOutcome::Written(head) => {
                    if let Some(why) = halt_reason(&loaded.queue, &carried.after) {
                        tracing::error!(
                            %queue,
                            why,
                            "the queue was halted; check it, then run `sluice queue resume`"
                        );
                    }
                    for line in &progress {
                        tracing::info!(target: PROGRESS_TARGET, tenant = %queue.tenant, "{line}");
                    }
                    // The next plan starts from the committed cell; the other records are still
                    // valid.
                    loaded.queue = queue::LoadedQueue { head_record: Some(head), ..carried.after };
                    loaded.branch_locks.extend(carried.branch_locks);
                    if !carried.more {
                        return self.finish(queue, loaded, has_consumed).await;
                    }
                    if changes_other_cells {
                        loaded = reader.whole(Some(loaded.into_cached())).await?;
                        self.resend_wakeups(&mut loaded, Reception::First).await?;
                    }
                }
            }
        }
        // The rest is left to another message.
        Ok(cell::send(&self.ports, &[Wakeup::Queue { queue: queue.clone() }]).await?)
    }

    /// Ends a reconcile: caches the queue. Wakes the queue where messages were consumed
    /// (`has_consumed`) and its inbox has more than were read.
    async fn finish(
        &self,
        queue: &QueueKey,
        loaded: QueueContext,
        has_consumed: bool,
    ) -> Result<(), ReconcileError> {
        let goes_on = has_consumed && loaded.queue.is_cut;
        self.cache(queue, loaded);
        match goes_on {
            true => Ok(cell::send(&self.ports, &[Wakeup::Queue { queue: queue.clone() }]).await?),
            false => Ok(()),
        }
    }

    /// Returns the limit on the pipeline's changes; `None` without a limit. The number of changes
    /// in its other queues is counted only where the inbox has an enqueue request, and is 0
    /// otherwise.
    async fn changes_limit(
        &self,
        queue: &QueueKey,
        loaded: &QueueContext,
    ) -> Result<Option<ChangesLimit>, ReconcileError> {
        let Some(max) = loaded.live.layout.tenant().max_changes_per_pipeline else {
            return Ok(None);
        };
        let enters =
            |message: &InboxMessage| matches!(message.kind, InboxMessageKind::Enqueue { .. });
        let elsewhere = match loaded.queue.inbox.iter().any(enters) {
            true => tenant::count_changes_in_other_queues(&self.ports, queue).await?,
            false => 0,
        };
        Ok(Some(ChangesLimit { max, in_other_queues: elsewhere }))
    }

    /// Reads the failure count of a pipeline with `disable-after-consecutive-failures`, as it
    /// applies under the live layout; `None` for other pipelines. The record beside it is `None`
    /// where none is stored yet. Other queues change it, so it is read before each plan. An
    /// unreadable count starts at 0 and is replaced with the next count; it never stops a queue.
    async fn failures(
        &self,
        queue: &QueueKey,
        live: &LiveLayout,
    ) -> Result<Option<(Option<Record>, Health)>, ReconcileError> {
        let pipeline = live.layout.pipeline(queue.pipeline.as_str());
        if pipeline.is_none_or(|pipeline| pipeline.disable_after_consecutive_failures.is_none()) {
            return Ok(None);
        }
        let record =
            get(&self.ports, &pipeline_health::key(&queue.tenant, &queue.pipeline)).await?;
        let health = record.as_ref().and_then(|record| {
            let effect = "the pipeline's failure count is reset and its reporters are enabled; no action is needed, since the next count replaces the record";
            decode::<Health>(record).inspect_err(|bad| tracing::error!(%queue, %bad, "{effect}")).ok()
        });
        let health = health.unwrap_or_else(|| {
            Health::new(queue.tenant.clone(), queue.pipeline.clone(), live.number())
        });
        Ok(Some((record, health.for_layout(live.number()))))
    }

    /// Decides about a queue by everything that was read. Writes and sends nothing. A plan that is
    /// due at all is due no later than a suspicion about an executor has to be checked again.
    /// Returns `None` where the queue has neither a head nor a message.
    fn plan(
        &self,
        queue: &QueueKey,
        loaded: &QueueContext,
        changes: Option<ChangesLimit>,
        health: Option<Health>,
    ) -> Option<QueuePlan> {
        let live = &loaded.live;
        let merge_mode = |branch: &BranchKey| live.layout.merge_mode(&branch.project);
        let offers = OnceCell::new();
        let provider = |labels: &[LabelName]| {
            provider_for(offers.get_or_init(|| live.layout.label_offers()), labels)
        };
        let semaphore = |name: &str| semaphores::named(&live.layout, &queue.tenant, name);
        let queue_of = |name: &PipelineName, change: &ChangeRef| {
            let pipeline = live.layout.pipeline(name.as_str())?;
            Some(sluice_gate::queue::queue_of(&live.layout, &queue.tenant, pipeline, change))
        };
        let has_project =
            |change: &ChangeKey| live.layout.tenant().project(&change.project).is_some();
        let snapshot = QueueSnapshot {
            head: head(queue, live, &loaded.queue)?,
            items: loaded.queue.items.values().map(|(_, item)| item.clone()).collect(),
            inbox: loaded.queue.inbox.clone(),
            merge_outcomes: loaded.outcomes.clone(),
            observed_builds: loaded.runs.clone(),
            landings: loaded.landings.clone(),
            reports: loaded.reports.clone(),
            provided: loaded.provided.clone(),
            residencies: loaded
                .own_queues
                .iter()
                .map(|(change, known)| (change.clone(), known.residency.clone()))
                .collect(),
            semaphores: loaded
                .semaphores
                .iter()
                .map(|(key, (_, known))| (key.clone(), known.clone()))
                .collect(),
            blocked_queues: loaded.blocked_queues.clone(),
            idle_holders: loaded.idle_holders.clone(),
            branch_locks: loaded
                .branch_locks
                .iter()
                .map(|(branch, known)| (branch.clone(), known.seen.clone()))
                .collect(),
            resolve_semaphore: &semaphore,
            pipeline: live.layout.pipeline(queue.pipeline.as_str()),
            queue_of: &queue_of,
            has_project: &has_project,
            merge_mode: &merge_mode,
            provider_for: &provider,
            changes_limit: changes,
            health,
            hold: hold(&live.tenant.events),
            triggering_events: triggering_events(&live.layout, &queue.pipeline),
            layout: live.tenant.layout,
            item_url_prefix: self.web_root.clone(),
        };
        let mut plan = plan(snapshot, self.ports.clock.now());
        plan.due = plan.due.map(|due| loaded.recheck_at.map_or(due, |at| due.min(at)));
        Some(plan)
    }

    /// For a redelivery, sends the wakeups that an earlier run may have failed to send. In any case
    /// removes them from the loaded head, so that the next commit drops them.
    async fn resend_wakeups(
        &self,
        loaded: &mut QueueContext,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let Some(head) = &mut loaded.queue.head_record else { return Ok(()) };
        if reception == Reception::Redelivery {
            cell::send(&self.ports, &head.outbox).await?;
        }
        head.outbox.clear();
        Ok(())
    }

    /// Handles an empty plan: sends reminders of landings, and moves the head's due time. The head
    /// is written where its due time has passed, becomes earlier, appears or disappears, or where
    /// messages wait in the inbox. A new queue gets a head if it has a due time. A concurrent write
    /// is left as it is.
    async fn finish_empty_plan(
        &self,
        loaded: &mut QueueContext,
        plan: QueuePlan,
        queue: &QueueKey,
    ) -> Result<(), ReconcileError> {
        let overdue = plan.actions.iter().filter_map(|action| match action {
            QueueAction::RemindLanding(item) => Some(item),
            _ => None,
        });
        let landings = overdue.filter_map(|item| loaded.landings.get(item));
        let reminders: Vec<Wakeup> = landings.map(sluice_records::landing::wakeup).collect();
        cell::send(&self.ports, &reminders).await?;
        let due = prepare_commit::due(queue, plan.due);
        let head = match &loaded.queue.head_record {
            Some(head) => head.clone(),
            // A new queue whose first message cannot be processed yet needs a head with a due time,
            // since nothing else wakes it.
            None => match head(queue, &loaded.live, &loaded.queue).filter(|_| due.is_some()) {
                Some(new) => {
                    prepare_commit::head_record(&loaded.queue, &new, self.ports.clock.now())?
                }
                None => return Ok(()),
            },
        };
        let late = head.due.as_ref().is_some_and(|due| due.at <= self.ports.clock.now());
        let sooner =
            due.as_ref().zip(head.due.as_ref()).is_some_and(|(due, before)| due.at < before.at);
        // Waiting messages are known only to the instance that read the whole cell. Another
        // instance with a cached cell notices them by the head's new revision; otherwise it would
        // let the queue sleep.
        let has_waiting_messages = !loaded.queue.inbox.is_empty();
        if late || sooner || has_waiting_messages || head.due.is_some() != due.is_some() {
            // Without a decision the due time is moved on; otherwise each sweep would find this
            // queue again.
            let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due };
            if let CommitOutcome::Written(head) = cell::commit_and_send(&self.ports, plan).await? {
                loaded.queue.head_record = Some(head);
            }
        }
        Ok(())
    }

    /// Removes a queue's cell from the cache and returns it; `None` where it is not cached. The
    /// cell may be outdated: the caller compares it with the stored head.
    fn take_cached(&self, queue: &QueueKey) -> Option<CachedCell> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let at = cached.iter().position(|(key, _)| key == queue)?;
        cached.remove(at).map(|(_, cell)| cell)
    }

    /// Caches a cell for the next reconcile, unless it has no items. Removes the oldest cells
    /// beyond the limits.
    fn cache(&self, queue: &QueueKey, loaded: QueueContext) {
        if loaded.queue.items.is_empty() {
            return;
        }
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|(key, _)| key != queue);
        cached.push_back((queue.clone(), loaded.into_cached()));
        while cached.len() > 1
            && (cached.len() > CACHED_CELLS_MAX || items_of(&cached) > CACHED_ITEMS_MAX)
        {
            cached.pop_front();
        }
    }
}

/// Returns the number of items in all cached cells.
fn items_of(cached: &VecDeque<(QueueKey, CachedCell)>) -> usize {
    cached.iter().map(|(_, cell)| cell.queue.items.len()).sum()
}

/// Returns why the queue is halted, where it was not halted before; `None` otherwise.
fn halt_reason<'a>(before: &queue::LoadedQueue, after: &'a queue::LoadedQueue) -> Option<&'a str> {
    let was_halted = before.head.as_ref().is_some_and(|head| head.halted.is_some());
    let why = after.head.as_ref()?.halted.as_deref();
    why.filter(|_| !was_halted)
}

/// Returns the log lines about changes that a plan enters, merges or removes.
fn progress_lines(queue: &QueueKey, loaded: &QueueContext, plan: &QueuePlan) -> Vec<String> {
    let name = |change: &ChangeRef| change.key.to_string();
    let is_new = |item: &Item| !loaded.queue.items.contains_key(&item.id);
    let line = |action: &QueueAction| match action {
        QueueAction::PutItem(item) if is_new(item) => {
            Some(format!("{} entered {}", name(&item.candidate.change), queue.pipeline))
        }
        QueueAction::OrderLanding(landing) => {
            Some(format!("{} passed and is about to be merged", name(&landing.change)))
        }
        QueueAction::RemoveItem(removed) => Some(format!(
            "{} left {}: {}: {}",
            name(&removed.item.candidate.change),
            queue.pipeline,
            removed.result,
            removed.why.lines().next().unwrap_or_default()
        )),
        _ => None,
    };
    plan.actions.iter().filter_map(line).collect()
}

/// Returns whether an action deletes an inbox message, which makes room for messages that were not
/// read.
fn consumes_message(action: &QueueAction) -> bool {
    matches!(action, QueueAction::DeleteMessage(_))
}

/// Returns whether an action changes something outside the cell that the next plan reads: the
/// tenant's layout, a semaphore, a change's own queue, or a queue that may release a change by
/// then. The caller then reads the whole cell again.
fn changes_other_cells(action: &QueueAction) -> bool {
    match action {
        QueueAction::RequestLayout
        | QueueAction::WakeTenant
        | QueueAction::PutSemaphore(_)
        | QueueAction::SetHostQueue { .. } => true,
        QueueAction::SendMessage { message, .. } => {
            matches!(message.kind, InboxMessageKind::MoveToHost { .. })
        }
        _ => false,
    }
}

/// Returns the Zuul events about changes of `pipeline` that some pipeline of the tenant triggers
/// on, `pipeline` itself included.
fn triggering_events(layout: &Layout, pipeline: &PipelineName) -> Vec<ZuulEvent> {
    let all = [ZuulEvent::ParentChangeEnqueued, ZuulEvent::ProjectChangeMerged];
    let starts = |what: &ZuulEvent| {
        layout.pipelines().iter().any(|other| filter::is_triggered_by_zuul(other, *what, pipeline))
    };
    all.into_iter().filter(starts).collect()
}

/// Returns the parts of an operator's pause that affect a queue.
fn hold(events: &EventProcessing) -> TenantHold {
    TenantHold {
        discard_triggers: events.trigger_queue_discarding,
        pause_triggers: events.trigger_queue_paused,
        pause_results: events.result_queue_paused,
    }
}

/// Returns the head as it was read, or a new one for the first message of a queue. `None` where
/// there is neither. If the layout has no such pipeline, a new head is independent and without a
/// window.
fn head(queue: &QueueKey, live: &LiveLayout, loaded: &queue::LoadedQueue) -> Option<Head> {
    if let Some(head) = &loaded.head {
        return Some(head.clone());
    }
    if loaded.inbox.is_empty() {
        return None;
    }
    let pipeline = live.layout.pipeline(queue.pipeline.as_str());
    let manager = pipeline.map_or(Manager::Independent, |pipeline| pipeline.manager);
    let window = pipeline.map_or(0, |pipeline| pipeline.window.initial);
    Some(Head::new(queue.clone(), manager, window, live.number()))
}

/// Returns the canonical name of the provider that serves all labels, which identifies its cell
/// (L2.2, L3.4). The error says why no provider does.
fn provider_for(offers: &LabelOffers<'_>, labels: &[LabelName]) -> Result<ProviderName, String> {
    match offers.offer(labels.iter().map(LabelName::as_str)) {
        LabelOffer::Provider(provider) => Ok(ProviderName(provider.canonical_name.clone())),
        other => Err(other.refusal().unwrap_or_default()),
    }
}

#[async_trait]
impl Reconciler for Gate {
    /// Reconciles the queue of a wakeup: after an answer only the answers are read, otherwise the
    /// whole queue. Any other wakeup is an error.
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Queue { queue } => self.drain(queue, DrainScope::Whole, reception).await,
            Wakeup::Answer { queue } => self.drain(queue, DrainScope::Answers, reception).await,
            other => {
                Err(ReconcileError::Retry(format!("the gate cannot handle the wakeup {other:?}")))
            }
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
