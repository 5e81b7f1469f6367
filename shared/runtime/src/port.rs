//! The ports: the services that a function may use. `shared/aws` and `shared/memory` implement
//! them.

use crate::object::{Object, ObjectPart, PutMode, PutOutcome};
use crate::record::{Key, Query, Record, TransactionOutcome, Write};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_model::{Timestamp, wakeup::MessageQueue};
use std::sync::Arc;

/// An error of a port call. The caller has its message delivered again.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempt}: {why}")]
pub struct PortError {
    /// What was attempted, with the key or queue.
    pub attempt: String,
    /// The answer of the service or its client, without secrets.
    pub why: String,
    /// Whether the service asked to slow down. Otherwise the call may have taken effect.
    pub throttled: bool,
}

impl PortError {
    /// Returns an error, not throttled, whose call may or may not have had its effect. `attempt`
    /// reads like `write KEY`.
    pub fn unknown(attempt: impl Into<String>, why: impl ToString) -> Self {
        Self { attempt: attempt.into(), why: why.to_string(), throttled: false }
    }
}

/// The table.
#[async_trait]
pub trait Records: Send + Sync {
    /// Returns the records under `keys`, in their order, each read consistently; `None` for a
    /// missing one. Several records are not one snapshot.
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError>;
    /// Returns the records of one partition that match `query`, in key order, read consistently, at
    /// most its limit; fewer than the limit means there are no more.
    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError>;
    /// Returns the keys of records that are due for reconciliation at `until` or before, oldest
    /// first, at most `limit`, from one shard of the index `due`. The index may lag behind the
    /// table.
    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError>;
    /// Returns keys from one partition of the index `find`, newest (highest) first, at most
    /// `limit`; only below the sort key `before` of the index if that is given. The index may lag
    /// behind the table.
    async fn find(
        &self,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, PortError>;
    /// Writes all records or none; a failed condition is an outcome and no error. `write_id`
    /// identifies this write: a repetition of a transaction with the same id changes nothing more.
    /// After an error that is not throttled, the records may have been written.
    async fn commit(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError>;
}

/// The number of shards of the index `due`; a record's shard follows from its partition.
pub const DUE_SHARDS: u32 = 4;

/// Object storage.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Returns the object with its whole content; `None` when there is none.
    async fn get(&self, key: &str) -> Result<Option<Object>, PortError>;
    /// Returns at most `most` bytes (at least 1) of an object from byte `first` on, none beyond its
    /// end, with the length of the whole object. `None` when there is no object.
    async fn get_part(
        &self,
        key: &str,
        first: u64,
        most: usize,
    ) -> Result<Option<ObjectPart>, PortError>;
    /// Stores an object if the condition of `mode` holds, in place of an earlier one. A condition
    /// that does not hold is an outcome and no error; nothing is stored then. `content_type` is
    /// sent to browsers that read the object.
    async fn put(
        &self,
        key: &str,
        bytes: Bytes,
        mode: PutMode,
        content_type: &str,
    ) -> Result<PutOutcome, PortError>;
    /// Returns the keys that begin with `prefix`, in order, at most `limit`; only those after the
    /// key `after` if that is given. Fewer than the limit means there are no more.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, PortError>;
    /// Removes an object. Succeeds when there is none.
    async fn delete(&self, key: &str) -> Result<(), PortError>;
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The text, at most 2 KB for a wakeup.
    pub body: String,
    /// The message group.
    pub group: Option<String>,
    /// Seconds before it can be received; only on standard queues, at most 900.
    pub delay_seconds: u32,
}

/// A message received and not yet acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The queue's id of the message.
    pub id: String,
    /// The text.
    pub body: String,
    /// The handle that acknowledges this delivery of the message.
    pub receipt: String,
    /// The message group.
    pub group: Option<String>,
    /// How often it has been received, this time included.
    pub receive_count: u32,
}

/// The message queues.
#[async_trait]
pub trait Queues: Send + Sync {
    /// Sends messages in their order. After an error, any of them may have been sent or not.
    async fn send(&self, queue: MessageQueue, messages: Vec<Outgoing>) -> Result<(), PortError>;
    /// Receives up to `max` (≤ 10) messages, waiting up to `wait_seconds` (≤ 20) for the first;
    /// none after that is no error. They are hidden from other receivers for `visibility_seconds`
    /// and come again unless they are acknowledged.
    async fn receive(
        &self,
        queue: MessageQueue,
        max: u32,
        wait_seconds: u32,
        visibility_seconds: u32,
    ) -> Result<Vec<Incoming>, PortError>;
    /// Removes a received message for good, by the receipt of this delivery.
    async fn acknowledge(&self, queue: MessageQueue, receipt: &str) -> Result<(), PortError>;
    /// Removes received messages of one queue for good, by their receipts, ten in a call. After an
    /// error, any of them may be delivered again.
    async fn acknowledge_all(
        &self,
        queue: MessageQueue,
        receipts: &[String],
    ) -> Result<(), PortError>;
    /// Makes a received message visible again `seconds` from now, instead of at the end of its
    /// time.
    async fn postpone(
        &self,
        queue: MessageQueue,
        receipt: &str,
        seconds: u32,
    ) -> Result<(), PortError>;
}

/// The clock. Deadlines only ensure progress: clock skew may delay work, but never corrupts it.
pub trait Clock: Send + Sync {
    /// Returns the time now.
    fn now(&self) -> Timestamp;
}

/// Randomness, so that a simulation can be repeated.
pub trait Entropy: Send + Sync {
    /// Returns 32 random hexadecimal digits, unique in practice.
    fn token(&self) -> String;
}

/// Encryption at rest for Sluice's secrets (webhook secrets, tokens, private keys).
#[async_trait]
pub trait Seal: Send + Sync {
    /// Encrypts `plain`. The same `context` is required to open it.
    async fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, PortError>;
    /// Decrypts the output of [`Self::seal`]. An error if it was sealed under another `context`.
    async fn open(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, PortError>;
}

/// All ports of a function.
#[derive(Clone)]
pub struct Ports {
    /// The table.
    pub records: Arc<dyn Records>,
    /// Object storage.
    pub objects: Arc<dyn Objects>,
    /// The message queues.
    pub queues: Arc<dyn Queues>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Encryption at rest.
    pub seal: Arc<dyn Seal>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ports")
    }
}

/// Returns the shard of the index `due` for a partition, below [`DUE_SHARDS`], always the same.
pub fn due_shard(partition: &str) -> u32 {
    // FNV-1a spreads well enough, and all writers must always agree on the shard.
    let hash = partition
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % DUE_SHARDS
}
