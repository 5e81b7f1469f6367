//! `sluice tenant`: the main configuration, and having configuration read again.

use super::enqueue::live;
use super::queue::only_tenant;
use super::{beside, operator};
use crate::say::say;
use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use sluice_aws::OsEntropy;
use sluice_config::tenant::{MainConfig, parse_main};
use sluice_config::{ConfigError, Severity};
use sluice_model::poke::Poke;
use sluice_model::{ConnectionName, TenantName};
use sluice_records::codec::{decode, get};
use sluice_records::included::{self, Included};
use sluice_records::layout::Layouts;
use sluice_records::tenant::Tenant;
use sluice_records::{connection, tenant};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::Query;
use sluice_runtime::{Entropy as _, Ports, cell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Looks at a tenant that is being read, half a second apart; a large one is read on after that.
const LOOKS_MAX: u32 = 60;

/// What becomes of tenants that a new main configuration leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// The main configuration is refused.
    Refused,
    /// Their queues are emptied, and they are removed.
    Removed,
}

/// Stores a main configuration with the files beside it that its tenants include, and the playbooks
/// and roles of these, and has every tenant of it read.
///
/// # Errors
/// When it is wrong, would remove tenants without being told to, or the store does not answer.
pub async fn load(data: Option<PathBuf>, file: &Path, left_out: LeftOut) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("could not read {}", file.display()))?;
    let ports = operator(data).await?;
    let (main, warnings) = parse(&ports, &file.display().to_string(), &text).await?;
    for warning in warnings {
        say!("{}", warning.render(Some(text.as_str())));
    }
    if main.tenants.is_empty() {
        bail!("{} names no tenant; nothing was stored", file.display());
    }
    let files = beside::read(file, &main)?;
    let mistakes = beside::mistakes(&file.display().to_string(), &text, &main, &files);
    if mistakes.iter().any(|error| error.problem.severity == Severity::Error) {
        let own =
            |error: &ConfigError| files.get(&error.path).map_or(text.as_str(), String::as_str);
        let all: Vec<String> =
            mistakes.iter().map(|error| error.render(Some(own(error)))).collect();
        bail!(
            "what the tenants of {} include is wrong, and nothing was stored:\n{}",
            file.display(),
            all.join("\n")
        );
    }
    let content = beside::content(file, &main).context("nothing was stored")?;
    let made = beside::commit(&content).context("nothing was stored")?;
    let unfound = beside::unfound(&file.display().to_string(), &text, &main, &files, &content);
    let named: BTreeSet<TenantName> =
        main.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let gone: Vec<TenantName> =
        tenant::listed(&ports).await?.into_iter().filter(|known| !named.contains(known)).collect();
    let names = || gone.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !gone.is_empty() && left_out == LeftOut::Refused {
        bail!(
            "{} leaves out what is a tenant now: {}. Whatever is in their queues would be dequeued. Nothing was stored; add --remove if that is meant",
            file.display(),
            names()
        );
    }
    let words: Vec<_> =
        gone.iter().map(|tenant| tenant::put_leaving(tenant, &text)).collect::<Result<_, _>>()?;
    for some in words.chunks(50) {
        ports.records.commit(some.to_vec(), &OsEntropy.token()).await?;
    }
    // First: whoever reads the one looks for the other.
    let commit = made.as_ref().map(|made| made.commit.id.clone());
    if !files.is_empty() {
        let beside = match made {
            Some(made) => Some(beside::store(&ports, made).await?),
            None => None,
        };
        included::store(&ports, &text, &Included { files, beside }).await?;
    }
    ports
        .objects
        .put(connection::MAIN, Bytes::from(text), PutMode::Always, "application/yaml")
        .await?;
    // First, for nothing else will ever ask what became of them; running the command again does.
    let pokes: Vec<Poke> =
        gone.iter().map(|tenant| Poke::Tenant { tenant: tenant.clone() }).collect();
    cell::send(&ports, &pokes).await?;
    for tenant in &main.tenants {
        read_again(&ports, &main, &tenant.name).await?;
    }
    say!("Stored.");
    if let Some(commit) = commit {
        say!(
            "With {} file(s) of playbooks/ and roles/ beside it, as commit {}.",
            content.len(),
            commit.short()
        );
    }
    // What is said of each tenant is told with its configuration; of what belongs to none nobody
    // else would.
    for warning in unfound.into_iter().chain(main.unserved(&file.display().to_string())) {
        say!("{warning}");
    }
    if !gone.is_empty() {
        say!("Removed, their queues are emptied: {}", names());
    }
    for tenant in &gone {
        wait_for_removal(&ports, tenant).await?;
    }
    for tenant in &main.tenants {
        show_outcome(&ports, &tenant.name).await?;
    }
    Ok(())
}

/// Has a tenant's configuration read again, or each tenant's after the other where none is named.
///
/// # Errors
/// When there is no such tenant, or the store does not answer.
pub async fn reload(data: Option<PathBuf>, name: Option<&str>) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let main = stored(&ports)
        .await?
        .context("there is no main configuration; store one with `sluice tenant load FILE`")?;
    let names = match name {
        Some(name) => vec![TenantName::from(name)],
        None => main.tenants.iter().map(|tenant| tenant.name.clone()).collect(),
    };
    for name in &names {
        read_again(&ports, &main, name).await?;
        show_outcome(&ports, name).await?;
    }
    Ok(())
}

/// Returns a tenant of the stored main configuration that has projects of a connection.
///
/// # Errors
/// When the store does not answer, or what it holds cannot be read.
pub(super) async fn user_of(
    ports: &Ports,
    connection: &ConnectionName,
) -> anyhow::Result<Option<TenantName>> {
    let Some(main) = stored(ports).await? else { return Ok(None) };
    let uses = |tenant: &&sluice_config::tenant::TenantConfig| {
        tenant.projects.iter().any(|project| project.connection == *connection)
    };
    Ok(main.tenants.iter().find(uses).map(|tenant| tenant.name.clone()))
}

