//! The whole system on one machine, in one process tree: data services, functions, forge, nodes,
//! executor.
//!
//! [`Local::start`] reads the same template as AWS does, starts what it names on loopback, stores
//! what an operator would store ([`seed`]) and returns once everything answers. All state is below
//! one data directory: what is started on it again goes on where it stopped.

mod calls;
mod desk;
mod elsewhere;
mod executor;
mod ground;
mod identity;
pub mod ledger;
mod logging;
mod seed;
mod services;

pub use calls::{CALLS_FILE, write_calls};
pub use desk::{DESK_FILE, Desk};
pub use ground::{end_nodes, free_port};
pub use identity::{CREDENTIALS_FILE, Identity, OWNER, REVIEWER, header_file};
pub use logging::{Loudness, log_to};
pub use seed::{CONFIG, CONNECTION, HOST, ONE, TENANT, TWO};

use crate::function::{Failure, Function, Name};
use crate::place::Place;
use anyhow::{Context as _, bail};
use bytes::Bytes;
use elsewhere::Elsewhere;
use executor::Executor;
use services::Services;
use sluice_emulator::data::{Death, Latency, Meter, Options as DataOptions, Victim};
use sluice_emulator::ec2::{Ec2, Options as Ec2Options};
use sluice_emulator::http::HostNames;
use sluice_emulator::lambda::{Handler, HandlerError, Print};
use sluice_emulator::machine::{Equipment, Form, Machine, MachineOptions, Make};
use sluice_emulator::sources::{AfterFailure, SourceOptions, Tick};
use sluice_local_forge::{Forge, Options as ForgeOptions};
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument as _;

/// The template that is used when none is named.
const TEMPLATE: &str = include_str!("../../../../infra/template.yaml");

/// Whether functions run in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Functions {
    /// In this one.
    InProcess,
    /// Each in processes of its own, spoken to as Lambda does; the executor too.
    Processes,
}

/// Data services that run elsewhere.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Where they answer.
    pub url: String,
    /// What names there begin with.
    pub stack: String,
}

/// How the system is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where all state is kept.
    pub data: PathBuf,
    /// Port of the pages, the API and the webhooks, on 127.0.0.1.
    pub port: u16,
    /// Whether functions run in this process.
    pub functions: Functions,
    /// Another endpoint for the data services; keys come from the environment.
    pub endpoint: Option<Endpoint>,
    /// Another template than the built-in one.
    pub template: Option<PathBuf>,
    /// How long data services take to answer.
    pub latency: Latency,
    /// Seconds between two sweeps; `None` as the template says.
    pub tick_seconds: Option<u64>,
    /// Whether a forge with sample repositories runs beside it.
    pub forge: bool,
    /// Builds that run at once.
    pub slots: usize,
    /// Minutes between two questions to a forge about a project's open changes; `None` as the
    /// template says.
    pub ask_minutes: Option<u64>,
    /// Who is killed at which calls, to see that nothing is lost by it.
    pub deaths: Vec<Death>,
    /// Where people find the pages, ending in `/`, when that is not the address on this machine.
    pub web_root: Option<String>,
}

/// A running system.
pub struct Local {
    services: Services,
    ec2: Ec2,
    forge: Option<Arc<Forge>>,
    executor: Executor,
    identity: Identity,
    operator: Ports,
    /// The address of the pages on this machine, whatever people call it.
    pages: String,
    data: PathBuf,
    _lock: File,
}

