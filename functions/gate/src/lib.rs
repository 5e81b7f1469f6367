//! The gate: one queue cell is loaded, decided on, committed and delivered, until nothing more can be decided.
//!
//! It waits on nothing but the store: what must be asked of forges, clouds or git is somebody else's work, asked for by a poke.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod carry_out;
mod load;

use async_trait::async_trait;
use sluice_config::layout::{Layout, ProviderConfig};
use sluice_config::pipeline::Manager;
use sluice_gate::Head;
use sluice_gate::plan::{Snapshot, plan};
use sluice_model::git::BranchKey;
use sluice_model::poke::Poke;
use sluice_model::{LabelName, ProviderName, QueueKey};
use sluice_records::layout::{Layouts, Live};
use sluice_runtime::batch::{Look, LookError};
use sluice_runtime::{Ports, Saved, cell};

/// Moves that one look may make; more are left to the next one.
const MOVES_MAX: u32 = 40;

/// Looks at queues.
pub struct Gate {
    ports: Ports,
    layouts: Layouts,
    web_root: String,
}

impl Gate {
    /// Makes a gate; `web_root` is the address of the pages, ending in `/`, that reports point to.
    pub fn new(ports: Ports, web_root: impl Into<String>) -> Self {
        Self { ports, layouts: Layouts::default(), web_root: web_root.into() }
    }

    /// Moves one queue as far as it can go. Safe to run twice: the second run plans from what the first committed.
    pub async fn drain(&self, queue: &QueueKey) -> Result<(), LookError> {
        for _ in 0..MOVES_MAX {
            let Some(live) = self.layouts.live(&self.ports, &queue.tenant).await? else {
                return Err(LookError::Again(format!("tenant {} has no layout yet", queue.tenant)));
            };
            let mut loaded = load::load(&self.ports, queue, live.tenant.layout.live).await?;
            if loaded.queue.is_frozen {
                tracing::error!(%queue, "the queue is frozen; an operator has to look at it");
                return Ok(());
            }
            let merge_mode = |branch: &BranchKey| live.layout.merge_mode(&branch.project, branch.branch.as_str());
            let provider = |labels: &[LabelName]| provider_for(&live.layout, labels);
            let Some(head) = head(queue, &live, &loaded) else { return Ok(()) };
            let snapshot = Snapshot {
                head,
                items: loaded.queue.items.values().map(|(_, item)| (item.id.clone(), item.clone())).collect(),
                arrivals: loaded.queue.arrivals.clone(),
                outcomes: std::mem::take(&mut loaded.outcomes),
                runs: std::mem::take(&mut loaded.runs),
                landings: loaded.landings.clone(),
                pipeline: live.layout.pipeline(queue.pipeline.as_str()),
                merge_mode: &merge_mode,
                provider: &provider,
                layout: live.tenant.layout,
                web_root: self.web_root.clone(),
            };
            let now = self.ports.clock.now();
            let plan = plan(snapshot, now);
            for reason in &plan.reasons {
                tracing::info!(%queue, "{reason}");
            }
            if plan.is_empty() {
                return self.settle(loaded, plan, queue).await;
            }
            let carried = carry_out::carry_out(queue, &live, loaded, plan, now)?;
            match cell::commit(&self.ports, carried.commit).await? {
                Saved::Stale => continue,
                Saved::Yes(mut head) if carried.more => {
                    // Sent now; struck off by the next commit of this loop, or by its end.
                    cell::send(&self.ports, &head.outbox).await?;
                    cell::strike(&self.ports, &mut head).await?;
                }
                Saved::Yes(mut head) => return Ok(cell::deliver(&self.ports, &mut head).await?),
            }
        }
        // Bounded: whoever is left is looked at by a further message.
        Ok(cell::send(&self.ports, &[Poke::Queue { queue: queue.clone() }]).await?)
    }

    /// Nothing to decide: an earlier run may have died before it sent its outbox.
    async fn settle(&self, loaded: load::Loaded, plan: sluice_gate::Plan, queue: &QueueKey) -> Result<(), LookError> {
        let reminders: Vec<Poke> = plan
            .reminders
            .iter()
            .filter_map(|item| loaded.landings.get(item))
            .map(sluice_records::landing::poke)
            .collect();
        cell::send(&self.ports, &reminders).await?;
        let Some(mut head) = loaded.queue.head_record else { return Ok(()) };
        cell::deliver(&self.ports, &mut head).await?;
        let due = carry_out::due(queue, plan.due);
        let late = head.due.as_ref().is_some_and(|due| due.at <= self.ports.clock.now());
        if late || head.due.is_some() != due.is_some() {
            // A look that found nothing to do moves the next one on; otherwise each sweep would find this queue again.
            cell::commit(&self.ports, sluice_runtime::Commit { head, others: Vec::new(), pokes: Vec::new(), due })
                .await?;
        }
        Ok(())
    }
}

/// Returns the head as it was read, or a new one when something arrived at a queue that was never used.
fn head(queue: &QueueKey, live: &Live, loaded: &load::Loaded) -> Option<Head> {
    if let Some(head) = &loaded.queue.head {
        return Some(head.clone());
    }
    if loaded.queue.arrivals.is_empty() {
        return None;
    }
    let pipeline = live.layout.pipeline(queue.pipeline.as_str());
    let manager = pipeline.map_or(Manager::Independent, |pipeline| pipeline.manager);
    let window = pipeline.map_or(0, |pipeline| pipeline.window.initial);
    Some(Head::new(queue.clone(), manager, window, live.tenant.layout.live))
}

/// Returns the most preferred provider that offers all labels, by its canonical name, which names its cell (L2.2, L3.4).
fn provider_for(layout: &Layout, labels: &[LabelName]) -> Option<ProviderName> {
    let offers = |provider: &&ProviderConfig| {
        labels.iter().all(|label| {
            provider.labels.iter().any(|offered| offered.name == *label)
                || provider.nodes.iter().any(|node| node.labels.iter().any(|offered| offered == label.as_str()))
        })
    };
    layout.providers().iter().find(offers).map(|provider| ProviderName(provider.canonical_name.clone()))
}

#[async_trait]
impl Look for Gate {
    async fn look(&self, poke: &Poke) -> Result<(), LookError> {
        match poke {
            Poke::Queue { queue } => self.drain(queue).await,
            other => Err(LookError::Again(format!("the gate was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
