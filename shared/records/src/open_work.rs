//! Finds work that is not finished. An index lists candidates, and reads by key decide whether they
//! are still open.
//!
//! Inbox messages, items, runs and node requests are on a list while they are open; deliveries have
//! a list of their own. The lists are spread over the shards of the index `due`, because each
//! change enters and leaves them several times. Reads are bounded to the newest [`LISTED_MAX`]
//! entries of a shard; [`OpenWork::is_cut`] says whether there were more.

use crate::build::StoredRun;
use crate::codec::{decode_or_log, get, get_all};
use crate::delivery::DeliveryRecord;
use crate::{build, session};
use sluice_gate::unattended::{self, BOUND_SECONDS, CellSchedule, OpenRun};
use sluice_gate::{Item, StoredHead};
use sluice_model::build::{Order, Phase, Run};
use sluice_model::id::digest;
use sluice_model::wakeup::Wakeup;
use sluice_model::{
    BuildId, ItemId, ProjectName, ProviderName, QueueKey, SessionId, TenantName, Timestamp,
};
use sluice_pool::{NodeRequest, ProviderHead, RequestState};
use sluice_runtime::port::{DUE_SHARDS, due_shard};
use sluice_runtime::quarantine::halt_key;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// The most entries of one list that one read returns.
pub const LISTED_MAX: usize = 500;

/// The most entries of one list among which the runs of a dead executor are looked for.
pub const OPEN_RUNS_LISTED_MAX: usize = 5_000;

/// Keys in one call (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// The work that is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenWork {
    /// Everything that is open, in no particular order.
    pub entries: Vec<OpenEntry>,
    /// The partitions of halted cells among those with open work. They wait for an operator.
    pub halted: BTreeSet<String>,
    /// Whether a list had more entries than were read.
    pub is_cut: bool,
}

/// The kind of an open entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenKind {
    /// An event from a forge or an operator.
    Delivery,
    /// A message in the inbox of a queue.
    InboxMessage,
    /// A change in a queue.
    Item,
    /// A build with a run, or one that no executor claims.
    Build,
    /// A request for nodes.
    Request,
}

impl OpenKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Delivery, Self::InboxMessage, Self::Item, Self::Build, Self::Request];

    /// Returns the plural noun used in texts for people.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Delivery => "deliveries",
            Self::InboxMessage => "messages",
            Self::Item => "items",
            Self::Build => "builds",
            Self::Request => "requests",
        }
    }
}

/// One piece of work that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEntry {
    /// Its kind.
    pub kind: OpenKind,
    /// Its id.
    pub id: String,
    /// Its tenant; `None` for deliveries, which tenants share.
    pub tenant: Option<TenantName>,
    /// The project of a delivery; `None` for other kinds.
    pub project: Option<ProjectName>,
    /// Why it is unaccounted for; `None` while a function will process it.
    pub unaccounted: Option<String>,
    /// The wakeup for the cell that processes it; `None` when its cell is unknown.
    pub wakeup: Option<Wakeup>,
}

impl OpenWork {
    /// Returns the entries that no function will process without help.
    pub fn unaccounted(&self) -> impl Iterator<Item = &OpenEntry> {
        self.entries.iter().filter(|open| open.unaccounted.is_some())
    }

    /// Counts the unaccounted entries of each kind. Every kind is in the result, also with 0.
    pub fn counts(&self) -> BTreeMap<OpenKind, usize> {
        let mut counts: BTreeMap<OpenKind, usize> =
            OpenKind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        for open in self.unaccounted() {
            *counts.entry(open.kind).or_default() += 1;
        }
        counts
    }
}

/// Returns the entry in the index `find` that lists an open record: the partition, by the shard of
/// the record's own partition, and the sort key, which begins with `since`.
pub fn index_entry(key: &Key, since: Timestamp) -> (String, String) {
    (
        list(due_shard(&key.partition)),
        format!("{:015}#{}", since.0, digest(&[&key.partition, &key.sort])),
    )
}

