//! The commands about changes, builds, tenants and the other things of a running system.

use clap::{Args, Subcommand};
use sluice_operator::api_client::{LocalArguments, SystemArguments};
use sluice_operator::api_objects::{BuildFilter, BuildsetFilter, EventFilter};
use sluice_operator::build::BuildSelector;
use sluice_operator::job::BranchSelector;
use sluice_operator::selectors::TenantSelector;
use sluice_operator::{audit, autohold, enqueue, events, image, node, queue, token};
use std::path::PathBuf;

#[derive(Subcommand)]
pub(crate) enum ChangeCommand {
    /// Enqueue a change in a pipeline, as if an event had; the pipeline's requirements still apply
    ///
    /// Exits with 0 once the change is accepted, 1 if it is rejected, 3 if there is no decision
    /// within a minute. With --api, exits with 0 once the request is stored.
    Enqueue(enqueue::EnqueueArguments),
    /// Dequeue a change, with its dependencies' bundle if it is in one; its builds are stopped
    ///
    /// Exits with 0 once the change has left, 1 if it is not queued or left for another reason, 3
    /// if the queue has not acted within a minute. With --api, exits with 0 once the request is
    /// stored.
    Dequeue(queue::DequeueArguments),
    /// Move changes to the front of their queue; the changes behind them are tested again
    ///
    /// Exits with 0 once the queue has moved them, 1 if they are not queued or have left, 3 if the
    /// queue has not acted within a minute. With --api, exits with 0 once the request is stored.
    Promote(queue::PromoteArguments),
    /// Explain what was decided about a change, branch or tag, and why
    Explain(ExplainArguments),
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    pub(crate) system: SystemArguments,
    /// Change, `org/project#7` or just its number; with --ref, the project
    pub(crate) change: String,
    /// Branch of that project, or full ref such as refs/tags/1.0, whose pushes are explained
    #[arg(long = "ref", value_name = "REF")]
    pub(crate) git_ref: Option<String>,
    /// Tenant of the change [default: the only tenant]
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Explain one job: which definitions apply to it, which do not, and why
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum RefCommand {
    /// Enqueue a branch or tag in a pipeline, as if it had been pushed
    ///
    /// Exits with 0 once the ref is accepted, 1 if it is rejected, 3 if there is no decision within
    /// a minute. With --api, exits with 0 once the request is stored.
    Enqueue(enqueue::EnqueueRefArguments),
    /// Dequeue a branch or tag; its builds are stopped
    ///
    /// Exits with 0 once the ref has left, 1 if it is not queued or left for another reason, 3 if
    /// the queue has not acted within a minute. With --api, exits with 0 once the request is
    /// stored.
    Dequeue(queue::DequeueRefArguments),
}

/// Selects an object of a tenant by its name.
#[derive(Args)]
pub(crate) struct NamedObject {
    #[command(flatten)]
    pub(crate) selector: TenantSelector,
    /// Name, as the list shows it
    pub(crate) name: String,
}

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// List the jobs of a tenant
    List(TenantSelector),
    /// Show the variants of a job
    Show(NamedObject),
    /// Show a job as a change of a branch would run it. `sluice config freeze` does so offline
    Freeze {
        #[command(flatten)]
        branch: BranchSelector,
        /// Job
        job: String,
    },
    /// List the jobs that a change of a branch would run, and in which order
    Graph(BranchSelector),
}

#[derive(Subcommand)]
pub(crate) enum ProjectCommand {
    /// List the projects of a tenant
    List(TenantSelector),
    /// Show a project with its configuration
    Show(NamedObject),
}

#[derive(Subcommand)]
pub(crate) enum PipelineCommand {
    /// List the pipelines of a tenant
    List(TenantSelector),
}

#[derive(Subcommand)]
pub(crate) enum BuildCommand {
    /// List builds, newest first
    List {
        #[command(flatten)]
        selector: TenantSelector,
        #[command(flatten)]
        filter: Box<BuildFilter>,
    },
    /// Show a build with its artifacts
    Show(BuildSelector),
    /// Print the log of a build, as far as it is written
    Log(BuildSelector),
}

#[derive(Subcommand)]
pub(crate) enum BuildsetCommand {
    /// List buildsets, newest first
    List {
        #[command(flatten)]
        selector: TenantSelector,
        #[command(flatten)]
        filter: Box<BuildsetFilter>,
    },
    /// Show a buildset with its builds
    Show(NamedObject),
}

