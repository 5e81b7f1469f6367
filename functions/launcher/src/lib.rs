//! The launcher: loads one provider cell with what was observed outside, plans, commits, and then
//! acts.
//!
//! Actions outside (launch, terminate) follow the commit that intends them; each answer is a fact
//! for the next plan. A check changes nothing outside, so it may come before the commit.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod holds;
mod limits;
mod outside;

pub use outside::{Checks, SshChecks};

use crate::holds::Holds;
use crate::limits::{Configured, ConnectionInUse, ProviderSettings, TenantHeads};
use async_trait::async_trait;
use sluice_cloud::{CloudDriver, LaunchSettings};
use sluice_model::build::{Phase, Run};
use sluice_model::wakeup::Wakeup;
use sluice_model::{BuildId, ConnectionName, ProviderName, TenantName, Timestamp};
use sluice_pool::{
    BuildFact, NodeRequest, PoolAction, PoolChange, PoolFacts, PoolPlan, ProviderConnection,
    ProviderHead, ProviderLimits, RequestRow, RequestState, Snapshot, builds_to_observe, plan,
};
use sluice_records::build;
use sluice_records::codec::{decode_or_log, encode, encode_first, with_body};
use sluice_records::provider::{self, LoadedProvider};
use sluice_records::{queue_positions, tenant};
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{CellCommit, CommitOutcome, Ports, cell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// The most rounds of plan and action in one run; the next message continues.
const ROUNDS_MAX: u32 = 12;

/// Waits of this length and more are left to the due time; shorter ones use a delayed wakeup.
const SWEEP_SECONDS: u64 = 60;

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// The most requests whose waiting was logged that are remembered.
const WARNED_MAX: usize = 500;

/// Seconds that an executor has to end a stopped build before its nodes are taken away.
const STOPPED_SECONDS: u64 = 120;

/// A cloud, as the launcher uses it.
#[derive(Clone)]
pub struct Cloud {
    /// Launches, lists and terminates machines.
    pub driver: Arc<dyn CloudDriver>,
    /// The settings that all its machines share.
    pub site: LaunchSettings,
}

/// Reconciles providers.
pub struct Launcher {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The cached settings of providers.
    configured: Configured,
    /// The clouds by connection.
    clouds: BTreeMap<ConnectionName, Cloud>,
    /// Checks nodes that have booted.
    checks: Arc<dyn Checks>,
    /// Requests whose waiting was logged, the newest last.
    warned: Mutex<VecDeque<RequestRow>>,
}

/// A provider during one run: as it was read, then as the run's own commits left it. A concurrent
/// writer raises the revision of the head or a request, and the next commit fails.
struct ProviderRun {
    /// The provider.
    name: ProviderName,
    /// The provider's settings.
    found: ProviderSettings,
    /// The provider's records.
    loaded: LoadedProvider,
    /// Where builds were when the run began.
    builds: BTreeMap<BuildId, BuildFact>,
    /// How many changes were ahead of those of waiting requests in their shared queues when the run
    /// began.
    places: BTreeMap<RequestRow, usize>,
    /// The autohold requests.
    holds: Holds,
    /// Whether this run changed the due time.
    is_due_moved: bool,
}

impl ProviderRun {
    /// Returns whether a provider that waited until its nodes were deleted can have its new
    /// connection from the next read on.
    fn may_change_connection(&self) -> bool {
        let limits = &self.found.limits;
        limits.waits.is_some() && limits.unread_tenants.is_empty() && self.loaded.nodes.is_empty()
    }
}

/// The requests that wait for placement and whose changes may have moved.
struct WaitingRequests<'r> {
    /// Those of shared queues; only their queue's head has the position.
    in_shared_queues: Vec<&'r NodeRequest>,
    /// Those of independent pipelines.
    in_groups: Vec<&'r NodeRequest>,
}

/// What is read with a provider's cell at the beginning of a run.
#[derive(Default)]
struct InitialReads {
    /// The heads of the tenants of the requests.
    tenants: TenantHeads,
    /// The state of the builds that the plan needs.
    builds: BTreeMap<BuildId, BuildFact>,
    /// The current queue positions of waiting requests.
    places: BTreeMap<RequestRow, usize>,
}

