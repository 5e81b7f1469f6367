//! `sluice secret`: key pairs of projects, and values encrypted for them (Z5.2).

use super::operator;
use crate::say::say;
use anyhow::{Context as _, anyhow, bail};
use sluice_config::tenant::{SYSTEM, included_project};
use sluice_keys::{ProjectKey, Secret};
use sluice_model::{ConnectionName, ProjectName};
use sluice_records::layout::Layouts;
use sluice_records::{connection, project_key, tenant};
use sluice_runtime::Ports;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Prints a project's public key; makes the pair when there is none.
///
/// # Errors
/// When no project is named so, or several are, or the store does not answer.
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
async fn pair(ports: &Ports, named: &str) -> anyhow::Result<ProjectKey> {
    let (connection, project) = find(ports, named).await?;
    let connection = &connection;
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

/// Finds a project by its name: one of a tenant by its short or canonical name, else, by the host in its name, one that no tenant
/// has yet.
async fn find(ports: &Ports, named: &str) -> anyhow::Result<(ConnectionName, ProjectName)> {
    let layouts = Layouts::default();
    let mut found: BTreeSet<(ConnectionName, ProjectName)> = BTreeSet::new();
    for name in tenant::listed(ports).await? {
        let live = layouts.live(ports, &name).await.map_err(|error| anyhow!("{error}"))?;
        let Some(live) = live else { continue };
        let is_named =
            |project: &&sluice_config::TenantProject| [project.name.as_str(), project.name.name()].contains(&named);
        let tenant = live.layout.tenant();
        let alike = tenant.projects.iter().chain(&tenant.included).filter(is_named);
        found.extend(alike.map(|project| (project.connection.clone(), project.name.clone())));
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => return Ok(one),
        (Some((_, one)), Some((_, other))) => {
            bail!("several projects are named {named} ({one}, {other}): give the canonical name, with its host")
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
