//! The broker: the only way of a build's untrusted playbooks to the network. It connects them to
//! the build's own nodes and to the outside, and to nothing of ours (Z7.5).
//!
//! Untrusted playbooks run in a network of their own that has only a loopback. The broker is an
//! HTTP proxy on a Unix socket outside of it. Ssh reaches it through `bin/node_connect.py`, and
//! programs that honour `HTTP_PROXY` through `bin/network_relay.py` on the sandbox's loopback. It
//! takes `CONNECT` to any port, and absolute `http://` URLs. One connection carries one request, so
//! each request is decided by itself ([`policy`]). The broker resolves names itself ([`dial`]).
//!
//! Every refusal is a line in the job's log. Bytes, connections and time are bounded. Everything
//! ends with the build.

pub mod dial;
pub mod meter;
pub mod policy;
mod requests;
pub mod target;

use crate::job::Lease;
use crate::settings::NetworkSettings;
use meter::Allowance;
use policy::NetworkPolicy;
use sluice_model::node::NodeAccess;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};

/// The maximum number of concurrent connections of one build; others wait.
const CONNECTIONS_MAX: usize = 64;
/// The maximum number of connections of one build to the outside.
const OUTSIDE_CONNECTIONS_MAX: u32 = 50_000;
/// The maximum number of refusals that are written to the job's log.
const REFUSALS_MAX: u32 = 1_000;
/// Why a build gets no connection to its nodes any longer.
const LEASE_OVER: &str =
    "the executor's session was not renewed, and another executor may use the nodes";
/// Why a build gets no further connection, and why those that it has break.
const USED_UP: &str = "the build has used up its network traffic";
/// The maximum number of lines that wait for the job's log.
const WAITING_LINES_MAX: usize = 1_024;

/// A running broker; dropping it closes its socket and every connection.
#[derive(Debug)]
pub struct Broker {
    /// Accepts connections.
    task: JoinHandle<()>,
    /// Lines for the job's log.
    refusals: Mutex<mpsc::Receiver<String>>,
}

impl Broker {
    /// Creates a Unix socket at `socket` and serves requests from it in the background: to `nodes`,
    /// and to what the settings allow. Once `lease` is over, it opens no connection to a node and
    /// passes nothing on there. An error if the path exists.
    pub fn open(
        socket: &Path,
        settings: &NetworkSettings,
        nodes: &[NodeAccess],
        lease: Lease,
    ) -> std::io::Result<Self> {
        Self::with_limits(socket, settings, nodes, lease, ConnectionLimits::default())
    }

    /// As [`Self::open`], with other limits of each connection.
    fn with_limits(
        socket: &Path,
        settings: &NetworkSettings,
        nodes: &[NodeAccess],
        lease: Lease,
        limits: ConnectionLimits,
    ) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let (sender, receiver) = mpsc::channel(WAITING_LINES_MAX);
        let build = BuildNetwork {
            policy: NetworkPolicy::new(settings, nodes),
            lease,
            resolver: dial::SystemResolver::default(),
            limits,
            allowance: Arc::new(Allowance::new(settings.bytes_max)),
            connections: AtomicU32::new(0),
            refusals: AtomicU32::new(0),
            is_exhaustion_noted: AtomicBool::new(false),
            lines: sender,
        };
        let task = tokio::spawn(serve(listener, Arc::new(build)));
        Ok(Self { task, refusals: Mutex::new(receiver) })
    }

    /// Waits for the next refusal and returns its line for the job's log. Lines that were not
    /// fetched stay for the next call.
    pub async fn refusal(&self) -> String {
        match self.refusals.lock().await.recv().await {
            Some(line) => line,
            // The broker has ended, which it does only when it is dropped.
            None => std::future::pending().await,
        }
    }

    /// Returns the lines of all refusals that were not fetched yet.
    pub async fn waiting_refusals(&self) -> Vec<String> {
        let mut refusals = self.refusals.lock().await;
        std::iter::from_fn(|| refusals.try_recv().ok()).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The limits of one connection.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    /// How long a client may take to send the head of its request.
    head: Duration,
    /// How long a connection to the outside may be idle; see [`meter::Idleness`].
    idle: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { head: Duration::from_secs(10), idle: Duration::from_secs(300) }
    }
}

/// What the connections of one build share.
struct BuildNetwork {
    /// Decides.
    policy: NetworkPolicy,
    /// Until when the build may use its nodes.
    lease: Lease,
    /// Resolves names.
    resolver: dial::SystemResolver,
    /// The limits of each connection.
    limits: ConnectionLimits,
    /// The bytes that the build may still exchange with the outside.
    allowance: Arc<Allowance>,
    /// The connections to the outside so far.
    connections: AtomicU32,
    /// The refusals so far.
    refusals: AtomicU32,
    /// Whether the log says that the allowance is used up.
    is_exhaustion_noted: AtomicBool,
    /// Lines for the job's log.
    lines: mpsc::Sender<String>,
}

impl BuildNetwork {
    /// Writes a refusal to the job's log: what was refused and why. After [`REFUSALS_MAX`] of them
    /// one more line says that the rest is not listed.
    fn refuse(&self, what: &str, why: &str) {
        let line = match self.refusals.fetch_add(1, Ordering::Relaxed) {
            REFUSALS_MAX => "Network: further refusals are not listed".to_owned(),
            number if number < REFUSALS_MAX => format!("Network: refused {what}: {why}"),
            _ => return,
        };
        tracing::info!(line, "a playbook's connection was refused");
        // A full channel means that the log is not read any more.
        let _ = self.lines.try_send(line);
    }

    /// Writes to the job's log, once, that the build has used up its traffic, if it has.
    fn note_exhaustion(&self) {
        if self.allowance.is_used_up() && !self.is_exhaustion_noted.swap(true, Ordering::Relaxed) {
            self.refuse("further traffic", USED_UP);
        }
    }

    /// Counts a connection to the outside; the error says which limit is reached.
    fn count_connection(&self) -> Result<(), String> {
        if self.allowance.is_used_up() {
            return Err(USED_UP.to_owned());
        }
        if self.connections.fetch_add(1, Ordering::Relaxed) >= OUTSIDE_CONNECTIONS_MAX {
            return Err(format!("the build has made {OUTSIDE_CONNECTIONS_MAX} connections"));
        }
        Ok(())
    }
}

/// Accepts connections until the socket fails, and serves each in a task of its own, at most
/// [`CONNECTIONS_MAX`] at a time; further clients wait. All connections are closed when it ends or
/// is aborted.
async fn serve(listener: UnixListener, build: Arc<BuildNetwork>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // The set aborts the connections when this task ends.
    let mut connections = JoinSet::new();
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        let Ok((client, _)) = listener.accept().await else { return };
        let build = Arc::clone(&build);
        connections.spawn(async move {
            requests::serve_client(client, build).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

#[cfg(test)]
mod tests;
