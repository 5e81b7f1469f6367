//! `sluice autohold create` and `delete`: requests to hold the nodes of failed builds, with
//! zuul-client's options.

use super::api_objects::print_object;
use super::counted;
use super::enqueue::{find_project, load_live};
use super::queue::{author, named_or_only_tenant};
use crate::accepted::AcceptedWrite;
use crate::api_client::{ApiWrite, Client, api_path};
use crate::output::{OutputFormat, print_line};
use crate::selectors::TenantSelector;
use crate::show::{list, text};
use anyhow::{Context as _, bail};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use sluice_commands::{AutoholdSettings, StoreCommandError, create_autohold, delete_autohold};
use sluice_gate::autohold::COUNT_MAX;
use std::path::PathBuf;

/// The arguments of `sluice autohold create`.
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
    /// File with your public SSH key, as in ~/.ssh/id_ed25519.pub, which the held nodes then accept
    /// [default: they accept only the key of the node pool]
    #[arg(long, value_name = "FILE")]
    pub ssh_key: Option<PathBuf>,
}

impl AutoholdArguments {
    /// Reads the public key.
    fn read_ssh_key(&self) -> anyhow::Result<Option<String>> {
        let read = |file: &PathBuf| {
            std::fs::read_to_string(file)
                .with_context(|| format!("could not read the public SSH key {}", file.display()))
        };
        self.ssh_key.as_ref().map(read).transpose()
    }
}

/// The arguments of `sluice autohold show` and `sluice autohold delete`.
#[derive(Debug, Clone, Args)]
pub struct IdArguments {
    /// The system and the tenant.
    #[command(flatten)]
    pub selector: TenantSelector,
    /// Id of the request, as `sluice autohold list` shows it
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
    if let Some(client) = arguments.selector.system.api_client()? {
        return create_over_api(&client, &arguments).await;
    }
    let ports = arguments.selector.system.ports().await?;
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
    let ssh_key = arguments.read_ssh_key()?;
    let settings = AutoholdSettings {
        project,
        job: arguments.job,
        change: arguments.change,
        git_ref: arguments.git_ref,
        reason: arguments.reason,
        count: arguments.count,
        node_expiration_seconds: arguments.node_hold_expiration,
        ssh_key,
    };
    let request = create_autohold(&ports, &tenant, &settings, &author()).await?;
    print_line!(
        "Autohold request {} created: the nodes of the next {} of {} will be held.",
        request.id,
        counted(request.max_count, "failed build"),
        request.job
    );
    print_line!(
        "`sluice autohold show --tenant {tenant} {}` then shows how to log in on them.",
        request.id
    );
    Ok(())
}

/// Prints an autohold request with how to log in on the nodes that it holds, or says that it holds
/// none.
///
/// # Errors
/// When the API does not answer, or the tenant has no such request.
pub async fn show(selector: &TenantSelector, id: &str) -> anyhow::Result<()> {
    let client = selector.system.client()?;
    let tenant = client.tenant(selector.tenant.as_deref()).await?;
    let request: Value = client.get(&api_path(&["tenant", &tenant, "autohold", id])?).await?;
    let format = selector.system.format();
    print_object(&request, format);
    if let Some(note) = nothing_held(&request).filter(|_| format == OutputFormat::Text) {
        print_line!("\n{note}");
    }
    Ok(())
}

/// Returns why a request holds no nodes now; `None` if it holds some.
fn nothing_held(request: &Value) -> Option<String> {
    let count = |member: &str| request[member].as_u64().unwrap_or_default();
    if !list(request, "held_nodes").is_empty() {
        return None;
    }
    let (current, max) = (count("current_count"), count("max_count"));
    let job = text(request, "job");
    Some(match max.saturating_sub(current) {
        left if current == 0 => format!(
            "Nothing is held yet: the nodes of the next {} of {job} will be.",
            counted(left, "failed build")
        ),
        _ => format!(
            "No node is held now: those of {} of {job} are released.",
            counted(current, "build")
        ),
    })
}

/// Deletes an autohold request, wakes the providers of the nodes that it held so that they release
/// them, and prints how many builds these belonged to. Over the API, prints that it is deleted.
///
/// # Errors
/// When there is no request with this id, or the system does not answer.
pub async fn delete(arguments: IdArguments) -> anyhow::Result<()> {
    let IdArguments { selector, id } = arguments;
    if let Some(client) = selector.system.api_client()? {
        let tenant = client.tenant(selector.tenant.as_deref()).await?;
        let path = api_path(&["tenant", &tenant, "autohold", &id])?;
        let permission = "autohold";
        client.write(ApiWrite { method: Method::DELETE, path, body: None, permission }).await?;
        print_line!("Autohold request {id} deleted; its nodes are released.");
        return Ok(());
    }
    let ports = selector.system.ports().await?;
    let tenant = named_or_only_tenant(&ports, selector.tenant.as_deref()).await?;
    let request = match delete_autohold(&ports, &tenant, &id, &author()).await {
        Err(StoreCommandError::NotFound(why)) => {
            bail!("{why}: `sluice autohold list` shows its requests")
        }
        deleted => deleted?,
    };
    print_line!(
        "Autohold request {} deleted; released the nodes of {}.",
        request.id,
        counted(request.current_count(), "build")
    );
    Ok(())
}

/// Creates an autohold request over the API, and prints where it is listed.
async fn create_over_api(client: &Client, arguments: &AutoholdArguments) -> anyhow::Result<()> {
    let selector = &arguments.selector;
    let tenant = client.tenant(selector.tenant.as_deref()).await?;
    let path = api_path(&["tenant", &tenant, "project", &arguments.project, "autohold"])?;
    let body = json!({
        "job": arguments.job,
        "change": arguments.change,
        "ref": arguments.git_ref,
        "reason": arguments.reason,
        "count": arguments.count,
        "node_hold_expiration": arguments.node_hold_expiration,
        "ssh_key": arguments.read_ssh_key()?,
    });
    let permission = "autohold";
    let write = ApiWrite { method: Method::POST, path, body: Some(body), permission };
    client.write(write).await?;
    let builds = counted(arguments.count, "failed build");
    let what = format!("the nodes of the next {builds} of {} will be held", arguments.job);
    let outcome = format!("sluice autohold list --tenant {tenant}");
    AcceptedWrite { what, outcome }.print(client, selector.system.format());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N15: who asks too early learns that nothing is held, and why.
    #[test]
    fn a_request_that_holds_nothing_says_so() {
        let request = |current: u64, nodes: Value| json!({"job": "unit", "max_count": 2, "current_count": current, "held_nodes": nodes});
        let yet = "Nothing is held yet: the nodes of the next 2 failed builds of unit will be.";
        assert_eq!(nothing_held(&request(0, json!([]))).as_deref(), Some(yet));
        let gone = "No node is held now: those of 1 build of unit are released.";
        assert_eq!(nothing_held(&request(1, json!([]))).as_deref(), Some(gone));
        assert_eq!(nothing_held(&request(1, json!([{"node": "n"}]))), None);
    }
}
