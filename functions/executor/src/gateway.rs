//! The gateway of a sandbox: a socket that connects to the build's own nodes and nothing else
//! (Z7.5).
//!
//! A client sends one line, `host port`, and is then connected to that port. For any address except
//! the SSH port of a node of the build the gateway closes the connection. So a playbook reaches no
//! metadata address, no other machine, and no service of the executor.

use crate::job::Lease;
use sluice_model::node::NodeAccess;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// The maximum number of concurrent connections of one build.
const CONNECTIONS_MAX: usize = 64;
const GREETING_BYTES_MAX: usize = 300;
const GREETING_SECONDS: u64 = 10;
const CONNECT_SECONDS: u64 = 20;
/// The most bytes of one direction of a connection that are held here.
const BUFFER_BYTES: usize = 32 << 10;

/// A running gateway; dropping it closes every connection.
#[derive(Debug)]
pub struct Gateway(JoinHandle<()>);

impl Gateway {
    /// Creates a Unix socket at `socket` and forwards connections from it, in the background, to
    /// the SSH ports of `nodes` and to nothing else. Once `lease` is over, opens no connection and
    /// passes nothing on. An error if the path exists.
    pub fn open(socket: &Path, nodes: &[NodeAccess], lease: Lease) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let addresses =
            nodes.iter().map(|node| (node.interface_ip.clone(), node.ssh_port)).collect();
        Ok(Self(tokio::spawn(serve(listener, Arc::new(Allowed { addresses, lease })))))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What clients may connect to.
struct Allowed {
    /// The SSH ports of the build's nodes.
    addresses: BTreeSet<(String, u16)>,
    /// Until when.
    lease: Lease,
}

/// Accepts connections until the socket fails, and forwards each in a task of its own, at most
/// [`CONNECTIONS_MAX`] at a time; further clients wait. All connections are closed when it ends or
/// is aborted.
async fn serve(listener: UnixListener, allowed: Arc<Allowed>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // The set aborts the connections when this task ends.
    let mut connections = JoinSet::new();
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        let Ok((client, _)) = listener.accept().await else { return };
        let allowed = Arc::clone(&allowed);
        connections.spawn(async move {
            // The client notices a broken connection itself.
            let _ = forward(client, &allowed).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Reads the client's greeting, `host port`, connects the client to that node and copies bytes in
/// both directions until both sides are closed. If the greeting does not name the SSH port of a
/// node of the build, or the lease is over, it logs that and closes the connection, without an
/// error. An error if the greeting or the connection fails or takes too long.
async fn forward(mut client: UnixStream, allowed: &Allowed) -> std::io::Result<()> {
    let greeting =
        tokio::time::timeout(Duration::from_secs(GREETING_SECONDS), read_greeting(&mut client))
            .await??;
    let requested = greeting
        .split_once(' ')
        .and_then(|(host, port)| Some((host.to_owned(), port.parse::<u16>().ok()?)));
    let Some(address) = requested.filter(|address| allowed.addresses.contains(address)) else {
        tracing::info!(address = %greeting, "a playbook requested an address that is not a node of its build");
        return Ok(());
    };
    if allowed.lease.is_over() {
        tracing::warn!(
            "no connection to a node is opened: the executor's session is not renewed, and another executor may use the node"
        );
        return Ok(());
    }
    let connect = TcpStream::connect((address.0.as_str(), address.1));
    let mut node = tokio::time::timeout(Duration::from_secs(CONNECT_SECONDS), connect).await??;
    node.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_node, to_node) = node.split();
    tokio::try_join!(
        copy(from_client, to_node, &allowed.lease),
        copy(from_node, to_client, &allowed.lease)
    )?;
    Ok(())
}

/// Copies bytes until `from` is closed, and then closes `to`. An error if either fails, or once the
/// lease is over: nothing is passed on then, also not what had waited in a paused process.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    lease: &Lease,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if lease.is_over() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// Reads the first line of a client and returns it without its line end; later bytes stay unread.
/// An error if the line has [`GREETING_BYTES_MAX`] bytes or more, or the client closes before its
/// end.
async fn read_greeting(client: &mut UnixStream) -> std::io::Result<String> {
    let mut greeting = Vec::new();
    // Reads byte by byte, because the bytes after the line are for the node.
    while greeting.len() < GREETING_BYTES_MAX {
        match client.read_u8().await? {
            b'\n' => return Ok(String::from_utf8_lossy(&greeting).into_owned()),
            byte => greeting.push(byte),
        }
    }
    Err(std::io::ErrorKind::InvalidData.into())
}
