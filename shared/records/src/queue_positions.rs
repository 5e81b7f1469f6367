//! The current queue positions of changes whose node requests wait. A request's row has the position
//! at the time of the request, and queues advance.
//!
//! In a shared queue, the position is read from the queue's head. In an independent pipeline each
//! change has a queue of its own, and the changes of one project or shared queue form a group: the
//! heads of its queues are listed in the index `find` while they have changes, so that one query
//! counts what is ahead, whether it has requests at the same provider or not (Z6.1). An entry is
//! written once when a change enters and deleted when it leaves, with the head, so no call is added;
//! a query of a group with 500 changes reads about 60 kB of keys.
//!
//! Positions only influence the order of service, so they may be slightly outdated.

use crate::codec::decode_or_log;
use crate::{build, queue};
use serde::Deserialize;
use sluice_gate::StoredHead;
use sluice_model::{ItemId, QueueKey, Timestamp};
use sluice_pool::{NodeRequest, RequestRow, RequestState};
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// The most queues, and the most groups, that one call reads; other requests are served by their
/// rows.
const QUEUES_MAX: usize = 50;

/// The most changes of one group that are read, the newest. Those not read are older, so they keep
/// the positions in their rows, which are before all of these.
const GROUP_MAX: usize = 500;

/// How long in milliseconds a request's row counts as current.
const FRESH_MILLIS: u64 = 1_000;

/// The part of a build's order that is read.
#[derive(Deserialize)]
struct Ordered {
    item: ItemId,
}

/// Returns the index entry of the head of an independent pipeline's queue while it has changes: the
/// partition, by `group`, and the sort key, which begins with the time `since` when the change
/// entered.
pub fn group_entry(group: &str, queue: &QueueKey, since: Timestamp) -> (String, String) {
    (group_partition(group), format!("{:015}#{queue}", since.0))
}

/// Returns the partition of the index `find` that lists the queues of a group.
fn group_partition(group: &str) -> String {
    format!("live-queues#{group}")
}

/// Returns the requests of shared queues that wait for placement, were not first when they were
/// made, and are at least a second old: their changes may have advanced meanwhile.
pub fn may_have_moved<'r>(
    requests: impl Iterator<Item = &'r NodeRequest>,
    now: Timestamp,
) -> Vec<&'r NodeRequest> {
    let waits = |request: &&NodeRequest| {
        request.state == RequestState::Requested && request.row.relative() > 0
    };
    // In an independent pipeline a queue holds one bundle only; its group is counted.
    let is_shared = |request: &&NodeRequest| request.group.is_none();
    let is_old = |request: &&NodeRequest| is_old(request, now);
    requests.filter(waits).filter(is_shared).filter(is_old).collect()
}

fn is_old(request: &NodeRequest, now: Timestamp) -> bool {
    now.since(request.created_at) >= FRESH_MILLIS
}

/// Returns the requests of independent pipelines that wait for placement, if any request has waited
/// for a second. Otherwise there is no shortage, and no order to decide.
pub fn waiting_in_groups<'r>(
    requests: impl Iterator<Item = &'r NodeRequest>,
    now: Timestamp,
) -> Vec<&'r NodeRequest> {
    let waiting: Vec<&NodeRequest> =
        requests.filter(|request| request.state == RequestState::Requested).collect();
    if !waiting.iter().any(|request| is_old(request, now)) {
        return Vec::new();
    }
    waiting.into_iter().filter(|request| request.group.is_some()).collect()
}

/// Returns for each request how many changes of its group entered the pipeline before its own and
/// are still there. A request without a group is left out, as is one whose change is not among the
/// newest [`GROUP_MAX`] of its group or not listed yet. Reads at most [`QUEUES_MAX`] groups, with a
/// query each.
///
/// # Errors
/// When the store does not answer.
pub async fn places_in_groups(
    ports: &Ports,
    requests: &[&NodeRequest],
) -> Result<BTreeMap<RequestRow, usize>, PortError> {
    let groups: BTreeSet<&str> =
        requests.iter().filter_map(|request| request.group.as_deref()).collect();
    let mut places = BTreeMap::new();
    for group in groups.into_iter().take(QUEUES_MAX) {
        let newest = ports.records.find(&group_partition(group), None, GROUP_MAX).await?;
        let by_queue: BTreeMap<&str, usize> =
            newest.iter().rev().enumerate().map(|(at, key)| (key.partition.as_str(), at)).collect();
        for request in requests.iter().filter(|request| request.group.as_deref() == Some(group)) {
            let place = by_queue.get(queue::partition(&request.queue).as_str());
            places.extend(place.map(|place| (request.row.clone(), *place)));
        }
    }
    Ok(places)
}

