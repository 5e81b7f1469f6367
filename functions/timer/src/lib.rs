//! The timer: sends what is due, counts what is past its bound, passes delayed pokes on, gives dead
//! letters another life, and has forges asked for what they never told.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod account;
mod dead;
mod sweep;

use crate::sweep::Failures;
use async_trait::async_trait;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::poke::Poke;
use sluice_model::{ConnectionName, DeliveryId, ProjectName, Timestamp};
use sluice_records::codec::decode_foreign;
use sluice_records::connection;
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::batch::{Heard, Look, LookError};
use sluice_runtime::port::DUE_SHARDS;
use sluice_runtime::record::{Due, Key};
use sluice_runtime::{Commit, Ports, cell};
use std::collections::BTreeSet;

/// Records of one shard that one sweep looks at; the next one goes on.
pub const SWEEP_MAX: usize = 500;

/// Records that are read in one call.
const READS_MAX: usize = 100;

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
    /// The first thing that failed, once everything else was done; the next minute goes on.
    pub async fn tick(&self) -> Result<(), LookError> {
        let now = self.ports.clock.now();
        // Each goes on past the others' failures: what mends everything else must not stop at one
        // bad record.
        let mut failures = Failures::default();
        for shard in 0..DUE_SHARDS {
            self.send_due(shard, now, &mut failures).await;
        }
        if let Err(error) = self.account(now, &mut failures).await {
            failures.note("count what is past its bound", error);
        }
        // Ticks come a minute apart, more or less: one may come right before the minute in which
        // forges are asked, and the next right after it, or not come to an end. So the minute after
        // has those asked that were not.
        let minute = (now.seconds() / 60) % self.ask_minutes;
        if minute <= 1
            && let Err(error) = self.ask_forges(now, minute == 1, &mut failures).await
        {
            failures.note("ask forges", error);
        }
        failures.end()
    }

    /// Stores a sweep for every project of every tenant; the delivery's id holds the time's slot,
    /// so that two timers make one. Once more it looks first which are stored.
    async fn ask_forges(
        &self,
        now: Timestamp,
        once_more: bool,
        failures: &mut Failures,
    ) -> Result<(), LookError> {
        let connections = connection::load(&self.ports).await?;
        let slot = now.seconds() / 60 / self.ask_minutes;
        let mut projects: BTreeSet<ProjectName> = BTreeSet::new();
        for name in tenant::listed(&self.ports).await? {
            let record = sluice_records::codec::get(&self.ports, &tenant::key(&name)).await?;
            let Some(tenant) = record.as_ref().and_then(decode_foreign::<Tenant>) else { continue };
            match tenant::projects(&self.ports, &tenant).await {
                Ok(known) => projects.extend(known),
                Err(error) => failures.note("read the projects of a tenant", error),
            }
        }
        failures.went_well();
        let mut sweeps: Vec<(ProjectName, Delivery)> = Vec::new();
        for project in projects {
            // Only a forge whose API can be called tells what is open: a plain git server tells of
            // no changes. Where several lead to the host, intake leaves those alone by which no
            // tenant has the project.
            for (connection, _) in
                connections.of_host(project.host()).into_iter().filter(|(_, its)| its.is_asked())
            {
                sweeps.push((project.clone(), sweep_of(connection, &project, now, slot)));
            }
        }
        for sweeps in sweeps.chunks(READS_MAX) {
            let keys: Vec<Key> =
                sweeps.iter().map(|(_, sweep)| delivery::key(&id_of(sweep))).collect();
            let stored = if once_more {
                self.ports.records.get(&keys).await?
            } else {
                vec![None; keys.len()]
            };
            for ((project, sweep), _) in
                sweeps.iter().zip(stored).filter(|(_, stored)| stored.is_none())
            {
                if failures.are_too_many() {
                    return Ok(());
                }
                self.ask(project, sweep, now, failures).await;
            }
        }
        Ok(())
    }

    /// Stores a sweep of a project by one connection.
    async fn ask(
        &self,
        project: &ProjectName,
        asked: &Delivery,
        now: Timestamp,
        failures: &mut Failures,
    ) {
        let id = id_of(asked);
        let poke = Poke::Delivery { delivery: id.clone(), project: project.clone() };
        // Due by itself, with the same poke: whether it is sent needs no writing down.
        let due = Some(Due { at: now.plus_seconds(60), poke: poke.clone() });
        let head = match delivery::record(&id, asked) {
            Ok(head) => head,
            Err(error) => return failures.note("have open changes asked for", error),
        };
        let commit = Commit { head, others: Vec::new(), pokes: vec![poke], due };
        match cell::commit_and_send(&self.ports, commit).await {
            Ok(_) => failures.went_well(),
            Err(error) => failures.note("have open changes asked for", error),
        }
    }
}

/// Returns the delivery that has a forge asked for what it never told of a project.
fn sweep_of(
    connection: &ConnectionName,
    project: &ProjectName,
    now: Timestamp,
    slot: u64,
) -> Delivery {
    Delivery {
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
    }
}

fn id_of(sweep: &Delivery) -> DeliveryId {
    delivery::id(&sweep.connection, &sweep.forge_id)
}

#[async_trait]
impl Look for Timer {
    /// Passes on what a wake holds; a dead letter is what it was, once more.
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Wake { then, .. } => Ok(cell::send(&self.ports, &[(**then).clone()]).await?),
            dead => self.revive(dead, heard).await,
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
