//! The order of service: priority first, then how many changes stand before one's own, then who
//! came first.
//!
//! Of a shared queue the row tells the place that the change had when it asked; where the launcher
//! has looked up the place that it has by now, that one counts, for a queue moves up. In an
//! independent pipeline each change is a queue of its own and knows of no other but those that are
//! tested as one with it, so it is counted here: of the changes of one group that have requests at
//! this provider, in whatever state, the first counts as first, the next as one behind it, and so
//! on (Zuul's relative priority). A change moves up as those before it come to their end, and one
//! with many changes takes no turn from others that have few.

use crate::request::{Request, Row};
use sluice_model::{QueueKey, Timestamp};
use std::collections::BTreeMap;

/// Returns the requests in the order in which they are served; `by_now` is where changes stand in
/// their shared queues, as far as it is known.
pub(crate) fn in_order(
    requests: &BTreeMap<Row, Request>,
    by_now: &BTreeMap<Row, usize>,
) -> Vec<Request> {
    let places = places(requests);
    let mut ordered: Vec<&Request> = requests.values().collect();
    ordered.sort_by_cached_key(|request| {
        let (priority, relative, rest) = request.row.parts();
        let relative = by_now.get(&request.row).map_or(relative, |place| coarse(*place));
        let place = request.group.as_ref().and_then(|_| places.get(&request.queue)).copied();
        (priority, relative.max(place.unwrap_or_default()), rest.to_owned(), request.row.clone())
    });
    ordered.into_iter().cloned().collect()
}

/// Returns how many changes of its group stand before each change that takes turns. One that asked
/// earlier stands before one that asked later, whatever its jobs wait for.
fn places(requests: &BTreeMap<Row, Request>) -> BTreeMap<&QueueKey, u32> {
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
            changes.into_iter().enumerate().map(|(place, (_, queue))| (queue, coarse(place))),
        );
    }
    places
}

/// Returns how far back a place counts: by one up to ten, by ten up to a hundred, then by hundreds,
/// as Zuul has it.
fn coarse(place: usize) -> u32 {
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    match place {
        0..10 => place,
        10..100 => place / 10 * 10,
        _ => place / 100 * 100,
    }
}
