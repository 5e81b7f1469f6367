//! The model of the table: records under two-part keys, conditions, and transactional writes.

use serde::{Deserialize, Serialize};
use sluice_model::{Timestamp, wakeup::Wakeup};
use std::fmt;

/// The most records one transaction may write (the limit of DynamoDB's TransactWriteItems).
pub const TRANSACTION_RECORDS_MAX: usize = 100;

/// The largest body of a record in bytes. Larger data is stored as an object.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// The key of a record: the partition names the cell, the sort key the record in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The cell, for example `queue#tenant/gate/integrated`.
    pub partition: String,
    /// The record in the cell, for example `head` or `item#…`.
    pub sort: String,
}

impl Key {
    /// Returns the key of `sort` in `partition`.
    pub fn new(partition: impl Into<String>, sort: impl Into<String>) -> Self {
        Self { partition: partition.into(), sort: sort.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", self.partition, self.sort)
    }
}

/// When the sweep wakes the cell of a record, and with which wakeup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The time after which the sweep sends the wakeup.
    pub at: Timestamp,
    /// The wakeup to send.
    pub wakeup: Wakeup,
}

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The record's key.
    pub key: Key,
    /// The version, which grows by one with each decision; 0 means not stored yet.
    pub revision: u64,
    /// The fence of the lease under which it was written; 0 where none is needed.
    pub fence: u64,
    /// The content as JSON, at most [`BODY_BYTES_MAX`] bytes.
    pub body: String,
    /// Decided wakeups that may not have been sent yet, without duplicates.
    pub outbox: Vec<Wakeup>,
    /// When to reconcile it again; `None` for final records.
    pub due: Option<Due>,
    /// When the sweep finds the record: at [`Self::due`], or sooner while the outbox is not empty;
    /// `None` for never.
    pub sweep_at: Option<Timestamp>,
    /// Partition and sort key of its entry in the index `find`; `None` when it is not listed.
    pub find: Option<(String, String)>,
    /// When the store may delete it, possibly days later; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// The id of the write that made this version, by which a writer recognises its own write after
    /// a timeout.
    pub write_id: String,
}

impl Record {
    /// Returns a new record that has not been stored: revision 0, nothing due, never expiring.
    /// [`crate::cell::commit`] raises the revision of its head; the caller that puts the record in
    /// another [`Write`] sets its revision to 1 first.
    pub fn new(key: Key, body: String) -> Self {
        Self {
            key,
            revision: 0,
            fence: 0,
            body,
            outbox: Vec::new(),
            due: None,
            sweep_at: None,
            find: None,
            expires_at: None,
            write_id: String::new(),
        }
    }
}

/// The condition of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// There is no such record.
    Absent,
    /// The record has this revision.
    Revision(u64),
    /// There is no record, or its fence is at most this.
    FenceAtMost(u64),
    /// No condition; only for facts that are the same for every writer.
    Anything,
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every write is the large variant, and a transaction holds a hundred"
)]
pub enum Write {
    /// Stores the record.
    Put {
        /// The whole record to store, with its new revision: the store does not raise it.
        record: Record,
        /// The condition.
        expect: Expect,
    },
    /// Removes the record. Succeeds when there is none, unless the condition forbids that.
    Delete {
        /// The record's key.
        key: Key,
        /// The condition.
        expect: Expect,
    },
    /// Writes nothing but fails the transaction unless the condition holds.
    Check {
        /// The record's key.
        key: Key,
        /// The condition.
        expect: Expect,
    },
}

impl Write {
    /// Returns the key that is written or checked.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { record, .. } => &record.key,
            Self::Delete { key, .. } | Self::Check { key, .. } => key,
        }
    }
}

/// The outcome of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// Everything was written.
    Written,
    /// Nothing was written, because the conditions on these records did not hold.
    ConditionFailed(Vec<Key>),
}

/// Which records of one partition to read, in key order, consistently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The partition.
    pub partition: String,
    /// Only sort keys with this prefix; empty for all.
    pub prefix: String,
    /// Only sort keys after this one.
    pub after: Option<String>,
    /// At most this many records.
    pub limit: usize,
}

impl Query {
    /// Returns the query for the first `limit` records of `partition`, in key order, whose sort key
    /// begins with `prefix` (empty: all).
    pub fn prefix(partition: impl Into<String>, prefix: impl Into<String>, limit: usize) -> Self {
        Self { partition: partition.into(), prefix: prefix.into(), after: None, limit }
    }
}
