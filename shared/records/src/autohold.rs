//! Autohold requests: an operator asks to keep the nodes of failed builds. Operators create and
//! delete them; the launcher counts them in the commit that holds the nodes.

use crate::codec::{BadRecord, decode, encode_first, expiry, get, with_body};
use crate::queue::LoadError;
use sluice_gate::autohold::Autohold;
use sluice_model::TenantName;
use sluice_model::name::escape;
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};

/// The most requests of one tenant that are read.
pub const LISTED_MAX: usize = 200;

/// Returns the partition of a tenant's autohold requests.
pub fn partition(tenant: &TenantName) -> String {
    format!("autohold#{}", escape(tenant.as_str()))
}

/// Returns the key of an autohold request.
pub fn key(tenant: &TenantName, id: &str) -> Key {
    Key::new(partition(tenant), id)
}

/// Reads the autohold requests of a tenant with their records, the oldest first; empty if it has
/// none. Of more than [`LISTED_MAX`], the newest are left out without an error. A single record
/// that cannot be decoded is an error.
///
/// # Errors
/// When the store does not answer or a record cannot be decoded.
pub async fn load_tenant(
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

/// Returns the key of the last id that a tenant's requests had.
fn last_id_key(tenant: &TenantName) -> Key {
    Key::new(format!("{}#last", partition(tenant)), "id")
}

/// The last id that a request of a tenant had. It is kept when requests are removed, so that a late
/// command about one of them never means another one.
#[derive(Debug)]
pub struct LastId {
    /// Where it is stored.
    key: Key,
    /// Its record; `None` before the first request.
    record: Option<Record>,
    /// The number; 0 before the first request.
    last: u64,
}

impl LastId {
    /// Reads the last id of a tenant.
    ///
    /// # Errors
    /// When the store does not answer or the record cannot be decoded.
    pub async fn load(ports: &Ports, tenant: &TenantName) -> Result<Self, LoadError> {
        let key = last_id_key(tenant);
        let record = get(ports, &key).await?;
        let last = record.as_ref().map(decode::<u64>).transpose()?.unwrap_or(0);
        Ok(Self { key, record, last })
    }

    /// Returns the id for a new request, in ten digits, and the write that keeps it, which belongs
    /// into the transaction that creates the request and fails when another request got the id.
    /// The id is above those of `requests`, the tenant's requests, too: they may be older than the
    /// stored number.
    ///
    /// # Errors
    /// When the record cannot be made.
    pub fn next(&self, requests: &[(Record, Autohold)]) -> Result<(String, Write), PortError> {
        let ids = requests.iter().filter_map(|(_, request)| request.id.parse::<u64>().ok());
        let next = ids.max().unwrap_or(0).max(self.last) + 1;
        let write = match &self.record {
            None => {
                let record = encode_first(self.key.clone(), &next)?;
                Write::Put { record, expect: Expect::Absent }
            }
            Some(record) => {
                let seen = record.revision;
                let record = Record { revision: seen + 1, ..with_body(record.clone(), &next)? };
                Write::Put { record, expect: Expect::Revision(seen) }
            }
        };
        Ok((format!("{next:010}"), write))
    }
}

/// Returns the write that creates a request, which does not expire. The write fails when the id is
/// taken. An error if the request is too large for a record.
///
/// # Errors
/// When the record is too large.
pub fn create(request: &Autohold) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(key(&request.tenant, &request.id), request)?,
        expect: Expect::Absent,
    })
}

/// Returns the next version of a request's record and the write that stores it, conditional on the
/// revision of `record`. A request that has held the nodes of `max_count` builds expires some weeks
/// after the latest time until which it holds nodes; any other, and one of which a hold has no end,
/// does not expire.
///
/// # Errors
/// When the record is too large.
pub fn update(record: &Record, request: &Autohold) -> Result<(Record, Write), PortError> {
    let seen = record.revision;
    let mut next = with_body(record.clone(), request)?;
    next.revision = seen + 1;
    let is_used_up = request.current_count() >= request.max_count;
    next.expires_at = request.last_until().filter(|_| is_used_up).map(expiry);
    Ok((next.clone(), Write::Put { record: next, expect: Expect::Revision(seen) }))
}
