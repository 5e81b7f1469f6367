//! Loads what several answers need: tenants, their queues, an item in any state, many records at
//! once.

use crate::Api;
use crate::reply::ErrorResponse;
use futures::future::join_all;
use serde::de::DeserializeOwned;
use sluice_gate::{Head, Item, Job, JobStatus};
use sluice_model::build::{Phase, Run, RunEnd};
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::name::escape;
use sluice_model::{DeliveryId, ItemId, QueueKey, QueueName, TenantName, Timestamp};
use sluice_records::codec::{BadRecord, decode, decode_or_log, get};
use sluice_records::delivery::{self, DeliveryRecord};
use sluice_records::layout::LiveLayout;
use sluice_records::queue::LoadedQueue;
use sluice_records::report::{Buildset, buildset_key};
use sluice_records::tenant::Tenant;
use sluice_records::{build, change, queue, tenant};
use sluice_runtime::quarantine::halt_reason;
use sluice_runtime::record::{Key, Query, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum number of queues in one answer. In an independent pipeline each change has a queue.
const QUEUES_MAX: usize = 2_000;
/// The number of queues that are read concurrently.
const QUEUES_AT_ONCE: usize = 16;
/// The maximum length of a reason in an answer, in characters.
const REASON_CHARS_MAX: usize = 600;
/// The maximum number of keys in one read of the table.
const KEYS_AT_ONCE: usize = 100;

/// The queues of a tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantQueues {
    /// The queues that have items or inbox messages. Queues whose change is hosted in another queue
    /// are left out.
    pub(crate) queues: Vec<(QueueKey, LoadedQueue)>,
    /// Why queues are halted, for those with unreadable records.
    pub(crate) halted: BTreeMap<QueueKey, String>,
    /// The queues that are left out because a record cannot be read.
    pub(crate) unread: Vec<QueueKey>,
    /// For each queue whose change is hosted in another queue, the name of that queue.
    pub(crate) hosted: BTreeMap<QueueKey, QueueName>,
    /// Messages about what could not be read and is left out of the answer.
    pub(crate) problems: Vec<String>,
}

/// An item, queued or not.
pub(crate) enum ItemLocation {
    /// The item is in this queue.
    Queued(Box<LoadedQueue>, QueueKey),
    /// The item has left.
    Left(Box<Buildset>),
}

/// Returns the names of all tenants in order, without removed ones.
pub(crate) async fn tenants(ports: &Ports) -> Result<Vec<TenantName>, ErrorResponse> {
    let mut names = tenant::list_tenants(ports).await?;
    names.sort();
    Ok(names)
}

/// Returns an error with status 404 if the tenant does not exist or was removed. One whose
/// configuration was never loaded exists.
pub(crate) async fn require_tenant(ports: &Ports, name: &TenantName) -> Result<(), ErrorResponse> {
    let keys = [tenant::key(name), Key::new(tenant::TENANTS, escape(name.as_str()))];
    let found = ports.records.get(&keys).await?;
    let [head, listed] = found.as_slice() else { return Err(missing(name)) };
    let is_removed =
        head.as_ref().map(decode::<Tenant>).transpose()?.is_some_and(|tenant| tenant.is_removed);
    if is_removed || (head.is_none() && listed.is_none()) { Err(missing(name)) } else { Ok(()) }
}

/// Returns the error with status 404 for a tenant that does not exist.
pub(crate) fn missing(name: &TenantName) -> ErrorResponse {
    ErrorResponse::missing(format!("There is no tenant {name}."))
}

/// Returns a tenant with its live layout. The error is 404 if it does not exist or was removed, and
/// 422 if it was never loaded.
pub(crate) async fn live(api: &Api, name: &TenantName) -> Result<LiveLayout, ErrorResponse> {
    if let Some(live) =
        api.layouts.load_live(&api.ports, name).await?.filter(|live| !live.tenant.is_removed)
    {
        return Ok(live);
    }
    require_tenant(&api.ports, name).await?;
    Err(ErrorResponse::NotLoaded { tenant: name.to_string() })
}

