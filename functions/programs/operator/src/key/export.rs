//! Imports the file of `zuul-admin export-keys`: a JSON object whose `keys` has an entry for each
//! path of Zuul's key store.
//!
//! The entry of `/keystorage/<connection>/<prefix>/<quoted project>/secrets`, and `…/ssh`, has the
//! key pairs of a project, of which `private_key` is PEM, locked with the key store's password. The
//! entry of `/keystorage2/tenant/<quoted tenant>/ssh` has those of a tenant in the same form.

use crate::api_client::LocalArguments;
use crate::operator;
use crate::output::print_line;
use crate::secret::read;
use crate::secret_file::read_secret;
use anyhow::{Context as _, bail};
use serde::Deserialize;
use sluice_keys::locked_pem::{is_locked, unlock_private_key};
use sluice_keys::{ProjectKey, Secret};
use sluice_model::{ConnectionName, ProjectName, TenantName};
use sluice_records::connection::{self, ConnectionsFile};
use sluice_records::project_key::{self, KeyPairPem};
use sluice_records::ssh_key::{self, SshKeyOwner};
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::path::Path;

/// The environment variable of the password. It is no option, because arguments are visible to
/// other users of the machine.
const PASSWORD_VARIABLE: &str = "SLUICE_KEYSTORE_PASSWORD";

/// The file. It has no `Debug`, because its keys may not be locked.
#[derive(Deserialize)]
struct Export {
    keys: BTreeMap<String, Entry>,
}

/// What the key store has at one path.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    keys: Vec<Version>,
}

/// One version of a key pair.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: u64,
    private_key: String,
}

/// Whose key pairs a path has, and what they are for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyPath {
    /// They decrypt the secrets of a project, given by its connection and its name at the forge.
    Secrets(ConnectionName, String),
    /// A project logs in with them.
    ProjectSsh(ConnectionName, String),
    /// A tenant logs in with them.
    TenantSsh(TenantName),
}

/// What became of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Imported {
    /// It was stored.
    Stored,
    /// The same key pair was there.
    Kept,
    /// Another key pair was there, and is still.
    Differs,
}

/// The number of entries by what became of them.
#[derive(Default)]
struct Counts {
    stored: usize,
    kept: usize,
    differ: usize,
    failed: usize,
}

/// Imports every key of the file `export`, or of standard input for `-`, and prints a line for each
/// path. An entry that cannot be imported does not stop the others.
///
/// # Errors
/// When the file is no export, the password cannot be read, the system does not answer, or a key
/// was not imported.
pub(super) async fn import(
    local: LocalArguments,
    password_file: Option<&Path>,
    export: &Path,
) -> anyhow::Result<()> {
    let text = read(export)?;
    // The error of the parser could quote a key.
    let export: Export = serde_json::from_slice(text.expose()).map_err(|error| {
        anyhow::anyhow!(
            "could not read the export: it is not the JSON that `zuul-admin export-keys` writes (line {}, column {})",
            error.line(),
            error.column()
        )
    })?;
    let password = match read_secret(password_file)? {
        Some(password) => Some(password),
        None => std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty()),
    };
    let password = password.map(Secret::from);
    let ports = operator(local.data).await?;
    let connections = connection::load(&ports).await?;
    let mut counts = Counts::default();
    for (path, entry) in export.keys {
        let outcome = import_entry(&ports, &connections, &path, entry, password.as_ref()).await;
        match outcome {
            Ok(Imported::Stored) => {
                counts.stored += 1;
                print_line!("imported {path}");
            }
            Ok(Imported::Kept) => {
                counts.kept += 1;
                print_line!("kept {path}: the same key is there");
            }
            Ok(Imported::Differs) => {
                counts.differ += 1;
                print_line!(
                    "kept {path}: another key is there, and what was made for the exported one does not work with it"
                );
            }
            Err(error) => {
                counts.failed += 1;
                print_line!("failed {path}: {error:#}");
            }
        }
    }
    let Counts { stored, kept, differ, failed } = counts;
    print_line!("{stored} imported, {kept} the same, {differ} different, {failed} failed");
    if differ + failed > 0 {
        bail!(
            "could not import {} of the keys; the others are stored, and importing the file again is harmless",
            differ + failed
        );
    }
    Ok(())
}

