//! `sluice executor`: runs an executor in a process of its own.

use crate::playbook_options::PlaybookOptions;
use crate::running::{ExecutorOptions, RunningExecutor};
use anyhow::Context as _;
use clap::Args;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// The environment variable with the address of the pages, ending in `/`.
pub const WEB_VARIABLE: &str = "SLUICE_WEB";

/// The options of `sluice executor` and of `sluice-executor`.
#[derive(Debug, Clone, Args)]
pub struct ExecutorArguments {
    /// Directory of the build directories and cached repositories
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sluice")]
    pub state: PathBuf,
    /// Number of builds that run at once
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    pub slots: usize,
    /// Address that serves live logs, reachable by the API function. 0.0.0.0 is announced as the
    /// address of the ECS task or the EC2 instance
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7900")]
    pub logs: SocketAddr,
    /// Run even as root; playbooks can then read those of root's files that are visible in their
    /// sandbox
    #[arg(long)]
    pub allow_root: bool,
    /// Stop when standard input closes, because the parent process has ended.
    #[arg(long, hide = true)]
    pub with_parent: bool,
    /// What playbooks find on this machine, and reach from it.
    #[command(flatten)]
    pub playbooks: PlaybookOptions,
}

/// Runs an executor until SIGINT or SIGTERM, then stops it. Its running builds are then retried
/// elsewhere. With `with_parent`, also stops when standard input closes, and may run as root. Sets
/// up logging to standard output. Returns an error if the executor ends by itself, because its
/// session was lost; the service manager has to start it again.
///
/// # Errors
/// When the environment, Ansible or the pool's key is missing, or the process runs as root and that
/// is not allowed.
pub async fn run(arguments: ExecutorArguments) -> anyhow::Result<()> {
    let ExecutorArguments { state, slots, logs, allow_root, with_parent, playbooks } = arguments;
    // A local system runs as the user that started it.
    anyhow::ensure!(
        with_parent || allow_root || !sluice_executor::sandbox::is_root(),
        "could not start the executor: running as root would let playbooks read root's files; use an account of its own, as the container image does, or add --allow-root"
    );
    let lines = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_ansi(false).with_env_filter(lines).init();
    let stop = stop_signal()?;
    let ports = sluice_aws::ports_from_environment().await?;
    let web_root = std::env::var(WEB_VARIABLE)
        .context("SLUICE_WEB is not set: set it to the address of the pages, ending in /")?;
    let running = RunningExecutor::start(
        ports,
        ExecutorOptions { state, slots, logs, web_root, ansible: None, playbooks },
    )
    .await?;
    tracing::info!(logs = %running.logs_address(), slots, "the executor is running");
    tokio::select! {
        () = stop => {}
        () = running.ended() => {}
        _ = async { parent_ended().await }, if with_parent => tracing::info!("the parent process has ended; stopping"),
    }
    let ended_by_itself = running.has_ended();
    running.stop().await;
    // The service manager restarts it, under a new session.
    anyhow::ensure!(!ended_by_itself, "the executor ended unexpectedly: see its last log messages");
    Ok(())
}

/// Returns a receiver that completes when standard input closes or cannot be read. Discards what is
/// read from it. The thread that reads it may block for ever, so it is never joined.
fn parent_ended() -> tokio::sync::oneshot::Receiver<()> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut some = [0; 64];
        while std::io::stdin().read(&mut some).is_ok_and(|count| count > 0) {}
        // The receiver is gone if the executor stops for another reason.
        let _ = ended.send(());
    });
    end
}

/// Installs handlers for SIGINT (Ctrl-C) and SIGTERM, and returns a future that completes when one
/// of them comes. From then on these signals no longer end the process by themselves.
///
/// # Errors
/// When signal handlers cannot be installed.
pub fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("could not listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
