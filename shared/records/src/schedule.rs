//! The timer triggers of a tenant: one record, due when the next of them fires.

use crate::codec::{encode, with_body};
use sluice_gate::Schedule;
use sluice_model::TenantName;
use sluice_model::name::escape;
use sluice_model::wakeup::Wakeup;
use sluice_runtime::record::{Due, Key, Record};
use sluice_runtime::{CellCommit, PortError};

/// Returns the key of a tenant's schedule.
pub fn key(tenant: &TenantName) -> Key {
    Key::new(format!("schedule#{}", escape(tenant.as_str())), "head")
}

/// Returns the commit of a schedule, for the caller to write; `record` is the one that was read,
/// `None` when there was none. It is due when the next timer fires, or never without timers. It
/// sends no wakeups.
///
/// # Errors
/// When the record is too large.
pub fn commit(record: Option<Record>, schedule: &Schedule) -> Result<CellCommit, PortError> {
    let head = match record {
        Some(record) => with_body(record, schedule)?,
        None => encode(key(&schedule.tenant), schedule)?,
    };
    let due = schedule
        .due()
        .map(|at| Due { at, wakeup: Wakeup::Schedule { tenant: schedule.tenant.clone() } });
    Ok(CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due })
}
