//! The whole system on one machine, in one process tree: data services, functions, forge, nodes and
//! executor.
//!
//! [`Local::start`] reads the same template as AWS, starts its resources on loopback, stores the
//! initial configuration ([`seed`]), and returns once everything answers. All state is in one data
//! directory; starting on it again resumes. [`up`] runs it for a user, [`demo`] plays a scenario on
//! it.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod audit;
mod call_report;
pub mod demo;
mod environment;
mod executor;
mod external_services;
mod identity;
mod logging;
mod output;
mod ports;
mod seed;
mod services;
pub mod up;

pub use call_report::{CALLS_FILE, write_calls};
pub use identity::{CREDENTIALS_FILE, Identity, OWNER, REVIEWER, header_file};
pub use logging::{Verbosity, log_to};
pub use ports::{free_port, remove_nodes};
pub use seed::{CONFIG, ONE, TENANT, TWO};
pub use sluice_emulator::data::{CallLatency, DeathError, DeliberateKill, read_deaths};
pub use sluice_operator::operator_access::CONNECTION;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use executor::LocalExecutor;
use external_services::ExternalServices;
use output::print_progress;
use services::Services;
use sluice_aws::endpoint::DataEndpoint;
use sluice_emulator::data::{DataOptions, Meter, Victim};
use sluice_emulator::ec2::{Ec2, Ec2Options, Isolation, NodeError};
use sluice_emulator::http::HostNames;
use sluice_emulator::lambda::{Handler, HandlerError, Print};
use sluice_emulator::machine::{Equipment, Form, LocalMachine, MachineOptions, Make};
use sluice_emulator::sources::{AfterFailure, SourceOptions, Tick};
use sluice_executor_program::PlaybookOptions;
use sluice_handler::FunctionEnvironment;
use sluice_handler::{FunctionName, InvocationError, LambdaProgram};
use sluice_local_forge::{ForgeOptions, LocalForge};
use sluice_operator::operator_access::OperatorAccess;
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument as _;

/// The built-in template.
const TEMPLATE: &str = include_str!("../../../../infra/template.yaml");
/// Its copy in the data directory.
const TEMPLATE_FILE: &str = "template.yaml";

/// Where functions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Functions {
    /// In this process.
    InProcess,
    /// Each function in processes of its own, invoked as Lambda does; also the executor.
    Processes,
}

/// Another AWS-compatible endpoint for the data services.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The addresses of the services.
    pub services: DataEndpoint,
    /// The prefix of resource names there.
    pub stack: String,
}

impl Endpoint {
    /// Returns the endpoint at a URL, whose resource names begin with `stack`. The environment
    /// variables `AWS_ENDPOINT_URL_DYNAMODB`, `_S3`, `_SQS` and `_KMS` name other URLs for single
    /// services.
    #[must_use]
    pub fn from_environment(url: String, stack: String) -> Self {
        let services = DataEndpoint::from_variables(url, |name| std::env::var(name).ok());
        Self { services, stack }
    }
}

/// How to start a local system.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The directory of all state.
    pub data: PathBuf,
    /// The port of the pages, the API and the webhooks, on 127.0.0.1.
    pub port: u16,
    /// Where functions run.
    pub functions: Functions,
    /// Another endpoint for the data services; credentials come from the environment.
    pub endpoint: Option<Endpoint>,
    /// A template to use instead of the built-in one.
    pub template: Option<PathBuf>,
    /// The response time of the data services.
    pub latency: CallLatency,
    /// Seconds between two sweeps; `None` takes the template's value.
    pub tick_seconds: Option<u64>,
    /// Whether to start the local forge with sample repositories.
    pub forge: bool,
    /// The number of builds that run at once.
    pub slots: usize,
    /// Minutes between two polls of a forge for a project's open changes; `None` takes the
    /// template's value.
    pub ask_minutes: Option<u64>,
    /// Fault injection: which processes are killed at which calls.
    pub deaths: Vec<DeliberateKill>,
    /// The public address of the pages, ending in `/`, if it differs from the local one.
    pub web_root: Option<String>,
    /// What playbooks find on this machine, and reach from it.
    pub playbooks: PlaybookOptions,
}

/// A running local system.
pub struct Local {
    services: Services,
    ec2: Ec2,
    forge: Option<Arc<LocalForge>>,
    executor: LocalExecutor,
    identity: Identity,
    operator: Ports,
    /// The address of the pages on this machine, whatever their public address is.
    pages: String,
    data: PathBuf,
    _lock: File,
}

