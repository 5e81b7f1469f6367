//! The own queues of changes that are, or may become, hosted in another queue as members of its
//! bundle. They are read before a decision and written with it where it changes the host queue.

use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::plan::{Residency, mentioned_changes, release_request};
use sluice_gate::queue::{is_own_queue_name, own_queue};
use sluice_gate::{Head, InboxMessageKind, Item, StoredHead};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{InboxMessageId, QueueKey, QueueName, Timestamp};
use sluice_records::codec::{BadRecord, decode, decode_or_log, expiry, get_all, with_body};
use sluice_records::{queue, tenant};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Queued changes, each with the time of its facts.
type QueuedChanges = Vec<(ChangeRef, Timestamp)>;

/// Own queues by their changes.
pub(crate) type OwnQueues = BTreeMap<ChangeKey, OwnQueue>;

/// A change's own queue as another queue reads it.
pub(crate) struct OwnQueue {
    /// The head's record, whose revision guards the write; `None` where there is none.
    record: Option<Record>,
    /// The decoded head; `None` where there is none or it cannot be read.
    head: Option<StoredHead>,
    /// The part that a decision uses.
    pub(crate) residency: Residency,
}

/// Reads the own queues of the changes that a queue hosts and, in an independent pipeline, of the
/// changes in its inbox, other than its own change. Reads nothing where there are none, where the
/// queue itself is hosted elsewhere, and where it neither is independent nor may host changes.
/// `pipeline` is the live one; it counts only for a queue without a head. An own queue that cannot
/// be read is logged and marked so in its residency, and is no error.
pub(crate) async fn load(
    ports: &Ports,
    key: &QueueKey,
    loaded: &queue::LoadedQueue,
    pipeline: Option<&Pipeline>,
) -> Result<OwnQueues, ReconcileError> {
    let manager =
        loaded.head.as_ref().map(|head| head.manager).or(pipeline.map(|pipeline| pipeline.manager));
    let is_sent_on = loaded.head.as_ref().is_some_and(|head| head.hosted_in.is_some());
    let is_independent = manager == Some(Manager::Independent);
    if !(is_independent || may_host(key, loaded)) || is_sent_on {
        return Ok(OwnQueues::new());
    }
    let queued = loaded.head.iter().flat_map(Head::slots).map(|slot| &slot.change.key);
    let mentioned = loaded.inbox.iter().filter(|_| is_independent).flat_map(mentioned_changes);
    let others: BTreeSet<&ChangeKey> =
        queued.chain(mentioned).filter(|change| own_queue(change) != key.queue).collect();
    if others.is_empty() {
        return Ok(OwnQueues::new());
    }
    let release_requests = release_requests(key, loaded);
    let heads = others.iter().map(|change| queue::head_key(&own_key(key, change)));
    let keys: Vec<Key> =
        heads.chain(release_requests.iter().map(|(_, _, request)| request.clone())).collect();
    let found = get_all(ports, &keys).await?;
    let mut own_queues = OwnQueues::new();
    for change in others {
        let own = own_key(key, change);
        let record = found.get(&queue::head_key(&own)).cloned();
        let read: Result<Option<StoredHead>, BadRecord> = record.as_ref().map(decode).transpose();
        let (head, mut read_error) = match read {
            Ok(head) => (head, None),
            Err(bad) => (None, Some(bad.to_string())),
        };
        let hosted_in = head.as_ref().and_then(|head| head.hosted_in.clone());
        let seen = match (&hosted_in, &head) {
            (Some(other), _) if *other == key.queue => Ok(Vec::new()),
            (Some(other), _) => Ok(hosted_elsewhere(
                ports,
                &QueueKey { queue: other.clone(), ..key.clone() },
                change,
            )
            .await?),
            (None, Some(head)) => items(ports, &own, head).await?,
            (None, None) => Ok(Vec::new()),
        };
        let revisions = seen.unwrap_or_else(|why| {
            read_error = Some(why);
            Vec::new()
        });
        if let Some(why) = &read_error {
            // Only this change is affected; the rest of the queue goes on.
            tracing::error!(queue = %own, %why, host_queue = %key, "the own queue of a change cannot be read; repair that record");
        }
        let asked = release_requests
            .iter()
            .filter(|(of, _, request)| *of == change && found.contains_key(request));
        let release_requests = asked.map(|(_, id, _)| id.clone()).collect();
        own_queues.insert(
            change.clone(),
            OwnQueue {
                record,
                head,
                residency: Residency { hosted_in, revisions, release_requests, read_error },
            },
        );
    }
    Ok(own_queues)
}

/// Returns whether a queue may still host changes although its pipeline is no longer independent:
/// it has the name of a change's own queue, and that change is queued in it. The own queues of the
/// others are updated when these leave.
fn may_host(key: &QueueKey, loaded: &queue::LoadedQueue) -> bool {
    let mut slots = loaded.head.iter().flat_map(Head::slots);
    is_own_queue_name(&key.queue) && slots.any(|slot| own_queue(&slot.change.key) == key.queue)
}