impl Launcher {
    /// Creates a launcher for these clouds, by connection.
    pub fn new(
        ports: Ports,
        clouds: BTreeMap<ConnectionName, Cloud>,
        checks: Arc<dyn Checks>,
    ) -> Self {
        Self { ports, configured: Configured::default(), clouds, checks, warned: Mutex::default() }
    }

    /// Reconciles one provider as far as possible: plans, commits, carries out the actions, and
    /// plans again with their results. After 12 rounds it sends a wakeup to continue later. For a
    /// redelivered message (`reception`) it first sends the stored wakeups again. Does nothing if
    /// the provider is halted, or is unused and in no layout. Safe to run twice: launches carry
    /// tokens, terminations are repeated.
    ///
    /// The cell is read once; after a commit the run continues with what it wrote. The layout of
    /// the tenant `changed` is read again, whatever is cached.
    pub async fn drain(
        &self,
        name: &ProviderName,
        changed: Option<&TenantName>,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let (mut continued, mut facts) = (None, PoolFacts::default());
        for _ in 0..ROUNDS_MAX {
            let mut run = match continued.take() {
                Some(run) => run,
                None => match self.load(name, changed, reception).await? {
                    Some(run) => run,
                    None => return Ok(()),
                },
            };
            let connection = run.found.connection.as_ref().and_then(ProviderConnection::cloud);
            let cloud = connection.and_then(|connection| self.clouds.get(connection));
            let plan = self.plan(&run, std::mem::take(&mut facts), cloud).await;
            for reason in &plan.reasons {
                tracing::info!(provider = %name, "{reason}");
            }
            if plan.is_empty() && run.may_change_connection() {
                // The last node with its former connection is gone: the new one counts from here.
                continue;
            }
            if plan.is_empty() {
                return self.settle(run, plan.due).await;
            }
            let actions = plan.actions.clone();
            if self.commit(&mut run, plan).await? == Committed::Stale {
                continue;
            }
            facts = outside::act(actions, cloud, &*self.checks).await;
            continued = Some(run);
        }
        Ok(cell::send(&self.ports, &[Wakeup::Pool { provider: name.clone() }]).await?)
    }

    /// Reads a provider, its settings, and the builds that its plan needs, with the queue positions
    /// of waiting requests. If the plan needs no build and cached settings are less than a minute
    /// old, these are used, and queue positions are not read. `None` if the provider is halted, or
    /// unused and in no layout. A used provider in no layout gets limits by which it only releases
    /// its nodes. For a redelivered message it sends the provider's outbox again. If a tenant
    /// `changed`, its layout is read in any case.
    async fn load(
        &self,
        name: &ProviderName,
        changed: Option<&TenantName>,
        reception: Reception,
    ) -> Result<Option<ProviderRun>, ReconcileError> {
        let mut loaded = provider::load(&self.ports, name).await?;
        if loaded.is_halted {
            tracing::error!(provider = %name, "the provider is halted; repair it, then run `sluice provider resume`");
            return Ok(None);
        }
        let now = self.ports.clock.now();
        let head = loaded.head.clone().unwrap_or_else(|| ProviderHead::new(name.clone()));
        let (requests, nodes) =
            (loaded.requests.values().map(|(_, r)| r), loaded.nodes.values().map(|(_, n)| n));
        let waiting = WaitingRequests {
            in_shared_queues: queue_positions::may_have_moved(requests.clone(), now),
            in_groups: queue_positions::waiting_in_groups(requests.clone(), now),
        };
        let in_use = ConnectionInUse::new(&head, loaded.nodes.len());
        let build_ids: Vec<BuildId> =
            builds_to_observe(&head, requests, nodes, now).into_iter().collect();
        let (found, InitialReads { builds, places, .. }) = match self
            .configured
            .cached_if_fresh(name, &in_use, now)
            .filter(|_| build_ids.is_empty() && changed.is_none())
        {
            Some(found) => (found, InitialReads::default()),
            None => {
                let requests = loaded.requests.values().map(|(_, request)| request);
                let concerned = requesters(requests).into_iter().chain(changed.cloned());
                let tenants = self.configured.tenants_to_read(name, concerned.collect(), now);
                let mut seen = self.read_initial(tenants, &build_ids, &waiting).await?;
                let heads = std::mem::take(&mut seen.tenants);
                let found = self.configured.find(&self.ports, name, heads, &in_use, now).await?;
                let found = match found {
                    Some(found) => found,
                    None if is_unused(&loaded) => return Ok(None),
                    None => {
                        tracing::warn!(provider = %name, "no tenant's layout has this provider any more: it releases its nodes");
                        ProviderSettings {
                            connection: head.connection.clone(),
                            limits: ProviderLimits::retired(name.clone()),
                        }
                    }
                };
                (found, seen)
            }
        };
        if let Some(head) = &mut loaded.head_record {
            if reception == Reception::Redelivery {
                cell::send(&self.ports, &head.outbox).await?;
            }
            // It is sent: the message guards every commit of this run.
            head.outbox.clear();
        }
        let holds = self.holds(name, &loaded).await?;
        Ok(Some(ProviderRun {
            name: name.clone(),
            found,
            loaded,
            builds,
            places,
            holds,
            is_due_moved: false,
        }))
    }

