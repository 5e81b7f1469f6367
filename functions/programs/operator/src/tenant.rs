//! `sluice tenant load`, `reload` and `snapshot`: the main configuration and the tenants' live
//! configuration.

use super::enqueue::load_live;
use super::queue::named_or_only_tenant;
use super::{counted, included_files, operator};
use crate::output::{OutputFormat, print_json, print_line};
use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use serde_json::json;
use sluice_aws::OsEntropy;
use sluice_config::tenant::{MainConfig, parse_main};
use sluice_config::{ConfigError, Severity};
use sluice_model::wakeup::Wakeup;
use sluice_model::{ConnectionName, TenantName};
use sluice_records::codec::{decode, get};
use sluice_records::included_files::IncludedConfig;
use sluice_records::layout::Layouts;
use sluice_records::tenant::Tenant;
use sluice_records::{connection, tenant};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::Query;
use sluice_runtime::{Entropy as _, Ports, cell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum number of polls, half a second apart, for a tenant that is being loaded or removed.
const POLLS_MAX: u32 = 60;

/// What happens to existing tenants that a new main configuration omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmittedTenants {
    /// The main configuration is refused.
    Refused,
    /// Their changes are dequeued, and the tenants are removed.
    Removed,
}

/// Checks and stores a main configuration with its included files, and the playbooks and roles next
/// to it. If it omits existing tenants, `omitted` says whether it is refused or removes them, which
/// dequeues their changes. Requests a reload of every tenant of it, waits up to half a minute for
/// each, and prints the outcome. An error in the check means that nothing was stored. A tenant that
/// is not loaded in time, or has configuration errors, is printed and no error. As JSON, prints an
/// object with the outcomes.
///
/// # Errors
/// When it has errors, omits existing tenants without `--remove`, a project cannot be read, or the
/// store does not answer. With a project that cannot be read, everything is stored all the same.
pub async fn load(
    data: Option<PathBuf>,
    file: &Path,
    omitted: OmittedTenants,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("could not read {}", file.display()))?;
    let ports = operator(data).await?;
    let (main, warnings) = parse(&ports, &file.display().to_string(), &text).await?;
    for warning in warnings {
        print_line!("{}", warning.render(Some(text.as_str())));
    }
    if main.tenants.is_empty() {
        bail!("could not load {}: it defines no tenant; nothing was stored", file.display());
    }
    let files = included_files::read(file, &main)?;
    let diagnostics =
        included_files::diagnostics(&file.display().to_string(), &text, &main, &files);
    if diagnostics.iter().any(|error| error.diagnostic.severity == Severity::Error) {
        let own =
            |error: &ConfigError| files.get(&error.path).map_or(text.as_str(), String::as_str);
        let all: Vec<String> =
            diagnostics.iter().map(|error| error.render(Some(own(error)))).collect();
        bail!(
            "could not load {}: the included files have errors; nothing was stored\n{}",
            file.display(),
            all.join("\n")
        );
    }
    let content = included_files::content(file, &main).context("nothing was stored")?;
    let planted = included_files::commit(&content).context("nothing was stored")?;
    let missing_playbooks = included_files::missing_playbooks(
        &file.display().to_string(),
        &text,
        &main,
        &files,
        &content,
    );
    let named: BTreeSet<TenantName> =
        main.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let gone: Vec<TenantName> = tenant::list_tenants(&ports)
        .await?
        .into_iter()
        .filter(|existing| !named.contains(existing))
        .collect();
    let names = || gone.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !gone.is_empty() && omitted == OmittedTenants::Refused {
        bail!(
            "could not load {}: it omits the existing tenants {}, whose changes would be dequeued; nothing was stored. Add --remove to remove them",
            file.display(),
            names()
        );
    }
    let removals: Vec<_> =
        gone.iter().map(|tenant| tenant::put_removal(tenant, &text)).collect::<Result<_, _>>()?;
    for some in removals.chunks(50) {
        ports.records.commit(some.to_vec(), &OsEntropy.token()).await?;
    }
    // Stored before the main configuration, because its readers expect the included files.
    let commit = planted.as_ref().map(|planted| planted.commit.id.clone());
    if !files.is_empty() {
        let roles = match planted {
            Some(planted) => Some(included_files::store(&ports, planted).await?),
            None => None,
        };
        sluice_records::included_files::store(&ports, &text, &IncludedConfig { files, roles })
            .await?;
    }
    ports
        .objects
        .put(connection::MAIN, Bytes::from(text), PutMode::Always, "application/yaml")
        .await?;
    // Wakes removed tenants first, because nothing else would finish their removal; running the
    // command again does.
    let wakeups: Vec<Wakeup> =
        gone.iter().map(|tenant| Wakeup::Tenant { tenant: tenant.clone() }).collect();
    cell::send(&ports, &wakeups).await?;
    for tenant in &main.tenants {
        request_reload(&ports, &main, &tenant.name).await?;
    }
    print_line!("Stored the main configuration.");
    if let Some(commit) = commit {
        print_line!(
            "Stored {} of playbooks/ and roles/ as commit {}.",
            counted(content.len(), "file"),
            commit.short()
        );
    }
    // Warnings of a tenant are shown with its configuration; these belong to no tenant.
    for warning in missing_playbooks {
        print_line!("{warning}");
    }
    if !gone.is_empty() {
        print_line!("Removed tenants, whose changes are being dequeued: {}", names());
    }
    for tenant in &gone {
        wait_for_removal(&ports, tenant).await?;
    }
    let mut outcomes = Vec::new();
    for tenant in &main.tenants {
        outcomes.push(show_outcome(&ports, &tenant.name).await?);
    }
    conclude(&outcomes, format)
}

