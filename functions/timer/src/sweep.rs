//! The sweep of what is due: it goes on past whatever it cannot read or send, and tells of it at
//! the end.

use crate::{SWEEP_MAX, Timer};
use sluice_model::Timestamp;
use sluice_model::poke::{Poke, Queue};
use sluice_records::tenant;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, cell};
use std::collections::BTreeMap;

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Failures in a row after which a service may be one that does not answer at all: the rest waits
/// for the next minute.
const FAILURES_MAX: usize = 20;

/// What failed in a tick.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    first: Option<String>,
    count: usize,
    in_a_row: usize,
}

impl Failures {
    /// Notes that something failed, and goes on.
    pub(crate) fn note(&mut self, attempt: &str, error: impl std::fmt::Display) {
        tracing::error!(attempt, %error, "a part of the sweep failed; the rest goes on");
        self.count += 1;
        self.in_a_row += 1;
        self.first.get_or_insert_with(|| format!("could not {attempt}: {error}"));
    }

    /// Notes that something was done: whatever failed before was not for want of an answer.
    pub(crate) fn went_well(&mut self) {
        self.in_a_row = 0;
    }

    /// Returns whether so much failed in a row that going on may make no sense.
    pub(crate) fn are_too_many(&self) -> bool {
        self.in_a_row >= FAILURES_MAX
    }

    /// Returns the first failure, with how many there were.
    pub(crate) fn end(self) -> Result<(), LookError> {
        match self.first {
            None => Ok(()),
            Some(first) => Err(LookError::Again(format!(
                "{} parts of the sweep failed; the first: {first}",
                self.count
            ))),
        }
    }
}

impl Timer {
    /// Pokes what is due in one shard. The index only finds: the record, read by key, says whether
    /// it is still due.
    pub(crate) async fn send_due(&self, shard: u32, now: Timestamp, failures: &mut Failures) {
        let keys: Vec<Key> = match self.ports.records.due(shard, now, SWEEP_MAX).await {
            Ok(keys) => keys,
            Err(error) => return failures.note("find what is due", error),
        };
        // In the order in which they are due: what came first goes on first.
        let mut pokes: BTreeMap<Poke, Timestamp> = BTreeMap::new();
        for page in keys.chunks(KEYS_MAX) {
            for mut record in self.read(page, failures).await {
                if record.look_at.is_none_or(|at| at > now) {
                    continue;
                }
                // Found before it is due itself: for an outbox that was left behind. Otherwise
                // whoever is poked sees to it.
                if record.due.as_ref().is_none_or(|due| due.at > now)
                    && let Err(error) = cell::deliver(&self.ports, &mut record).await
                {
                    failures.note(&format!("send the outbox of {}", record.key), error);
                }
                if let Some(due) = record.due.filter(|due| due.at <= now) {
                    let at = pokes.entry(due.poke).or_insert(due.at);
                    *at = due.at.min(*at);
                }
            }
        }
        let mut pokes: Vec<(Poke, Timestamp)> = pokes.into_iter().collect();
        pokes.sort_by_key(|(_, at)| *at);
        self.send_each(pokes.into_iter().map(|(poke, _)| poke), failures).await;
    }

    /// Reads a page of records, and those that can be read of a page that cannot.
    async fn read(&self, page: &[Key], failures: &mut Failures) -> Vec<Record> {
        let found = match self.ports.records.get(page).await {
            Ok(found) => return found.into_iter().flatten().collect(),
            // It is the service that does not answer.
            Err(error) if error.throttled => {
                failures.note("read what is due", error);
                return Vec::new();
            }
            Err(_) => page,
        };
        let mut records = Vec::new();
        for key in found {
            // Bad records stay the oldest that are due, side by side: they must not end each sweep
            // at the same place.
            if failures.are_too_many() {
                if self.ports.records.get(&[tenant::listing_key()]).await.is_err() {
                    break;
                }
                failures.went_well();
            }
            match self.ports.records.get(std::slice::from_ref(key)).await {
                Ok(found) => {
                    failures.went_well();
                    records.extend(found.into_iter().flatten());
                }
                Err(error) => failures.note(&format!("read {key}, which is due"), error),
            }
        }
        records
    }

    /// Sends pokes queue by queue, and one by one where a queue does not take them together.
    pub(crate) async fn send_each(
        &self,
        pokes: impl IntoIterator<Item = Poke>,
        failures: &mut Failures,
    ) {
        let mut by_queue: BTreeMap<Queue, Vec<Poke>> = BTreeMap::new();
        for poke in pokes {
            by_queue.entry(poke.queue()).or_default().push(poke);
        }
        for (queue, pokes) in by_queue {
            if cell::send(&self.ports, &pokes).await.is_ok() {
                continue;
            }
            failures.went_well();
            for poke in &pokes {
                if failures.are_too_many() {
                    break;
                }
                let sent: Result<(), PortError> =
                    cell::send(&self.ports, std::slice::from_ref(poke)).await;
                match sent {
                    Ok(()) => failures.went_well(),
                    Err(error) => {
                        failures.note(&format!("send what is due to the queue {queue:?}"), error)
                    }
                }
            }
        }
    }
}
