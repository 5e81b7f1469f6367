//! `sluice autohold`, `autohold-list`, `autohold-info`, `autohold-delete`, in zuul-client's words:
//! nodes of builds that fail are kept for somebody to look at.

use super::enqueue::{known_project, live};
use super::queue::{only_tenant, who};
use super::{Format, Printed, operator, say_json};
use crate::say::say;
use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use sluice_aws::OsEntropy;
use sluice_config::pattern::Pattern;
use sluice_gate::autohold::{ANY, Autohold, COUNT_MAX, REASON_CHARS_MAX};
use sluice_model::poke::Poke;
use sluice_model::{JobName, ProviderName, TenantName};
use sluice_records::autohold;
use sluice_runtime::record::{Committed, Expect, Write};
use sluice_runtime::{Entropy as _, Ports, cell};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// How often a request is written under another id when somebody else writes one at the same
/// moment.
const TRIES_MAX: u32 = 5;

/// Which tenant of which system.
#[derive(Debug, Clone, Args)]
pub struct OfTenant {
    /// Directory of a local system's state. [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The tenant. [default: the only one there is]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

/// `sluice autohold`.
#[derive(Debug, Clone, Args)]
pub struct AutoholdArguments {
    /// The tenant.
    #[command(flatten)]
    pub within: OfTenant,
    /// The project, by its short or canonical name.
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
    /// The job.
    #[arg(long, value_name = "JOB")]
    pub job: String,
    /// Only this change's builds: its number. [default: builds of any change or ref]
    #[arg(long, value_name = "CHANGE", conflicts_with = "git_ref")]
    pub change: Option<u64>,
    /// Only builds of refs that match this regular expression as a whole.
    #[arg(long = "ref", value_name = "REF")]
    pub git_ref: Option<String>,
    /// Why: it is kept with the nodes.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Builds whose nodes are kept.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    pub count: u32,
    /// Seconds for which nodes are kept. [default: until the request is deleted]
    #[arg(long, value_name = "SECONDS")]
    pub node_hold_expiration: Option<u64>,
}

/// `sluice autohold-list`.
#[derive(Debug, Clone, Args)]
pub struct ListArguments {
    /// The tenant.
    #[command(flatten)]
    pub within: OfTenant,
    /// How it is printed.
    #[command(flatten)]
    pub printed: Printed,
}

/// `sluice autohold-info` and `sluice autohold-delete`.
#[derive(Debug, Clone, Args)]
pub struct IdArguments {
    /// The tenant.
    #[command(flatten)]
    pub within: OfTenant,
    /// The request's id, as `sluice autohold-list` shows it.
    pub id: String,
}

/// Asks for nodes of failed builds to be kept.
///
/// # Errors
/// When there is no such project, the filter is no regular expression, or the store does not
/// answer.
pub async fn ask(wanted: AutoholdArguments) -> anyhow::Result<()> {
    let ports = operator(wanted.within.data.clone()).await?;
    let tenant = only_tenant(&ports, wanted.within.tenant.as_deref()).await?;
    let live = live(&ports, &tenant).await?;
    let project = known_project(&live, &wanted.project)?.name.clone();
    if !live.layout.job_names().any(|name| name == wanted.job) {
        // A change may bring it along.
        eprintln!(
            "sluice: {tenant} has no job {}: the request waits for one of that name",
            wanted.job
        );
    }
    let ref_filter = match (wanted.change, wanted.git_ref) {
        (Some(number), _) => format!("refs/pull/{number}/head"),
        (None, Some(git_ref)) => git_ref,
        (None, None) => ANY.to_owned(),
    };
    Pattern::new(&ref_filter)
        .with_context(|| format!("--ref {ref_filter:?} is no regular expression"))?;
    let reason: String = wanted.reason.trim().chars().take(REASON_CHARS_MAX).collect();
    if reason.is_empty() {
        bail!("say with --reason what the nodes are kept for");
    }
    for _ in 0..TRIES_MAX {
        let known = autohold::of_tenant(&ports, &tenant).await?;
        if known.len() >= autohold::LISTED_MAX {
            bail!(
                "{tenant} has {} requests, and no more are read: delete some (`sluice autohold-delete`)",
                known.len()
            );
        }
        let request = Autohold {
            id: autohold::next_id(&known),
            tenant: tenant.clone(),
            project: project.clone(),
            job: JobName::from(wanted.job.as_str()),
            ref_filter: ref_filter.clone(),
            reason: reason.clone(),
            by: who(),
            max_count: wanted.count,
            node_expiration_seconds: wanted.node_hold_expiration.filter(|seconds| *seconds > 0),
            created_at: ports.clock.now(),
            held: Vec::new(),
        };
        let write = autohold::create(&request)?;
        if ports.records.commit(vec![write], &OsEntropy.token()).await? == Committed::Yes {
            say!(
                "Request {}: nodes of {} failed build(s) of {} are kept.",
                request.id,
                request.max_count,
                request.job
            );
            return Ok(());
        }
    }
    bail!("others make requests at this moment; try again")
}

/// Lists a tenant's requests.
///
/// # Errors
/// When the store does not answer.
pub async fn list(wanted: ListArguments) -> anyhow::Result<()> {
    let (ports, tenant) = within(wanted.within).await?;
    let known = autohold::of_tenant(&ports, &tenant).await?;
    if wanted.printed.format == Format::Json {
        let row = |(_, request): &(sluice_runtime::Record, Autohold)| {
            json!({
                "id": request.id, "tenant": request.tenant, "project": request.project, "job": request.job,
                "ref_filter": request.ref_filter, "max_count": request.max_count,
                "current_count": request.current_count(), "reason": request.reason, "by": request.by,
                "node_expiration": request.node_expiration_seconds,
            })
        };
        say_json(&Value::Array(known.iter().map(row).collect()));
        return Ok(());
    }
    if known.is_empty() {
        say!("{tenant} has no autohold requests.");
        return Ok(());
    }
    say!("{:<12} {:<40} {:<24} {:<24} {:<7} reason", "id", "project", "job", "ref", "builds");
    for (_, request) in known {
        let Autohold { id, project, job, ref_filter, reason, max_count, .. } = &request;
        let builds = format!("{}/{max_count}", request.current_count());
        say!(
            "{id:<12} {:<40} {:<24} {ref_filter:<24} {builds:<7} {reason}",
            project.as_str(),
            job.as_str()
        );
    }
    Ok(())
}

/// Shows a request with the nodes that are kept for it.
///
/// # Errors
/// When there is none of that id, or the store does not answer.
pub async fn info(wanted: IdArguments) -> anyhow::Result<()> {
    let (ports, tenant) = within(wanted.within).await?;
    let (_, request) = one(&ports, &tenant, &wanted.id).await?;
    let now = ports.clock.now();
    let expiration = request
        .node_expiration_seconds
        .map_or_else(|| "none".to_owned(), |seconds| format!("{seconds} s"));
    say!("id               {}", request.id);
    say!("tenant           {}", request.tenant);
    say!("project          {}", request.project);
    say!("job              {}", request.job);
    say!("ref filter       {}", request.ref_filter);
    say!("builds           {} of {}", request.current_count(), request.max_count);
    say!("reason           {}", request.reason);
    say!("asked by         {}", if request.by.is_empty() { "somebody" } else { &request.by });
    say!("node expiration  {expiration}");
    if let Some(at) = request.expired_at(now) {
        say!("expired          {}", at.to_iso());
    }
    for held in &request.held {
        let nodes: Vec<&str> = held.nodes.iter().map(|node| node.as_str()).collect();
        say!("build {}: {} until {}", held.build, nodes.join(", "), held.until.to_iso());
    }
    Ok(())
}

/// Deletes a request; nodes that are kept for it are let go.
///
/// # Errors
/// When there is none of that id, or the store does not answer.
pub async fn delete(wanted: IdArguments) -> anyhow::Result<()> {
    let (ports, tenant) = within(wanted.within).await?;
    for _ in 0..TRIES_MAX {
        let (record, request) = one(&ports, &tenant, &wanted.id).await?;
        let gone =
            Write::Delete { key: record.key.clone(), expect: Expect::Revision(record.revision) };
        if ports.records.commit(vec![gone], &OsEntropy.token()).await? != Committed::Yes {
            continue; // A build was counted meanwhile: its nodes are to be let go too.
        }
        let providers: BTreeSet<ProviderName> =
            request.held.iter().map(|held| held.provider.clone()).collect();
        let pokes: Vec<Poke> =
            providers.into_iter().map(|provider| Poke::Pool { provider }).collect();
        cell::send(&ports, &pokes).await?;
        say!(
            "Request {} is deleted; {} build(s)' nodes are let go.",
            request.id,
            request.current_count()
        );
        return Ok(());
    }
    bail!("builds are counted for it at this moment; try again")
}

async fn within(within: OfTenant) -> anyhow::Result<(Ports, TenantName)> {
    let ports = operator(within.data).await?;
    let tenant = only_tenant(&ports, within.tenant.as_deref()).await?;
    Ok((ports, tenant))
}

async fn one(
    ports: &Ports,
    tenant: &TenantName,
    id: &str,
) -> anyhow::Result<(sluice_runtime::Record, Autohold)> {
    let known = autohold::of_tenant(ports, tenant).await?;
    let found = known.into_iter().find(|(_, request)| request.id == id);
    found.with_context(|| {
        format!("{tenant} has no autohold request {id} (`sluice autohold-list` shows those it has)")
    })
}
