//! What `sluice` may be asked, as it is typed and as its help tells, and what that means to the
//! commands.

use clap::{Args, Parser, Subcommand, ValueEnum};
use sluice_cli::commands::{
    Printed, autohold, connection, enqueue, events, image, queue, secret, show, up,
};
use sluice_cli::local::Endpoint;
use sluice_emulator::data::{Death, DeathError};
use std::path::PathBuf;

/// Gates changes: tests them in the state they will land on, and lands what passes.
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs the whole system on this machine until it is told to stop (Ctrl-C).
    ///
    /// Data services, functions, a forge with sample repositories, nodes and an executor: all on
    /// 127.0.0.1, all in one process tree, all state in one directory. A second start on the same
    /// directory goes on where the first one stopped.
    Up(UpArguments),
    /// Starts a system in a fresh directory, gates four changes, and shows what happens and why.
    ///
    /// Exit status 0 only if what had to land landed, as it was tested, and nothing was lost on the
    /// way.
    Demo(DemoArguments),
    /// Shows what is in the queues.
    ///
    /// Exit status 1 where a tenant could not be shown; the others are.
    Status(StatusArguments),
    /// Says what was decided about a change, or about a branch or tag, and why.
    Explain(ExplainArguments),
    /// Checks a repository's configuration, or the tenants' file, where it lies, without asking
    /// anybody.
    ///
    /// Exit status 0 without errors, 1 with some, 2 if it could not be checked. Without a snapshot
    /// of the tenant, names of other repositories are not checked.
    Check(CheckArguments),
    /// Shows the jobs that a change, a branch or a tag would run, and which definition said what.
    ///
    /// Exit status 0 with jobs, 1 where the configuration allows none, 2 if that could not be
    /// tried.
    Freeze(FreezeArguments),
    /// Looks at tenants, loads the main configuration, has configuration read again.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Adds connections to forges and clouds, and changes their secrets.
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// Encrypts values for a project's jobs, shows its public key, takes over a key pair; makes one
    /// when there is none.
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Shows what was set aside because nobody could read it: deliveries that are signed and
    /// malformed, broken messages.
    Quarantine {
        #[command(flatten)]
        data: Data,
        /// Shows the texts, too.
        #[arg(long)]
        text: bool,
        #[command(flatten)]
        printed: Printed,
    },
    /// Lets a frozen queue go on.
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Lets a frozen provider go on.
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Puts a change into a pipeline, as if an event had; what the pipeline requires counts as
    /// always.
    ///
    /// Exit status 0 once it may enter and its queue is told, 1 where it may not, 3 where that is
    /// not decided after a minute.
    Enqueue(enqueue::EnqueueArguments),
    /// Puts a branch or tag into a pipeline, as if it had been pushed.
    ///
    /// Exit status 0 once it may enter and its queue is told, 1 where it may not, 3 where that is
    /// not decided after a minute.
    EnqueueRef(enqueue::EnqueueRefArguments),
    /// Has images built that jobs of a tenant build.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Takes a change out of a pipeline, with those that it needs and that need it in turn; its
    /// builds are stopped.
    ///
    /// Exit status 0 once it has left, 1 where it is not there or left otherwise, 3 where its queue
    /// has not done it after a minute.
    Dequeue(queue::DequeueArguments),
    /// Moves changes to the front of their queue; what is behind is tested again.
    ///
    /// Exit status 0 once the queue has done it, 1 where they are not there or have left, 3 where
    /// it has not done it after a minute.
    Promote(queue::PromoteArguments),
    /// Keeps the nodes of builds of a job that fail, for somebody to look at.
    Autohold(autohold::AutoholdArguments),
    /// Lists the autohold requests of a tenant.
    AutoholdList(autohold::ListArguments),
    /// Shows an autohold request, with the nodes that are kept for it.
    AutoholdInfo(autohold::IdArguments),
    /// Deletes an autohold request; nodes that are kept for it are let go.
    AutoholdDelete(autohold::IdArguments),
    /// Holds events of a tenant back, or lets them go on: what is not named goes on.
    ManageEvents(events::ManageEventsArguments),
    /// Runs an executor against the services that the environment names (`SLUICE_TABLE`, …), as in
    /// its container.
    Executor(ExecutorArguments),
}

/// Where a local system keeps its state.
#[derive(Args, Clone)]
pub(crate) struct Data {
    /// Directory of a local system's state. [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FormatWord {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For forges and editors (2.1.0).
    Sarif,
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// The repository's directory, one file of configuration, or the tenants' file (`main.yaml`).
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// A snapshot of the tenant, as `sluice tenant snapshot` writes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) tenant: Option<PathBuf>,
    /// The project that the directory is. [default: the one of its name]
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// The branch that the directory is. [default: what is checked out, if the tenant knows it,
    /// else the default branch]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// How findings are printed.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: FormatWord,
}

