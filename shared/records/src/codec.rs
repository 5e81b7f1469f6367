//! Encodes and decodes record bodies as JSON. A record that cannot be decoded is an error that
//! names its key; no default replaces it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_model::Timestamp;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{BODY_BYTES_MAX, Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// Days for which final records are kept. It is longer than the lifetime of any message.
pub const KEEP_DAYS: u64 = 35;

/// A record whose body cannot be decoded as the type that its key promises.
#[derive(Debug, thiserror::Error)]
#[error("the record {key} cannot be read: {why}")]
pub struct BadRecord {
    /// The key of the record.
    pub key: Key,
    /// Why the body could not be decoded.
    pub why: String,
}

impl From<BadRecord> for ReconcileError {
    fn from(bad: BadRecord) -> Self {
        Self::Undecidable { partition: bad.key.partition.clone(), reason: bad.to_string() }
    }
}

/// Returns a new, unstored record (revision 0) with `value` as its JSON body. An error if the body
/// is larger than [`BODY_BYTES_MAX`].
///
/// # Errors
/// When the body is larger than [`BODY_BYTES_MAX`].
pub fn encode<T: Serialize>(key: Key, value: &T) -> Result<Record, PortError> {
    let body = body(&key, value)?;
    Ok(Record::new(key, body))
}

/// Returns the record for a first write outside a cell's commit: as [`encode`], but with revision
/// 1.
///
/// # Errors
/// As [`encode`].
pub fn encode_first<T: Serialize>(key: Key, value: &T) -> Result<Record, PortError> {
    let mut record = encode(key, value)?;
    record.revision = 1;
    Ok(record)
}

/// Replaces the body of `record` and nothing else. The caller sets its revision and the condition
/// of the write.
///
/// # Errors
/// As [`encode`].
pub fn with_body<T: Serialize>(mut record: Record, value: &T) -> Result<Record, PortError> {
    record.body = body(&record.key, value)?;
    Ok(record)
}

/// Decodes the JSON body of a record. A body of another form is an error that names the record's
/// key.
///
/// # Errors
/// [`BadRecord`] when the body is not the expected JSON.
pub fn decode<T: DeserializeOwned>(record: &Record) -> Result<T, BadRecord> {
    serde_json::from_str(&record.body)
        .map_err(|error| BadRecord { key: record.key.clone(), why: error.to_string() })
}

/// Decodes a record that another cell owns. Logs an error and returns `None` for a record that
/// cannot be decoded: a function that reads many cells must not stop at a bad one, and the owner of
/// the record finds it itself.
pub fn decode_or_log<T: DeserializeOwned>(record: &Record) -> Option<T> {
    decode(record)
        .inspect_err(
            |bad| tracing::error!(%bad, "a record cannot be decoded and counts as missing"),
        )
        .ok()
}

/// Returns when a record that is final at `now` may be deleted: [`KEEP_DAYS`] later.
pub fn expiry(now: Timestamp) -> Timestamp {
    now.plus_seconds(KEEP_DAYS * 86_400)
}

/// Reads one record by its key. Returns `None` when there is none.
///
/// # Errors
/// When the store does not answer.
pub async fn get(ports: &Ports, key: &Key) -> Result<Option<Record>, PortError> {
    Ok(ports.records.get(std::slice::from_ref(key)).await?.into_iter().next().flatten())
}

/// The most keys that one read may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Reads any number of records by key, in several calls, so that they are not one snapshot. Keys
/// without a record are missing in the result.
///
/// # Errors
/// When the store cannot be read.
pub async fn get_all(ports: &Ports, keys: &[Key]) -> Result<BTreeMap<Key, Record>, PortError> {
    let mut found = BTreeMap::new();
    for page in keys.chunks(KEYS_MAX) {
        for record in ports.records.get(page).await?.into_iter().flatten() {
            found.insert(record.key.clone(), record);
        }
    }
    Ok(found)
}

/// Encodes a record's body as JSON. An error if it is larger than [`BODY_BYTES_MAX`].
fn body<T: Serialize>(key: &Key, value: &T) -> Result<String, PortError> {
    let body = serde_json::to_string(value)
        .map_err(|error| PortError::unknown(format!("write {key}"), error))?;
    if body.len() > BODY_BYTES_MAX {
        let why = format!("its body has {} bytes, and a record holds {BODY_BYTES_MAX}", body.len());
        return Err(PortError::unknown(format!("write {key}"), why));
    }
    Ok(body)
}
