//! `sluice change enqueue` and `sluice ref enqueue`: enqueue a change or a ref, as if an event had.
//!
//! The command is stored as a delivery like a forge's. The intake function loads the change, checks
//! the pipeline's requirements, and records the outcome in the delivery.

use super::queue::{author, named_or_only_tenant};
use super::selectors::{ChangeSelector, PipelineSelector, RefSelector};
use crate::accepted::AcceptedWrite;
use crate::api_client::{ApiWrite, Client, api_path};
use crate::output::print_line;
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use sluice_commands::{
    ChangeNumber, EnqueueTarget, RefUpdate, enqueue_event, submit_event, whole_ref,
};
use sluice_config::TenantProject;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{PipelineName, TenantName};
use sluice_records::codec::{decode, get};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::layout::{Layouts, LiveLayout};
use sluice_runtime::Ports;
use std::process::ExitCode;
use std::time::Duration;

/// How often a command polls for its outcome before it gives up.
pub(super) const POLLS_MAX: usize = 120;

/// The pause between two polls.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The exit status when there is no outcome after the last poll.
pub(super) const EXIT_PENDING: u8 = 3;

/// The arguments of `sluice change enqueue`.
#[derive(Debug, Clone, Args)]
pub struct EnqueueArguments {
    /// The change.
    #[command(flatten)]
    pub selector: ChangeSelector,
}

/// The arguments of `sluice ref enqueue`.
#[derive(Debug, Clone, Args)]
pub struct EnqueueRefArguments {
    /// The branch or tag.
    #[command(flatten)]
    pub selector: RefSelector,
    /// Previous commit of the ref [default: none, as for a new ref]
    #[arg(long, value_name = "COMMIT")]
    pub oldrev: Option<String>,
    /// New commit of the ref; required for a tag [default: the head of the branch when it is
    /// tested]
    #[arg(long, value_name = "COMMIT")]
    pub newrev: Option<String>,
}

/// A change or ref to enqueue in a pipeline.
#[derive(Debug, Clone)]
pub struct EnqueueOptions {
    /// The pipeline.
    pub within: PipelineSelector,
    /// The project, by short or canonical name.
    pub project: String,
    /// The change or ref.
    pub target: EnqueueTarget,
}

impl TryFrom<EnqueueArguments> for EnqueueOptions {
    type Error = anyhow::Error;

    /// Fails if the change is neither a number nor a number and a revision, or has no project.
    fn try_from(EnqueueArguments { selector }: EnqueueArguments) -> Result<Self, Self::Error> {
        let named = selector.named()?;
        let target = EnqueueTarget::Change(ChangeNumber::parse(&named.change)?);
        Ok(Self { within: selector.within, project: named.project, target })
    }
}

impl From<EnqueueRefArguments> for EnqueueOptions {
    fn from(EnqueueRefArguments { selector, oldrev, newrev }: EnqueueRefArguments) -> Self {
        let RefSelector { within, name, project } = selector;
        let target = EnqueueTarget::Ref(RefUpdate { name, oldrev, newrev });
        Self { within, project, target }
    }
}

/// Enqueues a change or a ref in a pipeline, as if an event had, waits up to a minute for the
/// decision of intake and prints it. Returns exit status 0 if the pipeline accepts it, and 3 if
/// there is no decision yet: the request stays stored. A rejection is an error. The project must be
/// in the live configuration of the tenant. Over the API, prints only that the request is stored.
///
/// # Errors
/// When the pipeline rejects the change, or the system does not answer.
pub async fn enqueue(request: EnqueueOptions) -> anyhow::Result<ExitCode> {
    if let Some(client) = request.within.within.system.api_client()? {
        return enqueue_over_api(&client, &request).await;
    }
    let EnqueueOptions { within: PipelineSelector { within, pipeline }, project: named, target } =
        request;
    let ports = within.system.ports().await?;
    let tenant = named_or_only_tenant(&ports, within.tenant.as_deref()).await?;
    let live = load_live(&ports, &tenant).await?;
    let project = find_project(&live, &named)?;
    let pipeline = PipelineName::from(pipeline);
    let event = enqueue_event(&tenant, &pipeline, project, &target, &author())?;
    submit_and_wait(&ports, event).await
}

/// Sends the request to enqueue to the API, and prints the command that shows the outcome.
async fn enqueue_over_api(client: &Client, request: &EnqueueOptions) -> anyhow::Result<ExitCode> {
    let EnqueueOptions { within: PipelineSelector { within, pipeline }, project, target } = request;
    let tenant = client.tenant(within.tenant.as_deref()).await?;
    let path = api_path(&["tenant", &tenant, "project", project, "enqueue"])?;
    let body = body(pipeline, target);
    let permission = "enqueue";
    client.write(ApiWrite { method: Method::POST, path, body: Some(body), permission }).await?;
    let (named, outcome) = match target {
        EnqueueTarget::Change(change) => {
            let named = format!("{project}#{}", change.number);
            (named.clone(), format!("sluice change explain '{named}' --tenant {tenant}"))
        }
        EnqueueTarget::Ref(update) => {
            let git_ref = whole_ref(&update.name);
            let outcome =
                format!("sluice change explain {project} --ref {git_ref} --tenant {tenant}");
            (format!("{project} {git_ref}"), outcome)
        }
    };
    let what = format!("{named} will be enqueued in {pipeline} if its requirements are met");
    AcceptedWrite { what, outcome }.print(client, within.system.format());
    Ok(ExitCode::SUCCESS)
}

