//! The ledger: what is not over, found by an index and decided by keys. Arrivals, items, runs and
//! requests for nodes are listed while they are open; deliveries have a list of their own.
//!
//! The lists are spread over the shards of the index `due`, since each change enters and leaves
//! them several times. What is read is bounded: of more than [`LISTED_MAX`] open ones of a shard
//! the newest are looked at, and [`Ledger::is_cut`] says so.

use crate::codec::{decode_foreign, get};
use crate::delivery::Delivery;
use crate::{build, session};
use sluice_gate::account::{self, BOUND_SECONDS, Cell, OpenRun};
use sluice_gate::{Item, StoredHead};
use sluice_model::build::{Order, Phase, Run};
use sluice_model::id::digest;
use sluice_model::poke::Poke;
use sluice_model::{BuildId, ItemId, ProjectName, ProviderName, QueueKey, TenantName, Timestamp};
use sluice_pool::{ProviderHead, Request, RequestState};
use sluice_runtime::port::{DUE_SHARDS, due_shard};
use sluice_runtime::quarantine::frozen_key;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Entries of one list that one reading looks at.
pub const LISTED_MAX: usize = 500;

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// What is open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Everything that was found open, in no particular order.
    pub open: Vec<Open>,
    /// The cells among those that something stands in that are frozen, by their partitions: nobody
    /// but an operator sees to them.
    pub frozen: BTreeSet<String>,
    /// Whether there may be more.
    pub is_cut: bool,
}

/// What kind of thing is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What a forge or somebody told.
    Delivery,
    /// What is to enter a queue, or to be told to it.
    Arrival,
    /// A change in a queue.
    Item,
    /// A build that an executor has.
    Build,
    /// A request for nodes.
    Request,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Delivery, Self::Arrival, Self::Item, Self::Build, Self::Request];

    /// Returns what people call several of them.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Delivery => "deliveries",
            Self::Arrival => "arrivals",
            Self::Item => "items",
            Self::Build => "builds",
            Self::Request => "requests",
        }
    }
}

/// Something that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: String,
    /// Whose it is; `None` for deliveries, which tenants share.
    pub tenant: Option<TenantName>,
    /// A delivery's project.
    pub project: Option<ProjectName>,
    /// Why it is unaccounted for; `None` while somebody sees to it.
    pub unaccounted: Option<String>,
    /// Who is to look at it.
    pub poke: Option<Poke>,
}

impl Ledger {
    /// Returns what nobody sees to.
    pub fn unaccounted(&self) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(|open| open.unaccounted.is_some())
    }

    /// Counts what nobody sees to, of each kind.
    pub fn counts(&self) -> BTreeMap<Kind, usize> {
        let mut counts: BTreeMap<Kind, usize> =
            Kind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        for open in self.unaccounted() {
            *counts.entry(open.kind).or_default() += 1;
        }
        counts
    }
}

/// Returns where the index lists a record while it is open.
pub fn listed(key: &Key, since: Timestamp) -> (String, String) {
    (
        list(due_shard(&key.partition)),
        format!("{:015}#{}", since.0, digest(&[&key.partition, &key.sort])),
    )
}

fn list(shard: u32) -> String {
    format!("open#{shard}")
}

/// Returns the time before which something must have begun to be past its bound.
pub fn past_bound(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(BOUND_SECONDS * 1_000))
}

/// Reads what is open and began before a time, and says of each whether it is accounted for.
///
/// # Errors
/// Whatever the store could not answer. A record that cannot be read counts as missing; who rules
/// it finds it by itself.
pub async fn read(ports: &Ports, before: Timestamp, now: Timestamp) -> Result<Ledger, PortError> {
    let until = format!("{:015}", before.0);
    let mut ledger = Ledger::default();
    let deliveries = ports.records.find("open-deliveries", Some(&until), LISTED_MAX).await?;
    ledger.is_cut |= deliveries.len() == LISTED_MAX;
    let (mut queues, mut providers, mut runs) = (Cells::default(), Cells::default(), Vec::new());
    for shard in 0..DUE_SHARDS {
        let found = ports.records.find(&list(shard), Some(&until), LISTED_MAX).await?;
        ledger.is_cut |= found.len() == LISTED_MAX;
        for key in found {
            match key.partition.split('#').next().unwrap_or_default() {
                "queue" => queues.entry(key.partition).or_default().push(key.sort),
                "provider" => providers.entry(key.partition).or_default().push(key.sort),
                _ => runs.push(key),
            }
        }
    }
    for record in many(ports, deliveries).await? {
        ledger.open.extend(open_delivery(&record, now));
    }
    in_queues(ports, queues, now, &mut ledger).await?;
    in_providers(ports, providers, now, &mut ledger).await?;
    of_runs(ports, runs, now, &mut ledger).await?;
    Ok(ledger)
}

/// Sort keys of what is listed, by partition.
type Cells = BTreeMap<String, Vec<String>>;

