//! Who is who on the local forge: accounts and secrets, made once for each data directory.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sluice_aws::OsEntropy;
use sluice_local_forge::{Account, Permission};
use sluice_runtime::Entropy as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The account that the system itself acts as.
pub const OWN: &str = "sluice";
/// The account that proposes changes in the demo.
pub const OWNER: &str = "ada";
/// The account that approves them.
pub const REVIEWER: &str = "grace";

/// The file by which git knows the people's tokens (`credential.helper store --file=…`).
pub const CREDENTIALS_FILE: &str = "git-credentials";

/// Returns the file with the headers by which somebody asks the forge's API (`curl -H @FILE`).
pub fn header_file(data: &Path, login: &str) -> PathBuf {
    data.join(format!("{login}.header"))
}

/// Accounts and secrets of the forge beside a local system.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The forge's port: one above that of the pages.
    pub forge_port: u16,
    /// What webhooks are signed with.
    pub webhook_secret: String,
    own_token: String,
    owner_token: String,
    reviewer_token: String,
}

impl Identity {
    /// Reads the identity in a data directory, or makes one; its forge is at this port from now on.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(data: &Path, port: u16) -> anyhow::Result<Self> {
        let path = data.join("forge.json");
        let token = || OsEntropy.token();
        let known: Option<Self> = match std::fs::read_to_string(&path) {
            Ok(text) => Some(serde_json::from_str(&text).with_context(|| {
                format!("{} is damaged; remove the data directory to begin anew", path.display())
            })?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", path.display()));
            }
        };
        let is_written = known.as_ref().is_some_and(|known| known.forge_port == port);
        let identity = match known {
            Some(known) => Self { forge_port: port, ..known },
            None => Self {
                forge_port: port,
                webhook_secret: token(),
                own_token: token(),
                owner_token: token(),
                reviewer_token: token(),
            },
        };
        if !is_written {
            write_private(&path, &serde_json::to_string_pretty(&identity)?)?;
        }
        Ok(identity)
    }

    /// Writes what git and curl need to act as the forge's people, so that no token stands on a
    /// command line.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_for_people(&self, data: &Path) -> anyhow::Result<()> {
        let address = format!("127.0.0.1:{}", self.forge_port);
        let people = [(OWNER, &self.owner_token), (REVIEWER, &self.reviewer_token)];
        let logins = people.map(|(login, token)| format!("http://{login}:{token}@{address}\n"));
        write_private(&data.join(CREDENTIALS_FILE), &logins.concat())?;
        for (login, token) in people {
            write_private(
                &header_file(data, login),
                &format!("Authorization: Bearer {token}\nContent-Type: application/json\n"),
            )?;
        }
        Ok(())
    }

    /// Returns the forge's accounts.
    pub fn accounts(&self) -> Vec<Account> {
        let account = |login: &str, token: &str| Account::new(login, token, Permission::Write);
        vec![
            account(OWN, &self.own_token),
            account(OWNER, &self.owner_token),
            account(REVIEWER, &self.reviewer_token),
        ]
    }

    /// Returns the token that the system itself bears.
    pub fn own_token(&self) -> &str {
        &self.own_token
    }
}

/// Writes a file that only its owner may read at any moment, and that appears whole or not at all.
pub(super) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
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
