//! `sluice executor`: runs an executor in a process of its own.

use super::up::stop_signal;
use crate::environment::WEB_VARIABLE;
use crate::executor::{ExecutorOptions, RunningExecutor};
use anyhow::Context as _;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// When an executor process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutorLifetime {
    /// When it gets a signal to stop.
    Standalone,
    /// Also when its standard input closes, because the parent process has ended.
    WithParent,
}

/// Returns a receiver that completes when standard input closes. The thread that reads it may block
/// for ever, so it is never joined.
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

/// Whether an executor may run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootPolicy {
    /// Root is refused.
    Refused,
    /// Root is allowed.
    Allowed,
}

/// Refuses to run as root unless --allow-root is given or `sluice up` started the executor.
///
/// # Errors
/// When the process runs as root and that is not allowed.
pub fn check_account(lifetime: ExecutorLifetime, root: RootPolicy) -> anyhow::Result<()> {
    anyhow::ensure!(
        lifetime == ExecutorLifetime::WithParent
            || root == RootPolicy::Allowed
            || !sluice_executor::sandbox::is_root(),
        "could not start the executor: running as root would let playbooks read root's files; use an account of its own, as the container image does, or add --allow-root"
    );
    Ok(())
}

/// Runs an executor until it gets a signal to stop.
///
/// # Errors
/// When the environment, Ansible or the pool's key is missing.
pub async fn run(
    state: PathBuf,
    slots: usize,
    logs: SocketAddr,
    lifetime: ExecutorLifetime,
) -> anyhow::Result<()> {
    let lines = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_ansi(false).with_env_filter(lines).init();
    let stop = stop_signal()?;
    let ports = sluice_aws::ports_from_environment().await?;
    let web_root = std::env::var(WEB_VARIABLE)
        .context("SLUICE_WEB is not set: set it to the address of the pages, ending in /")?;
    let running = RunningExecutor::start(
        ports,
        ExecutorOptions { state, slots, logs, web_root, ansible: None },
    )
    .await?;
    tracing::info!(logs = %running.logs_address(), slots, "the executor is running");
    tokio::select! {
        () = stop => {}
        () = running.ended() => {}
        _ = async { parent_ended().await }, if lifetime == ExecutorLifetime::WithParent => tracing::info!("the parent process has ended; stopping"),
    }
    let ended_by_itself = running.has_ended();
    running.stop().await;
    // The service manager restarts it, under a new session.
    anyhow::ensure!(!ended_by_itself, "the executor ended unexpectedly: see its last log messages");
    Ok(())
}