impl Local {
    /// Starts everything and returns when it answers. The first time on this machine, makes the
    /// image of local nodes and prints each step of that. Creates the data directory, closes it to
    /// other users, and locks it until the system is dropped. Stores the access file for commands,
    /// and what is missing of the connections, sample repositories and main configuration. Starting
    /// on the same directory again resumes.
    ///
    /// # Errors
    /// When something cannot be started, or the image of local nodes cannot be made; everything
    /// else is stopped again.
    pub async fn start(options: LocalOptions) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&options.data).with_context(|| {
            format!("could not create the data directory {}", options.data.display())
        })?;
        let data = options.data.canonicalize()?;
        // The directory has tokens, encrypted secrets with their key, and the builds' files.
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700))?;
        let lock = lock(&data)?;
        check_fault_options(&options)?;
        let ports = LocalPorts::free(options.port, options.forge)?;
        let identity = Identity::open(&data, ports.forge)?;
        let pages = format!("http://127.0.0.1:{}/", options.port);
        let isolation = isolation(prepare_nodes().await)?;
        let ec2 = Ec2::open(Ec2Options { isolation, ..Ec2Options::new(data.join("ec2")) })
            .context("could not open the state of the nodes")?;
        match Components::start(&options, &ports, &data, &identity, &ec2, &pages).await {
            Ok(Components { services, forge, executor, operator }) => Ok(Self {
                services,
                ec2,
                forge,
                executor,
                identity,
                operator,
                pages,
                data,
                _lock: lock,
            }),
            Err(error) => {
                // The nodes of an earlier start are running again, and would otherwise never end.
                ec2.shut_down().await;
                Err(error)
            }
        }
    }

    /// Returns the cost meter, which counts the calls to the data services. `None` with another
    /// endpoint.
    pub fn meter(&self) -> Option<&Meter> {
        match &self.services {
            Services::Machine(machine) => Some(machine.data().meter()),
            Services::ExternalServices(_) => None,
        }
    }

    /// Returns the properties of the template that this machine ignores, one line each. Empty for
    /// the built-in template.
    pub fn ignored(&self) -> Vec<String> {
        self.services.plan().ignored()
    }

    /// Returns the parts of the template that this machine provides differently, one line each with
    /// how.
    pub fn elsewhere(&self) -> &[String] {
        self.services.plan().elsewhere()
    }

    /// Returns the short names of what the template has and one machine cannot provide, each once
    /// and sorted.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        self.services.plan().absent().keys().map(String::as_str)
    }

    /// Returns a text for people about the differences to AWS, by part of the template: what is
    /// provided differently, and what is not available.
    pub fn differences(&self) -> String {
        let absent = self.services.plan().absent().iter();
        let absent = absent
            .flat_map(|(what, parts)| parts.iter().map(move |part| format!("{part}: {what}")));
        let text =
            |heading: &str, lines: Vec<String>| format!("{heading}\n\n{}\n", lines.join("\n"));
        format!(
            "{}\n{}",
            text("Provided differently", self.elsewhere().to_vec()),
            text("Not available on one machine", absent.collect())
        )
    }

    /// Returns the address of the data services: those of this machine, or the other endpoint.
    pub fn endpoint(&self) -> String {
        self.services.endpoint()
    }

    /// Returns the local forge, if it runs.
    pub fn forge(&self) -> Option<&Arc<LocalForge>> {
        self.forge.as_ref()
    }

    /// Returns the accounts of the forge.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns ports with an operator's rights.
    pub fn operator(&self) -> &Ports {
        &self.operator
    }

    /// Returns the directory of all state.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the address of the pages on this machine, ending in `/`.
    pub fn pages(&self) -> &str {
        &self.pages
    }

    /// Returns a text for people, one line: what local nodes have of their own, and what they share
    /// with this machine and why. Blocks for a moment, to try what this machine allows.
    pub fn isolation_of_nodes(&self) -> String {
        self.ec2.isolation()
    }

    /// Stops everything: executor, forge, functions and data services, then nodes. Running builds
    /// are retried after the next start. The forge is not stopped while a caller holds a copy of
    /// [`Self::forge`], and gets 3 seconds otherwise.
    pub async fn stop(self) {
        self.executor.stop().await;
        if let Some(forge) = self.forge.and_then(Arc::into_inner) {
            // A client may keep a connection open; acknowledged writes are on disk.
            let _ = tokio::time::timeout(Duration::from_secs(3), forge.stop()).await;
        }
        self.services.stop().await;
        self.ec2.shut_down().await;
    }
}

