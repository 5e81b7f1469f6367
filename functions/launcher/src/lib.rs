//! The launcher: one provider cell is loaded with what was seen outside, decided on, committed, and
//! then acted on.
//!
//! What is done outside (launch, terminate) happens after the commit that intends it; each answer
//! is a fact for the next plan. A check changes nothing outside, so it may go before.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod holds;
mod limits;
mod outside;
mod places;

pub use outside::{Checks, SshChecks};

use crate::holds::Holds;
use crate::limits::{Configured, Found};
use async_trait::async_trait;
use sluice_cloud::{Driver, Site, TagFilter};
use sluice_model::build::{Phase, Run};
use sluice_model::poke::Poke;
use sluice_model::{BuildId, ConnectionName, ProviderName, Timestamp};
use sluice_pool::{
    Action, BuildFact, Change, Facts, Listing, Plan, ProviderHead, ProviderLimits, Request,
    RequestState, Row, Snapshot, builds_to_look_at, plan,
};
use sluice_records::build;
use sluice_records::codec::{decode_foreign, encode, encode_first, with_body};
use sluice_records::provider::{self, Loaded};
use sluice_runtime::batch::{Heard, Look, LookError};
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{Commit, Ports, Saved, cell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Rounds of plan and action in one look; more are left to the next message.
const ROUNDS_MAX: u32 = 12;

/// Waits of this and more are left to the sweep of what is due; shorter ones go through the queue
/// of wakes.
const SWEEP_SECONDS: u64 = 60;

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Requests that are remembered so that it is said once that they wait.
const WARNED_MAX: usize = 500;

/// Seconds that an executor has to end a build that is to stop; then its nodes are taken away.
const STOPPED_SECONDS: u64 = 120;

/// A cloud, as the launcher uses it.
#[derive(Clone)]
pub struct Cloud {
    /// Launches, lists and terminates.
    pub driver: Arc<dyn Driver>,
    /// What is the same for all its machines.
    pub site: Site,
}

/// Looks at providers.
pub struct Launcher {
    ports: Ports,
    configured: Configured,
    clouds: BTreeMap<ConnectionName, Cloud>,
    checks: Arc<dyn Checks>,
    /// Requests of which it was said that they wait, the newest last.
    warned: Mutex<VecDeque<Row>>,
}

/// A provider in hand during one look: as it was read, then as this look's own commits left it.
/// Whoever else wrote it meanwhile raised the head's revision, or a request's, and the next commit
/// is lost.
struct Held {
    name: ProviderName,
    found: Found,
    loaded: Loaded,
    /// Where builds stood when the look began.
    builds: BTreeMap<BuildId, BuildFact>,
    /// How many changes stood before those of requests that wait, in their shared queues, when the
    /// look began.
    places: BTreeMap<Row, usize>,
    /// What operators want kept.
    holds: Holds,
    /// Whether this look moved the time of the next one.
    is_due_moved: bool,
}

/// What is read beside a provider's cell when a look begins.
#[derive(Default)]
struct Seen {
    /// The tenant that had the provider last.
    tenant: Option<Record>,
    builds: BTreeMap<BuildId, BuildFact>,
    places: BTreeMap<Row, usize>,
}

impl Launcher {
    /// Makes a launcher that reaches these clouds.
    pub fn new(
        ports: Ports,
        clouds: BTreeMap<ConnectionName, Cloud>,
        checks: Arc<dyn Checks>,
    ) -> Self {
        Self { ports, configured: Configured::default(), clouds, checks, warned: Mutex::default() }
    }

    /// Moves one provider as far as it can go. Safe to run twice: launches carry tokens,
    /// terminations are asked again.
    ///
    /// The cell is read once; after a commit the look goes on with what it wrote.
    pub async fn drain(&self, name: &ProviderName, heard: Heard) -> Result<(), LookError> {
        let (mut kept, mut facts) = (None, Facts::default());
        for _ in 0..ROUNDS_MAX {
            let mut held = match kept.take() {
                Some(held) => held,
                None => match self.load(name, heard).await? {
                    Some(held) => held,
                    None => return Ok(()),
                },
            };
            let cloud =
                held.found.connection.as_ref().and_then(|connection| self.clouds.get(connection));
            let plan = self.plan(&held, std::mem::take(&mut facts), cloud).await;
            for reason in &plan.reasons {
                tracing::info!(provider = %name, "{reason}");
            }
            if plan.is_empty() {
                return self.settle(held, plan.due).await;
            }
            let actions = plan.actions.clone();
            if self.commit(&mut held, plan).await? == Committed::Stale {
                continue;
            }
            facts = outside::act(actions, cloud, &*self.checks).await;
            kept = Some(held);
        }
        Ok(cell::send(&self.ports, &[Poke::Pool { provider: name.clone() }]).await?)
    }

    /// Reads a provider, what it may do, and the builds that its plan wants to know of. `None` when
    /// there is nothing to plan.
    async fn load(&self, name: &ProviderName, heard: Heard) -> Result<Option<Held>, LookError> {
        let mut loaded = provider::load(&self.ports, name).await?;
        if loaded.is_frozen {
            tracing::error!(provider = %name, "the provider is frozen; look at it, then let it go on with `sluice provider thaw`");
            return Ok(None);
        }
        let now = self.ports.clock.now();
        let head = loaded.head.clone().unwrap_or_else(|| ProviderHead::new(name.clone()));
        let (requests, nodes) =
            (loaded.requests.values().map(|(_, r)| r), loaded.nodes.values().map(|(_, n)| n));
        let waiting = places::may_have_moved(requests.clone(), now);
        let wanted: Vec<BuildId> =
            builds_to_look_at(&head, requests, nodes, now).into_iter().collect();
        let (found, Seen { builds, places, .. }) = match self
            .configured
            .recent(name, now)
            .filter(|_| wanted.is_empty())
        {
            Some(found) => (found, Seen::default()),
            None => {
                let seen = self.read(name, &wanted, &waiting).await?;
                let found = match self
                    .configured
                    .find(&self.ports, name, seen.tenant.as_ref(), now)
                    .await?
                {
                    Some(found) => found,
                    None if is_unused(&loaded) => return Ok(None),
                    None => {
                        tracing::warn!(provider = %name, "no tenant's layout has this provider any more: it lets go of what it has");
                        Found {
                            connection: head.connection.clone(),
                            limits: ProviderLimits::none(name.clone()),
                        }
                    }
                };
                (found, seen)
            }
        };
        if let Some(head) = &mut loaded.head_record {
            if heard == Heard::Again {
                cell::send(&self.ports, &head.outbox).await?;
            }
            // Sent by now: whoever commits here is guarded by its message.
            head.outbox.clear();
        }
        let holds = self.holds(name, &loaded).await?;
        Ok(Some(Held {
            name: name.clone(),
            found,
            loaded,
            builds,
            places,
            holds,
            is_due_moved: false,
        }))
    }

    /// Reads where builds stand, and with the same call the tenant that had the provider last, and
    /// where the changes of requests that wait stand in their queues.
    async fn read(
        &self,
        name: &ProviderName,
        wanted: &[BuildId],
        waiting: &[&Request],
    ) -> Result<Seen, LookError> {
        let tenant = self.configured.key(name);
        let of_builds = wanted
            .iter()
            .flat_map(|id| [build::order_key(id), build::stop_key(id), build::run_key(id)]);
        let keys: Vec<Key> =
            of_builds.chain(tenant.clone()).chain(places::heads(waiting)).collect();
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
        let builds = wanted.iter().map(|id| (id.clone(), fact(id))).collect();
        let places = places::by_now(waiting, &found);
        Ok(Seen { tenant: tenant.and_then(|key| found.remove(&key)), builds, places })
    }

    /// Puts the cell and what is seen outside together, and decides.
    async fn plan(&self, held: &Held, facts: Facts, cloud: Option<&Cloud>) -> Plan {
        let taken_at = self.ports.clock.now();
        let mut snapshot = snapshot_of(held, known(held, facts));
        if let Some(cloud) = cloud
            && snapshot.needs_listing(taken_at)
        {
            match cloud.driver.describe(&TagFilter::provider(&held.name)).await {
                Ok(instances) => {
                    let instances = instances.iter().map(sluice_cloud::Instance::fact).collect();
                    snapshot.facts.listing = Some(Listing { taken_at, instances });
                }
                Err(error) => {
                    tracing::warn!(provider = %held.name, %error, "the machines could not be listed")
                }
            }
        }
        let now = self.ports.clock.now();
        let decided = plan(&snapshot, now);
        let is_check = |action: &Action| matches!(action, Action::Check(_));
        if decided.actions.is_empty() || !decided.actions.iter().all(is_check) {
            return decided;
        }
        // Looking at machines changes nothing there: what they answer goes into the same commit as
        // what made us look.
        let answers = outside::act(decided.actions, cloud, &*self.checks).await;
        snapshot.facts.checks.extend(answers.checks);
        plan(&snapshot, now)
    }

    async fn commit(&self, held: &mut Held, plan: Plan) -> Result<Committed, LookError> {
        let Held { name, loaded, .. } = &*held;
        let head = match &loaded.head_record {
            Some(record) => with_body(record.clone(), &plan.head)?,
            None => encode(provider::head_key(name), &plan.head)?,
        };
        let known = head.due.as_ref().map(|due| due.at);
        let writes = plan
            .changes
            .iter()
            .map(|change| write(name, loaded, change))
            .collect::<Result<Vec<_>, _>>()?;
        let counted = held.holds.writes(&plan.changes)?;
        let Held { name, .. } = &*held;
        for change in &plan.changes {
            self.warn_of_waiting(name, change);
        }
        let due = plan.due.map(|at| Due { at, poke: Poke::Pool { provider: name.clone() } });
        let others = writes.iter().cloned().chain(counted).collect();
        let commit = Commit { head, others, pokes: plan.pokes, due };
        let Saved::Yes(record) = cell::commit_and_send(&self.ports, commit).await? else {
            return Ok(Committed::Stale);
        };
        held.is_due_moved |= plan.due != known;
        held.holds.written(&plan.changes);
        held.loaded.head = Some(plan.head);
        held.loaded.head_record = Some(record);
        for (change, write) in plan.changes.into_iter().zip(writes) {
            take_in(&mut held.loaded, change, write);
        }
        Ok(Committed::Yes)
    }

    /// Says once of each request that its nodes could not be had: whoever looks at a terminal has
    /// to know why nothing happens.
    fn warn_of_waiting(&self, name: &ProviderName, change: &Change) {
        let Change::PutRequest(request) = change else { return };
        // Waiting for room is how a busy pool works; a placement that was given up is not.
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

    /// Nothing more to decide.
    async fn settle(&self, held: Held, due: Option<Timestamp>) -> Result<(), LookError> {
        let Some(head) = held.loaded.head_record else { return Ok(()) };
        let wanted = due.map(|at| Due { at, poke: Poke::Pool { provider: held.name.clone() } });
        let now = self.ports.clock.now();
        // Written only when the sweep would otherwise look too late, or again and again.
        let is_late = match (&head.due, &wanted) {
            (None, None) => false,
            (Some(old), Some(new)) => old.at <= now || old.at > new.at,
            _ => true,
        };
        let next = if is_late { due } else { head.due.as_ref().map(|due| due.at) };
        if is_late {
            let commit = Commit { head, others: Vec::new(), pokes: Vec::new(), due: wanted };
            if cell::commit_and_send(&self.ports, commit).await? == Saved::Stale {
                // Whoever was faster planned with all that is known here, and saw to the next look.
                return Ok(());
            }
        }
        // One wake for each time that is due: more would beget more for ever. A lost one is made up
        // for by the sweep.
        match self.wake(&held.name, next).filter(|_| is_late || held.is_due_moved) {
            Some(wake) => Ok(cell::send(&self.ports, &[wake]).await?),
            None => Ok(()),
        }
    }

    fn wake(&self, name: &ProviderName, due: Option<Timestamp>) -> Option<Poke> {
        let seconds = due?.since(self.ports.clock.now()).div_ceil(1_000);
        let then = Box::new(Poke::Pool { provider: name.clone() });
        // Never at once: a look that finds the same again would run in circles.
        let delay_seconds = u32::try_from(seconds).unwrap_or(u32::MAX).max(1);
        (seconds < SWEEP_SECONDS).then_some(Poke::Wake { then, delay_seconds })
    }
}

/// How a commit of a look ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Committed {
    Yes,
    /// Somebody else was first: everything is read again.
    Stale,
}

/// Adds what was read when the look began to what was seen since.
fn known(held: &Held, facts: Facts) -> Facts {
    let builds =
        held.builds.iter().chain(&held.holds.builds).map(|(id, fact)| (id.clone(), fact.clone()));
    let (released, places) = (held.holds.released.clone(), held.places.clone());
    Facts { builds: builds.collect(), released, places, ..facts }
}

fn snapshot_of(held: &Held, facts: Facts) -> Snapshot {
    let Held { name, found, loaded, .. } = held;
    let head = loaded.head.clone().unwrap_or_else(|| ProviderHead::new(name.clone()));
    Snapshot {
        // Written with whatever is written next, and a machine is never launched before its record.
        head: ProviderHead { connection: found.connection.clone(), ..head },
        limits: found.limits.clone(),
        requests: loaded.requests.values().map(|(_, request)| request.clone()).collect(),
        nodes: loaded.nodes.values().map(|(_, node)| node.clone()).collect(),
        facts,
    }
}

/// Returns whether a provider has nothing, and is not waited for.
fn is_unused(loaded: &Loaded) -> bool {
    let waits = loaded
        .head_record
        .as_ref()
        .is_some_and(|head| head.due.is_some() || !head.outbox.is_empty());
    loaded.requests.is_empty() && loaded.nodes.is_empty() && !waits
}

/// Takes what was written into what is held.
fn take_in(loaded: &mut Loaded, change: Change, write: Write) {
    match (change, write) {
        (Change::PutRequest(request), Write::Put { record, .. }) => {
            loaded.requests.insert(request.row.clone(), (record, request));
        }
        (Change::CreateNode(node) | Change::PutNode(node), Write::Put { record, .. }) => {
            loaded.nodes.insert(node.id.clone(), (record, node));
        }
        (Change::RemoveRequest(row), _) => drop(loaded.requests.remove(&row)),
        (Change::RemoveNode(id), _) => drop(loaded.nodes.remove(&id)),
        (Change::PutRequest(_) | Change::CreateNode(_) | Change::PutNode(_), _) => {}
    }
}

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
        (Some(_), stop, Some(run)) => match decode_foreign::<Run>(run).map(|run| run.phase) {
            Some(Phase::Ended(_)) => BuildFact::Ended,
            // A run that cannot be read is its queue's to give up; no other build of the provider
            // waits for that.
            phase => {
                // The gate has given it up, and its executor is known to be gone or had time to
                // end: nobody waits for its nodes.
                let is_over = stop.map(build::stop_of).is_some_and(|stop| {
                    (stop.lost && phase.is_some()) || now.since(stop.at) > STOPPED_SECONDS * 1_000
                });
                if is_over { BuildFact::Ended } else { BuildFact::Claimed }
            }
        },
    }
}

