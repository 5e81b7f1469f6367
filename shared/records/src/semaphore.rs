//! Semaphores: one record each, written in one transaction with the build orders that acquire them.

use crate::codec::{encode_first, with_body};
use sluice_gate::{Semaphore, SemaphoreKey};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Returns the key of a semaphore. All semaphores of a tenant are in one partition, and global ones
/// in a partition without a tenant.
pub fn key(semaphore: &SemaphoreKey) -> Key {
    let text = semaphore.to_string();
    let (tenant, name) = text.split_once('/').unwrap_or(("", &text));
    Key::new(partition(tenant), name)
}

/// Returns the partition of a tenant's semaphores, given the tenant's escaped name; empty for
/// global semaphores.
pub fn partition(tenant: &str) -> String {
    format!("semaphores#{tenant}")
}

/// Returns the write of a semaphore, conditional on the revision of `seen` (`None`: there must be
/// no record). A semaphore never expires, also if it has no holders.
///
/// # Errors
/// When the record is too large.
pub fn put(seen: Option<&Record>, semaphore: &Semaphore) -> Result<Write, PortError> {
    Ok(match seen {
        None => Write::Put {
            record: encode_first(key(&semaphore.key), semaphore)?,
            expect: Expect::Absent,
        },
        Some(seen) => {
            let mut record = with_body(seen.clone(), semaphore)?;
            record.revision = seen.revision + 1;
            Write::Put { record, expect: Expect::Revision(seen.revision) }
        }
    })
}
