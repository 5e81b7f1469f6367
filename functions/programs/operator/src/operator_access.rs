//! The access file: a file in the data directory with which `sluice` commands reach a running local
//! system.

use anyhow::Context as _;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The name of the file. It contains credentials, so only its owner may read it.
const OPERATOR_FILE: &str = "operator.json";

/// The name of a local system's connection to its forge.
pub const CONNECTION: &str = "github";
/// The canonical host name of that forge's projects.
pub const HOST: &str = "forge.local";

/// What a command needs: an operator's environment variables and the address of the pages.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct OperatorAccess {
    /// The `AWS_…` and `SLUICE_…` variables.
    pub environment: BTreeMap<String, String>,
    /// The address of the pages, ending in `/`.
    pub web_root: String,
    /// The address of the local forge, if it runs.
    #[serde(default)]
    pub forge: Option<String>,
}

impl OperatorAccess {
    /// Writes the access file of a system that has just started into its data directory, replacing
    /// an old one. Only its owner may read it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, data: &Path) -> anyhow::Result<()> {
        write_private(&data.join(OPERATOR_FILE), &serde_json::to_string_pretty(self)?)
    }

    /// Reads the access file of a data directory. `None` if there is none, as no system ever ran
    /// there. A file that exists does not mean that the system is running.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(data: &Path) -> anyhow::Result<Option<Self>> {
        let path = data.join(OPERATOR_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(serde_json::from_str(&text).with_context(|| {
                format!("could not read {}: it is damaged; run `sluice up` again", path.display())
            })?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }
}

/// Writes a file that only its owner can ever read, replacing an old one atomically. The text is
/// written first to a file beside it with the extension `new`, which may already exist and is
/// replaced.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("could not write {}", path.display());
    let fresh = path.with_extension("new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(failed);
        }
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    std::fs::rename(&fresh, path).with_context(failed)
}
