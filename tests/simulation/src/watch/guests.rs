//! Changes that need each other where each has a queue of its own: they stand in one of these
//! queues, and the others say in which.

use super::{Kind, Watch, key_of, kind, read};
use crate::plays::lands;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::own_queue;
use sluice_gate::{Arrival, Head};
use sluice_memory::Written;
use sluice_model::change::ChangeKey;
use sluice_model::{PipelineName, QueueKey, TenantName};
use sluice_records::report::Buildset;
use std::collections::{BTreeMap, BTreeSet};

/// How one leaves of those that stand as one, by which all others fail.
const OF_ONE: [&str; 2] = ["MERGE_CONFLICT", "CONFIG_ERROR"];

impl Watch {
    /// Judges where changes stand, of the pipelines to which queues belong that a transaction
    /// wrote: each in one queue alone, and where that is not its own, its own says so, in which
    /// nothing stands meanwhile.
    pub(super) fn guests(&self) -> Result<(), String> {
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
            for slot in &head.slots {
                let change = &slot.change.key;
                let other = places.insert((&key.tenant, &key.pipeline, change), key);
                if let Some(other) = other.filter(|other| *other != key) {
                    return Err(format!("{change} stands in {other}, and in {key} as well"));
                }
                let own = QueueKey { queue: own_queue(change), ..key.clone() };
                let said = self.heads.get(&own).and_then(|head| head.stands_in.as_ref());
                if own != *key && said != Some(&key.queue) {
                    return Err(format!(
                        "{change} stands in {key} as a guest, and its own queue says {said:?}"
                    ));
                }
            }
            self.lends(head)?;
        }
        Ok(())
    }

    /// Judges changes that stood as one where nothing lands: they leave in one transaction, with
    /// results that go together.
    pub(super) fn leave_as_one(transaction: &[Written]) -> Result<(), String> {
        let mut left: BTreeMap<(QueueKey, Vec<ChangeKey>), Vec<String>> = BTreeMap::new();
        for write in transaction.iter().filter(|write| write.before.is_none()) {
            if key_of(write).is_none_or(|key| kind(key) != Kind::Buildset) {
                continue;
            }
            let Some(set): Option<Buildset> = read(write.after.as_ref())? else { continue };
            let cycle = set.item.candidate.cycle;
            if !cycle.is_empty() && !lands(set.queue.pipeline.as_str()) {
                left.entry((set.queue, cycle)).or_default().push(set.result);
            }
        }
        for ((queue, cycle), results) in left {
            // They may have come and left again in one decision.
            let is_whole = results.len().is_multiple_of(cycle.len());
            let of_one = results.iter().filter(|result| OF_ONE.contains(&result.as_str())).count();
            let others: BTreeSet<&String> =
                results.iter().filter(|result| !OF_ONE.contains(&result.as_str())).collect();
            let is_alike = match of_one {
                0 => others.len() == 1,
                1 => others.iter().all(|result| *result == "FAILURE"),
                _ => false,
            };
            if !is_whole || !is_alike {
                let names: Vec<String> = cycle.iter().map(ToString::to_string).collect();
                return Err(format!("of {} some left {queue}, as {results:?}", names.join(", ")));
            }
        }
        Ok(())
    }

    /// Judges a queue that says where its change stands.
    fn lends(&self, head: &Head) -> Result<(), String> {
        let Some(queue) = &head.stands_in else { return Ok(()) };
        let (key, home) = (&head.key, QueueKey { queue: queue.clone(), ..head.key.clone() });
        if let Some(slot) = head.slots.first() {
            return Err(format!(
                "{key} says that its change stands in {queue} as a guest, and {} is here",
                slot.change
            ));
        }
        let slots =
            self.heads.get(&home).filter(|_| home != *key).map(|home| home.slots.as_slice());
        if slots.unwrap_or_default().iter().any(|slot| own_queue(&slot.change.key) == key.queue) {
            return Ok(());
        }
        Err(format!("{key} says that its change stands in {queue} as a guest, and it does not"))
    }
}

/// Returns whether an arrival was only sent on by the transaction that takes it in: whoever gets it
/// hears it.
pub(super) fn is_sent_on(arrival: &Arrival, transaction: &[Written]) -> Result<bool, String> {
    for write in transaction
        .iter()
        .filter(|write| key_of(write).is_some_and(|key| kind(key) == Kind::Arrival))
    {
        let sent: Option<Arrival> = read(write.after.as_ref())?;
        if sent.is_some_and(|sent| is_passed_on(arrival, &sent)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether what was sent is an arrival as it was, but for its name there, and that
/// something may have left for it meanwhile.
fn is_passed_on(arrival: &Arrival, sent: &Arrival) -> bool {
    let is_taken_up_still = sent.taken_up || !arrival.taken_up;
    is_taken_up_still
        && Arrival { id: arrival.id.clone(), taken_up: arrival.taken_up, ..sent.clone() }
            == *arrival
}
