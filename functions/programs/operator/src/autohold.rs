//! `sluice autohold`, `autohold-list`, `autohold-info` and `autohold-delete`: requests to hold the
//! nodes of failed builds, with zuul-client's options.

use super::enqueue::{find_project, load_live};
use super::queue::{author, named_or_only_tenant};
use super::{FormatArgument, OutputFormat, counted, operator, print_json};
use crate::output::print_line;
use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use sluice_commands::{AutoholdSettings, create_autohold, delete_autohold};
use sluice_gate::autohold::{Autohold, COUNT_MAX};
use sluice_model::TenantName;
use sluice_records::autohold;
use sluice_runtime::Ports;
use std::path::PathBuf;

/// Selects the system and the tenant.
#[derive(Debug, Clone, Args)]
pub struct TenantSelector {
    /// Data directory of a local system [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Tenant [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

/// The arguments of `sluice autohold`.
#[derive(Debug, Clone, Args)]
pub struct AutoholdArguments {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// Project, by short or canonical name
    #[arg(long, value_name = "PROJECT")]
    pub project: String,
    /// Job
    #[arg(long, value_name = "JOB")]
    pub job: String,
    /// Hold nodes only for this change, by number [default: any change or ref]
    #[arg(long, value_name = "CHANGE", conflicts_with = "git_ref")]
    pub change: Option<u64>,
    /// Hold nodes only for refs that match this regular expression as a whole
    #[arg(long = "ref", value_name = "REF")]
    pub git_ref: Option<String>,
    /// Why the nodes are held; shown with the nodes
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Number of failed builds whose nodes are held
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    pub count: u32,
    /// Seconds to hold the nodes [default: until the request is deleted]
    #[arg(long, value_name = "SECONDS")]
    pub node_hold_expiration: Option<u64>,
}

/// The arguments of `sluice autohold-list`.
#[derive(Debug, Clone, Args)]
pub struct ListArguments {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// The output format.
    #[command(flatten)]
    pub printed: FormatArgument,
}

/// The arguments of `sluice autohold-info` and `sluice autohold-delete`.
#[derive(Debug, Clone, Args)]
pub struct IdArguments {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// Id of the request, as shown by `sluice autohold-list`
    pub id: String,
}

/// Creates an autohold request and prints its id. With `--change`, the request holds only for that
/// change; with `--ref`, only for refs that match the regular expression as a whole; else for all.
/// A job that the tenant does not have yet is allowed, with a note on standard error. The reason is
/// cut to 1,024 characters; an empty one is an error, and so is a tenant that has 200 requests
/// already.
///
/// # Errors
/// When the project is unknown, the ref filter is no regular expression, or the store does not
/// answer.
pub async fn create(arguments: AutoholdArguments) -> anyhow::Result<()> {
    let ports = operator(arguments.selector.data.clone()).await?;
    let tenant = named_or_only_tenant(&ports, arguments.selector.tenant.as_deref()).await?;
    let live = load_live(&ports, &tenant).await?;
    let project = find_project(&live, &arguments.project)?.name.clone();
    if !live.layout.job_names().any(|name| name == arguments.job) {
        // A job that does not exist yet is allowed: a change may define it.
        eprintln!(
            "sluice: tenant {tenant} has no job {} yet: the request waits for a job of that name",
            arguments.job
        );
    }
    let settings = AutoholdSettings {
        project,
        job: arguments.job,
        change: arguments.change,
        git_ref: arguments.git_ref,
        reason: arguments.reason,
        count: arguments.count,
        node_expiration_seconds: arguments.node_hold_expiration,
    };
    let request = create_autohold(&ports, &tenant, &settings, &author()).await?;
    print_line!(
        "Autohold request {} created: the nodes of the next {} of {} will be held.",
        request.id,
        counted(request.max_count, "failed build"),
        request.job
    );
    Ok(())
}

/// Prints a tenant's autohold requests as text or JSON, oldest first, at most 200, expired ones
/// too. Each has the number of builds whose nodes it held, but not the nodes.
///
/// # Errors
/// When the store does not answer.
pub async fn list(arguments: ListArguments) -> anyhow::Result<()> {
    let (ports, tenant) = open_tenant(arguments.selector).await?;
    let requests = autohold::load_tenant(&ports, &tenant).await?;
    if arguments.printed.format == OutputFormat::Json {
        let row = |(_, request): &(sluice_runtime::Record, Autohold)| {
            json!({
                "id": request.id, "tenant": request.tenant, "project": request.project, "job": request.job,
                "ref_filter": request.ref_filter, "max_count": request.max_count,
                "current_count": request.current_count(), "reason": request.reason, "by": request.by,
                "node_expiration": request.node_expiration_seconds,
            })
        };
        print_json(&Value::Array(requests.iter().map(row).collect()));
        return Ok(());
    }
    if requests.is_empty() {
        print_line!("Tenant {tenant} has no autohold requests.");
        return Ok(());
    }
    print_line!(
        "{:<12} {:<40} {:<24} {:<24} {:<7} reason",
        "id",
        "project",
        "job",
        "ref",
        "builds"
    );
    for (_, request) in requests {
        let Autohold { id, project, job, ref_filter, reason, max_count, .. } = &request;
        let builds = format!("{}/{max_count}", request.current_count());
        print_line!(
            "{id:<12} {:<40} {:<24} {ref_filter:<24} {builds:<7} {reason}",
            project.as_str(),
            job.as_str()
        );
    }
    Ok(())
}

/// Prints an autohold request as text: its attributes, when it expired if it has, and the builds
/// whose nodes are held for it, each with its nodes and until when.
///
/// # Errors
/// When there is no request with this id, or the store does not answer.
pub async fn info(arguments: IdArguments) -> anyhow::Result<()> {
    let (ports, tenant) = open_tenant(arguments.selector).await?;
    let (_, request) = find_request(&ports, &tenant, &arguments.id).await?;
    let now = ports.clock.now();
    let expiration = request
        .node_expiration_seconds
        .map_or_else(|| "none".to_owned(), |seconds| format!("{seconds} s"));
    print_line!("id               {}", request.id);
    print_line!("tenant           {}", request.tenant);
    print_line!("project          {}", request.project);
    print_line!("job              {}", request.job);
    print_line!("ref filter       {}", request.ref_filter);
    print_line!("builds           {} of {}", request.current_count(), request.max_count);
    print_line!("reason           {}", request.reason);
    print_line!("requested by     {}", if request.by.is_empty() { "unknown" } else { &request.by });
    print_line!("node expiration  {expiration}");
    if let Some(at) = request.expired_at(now) {
        print_line!("expired          {}", at.to_iso());
    }
    for held in &request.held {
        let nodes: Vec<&str> = held.nodes.iter().map(|node| node.as_str()).collect();
        print_line!(
            "build {}: nodes {}, held until {}",
            held.build,
            nodes.join(", "),
            held.until.to_iso()
        );
    }
    Ok(())
}

/// Deletes an autohold request, wakes the providers of the nodes that it held so that they release
/// them, and prints how many builds these belonged to. Tries again if a build is added to it
/// meanwhile.
///
/// # Errors
/// When there is no request with this id, or the store does not answer.
pub async fn delete(arguments: IdArguments) -> anyhow::Result<()> {
    let (ports, tenant) = open_tenant(arguments.selector).await?;
    // The error names the command that lists the requests.
    let (_, request) = find_request(&ports, &tenant, &arguments.id).await?;
    let request = delete_autohold(&ports, &tenant, &request.id, &author()).await?;
    print_line!(
        "Autohold request {} deleted; released the nodes of {}.",
        request.id,
        counted(request.current_count(), "build")
    );
    Ok(())
}

/// Returns the ports with an operator's rights and the selected tenant, or the only one. An error
/// if the tenant does not exist or several are possible.
async fn open_tenant(selector: TenantSelector) -> anyhow::Result<(Ports, TenantName)> {
    let ports = operator(selector.data).await?;
    let tenant = named_or_only_tenant(&ports, selector.tenant.as_deref()).await?;
    Ok((ports, tenant))
}

/// Returns an autohold request of a tenant with its record. `id` must be exactly as `sluice
/// autohold-list` shows it, with its zeros. An error if there is none.
async fn find_request(
    ports: &Ports,
    tenant: &TenantName,
    id: &str,
) -> anyhow::Result<(sluice_runtime::Record, Autohold)> {
    let requests = autohold::load_tenant(ports, tenant).await?;
    let found = requests.into_iter().find(|(_, request)| request.id == id);
    found.with_context(|| {
        format!("tenant {tenant} has no autohold request {id}: `sluice autohold-list` lists its requests")
    })
}
