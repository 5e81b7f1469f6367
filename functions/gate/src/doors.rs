//! The own queues of changes that stand, or are to stand, in another one with those that need each
//! other: read before a decision, and written with it where it has a change come or go.

use crate::load::get_all;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_gate::plan::{Door, Plan, make_way, told_of};
use sluice_gate::queue::{is_named_as_own, own_queue};
use sluice_gate::{ArrivalKind, Head, Item, StoredHead};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{ArrivalId, QueueKey, Timestamp};
use sluice_records::codec::{BadRecord, decode, decode_foreign, expiry, with_body};
use sluice_records::{queue, tenant};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// What stands in a queue, each with as of which moment it is known.
type Seen = Vec<(ChangeRef, Timestamp)>;

/// Own queues by the changes that have them.
pub(crate) type Doors = BTreeMap<ChangeKey, Known>;

/// What is known of one.
pub(crate) struct Known {
    /// Its head's record, whose revision guards what is written; `None` where it was never used.
    record: Option<Record>,
    /// What that says, where it can be read.
    head: Option<StoredHead>,
    /// What a decision may know of it.
    pub(crate) door: Door,
}

/// Reads the own queues of the guests of a queue, and of what it is told of besides its own change.
/// Of a queue that has only ever heard of its own change nothing is read.
pub(crate) async fn load(
    ports: &Ports,
    key: &QueueKey,
    loaded: &queue::Loaded,
    pipeline: Option<&Pipeline>,
) -> Result<Doors, LookError> {
    let manager =
        loaded.head.as_ref().map(|head| head.manager).or(pipeline.map(|pipeline| pipeline.manager));
    let is_sent_on = loaded.head.as_ref().is_some_and(|head| head.stands_in.is_some());
    let is_independent = manager == Some(Manager::Independent);
    if !(is_independent || lends(key, loaded)) || is_sent_on {
        return Ok(Doors::new());
    }
    let standing = loaded.head.iter().flat_map(|head| &head.slots).map(|slot| &slot.change.key);
    let told = loaded.arrivals.iter().filter(|_| is_independent).flat_map(told_of);
    let others: BTreeSet<&ChangeKey> =
        standing.chain(told).filter(|change| own_queue(change) != key.queue).collect();
    if others.is_empty() {
        return Ok(Doors::new());
    }
    let wishes = wishes(key, loaded);
    let heads = others.iter().map(|change| queue::head_key(&own_key(key, change)));
    let keys: Vec<Key> = heads.chain(wishes.iter().map(|(_, _, wish)| wish.clone())).collect();
    let found = get_all(ports, &keys).await?;
    let mut doors = Doors::new();
    for change in others {
        let own = own_key(key, change);
        let record = found.get(&queue::head_key(&own)).cloned();
        let read: Result<Option<StoredHead>, BadRecord> = record.as_ref().map(decode).transpose();
        let (head, mut unreadable) = match read {
            Ok(head) => (head, None),
            Err(bad) => (None, Some(bad.to_string())),
        };
        let stands_in = head.as_ref().and_then(|head| head.stands_in.clone());
        let seen = match (&stands_in, &head) {
            (Some(other), _) if *other == key.queue => Ok(Vec::new()),
            (Some(other), _) => {
                Ok(elsewhere(ports, &QueueKey { queue: other.clone(), ..key.clone() }, change)
                    .await?)
            }
            (None, Some(head)) => items(ports, &own, head).await?,
            (None, None) => Ok(Vec::new()),
        };
        let slots = seen.unwrap_or_else(|why| {
            unreadable = Some(why);
            Vec::new()
        });
        if let Some(why) = &unreadable {
            // It is about this one change: whatever else stands in the queue goes on.
            tracing::error!(queue = %own, %why, wanted_in = %key, "the own queue of a change cannot be read; mend that record");
        }
        let asked = wishes.iter().filter(|(of, _, wish)| *of == change && found.contains_key(wish));
        let asked = asked.map(|(_, id, _)| id.clone()).collect();
        doors.insert(
            change.clone(),
            Known { record, head, door: Door { stands_in, slots, asked, unreadable } },
        );
    }
    Ok(doors)
}

/// Returns whether a queue is one that may have guests still, though its pipeline is another one by
/// now: the own queue of a change that stands in it. What its guests' own queues say is taken back
/// when they leave.
fn lends(key: &QueueKey, loaded: &queue::Loaded) -> bool {
    let mut slots = loaded.head.iter().flat_map(|head| &head.slots);
    is_named_as_own(&key.queue) && slots.any(|slot| own_queue(&slot.change.key) == key.queue)
}

