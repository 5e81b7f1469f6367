//! The table in memory: conditions, transactions and both indexes, with the limits of DynamoDB.

use crate::calls::{query_units, read_units, write_units};
use crate::fate::RecordChange;
use crate::world::{State, World};
use async_trait::async_trait;
use sluice_model::Timestamp;
use sluice_runtime::record::{
    BODY_BYTES_MAX, Expect, Key, Query, Record, TRANSACTION_RECORDS_MAX, TransactionOutcome, Write,
};
use sluice_runtime::{PortError, Records};
use std::collections::BTreeSet;
use std::ops::Bound;

#[async_trait]
impl Records for World {
    /// Returns the records under `keys`, in their order; `None` for a missing one. One step, called
    /// `records.get`.
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        self.with("records.get", |state| {
            let found: Vec<Option<Record>> =
                keys.iter().map(|key| state.records.get(key).cloned()).collect();
            state.used.read_units = found.iter().map(|record| read_units(record.as_ref())).sum();
            Ok(found)
        })
        .await
    }

    /// Returns the records that match `query`, in key order, at most its limit. One step, called
    /// `records.query`.
    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        self.with("records.query", |state| {
            let first = query.after.as_ref().filter(|after| **after >= query.prefix);
            let from = Key::new(query.partition.clone(), first.unwrap_or(&query.prefix).clone());
            let bound = if first.is_some() { Bound::Excluded(from) } else { Bound::Included(from) };
            let found: Vec<Record> = state
                .records
                .range((bound, Bound::Unbounded))
                .take_while(|(key, _)| {
                    key.partition == query.partition && key.sort.starts_with(&query.prefix)
                })
                .take(query.limit)
                .map(|(_, record)| record.clone())
                .collect();
            state.used.read_units = query_units(&found);
            Ok(found)
        })
        .await
    }

    /// Returns the keys in one shard that the index `due` shows as due at `until` or before, the
    /// earliest first, at most `limit`. The index may lag. One step, called `records.due`.
    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        self.with("records.due", |state| {
            state.used.read_units = 0.5;
            Ok(state.indexes.due(state.now, shard, until, limit))
        })
        .await
    }

    /// Returns the keys in one partition that the index `find` shows, by descending sort key, at
    /// most `limit`; only below the sort key `before` if that is given. The index may lag. One
    /// step, called `records.find`.
    async fn find(
        &self,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, PortError> {
        self.with("records.find", |state| {
            state.used.read_units = 0.5;
            Ok(state.indexes.find(state.now, partition, before, limit))
        })
        .await
    }

    /// Applies all writes, or none if a condition fails: the outcome then names all records whose
    /// conditions failed. A commit with too many writes, two writes of one record or too large a
    /// body is an error. `write_id` is ignored, so a repeated call is checked again against its
    /// conditions. One step, called `records.commit`.
    async fn commit(
        &self,
        writes: Vec<Write>,
        _write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        self.with("records.commit", |state| {
            check_limits(&writes)?;
            state.used.write_units = write_units(&writes, |write| state.records.get(write.key()));
            let lost: Vec<Key> = writes
                .iter()
                .filter(|write| !holds(state, write))
                .map(|write| write.key().clone())
                .collect();
            if !lost.is_empty() {
                return Ok(TransactionOutcome::ConditionFailed(lost));
            }
            state.transactions += 1;
            for write in writes {
                apply(state, write);
            }
            Ok(TransactionOutcome::Written)
        })
        .await
    }
}

/// Returns an error for a commit that DynamoDB would refuse, or that is too large for a record: too
/// many writes, two writes of one record, or too large a body.
fn check_limits(writes: &[Write]) -> Result<(), PortError> {
    let refused = |why: String| Err(PortError::unknown("commit a transaction", why));
    if writes.len() > TRANSACTION_RECORDS_MAX {
        return refused(format!("{} records; at most {TRANSACTION_RECORDS_MAX}", writes.len()));
    }
    let keys: BTreeSet<&Key> = writes.iter().map(Write::key).collect();
    if keys.len() < writes.len() {
        return refused("one record is named twice".to_owned());
    }
    for write in writes {
        if let Write::Put { record, .. } = write
            && record.body.len() > BODY_BYTES_MAX
        {
            return refused(format!(
                "{} has {} bytes; at most {BODY_BYTES_MAX}",
                record.key,
                record.body.len()
            ));
        }
    }
    Ok(())
}

/// Returns whether the condition of a write is met by the stored records. A missing record meets
/// [`Expect::FenceAtMost`].
fn holds(state: &State, write: &Write) -> bool {
    let (key, expect) = match write {
        Write::Put { record, expect } => (&record.key, expect),
        Write::Delete { key, expect } | Write::Check { key, expect } => (key, expect),
    };
    let found = state.records.get(key);
    match expect {
        Expect::Absent => found.is_none(),
        Expect::Revision(revision) => found.is_some_and(|record| record.revision == *revision),
        Expect::FenceAtMost(fence) => found.is_none_or(|record| record.fence <= *fence),
        Expect::Anything => true,
    }
}

/// Applies a write to the table and its indexes without checking its condition, counts it, notes
/// when a new outbox was written, and adds the write to the journal if there is one. The caller has
/// raised the number of the transaction. A check does nothing.
pub(crate) fn apply(state: &mut State, write: Write) {
    let (key, record) = match write {
        Write::Put { record, .. } => (record.key.clone(), Some(record)),
        Write::Delete { key, .. } => (key, None),
        Write::Check { .. } => return,
    };
    state.calls.records_written += 1;
    let before = state.records.remove(&key);
    state.indexes.moved(&key, before.as_ref(), record.as_ref(), state.now);
    match &record {
        Some(record) if record.outbox.is_empty() => {
            state.calls.bytes_written += record.body.len() as u64;
            state.outboxes.remove(&key);
        }
        Some(record) => {
            state.calls.bytes_written += record.body.len() as u64;
            // A write to another cell's head keeps the head's outbox, and the time when that was
            // written.
            let is_kept =
                |old: &Record| (&old.write_id, &old.outbox) == (&record.write_id, &record.outbox);
            if !before.as_ref().is_some_and(is_kept) {
                state.moment += 1;
                state.outboxes.insert(key.clone(), state.moment);
            }
        }
        None => {}
    }
    let (transaction, at) = (state.transactions, state.now);
    if let Some(journal) = &mut state.journal {
        journal.push(RecordChange { transaction, at, before, after: record.clone() });
    }
    if let Some(record) = record {
        state.records.insert(key, record);
    }
}
