//! Tests of the whole local system, run as users run it.
//!
//! [`system`] starts `sluice up` as a process with its own data directory, and stops or kills it.
//! [`forge`] does over HTTP what developers do on the forge. [`story`] follows changes from the
//! approval to the report and checks the end.
//!
//! The tests have no private access to the system: they read its API, its forge and its records.

pub mod forge;
pub mod story;
pub mod system;

use anyhow::bail;
use std::time::{Duration, Instant};

/// The time between the first two polls of a condition. A poll reads many records.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(300);
/// The longest time between two polls of a condition, after some polls.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(800);
/// How long [`until`] waits at most; far longer than any step takes.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Polls `poll` until it returns a value, and returns that value. An error is polled again.
///
/// # Errors
/// After [`PATIENCE`]; the text names the condition and the last result.
pub async fn until<T>(
    condition: &str,
    poll: impl AsyncFn() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    let mut interval = POLL_INTERVAL_MIN;
    loop {
        let last = match poll().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => "the condition is not met".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if begun.elapsed() > PATIENCE {
            bail!("waited {} s for {condition}; last: {last}", PATIENCE.as_secs());
        }
        tokio::time::sleep(interval).await;
        interval = interval.mul_f32(1.25).min(POLL_INTERVAL_MAX);
    }
}