/// Makes the image of local nodes if it is missing, which takes about a minute and is printed step
/// by step.
///
/// # Errors
/// When this machine allows sandboxes only, or the image cannot be made; the text says what to do.
pub async fn prepare_nodes() -> Result<(), NodeError> {
    let prepare =
        || sluice_emulator::ec2::prepare(&Ec2Options::new(""), &|line| print_progress!("{line}"));
    match tokio::task::spawn_blocking(prepare).await {
        Ok(prepared) => prepared,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Returns how far nodes are separated from this machine, by how the preparation of their image
/// ended. Nodes are sandboxes where this machine lacks what machines need, and
/// [`Local::isolation_of_nodes`] says so. An image that only failed is an error: sandboxes read this
/// machine's files, which a broken download must not permit.
fn isolation(prepared: Result<(), NodeError>) -> Result<Isolation, NodeError> {
    match prepared {
        Ok(()) => Ok(Isolation::Full),
        Err(error @ NodeError::ImageFailed { .. }) => Err(error),
        Err(error) => Ok(Isolation::Sandbox { why: error.to_string() }),
    }
}

/// The parts of a system other than its nodes.
struct Components {
    services: Services,
    forge: Option<Arc<LocalForge>>,
    executor: LocalExecutor,
    operator: Ports,
}

impl Components {
    /// Starts data services, functions, forge and executor, writes the access file, and stores what
    /// is missing of the initial configuration. `ec2` must be open. `pages` is the local address of
    /// the pages, the address in webhooks. An error leaves the nodes running.
    async fn start(
        options: &LocalOptions,
        ports: &LocalPorts,
        data: &Path,
        identity: &Identity,
        ec2: &Ec2,
        pages: &str,
    ) -> anyhow::Result<Self> {
        let web_root = options.web_root.clone().unwrap_or_else(|| pages.to_owned());
        let settings = MachineSettings::new(options, ports, data, &web_root)?;
        let services = match &options.endpoint {
            Some(endpoint) => Services::ExternalServices(Box::new(
                ExternalServices::start(endpoint, settings, ec2).await?,
            )),
            None => Services::Machine(Box::new(start_machine(options, settings, ec2).await?)),
        };
        let operator = services.operator(data.join("cache/operator")).await?.ports;
        let forge = match options.forge {
            true => Some(Arc::new(start_forge(data, identity, pages).await?)),
            false => None,
        };
        let address = forge.as_ref().map(|forge| forge.web_url().to_owned());
        let environment = services.operator_environment()?;
        OperatorAccess { environment, web_root: pages.to_owned(), forge: address }.write(data)?;
        seed::store(&operator, identity, forge.as_deref(), services.nodes_url()).await?;
        let executor = LocalExecutor::start(options, &services, data, &web_root).await?;
        Ok(Self { services, forge, executor, operator })
    }
}

/// Returns an error if `--kill` is impossible with the other options: always with `--endpoint`; for
/// functions or the executor also without `--processes`. Without faults to inject there is no
/// error.
fn check_fault_options(options: &LocalOptions) -> anyhow::Result<()> {
    if options.deaths.is_empty() {
        return Ok(());
    }
    if options.endpoint.is_some() {
        bail!(
            "could not use --kill with --endpoint: calls to another endpoint are not intercepted; omit one of them"
        );
    }
    let separate_death = options.deaths.iter().find(|death| death.victim != Victim::Machine);
    if let (Functions::InProcess, Some(death)) = (options.functions, separate_death) {
        bail!(
            "could not use --kill `{death}`: functions and the executor must run in separate processes; add --processes"
        );
    }
    Ok(())
}

/// Locks a data directory, so that only one system at a time uses it, until the returned file is
/// dropped. Does not wait: an error if another process holds the lock. The directory must exist.
pub(crate) fn lock(data: &Path) -> anyhow::Result<File> {
    let path = data.join("lock");
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("could not open {}", path.display()))?;
    if file.try_lock().is_err() {
        bail!(
            "another sluice is using {}; stop it, or name another directory with --data",
            data.display()
        );
    }
    Ok(file)
}

/// The three consecutive ports of a system: pages, API and webhooks; forge; data services.
struct LocalPorts {
    pages: u16,
    forge: u16,
    services: u16,
}

impl LocalPorts {
    /// Returns three consecutive ports from `first` on, after checking that they are free on
    /// 127.0.0.1; the one for the forge is checked only with a forge. They are not reserved. An
    /// error for a port in use, for port 0, and if there are not two ports after the first. Call
    /// this before the ports are written to any file.
    fn free(first: u16, with_forge: bool) -> anyhow::Result<Self> {
        if first == 0 {
            bail!(
                "could not use port 0: the address is stored for commands and webhooks; give a port"
            );
        }
        let above = |more: u16| {
            first.checked_add(more).context("could not use this port: two more are needed after it")
        };
        let ports = Self { pages: first, forge: above(1)?, services: above(2)? };
        let required = [
            (ports.pages, "pages and API"),
            (ports.services, "data services"),
            (ports.forge, "forge"),
        ];
        for (port, what) in required.into_iter().take(if with_forge { 3 } else { 2 }) {
            if let Err(error) = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                bail!(
                    "could not use port {port} of 127.0.0.1 for {what} ({error}): give the first of three free consecutive ports with `--listen 127.0.0.1:PORT`"
                );
            }
        }
        Ok(ports)
    }
}