/// Returns the partition of the index `find` that lists the open work of one shard.
fn list(shard: u32) -> String {
    format!("open#{shard}")
}

/// Returns the time before which work must have started to be overdue at `now`: 600 seconds
/// earlier.
pub fn past_bound(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(BOUND_SECONDS * 1_000))
}

/// Reads the deliveries, inbox messages, items, builds and node requests that started before
/// `before` and have not ended. If a queue has such a message or item, its unclaimed builds are
/// included whenever they started. Decides for each entry whether it is accounted for at `now`.
/// Reads at most the newest [`LISTED_MAX`] of each list ([`OpenWork::is_cut`]). A record that
/// cannot be read or decoded is logged and left out; an error only if an index cannot be read or
/// the store throttles. Inbox messages, and items that their queue's head names, are listed without
/// being decoded.
///
/// # Errors
/// When the store does not answer. A record that cannot be decoded counts as missing; its owner
/// finds it itself.
pub async fn read(ports: &Ports, before: Timestamp, now: Timestamp) -> Result<OpenWork, PortError> {
    let until = format!("{:015}", before.0);
    let mut work = OpenWork::default();
    let deliveries = ports.records.find("open-deliveries", Some(&until), LISTED_MAX).await?;
    work.is_cut |= deliveries.len() == LISTED_MAX;
    let (mut queues, mut providers, mut runs) = (Cells::default(), Cells::default(), Vec::new());
    for shard in 0..DUE_SHARDS {
        let found = ports.records.find(&list(shard), Some(&until), LISTED_MAX).await?;
        work.is_cut |= found.len() == LISTED_MAX;
        for key in found {
            match key.partition.split('#').next().unwrap_or_default() {
                "queue" => queues.entry(key.partition).or_default().push(key.sort),
                "provider" => providers.entry(key.partition).or_default().push(key.sort),
                _ => runs.push(key),
            }
        }
    }
    for record in read_each(ports, deliveries).await? {
        work.entries.extend(open_delivery(&record, now));
    }
    add_queue_work(ports, queues, now, &mut work).await?;
    add_provider_work(ports, providers, now, &mut work).await?;
    add_runs(ports, runs, now, &mut work).await?;
    Ok(work)
}

/// Returns the runs of a session that have not ended, as the index of open work lists them. A run
/// that was claimed within the last moments may not be listed yet. A record that cannot be decoded
/// is logged and left out; of a list with more than [`OPEN_RUNS_LISTED_MAX`] entries the oldest are
/// left out. Reads all open runs, so it is for rare occasions.
///
/// # Errors
/// When the store does not answer.
pub async fn runs_of_session(
    ports: &Ports,
    session: &SessionId,
) -> Result<Vec<StoredRun>, PortError> {
    let mut runs = Vec::new();
    for shard in 0..DUE_SHARDS {
        let found = ports.records.find(&list(shard), None, OPEN_RUNS_LISTED_MAX).await?;
        if found.len() == OPEN_RUNS_LISTED_MAX {
            tracing::error!(%session, shard, "the list of open work is cut: the queues end the oldest builds of a dead executor later");
        }
        let keys: Vec<Key> =
            found.into_iter().filter(|key| key.partition.starts_with("build#")).collect();
        for record in get_all(ports, &keys).await?.into_values() {
            let Some(run) = decode_or_log::<Run>(&record) else { continue };
            if run.session == *session && !matches!(run.phase, Phase::Ended(_)) {
                runs.push(StoredRun { record, run });
            }
        }
    }
    Ok(runs)
}

/// Listed sort keys by partition.
type Cells = BTreeMap<String, Vec<String>>;