    /// Reads the builds that a plan needs, and in the same call the heads of these tenants and the
    /// queue positions of the requests `waiting`. Each build has a fact; one without an order is
    /// gone. A position that was not found is left out.
    async fn read_initial(
        &self,
        tenants: BTreeSet<TenantName>,
        build_ids: &[BuildId],
        waiting: &WaitingRequests<'_>,
    ) -> Result<InitialReads, ReconcileError> {
        let of_builds = build_ids
            .iter()
            .flat_map(|id| [build::order_key(id), build::stop_key(id), build::run_key(id)]);
        let keys: Vec<Key> = of_builds
            .chain(tenants.iter().map(tenant::key))
            .chain(queue_positions::heads(&waiting.in_shared_queues))
            .collect();
        let mut found: BTreeMap<Key, Record> = BTreeMap::new();
        for page in keys.chunks(KEYS_MAX) {
            let records = self.ports.records.get(page).await?;
            found.extend(records.into_iter().flatten().map(|record| (record.key.clone(), record)));
        }
        let now = self.ports.clock.now();
        let fact = |id: &BuildId| {
            let at = |key: Key| found.get(&key);
            build_fact(
                at(build::order_key(id)),
                at(build::stop_key(id)),
                at(build::run_key(id)),
                now,
            )
        };
        let builds = build_ids.iter().map(|id| (id.clone(), fact(id))).collect();
        let mut places = queue_positions::current_places(&waiting.in_shared_queues, &found);
        places.extend(queue_positions::places_in_groups(&self.ports, &waiting.in_groups).await?);
        let head = |name: TenantName| {
            let record = found.remove(&tenant::key(&name));
            (name, record)
        };
        let tenants = tenants.into_iter().map(head).collect();
        Ok(InitialReads { tenants, builds, places })
    }

    /// Plans from the loaded cell, from `facts`, the results of the last actions, and, where
    /// needed, from a list of the cloud's machines. Without `cloud`, or if no region can be listed,
    /// which is logged, the plan is made without it. If the plan only checks nodes, the checks are
    /// carried out here, and a plan made with the answers is returned. Any other action is left to
    /// the caller.
    async fn plan(&self, run: &ProviderRun, facts: PoolFacts, cloud: Option<&Cloud>) -> PoolPlan {
        let taken_at = self.ports.clock.now();
        let mut snapshot = snapshot_of(run, with_initial_facts(run, facts));
        if let Some(cloud) = cloud
            && snapshot.needs_listing(taken_at)
        {
            snapshot.facts.listing =
                outside::list_machines(cloud, &run.name, regions(&snapshot), taken_at).await;
        }
        let now = self.ports.clock.now();
        let decided = plan(&snapshot, now);
        let is_check = |action: &PoolAction| matches!(action, PoolAction::Check(_));
        if decided.actions.is_empty() || !decided.actions.iter().all(is_check) {
            return decided;
        }
        // A check changes nothing outside, so the answers go into the same commit.
        let answers = outside::act(decided.actions, cloud, &*self.checks).await;
        snapshot.facts.checks.extend(answers.checks);
        plan(&snapshot, now)
    }

