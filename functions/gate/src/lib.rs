//! The gate: one queue cell is loaded, decided on, committed and delivered, until nothing more can
//! be decided.
//!
//! It waits on nothing but the store: what must be asked of forges, clouds or git is somebody
//! else's work, asked for by a poke.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod aside;
mod carry_out;
mod doors;
mod load;
mod provided;
mod semaphores;
mod sessions;
mod turns;

use crate::load::{Kept, Loaded, Reader};
use async_trait::async_trait;
use sluice_config::layout::{Layout, ProviderConfig};
use sluice_config::pipeline::Manager;
use sluice_gate::plan::{Hold, Plan, Snapshot, plan};
use sluice_gate::{Arrival, ArrivalKind, ChangesLimit, Head, Health, Item, filter};
use sluice_model::change::ChangeRef;
use sluice_model::event::ZuulEvent;
use sluice_model::git::BranchKey;
use sluice_model::hold::EventsHold;
use sluice_model::poke::Poke;
use sluice_model::{LabelName, PipelineName, ProviderName, QueueKey};
use sluice_records::codec::{decode, get};
use sluice_records::layout::{Layouts, Live};
use sluice_records::{health, queue, tenant};
use sluice_runtime::batch::{Heard, Look, LookError};
use sluice_runtime::record::Record;
use sluice_runtime::{Commit, Ports, Saved, cell};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Moves that one look may make; more are left to the next one.
const MOVES_MAX: u32 = 40;

/// Cells that are kept in memory, and the items that all but the newest of them may have together.
const KEPT_MAX: usize = 64;
const KEPT_ITEMS_MAX: usize = 4_000;

/// What of a queue a look is asked to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// Answers that it waits for: merge outcomes, runs, landings.
    Answers,
}

/// The target of lines that people want to see as they happen: which change entered, is to land,
/// left.
pub const NEWS: &str = "sluice::news";

/// Looks at queues.
pub struct Gate {
    ports: Ports,
    layouts: Layouts,
    web_root: String,
    /// What this instance is called where it measures by its own clock.
    name: String,
    /// Cells as they were left. One is used only where the store's head is still the one that is
    /// kept.
    kept: Mutex<VecDeque<(QueueKey, Kept)>>,
}

impl Gate {
    /// Makes a gate; `web_root` is the address of the pages, ending in `/`, that reports point to.
    pub fn new(ports: Ports, web_root: impl Into<String>) -> Self {
        let name = ports.entropy.token();
        Self {
            ports,
            layouts: Layouts::default(),
            web_root: web_root.into(),
            name,
            kept: Mutex::default(),
        }
    }

    /// Moves one queue as far as it can go. Safe to run twice: the second run plans from what the
    /// first committed.
    pub async fn drain(&self, queue: &QueueKey, part: Part, heard: Heard) -> Result<(), LookError> {
        let reader =
            Reader { ports: &self.ports, layouts: &self.layouts, key: queue, name: &self.name };
        let mut loaded = match (self.take(queue), part) {
            (Some(kept), Part::Answers) => reader.answers(kept).await?,
            (kept, _) => reader.whole(kept).await?,
        };
        self.hear(&mut loaded, heard).await?;
        let mut has_taken = false;
        for _ in 0..MOVES_MAX {
            if loaded.queue.is_frozen {
                tracing::error!(%queue, "the queue is frozen; look at it, then let it go on with `sluice queue thaw`");
                return Ok(());
            }
            let changes = self.changes(queue, &loaded).await?;
            let failures = self.failures(queue, &loaded.live).await?;
            let health = failures.as_ref().map(|(_, health)| health.clone());
            let Some(mut plan) = self.plan(queue, &loaded, changes, health) else { return Ok(()) };
            for reason in &plan.reasons {
                tracing::info!(%queue, "{reason}");
            }
            if plan.is_empty() {
                self.settle(&mut loaded, plan, queue).await?;
                return self.rest(queue, loaded, has_taken).await;
            }
            has_taken |= !plan.taken.is_empty();
            // Whom it asks to make way may have heard of it by the next move.
            let asks = plan
                .forwards
                .iter()
                .any(|(_, asked)| matches!(asked.kind, ArrivalKind::MakeWay { .. }));
            let moves_others = plan.wants_layout
                || plan.poke_tenant
                || !plan.semaphores.is_empty()
                || !plan.doors.is_empty()
                || asks;
            let news = news(queue, &loaded, &plan);
            let (counted, now) = (plan.health.take(), self.ports.clock.now());
            let mut carried = carry_out::carry_out(queue, &loaded, plan, now)?;
            if let (Some(counted), Some((seen, _))) = (counted, &failures) {
                carried.commit.others.push(health::put(seen.as_ref(), &counted, now)?);
            }
            match cell::commit_and_send(&self.ports, carried.commit).await? {
                Saved::Stale => {
                    // Somebody else wrote the cell, and may not have sent what he wrote.
                    loaded = reader.whole(Some(loaded.kept())).await?;
                    self.hear(&mut loaded, Heard::Again).await?;
                }
                Saved::Yes(head) => {
                    if let Some(why) = frozen_by(&loaded.queue, &carried.after) {
                        tracing::error!(
                            %queue,
                            why,
                            "a queue is frozen; look at it, then let it go on with `sluice queue thaw`"
                        );
                    }
                    for line in &news {
                        tracing::info!(target: NEWS, tenant = %queue.tenant, "{line}");
                    }
                    // The next move goes on from what is written; what was read besides is as true
                    // as it was.
                    loaded.queue = queue::Loaded { head_record: Some(head), ..carried.after };
                    loaded.turns.extend(carried.turns);
                    if !carried.more {
                        return self.rest(queue, loaded, has_taken).await;
                    }
                    if moves_others {
                        loaded = reader.whole(Some(loaded.kept())).await?;
                        self.hear(&mut loaded, Heard::First).await?;
                    }
                }
            }
        }
        // Bounded: whoever is left is looked at by a further message.
        Ok(cell::send(&self.ports, &[Poke::Queue { queue: queue.clone() }]).await?)
    }