impl Local {
    /// Starts everything and returns when it answers.
    ///
    /// # Errors
    /// When something cannot be started; what was started before is stopped.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&options.data).with_context(|| {
            format!("could not make the data directory {}", options.data.display())
        })?;
        let data = options.data.canonicalize()?;
        // Tokens, sealed secrets with their key, and whatever builds leave: nobody else's business.
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700))?;
        let lock = lock(&data)?;
        check_deaths(&options)?;
        let ports = LocalPorts::free(options.port, options.forge)?;
        let identity = Identity::open(&data, ports.forge)?;
        let pages = format!("http://127.0.0.1:{}/", options.port);
        let ec2 = Ec2::open(Ec2Options::new(data.join("ec2")))
            .context("could not open the record of nodes")?;
        match Around::start(&options, &ports, &data, &identity, &ec2, &pages).await {
            Ok(Around { services, forge, executor, operator }) => Ok(Self {
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
                // The nodes of an earlier start came up meanwhile, and nobody would end them.
                ec2.shut_down().await;
                Err(error)
            }
        }
    }

    /// Returns the meter of the data services, if they are our own.
    pub fn meter(&self) -> Option<&Meter> {
        match &self.services {
            Services::Machine(machine) => Some(machine.data().meter()),
            Services::Elsewhere(_) => None,
        }
    }

    /// Returns the parts of the template that this machine ignores.
    pub fn ignored(&self) -> Vec<String> {
        self.services.plan().ignored()
    }

    /// Returns what of the template this machine provides in another way, a line each.
    pub fn elsewhere(&self) -> &[String] {
        self.services.plan().elsewhere()
    }

    /// Returns what of the template no single machine does, in short.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        self.services.plan().absent().keys().map(String::as_str)
    }

    /// Returns what is otherwise than on AWS, for people to read: what is provided in another way,
    /// and what is not done, by part of the template.
    pub fn otherwise(&self) -> String {
        let absent = self.services.plan().absent().iter();
        let absent = absent
            .flat_map(|(what, parts)| parts.iter().map(move |part| format!("{part}: {what}")));
        let text =
            |heading: &str, lines: Vec<String>| format!("{heading}\n\n{}\n", lines.join("\n"));
        format!(
            "{}\n{}",
            text("Provided in another way", self.elsewhere().to_vec()),
            text("Not on one machine", absent.collect())
        )
    }

    /// Returns where the data services answer.
    pub fn endpoint(&self) -> String {
        self.services.endpoint()
    }

    /// Returns the forge, if one runs.
    pub fn forge(&self) -> Option<&Arc<Forge>> {
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

    /// Returns where live logs are served; `None` when the executor is a process of its own.
    pub fn logs_address(&self) -> Option<SocketAddr> {
        self.executor.logs_address()
    }

    /// Stops everything, in an order in which nothing waits for what is gone already.
    pub async fn stop(self) {
        self.executor.stop().await;
        if let Some(forge) = self.forge.and_then(Arc::into_inner) {
            // Somebody may hold a connection open; what was acknowledged is on disk.
            let _ = tokio::time::timeout(Duration::from_secs(3), forge.stop()).await;
        }
        self.services.stop().await;
        self.ec2.shut_down().await;
    }
}

/// What stands around the nodes of a system.
struct Around {
    services: Services,
    forge: Option<Arc<Forge>>,
    executor: Executor,
    operator: Ports,
}

impl Around {
    /// Starts everything but the nodes.
    async fn start(
        options: &Options,
        ports: &LocalPorts,
        data: &Path,
        identity: &Identity,
        ec2: &Ec2,
        pages: &str,
    ) -> anyhow::Result<Self> {
        let web_root = options.web_root.clone().unwrap_or_else(|| pages.to_owned());
        let wishes = MachineWishes::new(options, ports, data, &web_root)?;
        let services = match &options.endpoint {
            Some(endpoint) => {
                Services::Elsewhere(Box::new(Elsewhere::start(endpoint, wishes, ec2).await?))
            }
            None => Services::Machine(Box::new(start_machine(options, wishes, ec2).await?)),
        };
        let operator = services.operator(data.join("cache/operator")).await?.ports;
        let forge = match options.forge {
            true => Some(Arc::new(start_forge(data, identity, pages).await?)),
            false => None,
        };
        let address = forge.as_ref().map(|forge| forge.web_url().to_owned());
        let environment = services.operator_environment()?;
        Desk { environment, web_root: pages.to_owned(), forge: address }.write(data)?;
        seed::store(&operator, identity, forge.as_deref(), services.nodes_url()).await?;
        let executor = Executor::start(options, &services, data, &web_root).await?;
        Ok(Self { services, forge, executor, operator })
    }
}

/// Refuses deaths that nobody could die here.
fn check_deaths(options: &Options) -> anyhow::Result<()> {
    if options.deaths.is_empty() {
        return Ok(());
    }
    if options.endpoint.is_some() {
        bail!(
            "calls to another endpoint are not seen here, so nobody can be killed at one: leave out --kill or --endpoint"
        );
    }
    let apart = options.deaths.iter().find(|death| death.victim != Victim::Machine);
    if let (Functions::InProcess, Some(death)) = (options.functions, apart) {
        bail!(
            "to try the death `{death}` functions and executor must be processes of their own: add --processes"
        );
    }
    Ok(())
}

/// Sees to it that one system at a time works on a data directory.
pub(crate) fn lock(data: &Path) -> anyhow::Result<File> {
    let path = data.join("lock");
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("could not open {}", path.display()))?;
    if file.try_lock().is_err() {
        bail!(
            "another sluice works on {} already; stop it, or name another directory with --data",
            data.display()
        );
    }
    Ok(file)
}

/// The three ports of a system, one above the other: pages, API and webhooks; the forge; the data
/// services.
struct LocalPorts {
    pages: u16,
    forge: u16,
    services: u16,
}

impl LocalPorts {
    /// Returns the ports from `first` on when nobody listens there: asked before anything is
    /// written that names them.
    fn free(first: u16, with_forge: bool) -> anyhow::Result<Self> {
        if first == 0 {
            bail!("name a port, not 0: the address is written down for commands and webhooks");
        }
        let above = |more: u16| {
            first.checked_add(more).context("the port is too high: two more are needed above it")
        };
        let ports = Self { pages: first, forge: above(1)?, services: above(2)? };
        let wanted = [
            (ports.pages, "pages and API"),
            (ports.services, "data services"),
            (ports.forge, "forge"),
        ];
        for (port, what) in wanted.into_iter().take(if with_forge { 3 } else { 2 }) {
            if let Err(error) = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                bail!(
                    "port {port} of 127.0.0.1, for {what}, cannot be used ({error}): name three free ones in a row by the first, `--listen 127.0.0.1:PORT`"
                );
            }
        }
        Ok(ports)
    }
}