/// Requests a reload of one tenant of the stored main configuration from its repositories, or of
/// every tenant, one after the other, if no name is given. Waits up to half a minute for each
/// tenant and prints the outcome, as JSON in one object. A tenant that is not loaded in time, or
/// has configuration errors, is no error.
///
/// # Errors
/// When there is no such tenant, a project cannot be read, or the store does not answer.
pub async fn reload(
    data: Option<PathBuf>,
    name: Option<&str>,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let main = stored_main(&ports)
        .await?
        .context("there is no main configuration; store one with `sluice tenant load FILE`")?;
    let names = match name {
        Some(name) => vec![TenantName::from(name)],
        None => main.tenants.iter().map(|tenant| tenant.name.clone()).collect(),
    };
    let mut outcomes = Vec::new();
    for name in &names {
        request_reload(&ports, &main, name).await?;
        outcomes.push(show_outcome(&ports, name).await?);
    }
    conclude(&outcomes, format)
}

/// Returns the first tenant of the stored main configuration that has projects of a connection.
/// `None` if no tenant has, or no main configuration is stored.
///
/// # Errors
/// When the store does not answer, or the main configuration cannot be read.
pub(super) async fn user_of(
    ports: &Ports,
    connection: &ConnectionName,
) -> anyhow::Result<Option<TenantName>> {
    let Some(main) = stored_main(ports).await? else { return Ok(None) };
    let uses = |tenant: &&sluice_config::tenant::TenantConfig| {
        tenant.projects.iter().any(|project| project.connection == *connection)
    };
    Ok(main.tenants.iter().find(uses).map(|tenant| tenant.name.clone()))
}

