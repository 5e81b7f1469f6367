//! Runs a command of the command line.

use crate::arguments::config::ConfigCommand;
use crate::arguments::connections::{AuthenticatorCommand, ConnectionCommand};
use crate::arguments::local_system::{DemoArguments, functions};
use crate::arguments::nouns::{
    AuditCommand, AutoholdCommand, BuildCommand, BuildsetCommand, ChangeCommand, EventCommand,
    ExplainArguments, ImageCommand, JobCommand, LabelCommand, NamedObject, NodeCommand,
    PipelineCommand, ProjectCommand, ProviderCommand, QuarantineCommand, QueueCommand, RefCommand,
    RequestCommand, SemaphoreCommand, TenantCommand, TokenCommand,
};
use crate::arguments::{Command, StatusArguments};
use sluice_local::{demo, up};
use sluice_model::QueueKey;
use sluice_operator::api_objects::{self, ApiNoun, ListQuery, list, show};
use sluice_operator::autohold::IdArguments;
use sluice_operator::build::{self, BuildSelector};
use sluice_operator::selectors::TenantSelector;
use sluice_operator::{
    audit, authenticator, autohold, check, connection, enqueue, events, explain, freeze, image,
    job, key, node, provider, quarantine, queue, secret, tenant, token,
};
use std::process::ExitCode;

