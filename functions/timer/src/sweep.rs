//! The sweep of due records: continues past whatever it cannot read or send, and reports that at
//! the end.

use crate::{SWEEP_MAX, Timer};
use sluice_model::Timestamp;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_records::tenant;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, cell};
use std::collections::BTreeMap;

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Failures in a row after which a service counts as unavailable: the rest waits for the next
/// minute.
const FAILURES_MAX: usize = 20;

/// The failures of a tick.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// The text of the first failure.
    first: Option<String>,
    /// The number of failures.
    count: usize,
    /// The number of failures since the last success.
    in_a_row: usize,
}

impl Failures {
    /// Counts and logs a failure; the text of the first one is kept. `attempt` completes the
    /// sentence "could not …".
    pub(crate) fn note(&mut self, attempt: &str, error: impl std::fmt::Display) {
        tracing::error!(attempt, %error, "a part of the sweep failed; the rest continues");
        self.count += 1;
        self.in_a_row += 1;
        self.first.get_or_insert_with(|| format!("could not {attempt}: {error}"));
    }

    /// Counts a success, which ends a row of failures.
    pub(crate) fn went_well(&mut self) {
        self.in_a_row = 0;
    }

    /// Returns whether 20 failures or more came in a row, so that the sweep should stop.
    pub(crate) fn are_too_many(&self) -> bool {
        self.in_a_row >= FAILURES_MAX
    }

    /// Returns an error with the text of the first failure and the number of all; `Ok` if there was
    /// none.
    pub(crate) fn end(self) -> Result<(), ReconcileError> {
        match self.first {
            None => Ok(()),
            Some(first) => Err(ReconcileError::Retry(format!(
                "{} parts of the sweep failed; the first: {first}",
                self.count
            ))),
        }
    }
}

impl Timer {
    /// Sends the wakeups of the records that are due in one shard of the index, each once and the
    /// oldest of each queue first. Whether a record is due is decided from the record itself, not
    /// from the index. Of a record that the index lists but that is not due yet, sends the unsent
    /// outbox instead; the outbox of a due one is left to the woken function. At most [`SWEEP_MAX`]
    /// records are read. Failures are added to `failures`.
    pub(crate) async fn send_due(&self, shard: u32, now: Timestamp, failures: &mut Failures) {
        let keys: Vec<Key> = match self.ports.records.due(shard, now, SWEEP_MAX).await {
            Ok(keys) => keys,
            Err(error) => return failures.note("find what is due", error),
        };
        // In the order of their due times.
        let mut wakeups: BTreeMap<Wakeup, Timestamp> = BTreeMap::new();
        for page in keys.chunks(KEYS_MAX) {
            for mut record in self.read(page, failures).await {
                if record.sweep_at.is_none_or(|at| at > now) {
                    continue;
                }
                // Found before it is due, so it has an unsent outbox. Otherwise the woken function
                // sends it.
                if record.due.as_ref().is_none_or(|due| due.at > now)
                    && let Err(error) = cell::deliver(&self.ports, &mut record).await
                {
                    failures.note(&format!("send the outbox of {}", record.key), error);
                }
                if let Some(due) = record.due.filter(|due| due.at <= now) {
                    let at = wakeups.entry(due.wakeup).or_insert(due.at);
                    *at = due.at.min(*at);
                }
            }
        }
        let mut wakeups: Vec<(Wakeup, Timestamp)> = wakeups.into_iter().collect();
        wakeups.sort_by_key(|(_, at)| *at);
        self.send_each(wakeups.into_iter().map(|(wakeup, _)| wakeup), failures).await;
    }

    /// Reads a page of records and returns the existing ones. If that fails, reads them one by one
    /// and leaves the unreadable ones out. Returns none if the store throttles. After too many
    /// failures in a row it tests the store with another read, and leaves out the rest if that
    /// fails too. Failures are added to `failures`.
    async fn read(&self, page: &[Key], failures: &mut Failures) -> Vec<Record> {
        let found = match self.ports.records.get(page).await {
            Ok(found) => return found.into_iter().flatten().collect(),
            // The service does not answer.
            Err(error) if error.throttled => {
                failures.note("read what is due", error);
                return Vec::new();
            }
            Err(_) => page,
        };
        let mut records = Vec::new();
        for key in found {
            // Bad records stay the oldest due ones: they must not stop each sweep at the same
            // place.
            if failures.are_too_many() {
                if self.ports.records.get(&[tenant::tenant_list_version_key()]).await.is_err() {
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

    /// Sends wakeups queue by queue, and one by one where sending together fails. Only failures to
    /// send a single wakeup are added to `failures`; after too many in a row the rest of that queue
    /// is left out. There is no error.
    pub(crate) async fn send_each(
        &self,
        wakeups: impl IntoIterator<Item = Wakeup>,
        failures: &mut Failures,
    ) {
        let mut by_queue: BTreeMap<MessageQueue, Vec<Wakeup>> = BTreeMap::new();
        for wakeup in wakeups {
            by_queue.entry(wakeup.queue()).or_default().push(wakeup);
        }
        for (queue, wakeups) in by_queue {
            if cell::send(&self.ports, &wakeups).await.is_ok() {
                continue;
            }
            failures.went_well();
            for wakeup in &wakeups {
                if failures.are_too_many() {
                    break;
                }
                let sent: Result<(), PortError> =
                    cell::send(&self.ports, std::slice::from_ref(wakeup)).await;
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