#[derive(Subcommand)]
pub(crate) enum TenantCommand {
    /// List tenants
    List(SystemArguments),
    /// Show a tenant's projects, pipelines and configuration errors
    Show {
        #[command(flatten)]
        system: SystemArguments,
        /// Tenant [default: each tenant]
        tenant: Option<String>,
    },
    /// Check and store a main configuration (tenants and their projects), and reload all its
    /// tenants. Files that it includes, and playbooks/ and roles/ next to it, are stored too
    Load {
        #[command(flatten)]
        local: LocalArguments,
        /// Remove tenants that the file omits; their changes are dequeued
        #[arg(long)]
        remove: bool,
        /// File in the format of Zuul's main.yaml
        file: PathBuf,
    },
    /// Reload a tenant's configuration from its repositories
    Reload {
        #[command(flatten)]
        local: LocalArguments,
        /// Reload every tenant of the main configuration, one after the other
        #[arg(long, conflicts_with = "tenant")]
        all: bool,
        /// Tenant
        #[arg(required_unless_present = "all")]
        tenant: Option<String>,
    },
    /// Write a tenant's live configuration to a file for `sluice config check` and `sluice config
    /// freeze`
    Snapshot {
        #[command(flatten)]
        local: LocalArguments,
        /// Tenant
        tenant: String,
        /// File to write
        file: PathBuf,
    },
    /// Pause, discard or resume the events of a tenant
    SetState(events::SetStateArguments),
}

#[derive(Subcommand)]
pub(crate) enum EventCommand {
    /// List what happened to a tenant as a whole, newest first
    List {
        #[command(flatten)]
        selector: TenantSelector,
        #[command(flatten)]
        filter: EventFilter,
    },
}

#[derive(Subcommand)]
pub(crate) enum QueueCommand {
    /// Resume a halted queue after you have looked into why it halted: the merged state was not the
    /// tested state, or its records are damaged. `sluice status` shows halted queues and the
    /// reasons
    Resume {
        #[command(flatten)]
        local: LocalArguments,
        /// Tenant
        tenant: String,
        /// Pipeline
        pipeline: String,
        /// Queue, as shown by `sluice status`
        queue: String,
        /// What you found; recorded, with your name, with the change that halted the queue
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum ProviderCommand {
    /// Resume a provider that halted because its records are damaged, after they were repaired.
    /// `sluice status` shows halted providers and the reasons
    Resume {
        #[command(flatten)]
        local: LocalArguments,
        /// Provider, as shown by `sluice status`
        provider: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// List the nodes that exist for a tenant
    List(TenantSelector),
    /// Hold a node for people to inspect, or release it
    SetState(node::SetNodeStateArguments),
}

#[derive(Subcommand)]
pub(crate) enum RequestCommand {
    /// List the open requests for nodes
    List(TenantSelector),
    /// Delete a request for nodes; its build fails
    Delete(node::RequestArguments),
}

#[derive(Subcommand)]
pub(crate) enum LabelCommand {
    /// List the labels that a tenant's providers offer
    List(TenantSelector),
}

#[derive(Subcommand)]
pub(crate) enum SemaphoreCommand {
    /// List the semaphores of a tenant
    List(TenantSelector),
}

#[derive(Subcommand)]
pub(crate) enum ImageCommand {
    /// Run the jobs whose `image-build-name` is IMAGE now, in each pipeline with the trigger `zuul:
    /// [{event: image-build}]`
    ///
    /// The jobs are those listed by the project that defines the image. Their result is not stored
    /// as an image yet.
    ///
    /// Exits with 0 once a pipeline accepts the event, 1 if none does, 3 if there is no decision
    /// within a minute. With --api, exits with 0 once the request is stored.
    Build(image::BuildArguments),
}

#[derive(Subcommand)]
pub(crate) enum AutoholdCommand {
    /// Hold the nodes of failed builds of a job
    Create(autohold::AutoholdArguments),
    /// List the autohold requests of a tenant
    List(TenantSelector),
    /// Show an autohold request and the nodes held for it
    Show(autohold::IdArguments),
    /// Delete an autohold request and release the nodes held for it
    Delete(autohold::IdArguments),
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Print a token for a user of the API, signed with the secret of an authenticator
    Create(token::TokenArguments),
}

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// List who changed what in a tenant, newest first
    List(audit::AuditArguments),
}

#[derive(Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List unreadable messages
    List {
        #[command(flatten)]
        local: LocalArguments,
        /// Also show the content of each message
        #[arg(long)]
        text: bool,
    },
}