/// Decodes one of many records; logs an unreadable record and returns `None`, so that the others
/// can be shown.
pub(crate) fn readable<T: DeserializeOwned>(record: &Record) -> Option<T> {
    let left_out = |bad: &BadRecord| {
        tracing::warn!(%bad, "left an unreadable record out of an answer; repair it, or delete it if nothing needs it");
    };
    decode(record).inspect_err(left_out).ok()
}

/// Decodes a record. If it is unreadable, logs that, adds a message to `problems` and returns
/// `None`. `what` names the record in the message.
pub(crate) fn read_or_report<T: DeserializeOwned>(
    record: &Record,
    what: &str,
    problems: &mut Vec<String>,
) -> Option<T> {
    match decode(record) {
        Ok(read) => Some(read),
        Err(bad) => {
            tracing::warn!(%bad, "left an unreadable record out of an answer that says so; repair it");
            let why: String = bad.to_string().chars().take(REASON_CHARS_MAX).collect();
            problems.push(format!("{what} is left out: {why}. Repair that record."));
            None
        }
    }
}

/// Returns the keys of a tenant's non-empty queues in order, of one pipeline or of all (`None`), at
/// most [`QUEUES_MAX`]. The second part has messages about unreadable index records, and one if
/// there may be more queues. A queue with an unreadable index record is among the keys if its
/// record's key names it. An unknown tenant or pipeline has none.
async fn queue_keys(
    ports: &Ports,
    name: &TenantName,
    pipeline: Option<&str>,
) -> Result<(Vec<QueueKey>, Vec<String>), ErrorResponse> {
    let prefix = pipeline.map_or_else(String::new, |pipeline| format!("{}/", escape(pipeline)));
    let query =
        Query::prefix(tenant::partition(name), format!("{}{prefix}", tenant::QUEUES), QUEUES_MAX);
    let (mut keys, mut problems) = (Vec::new(), Vec::new());
    let records = ports.records.query(&query).await?;
    if records.len() == QUEUES_MAX {
        problems.push(format!(
            "Only {QUEUES_MAX} queues are shown; there may be more. Select one pipeline at a time."
        ));
    }
    for record in records {
        match decode::<QueueKey>(&record) {
            Ok(key) => keys.push(key),
            Err(bad) => {
                tracing::warn!(%bad, "the record of a queue is unreadable, so only its key is known; repair it");
                let key = tenant::queue_of_list_key(name, &record.key);
                problems.push(unreadable_listing(key.as_ref(), &bad));
                keys.extend(key);
            }
        }
    }
    keys.retain(|key| key.tenant == *name);
    Ok((keys, problems))
}

/// Formats the message about an unreadable record that lists a queue.
fn unreadable_listing(key: Option<&QueueKey>, bad: &BadRecord) -> String {
    let why: String = bad.to_string().chars().take(REASON_CHARS_MAX).collect();
    match key {
        Some(QueueKey { pipeline, queue, .. }) => {
            format!(
                "Only the name of the queue {queue} of {pipeline} is known: {why}. Repair that record."
            )
        }
        None => format!("A queue is left out: {why}. Repair that record."),
    }
}

/// Loads the non-empty queues of a tenant: [`queues_of`] without a pipeline.
pub(crate) async fn queues(
    ports: &Ports,
    name: &TenantName,
) -> Result<TenantQueues, ErrorResponse> {
    queues_of(ports, name, None).await
}

/// Loads the non-empty queues of one pipeline, or of all, with the latest job states, at most
/// [`QUEUES_MAX`]. Unreadable queues are only named, with a message. Queues whose change is shown
/// in a host queue are left out, unless they have inbox messages or are halted. An unknown tenant
/// has no queues, which is no error: see [`require_tenant`].
pub(crate) async fn queues_of(
    ports: &Ports,
    name: &TenantName,
    pipeline: Option<&str>,
) -> Result<TenantQueues, ErrorResponse> {
    let (keys, problems) = queue_keys(ports, name, pipeline).await?;
    let mut read = TenantQueues { problems, ..TenantQueues::default() };
    for keys in keys.chunks(QUEUES_AT_ONCE) {
        for (key, loaded) in
            keys.iter().zip(join_all(keys.iter().map(|key| queue::load(ports, key))).await)
        {
            match loaded {
                Ok(loaded) => {
                    if loaded.is_halted
                        && let Some(why) = halt_reason(ports, &queue::partition(key)).await?
                    {
                        read.halted.insert(key.clone(), why);
                    }
                    if let Some(other) =
                        loaded.head.as_ref().and_then(|head| head.hosted_in.clone())
                    {
                        read.hosted.insert(key.clone(), other);
                    }
                    if !is_hosted_elsewhere(&loaded) {
                        read.queues.push((key.clone(), loaded));
                    }
                }
                Err(queue::LoadError::Port(error)) => return Err(error.into()),
                Err(queue::LoadError::Bad(bad)) => {
                    tracing::warn!(queue = %key, error = %bad, "left an unreadable queue out of an answer");
                    let mark = halt_reason(ports, &queue::partition(key)).await?;
                    read.problems.push(queue_problem(key, mark, &bad));
                    read.unread.push(key.clone());
                }
            }
        }
    }
    update_from_runs(ports, &mut read.queues).await?;
    Ok(read)
}

