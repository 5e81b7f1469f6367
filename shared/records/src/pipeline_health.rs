//! The consecutive failures of a pipeline that is disabled after too many. The record is written in
//! one transaction with the items that leave the pipeline.

use crate::codec::{encode_first, expiry, with_body};
use sluice_gate::Health;
use sluice_model::name::escape;
use sluice_model::{PipelineName, TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Returns the key of a pipeline's failure record.
pub fn key(tenant: &TenantName, pipeline: &PipelineName) -> Key {
    Key::new(format!("health#{}/{}", escape(tenant.as_str()), escape(pipeline.as_str())), "head")
}

/// Returns the write of a pipeline's failure record, conditional on the revision of `seen` (`None`:
/// there must be no record). It expires some weeks after `now`, unless it is written again.
///
/// # Errors
/// When the record is too large.
pub fn put(seen: Option<&Record>, health: &Health, now: Timestamp) -> Result<Write, PortError> {
    let (mut record, expect) = match seen {
        None => (encode_first(key(&health.tenant, &health.pipeline), health)?, Expect::Absent),
        Some(seen) => {
            let mut record = with_body(seen.clone(), health)?;
            record.revision = seen.revision + 1;
            (record, Expect::Revision(seen.revision))
        }
    };
    record.expires_at = Some(expiry(now));
    Ok(Write::Put { record, expect })
}