/// Returns the entry of a delivery that has not ended, unaccounted for if it was received at least
/// [`crate::delivery::BOUND_SECONDS`] ago. `None` if it has ended, or if its record cannot be
/// decoded.
fn open_delivery(record: &Record, now: Timestamp) -> Option<OpenEntry> {
    let delivery: DeliveryRecord = decode_or_log(record)?;
    let age = now.since(delivery.received_at) / 1_000;
    let overdue = || {
        format!(
            "{} {} was accepted {} minutes ago",
            delivery.event_name,
            delivery.forge_id,
            age / 60
        )
    };
    let id = record.key.partition.strip_prefix("delivery#").unwrap_or_default().to_owned();
    (!delivery.state.is_final()).then(|| OpenEntry {
        kind: OpenKind::Delivery,
        wakeup: Some(Wakeup::Delivery {
            delivery: id.as_str().into(),
            project: crate::delivery::ordering_project(&delivery),
        }),
        id,
        tenant: None,
        project: delivery.event.as_ref().map(|event| event.project.clone()),
        unaccounted: (age >= crate::delivery::BOUND_SECONDS).then(overdue),
    })
}

/// Adds to `work` the inbox messages and items that the index lists in `cells` (sort keys by
/// partition), the unclaimed builds that the queues' heads name (always unaccounted for), and the
/// partitions of halted queues. If a queue has no head, or is neither halted nor reconciled in
/// time, its messages and items are unaccounted for, except young messages. An item that the head
/// does not name is unaccounted for too, unless the queue is halted. Leaves out messages and
/// unnamed items that no longer exist, and unnamed items that cannot be decoded.
async fn add_queue_work(
    ports: &Ports,
    cells: Cells,
    now: Timestamp,
    work: &mut OpenWork,
) -> Result<(), PortError> {
    let heads = heads(ports, &cells).await?;
    let (mut unnamed, mut unclaimed) = (Vec::new(), Vec::new());
    for (partition, sorts) in cells {
        let head = heads.get(&Key::new(partition.as_str(), "head"));
        let stored = head.and_then(decode_or_log::<StoredHead>);
        let named: BTreeSet<ItemId> = (stored.iter().filter_map(|stored| stored.versions().ok()))
            .flat_map(|versions| versions.into_iter().map(|(id, _)| id))
            .collect();
        let is_halted = heads.contains_key(&halt_key(&partition))
            || stored.as_ref().is_some_and(|stored| stored.halted.is_some());
        work.halted.extend(is_halted.then(|| partition.clone()));
        let cell = head.map(|head| CellSchedule { due: head.sweep_at, is_halted });
        let builds = stored.as_ref().map(|stored| stored.unclaimed.clone()).unwrap_or_default();
        let queue = stored.map(|stored| stored.key).or_else(|| queue_of(&partition));
        unclaimed.extend(builds.into_iter().map(|build| (build, queue.clone())));
        for sort in sorts {
            let id = sort.split_once('#').map_or(sort.as_str(), |(_, id)| id);
            let is_item = sort.starts_with("item#");
            // The head of a new queue is created by its first reconciliation.
            let is_young = !is_item && message_time(id).is_some_and(|at| is_young(at, now));
            let mut open = OpenEntry {
                kind: if is_item { OpenKind::Item } else { OpenKind::InboxMessage },
                id: id.to_owned(),
                tenant: queue.as_ref().map(|queue| queue.tenant.clone()),
                project: None,
                unaccounted: unattended::unattended_cell_reason(cell, now).filter(|_| !is_young),
                wakeup: queue.clone().map(|queue| Wakeup::Queue { queue }),
            };
            if is_item && named.contains(&ItemId::from(id)) {
                work.entries.push(open);
                continue;
            }
            if is_item && !is_halted {
                open.unaccounted.get_or_insert_with(|| "its queue does not name it".to_owned());
            }
            unnamed.push((Key::new(partition.as_str(), sort), open));
        }
    }
    // The record may be gone: the index lags, and the head was read earlier.
    let found =
        by_key(read_each(ports, unnamed.iter().map(|(key, _)| key.clone()).collect()).await?);
    let is_there = |key: &Key, open: &OpenEntry| match (found.get(key), open.kind) {
        (None, _) => false,
        (Some(record), OpenKind::Item) => decode_or_log::<Item>(record).is_some(),
        (Some(_), _) => true,
    };
    work.entries.extend(
        unnamed.into_iter().filter(|(key, open)| is_there(key, open)).map(|(_, open)| open),
    );
    add_unclaimed_builds(ports, unclaimed, work).await
}

