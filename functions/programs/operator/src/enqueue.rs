//! `sluice enqueue` and `sluice enqueue-ref`: enqueue a change or a ref, as if an event had.
//!
//! The command is stored as a delivery like a forge's. The intake function loads the change, checks
//! the pipeline's requirements, and records the outcome in the delivery.

use super::operator;
use super::queue::{named_or_only_tenant, number_and_head, who, whole_ref};
use super::selectors::ProjectSelector;
use crate::output::print_line;
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use sluice_aws::OsEntropy;
use sluice_config::TenantProject;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ConnectionName, PipelineName, ProjectName, TenantName};
use sluice_records::codec::{decode, get};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::layout::{Layouts, LiveLayout};
use sluice_runtime::record::Due;
use sluice_runtime::{CellCommit, Entropy as _, Ports, cell};
use std::process::ExitCode;
use std::time::Duration;

/// How often a command polls for its outcome before it gives up.
pub(super) const POLLS_MAX: usize = 120;

/// The pause between two polls.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The exit status when there is no outcome after the last poll.
pub(super) const EXIT_PENDING: u8 = 3;

/// The arguments of `sluice enqueue`.
#[derive(Debug, Clone, Args)]
pub struct EnqueueArguments {
    /// The project and the pipeline.
    #[command(flatten)]
    pub project: ProjectSelector,
    /// Change: its number, or number,revision
    #[arg(long, value_name = "CHANGE")]
    pub change: String,
}

/// The arguments of `sluice enqueue-ref`.
#[derive(Debug, Clone, Args)]
pub struct EnqueueRefArguments {
    /// The project and the pipeline.
    #[command(flatten)]
    pub project: ProjectSelector,
    /// Branch, or full ref such as refs/tags/1.0
    #[arg(long = "ref", value_name = "REF")]
    pub name: String,
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
    /// The project and the pipeline.
    pub project: ProjectSelector,
    /// The change or ref.
    pub target: EnqueueTarget,
}

impl From<EnqueueArguments> for EnqueueOptions {
    fn from(arguments: EnqueueArguments) -> Self {
        Self { project: arguments.project, target: EnqueueTarget::Change(arguments.change) }
    }
}

impl From<EnqueueRefArguments> for EnqueueOptions {
    fn from(EnqueueRefArguments { project, name, oldrev, newrev }: EnqueueRefArguments) -> Self {
        Self { project, target: EnqueueTarget::Ref { name, oldrev, newrev } }
    }
}

/// What is enqueued: a change or a ref.
#[derive(Debug, Clone)]
pub enum EnqueueTarget {
    /// A change: its number, optionally followed by a comma and a revision.
    Change(String),
    /// An update of a ref.
    Ref {
        /// The ref; a name without `refs/` is a branch.
        name: String,
        /// The previous commit, if any.
        oldrev: Option<String>,
        /// The new commit; `None` for the head of the branch when it is tested.
        newrev: Option<String>,
    },
}

/// Enqueues a change or a ref in a pipeline, as if an event had, waits up to a minute for the
/// decision of intake and prints it. Returns exit status 0 if the pipeline accepts it, and 3 if
/// there is no decision yet: the request stays stored. A rejection is an error. The project must be
/// in the live configuration of the tenant.
///
/// # Errors
/// When the pipeline rejects the change, or the store does not answer.
pub async fn enqueue(request: EnqueueOptions) -> anyhow::Result<ExitCode> {
    let EnqueueOptions { project: ProjectSelector { within, project: project_name }, target } =
        request;
    let ports = operator(within.data).await?;
    let tenant = named_or_only_tenant(&ports, within.tenant.as_deref()).await?;
    let (connection, project) = resolve_project(&ports, &tenant, &project_name).await?;
    let pipeline = PipelineName::from(within.pipeline);
    let kind = match &target {
        EnqueueTarget::Change(change) => {
            let (number, head) = number_and_head(change)?;
            EventKind::Enqueue { tenant, pipeline, number, head: head.map(Oid::from) }
        }
        EnqueueTarget::Ref { name, oldrev, newrev } => EventKind::EnqueueRef {
            tenant,
            pipeline,
            git_ref: whole_ref(name),
            oldrev: parse_commit(oldrev.as_deref())?,
            newrev: parse_commit(newrev.as_deref())?,
        },
    };
    submit_event(&ports, "enqueue", ForgeEvent { connection, project, sender: who(), kind }).await
}

