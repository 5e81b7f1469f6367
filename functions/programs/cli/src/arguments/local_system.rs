//! The commands that run a system or a part of it.

use clap::{Args, ValueEnum};
use sluice_executor_program::PlaybookOptions;
use sluice_local::{CallLatency, DeathError, DeliberateKill, Endpoint, Functions, up};
use std::path::PathBuf;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LatencyChoice {
    /// As fast as this machine
    Local,
    /// About as slow as AWS within a region
    Aws,
}

#[derive(Args)]
pub(crate) struct UpArguments {
    /// Data directory of the system [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address of the pages, the API and the webhooks, on 127.0.0.1; the forge and the data
    /// services use the next two ports
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000")]
    pub(crate) listen: std::net::SocketAddr,
    /// Run each function and the executor in separate processes, as on AWS
    #[arg(long)]
    pub(crate) processes: bool,
    /// Use another AWS-compatible endpoint for DynamoDB, S3, SQS and KMS; credentials come from the
    /// environment, where AWS_ENDPOINT_URL_DYNAMODB, _S3, _SQS and _KMS name another URL for one
    /// service
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Prefix of the names of the table, bucket and queues at that endpoint
    #[arg(long, value_name = "NAME", default_value = "sluice", requires = "endpoint")]
    pub(crate) stack: String,
    /// Response time of the data services
    #[arg(long, value_enum, default_value = "local")]
    pub(crate) latency: LatencyChoice,
    /// Seconds between two sweeps [default: 60, from the template]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) tick: Option<u64>,
    /// Minutes between two polls of the forge for open changes [default: 10, from the template]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) poll: Option<u64>,
    /// Fault injection for tests: kill a process at a chosen call, to see that nothing is lost
    ///
    /// `machine|caller|executor before|after CALLER:OPERATION[:TEXT] [COUNT]`, several separated by
    /// `;`. The victim (this process, the processes of the calling function, or the executor) is
    /// killed with `kill -9` before or after the COUNT-th matching call. A call matches by
    /// function, operation (`*`, or several separated by `|`) and texts in it (several separated by
    /// `+`). Example: `caller after launcher:RunInstances`. Killing functions and executors needs
    /// --processes. A killed function or executor is restarted; this process is not.
    #[arg(long, env = "SLUICE_KILL", value_name = "DEATHS", value_parser = parse_deaths, verbatim_doc_comment)]
    pub(crate) kill: Option<KillArgument>,
    /// Start no forge and no sample repositories; connect your own with `sluice connection add`
    #[arg(long)]
    pub(crate) no_forge: bool,
    /// Number of builds that run at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub(crate) slots: usize,
    /// Public address of the pages if it differs from --listen, such as a tunnel's or proxy's; used
    /// in links, and accepted as a host name
    #[arg(long, value_name = "URL")]
    pub(crate) web_root: Option<String>,
    /// Template to use instead of the built-in infra/template.yaml
    #[arg(long, value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,
    /// Print every log line to the terminal
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Only make the image of local nodes, if it is missing, and exit
    #[arg(long)]
    pub(crate) prepare_nodes: bool,
    #[command(flatten)]
    pub(crate) playbooks: PlaybookOptions,
}

/// The parsed value of `--kill`: a sequence of deaths, given as one argument.
#[derive(Clone)]
pub(crate) struct KillArgument(pub(crate) Vec<DeliberateKill>);

/// Parses the value of `--kill`: deliberate kills, separated by `;`. For clap.
fn parse_deaths(text: &str) -> Result<KillArgument, DeathError> {
    sluice_local::read_deaths(text).map(KillArgument)
}

#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Directory for the demo's state; the state of an earlier demo there is deleted [default:
    /// ~/.local/share/sluice-demo]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Keep the system running afterwards, until Ctrl-C
    #[arg(long)]
    pub(crate) keep: bool,
    /// Run each function and the executor in separate processes
    #[arg(long)]
    pub(crate) processes: bool,
    /// Use another AWS-compatible endpoint, as `sluice up` does; what the demo creates there has
    /// names of its own and is removed at the end
    #[arg(long, value_name = "URL", conflicts_with_all = ["processes", "latency"])]
    pub(crate) endpoint: Option<String>,
    /// Response time of the data services
    #[arg(long, value_enum, default_value = "local")]
    pub(crate) latency: LatencyChoice,
    /// Number of builds that run at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub(crate) slots: usize,
}

/// Returns where functions run, for the option `--processes`.
pub(crate) fn functions(processes: bool) -> Functions {
    if processes { Functions::Processes } else { Functions::InProcess }
}

impl From<LatencyChoice> for CallLatency {
    /// Converts the choice on the command line to the latency of the same name.
    fn from(choice: LatencyChoice) -> Self {
        match choice {
            LatencyChoice::Local => Self::Local,
            LatencyChoice::Aws => Self::Aws,
        }
    }
}

impl From<UpArguments> for up::UpArguments {
    /// Converts the command line of `sluice up` to its options: `--no-forge` becomes `forge:
    /// false`, and `--processes` decides where functions run. `--stack` counts only with
    /// `--endpoint`.
    fn from(arguments: UpArguments) -> Self {
        Self {
            data: arguments.data,
            listen: arguments.listen,
            functions: functions(arguments.processes),
            endpoint: arguments
                .endpoint
                .map(|url| Endpoint::from_environment(url, arguments.stack)),
            latency: arguments.latency.into(),
            tick_seconds: arguments.tick,
            forge: !arguments.no_forge,
            slots: arguments.slots,
            template: arguments.template,
            ask_minutes: arguments.poll,
            deaths: arguments.kill.map(|deaths| deaths.0).unwrap_or_default(),
            web_root: arguments.web_root,
            playbooks: arguments.playbooks,
            verbose: arguments.verbose,
        }
    }
}
