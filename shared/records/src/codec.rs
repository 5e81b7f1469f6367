//! Bodies as JSON. A record that cannot be read is an error that names its key, never a default.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_model::Timestamp;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{BODY_BYTES_MAX, Key, Record};
use sluice_runtime::{PortError, Ports};

/// Days that final records stay: longer than any message lives.
pub const KEEP_DAYS: u64 = 35;

/// A record whose body is not what its key promises.
#[derive(Debug, thiserror::Error)]
#[error("the record {key} cannot be read: {why}")]
pub struct BadRecord {
    /// Where it lies.
    pub key: Key,
    /// What is wrong with it.
    pub why: String,
}

impl From<BadRecord> for LookError {
    fn from(bad: BadRecord) -> Self {
        Self::Broken { partition: bad.key.partition.clone(), reason: bad.to_string() }
    }
}

/// Returns a new record (revision 0) with this body.
///
/// # Errors
/// When the body is larger than a record may be.
pub fn encode<T: Serialize>(key: Key, value: &T) -> Result<Record, PortError> {
    let body = body(&key, value)?;
    Ok(Record::new(key, body))
}

/// Returns a record that is stored for the first time, outside a head: revision 1.
///
/// # Errors
/// As [`encode`].
pub fn encode_first<T: Serialize>(key: Key, value: &T) -> Result<Record, PortError> {
    let mut record = encode(key, value)?;
    record.revision = 1;
    Ok(record)
}

/// Gives a record that was read a new body; its revision and condition stay the caller's.
///
/// # Errors
/// As [`encode`].
pub fn with_body<T: Serialize>(mut record: Record, value: &T) -> Result<Record, PortError> {
    record.body = body(&record.key, value)?;
    Ok(record)
}

/// Reads a record's body.
///
/// # Errors
/// [`BadRecord`] when it is not what was expected.
pub fn decode<T: DeserializeOwned>(record: &Record) -> Result<T, BadRecord> {
    serde_json::from_str(&record.body)
        .map_err(|error| BadRecord { key: record.key.clone(), why: error.to_string() })
}

/// Reads a record of somebody else's: one that cannot be read counts as missing here, with a line
/// in the log. Whoever rules it finds it by himself; what looks at many cells must not stop at a
/// bad one.
pub fn decode_foreign<T: DeserializeOwned>(record: &Record) -> Option<T> {
    decode(record).inspect_err(|bad| tracing::error!(%bad, "a record counts as missing")).ok()
}

/// Returns when a record that is final now may be forgotten.
pub fn expiry(now: Timestamp) -> Timestamp {
    now.plus_seconds(KEEP_DAYS * 86_400)
}

/// Reads one record by its key.
///
/// # Errors
/// Whatever the store could not answer.
pub async fn get(ports: &Ports, key: &Key) -> Result<Option<Record>, PortError> {
    Ok(ports.records.get(std::slice::from_ref(key)).await?.into_iter().next().flatten())
}

fn body<T: Serialize>(key: &Key, value: &T) -> Result<String, PortError> {
    let body = serde_json::to_string(value)
        .map_err(|error| PortError::unknown(format!("write {key}"), error))?;
    if body.len() > BODY_BYTES_MAX {
        let why = format!("its body has {} bytes, and a record holds {BODY_BYTES_MAX}", body.len());
        return Err(PortError::unknown(format!("write {key}"), why));
    }
    Ok(body)
}
