//! The command line of `sluice`: its commands and options with their help texts, and their
//! conversion into the options of the libraries that implement them.

use crate::kill_argument::{KillArgument, parse_deaths};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sluice_executor_program::ExecutorArguments;
use sluice_local::{CallLatency, Endpoint, Functions, up};
use sluice_operator::authenticator::{self, LoadUserInfo};
use sluice_operator::{
    FormatArgument, audit, autohold, connection, enqueue, events, image, queue, secret, show, token,
};
use std::path::PathBuf;

/// Gate changes: test each one in the state it will be merged in, and merge what passes
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the whole system on this machine until interrupted (Ctrl-C)
    ///
    /// Runs the data services, the functions, a forge with sample repositories, nodes and an
    /// executor on 127.0.0.1, in one process tree, with all state in one directory. Starting again
    /// on the same directory resumes where the last run stopped.
    Up(UpArguments),
    /// Start a system in a fresh directory, gate four changes, and show what happens and why
    ///
    /// Exits with 0 only if every change that should merge was merged exactly as tested and nothing
    /// was lost.
    Demo(DemoArguments),
    /// Show what is in the queues
    ///
    /// Exits with 1 if a tenant could not be shown; the others are shown anyway.
    Status(StatusArguments),
    /// Explain what was decided about a change, branch or tag, and why
    Explain(ExplainArguments),
    /// Check the configuration of a repository, or the main configuration, offline
    ///
    /// Exits with 0 if there are no errors, 1 if there are, 2 if the check could not run. Without a
    /// snapshot of the tenant, names defined in other repositories are not checked.
    Check(CheckArguments),
    /// Show the jobs that would run for a change, branch or tag, and which definition set what
    ///
    /// Exits with 0 if there are jobs, 1 if the configuration allows none, 2 if this could not be
    /// tried.
    Freeze(FreezeArguments),
    /// Show tenants, load the main configuration, reload a tenant's configuration
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Add, change, show, list and remove connections to forges, clouds, mail servers and brokers
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// Add, list and remove authenticators, which accept the tokens of users of the API
    #[command(subcommand)]
    Authenticator(AuthenticatorCommand),
    /// Print a token for a user of the API, signed with the secret of an authenticator
    Token(token::TokenArguments),
    /// Show who changed what in a tenant, over the API or with `sluice`
    Audit(audit::AuditArguments),
    /// Encrypt secrets for a project, show its public key, import a key pair (a missing pair is
    /// generated)
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Show unreadable messages that were set aside: signed but malformed webhooks, damaged queue
    /// messages
    Quarantine {
        #[command(flatten)]
        data: Data,
        /// Also show the content of each message
        #[arg(long)]
        text: bool,
        #[command(flatten)]
        printed: FormatArgument,
    },
    /// Resume a halted queue
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Resume a halted provider
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Enqueue a change in a pipeline, as if an event had; the pipeline's requirements still apply
    ///
    /// Exits with 0 once the change is accepted, 1 if it is rejected, 3 if there is no decision
    /// within a minute.
    Enqueue(enqueue::EnqueueArguments),
    /// Enqueue a branch or tag in a pipeline, as if it had been pushed
    ///
    /// Exits with 0 once the ref is accepted, 1 if it is rejected, 3 if there is no decision within
    /// a minute.
    EnqueueRef(enqueue::EnqueueRefArguments),
    /// Build the images that a tenant's jobs build
    #[command(subcommand)]
    Image(ImageCommand),
    /// Dequeue a change, with its dependencies' bundle if it is in one; its builds are stopped
    ///
    /// Exits with 0 once the change has left, 1 if it is not queued or left for another reason, 3
    /// if the queue has not acted within a minute.
    Dequeue(queue::DequeueArguments),
    /// Move changes to the front of their queue; the changes behind them are tested again
    ///
    /// Exits with 0 once the queue has moved them, 1 if they are not queued or have left, 3 if the
    /// queue has not acted within a minute.
    Promote(queue::PromoteArguments),
    /// Hold the nodes of failed builds of a job for debugging
    Autohold(autohold::AutoholdArguments),
    /// List the autohold requests of a tenant
    AutoholdList(autohold::ListArguments),
    /// Show an autohold request and the nodes held for it
    AutoholdInfo(autohold::IdArguments),
    /// Delete an autohold request and release the nodes held for it
    AutoholdDelete(autohold::IdArguments),
    /// Pause, discard or resume the events of a tenant; options that are not given are resumed
    ManageEvents(events::ManageEventsArguments),
    /// Run an executor against the services named in the environment (`SLUICE_TABLE`, …), as its
    /// container does
    Executor(ExecutorArguments),
}