/// Returns the first tenant whose live configuration has a provider of a connection, and the
/// canonical name of that provider. `None` if there is no such tenant. Skips tenants that were
/// never loaded; a layout that cannot be read is an error.
///
/// # Errors
/// When the store does not answer, or a layout cannot be read: the connection then counts as used.
pub(super) async fn provider_of(
    ports: &Ports,
    connection: &ConnectionName,
) -> anyhow::Result<Option<(TenantName, String)>> {
    let layouts = Layouts::default();
    for name in tenant::list_tenants(ports).await? {
        let live = layouts.load_live(ports, &name).await.map_err(|error| anyhow!("{error}"))?;
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

/// Reads and parses the stored main configuration, without its warnings. `None` if none is stored.
/// An error if it has errors, for instance because a connection no longer exists.
async fn stored_main(ports: &Ports) -> anyhow::Result<Option<MainConfig>> {
    let Some(object) = ports.objects.get(connection::MAIN).await? else { return Ok(None) };
    parse(ports, "main.yaml", std::str::from_utf8(&object.bytes)?).await.map(|(main, _)| Some(main))
}

/// Writes a tenant's live layout to a file, for `sluice config check` and `sluice config freeze`,
/// and prints how to use it. An existing file is replaced.
///
/// # Errors
/// When the tenant is unknown or was never loaded, or the file cannot be written.
pub async fn snapshot(data: Option<PathBuf>, name: &str, file: &Path) -> anyhow::Result<()> {
    let ports = operator(data).await?;
    let name = named_or_only_tenant(&ports, Some(name)).await?;
    let live = load_live(&ports, &name).await?;
    std::fs::write(file, live.layout.to_bytes())
        .with_context(|| format!("could not write {}", file.display()))?;
    print_line!(
        "Wrote the live configuration of {name} to {}; use it with `sluice config check --snapshot {} DIRECTORY`.",
        file.display(),
        file.display()
    );
    Ok(())
}

/// Parses a main configuration with the stored connections; there must be some. Returns it with its
/// warnings. If it has errors, returns one error with all of them, which says that nothing was
/// stored; so call this before storing anything. `path` is only used in messages.
async fn parse(
    ports: &Ports,
    path: &str,
    text: &str,
) -> anyhow::Result<(MainConfig, Vec<ConfigError>)> {
    let connections = connection::load(ports).await?.vocabulary();
    let (main, errors) = parse_main(path, text, &connections);
    if errors.iter().any(|error| error.diagnostic.severity == Severity::Error) {
        let all: Vec<String> = errors.iter().map(|error| error.render(Some(text))).collect();
        let is_unknown =
            |error: &ConfigError| error.diagnostic.message.starts_with("Unknown connection");
        let advice = match errors.iter().any(is_unknown) {
            true => "\nAdd a connection with `sluice connection add NAME --driver github|git …`.",
            false => "",
        };
        bail!(
            "could not load the main configuration: it has errors; nothing was stored\n{}{advice}",
            all.join("\n")
        );
    }
    Ok((main, errors))
}

/// Requests that a tenant reads all its projects again, even if no branch moved, and wakes it. Does
/// not wait. An error if the main configuration does not have the tenant.
async fn request_reload(ports: &Ports, main: &MainConfig, name: &TenantName) -> anyhow::Result<()> {
    let names =
        || main.tenants.iter().map(|tenant| tenant.name.to_string()).collect::<Vec<_>>().join(", ");
    let config = main.tenants.iter().find(|tenant| tenant.name == *name);
    let config = config.with_context(|| {
        format!("there is no tenant {name} in the main configuration; tenants: {}", names())
    })?;
    let cause = OsEntropy.token();
    let marked = config
        .projects
        .iter()
        .map(|project| tenant::put_operator_reread(name, &project.name, &cause));
    let writes: Vec<_> = marked.collect::<Result<_, _>>()?;
    // A transaction holds at most 100 writes. These need not be atomic.
    for some in writes.chunks(50) {
        ports.records.commit(some.to_vec(), &OsEntropy.token()).await?;
    }
    Ok(cell::send(ports, &[Wakeup::Tenant { tenant: name.clone() }]).await?)
}

/// A tenant after a reload was requested.
struct ReloadOutcome {
    /// The tenant.
    name: TenantName,
    /// Its head; `None` if it was not loaded in time.
    loaded: Option<Tenant>,
}

/// Prints the outcomes of reloads as JSON, if that is the format; as text, each was printed before.
/// An error that names the projects that could not be read, so that a script does not go on.
fn conclude(outcomes: &[ReloadOutcome], format: OutputFormat) -> anyhow::Result<()> {
    let mut unreadable = Vec::new();
    let mut rows = Vec::new();
    for ReloadOutcome { name, loaded } in outcomes {
        let problems = loaded.iter().flat_map(|tenant| &tenant.unreadable_projects);
        let problems: Vec<_> = problems.collect();
        unreadable
            .extend(problems.iter().map(|problem| format!("{} of tenant {name}", problem.project)));
        rows.push(json!({
            "tenant": name,
            "is_loaded": loaded.is_some(),
            "projects": loaded.as_ref().map(|tenant| tenant.projects.len()),
            "config_errors": loaded.as_ref().map(|tenant| tenant.errors),
            "unreadable_projects": problems
                .iter()
                .map(|problem| json!({"project": problem.project, "why": problem.why}))
                .collect::<Vec<_>>(),
        }));
    }
    if format == OutputFormat::Json {
        print_json(&json!({"tenants": rows}));
    }
    if !unreadable.is_empty() {
        bail!(
            "{} could not be read: {}; the rest is in force. Correct the name in the main configuration, or give the connection access, and load it again",
            counted(unreadable.len(), "project"),
            unreadable.join(", ")
        );
    }
    Ok(())
}

/// Waits up to half a minute until a tenant whose reload was requested is loaded, and returns its
/// outcome. Prints its numbers of projects and configuration errors and the projects that could not
/// be read. If it is not loaded by then, prints that; this is no error.
async fn show_outcome(ports: &Ports, name: &TenantName) -> anyhow::Result<ReloadOutcome> {
    for _ in 0..POLLS_MAX {
        if let Some(tenant) = loaded_tenant(ports, name).await? {
            print_line!(
                "tenant {name}: {}, {}",
                counted(tenant.projects.len(), "project"),
                counted(tenant.errors, "configuration error")
            );
            for problem in &tenant.unreadable_projects {
                print_line!("  could not read {}: {}", problem.project, problem.why);
            }
            if tenant.errors > 0 {
                print_line!("  `sluice tenant show {name}` lists them");
            }
            return Ok(ReloadOutcome { name: name.clone(), loaded: Some(tenant) });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    print_line!(
        "tenant {name} is still being loaded; `sluice tenant show {name}` shows the outcome"
    );
    Ok(ReloadOutcome { name: name.clone(), loaded: None })
}

/// Waits up to half a minute until a tenant whose removal was requested is marked as removed, or
/// has no record. Prints nothing then. If it is not removed in time, prints that; this is no error.
async fn wait_for_removal(ports: &Ports, name: &TenantName) -> anyhow::Result<()> {
    for _ in 0..POLLS_MAX {
        let head = get(ports, &tenant::key(name))
            .await?
            .map(|record| decode::<Tenant>(&record))
            .transpose()?;
        if head.is_none_or(|head| head.is_removed) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    print_line!(
        "tenant {name} is still being removed; it disappears from `sluice status` when that is done"
    );
    Ok(())
}

/// Returns a tenant's head if its newest layout is live and no requested read of a project is left.
/// `None` while a reload is in progress, if the tenant never had a layout, or if it has no record.
async fn loaded_tenant(ports: &Ports, name: &TenantName) -> anyhow::Result<Option<Tenant>> {
    let left =
        ports.records.query(&Query::prefix(tenant::partition(name), tenant::REREAD, 1)).await?;
    let Some(record) = get(ports, &tenant::key(name)).await?.filter(|_| left.is_empty()) else {
        return Ok(None);
    };
    let tenant: Tenant = decode(&record)?;
    Ok(Some(tenant)
        .filter(|tenant| tenant.layout.live > 0 && tenant.layout.live == tenant.layout.wanted))
}
