//! An operator's request to keep nodes of failed builds: made and deleted by operators, counted by
//! the launcher with the commit that keeps the nodes.

use crate::codec::{BadRecord, decode, encode_first, expiry, with_body};
use crate::queue::LoadError;
use sluice_gate::autohold::Autohold;
use sluice_model::TenantName;
use sluice_model::name::escape;
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};

/// Requests of one tenant that are read.
pub const LISTED_MAX: usize = 200;

/// Returns the partition of a tenant's requests.
pub fn partition(tenant: &TenantName) -> String {
    format!("autohold#{}", escape(tenant.as_str()))
}

/// Returns the key of a request.
pub fn key(tenant: &TenantName, id: &str) -> Key {
    Key::new(partition(tenant), id)
}

/// Reads the requests of a tenant, in the order they were made.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn of_tenant(
    ports: &Ports,
    tenant: &TenantName,
) -> Result<Vec<(Record, Autohold)>, LoadError> {
    let records = ports.records.query(&Query::prefix(partition(tenant), "", LISTED_MAX)).await?;
    let read = |record: Record| Ok::<_, BadRecord>((decode::<Autohold>(&record)?, record));
    Ok(records
        .into_iter()
        .map(|record| read(record).map(|(body, record)| (record, body)))
        .collect::<Result<_, _>>()?)
}

/// Returns the id of the next request of a tenant.
pub fn next_id(known: &[(Record, Autohold)]) -> String {
    let last =
        known.iter().filter_map(|(_, request)| request.id.parse::<u64>().ok()).max().unwrap_or(0);
    format!("{:010}", last + 1)
}

/// Returns the write of a new request, if nobody has its id.
///
/// # Errors
/// When it is too large.
pub fn create(request: &Autohold) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(key(&request.tenant, &request.id), request)?,
        expect: Expect::Absent,
    })
}

/// Returns a request's record as it is next, and the write of it on condition that it is as it was
/// read. It is forgotten some weeks after its last node's time is over.
///
/// # Errors
/// When it is too large.
pub fn update(record: &Record, request: &Autohold) -> Result<(Record, Write), PortError> {
    let seen = record.revision;
    let mut next = with_body(record.clone(), request)?;
    next.revision = seen + 1;
    let is_used_up = request.current_count() >= request.max_count;
    next.expires_at =
        request.held.iter().map(|held| held.until).max().filter(|_| is_used_up).map(expiry);
    Ok((next.clone(), Write::Put { record: next, expect: Expect::Revision(seen) }))
}
