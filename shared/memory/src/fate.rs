//! What becomes of one call of a port.

use std::future::Future;
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
}

/// Runs a future that waits on nothing but ports in memory. `None` means that its function died in a step.
pub fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
