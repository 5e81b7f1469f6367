//! `sluice secret`: key pairs of projects, and values encrypted for them (Z5.2).

use super::operator;
use crate::say::say;
use anyhow::{Context as _, anyhow, bail};
use clap::Subcommand;
use sluice_config::tenant::{SYSTEM, included_project};
use sluice_keys::{ProjectKey, Secret};
use sluice_model::{ConnectionName, ProjectName};
use sluice_records::layout::Layouts;
use sluice_records::{connection, project_key, tenant};
use sluice_runtime::Ports;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Encrypts values for a project's jobs, shows its public key, takes over a key pair; makes one
/// when there is none.
#[derive(Debug, Clone, Subcommand)]
pub enum SecretCommand {
    /// Prints a value encrypted for a project, as it is pasted into a `secret` of its
    /// configuration.
    Encrypt {
        /// Directory of a local system's state. [default: ~/.local/share/sluice]
        #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
        data: Option<PathBuf>,
        /// The project, by its short or canonical name.
        project: String,
        /// A file with the value, taken as it is; `-` is standard input.
        #[arg(value_name = "FILE", default_value = "-")]
        value: PathBuf,
    },
    /// Takes over a project's private key, as from Zuul: what was encrypted for it can stay as it
    /// is. A key that is there stays.
    Import {
        /// Directory of a local system's state. [default: ~/.local/share/sluice]
        #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
        data: Option<PathBuf>,
        /// The project, by its short or canonical name.
        project: String,
        /// A file with the key as PEM, without a password; `-` is standard input.
        #[arg(value_name = "FILE", default_value = "-")]
        key: PathBuf,
    },
    /// Prints a project's public key.
    Key {
        /// Directory of a local system's state. [default: ~/.local/share/sluice]
        #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
        data: Option<PathBuf>,
        /// The project, by its short or canonical name.
        project: String,
    },
}

/// Does what was asked for.
///
/// # Errors
/// Those of [`encrypt`], [`import`] and [`show`].
pub async fn run(command: SecretCommand) -> anyhow::Result<()> {
    match command {
        SecretCommand::Encrypt { data, project, value } => encrypt(data, &project, &value).await,
        SecretCommand::Import { data, project, key } => import(data, &project, &key).await,
        SecretCommand::Key { data, project } => show(data, &project).await,
    }
}

/// Prints a project's public key; makes the pair when there is none.
///
/// # Errors
/// When no project is named so, or several are, or the store does not answer.
pub async fn show(data: Option<PathBuf>, project: &str) -> anyhow::Result<()> {
    say!("{}", pair(&operator(data).await?, project).await?.public().to_pem()?.trim_end());
    Ok(())
}

/// Prints a value as it is pasted into a configuration, encrypted for a project.
///
/// # Errors
/// As [`show`], or when the value cannot be read.
pub async fn encrypt(data: Option<PathBuf>, project: &str, value: &Path) -> anyhow::Result<()> {
    let plain = read(value)?;
    say!("{}", pair(&operator(data).await?, project).await?.public().encrypt(plain.expose())?);
    Ok(())
}

/// Takes over a private key for a project that has none yet: what was encrypted for it elsewhere
/// stays as it is.
///
/// # Errors
/// As [`show`], when the file holds no private key that can be used, or when the project has
/// another one.
pub async fn import(data: Option<PathBuf>, named: &str, file: &Path) -> anyhow::Result<()> {
    let given = private_key(&read(file)?)?;
    let ports = operator(data).await?;
    let (connection, project) = find(&ports, named).await?;
    project_key::store(&ports, &connection, &project, given.to_pem()?.expose()).await?;
    if kept(&ports, &connection, &project).await?.public().to_pem()? != given.public().to_pem()? {
        bail!(
            "{project} has another key pair already, for which its secrets may be encrypted, so nothing was stored: encrypt the values anew for that one (`sluice secret encrypt {project}`)"
        );
    }
    say!("This is the key pair of {project}: what was encrypted for it can stay as it is.");
    Ok(())
}

fn private_key(pem: &Secret) -> anyhow::Result<ProjectKey> {
    if pem.expose_text().is_some_and(|text| text.contains("ENCRYPTED")) {
        bail!(
            "the key is locked with a password, so nothing was stored: unlock it first, as with `openssl rsa -in FILE`"
        );
    }
    ProjectKey::from_pem(pem).context("nothing was stored")
}

/// Reads a file as it is, or standard input for `-`.
fn read(file: &Path) -> anyhow::Result<Secret> {
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

/// Returns the key pair of a project, made when there is none. Of two who make one at once, one
/// wins.
async fn pair(ports: &Ports, named: &str) -> anyhow::Result<ProjectKey> {
    let (connection, project) = find(ports, named).await?;
    if project_key::open(ports, &connection, &project).await?.is_none() {
        let made = tokio::task::spawn_blocking(ProjectKey::generate).await??;
        project_key::store(ports, &connection, &project, made.to_pem()?.expose()).await?;
    }
    kept(ports, &connection, &project).await
}

/// Returns the key pair that a project has, whoever stored it first, with its public half at hand
/// for everybody.
async fn kept(
    ports: &Ports,
    connection: &ConnectionName,
    project: &ProjectName,
) -> anyhow::Result<ProjectKey> {
    let pem = project_key::open(ports, connection, project).await?;
    let pem = pem.context("the key pair that was just stored is gone; run this again")?;
    let pair = ProjectKey::from_pem(&Secret::new(pem))?;
    project_key::publish(ports, connection, project, &pair.public().to_pem()?).await?;
    Ok(pair)
}

/// Finds a project by its name: one of a tenant by its short or canonical name, else, by the host
/// in its name, one that no tenant has yet.
async fn find(ports: &Ports, named: &str) -> anyhow::Result<(ConnectionName, ProjectName)> {
    let layouts = Layouts::default();
    let mut found: BTreeSet<(ConnectionName, ProjectName)> = BTreeSet::new();
    for name in tenant::listed(ports).await? {
        let live = layouts.live(ports, &name).await.map_err(|error| anyhow!("{error}"))?;
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
                "several projects are named {named} ({one}, {other}): give the canonical name, with its host"
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
            "no tenant has a project {named}, and no connection a host of that name: `sluice tenant show` lists the projects; one that no tenant has yet is named with its host, as in git.example.org/org/project"
        ),
        [(connection, _)] => (*connection).clone(),
        several => {
            let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
            bail!(
                "no tenant has {project} yet, and several connections lead to its host ({}), each with a key of its own for it: have a tenant name the project first (`sluice tenant load FILE`)",
                names.join(", ")
            )
        }
    };
    eprintln!("sluice: no tenant has {project} yet; its key is kept for when one does");
    Ok((connection, project))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.2: a file that holds no key that can be used is told by what to do, and never by what is
    /// in it.
    #[test]
    fn a_key_that_cannot_be_taken_over_is_told_without_its_text() {
        let told = |text: &str| {
            let error = private_key(&Secret::new(text.as_bytes().to_vec())).err().unwrap();
            format!("{error:#}")
        };
        let locked = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n";
        assert!(told(locked).contains("openssl rsa -in FILE"), "{}", told(locked));
        let public = "-----BEGIN PUBLIC KEY-----\nc2VjcmV0\n-----END PUBLIC KEY-----\n";
        assert!(told(public).contains("nothing was stored"), "{}", told(public));
        for text in [locked, public, "c2VjcmV0"] {
            assert!(!told(text).contains("c2VjcmV0"), "{}", told(text));
        }
    }
}
