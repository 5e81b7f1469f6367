//! `sluice`: what people type.

mod arguments;

use arguments::{
    CheckArguments, Cli, Command, ConnectionCommand, ExecutorArguments, ExplainArguments,
    FormatWord, FreezeArguments, ImageCommand, ProviderCommand, QueueCommand, StatusArguments,
    TenantCommand, functions,
};
use clap::Parser as _;
use sluice_cli::commands::{
    autohold, check, connection, enqueue, events, executor, explain, folder, freeze,
};
use sluice_cli::commands::{image, provider, quarantine, queue, secret, show, tenant, up};
use sluice_cli::demo;
use sluice_model::{BranchName, QueueKey};
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(code) => match sluice_cli::say::failure() {
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

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(arguments) => up::run(arguments.into()).await?,
        Command::Demo(arguments) => {
            let latency = arguments.latency.into();
            let functions = functions(arguments.processes);
            let wanted = demo::Wanted {
                data: arguments.data,
                keep: arguments.keep,
                functions,
                latency,
                slots: arguments.slots,
            };
            return demo::run(wanted).await;
        }
        Command::Check(check) => {
            let CheckArguments { path, tenant, project, branch, format } = check;
            let format = match format {
                FormatWord::Text => check::Format::Text,
                FormatWord::Json => check::Format::Json,
                FormatWord::Sarif => check::Format::Sarif,
            };
            return Ok(check::run(&folder::Wanted { path, tenant, project, branch }, format)
                .unwrap_or_else(unchecked));
        }
        Command::Freeze(asked) => {
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
            } = asked;
            let item = freeze::Item::named(branch, tag.as_deref(), git_ref.as_deref());
            let containing = containing.into_iter().map(BranchName::from).collect();
            let asked = freeze::Asked {
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
            return Ok(freeze::run(&asked).unwrap_or_else(unchecked));
        }
        Command::Status(StatusArguments { asked, tenant, narrowed, printed }) => {
            show::status(&asked.into(), tenant.as_deref(), &narrowed, printed.format).await?
        }
        Command::Explain(ExplainArguments { asked, change, git_ref, tenant, job }) => {
            let about = explain::About::read(&change, git_ref.as_deref())?;
            explain::explain(&asked.into(), &about, tenant.as_deref(), job.as_deref()).await?
        }
        Command::Tenant(command) => match command {
            TenantCommand::Show { asked, tenant: name, printed } => {
                show::tenant(&asked.into(), name.as_deref(), printed.format).await?
            }
            TenantCommand::Reload { data, all, tenant: name } => {
                tenant::reload(data.data, name.as_deref().filter(|_| !all)).await?;
            }
            TenantCommand::Snapshot { data, tenant: name, file } => {
                tenant::snapshot(data.data, &name, &file).await?
            }
            TenantCommand::Load { data, remove, file } => {
                let left_out =
                    if remove { tenant::LeftOut::Removed } else { tenant::LeftOut::Refused };
                tenant::load(data.data, &file, left_out).await?
            }
        },
        Command::Connection(command) => match command {
            ConnectionCommand::Add(add) => connection::add(add.into()).await?,
            ConnectionCommand::Rotate(rotate) => {
                let (files, check) = rotate.secrets.read();
                connection::rotate(rotate.data.data, &rotate.name, files, check).await?;
            }
            ConnectionCommand::Remove { data, name } => {
                connection::remove(data.data, &name).await?
            }
            ConnectionCommand::List { data, printed } => {
                connection::list(data.data, printed.format).await?
            }
        },
        Command::Secret(command) => secret::run(command).await?,
        Command::Quarantine { data, text, printed } => {
            quarantine::list(data.data, text, printed.format).await?
        }
        Command::Queue(QueueCommand::Thaw { data, tenant, pipeline, queue: name, reason }) => {
            let key = QueueKey {
                tenant: tenant.as_str().into(),
                pipeline: pipeline.as_str().into(),
                queue: name.as_str().into(),
            };
            queue::thaw(data.data, key, &reason).await?;
        }
        Command::Provider(ProviderCommand::Thaw { data, provider: name }) => {
            provider::thaw(data.data, &name).await?
        }
        Command::Enqueue(arguments) => return enqueue::enqueue(arguments.into()).await,
        Command::EnqueueRef(arguments) => return enqueue::enqueue(arguments.into()).await,
        Command::Image(ImageCommand::Build(arguments)) => return image::build(arguments).await,
        Command::Promote(arguments) => return queue::promote(arguments).await,
        Command::ManageEvents(arguments) => events::manage(arguments).await?,
        Command::Dequeue(arguments) => return queue::dequeue(arguments).await,
        Command::Autohold(arguments) => autohold::ask(arguments).await?,
        Command::AutoholdList(within) => autohold::list(within).await?,
        Command::AutoholdInfo(wanted) => autohold::info(wanted).await?,
        Command::AutoholdDelete(wanted) => autohold::delete(wanted).await?,
        Command::Executor(ExecutorArguments { state, slots, logs, allow_root, with_parent }) => {
            let lives =
                if with_parent { executor::Lives::WithItsParent } else { executor::Lives::Alone };
            executor::check_account(lives, allow_root)?;
            executor::run(state, slots, logs, lives).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says why nothing could be checked: that is no finding, and has an exit status of its own.
fn unchecked(error: anyhow::Error) -> ExitCode {
    eprintln!("sluice: {error:#}");
    ExitCode::from(2)
}
