//! `sluice tenant`: the main configuration, and having configuration read again.

use super::operator;
use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use sluice_aws::OsEntropy;
use sluice_config::tenant::{MainConfig, parse_main};
use sluice_model::TenantName;
use sluice_model::poke::Poke;
use sluice_records::layout::Layouts;
use sluice_records::{connection, tenant};
use sluice_runtime::object::PutMode;
use sluice_runtime::{Entropy as _, Ports, cell};
use std::path::{Path, PathBuf};

/// Stores a main configuration and has every tenant of it read.
///
/// # Errors
/// When it is wrong, or the store does not answer.
pub async fn load(data: Option<PathBuf>, file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
    let ports = operator(data).await?;
    let main = parse(&ports, &file.display().to_string(), &text).await?;
    ports.objects.put(connection::MAIN, Bytes::from(text), PutMode::Always, "application/yaml").await?;
    for tenant in &main.tenants {
        read_again(&ports, &main, &tenant.name).await?;
    }
    println!("Stored; {} tenant(s) are read now.", main.tenants.len());
    Ok(())
}

/// Has a tenant's configuration read again.
///
/// # Errors
/// When there is no such tenant, or the store does not answer.
pub async fn reload(data: Option<PathBuf>, name: &str) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let stored = ports
        .objects
        .get(connection::MAIN)
        .await?
        .context("there is no main configuration; store one with `sluice tenant load FILE`")?;
    let main = parse(&ports, "main.yaml", std::str::from_utf8(&stored.bytes)?).await?;
    let name = TenantName::from(name);
    read_again(&ports, &main, &name).await?;
    println!("The repositories of {name} are read again; `sluice tenant show {name}` tells what came of it.");
    Ok(())
}

/// Writes a tenant's live layout to a file.
///
/// # Errors
/// When there is no such tenant, it was never read, or the file cannot be written.
pub async fn snapshot(data: Option<PathBuf>, name: &str, file: &Path) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let name = TenantName::from(name);
    let live = Layouts::default().live(&ports, &name).await.map_err(|error| anyhow!("{error}"))?;
    let live = live.with_context(|| format!("there is no tenant {name}, or it was never read"))?;
    std::fs::write(file, live.layout.to_bytes()).with_context(|| format!("could not write {}", file.display()))?;
    println!("Wrote {name} to {}; `sluice check --tenant {} DIRECTORY` reads it.", file.display(), file.display());
    Ok(())
}

async fn parse(ports: &Ports, path: &str, text: &str) -> anyhow::Result<MainConfig> {
    let connections = connection::load(ports).await?.vocabulary();
    let (main, errors) = parse_main(path, text, &connections);
    if !errors.is_empty() {
        let all: Vec<String> = errors.iter().map(|error| error.render(Some(text))).collect();
        bail!("the main configuration is wrong and was not stored:\n{}", all.join("\n"));
    }
    Ok(main)
}

async fn read_again(ports: &Ports, main: &MainConfig, name: &TenantName) -> anyhow::Result<()> {
    let names = || main.tenants.iter().map(|tenant| tenant.name.to_string()).collect::<Vec<_>>().join(", ");
    let config = main.tenants.iter().find(|tenant| tenant.name == *name);
    let config =
        config.with_context(|| format!("there is no tenant {name}; the main configuration has: {}", names()))?;
    let cause = OsEntropy.token();
    let marked = config.projects.iter().map(|project| tenant::put_dirty(name, &project.name, &cause));
    let writes: Vec<_> = marked.collect::<Result<_, _>>()?;
    // A transaction holds at most 100 writes; these need not be one.
    for some in writes.chunks(50) {
        ports.records.commit(some.to_vec(), &OsEntropy.token()).await?;
    }
    Ok(cell::send(ports, &[Poke::Tenant { tenant: name.clone() }]).await?)
}