/// Adds builds that no executor claims although their wakeups were sent repeatedly, as the heads of
/// their queues say; all as unaccounted for. Each build comes with its queue; `None` leaves tenant
/// and wakeup empty. Leaves out builds that have a run meanwhile, because their runs are listed.
async fn add_unclaimed_builds(
    ports: &Ports,
    builds: Vec<(BuildId, Option<QueueKey>)>,
    work: &mut OpenWork,
) -> Result<(), PortError> {
    let runs =
        by_key(read_each(ports, builds.iter().map(|(id, _)| build::run_key(id)).collect()).await?);
    let waiting = builds.into_iter().filter(|(id, _)| !runs.contains_key(&build::run_key(id)));
    work.entries.extend(waiting.map(|(id, queue)| OpenEntry {
        kind: OpenKind::Build,
        id: id.to_string(),
        tenant: queue.as_ref().map(|queue| queue.tenant.clone()),
        project: None,
        unaccounted: Some(unattended::UNCLAIMED.to_owned()),
        wakeup: queue.map(|queue| Wakeup::Queue { queue }),
    }));
    Ok(())
}

/// Parses the time of an inbox message from the part of its sort key after `inbox#`; `None` if it
/// has none.
fn message_time(id: &str) -> Option<Timestamp> {
    let time = id.trim_start_matches('-').split('-').next()?;
    time.parse().ok().map(Timestamp)
}

/// Returns whether work that started at `since` is not overdue yet.
fn is_young(since: Timestamp, now: Timestamp) -> bool {
    since > past_bound(now)
}

/// Parses a queue's key from its partition, for a queue without a readable head; `None` for another
/// partition.
fn queue_of(partition: &str) -> Option<QueueKey> {
    let mut parts = partition.strip_prefix("queue#")?.split('/').map(sluice_model::name::unescape);
    let (tenant, pipeline, queue) = (parts.next()?, parts.next()?, parts.next()?);
    Some(QueueKey {
        tenant: TenantName(tenant),
        pipeline: pipeline.as_str().into(),
        queue: queue.as_str().into(),
    })
}

/// Adds to `work` the node requests that the index lists in `cells` (sort keys by partition), and
/// the partitions of their providers that are halted. A request that is not young is unaccounted
/// for if its provider's cell has no head, or is neither halted nor reconciled in time. Any request
/// is unaccounted for if its nodes are ready and no executor claims the build. Leaves out requests
/// that no longer exist or cannot be decoded.
async fn add_provider_work(
    ports: &Ports,
    cells: Cells,
    now: Timestamp,
    work: &mut OpenWork,
) -> Result<(), PortError> {
    let heads = heads(ports, &cells).await?;
    let keys = cells
        .iter()
        .flat_map(|(partition, sorts)| sorts.iter().map(|sort| Key::new(partition.as_str(), sort)));
    for record in read_each(ports, keys.collect()).await? {
        let Some(request) = decode_or_log::<NodeRequest>(&record) else { continue };
        let partition = &record.key.partition;
        let head = heads.get(&Key::new(partition.as_str(), "head"));
        let is_halted = heads.contains_key(&halt_key(partition));
        work.halted.extend(is_halted.then(|| partition.clone()));
        let cell = head.map(|head| CellSchedule { due: head.sweep_at, is_halted });
        let name =
            partition.strip_prefix("provider#").map(sluice_model::name::unescape).map(ProviderName);
        let provider =
            head.and_then(decode_or_log::<ProviderHead>).map(|head| head.provider).or(name);
        let is_ready = matches!(request.state, RequestState::Fulfilled(_));
        let unclaimed = (is_ready && unattended::is_unclaimed(request.resends))
            .then(|| unattended::UNCLAIMED.to_owned());
        work.entries.push(OpenEntry {
            kind: OpenKind::Request,
            id: request.row.to_string(),
            tenant: Some(request.queue.tenant.clone()),
            project: None,
            unaccounted: unattended::unattended_cell_reason(cell, now)
                .filter(|_| !is_young(request.created_at, now))
                .or(unclaimed),
            wakeup: provider.map(|provider| Wakeup::Pool { provider }),
        });
    }
    Ok(())
}

