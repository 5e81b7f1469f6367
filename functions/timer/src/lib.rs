//! The timer: wakes what is due, counts overdue work, passes delayed wakeups on, sends dead letters
//! again, and starts the sweeps and polls of projects.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod account;
mod dead;
mod polls;
mod sweep;

use crate::sweep::Failures;
use async_trait::async_trait;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::wakeup::Wakeup;
use sluice_model::{ConnectionName, DeliveryId, ProjectName, Timestamp};
use sluice_records::codec::{decode_or_log, get_all};
use sluice_records::connection::{self, ConnectionsFile};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use sluice_runtime::port::DUE_SHARDS;
use sluice_runtime::record::{Due, Key};
use sluice_runtime::{CellCommit, Ports, cell};
use std::collections::BTreeSet;

/// The most records of one shard that one sweep processes; the next one continues.
pub const SWEEP_MAX: usize = 500;

/// The most records of one call.
const READS_MAX: usize = 100;

/// Minutes between two sweeps of a project.
pub const ASK_MINUTES: u64 = 10;

/// The connections and the projects of all tenants.
struct ProjectsAtForges {
    connections: ConnectionsFile,
    projects: BTreeSet<ProjectName>,
}

/// Sweeps and passes on.
pub struct Timer {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The minutes between two sweeps of a project.
    ask_minutes: u64,
}

impl Timer {
    /// Creates a timer that has each project compared with its forge every `ask_minutes`; 0 counts
    /// as 1.
    pub fn new(ports: Ports, ask_minutes: u64) -> Self {
        Self { ports, ask_minutes: ask_minutes.max(1) }
    }

    /// Does the work of one minute, and so runs each minute: wakes what is due, counts and wakes
    /// overdue work, and starts the sweeps of projects that are due. The error is the first
    /// failure, after everything else was done; the next minute continues.
    pub async fn tick(&self) -> Result<(), ReconcileError> {
        let now = self.ports.clock.now();
        // Each part continues past the failures of others: one bad record must not stop all
        // recovery.
        let mut failures = Failures::default();
        for shard in 0..DUE_SHARDS {
            self.send_due(shard, now, &mut failures).await;
        }
        if let Err(error) = self.account(now, &mut failures).await {
            failures.note("count overdue work", error);
        }
        if let Err(error) = self.start_sweeps_and_polls(now, &mut failures).await {
            failures.note("start the sweeps and polls of projects", error);
        }
        failures.end()
    }

    /// Starts the sweeps of projects, if they are due, and the polls of this minute. Reads the
    /// tenants once for both, and not at all if nothing is due and no connection is polled.
    /// Failures of sweeps, and those to read the projects of a tenant, are added to `failures`. An
    /// error if connections or tenants cannot be read, or polls cannot be started.
    async fn start_sweeps_and_polls(
        &self,
        now: Timestamp,
        failures: &mut Failures,
    ) -> Result<(), ReconcileError> {
        // Ticks come about a minute apart: one may come right before the minute of a sweep and the
        // next right after it, or a tick may be cut off. So the minute after it starts the sweeps
        // that are missing.
        let minute = (now.seconds() / 60) % self.ask_minutes;
        let connections = connection::load_if_stored(&self.ports).await?.unwrap_or_default();
        if minute > 1 && connections.polled().next().is_none() {
            return Ok(());
        }
        let projects = self.projects_of_tenants(failures).await?;
        let found = ProjectsAtForges { connections, projects };
        if minute <= 1
            && let Err(error) = self.start_sweeps(&found, now, minute == 1, failures).await
        {
            failures.note("ask forges", error);
        }
        self.start_polls(&found, now, failures).await
    }

