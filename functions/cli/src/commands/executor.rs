//! `sluice executor`: an executor as a program of its own.

use super::up::stop_asked;
use crate::executor::{Running, Wanted};
use crate::place::WEB_VARIABLE;
use anyhow::Context as _;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// How long an executor lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lives {
    /// Until it is asked to stop.
    Alone,
    /// Also no longer than whoever holds the other end of its standard input.
    WithItsParent,
}

/// Completes when standard input ends. A thread of its own reads it: it may wait for ever, and
/// nobody waits for it.
fn parent_ended() -> tokio::sync::oneshot::Receiver<()> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut some = [0; 64];
        while std::io::stdin().read(&mut some).is_ok_and(|count| count > 0) {}
        // Nobody listens any more when the executor stops by itself.
        let _ = ended.send(());
    });
    end
}

/// Refuses to run as root unless the operator, or `sluice up`, wants that.
///
/// # Errors
/// When this is root and nobody said so.
pub fn check_account(lives: Lives, allow_root: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        lives == Lives::WithItsParent || allow_root || !sluice_executor::sandbox::is_root(),
        "an executor does not run as root, since its playbooks could read root's files: start it under an account of its \
         own, as the image does, or add --allow-root"
    );
    Ok(())
}

/// Runs an executor until it is asked to stop.
///
/// # Errors
/// When the environment, Ansible or the pool's key is missing.
pub async fn run(
    state: PathBuf,
    slots: usize,
    logs: SocketAddr,
    lives: Lives,
) -> anyhow::Result<()> {
    let lines = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_ansi(false).with_env_filter(lines).init();
    let stop = stop_asked()?;
    let ports = sluice_aws::ports_from_environment().await?;
    let web_root = std::env::var(WEB_VARIABLE)
        .context("SLUICE_WEB is not set: the address of the pages, ending in /")?;
    let running =
        Running::start(ports, Wanted { state, slots, logs, web_root, ansible: None }).await?;
    tracing::info!(logs = %running.logs_address(), slots, "the executor lives");
    tokio::select! {
        () = stop => {}
        () = running.ended() => {}
        _ = async { parent_ended().await }, if lives == Lives::WithItsParent => tracing::info!("whoever started this executor is gone"),
    }
    let ended_by_itself = running.has_ended();
    running.stop().await;
    // Whatever keeps services running starts it again, under a session of its own.
    anyhow::ensure!(!ended_by_itself, "the executor ended by itself: see its last messages");
    Ok(())
}