/// Returns the keys of the heads of the queues that requests belong to, each once, at most
/// [`QUEUES_MAX`].
pub fn heads(requests: &[&NodeRequest]) -> Vec<Key> {
    let queues: BTreeSet<&QueueKey> = requests.iter().map(|request| &request.queue).collect();
    queues.into_iter().take(QUEUES_MAX).map(queue::head_key).collect()
}

/// Returns for each request how many entries are ahead of its change's in the queue, from the queue
/// heads (see [`heads`]) and build orders in `found`. A request is left out if one of the two is
/// missing or unreadable, or if its change is no longer queued; then the position in its row
/// counts.
pub fn current_places(
    requests: &[&NodeRequest],
    found: &BTreeMap<Key, Record>,
) -> BTreeMap<RequestRow, usize> {
    let mut queues: BTreeMap<&QueueKey, BTreeMap<ItemId, usize>> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for request in requests {
        // Its queue has to repair an unreadable head; meanwhile the row counts.
        let of_queue = queues.entry(&request.queue).or_insert_with(|| {
            let head =
                found.get(&queue::head_key(&request.queue)).and_then(decode_or_log::<StoredHead>);
            head.and_then(|head| head.positions().ok()).unwrap_or_default()
        });
        let order = found.get(&build::order_key(&request.build)).and_then(decode_or_log::<Ordered>);
        let place = order.and_then(|order| of_queue.get(&order.item).copied());
        places.extend(place.map(|place| (request.row.clone(), place)));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_model::wakeup::Precedence;

    fn request(relative: u32, sequence: u64, build: &str) -> NodeRequest {
        let queue =
            QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "integrated".into() };
        let row = RequestRow::new(100, relative, sequence);
        NodeRequest::new(
            row,
            build.into(),
            queue,
            "unit",
            Precedence::High,
            vec!["small".into()],
            Timestamp(5_000),
        )
    }

    /// Z6.1: only requests that wait, are not recent and not first are read; those that take turns
    /// are counted elsewhere.
    #[test]
    fn who_may_have_moved_up_is_asked_about() {
        let (first, behind) = (request(0, 1, "a"), request(2, 2, "b"));
        let alone = NodeRequest { group: Some("t/check/one".to_owned()), ..request(2, 3, "c") };
        let failed = RequestState::Failed { reason: "no".to_owned() };
        let over = NodeRequest { state: failed, ..request(2, 4, "d") };
        let all = [first, behind.clone(), alone, over];
        assert_eq!(may_have_moved(all.iter(), Timestamp(6_000)), [&behind]);
        assert_eq!(may_have_moved(all.iter(), Timestamp(5_999)), Vec::<&NodeRequest>::new());
        assert_eq!(heads(&[&behind, &behind]), [queue::head_key(&behind.queue)]);
    }

    /// Z6.1: groups are counted once a request had to wait.
    #[test]
    fn groups_are_counted_when_a_request_waits() {
        let group = Some("t/check/app".to_owned());
        let all = [request(0, 1, "a"), NodeRequest { group, ..request(0, 2, "b") }];
        assert_eq!(waiting_in_groups(all.iter(), Timestamp(6_000)), [&all[1]]);
        assert_eq!(waiting_in_groups(all.iter(), Timestamp(5_999)), Vec::<&NodeRequest>::new());
    }

    /// Z6.1: a change's position is that of its item in the head. Where that is unreadable or gone,
    /// the row counts.
    #[test]
    fn a_place_is_read_off_the_head_of_the_queue() {
        let requests = [request(2, 1, "a"), request(3, 2, "b"), request(4, 3, "c")];
        let requests: Vec<&NodeRequest> = requests.iter().collect();
        let record =
            |key: Key, body: serde_json::Value| (key.clone(), Record::new(key, body.to_string()));
        let order = |build: &str, item: &str| {
            record(build::order_key(&build.into()), json!({ "item": item }))
        };
        let head = |entries: &[&str]| {
            let body = json!({
                "key": &requests[0].queue, "manager": "dependent", "window": 20, "layout": 1, "entries": entries,
            });
            record(queue::head_key(&requests[0].queue), body)
        };
        let orders = [order("a", "first"), order("b", "second"), order("c", "gone")];
        let mut found = BTreeMap::from(orders);
        assert_eq!(current_places(&requests, &found), BTreeMap::new());
        found.extend([head(&["~first t", "~second t"])]);
        let places = BTreeMap::from([(requests[0].row.clone(), 0), (requests[1].row.clone(), 1)]);
        assert_eq!(current_places(&requests, &found), places);
        found.extend([head(&["~first t", "of no queue"])]);
        assert_eq!(current_places(&requests, &found), BTreeMap::new());
    }
}