    /// Leaves a queue that goes no further, and has it looked at again where more arrived than was
    /// looked at.
    async fn rest(
        &self,
        queue: &QueueKey,
        loaded: Loaded,
        has_taken: bool,
    ) -> Result<(), LookError> {
        let goes_on = has_taken && loaded.queue.is_cut;
        self.keep(queue, loaded);
        match goes_on {
            true => Ok(cell::send(&self.ports, &[Poke::Queue { queue: queue.clone() }]).await?),
            false => Ok(()),
        }
    }

    /// Returns how many changes the pipeline may hold, and how many are in its other queues where
    /// something wants to enter.
    async fn changes(
        &self,
        queue: &QueueKey,
        loaded: &Loaded,
    ) -> Result<Option<ChangesLimit>, LookError> {
        let Some(max) = loaded.live.layout.tenant().max_changes_per_pipeline else {
            return Ok(None);
        };
        let enters = |arrival: &Arrival| matches!(arrival.kind, ArrivalKind::Enqueue { .. });
        let elsewhere = match loaded.queue.arrivals.iter().any(enters) {
            true => tenant::changes_elsewhere(&self.ports, queue).await?,
            false => 0,
        };
        Ok(Some(ChangesLimit { max, elsewhere }))
    }

    /// Reads how often items of the pipeline failed, where it is to be disabled after too many.
    /// Other queues count too, so it is read before each plan. A count that cannot be read keeps no
    /// queue of the pipeline from going on.
    async fn failures(
        &self,
        queue: &QueueKey,
        live: &Live,
    ) -> Result<Option<(Option<Record>, Health)>, LookError> {
        let pipeline = live.layout.pipeline(queue.pipeline.as_str());
        if pipeline.is_none_or(|pipeline| pipeline.disable_after_consecutive_failures.is_none()) {
            return Ok(None);
        }
        let record = get(&self.ports, &health::key(&queue.tenant, &queue.pipeline)).await?;
        let known = record.as_ref().and_then(|record| {
            let told = "a pipeline's failures are counted anew, and one that was disabled reports as usual again; nothing is to be done: the next count takes the record's place";
            decode::<Health>(record).inspect_err(|bad| tracing::error!(%queue, %bad, "{told}")).ok()
        });
        let known = known.unwrap_or_else(|| {
            Health::new(queue.tenant.clone(), queue.pipeline.clone(), live.number())
        });
        Ok(Some((record, known.under(live.number()))))
    }