/// Stores an operator's event as a delivery, wakes intake, waits up to a minute until it is
/// handled, and prints the effects. Returns exit status 0 if it is handled, and 3 if it is still
/// pending. If intake ignores or fails it, returns the reason as an error. `event_name` is the name
/// under which the delivery is listed.
pub(super) async fn submit_event(
    ports: &Ports,
    event_name: &str,
    event: ForgeEvent,
) -> anyhow::Result<ExitCode> {
    let (project, explain_command) = (event.project.clone(), explain_command(&event));
    let delivery_record = DeliveryRecord {
        connection: event.connection.clone(),
        forge_id: format!("operator:{}", OsEntropy.token()),
        event_name: event_name.to_owned(),
        received_at: ports.clock.now(),
        event: Some(event),
        state: DeliveryState::Accepted,
    };
    let id = delivery::id(&delivery_record.connection, &delivery_record.forge_id);
    let wakeup = Wakeup::Delivery { delivery: id.clone(), project };
    let due =
        Some(Due { at: delivery_record.received_at.plus_seconds(60), wakeup: wakeup.clone() });
    let head = delivery::record(&id, &delivery_record)?;
    cell::commit_and_send(
        ports,
        CellCommit { head, others: Vec::new(), wakeups: vec![wakeup], due },
    )
    .await?;
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

/// Returns the `sluice explain` command that shows the outcome of an operator's event later. For
/// other kinds of events than those of operators, returns `sluice status`.
fn explain_command(event: &ForgeEvent) -> String {
    let project = &event.project;
    match &event.kind {
        EventKind::Enqueue { tenant, number, .. } => {
            format!("sluice explain {project}#{number} --tenant {tenant}")
        }
        EventKind::EnqueueRef { tenant, git_ref, .. } => {
            format!("sluice explain {project} --ref {git_ref} --tenant {tenant}")
        }
        EventKind::Image { tenant, branch, .. } => {
            format!("sluice explain {project} --ref {branch} --tenant {tenant}")
        }
        _ => "sluice status".to_owned(),
    }
}

/// Parses a full commit id of 40 or 64 hexadecimal digits, and returns it in lower case. `None`
/// gives the null id of 40 zeros, as in git. An error for any other text, also an abbreviated id;
/// whether the commit exists is not checked.
fn parse_commit(text: Option<&str>) -> anyhow::Result<Oid> {
    let Some(text) = text else { return Ok(Oid::zero()) };
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        bail!("could not use {text:?} as a commit: give its full id");
    }
    Ok(Oid::from(text.to_ascii_lowercase().as_str()))
}

/// Returns the connection and the canonical name of a project in a tenant's live configuration.
/// `name` is the short or canonical name. An error if there is no such project, several have this
/// name, or the tenant was never loaded.
pub(super) async fn resolve_project(
    ports: &Ports,
    tenant: &TenantName,
    name: &str,
) -> anyhow::Result<(ConnectionName, ProjectName)> {
    let live = load_live(ports, tenant).await?;
    let project = find_project(&live, name)?;
    Ok((project.connection.clone(), project.name.clone()))
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
        assert_eq!(command_for(change), "sluice explain github.com/org/one#7 --tenant demo");
        let git_ref = "refs/tags/1.0".to_owned();
        let (oldrev, newrev) = (Oid::zero(), Oid::zero());
        let moved = EventKind::EnqueueRef { tenant, pipeline, git_ref, oldrev, newrev };
        assert_eq!(
            command_for(moved),
            "sluice explain github.com/org/one --ref refs/tags/1.0 --tenant demo"
        );
    }
}
