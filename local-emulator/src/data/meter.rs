//! Counts every call: who, which service, which operation, what it used, what it would cost on AWS.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::auth::Principal;
use super::prices;
use super::wire::{Service, Usage};

/// Counts calls until it is [reset](Meter::reset).
#[derive(Debug, Default)]
pub struct Meter {
    rows: Mutex<BTreeMap<Key, Count>>,
}

type Key = (Principal, Service, String, Purpose);

/// What a call was made for, and by whom in its principal's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The principal's own code needed its answer.
    #[default]
    Own,
    /// The event source of the function took messages for it, or deleted what it had done.
    EventSource,
    /// The event source of the function put off or brought forward when messages come again. AWS's
    /// make no such calls.
    EventSourceHiding,
    /// A receive call of an event source or of the principal's code that returned no messages.
    Poll,
}

/// What one principal did with one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Count {
    /// Calls, whatever their outcome.
    pub calls: u64,
    /// Calls answered 4xx: refused, a condition that failed, throttled.
    pub refused: u64,
    /// Calls answered 5xx.
    pub failed: u64,
    /// DynamoDB read request units.
    pub read_units: f64,
    /// DynamoDB write request units.
    pub write_units: f64,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of response bodies.
    pub bytes_out: u64,
    /// What the calls would cost on AWS.
    pub dollars: f64,
}

/// One line of a [`MeterReport`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Who called.
    pub principal: String,
    /// The service, for example `dynamodb`.
    pub service: String,
    /// The operation, for example `PutItem`.
    pub operation: String,
    /// What the calls were made for.
    pub purpose: Purpose,
    /// What was counted.
    pub count: Count,
}

/// What was counted since the meter was made or reset, ordered by principal, service, operation and
/// purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeterReport {
    /// One row for each principal, service, operation and purpose.
    pub rows: Vec<Row>,
}

/// One finished call, as it is counted.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Who called.
    pub principal: &'a Principal,
    /// Which service.
    pub service: &'a Service,
    /// Which operation.
    pub operation: &'a str,
    /// HTTP status of the answer.
    pub status: u16,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the response body.
    pub bytes_out: u64,
    /// What it used.
    pub usage: Usage,
}

impl Meter {
    /// Counts one finished call under its principal, service, operation and purpose, with what it
    /// would cost on AWS. Every status counts; 4xx and 5xx are also counted apart.
    pub fn record(&self, call: &Call<'_>) {
        let dollars = prices::dollars(call.service, call.operation, &call.usage);
        let key = (
            call.principal.clone(),
            call.service.clone(),
            call.operation.to_owned(),
            call.usage.purpose,
        );
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let count = rows.entry(key).or_default();
        count.calls += 1;
        count.refused += u64::from((400..500).contains(&call.status));
        count.failed += u64::from(call.status >= 500);
        count.read_units += call.usage.read_units;
        count.write_units += call.usage.write_units;
        count.bytes_in += call.bytes_in;
        count.bytes_out += call.bytes_out;
        count.dollars += dollars;
    }

    /// Returns the counts since the start or the last reset, and goes on counting.
    #[must_use]
    pub fn snapshot(&self) -> MeterReport {
        report(&self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the counts since the start or the last reset, and begins again at zero.
    pub fn reset(&self) -> MeterReport {
        report(&std::mem::take(&mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Returns the counts as rows, ordered by principal, service, operation and purpose.
fn report(rows: &BTreeMap<Key, Count>) -> MeterReport {
    let row = |((principal, service, operation, purpose), count): (&Key, &Count)| Row {
        principal: principal.to_string(),
        service: service.to_string(),
        operation: operation.clone(),
        purpose: *purpose,
        count: *count,
    };
    MeterReport { rows: rows.iter().map(row).collect() }
}

impl MeterReport {
    /// Returns the sum of the rows for which `matches` is true; all zero if there are none.
    pub fn total(&self, matches: impl Fn(&Row) -> bool) -> Count {
        self.rows
            .iter()
            .filter(|row| matches(row))
            .fold(Count::default(), |sum, row| sum.plus(&row.count))
    }
}

impl Count {
    /// Returns the sum of both counts.
    fn plus(self, other: &Count) -> Count {
        Count {
            calls: self.calls + other.calls,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
            read_units: self.read_units + other.read_units,
            write_units: self.write_units + other.write_units,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
            dollars: self.dollars + other.dollars,
        }
    }
}
