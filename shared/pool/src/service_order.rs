//! The order in which requests are served: by priority, then by the position of the change, then by
//! age.
//!
//! For a shared queue, the row holds the change's position when the request was made. In an
//! independent pipeline each change has a queue of its own; there its position is the number of
//! changes of its project or shared queue that entered the pipeline before it and are still there
//! (Zuul's relative priority). The launcher gives the current positions, since changes move up when
//! changes before them end. Until it has them, the changes of one group with requests at this
//! provider are counted. A change with many requests does not delay changes with few.

use crate::request::{NodeRequest, RequestRow};
use sluice_model::{QueueKey, Timestamp};
use std::collections::BTreeMap;

/// Returns all requests, whatever their state, in the order in which they are served: by priority,
/// then by relative priority ([`relative_priorities`]), then by age.
pub(crate) fn in_service_order(
    requests: &BTreeMap<RequestRow, NodeRequest>,
    current_places: &BTreeMap<RequestRow, usize>,
) -> Vec<NodeRequest> {
    let relative = relative_priorities(requests.values(), current_places);
    let mut ordered: Vec<&NodeRequest> = requests.values().collect();
    ordered.sort_by_cached_key(|request| {
        let (priority, in_row, rest) = request.row.parts();
        let relative = relative.get(&request.row).copied().unwrap_or(in_row);
        (priority, relative, rest.to_owned(), request.row.clone())
    });
    ordered.into_iter().cloned().collect()
}

/// Returns the relative priority of each request: the position of its change, rounded as in Zuul.
/// `current_places` has unrounded positions, where known; they replace those in the rows. Where a
/// request with a group (independent pipelines) has a greater position among the requests of its
/// group, that counts. `requests` are all of one provider.
pub fn relative_priorities<'r>(
    requests: impl Iterator<Item = &'r NodeRequest> + Clone,
    current_places: &BTreeMap<RequestRow, usize>,
) -> BTreeMap<RequestRow, u32> {
    let group_positions = group_positions(requests.clone());
    let relative = requests.map(|request| {
        let in_row = request.row.relative();
        let current = current_places.get(&request.row).map_or(in_row, |at| round_position(*at));
        let in_group = request.group.as_ref().and_then(|_| group_positions.get(&request.queue));
        (request.row.clone(), current.max(in_group.copied().unwrap_or_default()))
    });
    relative.collect()
}

/// Returns for the queue of each request with a group its position in that group, from 0, rounded
/// as in Zuul. The queues of a group are ordered by their first requests. In an independent
/// pipeline each change has a queue of its own, so this is the position of the change. Requests
/// without a group are ignored.
fn group_positions<'r>(
    requests: impl Iterator<Item = &'r NodeRequest>,
) -> BTreeMap<&'r QueueKey, u32> {
    let mut groups: BTreeMap<&str, BTreeMap<&QueueKey, Timestamp>> = BTreeMap::new();
    for request in requests {
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
