//! Counts the bytes of a build's connections to the outside, and notices idle ones (Z7.5).

use crate::job::Lease;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How many bytes a build may still exchange with the outside, in both directions together.
#[derive(Debug)]
pub struct Allowance(AtomicU64);

impl Allowance {
    /// Returns an allowance of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Returns whether nothing is left.
    pub fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Takes bytes; takes what is left and returns an error if that is less.
    fn take(&self, bytes: u64) -> io::Result<()> {
        let subtract = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        if before.is_ok_and(|left| left > bytes) {
            Ok(())
        } else {
            Err(io::Error::other(super::USED_UP))
        }
    }
}

/// A connection whose bytes are taken from an allowance. It breaks when that is used up, or once
/// the executor may not use the nodes any longer.
#[derive(Debug)]
pub struct Metered {
    /// The connection.
    stream: TcpStream,
    /// Until when bytes may be passed on; `None` without a limit.
    lease: Option<Lease>,
    /// What the build may still exchange; `None` for its own nodes.
    allowance: Option<Arc<Allowance>>,
    /// The bytes of this connection so far.
    moved: Arc<AtomicU64>,
}

impl Metered {
    /// Returns a connection to a node of the build, which may be used until the lease is over.
    pub fn to_node(stream: TcpStream, lease: Lease) -> Self {
        Self { stream, lease: Some(lease), allowance: None, moved: Arc::default() }
    }

    /// Returns a connection to the outside.
    pub fn to_outside(stream: TcpStream, allowance: Arc<Allowance>) -> Self {
        Self { stream, lease: None, allowance: Some(allowance), moved: Arc::default() }
    }

    /// Returns what notices that this connection is idle. A connection to a node never counts as
    /// idle.
    pub fn idleness(&self) -> Idleness {
        Idleness(self.allowance.as_ref().map(|_| Arc::clone(&self.moved)))
    }

    /// Checks that bytes may be passed on. A paused process that continues may hold bytes of a
    /// connection whose node another executor uses.
    fn check_lease(&self) -> io::Result<()> {
        match &self.lease {
            Some(lease) if lease.is_over() => Err(io::Error::other(super::LEASE_OVER)),
            _ => Ok(()),
        }
    }

    /// Counts bytes that were read or written.
    fn count(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.allowance.as_ref().map_or(Ok(()), |allowance| allowance.take(bytes))
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.check_lease()?;
        Poll::Ready(self.count(buffer.filled().len() - before))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_lease()?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        Poll::Ready(self.count(written).map(|()| written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Notices that a connection is idle.
#[derive(Debug)]
pub struct Idleness(Option<Arc<AtomicU64>>);

impl Idleness {
    /// Waits until no byte has moved for between `limit` and twice `limit`.
    pub async fn noticed(&self, limit: Duration) {
        let Some(counter) = &self.0 else { return std::future::pending().await };
        let mut before = None;
        loop {
            let moved = Some(counter.load(Ordering::Relaxed));
            if moved == before {
                return;
            }
            before = moved;
            tokio::time::sleep(limit).await;
        }
    }
}