    /// Commits a plan, sends its wakeups and applies its records to the loaded cell. Returns
    /// [`Committed::Stale`] if a concurrent writer was faster; then nothing is stored or sent.
    /// After that, and after an error, `run` must be dropped and read again. Requests whose
    /// placement was given up are logged in any case. The plan's actions are left to the caller.
    async fn commit(
        &self,
        run: &mut ProviderRun,
        plan: PoolPlan,
    ) -> Result<Committed, ReconcileError> {
        let ProviderRun { name, loaded, .. } = &*run;
        let head = match &loaded.head_record {
            Some(record) => with_body(record.clone(), &plan.head)?,
            None => encode(provider::head_key(name), &plan.head)?,
        };
        let stored_due = head.due.as_ref().map(|due| due.at);
        let writes = plan
            .changes
            .iter()
            .map(|change| write(name, loaded, change))
            .collect::<Result<Vec<_>, _>>()?;
        let counted = run.holds.count_held(&plan.changes)?;
        let ProviderRun { name, .. } = &*run;
        for change in &plan.changes {
            self.warn_of_waiting(name, change);
        }
        let due = plan.due.map(|at| Due { at, wakeup: Wakeup::Pool { provider: name.clone() } });
        let others = writes.iter().cloned().chain(counted).collect();
        let commit = CellCommit { head, others, wakeups: plan.wakeups, due };
        let CommitOutcome::Written(record) = cell::commit_and_send(&self.ports, commit).await?
        else {
            return Ok(Committed::Stale);
        };
        run.is_due_moved |= plan.due != stored_due;
        run.holds.forget_removed(&plan.changes);
        run.loaded.head = Some(plan.head);
        run.loaded.head_record = Some(record);
        for (change, write) in plan.changes.into_iter().zip(writes) {
            take_in(&mut run.loaded, change, write);
        }
        Ok(Committed::Yes)
    }

    /// Logs that a placement was given up and the request waits for nodes again, so that a user at
    /// a terminal can see why nothing happens. Logs it once for each request in one process, as
    /// long as the request is among the last [`WARNED_MAX`] that were logged. Does nothing for
    /// other plan changes and for requests that only wait for capacity.
    fn warn_of_waiting(&self, name: &ProviderName, change: &PoolChange) {
        let PoolChange::PutRequest(request) = change else { return };
        // Waiting for capacity is normal in a busy pool; a placement that was given up is not.
        if request.state != RequestState::Requested || request.not_before == Timestamp(0) {
            return;
        }
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.contains(&request.row) {
            return;
        }
        warned.push_back(request.row.clone());
        if warned.len() > WARNED_MAX {
            warned.pop_front();
        }
        tracing::warn!(provider = %name, request = %request.row, "{} waits for nodes: {}", request.requestor, request.reason);
    }

    /// Ends a run that has nothing more to change; `due` is the plan's due time. Does nothing for a
    /// provider that was never stored. Stores the due time if the stored one is missing, too late,
    /// past or no longer needed. If this run changed the due time and it comes before the next
    /// sweep, sends a delayed wakeup too. If a concurrent writer was faster, nothing is sent and
    /// this is no error.
    async fn settle(&self, run: ProviderRun, due: Option<Timestamp>) -> Result<(), ReconcileError> {
        let Some(head) = run.loaded.head_record else { return Ok(()) };
        let new_due = due.map(|at| Due { at, wakeup: Wakeup::Pool { provider: run.name.clone() } });
        let now = self.ports.clock.now();
        // Written only when the due time would otherwise be too late, or found again and again.
        let is_late = match (&head.due, &new_due) {
            (None, None) => false,
            (Some(old), Some(new)) => old.at <= now || old.at > new.at,
            _ => true,
        };
        let next = if is_late { due } else { head.due.as_ref().map(|due| due.at) };
        if is_late {
            let commit = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: new_due };
            if cell::commit_and_send(&self.ports, commit).await? == CommitOutcome::Stale {
                // A concurrent writer planned with the same facts and set the due time.
                return Ok(());
            }
        }
        // One delayed wakeup for each due time, or they would multiply. The due time replaces a
        // lost one.
        match self.wake(&run.name, next).filter(|_| is_late || run.is_due_moved) {
            Some(wake) => Ok(cell::send(&self.ports, &[wake]).await?),
            None => Ok(()),
        }
    }

    /// Returns the delayed wakeup for a due time in less than a minute, at least one second later.
    /// `None` if there is no due time or the sweep is early enough.
    fn wake(&self, name: &ProviderName, due: Option<Timestamp>) -> Option<Wakeup> {
        let seconds = due?.since(self.ports.clock.now()).div_ceil(1_000);
        let then = Box::new(Wakeup::Pool { provider: name.clone() });
        // Never at once: a run that finds the same again would loop.
        let delay_seconds = u32::try_from(seconds).unwrap_or(u32::MAX).max(1);
        (seconds < SWEEP_SECONDS).then_some(Wakeup::Wake { then, delay_seconds })
    }
}

