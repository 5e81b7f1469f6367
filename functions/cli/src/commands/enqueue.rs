//! `sluice enqueue` and `sluice enqueue-ref`: a change or a ref goes into a pipeline, as if an
//! event had put it there.
//!
//! It is a delivery like a forge's: intake reads the change, asks what the pipeline requires, and
//! says what came of it.

use super::operator;
use super::place::OfProject;
use super::queue::{number_and_head, only_tenant, who, whole_ref};
use crate::say::say;
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use sluice_aws::OsEntropy;
use sluice_config::TenantProject;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::poke::Poke;
use sluice_model::{ConnectionName, PipelineName, ProjectName, TenantName};
use sluice_records::codec::{decode, get};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::layout::{Layouts, Live};
use sluice_runtime::record::Due;
use sluice_runtime::{Commit, Entropy as _, Ports, cell};
use std::process::ExitCode;
use std::time::Duration;

/// Looks at what becomes of it, before it is left to itself.
pub(super) const LOOKS_MAX: usize = 120;

/// Between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// The exit status of what was asked for and is not decided after the last look.
pub(super) const UNDECIDED: u8 = 3;

/// `sluice enqueue`.
#[derive(Debug, Clone, Args)]
pub struct EnqueueArguments {
    /// Where it goes.
    #[command(flatten)]
    pub place: OfProject,
    /// The change: its number, or number,revision.
    #[arg(long, value_name = "CHANGE")]
    pub change: String,
}

/// `sluice enqueue-ref`.
#[derive(Debug, Clone, Args)]
pub struct EnqueueRefArguments {
    /// Where it goes.
    #[command(flatten)]
    pub place: OfProject,
    /// The branch, or a whole ref as in refs/tags/1.0.
    #[arg(long = "ref", value_name = "REF")]
    pub name: String,
    /// The commit that it was at. [default: none, as for a new ref]
    #[arg(long, value_name = "COMMIT")]
    pub oldrev: Option<String>,
    /// The commit that it is at; a tag needs it. [default: where the branch is when its turn comes]
    #[arg(long, value_name = "COMMIT")]
    pub newrev: Option<String>,
}

/// What goes into which pipeline.
#[derive(Debug, Clone)]
pub struct Enqueued {
    /// Where it goes.
    pub place: OfProject,
    /// What of the project.
    pub what: What,
}

impl From<EnqueueArguments> for Enqueued {
    fn from(arguments: EnqueueArguments) -> Self {
        Self { place: arguments.place, what: What::Change(arguments.change) }
    }
}

impl From<EnqueueRefArguments> for Enqueued {
    fn from(EnqueueRefArguments { place, name, oldrev, newrev }: EnqueueRefArguments) -> Self {
        Self { place, what: What::Ref { name, oldrev, newrev } }
    }
}

/// What of a project is enqueued.
#[derive(Debug, Clone)]
pub enum What {
    /// A change: its number, with a revision after a comma or not.
    Change(String),
    /// A ref as it moved.
    Ref {
        /// The ref; a name without `refs/` is a branch.
        name: String,
        /// Where it was, if anywhere.
        oldrev: Option<String>,
        /// Where it is; a branch without one is tested where it is when its turn comes.
        newrev: Option<String>,
    },
}

/// Puts a change or a ref into a pipeline and says what came of it. The exit status is 3 where that
/// is not decided yet.
///
/// # Errors
/// When the pipeline does not take it, or the store does not answer.
pub async fn enqueue(wanted: Enqueued) -> anyhow::Result<ExitCode> {
    let Enqueued { place: OfProject { within, project: named }, what } = wanted;
    let ports = operator(within.data).await?;
    let tenant = only_tenant(&ports, within.tenant.as_deref()).await?;
    let (connection, project) = project(&ports, &tenant, &named).await?;
    let pipeline = PipelineName::from(within.pipeline);
    let kind = match &what {
        What::Change(change) => {
            let (number, head) = number_and_head(change)?;
            EventKind::Enqueue { tenant, pipeline, number, head: head.map(Oid::from) }
        }
        What::Ref { name, oldrev, newrev } => EventKind::EnqueueRef {
            tenant,
            pipeline,
            git_ref: whole_ref(name),
            oldrev: commit(oldrev.as_deref())?,
            newrev: commit(newrev.as_deref())?,
        },
    };
    ask(&ports, "enqueue", ForgeEvent { connection, project, sender: who(), kind }).await
}