/// Returns the body of a request to enqueue.
fn body(pipeline: &str, target: &EnqueueTarget) -> Value {
    match target {
        EnqueueTarget::Change(change) => {
            let revision = change.head.iter().map(|head| format!(",{head}"));
            let change = format!("{}{}", change.number, revision.collect::<String>());
            json!({"pipeline": pipeline, "change": change})
        }
        EnqueueTarget::Ref(RefUpdate { name, oldrev, newrev }) => json!({
            "pipeline": pipeline, "ref": whole_ref(name), "oldrev": oldrev, "newrev": newrev,
        }),
    }
}

/// Stores an operator's event, waits up to a minute until intake has handled it, and prints the
/// effects. Returns exit status 0 if it is handled, and 3 if it is still pending. If intake ignores
/// or fails it, returns the reason as an error.
pub(super) async fn submit_and_wait(ports: &Ports, event: ForgeEvent) -> anyhow::Result<ExitCode> {
    let explain_command = explain_command(&event);
    let id = submit_event(ports, event, &author()).await?;
    for _ in 0..POLLS_MAX {
        let record = get(ports, &delivery::key(&id))
            .await?
            .context("could not follow the request: its record is gone")?;
        match decode::<DeliveryRecord>(&record)?.state {
            DeliveryState::Accepted | DeliveryState::PartlyRouted { .. } => {
                tokio::time::sleep(POLL_INTERVAL).await
            }
            DeliveryState::Handled { effects, .. } => {
                for effect in effects {
                    print_line!("{effect}");
                }
                return Ok(ExitCode::SUCCESS);
            }
            DeliveryState::Failed { why, .. } | DeliveryState::Ignored { why } => bail!("{why}"),
            DeliveryState::SelfAuthored => return Ok(ExitCode::SUCCESS),
        }
    }
    print_line!(
        "The request is stored, but there is no decision yet. To see the outcome later: {explain_command}"
    );
    Ok(ExitCode::from(EXIT_PENDING))
}

/// Returns the `sluice change explain` command that shows the outcome of an operator's event later.
/// For other kinds of events than those of operators, returns `sluice status`.
fn explain_command(event: &ForgeEvent) -> String {
    let project = &event.project;
    match &event.kind {
        EventKind::Enqueue { tenant, number, .. } => {
            format!("sluice change explain {project}#{number} --tenant {tenant}")
        }
        EventKind::EnqueueRef { tenant, git_ref, .. } => {
            format!("sluice change explain {project} --ref {git_ref} --tenant {tenant}")
        }
        EventKind::Image { tenant, branch, .. } => {
            format!("sluice change explain {project} --ref {branch} --tenant {tenant}")
        }
        _ => "sluice status".to_owned(),
    }
}

/// Returns a tenant with its live layout. An error if the tenant does not exist or was never
/// loaded.
pub(super) async fn load_live(ports: &Ports, tenant: &TenantName) -> anyhow::Result<LiveLayout> {
    let live =
        Layouts::default().load_live(ports, tenant).await.map_err(|error| anyhow!("{error}"))?;
    live.with_context(|| {
        format!(
            "the configuration of tenant {tenant} has not been loaded yet: see `sluice tenant show`"
        )
    })
}

/// Returns a project of a tenant by its short or canonical name. An error if there is none, or
/// several have this short name.
pub(super) fn find_project<'l>(
    live: &'l LiveLayout,
    name: &str,
) -> anyhow::Result<&'l TenantProject> {
    live.layout.project(name).with_context(|| {
        let tenant = &live.tenant.name;
        format!(
            "tenant {tenant} has no project {name}, or several of that name: give a canonical name (`sluice tenant show {tenant}` lists them)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::ProjectName;
    use sluice_model::git::Oid;

    /// Z9.1: a command without an outcome yet names the command that shows it later.
    #[test]
    fn the_outcome_of_an_event_can_be_queried_later() {
        let command_for = |kind: EventKind| {
            let project = ProjectName::new("github.com", "org/one");
            explain_command(&ForgeEvent {
                connection: "github".into(),
                project,
                sender: String::new(),
                kind,
            })
        };
        let (tenant, pipeline) = (TenantName::from("demo"), PipelineName::from("check"));
        let change = EventKind::Enqueue {
            tenant: tenant.clone(),
            pipeline: pipeline.clone(),
            number: 7,
            head: None,
        };
        assert_eq!(command_for(change), "sluice change explain github.com/org/one#7 --tenant demo");
        let git_ref = "refs/tags/1.0".to_owned();
        let (oldrev, newrev) = (Oid::zero(), Oid::zero());
        let moved = EventKind::EnqueueRef { tenant, pipeline, git_ref, oldrev, newrev };
        assert_eq!(
            command_for(moved),
            "sluice change explain github.com/org/one --ref refs/tags/1.0 --tenant demo"
        );
    }
}
