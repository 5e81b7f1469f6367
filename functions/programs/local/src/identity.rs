//! The accounts and secrets of the local forge, created once for each data directory.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sluice_aws::OsEntropy;
use sluice_local_forge::{AccountPermission, ForgeAccount};
use sluice_operator::operator_access::write_private;
use sluice_runtime::Entropy as _;
use std::path::{Path, PathBuf};

/// The account of the system itself.
pub const SYSTEM_ACCOUNT: &str = "sluice";
/// The account that proposes changes.
pub const OWNER: &str = "ada";
/// The account that approves changes.
pub const REVIEWER: &str = "grace";

/// The file with the users' tokens for git (`credential.helper store --file=…`).
pub const CREDENTIALS_FILE: &str = "git-credentials";

/// Returns the path of the file with a user's request headers for the forge's API (`curl -H
/// @FILE`). Only [`Identity::write_user_files`] creates it.
pub fn header_file(data: &Path, login: &str) -> PathBuf {
    data.join(format!("{login}.header"))
}

/// The accounts and secrets of the local forge.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The port of the forge: the one after that of the pages.
    pub forge_port: u16,
    /// The secret that webhooks are signed with.
    pub webhook_secret: String,
    system_token: String,
    owner_token: String,
    reviewer_token: String,
}

impl Identity {
    /// Reads the identity from `forge.json` in a data directory. If there is no such file, creates
    /// it with random secrets; a damaged file is an error. Stores `port`, the forge's, in it if it
    /// has changed. Only its owner may read the file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(data: &Path, port: u16) -> anyhow::Result<Self> {
        let path = data.join("forge.json");
        let token = || OsEntropy.token();
        let stored: Option<Self> = match std::fs::read_to_string(&path) {
            Ok(text) => Some(serde_json::from_str(&text).with_context(|| {
                format!(
                    "could not read {}: it is damaged; delete the data directory to start over",
                    path.display()
                )
            })?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", path.display()));
            }
        };
        let is_written = stored.as_ref().is_some_and(|stored| stored.forge_port == port);
        let identity = match stored {
            Some(stored) => Self { forge_port: port, ..stored },
            None => Self {
                forge_port: port,
                webhook_secret: token(),
                system_token: token(),
                owner_token: token(),
                reviewer_token: token(),
            },
        };
        if !is_written {
            write_private(&path, &serde_json::to_string_pretty(&identity)?)?;
        }
        Ok(identity)
    }

    /// Writes the files that git and curl need to act as the owner and the reviewer, so that no
    /// token is on a command line. Existing files are replaced, and only their owner may read them.
    /// They contain the port of the forge.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_user_files(&self, data: &Path) -> anyhow::Result<()> {
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

    /// Returns the forge's accounts: that of the system, the owner and the reviewer, in this order,
    /// all with write permission.
    pub fn accounts(&self) -> Vec<ForgeAccount> {
        let account =
            |login: &str, token: &str| ForgeAccount::new(login, token, AccountPermission::Write);
        vec![
            account(SYSTEM_ACCOUNT, &self.system_token),
            account(OWNER, &self.owner_token),
            account(REVIEWER, &self.reviewer_token),
        ]
    }

    /// Returns the system's own token.
    pub fn system_token(&self) -> &str {
        &self.system_token
    }
}