/// Returns a tenant whose live configuration has a provider of a connection, and that provider.
///
/// # Errors
/// When the store does not answer, or what it holds cannot be read: what is not known to be unused
/// is used.
pub(super) async fn provider_of(
    ports: &Ports,
    connection: &ConnectionName,
) -> anyhow::Result<Option<(TenantName, String)>> {
    let layouts = Layouts::default();
    for name in tenant::listed(ports).await? {
        let live = layouts.live(ports, &name).await.map_err(|error| anyhow!("{error}"))?;
        let Some(live) = live else { continue };
        let mut providers = live.layout.providers().iter();
        if let Some(found) =
            providers.find(|provider| provider.connection.as_ref() == Some(connection))
        {
            return Ok(Some((name, found.canonical_name.clone())));
        }
    }
    Ok(None)
}

async fn stored(ports: &Ports) -> anyhow::Result<Option<MainConfig>> {
    let Some(object) = ports.objects.get(connection::MAIN).await? else { return Ok(None) };
    parse(ports, "main.yaml", std::str::from_utf8(&object.bytes)?).await.map(|(main, _)| Some(main))
}

/// Writes a tenant's live layout to a file.
///
/// # Errors
/// When there is no such tenant, it was never read, or the file cannot be written.
pub async fn snapshot(data: Option<PathBuf>, name: &str, file: &Path) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let name = only_tenant(&ports, Some(name)).await?;
    let live = live(&ports, &name).await?;
    std::fs::write(file, live.layout.to_bytes())
        .with_context(|| format!("could not write {}", file.display()))?;
    say!(
        "Wrote {name} to {}; `sluice check --tenant {} DIRECTORY` reads it.",
        file.display(),
        file.display()
    );
    Ok(())
}

/// Returns a main configuration that has no mistake, and what is probably not meant in it.
async fn parse(
    ports: &Ports,
    path: &str,
    text: &str,
) -> anyhow::Result<(MainConfig, Vec<ConfigError>)> {
    let connections = connection::load(ports).await?.vocabulary();
    let (main, errors) = parse_main(path, text, &connections);
    if errors.iter().any(|error| error.problem.severity == Severity::Error) {
        let all: Vec<String> = errors.iter().map(|error| error.render(Some(text))).collect();
        let is_unknown =
            |error: &ConfigError| error.problem.message.starts_with("Unknown connection");
        let advice = match errors.iter().any(is_unknown) {
            true => {
                "\nA connection is added with `sluice connection add NAME --driver github|git …`."
            }
            false => "",
        };
        bail!("the main configuration is wrong and was not stored:\n{}{advice}", all.join("\n"));
    }
    Ok((main, errors))
}

async fn read_again(ports: &Ports, main: &MainConfig, name: &TenantName) -> anyhow::Result<()> {
    let names =
        || main.tenants.iter().map(|tenant| tenant.name.to_string()).collect::<Vec<_>>().join(", ");
    let config = main.tenants.iter().find(|tenant| tenant.name == *name);
    let config = config.with_context(|| {
        format!("there is no tenant {name}; the main configuration has: {}", names())
    })?;
    let cause = OsEntropy.token();
    let marked =
        config.projects.iter().map(|project| tenant::put_dirty_asked(name, &project.name, &cause));
    let writes: Vec<_> = marked.collect::<Result<_, _>>()?;
    // A transaction holds at most 100 writes; these need not be one.
    for some in writes.chunks(50) {
        ports.records.commit(some.to_vec(), &OsEntropy.token()).await?;
    }
    Ok(cell::send(ports, &[Poke::Tenant { tenant: name.clone() }]).await?)
}

/// Waits until a tenant is read, and tells what came of it.
async fn show_outcome(ports: &Ports, name: &TenantName) -> anyhow::Result<()> {
    for _ in 0..LOOKS_MAX {
        if let Some(tenant) = read(ports, name).await? {
            say!(
                "tenant {name}: {} projects, {} configuration error(s)",
                tenant.projects.len(),
                tenant.errors
            );
            for problem in &tenant.problems {
                say!("  {} cannot be read: {}", problem.project, problem.why);
            }
            if tenant.errors > 0 {
                say!("  `sluice tenant show {name}` tells all of them");
            }
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    say!("tenant {name} is still being read; `sluice tenant show {name}` tells what comes of it");
    Ok(())
}

/// Waits until a tenant is gone; what is in its queues leaves right after.
async fn wait_for_removal(ports: &Ports, name: &TenantName) -> anyhow::Result<()> {
    for _ in 0..LOOKS_MAX {
        let head = get(ports, &tenant::key(name))
            .await?
            .map(|record| decode::<Tenant>(&record))
            .transpose()?;
        if head.is_none_or(|head| head.is_removed) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    say!("tenant {name} is still being removed; `sluice status` no longer lists it then");
    Ok(())
}

/// Returns a tenant of which nothing is left to be read.
async fn read(ports: &Ports, name: &TenantName) -> anyhow::Result<Option<Tenant>> {
    let left =
        ports.records.query(&Query::prefix(tenant::partition(name), tenant::DIRTY, 1)).await?;
    let Some(record) = get(ports, &tenant::key(name)).await?.filter(|_| left.is_empty()) else {
        return Ok(None);
    };
    let tenant: Tenant = decode(&record)?;
    Ok(Some(tenant)
        .filter(|tenant| tenant.layout.live > 0 && tenant.layout.live == tenant.layout.wanted))
}
