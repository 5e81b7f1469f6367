//! The operator's desk: a file in the data directory by which `sluice` commands reach a running
//! local system.

use super::identity::write_private;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::Path;

/// The file's name. It holds keys: only its owner may read it.
pub const DESK_FILE: &str = "operator.json";

/// What a command needs: the variables of an operator, and where the pages are.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Desk {
    /// `AWS_…` and `SLUICE_…` variables.
    pub environment: BTreeMap<String, String>,
    /// The address of the pages, ending in `/`.
    pub web_root: String,
    /// The address of the forge beside the system, if one runs.
    #[serde(default)]
    pub forge: Option<String>,
}

impl Desk {
    /// Writes the file for a system that has just started.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, data: &Path) -> anyhow::Result<()> {
        write_private(&data.join(DESK_FILE), &serde_json::to_string_pretty(self)?)
    }

    /// Reads the file; `None` when no system ever ran on this directory.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(data: &Path) -> anyhow::Result<Option<Self>> {
        let path = data.join(DESK_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(serde_json::from_str(&text).with_context(|| {
                format!("{} is damaged; start `sluice up` again", path.display())
            })?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }
}