#[derive(Args)]
pub(crate) struct FreezeArguments {
    /// The job; all of the project's jobs are told of without one.
    pub(crate) job: Option<String>,
    /// A repository's directory whose configuration counts. [default: the snapshot alone, else this
    /// directory]
    #[arg(long)]
    pub(crate) path: Option<PathBuf>,
    /// A snapshot of the tenant, as `sluice tenant snapshot` writes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) tenant: Option<PathBuf>,
    /// The pipeline.
    #[arg(long, default_value = "check")]
    pub(crate) pipeline: String,
    /// The project of the change.
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// The branch of the change. [default: what is checked out, if the tenant knows it, else the
    /// default branch]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// The tag that was pushed, in place of a change: `1.0` or refs/tags/1.0.
    #[arg(long, value_name = "NAME", conflicts_with = "branch")]
    pub(crate) tag: Option<String>,
    /// The branch that was pushed, or a whole ref as in refs/tags/1.0, in place of a change.
    #[arg(long = "ref", value_name = "REF", conflicts_with_all = ["branch", "tag"])]
    pub(crate) git_ref: Option<String>,
    /// A branch that has the tag's commit; can be given several times. [default: not known, and
    /// what any branch says is shown]
    #[arg(long = "on", value_name = "BRANCH", conflicts_with = "branch")]
    pub(crate) containing: Vec<String>,
    /// A path that the change touches; can be given several times. [default: everything is taken
    /// for touched]
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Prints for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LatencyWord {
    /// As fast as this machine.
    Local,
    /// About as slow as AWS within a region.
    Aws,
}

#[derive(Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Where pages, API and webhooks are served, on 127.0.0.1; the two ports above it are the
    /// forge's and the data services'.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000")]
    pub(crate) listen: std::net::SocketAddr,
    /// Runs each function, and the executor, as processes of their own, as AWS does.
    #[arg(long)]
    pub(crate) processes: bool,
    /// Uses another AWS-compatible endpoint for DynamoDB, S3, SQS and KMS; keys come from the
    /// environment.
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// What the names of table, bucket and queues at that endpoint begin with.
    #[arg(long, value_name = "NAME", default_value = "sluice", requires = "endpoint")]
    pub(crate) stack: String,
    /// How long data services take to answer.
    #[arg(long, value_enum, default_value = "local")]
    pub(crate) latency: LatencyWord,
    /// Seconds between two sweeps. [default: as the template says, 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) tick: Option<u64>,
    /// Minutes between two questions to the forge about open changes. [default: as the template
    /// says, 10]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) ask: Option<u64>,
    /// Kills somebody at a chosen call, to see that nothing is lost by it.
    ///
    /// `machine|caller|executor before|after CALLER:OPERATION[:TEXT] [COUNT]`, several with `;`
    /// between, one after the other: who dies like with `kill -9` (this process; the calling
    /// function's processes; the executor's), on which side of the call of that function, operation
    /// (`*`, or several with `|`) and texts in it (several with `+`), at which of those that fit.
    /// Example: `caller after launcher:RunInstances`. Functions and executors can be killed with
    /// --processes; what died is started again by itself, but for this process.
    #[arg(long, env = "SLUICE_KILL", value_name = "DEATHS", value_parser = read_deaths, verbatim_doc_comment)]
    pub(crate) kill: Option<Deaths>,
    /// Starts no forge and no sample repositories; connect your own with `sluice connection add`.
    #[arg(long)]
    pub(crate) no_forge: bool,
    /// Builds that run at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub(crate) slots: usize,
    /// Where people and the forge find the pages, if not at --listen: the address of a tunnel or
    /// proxy. Links in statuses begin with it, and pages answer by its name.
    #[arg(long, value_name = "URL")]
    pub(crate) web_root: Option<String>,
    /// Another template than the built-in infra/template.yaml.
    #[arg(long, value_name = "FILE")]
    pub(crate) template: Option<PathBuf>,
    /// Shows every line of the log on the terminal.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// A whole sequence is one argument.
#[derive(Clone)]
pub(crate) struct Deaths(pub(crate) Vec<Death>);

fn read_deaths(text: &str) -> Result<Deaths, DeathError> {
    sluice_emulator::data::read_deaths(text).map(Deaths)
}

#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Directory for the demo's state; what an earlier demo left there is removed. [default:
    /// ~/.local/share/sluice-demo]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Keeps the system running afterwards, until Ctrl-C.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Runs each function, and the executor, as processes of their own.
    #[arg(long)]
    pub(crate) processes: bool,
    /// How long data services take to answer.
    #[arg(long, value_enum, default_value = "local")]
    pub(crate) latency: LatencyWord,
    /// Builds that run at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub(crate) slots: usize,
}

