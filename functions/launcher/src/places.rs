//! Where changes stand in their shared queues by now: a request's row tells where its change stood
//! when it asked, and a queue moves up.
//!
//! Nothing is written for that, by the gate neither: what is asked is read with the call that reads
//! the builds of the requests anyway. It is a hint for the order of service alone, so it may be old
//! by the time it counts.

use serde::Deserialize;
use sluice_gate::StoredHead;
use sluice_model::{ItemId, QueueKey, Timestamp};
use sluice_pool::{Request, RequestState, Row};
use sluice_records::codec::decode_foreign;
use sluice_records::{build, queue};
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// Queues that one look asks; requests of others are served by their rows.
const QUEUES_MAX: usize = 50;

/// Milliseconds for which a request's row is taken for true.
const FRESH_MILLIS: u64 = 1_000;

/// What is read of a build's order.
#[derive(Deserialize)]
struct Ordered {
    item: ItemId,
}

/// Returns the requests that wait for their turn and whose changes may have moved up since they
/// asked.
pub(crate) fn may_have_moved<'r>(
    requests: impl Iterator<Item = &'r Request>,
    now: Timestamp,
) -> Vec<&'r Request> {
    let waits =
        |request: &&Request| request.state == RequestState::Requested && request.row.relative() > 0;
    // In an independent pipeline nothing else stands in the queue but what is tested as one with
    // it; who is before it there the plan counts by itself.
    let is_shared = |request: &&Request| request.group.is_none();
    let is_old = |request: &&Request| now.since(request.created_at) >= FRESH_MILLIS;
    requests.filter(waits).filter(is_shared).filter(is_old).collect()
}

/// Returns the keys of what tells where the changes of requests stand, beside the orders of their
/// builds.
pub(crate) fn heads(requests: &[&Request]) -> Vec<Key> {
    let queues: BTreeSet<&QueueKey> = requests.iter().map(|request| &request.queue).collect();
    queues.into_iter().take(QUEUES_MAX).map(queue::head_key).collect()
}

/// Returns how many changes stand before those of requests by now, as far as the records that were
/// found tell.
pub(crate) fn by_now(requests: &[&Request], found: &BTreeMap<Key, Record>) -> BTreeMap<Row, usize> {
    let mut queues: BTreeMap<&QueueKey, BTreeMap<ItemId, usize>> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for request in requests {
        // A head that cannot be read is its queue's to mend; meanwhile the row counts.
        let of_queue = queues.entry(&request.queue).or_insert_with(|| {
            let head =
                found.get(&queue::head_key(&request.queue)).and_then(decode_foreign::<StoredHead>);
            head.and_then(|head| head.places().ok()).unwrap_or_default()
        });
        let order =
            found.get(&build::order_key(&request.build)).and_then(decode_foreign::<Ordered>);
        let place = order.and_then(|order| of_queue.get(&order.item).copied());
        places.extend(place.map(|place| (request.row.clone(), place)));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_model::poke::Precedence;

    fn request(relative: u32, sequence: u64, build: &str) -> Request {
        let queue =
            QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "integrated".into() };
        let row = Row::new(100, relative, sequence);
        Request::new(
            row,
            build.into(),
            queue,
            "unit",
            Precedence::High,
            vec!["small".into()],
            Timestamp(5_000),
        )
    }

    /// Z6.1: only what waits, did not just ask and is not first needs to be asked about; one that
    /// takes turns is counted elsewhere.
    #[test]
    fn who_may_have_moved_up_is_asked_about() {
        let (first, behind) = (request(0, 1, "a"), request(2, 2, "b"));
        let alone = Request { group: Some("t/check/one".to_owned()), ..request(2, 3, "c") };
        let failed = RequestState::Failed { reason: "no".to_owned() };
        let over = Request { state: failed, ..request(2, 4, "d") };
        let all = [first, behind.clone(), alone, over];
        assert_eq!(may_have_moved(all.iter(), Timestamp(6_000)), [&behind]);
        assert_eq!(may_have_moved(all.iter(), Timestamp(5_999)), Vec::<&Request>::new());
        assert_eq!(heads(&[&behind, &behind]), [queue::head_key(&behind.queue)]);
    }

    /// Z6.1: a change's place is that of its item in the head; what cannot be read, or has left, is
    /// served by its row.
    #[test]
    fn a_place_is_read_off_the_head_of_the_queue() {
        let asked = [request(2, 1, "a"), request(3, 2, "b"), request(4, 3, "c")];
        let asked: Vec<&Request> = asked.iter().collect();
        let record =
            |key: Key, body: serde_json::Value| (key.clone(), Record::new(key, body.to_string()));
        let order = |build: &str, item: &str| {
            record(build::order_key(&build.into()), json!({ "item": item }))
        };
        let head = |slots: &[&str]| {
            let body = json!({
                "key": &asked[0].queue, "manager": "dependent", "window": 20, "layout": 1, "slots": slots,
            });
            record(queue::head_key(&asked[0].queue), body)
        };
        let orders = [order("a", "first"), order("b", "second"), order("c", "gone")];
        let mut found = BTreeMap::from(orders);
        assert_eq!(by_now(&asked, &found), BTreeMap::new());
        found.extend([head(&["~first t", "~second t"])]);
        let places = BTreeMap::from([(asked[0].row.clone(), 0), (asked[1].row.clone(), 1)]);
        assert_eq!(by_now(&asked, &found), places);
        found.extend([head(&["~first t", "of nobody"])]);
        assert_eq!(by_now(&asked, &found), BTreeMap::new());
    }
}
