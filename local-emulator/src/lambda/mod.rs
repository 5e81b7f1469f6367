//! Calls functions. [`InProcess`] calls handlers in this program; [`Processes`] starts binaries
//! that use the Lambda Runtime API. Both reject, time out and fail calls like AWS.

mod child;
mod in_process;
mod processes;
mod runtime_api;

#[cfg(test)]
mod tests;

pub use child::{Credentials, Print, to_stderr};
pub use in_process::{Handler, HandlerError, InProcess};
pub use processes::{ProcessSettings, Processes};

use async_trait::async_trait;
use bytes::Bytes;
use std::time::Duration;

/// The maximum size of the payload and of the response of a synchronous call, in bytes: 6 MB.
pub const SYNCHRONOUS_BYTES_MAX: usize = 6 * 1024 * 1024;

/// Calls functions.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// Calls the function with the id `function` once and returns its response. A throttled or
    /// failed call is not tried again. The call continues if the caller stops waiting. Only after
    /// `Unknown`, `Throttled`, `TooLarge` and `Starting` is it certain that the function did not
    /// get the call.
    ///
    /// # Errors
    /// Returns an [`InvokeError`].
    async fn invoke(&self, function: &str, payload: Bytes) -> Result<Bytes, InvokeError>;
}

/// Why a call of a function has no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// There is no such function.
    #[error("there is no function {function} on this machine; the template names those there are")]
    Unknown {
        /// Its id.
        function: String,
    },
    /// The reserved concurrency is used up. The function was not called; try again.
    #[error(
        "{function} runs {limit} times already, as often as its reserved concurrency allows; ask again"
    )]
    Throttled {
        /// Its id.
        function: String,
        /// Its reserved concurrency.
        limit: u32,
    },
    /// The payload is larger than [`SYNCHRONOUS_BYTES_MAX`]. The function was not called.
    #[error("a payload of {bytes} bytes is too large for {function}: a function takes 6 MB")]
    TooLarge {
        /// Its id.
        function: String,
        /// Size of the payload.
        bytes: usize,
    },
    /// The function returned an error.
    #[error("{function} failed with {kind}: {message}")]
    Failed {
        /// Its id.
        function: String,
        /// The error type reported by the function.
        kind: String,
        /// The error message.
        message: String,
    },
    /// The function timed out and was killed.
    #[error("{function} did not answer within {limit:?} and was ended")]
    TimedOut {
        /// Its id.
        function: String,
        /// Its time limit.
        limit: Duration,
    },
    /// The function's process ended before it responded.
    #[error("the process of {function} ended before it answered ({how})")]
    Died {
        /// Its id.
        function: String,
        /// How the process ended.
        how: String,
    },
    /// The function's process is still starting. It did not receive the call.
    #[error(
        "{function} did not start within {limit:?} and goes on starting for the next call; the machine may be too busy"
    )]
    Starting {
        /// Its id.
        function: String,
        /// How long the call waited.
        limit: Duration,
    },
    /// The function's process could not be started, or several calls waited in vain for its start.
    #[error(
        "the process of {function} could not be started: {why}; build the binary, and see its lines above"
    )]
    NotStarted {
        /// Its id.
        function: String,
        /// What went wrong.
        why: String,
    },
}

/// How a function may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Its time limit.
    pub timeout: Duration,
    /// Its reserved concurrency.
    pub reserved_concurrency: Option<u32>,
}

impl Limits {
    /// Returns the limits that the template sets for a function.
    #[must_use]
    pub fn of(function: &crate::template::FunctionPlan) -> Self {
        Self { timeout: function.timeout, reserved_concurrency: function.reserved_concurrency }
    }
}

/// The running calls of one function, against its reserved concurrency.
#[derive(Debug)]
struct Slots {
    limit: u32,
    free: std::sync::Arc<tokio::sync::Semaphore>,
}

/// The account's quota of concurrent calls of all functions without reserved concurrency.
const ACCOUNT_CONCURRENCY: u32 = 1_000;

impl Slots {
    /// Returns the slots of a function, as many as its reserved concurrency, or 1,000, the
    /// account's limit, for each function without one.
    fn new(reserved: Option<u32>) -> Self {
        let limit = reserved.unwrap_or(ACCOUNT_CONCURRENCY);
        let free = std::sync::Arc::new(tokio::sync::Semaphore::new(limit as usize));
        Self { limit, free }
    }

    /// Takes a slot, which is free again when the returned permit is dropped. `Throttled` if none
    /// is free: AWS does not queue synchronous calls.
    fn take(&self, function: &str) -> Result<tokio::sync::OwnedSemaphorePermit, InvokeError> {
        let throttled =
            |_| InvokeError::Throttled { function: function.to_owned(), limit: self.limit };
        self.free.clone().try_acquire_owned().map_err(throttled)
    }
}

/// Returns an error for a payload over 6 MB, which is too large for Lambda.
fn check_size(function: &str, payload: &Bytes) -> Result<(), InvokeError> {
    if payload.len() > SYNCHRONOUS_BYTES_MAX {
        return Err(InvokeError::TooLarge { function: function.to_owned(), bytes: payload.len() });
    }
    Ok(())
}