/// How a commit of a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Committed {
    Yes,
    /// A concurrent writer was first: everything is read again.
    Stale,
}

/// Returns the tenants of the requests that wait to be placed.
fn requesters<'r>(requests: impl Iterator<Item = &'r NodeRequest>) -> BTreeSet<TenantName> {
    let waiting = requests.filter(|request| request.state == RequestState::Requested);
    waiting.map(|request| request.queue.tenant.clone()).collect()
}

/// Returns `facts` with the builds, queue positions, released nodes and commands that were read at
/// the beginning of the run, which replace those in `facts`.
fn with_initial_facts(run: &ProviderRun, facts: PoolFacts) -> PoolFacts {
    let builds =
        run.builds.iter().chain(&run.holds.builds).map(|(id, fact)| (id.clone(), fact.clone()));
    PoolFacts {
        builds: builds.collect(),
        released: run.holds.released.clone(),
        queue_positions: run.places.clone(),
        commands: run.loaded.commands.clone(),
        ..facts
    }
}

/// Returns the input of the plan: the loaded cell, its limits and the observations. A provider
/// without a head gets a new one; the head names the connection of its nodes.
fn snapshot_of(run: &ProviderRun, facts: PoolFacts) -> Snapshot {
    let ProviderRun { name, found, loaded, .. } = run;
    let head = loaded.head.clone().unwrap_or_else(|| ProviderHead::new(name.clone()));
    Snapshot {
        // Written with the next commit; a machine is never launched before its record.
        head: ProviderHead { connection: found.connection.clone(), ..head },
        limits: found.limits.clone(),
        requests: loaded.requests.values().map(|(_, request)| request.clone()).collect(),
        nodes: loaded.nodes.values().map(|(_, node)| node.clone()).collect(),
        facts,
    }
}

/// Returns the regions that may have machines of a provider: those that its section names in each
/// tenant, and those of its nodes, since the section may have named another one when they were
/// launched. `None` is the connection's own region.
fn regions(snapshot: &Snapshot) -> BTreeSet<Option<String>> {
    let machines = snapshot.nodes.iter().filter(|node| !node.is_static());
    let mut regions = snapshot.limits.regions();
    regions.extend(machines.map(|node| node.region.clone()));
    regions
}

/// Returns whether a provider has no requests, no nodes and nothing due or unsent.
fn is_unused(loaded: &LoadedProvider) -> bool {
    let waits = loaded
        .head_record
        .as_ref()
        .is_some_and(|head| head.due.is_some() || !head.outbox.is_empty());
    loaded.requests.is_empty() && loaded.nodes.is_empty() && !waits
}

/// Replaces, adds or removes the record of one change in the loaded cell, as a commit has written
/// it. `write` must be the write of this change.
fn take_in(loaded: &mut LoadedProvider, change: PoolChange, write: Write) {
    match (change, write) {
        (PoolChange::PutRequest(request), Write::Put { record, .. }) => {
            loaded.requests.insert(request.row.clone(), (record, request));
        }
        (PoolChange::CreateNode(node) | PoolChange::PutNode(node), Write::Put { record, .. }) => {
            loaded.nodes.insert(node.id.clone(), (record, node));
        }
        (PoolChange::RemoveRequest(row), _) => drop(loaded.requests.remove(&row)),
        (PoolChange::RemoveNode(id), _) => drop(loaded.nodes.remove(&id)),
        (PoolChange::RemoveCommand(id), _) => loaded.commands.retain(|command| command.id != id),
        (PoolChange::PutRequest(_) | PoolChange::CreateNode(_) | PoolChange::PutNode(_), _) => {}
    }
}