    fn plan(
        &self,
        queue: &QueueKey,
        loaded: &Loaded,
        changes: Option<ChangesLimit>,
        health: Option<Health>,
    ) -> Option<Plan> {
        let live = &loaded.live;
        let merge_mode = |branch: &BranchKey| live.layout.merge_mode(&branch.project);
        let provider = |labels: &[LabelName]| provider_for(&live.layout, labels);
        let semaphore = |name: &str| semaphores::named(&live.layout, &queue.tenant, name);
        let queue_of = |name: &PipelineName, change: &ChangeRef| {
            let pipeline = live.layout.pipeline(name.as_str())?;
            Some(sluice_gate::queue::queue_of(&live.layout, &queue.tenant, pipeline, change))
        };
        let snapshot = Snapshot {
            head: head(queue, live, &loaded.queue)?,
            items: loaded.queue.items.values().map(|(_, item)| item.clone()).collect(),
            arrivals: loaded.queue.arrivals.clone(),
            outcomes: loaded.outcomes.clone(),
            runs: loaded.runs.clone(),
            landings: loaded.landings.clone(),
            reports: loaded.reports.clone(),
            provided: loaded.provided.clone(),
            doors: loaded
                .doors
                .iter()
                .map(|(change, known)| (change.clone(), known.door.clone()))
                .collect(),
            semaphores: loaded
                .semaphores
                .iter()
                .map(|(key, (_, known))| (key.clone(), known.clone()))
                .collect(),
            gone: loaded.gone.clone(),
            idle: loaded.idle.clone(),
            turns: loaded
                .turns
                .iter()
                .map(|(branch, known)| (branch.clone(), known.seen.clone()))
                .collect(),
            semaphore: &semaphore,
            pipeline: live.layout.pipeline(queue.pipeline.as_str()),
            queue_of: &queue_of,
            merge_mode: &merge_mode,
            provider: &provider,
            changes,
            health,
            hold: hold(&live.tenant.events),
            tells: tells(&live.layout, &queue.pipeline),
            layout: live.tenant.layout,
            web_root: self.web_root.clone(),
        };
        let mut plan = plan(snapshot, self.ports.clock.now());
        plan.due = plan.due.map(|due| loaded.look_at.map_or(due, |at| due.min(at)));
        Some(plan)
    }

    /// Sends what an earlier look may have died over; what is sent is not written again.
    async fn hear(&self, loaded: &mut Loaded, heard: Heard) -> Result<(), LookError> {
        let Some(head) = &mut loaded.queue.head_record else { return Ok(()) };
        if heard == Heard::Again {
            cell::send(&self.ports, &head.outbox).await?;
        }
        head.outbox.clear();
        Ok(())
    }

    /// Nothing to decide.
    async fn settle(
        &self,
        loaded: &mut Loaded,
        plan: Plan,
        queue: &QueueKey,
    ) -> Result<(), LookError> {
        let landings = plan.reminders.iter().filter_map(|item| loaded.landings.get(item));
        let reminders: Vec<Poke> = landings.map(sluice_records::landing::poke).collect();
        cell::send(&self.ports, &reminders).await?;
        let due = carry_out::due(queue, plan.due);
        let head = match &loaded.queue.head_record {
            Some(head) => head.clone(),
            // What arrived at a queue that was never used, and may not enter yet, is found again by
            // a head that is due alone: nobody pokes a queue that nothing stands in.
            None => match head(queue, &loaded.live, &loaded.queue).filter(|_| due.is_some()) {
                Some(new) => carry_out::head_record(&loaded.queue, &new, self.ports.clock.now())?,
                None => return Ok(()),
            },
        };
        let late = head.due.as_ref().is_some_and(|due| due.at <= self.ports.clock.now());
        let sooner =
            due.as_ref().zip(head.due.as_ref()).is_some_and(|(due, before)| due.at < before.at);
        // What arrived and may not enter yet is known to whoever read the whole cell. Another
        // instance that keeps the cell learns of it by the head's new revision alone, or it would
        // let the queue fall asleep on it.
        let is_kept_waiting = !loaded.queue.arrivals.is_empty();
        if late || sooner || is_kept_waiting || head.due.is_some() != due.is_some() {
            // A look that found nothing to do moves the next one on; otherwise each sweep would
            // find this queue again.
            let plan = Commit { head, others: Vec::new(), pokes: Vec::new(), due };
            if let Saved::Yes(head) = cell::commit_and_send(&self.ports, plan).await? {
                loaded.queue.head_record = Some(head);
            }
        }
        Ok(())
    }

