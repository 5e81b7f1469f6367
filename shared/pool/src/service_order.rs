//! The order in which requests are served: by priority, then by the position of the change, then by
//! age.
//!
//! For a shared queue, the row holds the change's position when the request was made. A current
//! position from the launcher replaces it, since a queue moves up.
//!
//! In an independent pipeline each change has a queue of its own, so its position is counted here.
//! Among the changes of one group with requests at this provider, the first has position 0, the
//! next 1, and so on (Zuul's relative priority). A change moves up when changes before it end. A
//! change with many requests does not delay changes with few.

use crate::request::{NodeRequest, RequestRow};
use sluice_model::{QueueKey, Timestamp};
use std::collections::BTreeMap;

/// Returns all requests, whatever their state, in the order in which they are served: by priority,
/// then by the position of their change, then by age. `current_places` has unrounded positions in
/// shared queues, where known; they replace the positions in the rows, and are rounded here as in
/// Zuul. For a request with a group (independent pipelines), its position in the group counts if it
/// is greater.
pub(crate) fn in_service_order(
    requests: &BTreeMap<RequestRow, NodeRequest>,
    current_places: &BTreeMap<RequestRow, usize>,
) -> Vec<NodeRequest> {
    let group_positions = group_positions(requests);
    let mut ordered: Vec<&NodeRequest> = requests.values().collect();
    ordered.sort_by_cached_key(|request| {
        let (priority, relative, rest) = request.row.parts();
        let relative =
            current_places.get(&request.row).map_or(relative, |place| round_position(*place));
        let place =
            request.group.as_ref().and_then(|_| group_positions.get(&request.queue)).copied();
        (priority, relative.max(place.unwrap_or_default()), rest.to_owned(), request.row.clone())
    });
    ordered.into_iter().cloned().collect()
}

/// Returns for the queue of each request with a group its position in that group, from 0, rounded
/// as in Zuul. The queues of a group are ordered by their first requests. In an independent
/// pipeline each change has a queue of its own, so this is the position of the change. Requests
/// without a group are ignored.
fn group_positions(requests: &BTreeMap<RequestRow, NodeRequest>) -> BTreeMap<&QueueKey, u32> {
    let mut groups: BTreeMap<&str, BTreeMap<&QueueKey, Timestamp>> = BTreeMap::new();
    for request in requests.values() {
        let Some(group) = &request.group else { continue };
        let since =
            groups.entry(group).or_default().entry(&request.queue).or_insert(request.created_at);
        *since = (*since).min(request.created_at);
    }
    let mut places = BTreeMap::new();
    for changes in groups.into_values() {
        let mut changes: Vec<(Timestamp, &QueueKey)> =
            changes.into_iter().map(|(queue, since)| (since, queue)).collect();
        changes.sort();
        places.extend(
            changes
                .into_iter()
                .enumerate()
                .map(|(place, (_, queue))| (queue, round_position(place))),
        );
    }
    places
}

/// Returns a position rounded down as in Zuul: below 10 it is unchanged, below 100 it becomes a
/// multiple of 10, otherwise of 100.
fn round_position(place: usize) -> u32 {
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    match place {
        0..10 => place,
        10..100 => place / 10 * 10,
        _ => place / 100 * 100,
    }
}
