//! The `sluice` command: parses the command line, runs the command, and returns its exit status.

mod arguments;
mod kill_argument;

use arguments::{
    AuthenticatorCommand, CheckArguments, Cli, Command, ConnectionCommand, ExplainArguments,
    FormatChoice, FreezeArguments, ImageCommand, ProviderCommand, QueueCommand, StatusArguments,
    TenantCommand, functions,
};
use clap::Parser as _;
use sluice_local::{demo, up};
use sluice_model::{BranchName, QueueKey};
use sluice_operator::{
    audit, authenticator, autohold, check, connection, enqueue, events, explain, freeze, image,
};
use sluice_operator::{local_config, provider, quarantine, queue, secret, show, tenant, token};
use std::process::ExitCode;

/// Runs the command of the command line and returns its exit status. An error is printed to
/// standard error, with exit status 1. So is output that could not be written, even if the command
/// succeeded; a closed pipe is no failure.
#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(code) => match sluice_operator::output::failure() {
            None => code,
            Some(why) => {
                eprintln!("sluice: could not write to standard output: {why}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("sluice: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command, which prints its output itself, and returns the exit status. Most errors are
/// returned; an error of `check` and `freeze` is printed here, with exit status 2.
async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(arguments) if arguments.prepare_nodes => sluice_local::prepare_nodes().await?,
        Command::Up(arguments) => up::run(arguments.into()).await?,
        Command::Demo(arguments) => {
            let latency = arguments.latency.into();
            let functions = functions(arguments.processes);
            let arguments = demo::DemoOptions {
                data: arguments.data,
                keep: arguments.keep,
                functions,
                endpoint: arguments.endpoint,
                latency,
                slots: arguments.slots,
            };
            return demo::run(arguments).await;
        }
        Command::Check(check) => {
            let CheckArguments { path, tenant, project, branch, format } = check;
            let format = match format {
                FormatChoice::Text => check::CheckFormat::Text,
                FormatChoice::Json => check::CheckFormat::Json,
                FormatChoice::Sarif => check::CheckFormat::Sarif,
            };
            return Ok(check::run(
                &local_config::LocalConfigOptions { path, tenant, project, branch },
                format,
            )
            .unwrap_or_else(print_check_failure));
        }
        Command::Freeze(arguments) => {
            let FreezeArguments {
                job,
                path,
                tenant,
                pipeline,
                project,
                branch,
                tag,
                git_ref,
                containing,
                files,
                json,
            } = arguments;
            let item =
                freeze::FreezeTarget::from_options(branch, tag.as_deref(), git_ref.as_deref());
            let containing = containing.into_iter().map(BranchName::from).collect();
            let options = freeze::FreezeOptions {
                path,
                tenant,
                project,
                item,
                containing,
                pipeline,
                files,
                job,
                json,
            };
            return Ok(freeze::run(&options).unwrap_or_else(print_check_failure));
        }
        Command::Status(StatusArguments { system, tenant, filter, printed }) => {
            show::status(&system.into(), tenant.as_deref(), &filter, printed.format).await?
        }
        Command::Explain(ExplainArguments { system, change, git_ref, tenant, job }) => {
            let target = explain::ExplainTarget::read(&change, git_ref.as_deref())?;
            explain::explain(&system.into(), &target, tenant.as_deref(), job.as_deref()).await?
        }
        Command::Tenant(command) => match command {
            TenantCommand::Show { system, tenant: name, printed } => {
                show::tenant(&system.into(), name.as_deref(), printed.format).await?
            }
            TenantCommand::Reload { data, all, tenant: name } => {
                tenant::reload(data.data, name.as_deref().filter(|_| !all)).await?;
            }
            TenantCommand::Snapshot { data, tenant: name, file } => {
                tenant::snapshot(data.data, &name, &file).await?
            }
            TenantCommand::Load { data, remove, file } => {
                let omitted = if remove {
                    tenant::OmittedTenants::Removed
                } else {
                    tenant::OmittedTenants::Refused
                };
                tenant::load(data.data, &file, omitted).await?
            }
        },
        Command::Connection(command) => match command {
            ConnectionCommand::Add(add) => connection::add((*add).into()).await?,
            ConnectionCommand::Rotate(rotate) => {
                let (files, check) = rotate.secrets.read();
                connection::rotate(rotate.data.data, &rotate.name, files, check).await?;
            }
            ConnectionCommand::Remove { data, name } => {
                connection::remove(data.data, &name).await?
            }
            ConnectionCommand::Show { data, name, printed } => {
                connection::show(data.data, &name, printed.format).await?
            }
            ConnectionCommand::List { data, printed } => {
                connection::list(data.data, printed.format).await?
            }
        },
        Command::Authenticator(command) => match command {
            AuthenticatorCommand::Add(add) => authenticator::add((*add).into()).await?,
            AuthenticatorCommand::Remove { data, name } => {
                authenticator::remove(data.data, &name).await?
            }
            AuthenticatorCommand::List { data, printed } => {
                authenticator::list(data.data, printed.format).await?
            }
        },
        Command::Token(arguments) => token::print(arguments).await?,
        Command::Audit(arguments) => audit::list(arguments).await?,
        Command::Secret(command) => secret::run(command).await?,
        Command::Quarantine { data, text, printed } => {
            let content = if text {
                quarantine::MessageContent::Shown
            } else {
                quarantine::MessageContent::Hidden
            };
            quarantine::list(data.data, content, printed.format).await?
        }
        Command::Queue(QueueCommand::Resume { data, tenant, pipeline, queue: name, reason }) => {
            let key = QueueKey {
                tenant: tenant.as_str().into(),
                pipeline: pipeline.as_str().into(),
                queue: name.as_str().into(),
            };
            queue::resume(data.data, key, &reason).await?;
        }
        Command::Provider(ProviderCommand::Resume { data, provider: name }) => {
            provider::resume(data.data, &name).await?
        }
        Command::Enqueue(arguments) => {
            return enqueue::enqueue(arguments.try_into()?).await;
        }
        Command::EnqueueRef(arguments) => return enqueue::enqueue(arguments.into()).await,
        Command::Image(ImageCommand::Build(arguments)) => return image::build(arguments).await,
        Command::Promote(arguments) => return queue::promote(arguments).await,
        Command::ManageEvents(arguments) => events::manage(arguments).await?,
        Command::Dequeue(arguments) => return queue::dequeue(arguments).await,
        Command::Autohold(arguments) => autohold::create(arguments).await?,
        Command::AutoholdList(within) => autohold::list(within).await?,
        Command::AutoholdInfo(arguments) => autohold::info(arguments).await?,
        Command::AutoholdDelete(arguments) => autohold::delete(arguments).await?,
        Command::Executor(arguments) => sluice_executor_program::run(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard error why a check could not run, and returns exit status 2, which is not that
/// of a check that found errors.
fn print_check_failure(error: anyhow::Error) -> ExitCode {
    eprintln!("sluice: {error:#}");
    ExitCode::from(2)
}