/// Returns the writes that record a new host queue in the head of a change's own queue, on
/// condition that this head is unchanged, and that add the own queue to the tenant's list of
/// queues. Without `host` they release the change and remove the own queue from the list. `layout`
/// is the number of the layout for a head that does not exist yet. A retry error if the own queue
/// was not read or cannot be read.
pub(crate) fn writes(
    key: &QueueKey,
    own_queues: &OwnQueues,
    change: &ChangeKey,
    host: Option<QueueName>,
    layout: u64,
    now: Timestamp,
) -> Result<[Write; 2], ReconcileError> {
    let Some(known) = own_queues.get(change) else {
        return Err(ReconcileError::Retry(format!(
            "the plan for {key} changes the host queue of {change}, whose own queue was not read"
        )));
    };
    let own = own_key(key, change);
    if let Some(why) = &known.residency.read_error {
        return Err(ReconcileError::Retry(format!(
            "the plan for {key} writes {own}, which cannot be read: {why}"
        )));
    }
    let list = match &host {
        // So that it gets updates of its change and new layouts.
        Some(_) => tenant::put_queue(&own, 0)?,
        None => Write::Delete { key: tenant::queue_key(&own), expect: Expect::Anything },
    };
    let head = known
        .head
        .clone()
        .unwrap_or_else(|| Head::new(own.clone(), Manager::Independent, 0, layout).stored());
    let head = StoredHead { hosted_in: host, ..head };
    Ok([put_head(&own, known.record.as_ref(), &head, now)?, list])
}

/// Returns the write of another queue's head as the next revision of its record `known`, on
/// condition that this has not changed; with `None`, that there is still no record. Its outbox and
/// due time are unchanged. A head without a host queue expires.
fn put_head(
    own: &QueueKey,
    known: Option<&Record>,
    head: &StoredHead,
    now: Timestamp,
) -> Result<Write, PortError> {
    let (record, expect) = match known {
        Some(record) => (record.clone(), Expect::Revision(record.revision)),
        None => (Record::new(queue::head_key(own), String::new()), Expect::Absent),
    };
    let mut record = with_body(record, head)?;
    record.revision += 1;
    record.expires_at = head.hosted_in.is_none().then(|| expiry(now));
    Ok(Write::Put { record, expect })
}

/// Returns the release requests that this queue may have sent for the enqueue messages in its
/// inbox, one for each candidate whose own queue is another one: the change, the request's id, and
/// the key of its record in that queue's inbox. Whether the record exists is not checked.
fn release_requests<'a>(
    key: &QueueKey,
    loaded: &'a queue::LoadedQueue,
) -> Vec<(&'a ChangeKey, InboxMessageId, Key)> {
    let offered = loaded.inbox.iter().filter_map(|message| match &message.kind {
        InboxMessageKind::Enqueue { candidates } => Some((message, candidates)),
        _ => None,
    });
    let of_each =
        offered.flat_map(|(message, candidates)| candidates.iter().map(move |one| (message, one)));
    let others = of_each.filter(|(_, one)| own_queue(&one.change.key) != key.queue);
    let request = |(message, one)| {
        let request = release_request(message, one, key);
        let at = queue::message_key(&own_key(key, &one.change.key), &request);
        (&one.change.key, request.id, at)
    };
    others.map(request).collect()
}

/// Returns the revisions of a change in the queue `queue`, which hosts it and is not its own, each
/// with the time of its facts. Empty where that queue cannot be read: the change cannot enter a
/// third queue anyway.
async fn hosted_elsewhere(
    ports: &Ports,
    queue: &QueueKey,
    change: &ChangeKey,
) -> Result<QueuedChanges, PortError> {
    let key = queue::head_key(queue);
    let found = get_all(ports, std::slice::from_ref(&key)).await?;
    let Some(head) = found.get(&key).and_then(decode_or_log::<StoredHead>) else {
        return Ok(Vec::new());
    };
    let mut slots = items(ports, queue, &head).await?.unwrap_or_default();
    slots.retain(|(other, _)| other.key == *change);
    Ok(slots)
}

/// Returns the changes in a queue; the inner error is the reason why they cannot be read. Items
/// without a record are left out. A concurrent write is detected at the commit, which checks the
/// head's revision.
async fn items(
    ports: &Ports,
    queue: &QueueKey,
    head: &StoredHead,
) -> Result<Result<QueuedChanges, String>, PortError> {
    let ids = match head.versions() {
        Ok(ids) => ids,
        Err(why) => return Ok(Err(format!("the queue {queue} cannot be read: {why}"))),
    };
    let keys: Vec<Key> = ids.iter().map(|(id, _)| queue::item_key(queue, id)).collect();
    let found = get_all(ports, &keys).await?;
    let read: Result<Vec<Item>, BadRecord> = found.values().map(decode).collect();
    let seen = |items: Vec<Item>| -> QueuedChanges {
        items.into_iter().map(|item| (item.candidate.change, item.candidate.as_of)).collect()
    };
    Ok(read.map(seen).map_err(|bad| bad.to_string()))
}

/// Returns the key of a change's own queue, in the pipeline of `key`.
fn own_key(key: &QueueKey, change: &ChangeKey) -> QueueKey {
    QueueKey { queue: own_queue(change), ..key.clone() }
}