/// Returns whether a queue is not shown because its change is in its host queue: it has no entries
/// and no inbox messages, and is not halted.
fn is_hosted_elsewhere(loaded: &LoadedQueue) -> bool {
    let lends =
        |head: &Head| head.hosted_in.is_some() && head.entries.is_empty() && head.halted.is_none();
    loaded.head.as_ref().is_some_and(lends) && loaded.inbox.is_empty() && !loaded.is_halted
}

/// Formats the message about a queue that is left out. `mark` is the reason in its halt record:
/// with it the message has that reason and the command to resume the queue, without it the error
/// `bad`.
fn queue_problem(key: &QueueKey, mark: Option<String>, bad: &BadRecord) -> String {
    let QueueKey { tenant, pipeline, queue } = key;
    let is_halted = mark.is_some();
    let why: String =
        mark.unwrap_or_else(|| bad.to_string()).chars().take(REASON_CHARS_MAX).collect();
    if is_halted {
        let resume = format!("sluice queue resume {tenant} {pipeline} {queue} --reason TEXT");
        format!(
            "The queue {queue} of {pipeline} is halted: {why}. To resume it after the record is repaired: {resume}"
        )
    } else {
        format!("The queue {queue} of {pipeline} could not be read: {why}.")
    }
}

/// Updates in place the states of ordered and running jobs from the executors' runs. One whose
/// build passed becomes ended. Of other builds only the claim is applied: an ordered job becomes
/// paused if its build is paused, else running, also if the build has failed. A running job
/// otherwise stays as it is. An unreadable run changes nothing.
async fn update_from_runs(
    ports: &Ports,
    queues: &mut [(QueueKey, LoadedQueue)],
) -> Result<(), ErrorResponse> {
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
    for (job, record) in under_way.iter_mut().zip(read_many(ports, &keys).await?) {
        // The queue itself quarantines an unreadable run.
        let Some(run) = record.as_ref().and_then(decode_or_log::<Run>) else { continue };
        let started_at = Some(run.claimed_at);
        job.status = match run.phase {
            Phase::Ended(ended) if ended.result.passed() => {
                let RunEnd { result, detail, started_at, ended_at, log_url, .. } = ended;
                JobStatus::Ended { result, detail, started_at, ended_at, log_url }
            }
            // The queue is notified at once of any other end of a running build.
            _ if matches!(job.status, JobStatus::Running { .. }) => continue,
            Phase::Paused(_) => JobStatus::Paused { started_at, resumed: false },
            phase => JobStatus::Running { started_at, pre_fail: matches!(phase, Phase::Failing) },
        };
    }
    Ok(())
}