    fn take(&self, queue: &QueueKey) -> Option<Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(key, _)| key == queue)?;
        kept.remove(at).map(|(_, cell)| cell)
    }

    /// Keeps a cell for the next look, unless nothing stands in it.
    fn keep(&self, queue: &QueueKey, loaded: Loaded) {
        if loaded.queue.items.is_empty() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(key, _)| key != queue);
        kept.push_back((queue.clone(), loaded.kept()));
        while kept.len() > 1 && (kept.len() > KEPT_MAX || items_of(&kept) > KEPT_ITEMS_MAX) {
            kept.pop_front();
        }
    }
}

fn items_of(kept: &VecDeque<(QueueKey, Kept)>) -> usize {
    kept.iter().map(|(_, cell)| cell.queue.items.len()).sum()
}

/// Returns why a queue is frozen since a decision that found it otherwise.
fn frozen_by<'a>(before: &queue::Loaded, after: &'a queue::Loaded) -> Option<&'a str> {
    let was_frozen = before.head.as_ref().is_some_and(|head| head.frozen.is_some());
    let why = after.head.as_ref()?.frozen.as_deref();
    why.filter(|_| !was_frozen)
}

/// Returns what of a plan people want to hear of at once.
fn news(queue: &QueueKey, loaded: &Loaded, plan: &Plan) -> Vec<String> {
    let name = |change: &ChangeRef| change.key.to_string();
    let is_new = |item: &&Item| !loaded.queue.items.contains_key(&item.id);
    let entered = plan.items.values().filter(is_new);
    let entered =
        entered.map(|item| format!("{} entered {}", name(&item.candidate.change), queue.pipeline));
    let landing = plan
        .landings
        .iter()
        .map(|landing| format!("{} passed and is to land", name(&landing.change)));
    let left = plan.removed.iter().map(|removed| {
        let change = name(&removed.item.candidate.change);
        format!(
            "{change} left {}: {}: {}",
            queue.pipeline,
            removed.result,
            removed.why.lines().next().unwrap_or_default()
        )
    });
    entered.chain(landing).chain(left).collect()
}

/// Returns what of that which happens in a pipeline starts changes in some pipeline of the tenant.
fn tells(layout: &Layout, pipeline: &PipelineName) -> Vec<ZuulEvent> {
    let all = [ZuulEvent::ParentChangeEnqueued, ZuulEvent::ProjectChangeMerged];
    let starts = |what: &ZuulEvent| {
        layout.pipelines().iter().any(|other| filter::is_triggered_by_zuul(other, *what, pipeline))
    };
    all.into_iter().filter(starts).collect()
}

/// Returns what of that which operators hold back a queue has to do with.
fn hold(events: &EventsHold) -> Hold {
    Hold {
        discards: events.trigger_queue_discarding,
        pauses: events.trigger_queue_paused,
        results: events.result_queue_paused,
    }
}

/// Returns the head as it was read, or a new one when something arrived at a queue that was never
/// used.
fn head(queue: &QueueKey, live: &Live, loaded: &queue::Loaded) -> Option<Head> {
    if let Some(head) = &loaded.head {
        return Some(head.clone());
    }
    if loaded.arrivals.is_empty() {
        return None;
    }
    let pipeline = live.layout.pipeline(queue.pipeline.as_str());
    let manager = pipeline.map_or(Manager::Independent, |pipeline| pipeline.manager);
    let window = pipeline.map_or(0, |pipeline| pipeline.window.initial);
    Some(Head::new(queue.clone(), manager, window, live.number()))
}

/// Returns the most preferred provider that offers all labels, by its canonical name, which names
/// its cell (L2.2, L3.4).
fn provider_for(layout: &Layout, labels: &[LabelName]) -> Option<ProviderName> {
    let offers = |provider: &&ProviderConfig| {
        labels.iter().all(|label| {
            provider.labels.iter().any(|offered| offered.name == *label)
                || provider
                    .nodes
                    .iter()
                    .any(|node| node.labels.iter().any(|offered| offered == label.as_str()))
        })
    };
    layout
        .providers()
        .iter()
        .find(offers)
        .map(|provider| ProviderName(provider.canonical_name.clone()))
}

#[async_trait]
impl Look for Gate {
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Queue { queue } => self.drain(queue, Part::Whole, heard).await,
            Poke::Answer { queue } => self.drain(queue, Part::Answers, heard).await,
            other => Err(LookError::Again(format!("the gate was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