/// Hands intake an event that an operator asks for, as a delivery like a forge's, and says what
/// came of it.
pub(super) async fn ask(
    ports: &Ports,
    event_name: &str,
    event: ForgeEvent,
) -> anyhow::Result<ExitCode> {
    let (project, later) = (event.project.clone(), later(&event));
    let asked = Delivery {
        connection: event.connection.clone(),
        forge_id: format!("operator:{}", OsEntropy.token()),
        event_name: event_name.to_owned(),
        received_at: ports.clock.now(),
        event: Some(event),
        state: DeliveryState::Accepted,
    };
    let id = delivery::id(&asked.connection, &asked.forge_id);
    let poke = Poke::Delivery { delivery: id.clone(), project };
    let due = Some(Due { at: asked.received_at.plus_seconds(60), poke: poke.clone() });
    let head = delivery::record(&id, &asked)?;
    cell::commit_and_send(ports, Commit { head, others: Vec::new(), pokes: vec![poke], due })
        .await?;
    for _ in 0..LOOKS_MAX {
        let record = get(ports, &delivery::key(&id)).await?.context("the request is gone")?;
        match decode::<Delivery>(&record)?.state {
            DeliveryState::Accepted | DeliveryState::Partly { .. } => {
                tokio::time::sleep(LOOK).await
            }
            DeliveryState::Handled { effects, .. } => {
                for effect in effects {
                    say!("{effect}");
                }
                return Ok(ExitCode::SUCCESS);
            }
            DeliveryState::Failed { why, .. } | DeliveryState::Ignored { why } => bail!("{why}"),
            DeliveryState::Own => return Ok(ExitCode::SUCCESS),
        }
    }
    say!("It was asked for and is not decided yet; what becomes of it: {later}");
    Ok(ExitCode::from(UNDECIDED))
}

/// Returns the command that says later what became of an event that an operator asked for.
fn later(event: &ForgeEvent) -> String {
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

/// Reads a commit's id; none is written as zeros, as git does.
fn commit(text: Option<&str>) -> anyhow::Result<Oid> {
    let Some(text) = text else { return Ok(Oid::zero()) };
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        bail!("{text:?} is no commit: write its whole id");
    }
    Ok(Oid::from(text.to_ascii_lowercase().as_str()))
}

/// Returns the connection and the canonical name of a tenant's project.
pub(super) async fn project(
    ports: &Ports,
    tenant: &TenantName,
    name: &str,
) -> anyhow::Result<(ConnectionName, ProjectName)> {
    let live = live(ports, tenant).await?;
    let project = known_project(&live, name)?;
    Ok((project.connection.clone(), project.name.clone()))
}

/// Returns a tenant with its configuration as it is live.
pub(super) async fn live(ports: &Ports, tenant: &TenantName) -> anyhow::Result<Live> {
    let live = Layouts::default().live(ports, tenant).await.map_err(|error| anyhow!("{error}"))?;
    live.with_context(|| {
        format!("the configuration of {tenant} was never read (`sluice tenant show`)")
    })
}

/// Returns a project of a tenant by its short or canonical name.
pub(super) fn known_project<'l>(live: &'l Live, name: &str) -> anyhow::Result<&'l TenantProject> {
    live.layout.project(name).with_context(|| {
        let tenant = &live.tenant.name;
        format!(
            "{tenant} has no project {name}, or several of that name: give the canonical one (`sluice tenant show {tenant}` lists them)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1: whoever does not learn what became of it learns how to ask.
    #[test]
    fn what_is_not_decided_yet_can_be_asked_for_later() {
        let said = |kind: EventKind| {
            let project = ProjectName::new("github.com", "org/one");
            later(&ForgeEvent { connection: "github".into(), project, sender: String::new(), kind })
        };
        let (tenant, pipeline) = (TenantName::from("demo"), PipelineName::from("check"));
        let change = EventKind::Enqueue {
            tenant: tenant.clone(),
            pipeline: pipeline.clone(),
            number: 7,
            head: None,
        };
        assert_eq!(said(change), "sluice explain github.com/org/one#7 --tenant demo");
        let git_ref = "refs/tags/1.0".to_owned();
        let (oldrev, newrev) = (Oid::zero(), Oid::zero());
        let moved = EventKind::EnqueueRef { tenant, pipeline, git_ref, oldrev, newrev };
        assert_eq!(
            said(moved),
            "sluice explain github.com/org/one --ref refs/tags/1.0 --tenant demo"
        );
    }
}
