//! `sluice secret`: manages the key pairs of projects and encrypts secrets for them (Z5.2).

use super::operator;
use crate::api_client::{LocalArguments, SystemArguments, api_path};
use crate::output::{OutputFormat, print_json, print_line};
use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use sluice_config::tenant::{SYSTEM, included_project};
use sluice_keys::{ProjectKey, ProjectPublicKey, Secret};
use sluice_model::{ConnectionName, ProjectName};
use sluice_records::layout::Layouts;
use sluice_records::project_key::{self, KeyPairPem};
use sluice_records::{connection, tenant};
use sluice_runtime::Ports;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Encrypt secrets for a project, show its public key, import a key pair (a missing pair is
/// generated)
#[derive(Debug, Clone, Subcommand)]
pub enum SecretCommand {
    /// Encrypt a value for a project and print it, to paste into a `secret` of its configuration
    Encrypt {
        /// The project.
        #[command(flatten)]
        key: KeySelector,
        /// File with the exact value; `-` is standard input
        #[arg(value_name = "FILE", default_value = "-")]
        value: PathBuf,
        /// Print a whole `secret` of this name
        #[arg(long, value_name = "NAME")]
        secret_name: Option<String>,
        /// Name of the value in that secret
        #[arg(long, value_name = "NAME", default_value = "value")]
        field_name: String,
    },
    /// Import a project's private key, for instance from Zuul, so that its encrypted secrets stay
    /// valid. An existing key is never replaced
    Import {
        /// The data directory and the output format.
        #[command(flatten)]
        local: LocalArguments,
        /// Project, by short or canonical name
        project: String,
        /// File with the private key as PEM, without a passphrase; `-` is standard input
        #[arg(value_name = "FILE", default_value = "-")]
        key: PathBuf,
    },
    /// Print a project's public key
    Key {
        /// The project.
        #[command(flatten)]
        key: KeySelector,
    },
}

/// Selects the public key of a project.
#[derive(Debug, Clone, Args)]
pub struct KeySelector {
    /// The system and the output format.
    #[command(flatten)]
    pub system: SystemArguments,
    /// Tenant of the project, for --api [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Project, by short or canonical name
    pub project: String,
}

/// Runs a `sluice secret` command: encrypts a value, imports a key pair, or prints a public key.
///
/// # Errors
/// When no project or several projects have the name, a file cannot be read, or the system does not
/// answer; for an import, as [`import`].
pub async fn run(command: SecretCommand) -> anyhow::Result<()> {
    match command {
        SecretCommand::Encrypt { key, value, secret_name, field_name } => {
            let plain = read(&value)?;
            let encrypted = public_key(&key).await?.encrypt(plain.expose())?.to_string();
            match (key.system.format(), secret_name) {
                (OutputFormat::Json, _) => print_json(&json!({"encrypted": encrypted})),
                (OutputFormat::Text, None) => print_line!("{encrypted}"),
                (OutputFormat::Text, Some(name)) => {
                    let indented = encrypted.replace('\n', "\n        ");
                    print_line!(
                        "- secret:\n    name: {name}\n    data:\n      {field_name}: {indented}"
                    );
                }
            }
            Ok(())
        }
        SecretCommand::Import { local, project, key } => import(local.data, &project, &key).await,
        SecretCommand::Key { key } => {
            let pem = public_key(&key).await?.to_pem()?;
            match key.system.format() {
                OutputFormat::Json => print_json(&json!({"public_key": pem})),
                OutputFormat::Text => print_line!("{}", pem.trim_end()),
            }
            Ok(())
        }
    }
}

/// Returns a project's public key. Over the API, the system makes the key pair of a project of the
/// tenant if there is none. On the data, the project may be one that no tenant has yet.
async fn public_key(selector: &KeySelector) -> anyhow::Result<ProjectPublicKey> {
    let KeySelector { system, tenant, project } = selector;
    let Some(client) = system.api_client()? else {
        return ensure_pair(&system.ports().await?, project).await;
    };
    let tenant = client.tenant(tenant.as_deref()).await?;
    let path = api_path(&["tenant", &tenant, "key", &format!("{project}.pub")])?;
    let pem = client.get_text(&path).await?;
    ProjectPublicKey::from_pem(&pem).context("the system answered with no public key")
}

/// Reads a private key from `file`, or from standard input for `-`, and stores it for the project
/// `named`, so that secrets encrypted for it elsewhere stay valid. An error, without storing it, if
/// the project has another key. Importing the same key again succeeds.
///
/// # Errors
/// When no project or several projects have this name, the file has no usable private key, or when
/// the project has another key pair.
pub async fn import(data: Option<PathBuf>, named: &str, file: &Path) -> anyhow::Result<()> {
    let given = private_key(&read(file)?)?;
    let ports = operator(data).await?;
    let (connection, project) = find_project(&ports, named).await?;
    let (private, public) = (given.to_pem()?, given.public().to_pem()?);
    let pem = KeyPairPem { private: private.expose(), public: &public };
    if project_key::store(&ports, &connection, &project, pem).await? != public {
        bail!(
            "could not import the key: {project} already has another key pair, and its secrets may be encrypted for it; nothing was stored. Encrypt the values for that key pair instead (`sluice secret encrypt {project}`)"
        );
    }
    print_line!("Imported the key pair of {project}; secrets encrypted for it stay valid.");
    Ok(())
}

/// Parses an unencrypted private key in PEM. The error for an unusable key says what to do and
/// never quotes the file.
fn private_key(pem: &Secret) -> anyhow::Result<ProjectKey> {
    if pem.expose_text().is_some_and(|text| text.contains("ENCRYPTED")) {
        bail!(
            "could not import the key: it is protected by a passphrase; nothing was stored. Remove the passphrase first, for instance with `openssl rsa -in FILE`"
        );
    }
    ProjectKey::from_pem(pem).context("could not import the key; nothing was stored")
}

/// Reads a whole file, or standard input for `-`, unchanged: a final line break is kept.
pub(crate) fn read(file: &Path) -> anyhow::Result<Secret> {
    if file == Path::new("-") {
        let mut plain = Vec::new();
        std::io::stdin()
            .read_to_end(&mut plain)
            .context("could not read the value from standard input")?;
        return Ok(Secret::new(plain));
    }
    Ok(Secret::new(
        std::fs::read(file).with_context(|| format!("could not read {}", file.display()))?,
    ))
}

/// Returns the public key of the project with the short or canonical name `named`. Generates and
/// stores a key pair if it has none; concurrent callers get the key of one pair. An error if no
/// project or several projects have the name.
async fn ensure_pair(ports: &Ports, named: &str) -> anyhow::Result<ProjectPublicKey> {
    let (connection, project) = find_project(ports, named).await?;
    let public = match project_key::load_public(ports, &connection, &project).await? {
        Some(public) => public,
        None => {
            let made = tokio::task::spawn_blocking(ProjectKey::generate).await??;
            let (private, public) = (made.to_pem()?, made.public().to_pem()?);
            let pem = KeyPairPem { private: private.expose(), public: &public };
            project_key::store(ports, &connection, &project, pem).await?
        }
    };
    Ok(ProjectPublicKey::from_pem(&public)?)
}

/// Returns the connection and canonical name of the project with this short or canonical name in
/// the live configuration of any tenant. The project of the included files is also found without a
/// tenant, by its canonical name. Any other project that no tenant has yet is found by the host in
/// its name, if exactly one connection has that host; a note on standard error says so. An error if
/// several projects or connections match, or none.
pub(crate) async fn find_project(
    ports: &Ports,
    named: &str,
) -> anyhow::Result<(ConnectionName, ProjectName)> {
    let layouts = Layouts::default();
    let mut found: BTreeSet<(ConnectionName, ProjectName)> = BTreeSet::new();
    for name in tenant::list_tenants(ports).await? {
        let live = layouts.load_live(ports, &name).await.map_err(|error| anyhow!("{error}"))?;
        let Some(live) = live else { continue };
        let is_named = |project: &&sluice_config::TenantProject| {
            [project.name.as_str(), project.name.name()].contains(&named)
        };
        let tenant = live.layout.tenant();
        let alike = tenant.projects.iter().chain(&tenant.included).filter(is_named);
        found.extend(alike.map(|project| (project.connection.clone(), project.name.clone())));
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => return Ok(one),
        (Some((_, one)), Some((_, other))) => {
            bail!(
                "several projects are named {named} ({one}, {other}): give a canonical name, with its host"
            )
        }
        (None, _) => {}
    }
    let project = ProjectName::from(named);
    if project == included_project() {
        return Ok((SYSTEM.into(), project));
    }
    let connections = connection::load(ports).await?;
    let connection = match connections.of_host(project.host()).as_slice() {
        [] => bail!(
            "there is no project {named}: no tenant has it, and no connection has its host. `sluice tenant show` lists the projects; name a project that no tenant has yet with its host, as in git.example.org/org/project"
        ),
        [(connection, _)] => (*connection).clone(),
        several => {
            let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
            bail!(
                "could not choose a connection for {project}: no tenant has it yet, and several connections have its host ({}), each with its own key pairs; add the project to a tenant first (`sluice tenant load FILE`)",
                names.join(", ")
            )
        }
    };
    eprintln!("sluice: no tenant has {project} yet; its key pair is stored for later");
    Ok((connection, project))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.2: the error for an unusable key says what to do and never quotes the file.
    #[test]
    fn an_unusable_key_is_reported_without_its_content() {
        let message = |text: &str| {
            let error = private_key(&Secret::new(text.as_bytes().to_vec())).err().unwrap();
            format!("{error:#}")
        };
        let locked = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n";
        assert!(message(locked).contains("openssl rsa -in FILE"), "{}", message(locked));
        let public = "-----BEGIN PUBLIC KEY-----\nc2VjcmV0\n-----END PUBLIC KEY-----\n";
        assert!(
            message(public).contains("could not import the key; nothing was stored"),
            "{}",
            message(public)
        );
        for text in [locked, public, "c2VjcmV0"] {
            assert!(!message(text).contains("c2VjcmV0"), "{}", message(text));
        }
    }
}
