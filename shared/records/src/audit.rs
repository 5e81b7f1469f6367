//! The audit: each write by an operator or over the API, with who made it, what and when. The
//! record is written in the transaction of the write itself, and expires some weeks later.
//!
//! `audit#<tenant>` / the time, counted down, so that the newest comes first, and a random token.

use crate::codec::{decode_or_log, encode_first, expiry};
use serde::{Deserialize, Serialize};
use sluice_config::plain;
use sluice_model::name::escape;
use sluice_model::{TenantName, Timestamp};
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};

/// The most characters of a description.
const DESCRIPTION_CHARS_MAX: usize = 500;

/// One audited write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When it was made.
    pub at: Timestamp,
    /// Who made it: the user's id of a token, or the user at a terminal; empty if unknown.
    pub by: String,
    /// How it came: `terminal`, or `api` and the authenticator that accepted the token.
    pub via: String,
    /// What was done, as the permission that it needs (`enqueue`).
    pub action: String,
    /// To what, for people.
    pub description: String,
}

/// Returns the partition of a tenant's audit.
fn partition(tenant: &TenantName) -> String {
    format!("audit#{}", escape(tenant.as_str()))
}

/// Returns the write of an entry, for the transaction of what it records. `token` distinguishes
/// entries of one millisecond. The description is cut, and its control characters become spaces and
/// its invisible ones are escaped: it has text of users. The write fails when an entry has the same
/// time and token.
///
/// # Errors
/// When the record is too large.
pub fn put(tenant: &TenantName, entry: &AuditEntry, token: &str) -> Result<Write, PortError> {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    let description = entry.description.chars().map(one_line).take(DESCRIPTION_CHARS_MAX);
    let description = plain(description.collect());
    let entry = AuditEntry { description, ..entry.clone() };
    let sort = format!("{:020}-{token}", u64::MAX - entry.at.0);
    let record = encode_first(Key::new(partition(tenant), sort), &entry)?;
    Ok(Write::Put {
        record: Record { expires_at: Some(expiry(entry.at)), ..record },
        expect: Expect::Absent,
    })
}

/// Returns the newest entries of a tenant, at most `limit`, the newest first. Entries that cannot
/// be decoded are logged and left out, and count towards the limit.
///
/// # Errors
/// When the store does not answer.
pub async fn newest(
    ports: &Ports,
    tenant: &TenantName,
    limit: usize,
) -> Result<Vec<AuditEntry>, PortError> {
    let query = Query::prefix(partition(tenant), "", limit);
    Ok(ports.records.query(&query).await?.iter().filter_map(decode_or_log).collect())
}
