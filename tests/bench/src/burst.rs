//! Measures a burst of changes over many projects in an independent pipeline: changes per second,
//! and processor time per change in tenants with few and with many projects.

use crate::deployment::Ends;
use crate::sample;
use crate::simulated::Played;
use crate::throughput::{Times, processor_time};
use std::time::{Duration, Instant};

/// Changes that pass before the measurement, to fill the caches of the functions.
const WARMING: u64 = 5;

/// The cost of a burst.
#[derive(Debug, Clone, PartialEq)]
pub struct Burst {
    /// The number of projects of the tenant.
    pub projects: usize,
    /// The number of simultaneous changes, distributed over the projects.
    pub changes: u64,
    /// The time from the first webhook to the last report, with all functions in one thread.
    pub wall: Duration,
    /// The processor time, including forge and repositories in memory.
    pub processor: Duration,
    /// The number of own calls.
    pub calls: u64,
    /// The time by function.
    pub functions: Times,
}

impl Burst {
    /// Returns the changes per second in one thread.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn per_second(&self) -> f64 {
        self.changes as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Returns the milliseconds of processor time per change.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn processor_milliseconds(&self) -> f64 {
        self.processor.as_secs_f64() * 1_000.0 / (self.changes.max(1)) as f64
    }
}

/// Measures a burst of changes with one job each.
pub async fn measure(changes: u64, projects: usize) -> Burst {
    let mut played =
        Played::of(&sample::main_of(projects), &sample::repositories_of(projects)).await;
    played.deployment.ends = Ends::AtOnce;
    let propose = |number: u64| {
        let project = sample::project(usize::try_from(number).unwrap_or_default() % projects);
        let (path, title) = (format!("file-{number}"), format!("Change {number}"));
        played.forge.propose(&project, number, &title, "", &[(&path, "new")])
    };
    for number in 1..=WARMING {
        propose(number);
    }
    played.deployment.rest().await;
    let keys: Vec<_> = (1..=changes).map(|number| propose(WARMING + number)).collect();
    played.deployment.world.take_calls();
    played.deployment.take_times();
    let (begin, before) = (Instant::now(), processor_time());
    played.deployment.rest().await;
    let (wall, processor) = (begin.elapsed(), processor_time().saturating_sub(before));
    let calls = played.deployment.world.take_calls().total();
    let functions = played.deployment.take_times();
    for key in &keys {
        assert!(
            played.has_status(key, "bench/check", "success"),
            "{key} did not pass: {:?}",
            played.forge.change(key)
        );
    }
    Burst { projects, changes, wall, processor, calls, functions }
}
