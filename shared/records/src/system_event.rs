//! What happened to a tenant as a whole, for people: each layout that became live, and why.
//!
//! `system-events#<tenant>` / the number of the layout, counted down, so that the newest comes
//! first. Written by tenant together with the layout, never changed, forgotten after a while.

use crate::codec::{decode_foreign, encode_first, expiry};
use serde::{Deserialize, Serialize};
use sluice_model::name::escape;
use sluice_model::{TenantName, Timestamp};
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};

/// Characters of a description that are kept.
const DESCRIPTION_CHARS_MAX: usize = 500;

/// An event of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemEvent {
    /// The number of the layout that it is of: it grows with time.
    pub number: u64,
    /// When it became live.
    pub at: Timestamp,
    /// What sort of event it is, in the API's words.
    pub event_type: String,
    /// What happened and why.
    pub description: String,
}

/// Returns the partition of a tenant's events.
fn partition(tenant: &TenantName) -> String {
    format!("system-events#{}", escape(tenant.as_str()))
}

/// Returns the sort key of a number: the higher the number, the earlier the key.
fn sort(number: u64) -> String {
    format!("{:020}", u64::MAX - number)
}

/// Returns the write of an event; a second one of the same number replaces it. Its description is
/// cut where it is too long.
///
/// # Errors
/// When it is too large.
pub fn put(tenant: &TenantName, event: &SystemEvent) -> Result<Write, PortError> {
    let description = event.description.chars().take(DESCRIPTION_CHARS_MAX).collect();
    let kept = SystemEvent { description, ..event.clone() };
    let record = encode_first(Key::new(partition(tenant), sort(event.number)), &kept)?;
    Ok(Write::Put {
        record: Record { expires_at: Some(expiry(event.at)), ..record },
        expect: Expect::Anything,
    })
}

/// Returns at most `limit` events of a tenant, the newest first, from the number `newest` on
/// downward. One that cannot be read is left out.
///
/// # Errors
/// When the store does not answer.
pub async fn newest(
    ports: &Ports,
    tenant: &TenantName,
    newest: Option<u64>,
    limit: usize,
) -> Result<Vec<SystemEvent>, PortError> {
    let after = newest.and_then(|number| number.checked_add(1)).map(sort);
    let query = Query { after, ..Query::prefix(partition(tenant), "", limit) };
    Ok(ports.records.query(&query).await?.iter().filter_map(decode_foreign).collect())
}
