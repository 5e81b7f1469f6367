//! Records that a queue waits for and that cannot be read. They are listed in the quarantine and
//! treated as a failed answer, so that one broken record of another function affects only its own
//! item.

use serde::de::DeserializeOwned;
use sluice_model::QueueKey;
use sluice_records::codec::{BadRecord, decode};
use sluice_records::queue;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Record;
use sluice_runtime::{PortError, Ports, quarantine};

/// The quarantine's category for records; other entries are messages, named by their queue.
const RECORD: &str = "record";

/// Decodes a record of another function. Where it is invalid, adds a note of it to the quarantine
/// and returns the reason in the inner error. The record stays in place. The note does not contain
/// its body, since that may be data that a job returned.
pub(crate) async fn decode_or_quarantine<T: DeserializeOwned>(
    ports: &Ports,
    record: &Record,
) -> Result<Result<T, String>, PortError> {
    match decode(record) {
        Ok(found) => Ok(Ok(found)),
        Err(bad) => Ok(Err(quarantine_record(ports, &bad).await?)),
    }
}

/// Adds a note of a record that cannot be read to the quarantine, without its body. Returns the
/// reason for people.
pub(crate) async fn quarantine_record(ports: &Ports, bad: &BadRecord) -> Result<String, PortError> {
    quarantine::quarantine_message(ports, RECORD, &bad.key.to_string(), "", &bad.why).await?;
    Ok(format!("{bad}; see `sluice quarantine list`"))
}

/// Returns the error for an unreadable record whose content must not be guessed. After a few
/// deliveries, the queue is halted with this reason until an operator repairs the record.
pub(crate) fn unreadable_cell(queue: &QueueKey, bad: &BadRecord) -> ReconcileError {
    ReconcileError::Undecidable { partition: queue::partition(queue), reason: bad.to_string() }
}
