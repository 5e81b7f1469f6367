//! Artifacts that changes provide to changes in other queues of an independent pipeline: read
//! before a decision and written with it.

use crate::queue_context::QueueContext;
use crate::unreadable_records::unreadable_cell;
use sluice_config::pipeline::Manager;
use sluice_gate::plan::QueueAction;
use sluice_gate::{Item, MergeResult, ProvidedArtifacts};
use sluice_model::change::ChangeRef;
use sluice_model::job::JobSummary;
use sluice_model::{QueueKey, Timestamp};
use sluice_records::codec::{decode, get_all};
use sluice_records::{provided_artifacts, queue};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};

/// Reads the artifacts that other changes provide to a queue's items. Reads only those of the
/// dependencies of items with an open or just frozen job that requires any, without the
/// dependencies in the item's own cycle. `loaded` must hold the merge outcomes already. Empty in
/// other than independent pipelines. A change without a record is left out; an unreadable record is
/// an error.
pub(crate) async fn load(
    ports: &Ports,
    key: &QueueKey,
    loaded: &QueueContext,
) -> Result<BTreeMap<ChangeRef, ProvidedArtifacts>, ReconcileError> {
    let mut needs: BTreeSet<&ChangeRef> = BTreeSet::new();
    for (_, item) in loaded.queue.items.values() {
        let just_frozen: &[JobSummary] =
            match loaded.outcomes.get(&item.id).map(|outcome| &outcome.result) {
                Some(MergeResult::Merged(merged)) => &merged.jobs,
                _ => &[],
            };
        // An ended build may be retried, and the retry is given the same artifacts as the first
        // attempt.
        let open = item.jobs.iter().filter(|job| job.result().is_none());
        if open.map(|job| &job.summary).chain(just_frozen).any(|job| !job.requires.is_empty()) {
            // Changes of a dependency cycle give each other no artifacts.
            needs.extend(item.candidate.acyclic_needs().map(|need| &need.change));
        }
    }
    if !is_independent(&loaded.queue) || needs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let keys: Vec<Key> =
        needs.into_iter().map(|change| provided_artifacts::key(key, change)).collect();
    let mut found = BTreeMap::new();
    for record in get_all(ports, &keys).await?.values() {
        let provided: ProvidedArtifacts =
            decode(record).map_err(|bad| unreadable_cell(key, &bad))?;
        found.insert(provided.change.clone(), provided);
    }
    Ok(found)
}

/// Returns the writes that update the artifacts of a plan's changed and removed items, where they
/// differ from before. An item that no longer provides any gets a record that says so. Empty in
/// other than independent pipelines.
pub(crate) fn writes(
    key: &QueueKey,
    loaded: &QueueContext,
    actions: &[QueueAction],
    now: Timestamp,
) -> Result<Vec<Write>, PortError> {
    if !is_independent(&loaded.queue) {
        return Ok(Vec::new());
    }
    let items = actions.iter().filter_map(|action| match action {
        QueueAction::PutItem(item) => Some(&**item),
        QueueAction::RemoveItem(removed) => Some(&removed.item),
        _ => None,
    });
    let changed = items.filter_map(|item| {
        let before = loaded
            .queue
            .items
            .get(&item.id)
            .and_then(|(_, before)| ProvidedArtifacts::from_item(before));
        let after =
            ProvidedArtifacts::from_item(item).or_else(|| before.as_ref().map(|_| nothing(item)));
        after.filter(|after| before.as_ref() != Some(after))
    });
    changed.map(|provided| provided_artifacts::put(key, &provided, now)).collect()
}

/// Returns the record that an item provides nothing.
fn nothing(item: &Item) -> ProvidedArtifacts {
    ProvidedArtifacts::nothing(item.candidate.change.clone())
}

/// Returns whether a queue's pipeline is independent; `false` without a head.
fn is_independent(queue: &queue::LoadedQueue) -> bool {
    queue.head.as_ref().is_some_and(|head| head.manager == Manager::Independent)
}
