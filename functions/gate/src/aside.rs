//! What a queue waits for and cannot read: it is kept for people, and decided on as an answer that
//! never comes, so that one record of somebody else's holds up nothing but what it is about.

use serde::de::DeserializeOwned;
use sluice_model::QueueKey;
use sluice_records::codec::{BadRecord, decode};
use sluice_records::queue;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Record;
use sluice_runtime::{PortError, Ports, quarantine};

/// What the quarantine calls the records among what it keeps; the others came by a queue of that
/// name.
const RECORD: &str = "record";

/// Returns what a record of another writer says, or why that cannot be known; then the quarantine
/// names it. What it holds stays where it is, for it may be what a job returned.
pub(crate) async fn readable<T: DeserializeOwned>(
    ports: &Ports,
    record: &Record,
) -> Result<Result<T, String>, PortError> {
    match decode(record) {
        Ok(found) => Ok(Ok(found)),
        Err(bad) => Ok(Err(set_aside(ports, &bad).await?)),
    }
}

/// Has the quarantine name a record that cannot be read, and returns what is told of it.
pub(crate) async fn set_aside(ports: &Ports, bad: &BadRecord) -> Result<String, PortError> {
    quarantine::keep(ports, RECORD, &bad.key.to_string(), "", &bad.why).await?;
    Ok(format!("{bad}; it is set aside in the quarantine"))
}

/// Returns what becomes of a queue that waits for a record on whose behalf nothing may be guessed:
/// after a few receipts it is frozen with this reason, until a person has mended the record.
pub(crate) fn broken(queue: &QueueKey, bad: &BadRecord) -> LookError {
    LookError::Broken { partition: queue::partition(queue), reason: bad.to_string() }
}
