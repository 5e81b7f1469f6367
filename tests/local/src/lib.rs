//! The whole local system as people run it: [`system`] starts `sluice up` as a program on a
//! directory of its own and ends it in every way, [`forge`] does over HTTP what people do on its
//! forge, [`story`] has changes proposed, approved and followed to their end.
//!
//! Nothing here is told by the system behind people's backs: what happened is read from its API,
//! its forge and its records.

pub mod forge;
pub mod story;
pub mod system;

use anyhow::bail;
use std::time::{Duration, Instant};

/// How often something is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// When waiting ends in any case. Far longer than anything takes: a safety net, not a measure.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Looks until there is something, and returns it. What cannot be asked just now is asked again.
///
/// # Errors
/// When [`PATIENCE`] runs out; the text says what was waited for and what was seen last.
pub async fn until<T>(
    what: &str,
    look: impl AsyncFn() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        let seen = match look().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => "it was not so".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if begun.elapsed() > PATIENCE {
            bail!("waited {} s for {what}; last: {seen}", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
