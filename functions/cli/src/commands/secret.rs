//! `sluice secret`: key pairs of projects, and values encrypted for them (Z5.2).

use super::operator;
use crate::say::say;
use anyhow::Context as _;
use sluice_keys::{ProjectKey, Secret};
use sluice_model::ProjectName;
use sluice_records::{connection, project_key};
use sluice_runtime::Ports;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Prints a project's public key; makes the pair when there is none.
///
/// # Errors
/// When no connection has the project's host, or the store does not answer.
pub async fn show(data: Option<PathBuf>, project: &str) -> anyhow::Result<()> {
    print!("{}", pair(&operator(data).await?, project).await?.public().to_pem()?);
    Ok(())
}

/// Prints a value as it is pasted into a configuration, encrypted for a project.
///
/// # Errors
/// As [`show`], or when the value cannot be read.
pub async fn encrypt(data: Option<PathBuf>, project: &str, value: &Path) -> anyhow::Result<()> {
    let plain = if value == Path::new("-") {
        let mut plain = Vec::new();
        std::io::stdin().read_to_end(&mut plain).context("could not read the value from standard input")?;
        plain
    } else {
        std::fs::read(value).with_context(|| format!("could not read {}", value.display()))?
    };
    let plain = Secret::new(plain);
    say!("{}", pair(&operator(data).await?, project).await?.public().encrypt(plain.expose())?);
    Ok(())
}

/// Returns the key pair of a project, made when there is none. Of two who make one at once, one wins.
async fn pair(ports: &Ports, project: &str) -> anyhow::Result<ProjectKey> {
    let project = ProjectName::from(project);
    let connections = connection::load(ports).await?;
    let (connection, _) = connections.by_host(project.host()).with_context(|| {
        format!(
            "no connection has the host of {project}: name the project with its host, as in git.example.org/org/project"
        )
    })?;
    if project_key::open(ports, connection, &project).await?.is_none() {
        let made = tokio::task::spawn_blocking(ProjectKey::generate).await??;
        project_key::store(ports, connection, &project, made.to_pem()?.expose()).await?;
    }
    let pem =
        project_key::open(ports, connection, &project).await?.context("the key pair that was just made is gone")?;
    let pair = ProjectKey::from_pem(&Secret::new(pem))?;
    project_key::publish(ports, connection, &project, &pair.public().to_pem()?).await?;
    Ok(pair)
}