/// Returns the write of each own queue that says another thing from now on of where its change
/// stands, and of whether it is listed.
pub(crate) fn writes(
    key: &QueueKey,
    doors: &Doors,
    (plan, layout): (&Plan, u64),
    now: Timestamp,
) -> Result<Vec<Write>, LookError> {
    let mut writes = Vec::new();
    for (change, to) in &plan.doors {
        let Some(known) = doors.get(change) else {
            return Err(LookError::Again(format!(
                "a plan for {key} says where {change} stands, of which nobody read"
            )));
        };
        let own = own_key(key, change);
        if let Some(why) = &known.door.unreadable {
            return Err(LookError::Again(format!(
                "a plan for {key} writes {own}, which cannot be read: {why}"
            )));
        }
        let head = known
            .head
            .clone()
            .unwrap_or_else(|| Head::new(own.clone(), Manager::Independent, 0, layout).stored());
        let head = StoredHead { stands_in: to.clone(), ..head };
        writes.push(put_head(&own, known.record.as_ref(), &head, now)?);
        writes.push(match to {
            // So that it is told of its change, and its tenant's layouts.
            Some(_) => tenant::put_queue(&own, 0)?,
            None => Write::Delete { key: tenant::queue_key(&own), expect: Expect::Anything },
        });
    }
    Ok(writes)
}

/// Returns the write of another queue's head. What it has still to send, and when it is to be
/// looked at, stays as it is.
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
    record.expires_at = head.stands_in.is_none().then(|| expiry(now));
    Ok(Write::Put { record, expect })
}

/// Returns what a queue may have asked others for, by the change, with the key of what arrives
/// there.
fn wishes<'a>(key: &QueueKey, loaded: &'a queue::Loaded) -> Vec<(&'a ChangeKey, ArrivalId, Key)> {
    let offered = loaded.arrivals.iter().filter_map(|arrival| match &arrival.kind {
        ArrivalKind::Enqueue { candidates } => Some((arrival, candidates)),
        _ => None,
    });
    let of_each =
        offered.flat_map(|(arrival, candidates)| candidates.iter().map(move |one| (arrival, one)));
    let others = of_each.filter(|(_, one)| own_queue(&one.change.key) != key.queue);
    let wish = |(arrival, one)| {
        let wish = make_way(arrival, one, key);
        let at = queue::arrival_key(&own_key(key, &one.change.key), &wish);
        (&one.change.key, wish.id, at)
    };
    others.map(wish).collect()
}

/// Returns what is known of a change where it stands in another queue than its own. It may not
/// enter a third one in any case: what cannot be read there is that queue's to say.
async fn elsewhere(ports: &Ports, queue: &QueueKey, change: &ChangeKey) -> Result<Seen, PortError> {
    let key = queue::head_key(queue);
    let found = get_all(ports, std::slice::from_ref(&key)).await?;
    let Some(head) = found.get(&key).and_then(decode_foreign::<StoredHead>) else {
        return Ok(Vec::new());
    };
    let mut slots = items(ports, queue, &head).await?.unwrap_or_default();
    slots.retain(|(other, _)| other.key == *change);
    Ok(slots)
}

/// Returns what stands in a queue, or why that cannot be read. One that somebody writes meanwhile
/// is written on condition that it is as it was read.
async fn items(
    ports: &Ports,
    queue: &QueueKey,
    head: &StoredHead,
) -> Result<Result<Seen, String>, PortError> {
    let ids = match head.versions() {
        Ok(ids) => ids,
        Err(why) => return Ok(Err(format!("the queue {queue} cannot be read: {why}"))),
    };
    let keys: Vec<Key> = ids.iter().map(|(id, _)| queue::item_key(queue, id)).collect();
    let found = get_all(ports, &keys).await?;
    let read: Result<Vec<Item>, BadRecord> = found.values().map(decode).collect();
    let seen = |items: Vec<Item>| -> Seen {
        items.into_iter().map(|item| (item.candidate.change, item.candidate.as_of)).collect()
    };
    Ok(read.map(seen).map_err(|bad| bad.to_string()))
}

fn own_key(key: &QueueKey, change: &ChangeKey) -> QueueKey {
    QueueKey { queue: own_queue(change), ..key.clone() }
}
