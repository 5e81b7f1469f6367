//! Counts the calls that the ports answered, by caller and operation, as a real account would be
//! billed.

use sluice_runtime::record::{Record, Write};
use std::collections::BTreeMap;

/// The caller of ports without a named caller.
pub const NO_CALLER: &str = "";

/// Calls and units since the last reset.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calls {
    /// The number of calls by operation (`records.commit`, `queues.send` …).
    pub by_operation: BTreeMap<&'static str, u64>,
    /// The usage by caller ([`crate::World::ports_of`]) and operation.
    pub by_caller: BTreeMap<&'static str, BTreeMap<&'static str, Used>>,
    /// The number of records written, including checked conditions.
    pub records_written: u64,
    /// The number of bytes of written bodies.
    pub bytes_written: u64,
}

/// The usage of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Used {
    /// The number of calls.
    pub calls: u64,
    /// DynamoDB read request units: one for each 4 KB of a consistent read, half of one for an
    /// index read.
    pub read_units: f64,
    /// DynamoDB write request units: one for each KB, two in a transaction, plus those of the
    /// indexes.
    pub write_units: f64,
    /// The number of calls to FIFO queues.
    pub fifo_calls: u64,
}

impl Used {
    /// Adds the usage of further calls.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.read_units += other.read_units;
        self.write_units += other.write_units;
        self.fifo_calls += other.fifo_calls;
    }
}

impl Calls {
    /// Returns the number of all calls except polls of queues.
    pub fn total(&self) -> u64 {
        self.by_operation
            .iter()
            .filter(|(name, _)| **name != "queues.receive")
            .map(|(_, count)| count)
            .sum()
    }

    /// Counts a call for its caller and its operation. `used.calls` may be more than one.
    pub(crate) fn count(&mut self, caller: &'static str, operation: &'static str, used: Used) {
        *self.by_operation.entry(operation).or_default() += used.calls;
        self.by_caller.entry(caller).or_default().entry(operation).or_default().add(used);
    }
}

/// Returns the read units of one consistently read record: one for each started 4 KiB. A missing
/// record costs a unit too.
pub(crate) fn read_units(record: Option<&Record>) -> f64 {
    record.map_or(1.0, |record| kilobytes_of(size(record), 4))
}

/// Returns the read units of a consistent query: one for each started 4 KiB of all results
/// together, at least one.
pub(crate) fn query_units<'a>(records: impl IntoIterator<Item = &'a Record>) -> f64 {
    kilobytes_of(records.into_iter().map(size).sum(), 4)
}

/// Returns the write units of one write or of a transaction, with those of the indexes. A write or
/// check counts the started KB of the stored or the new record, whichever is larger; in a
/// transaction twice. `old` looks up the record that is stored under the key of a write.
pub(crate) fn write_units<'a>(writes: &[Write], old: impl Fn(&Write) -> Option<&'a Record>) -> f64 {
    let each = if writes.len() > 1 { 2.0 } else { 1.0 };
    let units = |write: &Write| {
        let before = old(write);
        let after = match write {
            Write::Put { record, .. } => Some(record),
            Write::Delete { .. } | Write::Check { .. } => None,
        };
        let own = each * kilobytes_of(before.map_or(0, size).max(after.map_or(0, size)), 1);
        if let Write::Check { .. } = write { own } else { own + index_units(before, after) }
    };
    writes.iter().map(units).sum()
}

/// Returns the write units of both indexes together, which hold keys only: in each, one to remove
/// the old entry, one to add the new one, and none if the entry is unchanged.
fn index_units(before: Option<&Record>, after: Option<&Record>) -> f64 {
    let moved = |before: bool, after: bool, same: bool| {
        if same { 0.0 } else { f64::from(u8::from(before) + u8::from(after)) }
    };
    let due = |record: Option<&Record>| record.and_then(|record| record.sweep_at);
    let find = |record: Option<&Record>| record.and_then(|record| record.find.clone());
    moved(due(before).is_some(), due(after).is_some(), due(before) == due(after))
        + moved(find(before).is_some(), find(after).is_some(), find(before) == find(after))
}

/// The approximate size of attribute names, numbers and the key.
const OVERHEAD_BYTES: usize = 120;

/// The approximate size of a wakeup in an outbox.
const POKE_BYTES: usize = 150;

/// Returns the approximate size of a record in bytes, as DynamoDB counts it.
fn size(record: &Record) -> usize {
    let outbox = record.outbox.len() * POKE_BYTES;
    record.key.partition.len() + record.key.sort.len() + record.body.len() + outbox + OVERHEAD_BYTES
}

/// Returns a size in started units of `unit` KiB, at least one.
#[expect(clippy::cast_precision_loss, reason = "records are far smaller than 2^52 bytes")]
fn kilobytes_of(bytes: usize, unit: usize) -> f64 {
    bytes.div_ceil(unit * 1_024).max(1) as f64
}
