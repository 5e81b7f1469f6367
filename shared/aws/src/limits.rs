//! How long a call may take and how often it is tried: one place for all services.

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use std::time::Duration;

/// Attempts of one call, the first included. The SDK backs off in between and retries only what may
/// work.
const ATTEMPTS_MAX: u32 = 3;
/// Seconds to connect.
const CONNECT_SECONDS: u64 = 3;
/// Seconds of one attempt of a call that neither waits nor carries an object.
const ATTEMPT_SECONDS: u64 = 10;

/// Returns the retries of every client: three attempts in all.
pub(crate) fn retries() -> RetryConfig {
    RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX)
}

/// Returns the time-outs of a call that answers at once: 10 seconds for an attempt.
pub(crate) fn timeouts() -> TimeoutConfig {
    attempts_of(Duration::from_secs(ATTEMPT_SECONDS))
}

/// Returns the time-outs of a call that waits up to `wait_seconds` for its answer: 10 seconds more
/// for an attempt.
pub(crate) fn timeouts_waiting(wait_seconds: u32) -> TimeoutConfig {
    attempts_of(Duration::from_secs(ATTEMPT_SECONDS + u64::from(wait_seconds)))
}

/// Returns the time-outs of a call that carries `bytes` bytes: [`carrying`] for an attempt.
pub(crate) fn timeouts_carrying(bytes: u64) -> TimeoutConfig {
    attempts_of(carrying(bytes))
}

/// Returns how long `bytes` bytes may travel: a second for each whole MiB, and 10 seconds that
/// every call gets.
pub(crate) fn carrying(bytes: u64) -> Duration {
    Duration::from_secs(ATTEMPT_SECONDS + (bytes >> 20))
}

/// Returns the time-outs of calls whose attempts take at most `attempt`: also 3 seconds to connect,
/// and for all attempts together three times that and 10 seconds.
fn attempts_of(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(CONNECT_SECONDS))
        .operation_attempt_timeout(attempt)
        // All attempts and the pauses between them.
        .operation_timeout(attempt * ATTEMPTS_MAX + Duration::from_secs(ATTEMPT_SECONDS))
        .build()
}
