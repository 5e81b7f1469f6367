//! The injected outcome of one call of a port.

use sluice_model::Timestamp;
use sluice_runtime::Record;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The injected outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// The call succeeds.
    #[default]
    Works,
    /// The caller stops before the call takes effect.
    DiesBefore,
    /// The caller stops after the call took effect and never sees the answer.
    DiesAfter,
    /// The call fails without an effect.
    FailsBefore,
    /// The call takes effect, but the caller gets an error.
    FailsAfter,
    /// The service asks the caller to slow down; the call has no effect.
    Throttled,
    /// Not decided yet: other tasks run first, and the outcome is decided when the caller is polled
    /// again.
    Waits,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingCall {
    /// The step's number, from 0.
    pub number: u64,
    /// The name of the operation, such as `records.commit`.
    pub name: &'static str,
    /// The caller of the ports ([`crate::World::ports_of`]).
    pub caller: &'static str,
}

/// A record that was written or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// The number of the transaction; records with the same number were written together.
    pub transaction: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The record before; `None` when there was none.
    pub before: Option<Record>,
    /// The record after; `None` when it was removed.
    pub after: Option<Record>,
}

/// Pends once and wakes its task, so that the executor can run other tasks.
pub(crate) async fn wait_once() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        // Joined futures are polled again only after a wakeup.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls a future that only waits for ports in memory once, and returns its result. `None` means
/// that it did not end: its function was stopped in a step, or a step waits. The future is then
/// dropped.
pub fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