#[derive(Subcommand)]
pub(crate) enum AuthenticatorCommand {
    /// Add an authenticator, or replace the one of this name. Secrets are read from files or
    /// standard input, never from arguments
    Add(Box<AuthenticatorAdd>),
    /// Remove an authenticator and its secret; its tokens are refused
    Remove {
        #[command(flatten)]
        data: Data,
        /// Authenticator
        name: String,
    },
    /// List authenticators, without their secrets
    List {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        printed: FormatArgument,
    },
}

/// The options of an authenticator are those of Zuul's `[auth NAME]` sections.
#[derive(Args)]
pub(crate) struct AuthenticatorAdd {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Name of the authenticator
    pub(crate) name: String,
    /// How tokens are signed: with a shared secret, an RSA key, or by an OpenID provider
    #[arg(long, value_enum)]
    pub(crate) driver: authenticator::AuthenticatorDriverArgument,
    /// Realm, as users see it [default: the name]
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// Client for which users log in
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: String,
    /// Audience: the `aud` claim of tokens must have it [default: the client's id]
    #[arg(long, value_name = "ID")]
    pub(crate) audience: Option<String>,
    /// Address at which users log in [default: the issuer]
    #[arg(long, value_name = "URL")]
    pub(crate) authority: Option<String>,
    /// Issuer: the `iss` claim of tokens; with OpenID Connect, the provider's address
    #[arg(long, value_name = "ID")]
    pub(crate) issuer_id: String,
    /// Claim that identifies the user
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub(crate) uid_claim: String,
    /// Seconds after its issue for which a token is accepted [default: until it expires]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) max_validity_time: Option<u64>,
    /// Seconds by which the issuer's clock may differ
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) skew: u64,
    /// Log in with this authenticator on the pages
    #[arg(long)]
    pub(crate) default: bool,
    /// Let the claim `zuul.admin` of tokens make their bearer an administrator of the tenants it
    /// lists
    #[arg(long)]
    pub(crate) allow_authz_override: bool,
    /// File with the shared secret, of at least 32 characters, for hs256; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// File with the issuer's public key in PEM, for rs256
    #[arg(long, value_name = "FILE")]
    pub(crate) public_key_file: Option<PathBuf>,
    /// Address of the provider's keys [default: as its discovery document says]
    #[arg(long, value_name = "URL")]
    pub(crate) keys_url: Option<String>,
    /// What clients request of the provider
    #[arg(long, default_value = "openid profile")]
    pub(crate) scope: String,
    /// Do not read more about the user from the provider; the token says enough
    #[arg(long)]
    pub(crate) no_load_user_info: bool,
}

impl From<AuthenticatorAdd> for authenticator::AuthenticatorOptions {
    /// Converts the command line of `sluice authenticator add`. Opens no file and checks nothing.
    fn from(add: AuthenticatorAdd) -> Self {
        let load_user_info =
            if add.no_load_user_info { LoadUserInfo::No } else { LoadUserInfo::Yes };
        Self {
            data: add.data.data,
            name: add.name,
            driver: add.driver,
            realm: add.realm,
            client_id: add.client_id,
            audience: add.audience,
            authority: add.authority,
            issuer_id: add.issuer_id,
            uid_claim: add.uid_claim,
            max_validity_seconds: add.max_validity_time,
            skew_seconds: add.skew,
            is_default: add.default,
            allows_override: add.allow_authz_override,
            secret_file: add.secret_file,
            public_key_file: add.public_key_file,
            keys_url: add.keys_url,
            scope: add.scope,
            load_user_info,
        }
    }
}

