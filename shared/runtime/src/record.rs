//! What lies in the table: records under two-part keys, conditions on them, and writes that go
//! together.

use serde::{Deserialize, Serialize};
use sluice_model::{Timestamp, poke::Poke};
use std::fmt;

/// The most records one transaction may write (the limit of DynamoDB's TransactWriteItems).
pub const TRANSACTION_RECORDS_MAX: usize = 100;

/// The largest body of a record in bytes; what is larger goes to object storage.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// A record's address: the partition names the cell, the sort key the record in it.
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

/// When to look at a record again, and with which poke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The time after which a sweep sends the poke.
    pub at: Timestamp,
    /// What the sweep sends.
    pub poke: Poke,
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its address.
    pub key: Key,
    /// Grows by one with each decision; 0 means not stored yet.
    pub revision: u64,
    /// The fence of the lease under which it was written; 0 where none is needed.
    pub fence: u64,
    /// JSON, at most [`BODY_BYTES_MAX`] bytes.
    pub body: String,
    /// Pokes that were decided and may not be sent yet, at most one for each thing to look at.
    pub outbox: Vec<Poke>,
    /// When to look at it again; `None` for final records.
    pub due: Option<Due>,
    /// When the sweep finds it: [`Self::due`], or sooner while the outbox is not empty.
    pub look_at: Option<Timestamp>,
    /// Partition and sort key in the index `find`, for listings.
    pub find: Option<(String, String)>,
    /// When the store may forget it; deletion may come days late.
    pub expires_at: Option<Timestamp>,
    /// Names the write that made this version, so that a writer recognises its own after a
    /// time-out.
    pub write_id: String,
}

impl Record {
    /// Returns a new record that has not been stored: revision 0, nothing due.
    pub fn new(key: Key, body: String) -> Self {
        Self {
            key,
            revision: 0,
            fence: 0,
            body,
            outbox: Vec::new(),
            due: None,
            look_at: None,
            find: None,
            expires_at: None,
            write_id: String::new(),
        }
    }
}

/// What must hold for a write to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// There is no such record.
    Absent,
    /// The record has this revision.
    Revision(u64),
    /// There is no record, or its fence is at most this.
    FenceAtMost(u64),
    /// Nothing: only for facts that are the same whoever writes them.
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
        /// The whole record as it is to be.
        record: Record,
        /// What must hold.
        expect: Expect,
    },
    /// Removes the record; a missing one is fine unless the condition says otherwise.
    Delete {
        /// Its address.
        key: Key,
        /// What must hold.
        expect: Expect,
    },
    /// Writes nothing but fails the transaction unless the condition holds.
    Check {
        /// Its address.
        key: Key,
        /// What must hold.
        expect: Expect,
    },
}

impl Write {
    /// Returns the address written or checked.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { record, .. } => &record.key,
            Self::Delete { key, .. } | Self::Check { key, .. } => key,
        }
    }
}

/// How a conditional write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Everything was written.
    Yes,
    /// Nothing was written, since the conditions on these records did not hold.
    Lost(Vec<Key>),
}

/// Which records of one partition to read, in key order, consistently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The partition.
    pub partition: String,
    /// Only sort keys that begin so; empty for all.
    pub prefix: String,
    /// Only sort keys after this one.
    pub after: Option<String>,
    /// At most this many records.
    pub limit: usize,
}

impl Query {
    /// Returns the query for the records of `partition` whose sort key begins with `prefix`.
    pub fn prefix(partition: impl Into<String>, prefix: impl Into<String>, limit: usize) -> Self {
        Self { partition: partition.into(), prefix: prefix.into(), after: None, limit }
    }
}
