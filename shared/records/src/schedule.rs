//! A tenant's timers: one record, due when the next of them fires.

use crate::codec::{encode, with_body};
use sluice_gate::Schedule;
use sluice_model::TenantName;
use sluice_model::name::escape;
use sluice_model::poke::Poke;
use sluice_runtime::record::{Due, Key, Record};
use sluice_runtime::{Commit, PortError};

/// Returns the key of a tenant's schedule.
pub fn key(tenant: &TenantName) -> Key {
    Key::new(format!("schedule#{}", escape(tenant.as_str())), "head")
}

/// Returns the commit of a schedule, on the record that was read; `None` where there was none.
///
/// # Errors
/// When it is too large.
pub fn commit(record: Option<Record>, schedule: &Schedule) -> Result<Commit, PortError> {
    let head = match record {
        Some(record) => with_body(record, schedule)?,
        None => encode(key(&schedule.tenant), schedule)?,
    };
    let due = schedule
        .due()
        .map(|at| Due { at, poke: Poke::Schedule { tenant: schedule.tenant.clone() } });
    Ok(Commit { head, others: Vec::new(), pokes: Vec::new(), due })
}