fn open_delivery(record: &Record, now: Timestamp) -> Option<Open> {
    let delivery: Delivery = decode_foreign(record)?;
    let age = now.since(delivery.received_at) / 1_000;
    let told = || {
        format!(
            "{} {} was accepted {} minutes ago",
            delivery.event_name,
            delivery.forge_id,
            age / 60
        )
    };
    let id = record.key.partition.strip_prefix("delivery#").unwrap_or_default().to_owned();
    (!delivery.state.is_final()).then(|| Open {
        kind: Kind::Delivery,
        poke: Some(Poke::Delivery {
            delivery: id.as_str().into(),
            project: crate::delivery::group(&delivery),
        }),
        id,
        tenant: None,
        project: delivery.event.as_ref().map(|event| event.project.clone()),
        unaccounted: (age >= crate::delivery::BOUND_SECONDS).then(told),
    })
}

/// Looks at arrivals and items. A head names its items, so that their records are read only where
/// it does not.
async fn in_queues(
    ports: &Ports,
    cells: Cells,
    now: Timestamp,
    ledger: &mut Ledger,
) -> Result<(), PortError> {
    let heads = heads(ports, &cells).await?;
    let (mut strays, mut unclaimed) = (Vec::new(), Vec::new());
    for (partition, sorts) in cells {
        let head = heads.get(&Key::new(partition.as_str(), "head"));
        let stored = head.and_then(decode_foreign::<StoredHead>);
        let named: BTreeSet<ItemId> = (stored.iter().filter_map(|stored| stored.versions().ok()))
            .flat_map(|versions| versions.into_iter().map(|(id, _)| id))
            .collect();
        let is_frozen = heads.contains_key(&frozen_key(&partition))
            || stored.as_ref().is_some_and(|stored| stored.frozen.is_some());
        ledger.frozen.extend(is_frozen.then(|| partition.clone()));
        let cell = head.map(|head| Cell { due: head.look_at, is_frozen });
        let builds = stored.as_ref().map(|stored| stored.unclaimed.clone()).unwrap_or_default();
        let queue = stored.map(|stored| stored.key).or_else(|| queue_of(&partition));
        unclaimed.extend(builds.into_iter().map(|build| (build, queue.clone())));
        for sort in sorts {
            let id = sort.split_once('#').map_or(sort.as_str(), |(_, id)| id);
            let is_item = sort.starts_with("item#");
            // A queue that was never used has no head before its first look.
            let is_young = !is_item && arrived_at(id).is_some_and(|at| is_young(at, now));
            let mut open = Open {
                kind: if is_item { Kind::Item } else { Kind::Arrival },
                id: id.to_owned(),
                tenant: queue.as_ref().map(|queue| queue.tenant.clone()),
                project: None,
                unaccounted: account::in_cell(cell, now).filter(|_| !is_young),
                poke: queue.clone().map(|queue| Poke::Queue { queue }),
            };
            if is_item && named.contains(&ItemId::from(id)) {
                ledger.open.push(open);
                continue;
            }
            if is_item && !is_frozen {
                open.unaccounted.get_or_insert_with(|| "its queue does not name it".to_owned());
            }
            strays.push((Key::new(partition.as_str(), sort), open));
        }
    }
    // It may have left: the index lags, and the head was read before.
    let found = by_key(many(ports, strays.iter().map(|(key, _)| key.clone()).collect()).await?);
    let is_there = |key: &Key, open: &Open| match (found.get(key), open.kind) {
        (None, _) => false,
        (Some(record), Kind::Item) => decode_foreign::<Item>(record).is_some(),
        (Some(_), _) => true,
    };
    ledger
        .open
        .extend(strays.into_iter().filter(|(key, open)| is_there(key, open)).map(|(_, open)| open));
    unclaimed_builds(ports, unclaimed, ledger).await
}

/// Takes in builds that were sent again and again; one that was claimed since its queue looked last
/// is listed by its run.
async fn unclaimed_builds(
    ports: &Ports,
    builds: Vec<(BuildId, Option<QueueKey>)>,
    ledger: &mut Ledger,
) -> Result<(), PortError> {
    let runs =
        by_key(many(ports, builds.iter().map(|(id, _)| build::run_key(id)).collect()).await?);
    let waiting = builds.into_iter().filter(|(id, _)| !runs.contains_key(&build::run_key(id)));
    ledger.open.extend(waiting.map(|(id, queue)| Open {
        kind: Kind::Build,
        id: id.to_string(),
        tenant: queue.as_ref().map(|queue| queue.tenant.clone()),
        project: None,
        unaccounted: Some(account::UNCLAIMED.to_owned()),
        poke: queue.map(|queue| Poke::Queue { queue }),
    }));
    Ok(())
}

/// Reads out of an arrival's key when it came.
fn arrived_at(id: &str) -> Option<Timestamp> {
    let time = id.trim_start_matches('-').split('-').next()?;
    time.parse().ok().map(Timestamp)
}

fn is_young(since: Timestamp, now: Timestamp) -> bool {
    since > past_bound(now)
}

