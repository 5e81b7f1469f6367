//! A record as a DynamoDB item, and back.
//!
//! `pk`, `sk` (S), `rev` (N), `body` (S, JSON) and `write_id` (S) are always present. The others
//! are optional: `fence` (N, above 0), `outbox` (S, a JSON list of wakeups), `due_wakeup` (S, JSON)
//! with `due_wanted_at` (N, milliseconds), `due_shard` (S) with `due_at` (N, milliseconds) for the
//! index `due`, `find_pk` and `find_sk` (S) for the index `find`, `ttl` (N, seconds, rounded up, so
//! that the store does not delete early).

use aws_sdk_dynamodb::types::AttributeValue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_model::Timestamp;
use sluice_runtime::PortError;
use sluice_runtime::port::due_shard;
use sluice_runtime::record::{Due, Key, Record};
use std::collections::HashMap;

pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) const PARTITION: &str = "pk";
pub(crate) const SORT: &str = "sk";
pub(crate) const REVISION: &str = "rev";
pub(crate) const FENCE: &str = "fence";
pub(crate) const WRITE_ID: &str = "write_id";
pub(crate) const DUE_INDEX: &str = "due";
pub(crate) const DUE_SHARD: &str = "due_shard";
pub(crate) const DUE_AT: &str = "due_at";
pub(crate) const FIND_INDEX: &str = "find";
pub(crate) const FIND_PARTITION: &str = "find_pk";
pub(crate) const FIND_SORT: &str = "find_sk";
const BODY: &str = "body";
const OUTBOX: &str = "outbox";
const DUE_WAKEUP: &str = "due_wakeup";
const DUE_WANTED_AT: &str = "due_wanted_at";
const EXPIRES: &str = "ttl";

/// Encodes a record as an item. Empty optional fields have no attribute, and the expiry is rounded
/// up to whole seconds.
pub(crate) fn encode(record: Record) -> Result<Item, PortError> {
    let mut item = key_item(&record.key);
    let mut put = |name: &str, value| item.insert(name.to_owned(), value);
    put(REVISION, number(record.revision));
    if record.fence > 0 {
        put(FENCE, number(record.fence));
    }
    if !record.outbox.is_empty() {
        put(OUTBOX, json(&record.key, &record.outbox)?);
    }
    if let Some(due) = &record.due {
        put(DUE_WAKEUP, json(&record.key, &due.wakeup)?);
        put(DUE_WANTED_AT, number(due.at.0));
    }
    if let Some(at) = record.sweep_at {
        put(DUE_SHARD, text(due_shard(&record.key.partition).to_string()));
        put(DUE_AT, number(at.0));
    }
    if let Some((partition, sort)) = record.find {
        put(FIND_PARTITION, text(partition));
        put(FIND_SORT, text(sort));
    }
    if let Some(at) = record.expires_at {
        put(EXPIRES, number(at.0.div_ceil(1_000)));
    }
    put(WRITE_ID, text(record.write_id));
    put(BODY, text(record.body));
    Ok(item)
}

/// Decodes a record from an item. Missing optional attributes are empty. An error names the
/// attribute that is missing, of another type, or without its counterpart.
pub(crate) fn decode(item: Item) -> Result<Record, PortError> {
    let key = key_of(&item)?;
    let mut fields = Fields { key: &key, item };
    let revision = fields.number(REVISION)?.ok_or_else(|| bad(&key, REVISION, "is missing"))?;
    let body = fields.text(BODY)?.ok_or_else(|| bad(&key, BODY, "is missing"))?;
    let due = match (fields.json(DUE_WAKEUP)?, fields.number(DUE_WANTED_AT)?) {
        (Some(wakeup), Some(at)) => Some(Due { at: Timestamp(at), wakeup }),
        (None, None) => None,
        _ => return Err(bad(&key, DUE_WAKEUP, "and due_wanted_at are not both present")),
    };
    let find = match (fields.text(FIND_PARTITION)?, fields.text(FIND_SORT)?) {
        (Some(partition), Some(sort)) => Some((partition, sort)),
        (None, None) => None,
        _ => return Err(bad(&key, FIND_PARTITION, "and find_sk are not both present")),
    };
    let record = Record {
        revision,
        fence: fields.number(FENCE)?.unwrap_or_default(),
        outbox: fields.json(OUTBOX)?.unwrap_or_default(),
        due,
        sweep_at: fields.number(DUE_AT)?.map(Timestamp),
        find,
        expires_at: fields.number(EXPIRES)?.map(|seconds| Timestamp(seconds.saturating_mul(1_000))),
        write_id: fields.text(WRITE_ID)?.unwrap_or_default(),
        body,
        key: key.clone(),
    };
    Ok(record)
}

/// Returns the key attributes of a record.
pub(crate) fn key_item(key: &Key) -> Item {
    Item::from([(PARTITION.to_owned(), text(&key.partition)), (SORT.to_owned(), text(&key.sort))])
}

/// Returns the key of an item. An error if the item lacks a part of it.
pub(crate) fn key_of(item: &Item) -> Result<Key, PortError> {
    let part = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
    match (part(PARTITION), part(SORT)) {
        (Some(partition), Some(sort)) => Ok(Key::new(partition, sort)),
        _ => Err(PortError::unknown("read an item of the table", "it has no key")),
    }
}

/// Returns a text attribute.
pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// Returns a number attribute.
pub(crate) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Encodes a value as a text attribute with JSON. `key` names the record in errors.
fn json(key: &Key, value: &impl Serialize) -> Result<AttributeValue, PortError> {
    serde_json::to_string(value)
        .map(AttributeValue::S)
        .map_err(|error| PortError::unknown(format!("write {key}"), error))
}

struct Fields<'a> {
    key: &'a Key,
    item: Item,
}

impl Fields<'_> {
    /// Removes and returns a text attribute; `None` if it is missing. An error if it is not a text.
    fn text(&mut self, name: &str) -> Result<Option<String>, PortError> {
        match self.item.remove(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(bad(self.key, name, "is not a text")),
        }
    }

    /// Removes and returns a number attribute; `None` if it is missing. An error if it is not a
    /// whole number from 0.
    fn number(&mut self, name: &str) -> Result<Option<u64>, PortError> {
        match self.item.remove(name) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => {
                digits.parse().map(Some).map_err(|_| bad(self.key, name, "is not a whole number"))
            }
            Some(_) => Err(bad(self.key, name, "is not a number")),
        }
    }

    /// Removes and decodes a text attribute with JSON; `None` if it is missing. An error if it is
    /// of another form.
    fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, PortError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| bad(self.key, name, format!("cannot be read: {error}")))
    }
}

/// Returns the error for an item with an invalid attribute.
fn bad(key: &Key, name: &str, why: impl std::fmt::Display) -> PortError {
    PortError::unknown(format!("read {key}"), format!("its attribute {name} {why}"))
}
