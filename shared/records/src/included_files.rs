//! The files that tenants include from beside the main configuration (Z2.5), and the commit with
//! the playbooks and roles beside it: one object for each main configuration.
//!
//! The object's name is the digest of the main configuration's text, and the object is stored
//! first. So a reader of a main configuration always finds the files loaded with it. The commit's
//! pack is stored before the object and never deleted: builds that were frozen with it find it
//! whatever is loaded later.

use crate::tenant::main_digest;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_model::git::BranchState;
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// The texts of included files, by the names under which tenants include them.
pub type IncludedFiles = BTreeMap<String, String>;

/// The files stored together with a main configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct IncludedConfig {
    /// The included files.
    pub files: IncludedFiles,
    /// The playbooks and roles beside the files, as the single commit of a project; `None` when
    /// there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<BranchState>,
}

/// Returns the name of the object with the files of this main configuration.
pub fn object(main: &str) -> String {
    format!("system/included/{}.json", main_digest(main))
}

/// Stores the files of the main configuration with the text `main`, in place of files stored for
/// the same text. The caller has stored the pack of `included.roles`, and stores the main
/// configuration only afterwards.
///
/// # Errors
/// When the store does not answer.
pub async fn store(ports: &Ports, main: &str, included: &IncludedConfig) -> Result<(), PortError> {
    let key = object(main);
    let text = serde_json::to_string(included)
        .map_err(|error| PortError::unknown(format!("store {key}"), error))?;
    ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await.map(drop)
}

/// Returns the files stored for the main configuration with the text `main`; empty when none were
/// stored. An object that cannot be decoded is an error.
///
/// # Errors
/// When the store does not answer, or the object cannot be decoded.
pub async fn load(ports: &Ports, main: &str) -> Result<IncludedConfig, PortError> {
    let key = object(main);
    let Some(object) = ports.objects.get(&key).await? else { return Ok(IncludedConfig::default()) };
    serde_json::from_slice(&object.bytes).map_err(|error| {
        let why = format!("{error}; load the main configuration again with `sluice tenant load`");
        PortError::unknown(format!("read {key}"), why)
    })
}