/// Adds to `work` the runs under `keys`, as builds. A run is unaccounted for if its executor's
/// session is missing or long expired, or if its stop was requested long ago. Leaves out runs that
/// have ended, that cannot be decoded, or that the queue has given up because their executor is
/// gone.
async fn add_runs(
    ports: &Ports,
    keys: Vec<Key>,
    now: Timestamp,
    work: &mut OpenWork,
) -> Result<(), PortError> {
    let runs: Vec<Run> =
        read_each(ports, keys).await?.iter().filter_map(decode_or_log::<Run>).collect();
    let runs: Vec<Run> =
        runs.into_iter().filter(|run| !matches!(run.phase, Phase::Ended(_))).collect();
    let sessions: BTreeSet<Key> = runs.iter().map(|run| session::key(&run.session)).collect();
    let of_builds =
        runs.iter().flat_map(|run| [build::order_key(&run.build), build::stop_key(&run.build)]);
    let found = by_key(read_each(ports, of_builds.chain(sessions).collect()).await?);
    for run in runs {
        let order = found.get(&build::order_key(&run.build)).and_then(decode_or_log::<Order>);
        let stop = found.get(&build::stop_key(&run.build)).map(build::decode_stop);
        let life =
            found.get(&session::key(&run.session)).and_then(decode_or_log::<session::Session>);
        let seen = OpenRun {
            alive_until: life.map(|life| life.alive_until),
            stopped_at: stop.map(|stop| stop.at),
        };
        if unattended::is_given_up(seen, now) {
            continue;
        }
        work.entries.push(OpenEntry {
            kind: OpenKind::Build,
            id: run.build.to_string(),
            tenant: order.as_ref().map(|order| order.queue.tenant.clone()),
            project: None,
            unaccounted: unattended::unattended_run_reason(seen, now),
            wakeup: order.map(|order| Wakeup::Queue { queue: order.queue }),
        });
    }
    Ok(())
}

/// Reads the heads of cells and their halt marks. Cells without a head or a mark are missing in the
/// result, and so are records that cannot be read (logged). An error only if the store throttles.
async fn heads(ports: &Ports, cells: &Cells) -> Result<BTreeMap<Key, Record>, PortError> {
    let keys = cells
        .keys()
        .flat_map(|partition| [Key::new(partition.as_str(), "head"), halt_key(partition)]);
    Ok(by_key(read_each(ports, keys.collect()).await?))
}

/// Reads records by key; missing ones are left out. When a whole page cannot be read, reads its
/// keys one by one, and logs and skips those that fail. An error only if the store throttles.
async fn read_each(ports: &Ports, keys: Vec<Key>) -> Result<Vec<Record>, PortError> {
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
                            tracing::error!(%key, %error, "a record cannot be read and counts as missing among the open work")
                        }
                    }
                }
            }
        }
    }
    Ok(records)
}

/// Returns records by their keys.
fn by_key(records: Vec<Record>) -> BTreeMap<Key, Record> {
    records.into_iter().map(|record| (record.key.clone(), record)).collect()
}
