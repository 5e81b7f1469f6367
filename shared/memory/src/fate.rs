//! What becomes of one call of a port.

use sluice_model::Timestamp;
use sluice_runtime::Record;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What becomes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fate {
    /// It works.
    #[default]
    Works,
    /// The caller dies before the call has its effect.
    DiesBefore,
    /// The caller dies after the call had its effect and never sees the answer.
    DiesAfter,
    /// The call fails and has no effect.
    FailsBefore,
    /// The call has its effect, but the caller is told that it failed.
    FailsAfter,
    /// The service asks to slow down; no effect.
    Throttled,
    /// Nothing yet: others go on meanwhile, and what becomes of it is asked again when the caller
    /// is polled again.
    Waits,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its number; the first is 0.
    pub number: u64,
    /// Its name, for example `records.commit`.
    pub name: &'static str,
    /// Whose ports it is made through ([`crate::World::ports_of`]).
    pub caller: &'static str,
}

/// A record that was written or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The number of the transaction; records with the same number were written at once.
    pub transaction: u64,
    /// When.
    pub at: Timestamp,
    /// The record before; `None` when there was none.
    pub before: Option<Record>,
    /// The record since; `None` when it was removed.
    pub after: Option<Record>,
}

/// Pends once, so that whoever polls may let others go on.
pub(crate) async fn wait_once() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        // Futures that are joined are polled again only when they were woken.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs a future that waits on nothing but ports in memory. `None` means that its function died in
/// a step.
pub fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
