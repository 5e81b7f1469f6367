//! Files that lie beside the main configuration and that its tenants include (Z2.5): one object for each main configuration.
//!
//! It bears the digest of that configuration's text, and is stored first: whoever reads a main configuration finds the files that
//! were given with it, never those of another.

use crate::tenant::main_digest;
use bytes::Bytes;
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// Files by the names that tenants include them by, with their texts.
pub type IncludedFiles = BTreeMap<String, String>;

/// Returns the object with the files that were stored with a main configuration of this text.
pub fn object(main: &str) -> String {
    format!("system/included/{}.json", main_digest(main))
}

/// Stores the files that were given with a main configuration.
///
/// # Errors
/// When the store does not answer.
pub async fn store(ports: &Ports, main: &str, files: &IncludedFiles) -> Result<(), PortError> {
    let key = object(main);
    let text = serde_json::to_string(files).map_err(|error| PortError::unknown(format!("store {key}"), error))?;
    ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await.map(drop)
}

/// Returns the files that were stored with a main configuration; none where nothing was.
///
/// # Errors
/// When the store does not answer, or holds what was never stored there.
pub async fn load(ports: &Ports, main: &str) -> Result<IncludedFiles, PortError> {
    let key = object(main);
    let Some(object) = ports.objects.get(&key).await? else { return Ok(IncludedFiles::new()) };
    serde_json::from_slice(&object.bytes).map_err(|error| {
        let why = format!("{error}; store the main configuration again with `sluice tenant load`");
        PortError::unknown(format!("read {key}"), why)
    })
}
