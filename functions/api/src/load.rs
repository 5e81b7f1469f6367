//! Reading what several answers need: tenants, their queues, an item wherever it is, many records
//! at once.

use crate::Api;
use crate::reply::Refusal;
use futures::future::join_all;
use serde::de::DeserializeOwned;
use sluice_gate::{Head, Item, Job, JobStatus};
use sluice_model::build::{Ended, Phase, Run};
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::name::escape;
use sluice_model::{DeliveryId, ItemId, QueueKey, QueueName, TenantName, Timestamp};
use sluice_records::codec::{BadRecord, decode, decode_foreign, get};
use sluice_records::delivery::{self, Delivery};
use sluice_records::layout::Live;
use sluice_records::queue::Loaded;
use sluice_records::report::{Buildset, buildset_key};
use sluice_records::tenant::Tenant;
use sluice_records::{build, change, queue, tenant};
use sluice_runtime::quarantine::frozen_because;
use sluice_runtime::record::{Key, Query, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most queues of a tenant that one answer covers: in an independent pipeline each change is
/// one.
const QUEUES_MAX: usize = 2_000;
/// Queues that are read side by side.
const QUEUES_AT_ONCE: usize = 16;
/// Characters that are told of why a queue cannot be read.
const WHY_MAX: usize = 600;
/// Keys in one read of the table.
const KEYS_AT_ONCE: usize = 100;

/// A tenant's queues as they were read.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Those that hold items or arrivals; not those whose change stands in another one.
    pub(crate) queues: Vec<(QueueKey, Loaded)>,
    /// Why those of them are frozen whose records could not be decided on.
    pub(crate) frozen: BTreeMap<QueueKey, String>,
    /// Those that are left out, since a record of theirs cannot be read.
    pub(crate) unread: Vec<QueueKey>,
    /// Of those whose change stands in another one, in which.
    pub(crate) lent: BTreeMap<QueueKey, QueueName>,
    /// What could not be read, for people: an answer that leaves something out says so.
    pub(crate) troubles: Vec<String>,
}

/// Where an item was found.
pub(crate) enum Found {
    /// In its queue.
    Queued(Box<Loaded>, QueueKey),
    /// It has left.
    Left(Box<Buildset>),
}

/// Returns the names of all tenants in order.
pub(crate) async fn tenants(ports: &Ports) -> Result<Vec<TenantName>, Refusal> {
    let mut names = tenant::listed(ports).await?;
    names.sort();
    Ok(names)
}

/// Refuses a tenant that does not exist.
pub(crate) async fn known(ports: &Ports, name: &TenantName) -> Result<(), Refusal> {
    let keys = [tenant::key(name), Key::new(tenant::TENANTS, escape(name.as_str()))];
    let found = ports.records.get(&keys).await?;
    let [head, listed] = found.as_slice() else { return Err(missing(name)) };
    let is_removed =
        head.as_ref().map(decode::<Tenant>).transpose()?.is_some_and(|tenant| tenant.is_removed);
    if is_removed || (head.is_none() && listed.is_none()) { Err(missing(name)) } else { Ok(()) }
}

fn missing(name: &TenantName) -> Refusal {
    Refusal::missing(format!("There is no tenant {name}."))
}

/// Returns a tenant with its live layout.
pub(crate) async fn live(api: &Api, name: &TenantName) -> Result<Live, Refusal> {
    if let Some(live) =
        api.layouts.live(&api.ports, name).await?.filter(|live| !live.tenant.is_removed)
    {
        return Ok(live);
    }
    known(&api.ports, name).await?;
    Err(Refusal::NotLoaded { tenant: name.to_string() })
}

/// Reads a record among many. One that cannot be read is left out of the answer, and the log says
/// which: the others are of use without it.
pub(crate) fn readable<T: DeserializeOwned>(record: &Record) -> Option<T> {
    let left_out = |bad: &BadRecord| {
        tracing::warn!(%bad, "left a record out of an answer; mend it, or delete it where nothing needs it any more");
    };
    decode(record).inspect_err(left_out).ok()
}