/// Returns an item of a tenant, queued or not, with the latest job states; `None` if the tenant has
/// none with this id. A queued item comes with its whole queue, which may have lost it since it was
/// found. Only the first [`QUEUES_MAX`] queues are searched. An unreadable record is an error.
pub(crate) async fn item(
    ports: &Ports,
    name: &TenantName,
    id: &ItemId,
) -> Result<Option<ItemLocation>, ErrorResponse> {
    if let Some(record) = get(ports, &buildset_key(id)).await? {
        let buildset: Buildset = decode(&record)?;
        if buildset.queue.tenant != *name {
            return Ok(None);
        }
        if buildset.is_open() {
            // The queue has the state of the last jobs, unless the item has just left.
            let mut read = [(buildset.queue.clone(), queue::load(ports, &buildset.queue).await?)];
            update_from_runs(ports, &mut read).await?;
            let [(key, loaded)] = read;
            if loaded.items.contains_key(id) {
                return Ok(Some(ItemLocation::Queued(Box::new(loaded), key)));
            }
        }
        return Ok(Some(ItemLocation::Left(Box::new(buildset))));
    }
    let (queues, _) = queue_keys(ports, name, None).await?;
    let keys: Vec<Key> = queues.iter().map(|key| queue::item_key(key, id)).collect();
    let found = read_many(ports, &keys).await?;
    let Some((_, key)) = found.iter().zip(&queues).find(|(record, _)| record.is_some()) else {
        return Ok(None);
    };
    let mut read = [(key.clone(), queue::load(ports, key).await?)];
    update_from_runs(ports, &mut read).await?;
    let [(key, loaded)] = read;
    Ok(Some(ItemLocation::Queued(Box::new(loaded), key)))
}

/// Returns items by the queues and ids in `item_keys`: the queued item, or the item as it left.
/// Missing and unreadable items are left out.
pub(crate) async fn items(
    ports: &Ports,
    item_keys: &BTreeSet<(QueueKey, ItemId)>,
) -> Result<BTreeMap<ItemId, Item>, ErrorResponse> {
    let queued: Vec<Key> =
        item_keys.iter().map(|(queue, item)| queue::item_key(queue, item)).collect();
    let left: Vec<Key> = item_keys.iter().map(|(_, item)| buildset_key(item)).collect();
    let (queued, left) = (read_many(ports, &queued).await?, read_many(ports, &left).await?);
    let mut found = BTreeMap::new();
    for ((_, id), (queued, left)) in item_keys.iter().zip(queued.iter().zip(&left)) {
        let left = left.as_ref().and_then(readable::<Buildset>);
        // For an unfinished buildset, the queue has the state of the last jobs.
        let is_queued = left.as_ref().is_none_or(Buildset::is_open);
        let queued = queued.as_ref().filter(|_| is_queued).and_then(readable::<Item>);
        if let Some(item) = queued.or(left.map(|left| left.item)) {
            found.insert(id.clone(), item);
        }
    }
    Ok(found)
}

/// Returns the latest stored facts of changes, without missing and unreadable ones.
pub(crate) async fn facts(
    ports: &Ports,
    changes: &BTreeSet<ChangeKey>,
) -> Result<BTreeMap<ChangeKey, ChangeFacts>, ErrorResponse> {
    let keys: Vec<Key> = changes.iter().map(change::facts_key).collect();
    let mut found = BTreeMap::new();
    for record in read_many(ports, &keys).await?.into_iter().flatten() {
        let Some(facts) = readable::<ChangeFacts>(&record) else { continue };
        found.insert(facts.change.key.clone(), facts);
    }
    Ok(found)
}

/// Returns when events were received, by delivery id, without expired and unreadable deliveries.
pub(crate) async fn received<'e>(
    ports: &Ports,
    events: impl IntoIterator<Item = &'e str>,
) -> Result<BTreeMap<String, Timestamp>, ErrorResponse> {
    let ids: BTreeSet<DeliveryId> = events.into_iter().map(DeliveryId::from).collect();
    let keys: Vec<Key> = ids.iter().map(delivery::key).collect();
    let records = read_many(ports, &keys).await?;
    let times = ids.into_iter().zip(records).filter_map(|(id, record)| {
        // The time is optional: an unreadable delivery must not hide its builds.
        let delivery: DeliveryRecord = decode_or_log(&record?)?;
        Some((id.0, delivery.received_at))
    });
    Ok(times.collect())
}

/// Returns the records under `keys`, in their order; `None` for a missing one.
pub(crate) async fn read_many(
    ports: &Ports,
    keys: &[Key],
) -> Result<Vec<Option<Record>>, PortError> {
    let mut records = Vec::with_capacity(keys.len());
    for page in keys.chunks(KEYS_AT_ONCE) {
        records.extend(ports.records.get(page).await?);
    }
    Ok(records)
}