/// The settings that both kinds of data services need.
struct MachineSettings<'a> {
    data: &'a Path,
    template: PathBuf,
    parameters: BTreeMap<String, String>,
    port: u16,
    /// The host names at which the pages and the API answer.
    host_names: HostNames,
    nodes_port: u16,
    sources: SourceOptions,
}

impl<'a> MachineSettings<'a> {
    /// Returns the settings. Without a template in the options, writes the built-in one to
    /// `template.yaml` in the data directory. `web_root` is the public address of the pages. A tick
    /// of 0 seconds becomes one second.
    fn new(
        options: &LocalOptions,
        ports: &LocalPorts,
        data: &'a Path,
        web_root: &str,
    ) -> anyhow::Result<Self> {
        let template = match &options.template {
            Some(path) => path.clone(),
            None => {
                let path = data.join(TEMPLATE_FILE);
                std::fs::write(&path, TEMPLATE)
                    .with_context(|| format!("could not write {}", path.display()))?;
                path
            }
        };
        Ok(Self {
            data,
            template,
            parameters: [("WebRoot".to_owned(), web_root.to_owned())]
                .into_iter()
                .chain(
                    options
                        .ask_minutes
                        .map(|minutes| ("AskMinutes".to_owned(), minutes.to_string())),
                )
                .collect(),
            port: ports.pages,
            host_names: host_names(web_root),
            nodes_port: ports.services,
            sources: SourceOptions {
                // Failed messages, and those of a killed machine, are redelivered soon, because a
                // user is waiting.
                after_failure: AfterFailure::Within(Duration::from_secs(1)),
                tick: options.tick_seconds.map_or(Tick::AsPlanned, |seconds| {
                    Tick::Every(Duration::from_secs(seconds.max(1)))
                }),
            },
        })
    }
}

/// Returns the host names at which the pages and the API answer: those of this machine, and that of
/// the public address. Webhooks are accepted for any host name, because they are signed.
fn host_names(web_root: &str) -> HostNames {
    let host_names = HostNames::default().with_function(FunctionName::Webhook.as_str());
    let root = url::Url::parse(web_root).ok();
    match root.as_ref().and_then(url::Url::host_str) {
        Some(host) => host_names.with(host),
        None => host_names,
    }
}

/// Starts the emulator's machine: data services, functions and the HTTP front. Functions run in
/// this process or in processes of their own, as the options say. Also sets the latency and the
/// faults to inject.
async fn start_machine(
    options: &LocalOptions,
    settings: MachineSettings<'_>,
    ec2: &Ec2,
) -> anyhow::Result<LocalMachine> {
    let functions = match options.functions {
        Functions::InProcess => Form::InProcess(function_factory(settings.data.join("cache"))),
        Functions::Processes => {
            Form::Processes { program: Arc::new(function_program), print: line_printer() }
        }
    };
    let options_of_machine = MachineOptions {
        data_directory: settings.data.to_owned(),
        template: settings.template,
        parameters: settings.parameters,
        data_port: settings.nodes_port,
        http_port: settings.port,
        http_names: settings.host_names,
        data: DataOptions { deaths: options.deaths.clone(), ..DataOptions::default() },
        sources: settings.sources,
        extras: vec![("ec2".to_owned(), Arc::new(ec2.clone()))],
        functions,
    };
    let machine =
        LocalMachine::start(options_of_machine).await.context("could not start the machine")?;
    machine.data().faults().set_latency(options.latency);
    Ok(machine)
}

/// Returns the constructor of functions inside this process, each with its own credentials and its
/// own directory below `cache`. It fails for a function that is not one of Sluice.
fn function_factory(cache: PathBuf) -> Make {
    Arc::new(move |equipment: Equipment| {
        let cache = cache.join(&equipment.id);
        Box::pin(async move {
            let name: FunctionName =
                equipment.id.parse().map_err(|failure: InvocationError| failure.to_string())?;
            let environment = environment::in_process(&equipment, cache)
                .await
                .map_err(|error| error.to_string())?;
            handler(name, environment).map_err(|failure| failure.to_string())
        })
    })
}