/// Reads a record as [`readable`] does, and says among the troubles what is left out where it
/// cannot be read.
pub(crate) fn told<T: DeserializeOwned>(
    record: &Record,
    what: &str,
    troubles: &mut Vec<String>,
) -> Option<T> {
    match decode(record) {
        Ok(read) => Some(read),
        Err(bad) => {
            tracing::warn!(%bad, "left a record out of an answer, which says so; mend it");
            let why: String = bad.to_string().chars().take(WHY_MAX).collect();
            troubles.push(format!("{what} is left out: {why}. That record is to be mended."));
            None
        }
    }
}

/// Returns the keys of a tenant's queues that are not empty, of one pipeline or of all, in order,
/// and for people what is wrong with the records that list them.
async fn queue_keys(
    ports: &Ports,
    name: &TenantName,
    pipeline: Option<&str>,
) -> Result<(Vec<QueueKey>, Vec<String>), Refusal> {
    let prefix = pipeline.map_or_else(String::new, |pipeline| format!("{}/", escape(pipeline)));
    let query =
        Query::prefix(tenant::partition(name), format!("{}{prefix}", tenant::QUEUES), QUEUES_MAX);
    let (mut keys, mut troubles) = (Vec::new(), Vec::new());
    let records = ports.records.query(&query).await?;
    if records.len() == QUEUES_MAX {
        troubles.push(format!(
            "Only {QUEUES_MAX} queues are looked at, and there may be more. Ask for one pipeline at a time."
        ));
    }
    for record in records {
        match decode::<QueueKey>(&record) {
            Ok(key) => keys.push(key),
            Err(bad) => {
                tracing::warn!(%bad, "a queue is known by the key of its record alone; mend the record");
                let key = tenant::listed_queue(name, &record.key);
                troubles.push(badly_listed(key.as_ref(), &bad));
                keys.extend(key);
            }
        }
    }
    keys.retain(|key| key.tenant == *name);
    Ok((keys, troubles))
}

/// Says what is wrong with the record that lists a queue, and what to do.
fn badly_listed(key: Option<&QueueKey>, bad: &BadRecord) -> String {
    let why: String = bad.to_string().chars().take(WHY_MAX).collect();
    match key {
        Some(QueueKey { pipeline, queue, .. }) => {
            format!(
                "The queue {queue} of {pipeline} is shown by its name alone: {why}. That record is to be mended."
            )
        }
        None => format!("A queue is left out: {why}. That record is to be mended."),
    }
}

/// Reads every queue of a tenant that is not empty. One bad record hides its queue, not the others.
pub(crate) async fn queues(ports: &Ports, name: &TenantName) -> Result<Queues, Refusal> {
    queues_of(ports, name, None).await
}

/// Reads those of one pipeline, or of all.
pub(crate) async fn queues_of(
    ports: &Ports,
    name: &TenantName,
    pipeline: Option<&str>,
) -> Result<Queues, Refusal> {
    let (keys, troubles) = queue_keys(ports, name, pipeline).await?;
    let mut read = Queues { troubles, ..Queues::default() };
    for keys in keys.chunks(QUEUES_AT_ONCE) {
        for (key, loaded) in
            keys.iter().zip(join_all(keys.iter().map(|key| queue::load(ports, key))).await)
        {
            match loaded {
                Ok(loaded) => {
                    if loaded.is_frozen
                        && let Some(why) = frozen_because(ports, &queue::partition(key)).await?
                    {
                        read.frozen.insert(key.clone(), why);
                    }
                    if let Some(other) =
                        loaded.head.as_ref().and_then(|head| head.stands_in.clone())
                    {
                        read.lent.insert(key.clone(), other);
                    }
                    if !is_lent(&loaded) {
                        read.queues.push((key.clone(), loaded));
                    }
                }
                Err(queue::LoadError::Port(error)) => return Err(error.into()),
                Err(queue::LoadError::Bad(bad)) => {
                    tracing::warn!(queue = %key, error = %bad, "left a queue out of an answer");
                    let mark = frozen_because(ports, &queue::partition(key)).await?;
                    read.troubles.push(trouble(key, mark, &bad));
                    read.unread.push(key.clone());
                }
            }
        }
    }
    claims(ports, &mut read.queues).await?;
    Ok(read)
}