/// Returns the write of one change. Records of a cell are guarded by the head's revision; a request
/// also shows that it was not claimed meanwhile, since a claim checks its revision.
fn write(name: &ProviderName, loaded: &Loaded, change: &Change) -> Result<Write, LookError> {
    let put = |found: Option<&Record>, record: Record| {
        let revision = found.map_or(0, |found| found.revision);
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        Write::Put { record: Record { revision: revision + 1, ..record }, expect }
    };
    Ok(match change {
        Change::PutRequest(request) => {
            let found = loaded.requests.get(&request.row).map(|(record, _)| record);
            put(found, provider::request_record(name, request)?)
        }
        Change::RemoveRequest(row) => {
            let revision = loaded.requests.get(row).map_or(0, |(record, _)| record.revision);
            Write::Delete {
                key: provider::request_key(name, row),
                expect: Expect::Revision(revision),
            }
        }
        Change::CreateNode(node) => Write::Put {
            record: encode_first(provider::node_key(name, &node.id), node)?,
            expect: Expect::Absent,
        },
        Change::PutNode(node) => {
            let found = loaded.nodes.get(&node.id).map(|(record, _)| record);
            put(found, encode(provider::node_key(name, &node.id), node)?)
        }
        Change::RemoveNode(id) => {
            let revision = loaded.nodes.get(id).map_or(0, |(record, _)| record.revision);
            Write::Delete { key: provider::node_key(name, id), expect: Expect::Revision(revision) }
        }
    })
}

#[async_trait]
impl Look for Launcher {
    async fn poked(&self, poke: &Poke, heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Pool { provider } => self.drain(provider, heard).await,
            other => Err(LookError::Again(format!("the launcher was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
