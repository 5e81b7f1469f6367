//! Events of a tenant as a whole, for people: each layout that became live, and why.
//!
//! `system-events#<tenant>` / the layout's number, counted down, so that the newest comes first.
//! Written together with the layout, never changed, and deleted some weeks later.

use crate::codec::{decode_or_log, encode_first, expiry};
use serde::{Deserialize, Serialize};
use sluice_model::name::escape;
use sluice_model::{TenantName, Timestamp};
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};

/// The most characters of a description.
const DESCRIPTION_CHARS_MAX: usize = 500;

/// An event of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemEvent {
    /// The number of its layout, which grows with time.
    pub number: u64,
    /// When the layout became live.
    pub at: Timestamp,
    /// The type of the event, as in Zuul's API.
    pub event_type: String,
    /// What happened and why.
    pub description: String,
}

/// Returns the partition of a tenant's events.
fn partition(tenant: &TenantName) -> String {
    format!("system-events#{}", escape(tenant.as_str()))
}

/// Returns the sort key of an event: the higher the number, the lower the key, so that the newest
/// comes first.
fn sort(number: u64) -> String {
    format!("{:020}", u64::MAX - number)
}

/// Returns the unconditional write of an event. It replaces an event with the same number. The
/// description is cut to `DESCRIPTION_CHARS_MAX` characters. It expires some weeks later.
///
/// # Errors
/// When the record is too large.
pub fn put(tenant: &TenantName, event: &SystemEvent) -> Result<Write, PortError> {
    let description = event.description.chars().take(DESCRIPTION_CHARS_MAX).collect();
    let event = SystemEvent { description, ..event.clone() };
    let record = encode_first(Key::new(partition(tenant), sort(event.number)), &event)?;
    Ok(Write::Put {
        record: Record { expires_at: Some(expiry(event.at)), ..record },
        expect: Expect::Anything,
    })
}

/// Returns at most `limit` events of a tenant, newest first, from number `newest` on down (`None`:
/// from the newest). Events that cannot be decoded are logged and left out, and count towards the
/// limit.
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
    Ok(ports.records.query(&query).await?.iter().filter_map(decode_or_log).collect())
}