/// Returns whether there is nothing to be shown of a queue: its change stands in another one, with
/// those that need it as much as it needs them, and is shown there.
fn is_lent(loaded: &Loaded) -> bool {
    let lends =
        |head: &Head| head.stands_in.is_some() && head.slots.is_empty() && head.frozen.is_none();
    loaded.head.as_ref().is_some_and(lends) && loaded.arrivals.is_empty() && !loaded.is_frozen
}

/// Says why a queue is not shown, and what to do where it is frozen for that.
fn trouble(key: &QueueKey, mark: Option<String>, bad: &BadRecord) -> String {
    let QueueKey { tenant, pipeline, queue } = key;
    let is_frozen = mark.is_some();
    let why: String = mark.unwrap_or_else(|| bad.to_string()).chars().take(WHY_MAX).collect();
    if is_frozen {
        let thaw = format!("sluice queue thaw {tenant} {pipeline} {queue} --reason TEXT");
        format!("The queue {queue} of {pipeline} is frozen: {why}. Once that is mended: {thaw}")
    } else {
        format!("The queue {queue} of {pipeline} cannot be read: {why}.")
    }
}

/// Shows builds as running that executors have claimed, and as passed those that have: a queue
/// itself hears of that with its next look only, and of what passed while others of its item go on
/// nobody tells it before.
async fn claims(ports: &Ports, queues: &mut [(QueueKey, Loaded)]) -> Result<(), Refusal> {
    let is_open =
        |job: &Job| matches!(job.status, JobStatus::Ordered { .. } | JobStatus::Running { .. });
    let mut under_way: Vec<&mut Job> = queues
        .iter_mut()
        .flat_map(|(_, loaded)| loaded.items.values_mut())
        .flat_map(|(_, item)| &mut Arc::make_mut(item).jobs)
        .filter(|job| job.build.is_some() && is_open(job))
        .collect();
    let keys: Vec<Key> =
        under_way.iter().filter_map(|job| job.build.as_ref().map(build::run_key)).collect();
    for (job, record) in under_way.iter_mut().zip(many(ports, &keys).await?) {
        // One that cannot be read its queue sets aside.
        let Some(run) = record.as_ref().and_then(decode_foreign::<Run>) else { continue };
        let started_at = Some(run.claimed_at);
        job.status = match run.phase {
            Phase::Ended(ended) if ended.result.passed() => {
                let Ended { result, detail, started_at, ended_at, log_url, .. } = ended;
                JobStatus::Ended { result, detail, started_at, ended_at, log_url }
            }
            // All else about a build that its queue has seen running it is told at once.
            _ if matches!(job.status, JobStatus::Running { .. }) => continue,
            Phase::Paused(_) => JobStatus::Paused { started_at, resumed: false },
            phase => JobStatus::Running { started_at, pre_fail: matches!(phase, Phase::Failing) },
        };
    }
    Ok(())
}

