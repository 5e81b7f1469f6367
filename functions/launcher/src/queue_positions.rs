//! Reads the current queue positions of changes. A request's row has the position at the time of
//! the request, and queues advance.
//!
//! Nothing is written for that: the queue heads are read with the builds of the requests. Positions
//! only influence the order of service, so they may be slightly outdated.

use serde::Deserialize;
use sluice_gate::StoredHead;
use sluice_model::{ItemId, QueueKey, Timestamp};
use sluice_pool::{NodeRequest, RequestRow, RequestState};
use sluice_records::codec::decode_or_log;
use sluice_records::{build, queue};
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// The most queues that one run reads; other requests are served by their rows.
const QUEUES_MAX: usize = 50;

/// How long in milliseconds a request's row counts as current.
const FRESH_MILLIS: u64 = 1_000;

/// The part of a build's order that is read.
#[derive(Deserialize)]
struct Ordered {
    item: ItemId,
}

/// Returns the requests that wait for placement, were not first in a shared queue when they were
/// made, and are at least a second old: their changes may have advanced meanwhile. Requests of
/// independent pipelines are left out.
pub(crate) fn may_have_moved<'r>(
    requests: impl Iterator<Item = &'r NodeRequest>,
    now: Timestamp,
) -> Vec<&'r NodeRequest> {
    let waits = |request: &&NodeRequest| {
        request.state == RequestState::Requested && request.row.relative() > 0
    };
    // In an independent pipeline a queue holds one bundle only; the plan counts what is ahead.
    let is_shared = |request: &&NodeRequest| request.group.is_none();
    let is_old = |request: &&NodeRequest| now.since(request.created_at) >= FRESH_MILLIS;
    requests.filter(waits).filter(is_shared).filter(is_old).collect()
}

/// Returns the keys of the heads of the queues that requests belong to, each once, at most
/// [`QUEUES_MAX`].
pub(crate) fn heads(requests: &[&NodeRequest]) -> Vec<Key> {
    let queues: BTreeSet<&QueueKey> = requests.iter().map(|request| &request.queue).collect();
    queues.into_iter().take(QUEUES_MAX).map(queue::head_key).collect()
}

/// Returns for each request how many entries are ahead of its change's in the queue, from the queue
/// heads (see [`heads`]) and build orders in `found`. A request is left out if one of the two is
/// missing or unreadable, or if its change is no longer queued; then the position in its row
/// counts.
pub(crate) fn current_places(
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
