//! The timer: sends what is due, passes delayed pokes on, gives dead letters another life, and has forges asked for what they never told.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

use async_trait::async_trait;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::poke::Poke;
use sluice_model::{ProjectName, Timestamp};
use sluice_records::codec::decode;
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::tenant::{self, Tenant};
use sluice_records::{connection, landing, provider, queue, report};
use sluice_runtime::batch::{Look, LookError};
use sluice_runtime::port::DUE_SHARDS;
use sluice_runtime::record::{Due, Key};
use sluice_runtime::{Commit, Ports, cell};
use std::collections::BTreeSet;

/// Records of one shard that one sweep looks at; the next one goes on.
pub const SWEEP_MAX: usize = 500;

/// Minutes between two questions to a forge about one project's open changes.
pub const ASK_MINUTES: u64 = 10;

/// Sweeps and passes on.
pub struct Timer {
    ports: Ports,
    ask_minutes: u64,
}

impl Timer {
    /// Makes a timer that has forges asked every `ask_minutes`.
    pub fn new(ports: Ports, ask_minutes: u64) -> Self {
        Self { ports, ask_minutes: ask_minutes.max(1) }
    }

    /// Runs each minute: pokes whatever is due, and starts sweeps of projects whose turn it is.
    ///
    /// # Errors
    /// When the store or a queue does not answer; the next minute goes on.
    pub async fn tick(&self) -> Result<(), LookError> {
        let now = self.ports.clock.now();
        for shard in 0..DUE_SHARDS {
            self.send_due(shard, now).await?;
        }
        let unaccounted = self.unaccounted(now).await?;
        // CloudWatch reads the metric out of this line (embedded metric format); it must be 0.
        tracing::info!(unaccounted, "deliveries past their bound");
        if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
            println!("{}", metric(unaccounted, now));
        }
        if (now.seconds() / 60).is_multiple_of(self.ask_minutes) {
            self.ask_forges(now).await?;
        }
        Ok(())
    }

    /// Counts deliveries of the last day that did not end within their bound.
    async fn unaccounted(&self, now: Timestamp) -> Result<usize, LookError> {
        let before = format!("{:015}", now.0.saturating_sub(delivery::BOUND_SECONDS * 1_000));
        let keys = self.ports.records.find("open-deliveries", Some(&before), SWEEP_MAX).await?;
        Ok(keys.len())
    }

    /// Pokes what is due in one shard. The index only finds: the record, read by key, says whether it is still due.
    async fn send_due(&self, shard: u32, now: Timestamp) -> Result<(), LookError> {
        let keys: Vec<Key> = self.ports.records.due(shard, now, SWEEP_MAX).await?;
        let mut pokes = BTreeSet::new();
        for page in keys.chunks(100) {
            for mut record in self.ports.records.get(page).await?.into_iter().flatten() {
                if record.look_at.is_none_or(|at| at > now) {
                    continue;
                }
                // Found before it is due itself: for an outbox that was left behind. Otherwise whoever is poked sees to it.
                if record.due.as_ref().is_none_or(|due| due.at > now) {
                    cell::deliver(&self.ports, &mut record).await?;
                }
                pokes.extend(record.due.filter(|due| due.at <= now).map(|due| due.poke));
            }
        }
        let pokes: Vec<Poke> = pokes.into_iter().collect();
        Ok(cell::send(&self.ports, &pokes).await?)
    }

    /// Sends the outbox of the head that a dead letter was about: the looks that it led to may have died before they could.
    async fn send_left_behind(&self, dead: &Poke) -> Result<(), LookError> {
        let Some(key) = head_of(dead) else { return Ok(()) };
        let Some(record) = sluice_records::codec::get(&self.ports, &key).await? else { return Ok(()) };
        Ok(cell::send(&self.ports, &record.outbox).await?)
    }

    /// Stores a sweep for every project of every tenant; the delivery's id holds the time's slot, so that two timers make one.
    async fn ask_forges(&self, now: Timestamp) -> Result<(), LookError> {
        let connections = connection::load(&self.ports).await?;
        let slot = now.seconds() / 60 / self.ask_minutes;
        let mut projects: BTreeSet<ProjectName> = BTreeSet::new();
        for name in tenant::listed(&self.ports).await? {
            let record = sluice_records::codec::get(&self.ports, &tenant::key(&name)).await?;
            if let Some(record) = record {
                projects.extend(tenant::projects(&self.ports, &decode::<Tenant>(&record)?).await?);
            }
        }
        for project in projects {
            let Some((connection, _)) = connections.by_host(project.host()) else { continue };
            let asked = Delivery {
                connection: connection.clone(),
                forge_id: format!("sweep:{project}:{slot}"),
                event_name: "sweep".to_owned(),
                received_at: now,
                event: Some(ForgeEvent {
                    connection: connection.clone(),
                    project: project.clone(),
                    sender: String::new(),
                    kind: EventKind::Sweep,
                }),
                state: DeliveryState::Accepted,
            };
            let id = delivery::id(connection, &asked.forge_id);
            let poke = Poke::Delivery { delivery: id.clone(), project };
            // Due by itself, with the same poke: whether it is sent needs no writing down.
            let due = Some(Due { at: now.plus_seconds(60), poke: poke.clone() });
            let head = delivery::record(&id, &asked)?;
            cell::commit_and_send(&self.ports, Commit { head, others: Vec::new(), pokes: vec![poke], due }).await?;
        }
        Ok(())
    }
}

/// Returns the key of the head that a look at a poke commits on, where it leaves its outbox to its message.
fn head_of(poke: &Poke) -> Option<Key> {
    match poke {
        Poke::Delivery { delivery, .. } => Some(delivery::key(delivery)),
        Poke::Queue { queue } | Poke::Answer { queue } => Some(queue::head_key(queue)),
        Poke::Tenant { tenant } => Some(tenant::key(tenant)),
        Poke::Pool { provider } => Some(provider::head_key(provider)),
        Poke::Report { report, .. } => Some(match landing::parse(report) {
            Some((item, generation)) => landing::key(&item, generation),
            None => report::key(report),
        }),
        Poke::Merge { .. } | Poke::Build { .. } | Poke::Image { .. } | Poke::Wake { .. } => None,
    }
}

/// Returns the line that CloudWatch takes the metric `Sluice/UnaccountedDeliveries` from.
fn metric(unaccounted: usize, now: Timestamp) -> String {
    let stack = std::env::var("SLUICE_STACK").unwrap_or_else(|_| "sluice".to_owned());
    serde_json::json!({
        "_aws": {
            "Timestamp": now.0,
            "CloudWatchMetrics": [{
                "Namespace": "Sluice",
                "Dimensions": [["Stack"]],
                "Metrics": [{"Name": "UnaccountedDeliveries", "Unit": "Count"}],
            }],
        },
        "Stack": stack,
        "UnaccountedDeliveries": unaccounted,
    })
    .to_string()
}

#[async_trait]
impl Look for Timer {
    /// Passes on what a wake holds; a dead letter is what it was, once more.
    async fn look(&self, poke: &Poke) -> Result<(), LookError> {
        let then = match poke {
            Poke::Wake { then, .. } => (**then).clone(),
            dead => {
                self.send_left_behind(dead).await?;
                tracing::error!(poke = ?dead, "a dead letter comes to life again; whatever kept it from being handled should be mended");
                Poke::Wake { then: Box::new(dead.clone()), delay_seconds: 300 }
            }
        };
        Ok(cell::send(&self.ports, &[then]).await?)
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
