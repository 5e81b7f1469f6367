//! The launcher: one provider cell is loaded with what was seen outside, decided on, committed, and then acted on.
//!
//! What is done outside (launch, check, terminate) happens after the commit that intends it; each answer is a fact for the next plan.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod limits;
mod outside;

pub use outside::{Checks, SshChecks};

use async_trait::async_trait;
use sluice_cloud::{Driver, Site, TagFilter};
use sluice_model::build::{Phase, Run};
use sluice_model::poke::Poke;
use sluice_model::{BuildId, ConnectionName, ProviderName, Timestamp};
use sluice_pool::{BuildFact, Change, Facts, Listing, Plan, ProviderHead, ProviderLimits, Snapshot, plan};
use sluice_records::build::{self, Stop};
use sluice_records::codec::{decode, encode, encode_first, with_body};
use sluice_records::layout::Layouts;
use sluice_records::provider::{self, Loaded};
use sluice_runtime::batch::{Look, LookError};
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{Commit, Ports, Saved, cell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rounds of plan and action in one look; more are left to the next message.
const ROUNDS_MAX: u32 = 12;

/// The longest wait that goes through the queue of wakes; longer ones are found by the sweep.
const WAKE_SECONDS_MAX: u64 = 60;

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
    layouts: Layouts,
    clouds: BTreeMap<ConnectionName, Cloud>,
    checks: Arc<dyn Checks>,
}

impl Launcher {
    /// Makes a launcher that reaches these clouds.
    pub fn new(ports: Ports, clouds: BTreeMap<ConnectionName, Cloud>, checks: Arc<dyn Checks>) -> Self {
        Self { ports, layouts: Layouts::default(), clouds, checks }
    }

    /// Moves one provider as far as it can go. Safe to run twice: launches carry tokens, terminations are asked again.
    pub async fn drain(&self, name: &ProviderName) -> Result<(), LookError> {
        let Some(found) = limits::find(&self.ports, &self.layouts, name).await? else {
            tracing::warn!(provider = %name, "no tenant's layout has this provider any more");
            return Ok(());
        };
        let cloud = found.connection.as_ref().and_then(|connection| self.clouds.get(connection));
        let mut facts = Facts::default();
        for _ in 0..ROUNDS_MAX {
            // The listing begins before the cell is read: then a machine without a record is one whose record is gone.
            let taken_at = self.ports.clock.now();
            let loaded = provider::load(&self.ports, name).await?;
            if loaded.is_frozen {
                tracing::error!(provider = %name, "the provider is frozen; an operator has to look at it");
                return Ok(());
            }
            let (snapshot, loaded) =
                self.snapshot(name, &found.limits, loaded, std::mem::take(&mut facts), cloud, taken_at).await?;
            let now = self.ports.clock.now();
            let plan = plan(&snapshot, now);
            for reason in &plan.reasons {
                tracing::info!(provider = %name, "{reason}");
            }
            if plan.is_empty() {
                return self.settle(name, loaded, plan.due).await;
            }
            let actions = plan.actions.clone();
            match self.commit(name, loaded, plan).await? {
                Saved::Stale => continue,
                Saved::Yes(mut head) => cell::deliver(&self.ports, &mut head).await?,
            }
            facts = outside::act(actions, cloud, &*self.checks).await;
        }
        Ok(cell::send(&self.ports, &[Poke::Pool { provider: name.clone() }]).await?)
    }

    /// Puts the cell and what is seen outside together.
    async fn snapshot(
        &self,
        name: &ProviderName,
        limits: &ProviderLimits,
        mut loaded: Loaded,
        facts: Facts,
        cloud: Option<&Cloud>,
        taken_at: Timestamp,
    ) -> Result<(Snapshot, Loaded), LookError> {
        let mut snapshot = snapshot_of(name, limits, &loaded, facts);
        if let Some(cloud) = cloud
            && snapshot.needs_listing(taken_at)
        {
            match cloud.driver.describe(&TagFilter::provider(name)).await {
                Ok(instances) => {
                    let instances = instances.iter().map(sluice_cloud::Instance::fact).collect();
                    let listing = Listing { taken_at: self.ports.clock.now().min(taken_at), instances };
                    // Read again after the listing, so that no machine launched meanwhile looks like a leak.
                    loaded = provider::load(&self.ports, name).await?;
                    let facts = Facts { listing: Some(listing), ..std::mem::take(&mut snapshot.facts) };
                    snapshot = snapshot_of(name, limits, &loaded, facts);
                }
                Err(error) => tracing::warn!(provider = %name, %error, "the machines could not be listed"),
            }
        }
        snapshot.facts.builds = self.builds(&snapshot).await?;
        Ok((snapshot, loaded))
    }

    /// Reads where the builds stand that wait for nodes or run on some.
    async fn builds(&self, snapshot: &Snapshot) -> Result<BTreeMap<BuildId, BuildFact>, LookError> {
        let wanted: Vec<BuildId> = snapshot.builds_to_look_at().into_iter().collect();
        let mut facts = BTreeMap::new();
        for page in wanted.chunks(33) {
            let keys: Vec<Key> =
                page.iter().flat_map(|id| [build::order_key(id), build::stop_key(id), build::run_key(id)]).collect();
            let records = self.ports.records.get(&keys).await?;
            for (id, found) in page.iter().zip(records.chunks(3)) {
                facts.insert(id.clone(), build_fact(&found[0], &found[1], &found[2], self.ports.clock.now())?);
            }
        }
        Ok(facts)
    }

