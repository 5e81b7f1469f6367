//! Access keys of every principal, kept in the data folder: an executor that outlives its machine
//! keeps its keys.

use super::MachineError;
use crate::data::SecretAccessKey;
use crate::lambda::Credentials;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The keys, by principal.
pub(super) struct Keys {
    by_principal: BTreeMap<String, Credentials>,
}

/// A key as it lies in the file, which only its owner may read.
#[derive(Serialize, Deserialize)]
struct Stored {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
}

impl Keys {
    /// Reads the access keys of `principals` in `keys.json` in `directory`, which must exist;
    /// creates missing ones at random and stores them. Keys of other principals stay in the file
    /// and are left out here. An error if the file is damaged.
    pub(super) fn open(directory: &Path, principals: &[&str]) -> Result<Self, MachineError> {
        let path = directory.join("keys.json");
        let failed = |why: String| MachineError::Keys { why: format!("{}: {why}", path.display()) };
        let mut stored: BTreeMap<String, Stored> = match File::open(&path) {
            Ok(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
                serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed(error.to_string())),
        };
        let before = stored.len();
        for principal in principals {
            if !stored.contains_key(*principal) {
                stored.insert((*principal).to_owned(), new_key()?);
            }
        }
        if stored.len() > before {
            write(&path, &stored).map_err(|error| failed(error.to_string()))?;
        }
        let credentials = |key: Stored| Credentials {
            access_key_id: key.access_key_id,
            secret_access_key: SecretAccessKey::new(key.secret_access_key),
            session_token: SecretAccessKey::new(key.session_token),
        };
        let wanted =
            stored.into_iter().filter(|(principal, _)| principals.contains(&principal.as_str()));
        Ok(Self {
            by_principal: wanted.map(|(principal, key)| (principal, credentials(key))).collect(),
        })
    }

    /// Returns the key of a principal; `None` if it was not among those of [`Self::open`].
    pub(super) fn get(&self, principal: &str) -> Option<&Credentials> {
        self.by_principal.get(principal)
    }

    /// Returns all keys by principal.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Credentials)> {
        self.by_principal.iter().map(|(principal, key)| (principal.as_str(), key))
    }
}

/// Writes the keys to a file that only its owner can read, in place of the old one, so that a kill
/// leaves the old or the new one.
fn write(path: &Path, stored: &BTreeMap<String, Stored>) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    // A file left by a killed machine keeps the mode it had.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(serde_json::to_string_pretty(stored)?.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

/// Creates a random key.
fn new_key() -> Result<Stored, MachineError> {
    Ok(Stored {
        access_key_id: format!("ASIA{}", random_hex(8)?.to_uppercase()),
        secret_access_key: random_hex(20)?,
        session_token: random_hex(32)?,
    })
}

/// Returns `bytes` random bytes in hexadecimal, twice as many digits; an error if the system has no
/// random numbers.
fn random_hex(bytes: usize) -> Result<String, MachineError> {
    let mut buffer = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut buffer)
        .map_err(|_| MachineError::Keys { why: "the system gave no random numbers".to_owned() })?;
    Ok(hex::encode(buffer))
}