/// Returns the state of a build from its order, its stop request and its run. Without an order it
/// is gone; without a run it is withdrawn after a stop, otherwise waiting. With a run it is
/// claimed, also if the run is unreadable, until the run has ended. A stopped run counts as ended
/// 120 seconds after the stop, or at once if its executor is dead and the run is readable.
fn build_fact(
    order: Option<&Record>,
    stop: Option<&Record>,
    run: Option<&Record>,
    now: Timestamp,
) -> BuildFact {
    match (order, stop, run) {
        (None, _, _) => BuildFact::Gone,
        (Some(_), None, None) => BuildFact::Waiting,
        (Some(_), Some(_), None) => BuildFact::Withdrawn,
        (Some(_), stop, Some(run)) => match decode_or_log::<Run>(run).map(|run| run.phase) {
            Some(Phase::Ended(_)) => BuildFact::Ended,
            // Its queue has to give up an unreadable run; no other build of the provider waits for
            // it.
            phase => {
                // The gate has given it up, and its executor is gone or had time to stop: its nodes
                // are not needed.
                let is_over = stop.map(build::decode_stop).is_some_and(|stop| {
                    (stop.executor_is_dead && phase.is_some())
                        || now.since(stop.at) > STOPPED_SECONDS * 1_000
                });
                if is_over { BuildFact::Ended } else { BuildFact::Claimed }
            }
        },
    }
}

/// Returns the write of one change. Each write is conditional on the record's revision in `loaded`,
/// or on its absence; for a request this matters because a claim changes it without the head. A
/// record to remove must be in `loaded`; a node to create must not.
fn write(
    name: &ProviderName,
    loaded: &LoadedProvider,
    change: &PoolChange,
) -> Result<Write, ReconcileError> {
    let put = |found: Option<&Record>, record: Record| {
        let revision = found.map_or(0, |found| found.revision);
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        Write::Put { record: Record { revision: revision + 1, ..record }, expect }
    };
    Ok(match change {
        PoolChange::PutRequest(request) => {
            let found = loaded.requests.get(&request.row).map(|(record, _)| record);
            put(found, provider::request_record(name, request)?)
        }
        PoolChange::RemoveRequest(row) => {
            let revision = loaded.requests.get(row).map_or(0, |(record, _)| record.revision);
            Write::Delete {
                key: provider::request_key(name, row),
                expect: Expect::Revision(revision),
            }
        }
        PoolChange::CreateNode(node) => Write::Put {
            record: encode_first(provider::node_key(name, &node.id), node)?,
            expect: Expect::Absent,
        },
        PoolChange::PutNode(node) => {
            let found = loaded.nodes.get(&node.id).map(|(record, _)| record);
            put(found, encode(provider::node_key(name, &node.id), node)?)
        }
        PoolChange::RemoveNode(id) => {
            let revision = loaded.nodes.get(id).map_or(0, |(record, _)| record.revision);
            Write::Delete { key: provider::node_key(name, id), expect: Expect::Revision(revision) }
        }
        // Commands never change, and the head's revision guards that each is applied once.
        PoolChange::RemoveCommand(id) => {
            Write::Delete { key: provider::command_key(name, id), expect: Expect::Anything }
        }
    })
}

#[async_trait]
impl Reconciler for Launcher {
    /// Reconciles the provider of a `Pool` or `ProviderChange` wakeup; any other wakeup is an
    /// error.
    async fn reconcile(&self, wakeup: &Wakeup, reception: Reception) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Pool { provider } => self.drain(provider, None, reception).await,
            Wakeup::ProviderChange { provider, tenant } => {
                self.drain(provider, Some(tenant), reception).await
            }
            other => Err(ReconcileError::Retry(format!(
                "the launcher received an unsupported wakeup: {other:?}"
            ))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
