//! The command line of `sluice`: its commands and options with their help texts, and their
//! conversion into the options of the libraries that implement them. A command is a noun and a
//! verb; words about the whole system stand alone. Other forms are [aliases](crate::aliases).

pub(crate) mod config;
pub(crate) mod connections;
pub(crate) mod local_system;
pub(crate) mod nouns;

use clap::{Args, Parser, Subcommand};
use config::ConfigCommand;
use connections::{AuthenticatorCommand, ConnectionCommand};
use local_system::{DemoArguments, UpArguments};
use nouns::{
    AuditCommand, AutoholdCommand, BuildCommand, BuildsetCommand, ChangeCommand, EventCommand,
    ImageCommand, JobCommand, LabelCommand, NodeCommand, PipelineCommand, ProjectCommand,
    ProviderCommand, QuarantineCommand, QueueCommand, RefCommand, RequestCommand, SemaphoreCommand,
    TenantCommand, TokenCommand,
};
use sluice_executor_program::ExecutorArguments;
use sluice_operator::api_client::SystemArguments;
use sluice_operator::{key, secret, show};

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
    /// Run an executor against the services named in the environment (`SLUICE_TABLE`, …), as its
    /// container does
    Executor(ExecutorArguments),
    /// Enqueue, dequeue, promote and explain changes
    #[command(subcommand)]
    Change(ChangeCommand),
    /// Enqueue and dequeue branches and tags
    #[command(subcommand)]
    Ref(RefCommand),
    /// Check configuration offline, and show which jobs it runs
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show jobs, and the jobs that a change of a branch would run
    #[command(subcommand)]
    Job(JobCommand),
    /// Show projects
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Show pipelines
    #[command(subcommand)]
    Pipeline(PipelineCommand),
    /// Show builds and their logs
    #[command(subcommand)]
    Build(BuildCommand),
    /// Show buildsets
    #[command(subcommand)]
    Buildset(BuildsetCommand),
    /// Show tenants, load the main configuration, reload tenants, pause their events
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Show the system events of a tenant
    #[command(subcommand)]
    Event(EventCommand),
    /// Resume a halted queue
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Resume a halted provider
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Show nodes, hold and release them
    #[command(subcommand)]
    Node(NodeCommand),
    /// Show and delete requests for nodes
    #[command(subcommand)]
    Request(RequestCommand),
    /// Show the labels that providers offer
    #[command(subcommand)]
    Label(LabelCommand),
    /// Show semaphores with their holders
    #[command(subcommand)]
    Semaphore(SemaphoreCommand),
    /// Build the images that a tenant's jobs build
    #[command(subcommand)]
    Image(ImageCommand),
    /// Hold the nodes of failed builds of a job for debugging
    #[command(subcommand)]
    Autohold(AutoholdCommand),
    /// Add, change, list and remove connections to forges, clouds, mail servers and brokers
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// Add, list and remove authenticators, which accept the tokens of users of the API
    #[command(subcommand)]
    Authenticator(AuthenticatorCommand),
    /// Make tokens for users of the API
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show who changed what in a tenant, over the API or with `sluice`
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Encrypt secrets for a project, show its public key, import a key pair (a missing pair is
    /// generated)
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Show the public SSH keys of projects and tenants, import all keys of a Zuul
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Show unreadable messages that were set aside: signed but malformed webhooks, damaged queue
    /// messages
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
}

#[derive(Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) system: SystemArguments,
    /// Show only this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) filter: show::StatusFilter,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use sluice_operator::image::BuildArguments;

    /// L1.2: building an image by hand needs the tenant and the image, and nothing else.
    #[test]
    fn image_build_takes_a_tenant_and_an_image() {
        let read = |words: &[&str]| match Cli::try_parse_from(
            [&["sluice", "image"][..], words].concat(),
        ) {
            Ok(Cli { command: Command::Image(ImageCommand::Build(arguments)) }) => {
                let BuildArguments { tenant, image, .. } = arguments;
                Some((tenant, image))
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

    /// C4: no two options of a command have one name, and every option and command has a help text.
    #[test]
    fn every_command_and_option_has_a_help_text() {
        let command = Cli::command();
        command.clone().debug_assert();
        let mut without = Vec::new();
        let mut rest = vec![(String::from("sluice"), command)];
        while let Some((path, command)) = rest.pop() {
            if command.get_about().is_none() {
                without.push(path.clone());
            }
            for argument in command.get_arguments().filter(|one| one.get_help().is_none()) {
                without.push(format!("{path} {}", argument.get_id()));
            }
            for inner in command.get_subcommands() {
                rest.push((format!("{path} {}", inner.get_name()), inner.clone()));
            }
        }
        assert!(without.is_empty(), "{without:?}");
    }

    /// C4: every command that shows or changes something can print JSON; those that change the
    /// system over its API can read a token.
    #[test]
    fn every_command_that_prints_can_print_json() {
        const RUNNING: [&str; 3] = ["up", "demo", "executor"];
        let command = Cli::command();
        for noun in command.get_subcommands().filter(|one| !RUNNING.contains(&one.get_name())) {
            let verbs: Vec<_> = match noun.get_name() {
                "status" => vec![noun],
                _ => noun.get_subcommands().collect(),
            };
            for verb in verbs {
                let has = |id: &str| verb.get_arguments().any(|one| one.get_id() == id);
                assert!(has("json"), "{} {}", noun.get_name(), verb.get_name());
                assert!(!has("api") || has("token_file"), "{}", verb.get_name());
            }
        }
    }
}