    async fn commit(&self, name: &ProviderName, loaded: Loaded, plan: Plan) -> Result<Saved, LookError> {
        let head = match &loaded.head_record {
            Some(record) => with_body(record.clone(), &plan.head)?,
            None => encode(provider::head_key(name), &plan.head)?,
        };
        let mut others = Vec::with_capacity(plan.changes.len());
        for change in &plan.changes {
            others.push(write(name, &loaded, change)?);
        }
        let mut pokes = plan.pokes;
        let known = loaded.head_record.as_ref().and_then(|record| record.due.as_ref()).map(|due| due.at);
        if plan.due != known {
            pokes.extend(self.wake(name, plan.due));
        }
        let due = plan.due.map(|at| Due { at, poke: Poke::Pool { provider: name.clone() } });
        Ok(cell::commit(&self.ports, Commit { head, others, pokes, due }).await?)
    }

    /// Nothing to decide: an earlier run may have died before it sent its outbox.
    async fn settle(&self, name: &ProviderName, loaded: Loaded, due: Option<Timestamp>) -> Result<(), LookError> {
        let Some(mut head) = loaded.head_record else { return Ok(()) };
        cell::deliver(&self.ports, &mut head).await?;
        let wanted = due.map(|at| Due { at, poke: Poke::Pool { provider: name.clone() } });
        let now = self.ports.clock.now();
        // Written only when the sweep would otherwise look too late, or again and again.
        let moved = match (&head.due, &wanted) {
            (None, None) => false,
            (Some(old), Some(new)) => old.at <= now || old.at > new.at,
            _ => true,
        };
        if moved {
            // One wake for each time that is due: more would beget more for ever.
            let pokes = self.wake(name, due).into_iter().collect();
            cell::commit_and_deliver(&self.ports, Commit { head, others: Vec::new(), pokes, due: wanted }).await?;
        }
        Ok(())
    }

    fn wake(&self, name: &ProviderName, due: Option<Timestamp>) -> Option<Poke> {
        let seconds = due?.since(self.ports.clock.now()).div_ceil(1_000);
        let then = Poke::Pool { provider: name.clone() };
        match seconds {
            // Never at once: a look that finds the same again would run in circles.
            0..=WAKE_SECONDS_MAX => {
                Some(Poke::Wake { then: Box::new(then), delay_seconds: u32::try_from(seconds).unwrap_or(1).max(1) })
            }
            _ => None,
        }
    }
}

fn snapshot_of(name: &ProviderName, limits: &ProviderLimits, loaded: &Loaded, facts: Facts) -> Snapshot {
    Snapshot {
        head: loaded.head.clone().unwrap_or_else(|| ProviderHead::new(name.clone())),
        limits: limits.clone(),
        requests: loaded.requests.values().map(|(_, request)| request.clone()).collect(),
        nodes: loaded.nodes.values().map(|(_, node)| node.clone()).collect(),
        facts,
    }
}

fn build_fact(
    order: &Option<Record>,
    stop: &Option<Record>,
    run: &Option<Record>,
    now: Timestamp,
) -> Result<BuildFact, LookError> {
    Ok(match (order, stop, run) {
        (None, _, _) => BuildFact::Gone,
        (Some(_), None, None) => BuildFact::Waiting,
        (Some(_), Some(_), None) => BuildFact::Withdrawn,
        (Some(_), stop, Some(run)) => match decode::<Run>(run)?.phase {
            Phase::Ended(_) => BuildFact::Ended,
            // The gate has given it up and it had time to end: its executor is gone, and nobody waits for its nodes.
            _ if stop
                .as_ref()
                .map(decode::<Stop>)
                .transpose()?
                .is_some_and(|stop| now.since(stop.at) > STOPPED_SECONDS * 1_000) =>
            {
                BuildFact::Ended
            }
            _ => BuildFact::Claimed,
        },
    })
}

/// Returns the write of one change. Records of a cell are guarded by the head's revision; a request also shows that it was
/// not claimed meanwhile, since a claim checks its revision.
fn write(name: &ProviderName, loaded: &Loaded, change: &Change) -> Result<Write, LookError> {
    let put = |found: Option<&Record>, record: Record| {
        let revision = found.map_or(0, |found| found.revision);
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        Write::Put { record: Record { revision: revision + 1, ..record }, expect }
    };
    Ok(match change {
        Change::PutRequest(request) => {
            let found = loaded.requests.get(&request.row).map(|(record, _)| record);
            put(found, encode(provider::request_key(name, &request.row), request)?)
        }
        Change::RemoveRequest(row) => {
            let revision = loaded.requests.get(row).map_or(0, |(record, _)| record.revision);
            Write::Delete { key: provider::request_key(name, row), expect: Expect::Revision(revision) }
        }
        Change::CreateNode(node) => {
            Write::Put { record: encode_first(provider::node_key(name, &node.id), node)?, expect: Expect::Absent }
        }
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
    async fn look(&self, poke: &Poke) -> Result<(), LookError> {
        match poke {
            Poke::Pool { provider } => self.drain(provider).await,
            other => Err(LookError::Again(format!("the launcher was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