/// Reads a queue's name out of its partition, where no head says it.
fn queue_of(partition: &str) -> Option<QueueKey> {
    let mut parts = partition.strip_prefix("queue#")?.split('/').map(sluice_model::name::unescape);
    let (tenant, pipeline, queue) = (parts.next()?, parts.next()?, parts.next()?);
    Some(QueueKey {
        tenant: TenantName(tenant),
        pipeline: pipeline.as_str().into(),
        queue: queue.as_str().into(),
    })
}

async fn in_providers(
    ports: &Ports,
    cells: Cells,
    now: Timestamp,
    ledger: &mut Ledger,
) -> Result<(), PortError> {
    let heads = heads(ports, &cells).await?;
    let keys = cells
        .iter()
        .flat_map(|(partition, sorts)| sorts.iter().map(|sort| Key::new(partition.as_str(), sort)));
    for record in many(ports, keys.collect()).await? {
        let Some(request) = decode_foreign::<Request>(&record) else { continue };
        let partition = &record.key.partition;
        let head = heads.get(&Key::new(partition.as_str(), "head"));
        let is_frozen = heads.contains_key(&frozen_key(partition));
        ledger.frozen.extend(is_frozen.then(|| partition.clone()));
        let cell = head.map(|head| Cell { due: head.look_at, is_frozen });
        let name =
            partition.strip_prefix("provider#").map(sluice_model::name::unescape).map(ProviderName);
        let provider =
            head.and_then(decode_foreign::<ProviderHead>).map(|head| head.provider).or(name);
        let is_ready = matches!(request.state, RequestState::Fulfilled(_));
        let unclaimed = (is_ready && account::is_unclaimed(request.sent_again))
            .then(|| account::UNCLAIMED.to_owned());
        ledger.open.push(Open {
            kind: Kind::Request,
            id: request.row.to_string(),
            tenant: Some(request.queue.tenant.clone()),
            project: None,
            unaccounted: account::in_cell(cell, now)
                .filter(|_| !is_young(request.created_at, now))
                .or(unclaimed),
            poke: provider.map(|provider| Poke::Pool { provider }),
        });
    }
    Ok(())
}

async fn of_runs(
    ports: &Ports,
    keys: Vec<Key>,
    now: Timestamp,
    ledger: &mut Ledger,
) -> Result<(), PortError> {
    let runs: Vec<Run> =
        many(ports, keys).await?.iter().filter_map(decode_foreign::<Run>).collect();
    let runs: Vec<Run> =
        runs.into_iter().filter(|run| !matches!(run.phase, Phase::Ended(_))).collect();
    let sessions: BTreeSet<Key> = runs.iter().map(|run| session::key(&run.session)).collect();
    let of_builds =
        runs.iter().flat_map(|run| [build::order_key(&run.build), build::stop_key(&run.build)]);
    let found = by_key(many(ports, of_builds.chain(sessions).collect()).await?);
    for run in runs {
        let order = found.get(&build::order_key(&run.build)).and_then(decode_foreign::<Order>);
        let stop = found.get(&build::stop_key(&run.build)).map(build::stop_of);
        let life =
            found.get(&session::key(&run.session)).and_then(decode_foreign::<session::Session>);
        let seen = OpenRun {
            alive_until: life.map(|life| life.alive_until),
            stopped_at: stop.map(|stop| stop.at),
        };
        if account::is_given_up(seen, now) {
            continue;
        }
        ledger.open.push(Open {
            kind: Kind::Build,
            id: run.build.to_string(),
            tenant: order.as_ref().map(|order| order.queue.tenant.clone()),
            project: None,
            unaccounted: account::of_run(seen, now),
            poke: order.map(|order| Poke::Queue { queue: order.queue }),
        });
    }
    Ok(())
}

/// Reads the heads of cells, and their marks where they are frozen.
async fn heads(ports: &Ports, cells: &Cells) -> Result<BTreeMap<Key, Record>, PortError> {
    let keys = cells
        .keys()
        .flat_map(|partition| [Key::new(partition.as_str(), "head"), frozen_key(partition)]);
    Ok(by_key(many(ports, keys.collect()).await?))
}

/// Reads records, and those that can be read of a page that cannot: what looks at many must not
/// stop at a bad one.
async fn many(ports: &Ports, keys: Vec<Key>) -> Result<Vec<Record>, PortError> {
    let mut records = Vec::new();
    for page in keys.chunks(KEYS_MAX) {
        match ports.records.get(page).await {
            Ok(found) => records.extend(found.into_iter().flatten()),
            Err(error) if error.throttled => return Err(error),
            Err(_) => {
                for key in page {
                    match get(ports, key).await {
                        Ok(found) => records.extend(found),
                        Err(error) if error.throttled => return Err(error),
                        Err(error) => {
                            tracing::error!(%key, %error, "a record counts as missing in the ledger")
                        }
                    }
                }
            }
        }
    }
    Ok(records)
}

fn by_key(records: Vec<Record>) -> BTreeMap<Key, Record> {
    records.into_iter().map(|record| (record.key.clone(), record)).collect()
}