/// Which system is asked.
#[derive(Args, Clone)]
pub(crate) struct Asked {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Address of the pages and the API. [default: the local system's]
    #[arg(long, env = "SLUICE_WEB", value_name = "URL")]
    pub(crate) api: Option<String>,
}

#[derive(Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Only this tenant.
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) narrowed: show::Narrowed,
    #[command(flatten)]
    pub(crate) printed: Printed,
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// The change: `org/project#7`, or its number alone; with --ref the project.
    pub(crate) change: String,
    /// The branch of that project, or a whole ref as in refs/tags/1.0: what became of its pushes.
    #[arg(long = "ref", value_name = "REF")]
    pub(crate) git_ref: Option<String>,
    /// Its tenant. [default: the only one there is]
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Says of one job which definitions made it what it is, which were left out, and why.
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum TenantCommand {
    /// Shows a tenant's projects, pipelines and configuration errors.
    Show {
        #[command(flatten)]
        asked: Asked,
        /// The tenant. [default: the only one there is]
        tenant: Option<String>,
        #[command(flatten)]
        printed: Printed,
    },
    /// Has a tenant's configuration read again from its repositories.
    Reload {
        #[command(flatten)]
        data: Data,
        /// Every tenant of the main configuration, one after the other.
        #[arg(long, conflicts_with = "tenant")]
        all: bool,
        /// The tenant.
        #[arg(required_unless_present = "all")]
        tenant: Option<String>,
    },
    /// Writes a tenant's configuration, as it is live, to a file that `sluice check` and
    /// `sluice freeze` read.
    Snapshot {
        #[command(flatten)]
        data: Data,
        /// The tenant.
        tenant: String,
        /// The file.
        file: PathBuf,
    },
    /// Stores a main configuration (tenants and their projects) after checking it, with the files
    /// beside it that it includes and the playbooks/ and roles/ of their jobs, and has every tenant
    /// of it read.
    Load {
        #[command(flatten)]
        data: Data,
        /// Removes tenants that the file leaves out; what is in their queues is dequeued.
        #[arg(long)]
        remove: bool,
        /// The file, in the form of Zuul's main.yaml.
        file: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum ConnectionCommand {
    /// Adds a connection, or changes one: what is not given stays. Secrets are read from standard
    /// input or files, never from arguments.
    Add(ConnectionAdd),
    /// Stores a new API token or webhook secret: the new token replaces the old one within a
    /// minute; the old webhook secret stays valid beside the new one until the next rotation.
    Rotate(ConnectionRotate),
    /// Forgets a connection and its secrets.
    Remove {
        #[command(flatten)]
        data: Data,
        /// The connection.
        name: String,
    },
    /// Lists connections, without their secrets.
    List {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        printed: Printed,
    },
}

#[derive(Args)]
pub(crate) struct ConnectionAdd {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Its name, as configuration refers to it.
    pub(crate) name: String,
    /// What is spoken there. [default: github]
    #[arg(long, value_enum)]
    pub(crate) driver: Option<connection::DriverWord>,
    /// The host in canonical project names. [default: the host of --git-url]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// The API, or the server of smtp (`smtps://HOST?from=A&to=B`) or mqtt. [default for github:
    /// https://api.github.com]
    #[arg(long, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// Where repositories are; a project's path is appended. [default for github:
    /// https://github.com]
    #[arg(long, value_name = "URL")]
    pub(crate) git_url: Option<String>,
    /// The login that the token acts as, or that belongs to the password. [default for github: the
    /// forge is asked]
    #[arg(long)]
    pub(crate) login: Option<String>,
    /// The region, for aws.
    #[arg(long)]
    pub(crate) region: Option<String>,
    /// How changes land, at GitHub; fast-forward needs a token that may push to the branches, past
    /// rules that would refuse a push. [default: as it was; merge for a new connection]
    #[arg(long, value_enum)]
    pub(crate) landing: Option<connection::LandingWord>,
    #[command(flatten)]
    pub(crate) secrets: ConnectionSecrets,
}

#[derive(Args)]
pub(crate) struct ConnectionRotate {
    #[command(flatten)]
    pub(crate) data: Data,
    /// The connection.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) secrets: ConnectionSecrets,
}

/// Secrets of a connection, which never stand in arguments themselves.
#[derive(Args)]
pub(crate) struct ConnectionSecrets {
    /// A file with the API token or the password; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with the webhook secret; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    webhook_secret_file: Option<PathBuf>,
    /// Stores the token without asking the forge whose it is.
    #[arg(long)]
    no_check: bool,
}

impl ConnectionSecrets {
    /// Returns where they are, and whether their forge is asked about them.
    pub(crate) fn read(self) -> (connection::SecretFiles, connection::Check) {
        let check =
            if self.no_check { connection::Check::Skipped } else { connection::Check::Asked };
        (
            connection::SecretFiles {
                token: self.token_file,
                webhook_secret: self.webhook_secret_file,
            },
            check,
        )
    }
}

#[derive(Subcommand)]
pub(crate) enum QueueCommand {
    /// Lets a queue go on that was frozen, after somebody looked: because something landed that was
    /// not what was tested, or because its records could not be decided on. `sluice status` says
    /// which queue is frozen, and why.
    Thaw {
        #[command(flatten)]
        data: Data,
        /// The tenant.
        tenant: String,
        /// The pipeline.
        pipeline: String,
        /// The queue, as `sluice status` names it.
        queue: String,
        /// What was found; it is kept with the change that stopped the queue, with your name.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum ProviderCommand {
    /// Lets a provider go on that was frozen because its records could not be decided on, after
    /// somebody mended them. `sluice status` says which provider is frozen, and why.
    Thaw {
        #[command(flatten)]
        data: Data,
        /// The provider, as `sluice status` names it.
        provider: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum ImageCommand {
    /// Runs now the jobs whose `image-build-name` is IMAGE, in each pipeline with the trigger
    /// `zuul: [{event: image-build}]`.
    ///
    /// The project that defines the image lists them. What they return is not stored as an image
    /// yet.
    ///
    /// Exit status 0 once a pipeline takes it in, 1 where none does, 3 where that is not decided
    /// after a minute.
    Build(image::BuildArguments),
}

#[derive(Args)]
pub(crate) struct ExecutorArguments {
    /// Where build directories and repositories are kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sluice")]
    pub(crate) state: PathBuf,
    /// Builds that run at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    pub(crate) slots: usize,
    /// Where live logs are served; the API function must reach it. Every address stands for the
    /// task's own on ECS, the instance's on EC2.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7900")]
    pub(crate) logs: std::net::SocketAddr,
    /// Runs although this is root: playbooks can then read root's files among those they are shown.
    #[arg(long)]
    pub(crate) allow_root: bool,
    /// Stops when standard input ends: then whoever started it is gone.
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

pub(crate) fn functions(processes: bool) -> sluice_cli::local::Functions {
    if processes {
        sluice_cli::local::Functions::Processes
    } else {
        sluice_cli::local::Functions::InProcess
    }
}

impl From<LatencyWord> for sluice_emulator::data::Latency {
    fn from(word: LatencyWord) -> Self {
        match word {
            LatencyWord::Local => Self::Local,
            LatencyWord::Aws => Self::Aws,
        }
    }
}

impl From<Asked> for show::Asked {
    fn from(asked: Asked) -> Self {
        Self { data: asked.data.data, api: asked.api }
    }
}

impl From<UpArguments> for up::Wanted {
    fn from(arguments: UpArguments) -> Self {
        Self {
            data: arguments.data.data,
            listen: arguments.listen,
            functions: functions(arguments.processes),
            endpoint: arguments.endpoint.map(|url| Endpoint { url, stack: arguments.stack }),
            latency: arguments.latency.into(),
            tick_seconds: arguments.tick,
            forge: !arguments.no_forge,
            slots: arguments.slots,
            template: arguments.template,
            ask_minutes: arguments.ask,
            deaths: arguments.kill.map(|deaths| deaths.0).unwrap_or_default(),
            web_root: arguments.web_root,
            verbose: arguments.verbose,
        }
    }
}

impl From<ConnectionAdd> for connection::Added {
    fn from(add: ConnectionAdd) -> Self {
        let (secrets, check) = add.secrets.read();
        Self {
            data: add.data.data,
            name: add.name,
            driver: add.driver,
            host: add.host,
            api_url: add.api_url,
            git_url: add.git_url,
            login: add.login,
            region: add.region,
            landing: add.landing,
            secrets,
            check,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L1.2: by hand, tenant and image are named, and nothing else is needed.
    #[test]
    fn an_image_is_built_by_the_names_of_its_tenant_and_its_own() {
        let read = |words: &[&str]| match Cli::try_parse_from(
            [&["sluice", "image"][..], words].concat(),
        ) {
            Ok(Cli { command: Command::Image(ImageCommand::Build(asked)) }) => {
                Some((asked.tenant, asked.image))
            }
            _ => None,
        };
        assert_eq!(
            read(&["build", "demo", "debian"]),
            Some(("demo".to_owned(), "debian".to_owned()))
        );
        for wrong in [
            &["build"][..],
            &["build", "demo"],
            &["build", "demo", "debian", "more"],
            &["demo", "debian"],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
