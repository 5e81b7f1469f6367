//! Bundles in independent pipelines: all members are in one queue, and the own queue of each other
//! member names this host queue.

use super::{Kind, Watch, key_of, kind, read};
use crate::scenarios::lands;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::own_queue;
use sluice_gate::{Head, InboxMessage};
use sluice_memory::RecordChange;
use sluice_model::change::ChangeKey;
use sluice_model::{PipelineName, QueueKey, TenantName};
use sluice_records::report::Buildset;
use std::collections::{BTreeMap, BTreeSet};

/// Results of one member that make the other members fail.
const OWN_RESULTS: [&str; 2] = ["MERGE_CONFLICT", "CONFIG_ERROR"];

impl Watch {
    /// Checks the pipelines whose queues a transaction wrote. Each change is in one queue only. If
    /// that is not its own, its own queue names it and is empty.
    pub(super) fn check_hosted_changes(&self) -> Result<(), String> {
        let written: BTreeSet<(&TenantName, &PipelineName)> =
            self.written.iter().map(|key| (&key.tenant, &key.pipeline)).collect();
        let is_concerned = |head: &&Head| {
            head.manager == Manager::Independent
                && written.contains(&(&head.key.tenant, &head.key.pipeline))
        };
        let mut places: BTreeMap<(&TenantName, &PipelineName, &ChangeKey), &QueueKey> =
            BTreeMap::new();
        for head in self.heads.values().filter(is_concerned) {
            let key = &head.key;
            for slot in head.slots() {
                let change = &slot.change.key;
                let other = places.insert((&key.tenant, &key.pipeline, change), key);
                if let Some(other) = other.filter(|other| *other != key) {
                    return Err(format!("{change} is in {other} and also in {key}"));
                }
                let own = QueueKey { queue: own_queue(change), ..key.clone() };
                let said = self.heads.get(&own).and_then(|head| head.hosted_in.as_ref());
                if own != *key && said != Some(&key.queue) {
                    return Err(format!(
                        "{change} is hosted in {key}, but its own queue names {said:?}"
                    ));
                }
            }
            self.check_host_queue(head)?;
        }
        Ok(())
    }

    /// Checks that the members of a bundle leave an independent pipeline in one transaction, with
    /// matching results.
    pub(super) fn check_bundle_results(transaction: &[RecordChange]) -> Result<(), String> {
        let mut left: BTreeMap<(QueueKey, Vec<ChangeKey>), Vec<String>> = BTreeMap::new();
        for write in transaction.iter().filter(|write| write.before.is_none()) {
            if key_of(write).is_none_or(|key| kind(key) != Kind::Buildset) {
                continue;
            }
            let Some(set): Option<Buildset> = read(write.after.as_ref())? else { continue };
            let bundle = set.item.candidate.bundle;
            if !bundle.is_empty() && !lands(set.queue.pipeline.as_str()) {
                left.entry((set.queue, bundle)).or_default().push(set.result);
            }
        }
        for ((queue, bundle), results) in left {
            // They may have entered and left in one transaction.
            let is_whole = results.len().is_multiple_of(bundle.len());
            let of_one =
                results.iter().filter(|result| OWN_RESULTS.contains(&result.as_str())).count();
            let others: BTreeSet<&String> =
                results.iter().filter(|result| !OWN_RESULTS.contains(&result.as_str())).collect();
            let is_alike = match of_one {
                0 => others.len() == 1,
                1 => others.iter().all(|result| *result == "FAILURE"),
                _ => false,
            };
            if !is_whole || !is_alike {
                let names: Vec<String> = bundle.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "the bundle {} left {queue} incompletely or as {results:?}",
                    names.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Checks a queue that names a host queue: it is empty, and its change is in the host queue.
    fn check_host_queue(&self, head: &Head) -> Result<(), String> {
        let Some(queue) = &head.hosted_in else { return Ok(()) };
        let (key, home) = (&head.key, QueueKey { queue: queue.clone(), ..head.key.clone() });
        if let Some(slot) = head.slots().next() {
            return Err(format!("{key} names the host queue {queue}, but {} is here", slot.change));
        }
        let mut slots =
            self.heads.get(&home).filter(|_| home != *key).into_iter().flat_map(Head::slots);
        if slots.any(|slot| own_queue(&slot.change.key) == key.queue) {
            return Ok(());
        }
        Err(format!("{key} names the host queue {queue}, but its change is not there"))
    }
}

/// Returns whether a transaction consumed an inbox message only to forward it to another queue.
pub(super) fn is_forwarded(
    message: &InboxMessage,
    transaction: &[RecordChange],
) -> Result<bool, String> {
    for write in transaction
        .iter()
        .filter(|write| key_of(write).is_some_and(|key| kind(key) == Kind::InboxMessage))
    {
        let sent: Option<InboxMessage> = read(write.after.as_ref())?;
        if sent.is_some_and(|sent| is_same_message(message, &sent)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a sent message is a forwarded one, except for its id. It may have become in
/// progress.
fn is_same_message(message: &InboxMessage, sent: &InboxMessage) -> bool {
    let is_taken_up_still = sent.in_progress || !message.in_progress;
    is_taken_up_still
        && InboxMessage { id: message.id.clone(), in_progress: message.in_progress, ..sent.clone() }
            == *message
}
