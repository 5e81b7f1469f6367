//! What changes provide to each other across queues of an independent pipeline: read before a
//! decision, written with it.

use crate::aside::broken;
use crate::load::{Loaded, get_all};
use sluice_config::pipeline::Manager;
use sluice_gate::plan::Plan;
use sluice_gate::{Item, MergeResult, Provided};
use sluice_model::change::ChangeRef;
use sluice_model::job::JobSummary;
use sluice_model::{QueueKey, Timestamp};
use sluice_records::codec::decode;
use sluice_records::{provided, queue};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Reads what the changes provide that items of a queue need, where a job of theirs requires
/// something.
pub(crate) async fn load(
    ports: &Ports,
    key: &QueueKey,
    loaded: &Loaded,
) -> Result<BTreeMap<ChangeRef, Provided>, LookError> {
    let mut needs: BTreeSet<&ChangeRef> = BTreeSet::new();
    for (_, item) in loaded.queue.items.values() {
        let just_frozen: &[JobSummary] =
            match loaded.outcomes.get(&item.id).map(|outcome| &outcome.result) {
                Some(MergeResult::Merged(merged)) => &merged.jobs,
                _ => &[],
            };
        // A build that ends may have to be attempted again, and a further attempt is given the same
        // as the first.
        let open = item.jobs.iter().filter(|job| job.result().is_none());
        if open.map(|job| &job.summary).chain(just_frozen).any(|job| !job.requires.is_empty()) {
            // Nobody is given what those make that need him in turn.
            needs.extend(item.candidate.needs_one_way().map(|need| &need.change));
        }
    }
    if !is_independent(&loaded.queue) || needs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let keys: Vec<Key> = needs.into_iter().map(|change| provided::key(key, change)).collect();
    let mut found = BTreeMap::new();
    for record in get_all(ports, &keys).await?.values() {
        let provided: Provided = decode(record).map_err(|bad| broken(key, &bad))?;
        found.insert(provided.change.clone(), provided);
    }
    Ok(found)
}

/// Returns the writes of what the items of a plan provide once it is carried out.
pub(crate) fn writes(
    key: &QueueKey,
    loaded: &Loaded,
    plan: &Plan,
    now: Timestamp,
) -> Result<Vec<Write>, PortError> {
    if !is_independent(&loaded.queue) {
        return Ok(Vec::new());
    }
    let removed = plan.removed.iter().map(|removed| &removed.item);
    let changed = plan.items.values().chain(removed).filter_map(|item| {
        let before = loaded.queue.items.get(&item.id).and_then(|(_, before)| Provided::of(before));
        let after = Provided::of(item).or_else(|| before.as_ref().map(|_| nothing(item)));
        after.filter(|after| before.as_ref() != Some(after))
    });
    changed.map(|provided| provided::put(key, &provided, now)).collect()
}

fn nothing(item: &Item) -> Provided {
    Provided::nothing(item.candidate.change.clone())
}

fn is_independent(queue: &queue::Loaded) -> bool {
    queue.head.as_ref().is_some_and(|head| head.manager == Manager::Independent)
}