/// Returns a function as a handler for the machine, from the library of its program on AWS. Log
/// lines of its calls have its name. Calls nothing before the first event.
fn handler(
    name: FunctionName,
    environment: FunctionEnvironment,
) -> Result<Handler, InvocationError> {
    let function = Arc::new(match name.program() {
        LambdaProgram::Functions => sluice_lambda::handler(name, environment)?,
        LambdaProgram::CloudFunctions => sluice_lambda_cloud::handler(name, environment)?,
    });
    Ok(Arc::new(move |payload: Bytes| {
        let (function, span) =
            (function.clone(), tracing::info_span!("function", name = name.as_str()));
        let answer = async move {
            let answer = function.answer(&payload).await;
            answer.map(Bytes::from).map_err(|failure| HandlerError {
                kind: failure.kind.to_owned(),
                message: failure.message,
            })
        };
        Box::pin(answer.instrument(span))
    }))
}

/// Returns the path of the program that has a function, in this program's directory. The error says
/// that there is no such function, or that the program is not built.
fn function_program(function: &str) -> Result<PathBuf, String> {
    let name: FunctionName =
        function.parse().map_err(|failure: InvocationError| failure.to_string())?;
    sibling_program(name.program().as_str()).map_err(|error| format!("{error:#}"))
}

/// Returns the path of another program in this program's directory. An error, which says how to
/// build it, if it is not there.
fn sibling_program(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("could not find the path of this program")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!("there is no program {}: build it with `cargo build --bins`", path.display());
    }
    Ok(path)
}

/// Returns the printer of function processes' output: each line goes to our own log at level info,
/// with the name of the function.
fn line_printer() -> Print {
    Arc::new(|function, line| tracing::info!(function, "{line}"))
}

/// Starts the local forge and writes the users' files for git and curl. Each new repository gets a
/// webhook to `pages`, the local address of the pages, which ends in `/`. If that address has
/// changed since the last start, moves the existing webhooks to it, with a warning in the log.
async fn start_forge(data: &Path, identity: &Identity, pages: &str) -> anyhow::Result<LocalForge> {
    let hook = format!("{pages}api/connection/{CONNECTION}/payload");
    let options = ForgeOptions {
        root: data.join("forge"),
        port: identity.forge_port,
        accounts: identity.accounts(),
        first_hook: Some((hook.clone(), identity.webhook_secret.clone())),
    };
    identity.write_user_files(data)?;
    let forge = LocalForge::start(options).await.context("could not start the forge")?;
    // The webhooks of an earlier start have an old address.
    let moved = forge.move_hooks(&format!("/api/connection/{CONNECTION}/payload"), &hook)?;
    if moved > 0 {
        tracing::warn!(
            hooks = moved,
            address = pages,
            "the address of the pages has changed; updated the forge's webhooks"
        );
    }
    Ok(forge)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C4: a failed download does not make nodes read this machine's files.
    #[test]
    fn nodes_are_sandboxes_only_where_this_machine_lacks_the_means() {
        let failed = NodeError::ImageFailed {
            name: "bookworm".to_owned(),
            directory: "/cache".to_owned(),
            why: "no network".to_owned(),
        };
        assert_eq!(isolation(Err(failed.clone())), Err(failed));
        let missing = NodeError::ProgramMissing { program: "unshare", package: "util-linux" };
        let why = missing.to_string();
        assert_eq!(isolation(Err(missing)), Ok(Isolation::Sandbox { why }));
        assert_eq!(isolation(Ok(())), Ok(Isolation::Full));
    }

    /// C1.1
    #[test]
    fn the_template_gives_each_function_the_program_that_has_it() {
        let value = |text: &'static str, key: &str| {
            text.lines().find_map(|line| line.trim().strip_prefix(key))
        };
        let code = |text: &'static str| value(text, "CodeUri: ../target/lambda/");
        let mut parts = TEMPLATE.split("Type: AWS::Serverless::Function");
        let common = code(parts.next().unwrap());
        let mut functions = 0;
        for part in parts {
            let name: FunctionName = value(part, "SLUICE_FUNCTION: ").unwrap().parse().unwrap();
            let program = code(part).or(common).and_then(|path| path.strip_suffix('/'));
            assert_eq!(program, Some(name.program().as_str()), "{name:?}");
            functions += 1;
        }
        assert_eq!(functions, FunctionName::ALL.len());
    }
}