    /// Stores a sweep for every project of every tenant, for each connection to its host that reads
    /// changes, and wakes intake. A sweep of this time slot that is stored already is left as it
    /// is. With `once_more` the stored ones are read first, so that only missing ones are written.
    /// Failures to store a sweep are added to `failures`; after 20 failed sweeps in a row the rest
    /// is left out. An error only if stored sweeps cannot be read.
    async fn start_sweeps(
        &self,
        ProjectsAtForges { connections, projects }: &ProjectsAtForges,
        now: Timestamp,
        once_more: bool,
        failures: &mut Failures,
    ) -> Result<(), ReconcileError> {
        let slot = now.seconds() / 60 / self.ask_minutes;
        let mut sweeps: Vec<(ProjectName, DeliveryRecord)> = Vec::new();
        for project in projects {
            // Only forges with an API list open changes; a plain git server is polled. Where several
            // connections lead to the host, intake ignores those by which no tenant has the
            // project.
            for (connection, _) in connections
                .of_host(project.host())
                .into_iter()
                .filter(|(_, its)| its.supports_changes())
            {
                sweeps.push((project.clone(), sweep_of(connection, project, now, slot)));
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
                self.start_sweep(project, sweep, now, failures).await;
            }
        }
        Ok(())
    }

    /// Returns the projects of all tenants. A tenant whose record is missing or cannot be decoded is
    /// skipped. Failures to read the projects of a tenant are added to `failures`. An error only if
    /// the list of tenants or their records cannot be read.
    async fn projects_of_tenants(
        &self,
        failures: &mut Failures,
    ) -> Result<BTreeSet<ProjectName>, ReconcileError> {
        let mut projects: BTreeSet<ProjectName> = BTreeSet::new();
        let names = tenant::list_tenants(&self.ports).await?;
        let keys: Vec<Key> = names.iter().map(tenant::key).collect();
        for record in get_all(&self.ports, &keys).await?.values() {
            let Some(tenant) = decode_or_log::<Tenant>(record) else { continue };
            match tenant::projects(&self.ports, &tenant).await {
                Ok(of_tenant) => projects.extend(of_tenant),
                Err(error) => failures.note("read the projects of a tenant", error),
            }
        }
        failures.went_well();
        Ok(projects)
    }

    /// Stores the delivery that sweeps or polls a project by one connection, and wakes intake. If
    /// it is stored already, neither is done, and that counts as a success. Success and failure
    /// are counted in `failures`.
    async fn start_sweep(
        &self,
        project: &ProjectName,
        sweep: &DeliveryRecord,
        now: Timestamp,
        failures: &mut Failures,
    ) {
        let id = id_of(sweep);
        let wakeup = Wakeup::Delivery { delivery: id.clone(), project: project.clone() };
        // It has a due time with the same wakeup, so the outbox stays empty.
        let due = Some(Due { at: now.plus_seconds(60), wakeup: wakeup.clone() });
        let head = match delivery::record(&id, sweep) {
            Ok(head) => head,
            Err(error) => return failures.note("start the sweep of projects", error),
        };
        let commit = CellCommit { head, others: Vec::new(), wakeups: vec![wakeup], due };
        match cell::commit_and_send(&self.ports, commit).await {
            Ok(_) => failures.went_well(),
            Err(error) => failures.note("start the sweep of projects", error),
        }
    }
}

/// Returns the accepted delivery that makes intake sweep a project by one connection. Its id is the
/// same for all sweeps of one time slot `slot`.
fn sweep_of(
    connection: &ConnectionName,
    project: &ProjectName,
    now: Timestamp,
    slot: u64,
) -> DeliveryRecord {
    DeliveryRecord {
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

/// Returns the id of a sweep's delivery.
fn id_of(sweep: &DeliveryRecord) -> DeliveryId {
    delivery::id(&sweep.connection, &sweep.forge_id)
}

#[async_trait]
impl Reconciler for Timer {
    /// Sends the wakeup that a `Wake` contains at once, because the queue has delayed the `Wake`.
    /// Any other wakeup counts as a dead letter and is sent again, or dropped, as by
    /// `Timer::revive`.
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Wake { then, .. } => Ok(cell::send(&self.ports, &[(**then).clone()]).await?),
            dead => self.revive(dead, reception).await,
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