/// Runs a command, which prints its output itself, and returns the exit status. Most errors are
/// returned; an error of `config check` and `config freeze` is printed here, with exit status 2.
pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(arguments) if arguments.prepare_nodes => sluice_local::prepare_nodes().await?,
        Command::Up(arguments) => up::run(arguments.into()).await?,
        Command::Demo(arguments) => {
            let DemoArguments { data, keep, processes, endpoint, latency, slots } = arguments;
            let (functions, latency) = (functions(processes), latency.into());
            let options = demo::DemoOptions { data, keep, functions, endpoint, latency, slots };
            return demo::run(options).await;
        }
        Command::Status(StatusArguments { system, tenant, filter }) => {
            sluice_operator::show::status(&system, tenant.as_deref(), &filter).await?
        }
        Command::Executor(arguments) => sluice_executor_program::run(arguments).await?,
        Command::Change(command) => return run_change(command).await,
        Command::Ref(command) => {
            return match command {
                RefCommand::Enqueue(arguments) => enqueue::enqueue(arguments.into()).await,
                RefCommand::Dequeue(arguments) => queue::dequeue(arguments.into()).await,
            };
        }
        Command::Config(command) => return Ok(run_config(command)),
        Command::Job(command) => match command {
            JobCommand::List(selector) => list_all(&api_objects::JOBS, &selector).await?,
            JobCommand::Show(named) => show_named(&api_objects::JOBS, named).await?,
            JobCommand::Freeze { branch, job: name } => job::freeze(&branch, &name).await?,
            JobCommand::Graph(branch) => job::graph(&branch).await?,
        },
        Command::Project(command) => match command {
            ProjectCommand::List(selector) => list_all(&api_objects::PROJECTS, &selector).await?,
            ProjectCommand::Show(named) => show_named(&api_objects::PROJECTS, named).await?,
        },
        Command::Pipeline(PipelineCommand::List(selector)) => {
            list_all(&api_objects::PIPELINES, &selector).await?
        }
        Command::Build(command) => match command {
            BuildCommand::List { selector, filter } => {
                list(&api_objects::BUILDS, &selector, &filter.query()).await?
            }
            BuildCommand::Show(BuildSelector { selector, id }) => {
                show(&api_objects::BUILDS, &selector, &id).await?
            }
            BuildCommand::Log(selector) => build::log(&selector).await?,
        },
        Command::Buildset(command) => match command {
            BuildsetCommand::List { selector, filter } => {
                list(&api_objects::BUILDSETS, &selector, &filter.query()).await?
            }
            BuildsetCommand::Show(named) => show_named(&api_objects::BUILDSETS, named).await?,
        },
        Command::Tenant(command) => run_tenant(command).await?,
        Command::Event(EventCommand::List { selector, filter }) => {
            list(&api_objects::EVENTS, &selector, &filter.query()).await?
        }
        Command::Queue(QueueCommand::Resume { local, tenant, pipeline, queue: name, reason }) => {
            let key = QueueKey {
                tenant: tenant.as_str().into(),
                pipeline: pipeline.as_str().into(),
                queue: name.as_str().into(),
            };
            queue::resume(local.data, key, &reason).await?;
        }
        Command::Provider(ProviderCommand::Resume { local, provider: name }) => {
            provider::resume(local.data, &name).await?
        }
        Command::Node(command) => match command {
            NodeCommand::List(selector) => list_all(&api_objects::NODES, &selector).await?,
            NodeCommand::SetState(arguments) => node::set_state(arguments).await?,
        },
        Command::Request(command) => match command {
            RequestCommand::List(selector) => list_all(&api_objects::REQUESTS, &selector).await?,
            RequestCommand::Delete(arguments) => node::delete_request(arguments).await?,
        },
        Command::Label(LabelCommand::List(selector)) => {
            list_all(&api_objects::LABELS, &selector).await?
        }
        Command::Semaphore(SemaphoreCommand::List(selector)) => {
            list_all(&api_objects::SEMAPHORES, &selector).await?
        }
        Command::Image(ImageCommand::Build(arguments)) => return image::build(arguments).await,
        Command::Autohold(command) => match command {
            AutoholdCommand::Create(arguments) => autohold::create(arguments).await?,
            AutoholdCommand::List(selector) => list_all(&api_objects::AUTOHOLDS, &selector).await?,
            AutoholdCommand::Show(IdArguments { selector, id }) => {
                autohold::show(&selector, &id).await?
            }
            AutoholdCommand::Delete(arguments) => autohold::delete(arguments).await?,
        },
        Command::Connection(command) => run_connection(command).await?,
        Command::Authenticator(command) => match command {
            AuthenticatorCommand::Add(add) => authenticator::add((*add).into()).await?,
            AuthenticatorCommand::Remove { local, name } => {
                authenticator::remove(local.data, &name).await?
            }
            AuthenticatorCommand::List { local } => {
                let format = local.format();
                authenticator::list(local.data, format).await?
            }
        },
        Command::Token(TokenCommand::Create(arguments)) => token::print(arguments).await?,
        Command::Audit(AuditCommand::List(arguments)) => audit::list(arguments).await?,
        Command::Secret(command) => secret::run(command).await?,
        Command::Key(command) => key::run(command).await?,
        Command::Quarantine(QuarantineCommand::List { local, text }) => {
            let content = if text {
                quarantine::MessageContent::Shown
            } else {
                quarantine::MessageContent::Hidden
            };
            let format = local.format();
            quarantine::list(local.data, content, format).await?
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_change(command: ChangeCommand) -> anyhow::Result<ExitCode> {
    match command {
        ChangeCommand::Enqueue(arguments) => enqueue::enqueue(arguments.try_into()?).await,
        ChangeCommand::Dequeue(arguments) => queue::dequeue(arguments.try_into()?).await,
        ChangeCommand::Promote(arguments) => queue::promote(arguments).await,
        ChangeCommand::Explain(arguments) => {
            let ExplainArguments { system, change, git_ref, tenant, job } = arguments;
            let target = explain::ExplainTarget::read(&change, git_ref.as_deref())?;
            explain::explain(&system, &target, tenant.as_deref(), job.as_deref()).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Checks configuration. An error is printed, with an exit status that is not that of a check that
/// found errors.
fn run_config(command: ConfigCommand) -> ExitCode {
    let status = match command {
        ConfigCommand::Check(arguments) => {
            let format = arguments.format();
            check::run(&arguments.into(), format)
        }
        ConfigCommand::Freeze(arguments) => freeze::run(&arguments.into()),
    };
    status.unwrap_or_else(|error| {
        eprintln!("sluice: {error:#}");
        ExitCode::from(2)
    })
}

async fn run_tenant(command: TenantCommand) -> anyhow::Result<()> {
    match command {
        TenantCommand::List(system) => api_objects::list_tenants(&system).await,
        TenantCommand::Show { system, tenant: name } => {
            sluice_operator::show::tenant(&system, name.as_deref()).await
        }
        TenantCommand::Load { local, remove, file } => {
            let omitted = if remove {
                tenant::OmittedTenants::Removed
            } else {
                tenant::OmittedTenants::Refused
            };
            let format = local.format();
            tenant::load(local.data, &file, omitted, format).await
        }
        TenantCommand::Reload { local, all, tenant: name } => {
            let format = local.format();
            tenant::reload(local.data, name.as_deref().filter(|_| !all), format).await
        }
        TenantCommand::Snapshot { local, tenant: name, file } => {
            tenant::snapshot(local.data, &name, &file).await
        }
        TenantCommand::SetState(arguments) => events::set_state(arguments).await,
    }
}

async fn run_connection(command: ConnectionCommand) -> anyhow::Result<()> {
    match command {
        ConnectionCommand::Add(add) => connection::add((*add).into()).await,
        ConnectionCommand::Rotate(rotate) => {
            let (files, check) = rotate.secrets.read();
            connection::rotate(rotate.local.data, &rotate.name, files, check).await
        }
        ConnectionCommand::Remove { local, name } => connection::remove(local.data, &name).await,
        ConnectionCommand::Show { local, name } => {
            let format = local.format();
            connection::show(local.data, &name, format).await
        }
        ConnectionCommand::List { local } => {
            let format = local.format();
            connection::list(local.data, format).await
        }
    }
}

async fn list_all(noun: &ApiNoun, selector: &TenantSelector) -> anyhow::Result<()> {
    list(noun, selector, &ListQuery::default()).await
}

async fn show_named(noun: &ApiNoun, named: NamedObject) -> anyhow::Result<()> {
    show(noun, &named.selector, &named.name).await
}