/// Imports the key of one path.
async fn import_entry(
    ports: &Ports,
    connections: &ConnectionsFile,
    path: &str,
    entry: Entry,
    password: Option<&Secret>,
) -> anyhow::Result<Imported> {
    let of = parse_path(path).context(
        "this path is not known: only keys of secrets and SSH keys of projects and tenants are read",
    )?;
    let newest = entry.keys.into_iter().max_by_key(|key| key.version);
    let locked = Secret::from(newest.context("it has no key")?.private_key);
    let plain = match password {
        None if is_locked(&locked) => bail!(
            "it is locked: name the file with the key store's password with --password-file, or set {PASSWORD_VARIABLE}"
        ),
        None => locked,
        Some(password) => unlock_private_key(&locked, password)?,
    };
    let key = ProjectKey::from_pem(&plain)?;
    let (private, public) = (key.to_pem()?, key.public().to_pem()?);
    let pair = KeyPairPem { private: private.expose(), public: &public };
    let (before, stored) = match &of {
        KeyPath::Secrets(connection, name) => {
            let project = project_in(connections, connection, name)?;
            (
                project_key::load_public(ports, connection, &project).await?,
                project_key::store(ports, connection, &project, pair).await?,
            )
        }
        KeyPath::ProjectSsh(connection, name) => {
            let project = project_in(connections, connection, name)?;
            store_ssh(ports, SshKeyOwner::Project(connection, &project), pair).await?
        }
        KeyPath::TenantSsh(tenant) => store_ssh(ports, SshKeyOwner::Tenant(tenant), pair).await?,
    };
    Ok(match (before, stored == public) {
        (None, true) => Imported::Stored,
        (Some(_), true) => Imported::Kept,
        (_, false) => Imported::Differs,
    })
}

/// Returns the canonical name of a project that has this name at a connection; an error if there is
/// no such connection.
fn project_in(
    connections: &ConnectionsFile,
    connection: &ConnectionName,
    name: &str,
) -> anyhow::Result<ProjectName> {
    let found = connections.0.get(connection).with_context(|| {
        format!(
            "there is no connection {connection}: add it under the name that it has in Zuul (`sluice connection add {connection}`), then import again"
        )
    })?;
    Ok(ProjectName::new(&found.canonical_hostname, name))
}

/// Stores an SSH key pair where there is none. Returns the public key that was there before, and
/// the one that is there now.
async fn store_ssh(
    ports: &Ports,
    owner: SshKeyOwner<'_>,
    pair: KeyPairPem<'_>,
) -> anyhow::Result<(Option<String>, String)> {
    let before = ssh_key::load_public(ports, owner).await?;
    Ok((before, ssh_key::store(ports, owner, pair).await?))
}

/// Returns whose keys a path of Zuul's key store has; `None` for any other path, and for a tenant
/// with a name that no tenant can have here.
fn parse_path(path: &str) -> Option<KeyPath> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["keystorage", connection, _prefix, project, "secrets"] => {
            Some(KeyPath::Secrets((*connection).into(), unquoted(project)?))
        }
        ["keystorage", connection, _prefix, project, "ssh"] => {
            Some(KeyPath::ProjectSsh((*connection).into(), unquoted(project)?))
        }
        ["keystorage2", "tenant", tenant, "ssh"] => {
            let name = unquoted(tenant)?;
            let is_name = !name.contains('/') && name != "." && name != "..";
            is_name.then(|| KeyPath::TenantSsh(name.as_str().into()))
        }
        _ => None,
    }
}

/// Returns a name of a path, which is quoted as in forms, so that it is one part of the path;
/// `None` for an empty one.
fn unquoted(part: &str) -> Option<String> {
    let quoted = format!("name={part}");
    let (_, name) = url::form_urlencoded::parse(quoted.as_bytes()).next()?;
    (!name.is_empty()).then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.2, Z8.2: the paths of Zuul's key store name the connection and the project, or the
    /// tenant.
    #[test]
    fn paths_of_zuuls_key_store_are_read() {
        let secrets = |name: &str| Some(KeyPath::Secrets("gerrit".into(), name.to_owned()));
        let ssh = |name: &str| Some(KeyPath::ProjectSsh("gerrit".into(), name.to_owned()));
        let tenant = |name: &str| Some(KeyPath::TenantSsh(name.into()));
        for (path, expected) in [
            ("/keystorage/gerrit/org/org%2Fproject/secrets", secrets("org/project")),
            ("/keystorage/gerrit/org/org%2Fa%2Bb/ssh", ssh("org/a+b")),
            ("/keystorage/gerrit/one/one/ssh", ssh("one")),
            ("/keystorage2/tenant/acme/ssh", tenant("acme")),
            ("/keystorage2/tenant/two+words/ssh", tenant("two words")),
            ("/keystorage2/tenant/org%2Fproject/ssh", None),
            ("/keystorage2/tenant/../ssh", None),
            ("/keystorage2/tenant/acme/secrets", None),
            ("/keystorage/tenant/acme/ssh", None),
            ("/keystorage/gerrit/org/org%2Fproject/other", None),
            ("/keystorage/gerrit/secrets", None),
            ("/other/gerrit/org/org%2Fproject/secrets", None),
        ] {
            assert_eq!(parse_path(path), expected, "{path}");
        }
    }
}