/// What both forms of data services need to know.
struct MachineWishes<'a> {
    data: &'a Path,
    template: PathBuf,
    parameters: BTreeMap<String, String>,
    port: u16,
    /// By which names pages and API answer.
    names: HostNames,
    nodes_port: u16,
    sources: SourceOptions,
}

impl<'a> MachineWishes<'a> {
    fn new(
        options: &Options,
        ports: &LocalPorts,
        data: &'a Path,
        web_root: &str,
    ) -> anyhow::Result<Self> {
        let template = match &options.template {
            Some(path) => path.clone(),
            None => {
                let path = data.join("template.yaml");
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
            names: names(web_root),
            nodes_port: ports.services,
            sources: SourceOptions {
                // Somebody watches: what failed comes again soon, and what a killed machine worked
                // on too.
                after_failure: AfterFailure::Within(Duration::from_secs(1)),
                tick: options.tick_seconds.map_or(Tick::AsPlanned, |seconds| {
                    Tick::Every(Duration::from_secs(seconds.max(1)))
                }),
            },
        })
    }
}

/// Returns the names by which pages and API answer: where people are told that the pages are.
/// Webhooks come by any, as a tunnel has it: they are signed.
fn names(web_root: &str) -> HostNames {
    let names = HostNames::default().with_function(Name::Webhook.word());
    let root = url::Url::parse(web_root).ok();
    match root.as_ref().and_then(url::Url::host_str) {
        Some(host) => names.with(host),
        None => names,
    }
}

async fn start_machine(
    options: &Options,
    wishes: MachineWishes<'_>,
    ec2: &Ec2,
) -> anyhow::Result<Machine> {
    let functions = match options.functions {
        Functions::InProcess => Form::InProcess(maker(wishes.data.join("cache"))),
        Functions::Processes => Form::Processes { binary: beside_us("bootstrap")?, print: print() },
    };
    let options_of_machine = MachineOptions {
        data_directory: wishes.data.to_owned(),
        template: wishes.template,
        parameters: wishes.parameters,
        data_port: wishes.nodes_port,
        http_port: wishes.port,
        http_names: wishes.names,
        data: DataOptions { deaths: options.deaths.clone(), ..DataOptions::default() },
        sources: wishes.sources,
        extras: vec![("ec2".to_owned(), Arc::new(ec2.clone()))],
        functions,
    };
    let machine =
        Machine::start(options_of_machine).await.context("could not start the machine")?;
    machine.data().faults().set_latency(options.latency);
    Ok(machine)
}

/// Returns what makes each function of the template inside this program, with its own keys.
fn maker(cache: PathBuf) -> Make {
    Arc::new(move |equipment: Equipment| {
        let cache = cache.join(&equipment.id);
        Box::pin(async move {
            let name: Name =
                equipment.id.parse().map_err(|failure: Failure| failure.to_string())?;
            let place =
                Place::beside(&equipment, cache).await.map_err(|error| error.to_string())?;
            Ok(handler(name, place))
        })
    })
}

/// Returns a function as the machine calls it; its lines carry its name.
fn handler(name: Name, place: Place) -> Handler {
    let function = Arc::new(Function::new(name, place));
    Arc::new(move |payload: Bytes| {
        let (function, span) =
            (function.clone(), tracing::info_span!("function", name = name.word()));
        let answer = async move {
            let answer = function.answer(&payload).await;
            answer.map(Bytes::from).map_err(|failure| HandlerError {
                kind: failure.kind.to_owned(),
                message: failure.message,
            })
        };
        Box::pin(answer.instrument(span))
    })
}

/// Returns a program that was built with this one.
fn beside_us(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("could not find this program's own file")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!("there is no {}: build it with `cargo build -p sluice-cli --bins`", path.display());
    }
    Ok(path)
}

/// Lines of function processes go where our own go.
fn print() -> Print {
    Arc::new(|function, line| tracing::info!(function, "{line}"))
}

async fn start_forge(data: &Path, identity: &Identity, web_root: &str) -> anyhow::Result<Forge> {
    let hook = format!("{web_root}api/connection/{CONNECTION}/payload");
    let options = ForgeOptions {
        root: data.join("forge"),
        port: identity.forge_port,
        accounts: identity.accounts(),
        first_hook: Some((hook.clone(), identity.webhook_secret.clone())),
    };
    identity.write_for_people(data)?;
    let forge = Forge::start(options).await.context("could not start the forge")?;
    // Repositories of an earlier start tell it the address that the pages had then.
    let moved = forge.move_hooks(&format!("/api/connection/{CONNECTION}/payload"), &hook)?;
    if moved > 0 {
        tracing::warn!(
            hooks = moved,
            address = web_root,
            "the pages have another address than before: webhooks follow"
        );
    }
    Ok(forge)
}