/// Returns an item of a tenant, in its queue or after it left; `None` when the tenant has no such
/// item.
pub(crate) async fn item(
    ports: &Ports,
    name: &TenantName,
    id: &ItemId,
) -> Result<Option<Found>, Refusal> {
    if let Some(record) = get(ports, &buildset_key(id)).await? {
        let buildset: Buildset = decode(&record)?;
        if buildset.queue.tenant != *name {
            return Ok(None);
        }
        if buildset.is_open() {
            // Its queue knows its last jobs, unless it has left meanwhile.
            let mut read = [(buildset.queue.clone(), queue::load(ports, &buildset.queue).await?)];
            claims(ports, &mut read).await?;
            let [(key, loaded)] = read;
            if loaded.items.contains_key(id) {
                return Ok(Some(Found::Queued(Box::new(loaded), key)));
            }
        }
        return Ok(Some(Found::Left(Box::new(buildset))));
    }
    let (queues, _) = queue_keys(ports, name, None).await?;
    let keys: Vec<Key> = queues.iter().map(|key| queue::item_key(key, id)).collect();
    let found = many(ports, &keys).await?;
    let Some((_, key)) = found.iter().zip(&queues).find(|(record, _)| record.is_some()) else {
        return Ok(None);
    };
    let mut read = [(key.clone(), queue::load(ports, key).await?)];
    claims(ports, &mut read).await?;
    let [(key, loaded)] = read;
    Ok(Some(Found::Queued(Box::new(loaded), key)))
}

/// Returns what is known of items by where their builds say they are: the item in its queue, or as
/// it left. Of one whose records cannot be read nothing is known.
pub(crate) async fn items(
    ports: &Ports,
    wanted: &BTreeSet<(QueueKey, ItemId)>,
) -> Result<BTreeMap<ItemId, Item>, Refusal> {
    let queued: Vec<Key> =
        wanted.iter().map(|(queue, item)| queue::item_key(queue, item)).collect();
    let left: Vec<Key> = wanted.iter().map(|(_, item)| buildset_key(item)).collect();
    let (queued, left) = (many(ports, &queued).await?, many(ports, &left).await?);
    let mut found = BTreeMap::new();
    for ((_, id), (queued, left)) in wanted.iter().zip(queued.iter().zip(&left)) {
        let left = left.as_ref().and_then(readable::<Buildset>);
        // A queue knows the last jobs of what is open.
        let is_queued = left.as_ref().is_none_or(Buildset::is_open);
        let queued = queued.as_ref().filter(|_| is_queued).and_then(readable::<Item>);
        if let Some(item) = queued.or(left.map(|left| left.item)) {
            found.insert(id.clone(), item);
        }
    }
    Ok(found)
}

/// Returns what the forges showed of changes last, as far as it can be read.
pub(crate) async fn facts(
    ports: &Ports,
    wanted: &BTreeSet<ChangeKey>,
) -> Result<BTreeMap<ChangeKey, ChangeFacts>, Refusal> {
    let keys: Vec<Key> = wanted.iter().map(change::facts_key).collect();
    let mut found = BTreeMap::new();
    for record in many(ports, &keys).await?.into_iter().flatten() {
        let Some(facts) = readable::<ChangeFacts>(&record) else { continue };
        found.insert(facts.change.key.clone(), facts);
    }
    Ok(found)
}

/// Returns when the events of these ids came, as far as their deliveries are remembered.
pub(crate) async fn received<'e>(
    ports: &Ports,
    events: impl IntoIterator<Item = &'e str>,
) -> Result<BTreeMap<String, Timestamp>, Refusal> {
    let ids: BTreeSet<DeliveryId> = events.into_iter().map(DeliveryId::from).collect();
    let keys: Vec<Key> = ids.iter().map(delivery::key).collect();
    let records = many(ports, &keys).await?;
    let known = ids.into_iter().zip(records).filter_map(|(id, record)| {
        // The time is an extra: a delivery that cannot be read must not hide the builds it led to.
        let delivery: Delivery = decode_foreign(&record?)?;
        Some((id.0, delivery.received_at))
    });
    Ok(known.collect())
}

/// Returns the records under `keys`, in their order.
pub(crate) async fn many(ports: &Ports, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
    let mut records = Vec::with_capacity(keys.len());
    for some in keys.chunks(KEYS_AT_ONCE) {
        records.extend(ports.records.get(some).await?);
    }
    Ok(records)
}
