//! What lies beside the main configuration for its tenants (Z2.5): the files that they include, and
//! the commit that playbooks and roles beside those are. One object for each main configuration.
//!
//! It bears the digest of that configuration's text, and is stored first: whoever reads a main
//! configuration finds the files that were given with it, never those of another. The commit's pack
//! is stored before the object that names it, and stays: builds that were frozen with it find it
//! whatever is loaded meanwhile.

use crate::tenant::main_digest;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_model::git::BranchState;
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// Files by the names that tenants include them by, with their texts.
pub type IncludedFiles = BTreeMap<String, String>;

/// What was stored with a main configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Included {
    /// The files.
    pub files: IncludedFiles,
    /// Playbooks and roles beside them, as the one commit of the project that the files are; `None`
    /// where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BranchState>,
}

/// Returns the object with what was stored with a main configuration of this text.
pub fn object(main: &str) -> String {
    format!("system/included/{}.json", main_digest(main))
}

/// Stores what was given with a main configuration.
///
/// # Errors
/// When the store does not answer.
pub async fn store(ports: &Ports, main: &str, included: &Included) -> Result<(), PortError> {
    let key = object(main);
    let text = serde_json::to_string(included)
        .map_err(|error| PortError::unknown(format!("store {key}"), error))?;
    ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await.map(drop)
}

/// Returns what was stored with a main configuration; nothing where nothing was.
///
/// # Errors
/// When the store does not answer, or holds what was never stored there.
pub async fn load(ports: &Ports, main: &str) -> Result<Included, PortError> {
    let key = object(main);
    let Some(object) = ports.objects.get(&key).await? else { return Ok(Included::default()) };
    decode(&object.bytes).map_err(|error| {
        let why = format!("{error}; store the main configuration again with `sluice tenant load`");
        PortError::unknown(format!("read {key}"), why)
    })
}

/// Reads what was stored; earlier versions stored the files' texts by their names and nothing else.
fn decode(bytes: &[u8]) -> Result<Included, serde_json::Error> {
    let stored: Value = serde_json::from_slice(bytes)?;
    match stored.get("files").is_some_and(Value::is_object) {
        true => serde_json::from_value(stored),
        false => Ok(Included { files: serde_json::from_value(stored)?, beside: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z2.5: a file may have any name, also one that the object has for something else.
    #[test]
    fn what_an_earlier_version_stored_is_read_as_files_alone() {
        let files = IncludedFiles::from([("files".to_owned(), "- job: {name: a}".to_owned())]);
        let earlier = serde_json::to_vec(&files).unwrap();
        assert_eq!(decode(&earlier).unwrap(), Included { files: files.clone(), beside: None });
        let now = Included { files, beside: None };
        assert_eq!(decode(&serde_json::to_vec(&now).unwrap()).unwrap(), now);
        assert_eq!(decode(b"{}").unwrap(), Included::default());
        assert!(decode(b"[]").is_err() && decode(br#"{"a.yaml": 1}"#).is_err());
    }
}