/// Selects the data directory of a local system.
#[derive(Args, Clone)]
pub(crate) struct Data {
    /// Data directory of a local system [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FormatChoice {
    /// Human-readable text
    Text,
    /// JSON
    Json,
    /// SARIF 2.1.0, for forges and editors
    Sarif,
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// Directory of the repository, one configuration file, or the main configuration (`main.yaml`)
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Snapshot of the tenant, written by `sluice tenant snapshot`
    #[arg(long, value_name = "FILE")]
    pub(crate) tenant: Option<PathBuf>,
    /// Project that the directory belongs to [default: the project with the directory's name]
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// Branch of the directory [default: the branch checked out there if the tenant has it,
    /// otherwise the default branch]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: FormatChoice,
}

#[derive(Args)]
pub(crate) struct FreezeArguments {
    /// Job to show in detail [default: all jobs of the project, without details]
    pub(crate) job: Option<String>,
    /// Directory of a repository whose configuration is used [default: only the snapshot if one is
    /// given, otherwise this directory]
    #[arg(long)]
    pub(crate) path: Option<PathBuf>,
    /// Snapshot of the tenant, written by `sluice tenant snapshot`
    #[arg(long, value_name = "FILE")]
    pub(crate) tenant: Option<PathBuf>,
    /// Pipeline
    #[arg(long, default_value = "check")]
    pub(crate) pipeline: String,
    /// Project of the change
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// Branch of the change [default: the branch checked out there if the tenant has it, otherwise
    /// the default branch]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// Pushed tag to freeze jobs for instead of a change: `1.0` or refs/tags/1.0
    #[arg(long, value_name = "NAME", conflicts_with = "branch")]
    pub(crate) tag: Option<String>,
    /// Pushed branch, or full ref such as refs/tags/1.0, to freeze jobs for instead of a change
    #[arg(long = "ref", value_name = "REF", conflicts_with_all = ["branch", "tag"])]
    pub(crate) git_ref: Option<String>,
    /// Branch that contains the tag's commit; may be repeated [default: unknown; definitions of
    /// every branch are shown]
    #[arg(long = "on", value_name = "BRANCH", conflicts_with = "branch")]
    pub(crate) containing: Vec<String>,
    /// Path that the change modifies; may be repeated [default: every file counts as modified]
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum LatencyChoice {
    /// As fast as this machine
    Local,
    /// About as slow as AWS within a region
    Aws,
}

#[derive(Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(crate) data: Data,
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

/// Selects the system whose API is queried.
#[derive(Args, Clone)]
pub(crate) struct ApiArguments {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Address of the pages and the API [default: the local system's]
    #[arg(long, env = "SLUICE_WEB", value_name = "URL")]
    pub(crate) api: Option<String>,
}

#[derive(Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) system: ApiArguments,
    /// Show only this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) filter: show::StatusFilter,
    #[command(flatten)]
    pub(crate) printed: FormatArgument,
}

#[derive(Args)]
pub(crate) struct ExplainArguments {
    #[command(flatten)]
    pub(crate) system: ApiArguments,
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
pub(crate) enum TenantCommand {
    /// Show a tenant's projects, pipelines and configuration errors
    Show {
        #[command(flatten)]
        system: ApiArguments,
        /// Tenant [default: the only tenant]
        tenant: Option<String>,
        #[command(flatten)]
        printed: FormatArgument,
    },
    /// Reload a tenant's configuration from its repositories
    Reload {
        #[command(flatten)]
        data: Data,
        /// Reload every tenant of the main configuration, one after the other
        #[arg(long, conflicts_with = "tenant")]
        all: bool,
        /// Tenant
        #[arg(required_unless_present = "all")]
        tenant: Option<String>,
    },
    /// Write a tenant's live configuration to a file for `sluice check` and `sluice freeze`
    Snapshot {
        #[command(flatten)]
        data: Data,
        /// Tenant
        tenant: String,
        /// File to write
        file: PathBuf,
    },
    /// Check and store a main configuration (tenants and their projects), and reload all its
    /// tenants. Files that it includes, and playbooks/ and roles/ next to it, are stored too
    Load {
        #[command(flatten)]
        data: Data,
        /// Remove tenants that the file omits; their changes are dequeued
        #[arg(long)]
        remove: bool,
        /// File in the format of Zuul's main.yaml
        file: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum ConnectionCommand {
    /// Add a connection, or change the given options of an existing one. Secrets are read from
    /// files or standard input, never from arguments
    Add(Box<ConnectionAdd>),
    /// Store a new API token or webhook secret. The new token is used within a minute; the previous
    /// webhook secret stays valid until the next rotation
    Rotate(ConnectionRotate),
    /// Remove a connection and its secrets
    Remove {
        #[command(flatten)]
        data: Data,
        /// Connection
        name: String,
    },
    /// Show a connection, without its secrets: its address, and whose credentials it uses
    Show {
        #[command(flatten)]
        data: Data,
        /// Connection
        name: String,
        #[command(flatten)]
        printed: FormatArgument,
    },
    /// List connections, without their secrets
    List {
        #[command(flatten)]
        data: Data,
        #[command(flatten)]
        printed: FormatArgument,
    },
}

#[derive(Args)]
pub(crate) struct ConnectionAdd {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Name of the connection, as used in the configuration
    pub(crate) name: String,
    /// Driver of the connection [default: github]
    #[arg(long, value_enum)]
    pub(crate) driver: Option<connection::DriverArgument>,
    /// Host name in canonical project names [default: the host of --git-url]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Address of the API, or of the smtp (`smtps://HOST?from=A&to=B`) or mqtt server [default for
    /// github: https://api.github.com]
    #[arg(long, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// Base address of the repositories; a project's path is appended [default for github:
    /// https://github.com]
    #[arg(long, value_name = "URL")]
    pub(crate) git_url: Option<String>,
    /// Login of the token's account, or of the password [default for github: looked up at the
    /// forge]
    #[arg(long)]
    pub(crate) login: Option<String>,
    /// AWS region, for sections and calls that name none
    #[arg(long)]
    pub(crate) region: Option<String>,
    #[command(flatten)]
    pub(crate) aws: ConnectionAws,
    /// File with the secret access key of --access-key-id; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_access_key_file: Option<PathBuf>,
    /// How changes are merged at GitHub; fast-forward needs a token that may push to the branches
    /// despite branch rules [default: unchanged, or merge for a new connection]
    #[arg(long, value_enum)]
    pub(crate) landing: Option<connection::LandingArgument>,
    /// Minutes between two polls of a project at a plain git server [default: unchanged, or 120 for
    /// a new connection]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) poll_minutes: Option<u32>,
    #[command(flatten)]
    pub(crate) secrets: ConnectionSecrets,
}

/// The AWS credentials of a connection to EC2. Without them the launcher's own are used.
#[derive(Args)]
pub(crate) struct ConnectionAws {
    /// Role that the launcher assumes to call EC2 [default: unchanged, or none for a new
    /// connection]
    #[arg(long, value_name = "ARN")]
    role_arn: Option<String>,
    /// External id that the role's trust policy requires
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Access key for EC2, or for assuming the role, in place of the launcher's own credentials
    #[arg(long, value_name = "ID")]
    access_key_id: Option<String>,
    /// Remove the connection's access key and role: the launcher's own credentials are used again
    #[arg(long)]
    ambient_credentials: bool,
}

impl From<ConnectionAws> for connection::AwsOptions {
    /// Converts the options of the command line. Checks nothing.
    fn from(aws: ConnectionAws) -> Self {
        Self {
            access_key_id: aws.access_key_id,
            role_arn: aws.role_arn,
            external_id: aws.external_id,
            reset: match aws.ambient_credentials {
                true => connection::AwsCredentialsReset::ToAmbient,
                false => connection::AwsCredentialsReset::Keep,
            },
        }
    }
}

#[derive(Args)]
pub(crate) struct ConnectionRotate {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Connection
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) secrets: ConnectionSecrets,
}

/// The files that a connection's secrets are read from; secrets are never arguments.
#[derive(Args)]
pub(crate) struct ConnectionSecrets {
    /// File with the API token or the password; `-` is standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the webhook secret; `-` is standard input
    #[arg(long, value_name = "FILE")]
    webhook_secret_file: Option<PathBuf>,
    /// Store the token without checking it at the forge
    #[arg(long)]
    no_check: bool,
}

impl ConnectionSecrets {
    /// Returns the paths of the files of the secrets, and whether the token is checked at the
    /// forge. Opens no file.
    pub(crate) fn read(self) -> (connection::SecretFiles, connection::TokenCheck) {
        let check = if self.no_check {
            connection::TokenCheck::Skipped
        } else {
            connection::TokenCheck::WithForge
        };
        (
            connection::SecretFiles {
                token: self.token_file,
                webhook_secret: self.webhook_secret_file,
                secret_access_key: None,
            },
            check,
        )
    }
}

#[derive(Subcommand)]
pub(crate) enum QueueCommand {
    /// Resume a halted queue after you have looked into why it halted: the merged state was not the
    /// tested state, or its records are damaged. `sluice status` shows halted queues and the
    /// reasons
    Resume {
        #[command(flatten)]
        data: Data,
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
        data: Data,
        /// Provider, as shown by `sluice status`
        provider: String,
    },
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
    /// within a minute.
    Build(image::BuildArguments),
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

impl From<ApiArguments> for show::ApiLocation {
    fn from(arguments: ApiArguments) -> Self {
        Self { data: arguments.data.data, api: arguments.api }
    }
}

impl From<UpArguments> for up::UpArguments {
    /// Converts the command line of `sluice up` to its options: `--no-forge` becomes `forge:
    /// false`, and `--processes` decides where functions run. `--stack` counts only with
    /// `--endpoint`.
    fn from(arguments: UpArguments) -> Self {
        Self {
            data: arguments.data.data,
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
            verbose: arguments.verbose,
        }
    }
}

impl From<ConnectionAdd> for connection::ConnectionChange {
    /// Converts the command line of `sluice connection add` to the change of a connection. Opens no
    /// file and checks nothing.
    fn from(add: ConnectionAdd) -> Self {
        let (secrets, check) = add.secrets.read();
        let secret_access_key = add.secret_access_key_file;
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
            poll_minutes: add.poll_minutes,
            aws: add.aws.into(),
            secrets: connection::SecretFiles { secret_access_key, ..secrets },
            check,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C4: a demo on another endpoint runs in one process, with that endpoint's response times.
    #[test]
    fn a_demo_on_another_endpoint_takes_no_option_that_needs_the_emulator() {
        let read =
            |words: &[&str]| match Cli::try_parse_from([&["sluice", "demo"][..], words].concat()) {
                Ok(Cli { command: Command::Demo(arguments) }) => Some(arguments.endpoint),
                _ => None,
            };
        let there = &["--endpoint", "http://127.0.0.1:4566"][..];
        assert_eq!(read(&[]), Some(None));
        assert_eq!(read(there), Some(Some("http://127.0.0.1:4566".to_owned())));
        for more in [&["--processes"][..], &["--latency", "aws"], &["--latency", "local"]] {
            assert_eq!(read(&[there, more].concat()), None, "{more:?}");
        }
    }

    /// L1.2: building an image by hand needs the tenant and the image, and nothing else.
    #[test]
    fn image_build_takes_a_tenant_and_an_image() {
        let read = |words: &[&str]| match Cli::try_parse_from(
            [&["sluice", "image"][..], words].concat(),
        ) {
            Ok(Cli { command: Command::Image(ImageCommand::Build(arguments)) }) => {
                Some((arguments.tenant, arguments.image))
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
