//! A burst of changes over many projects, in a pipeline where each is tested for itself: how many a
//! second, and what processor time one of them takes where a tenant has few projects and where it
//! has many.

use crate::house::Ends;
use crate::played::Played;
use crate::sample;
use crate::throughput::{Times, processor_time};
use std::time::{Duration, Instant};

/// Changes that pass before anything is measured: what functions keep in memory is there by then.
const WARMING: u64 = 5;

/// What a burst cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Burst {
    /// Projects of the tenant.
    pub projects: usize,
    /// Changes that came at once, over all of the projects in turn.
    pub changes: u64,
    /// From the first webhook to the last report, one function after the other in one thread.
    pub wall: Duration,
    /// Processor time of it, forge and repositories in memory included.
    pub processor: Duration,
    /// Own calls.
    pub calls: u64,
    /// Time by function.
    pub functions: Times,
}

impl Burst {
    /// Returns the changes of a second, in one thread.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn per_second(&self) -> f64 {
        self.changes as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Returns the milliseconds of processor time of one change.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn processor_milliseconds(&self) -> f64 {
        self.processor.as_secs_f64() * 1_000.0 / (self.changes.max(1)) as f64
    }
}

/// Measures a burst of changes with one job each.
pub async fn measure(changes: u64, projects: usize) -> Burst {
    let mut played =
        Played::of(&sample::main_of(projects), &sample::repositories_of(projects)).await;
    played.house.ends = Ends::AtOnce;
    let propose = |number: u64| {
        let project = sample::project(usize::try_from(number).unwrap_or_default() % projects);
        let (path, title) = (format!("file-{number}"), format!("Change {number}"));
        played.forge.propose(&project, number, &title, "", &[(&path, "new")])
    };
    for number in 1..=WARMING {
        propose(number);
    }
    played.house.rest().await;
    let keys: Vec<_> = (1..=changes).map(|number| propose(WARMING + number)).collect();
    played.house.world.take_calls();
    played.house.take_times();
    let (begin, before) = (Instant::now(), processor_time());
    played.house.rest().await;
    let (wall, processor) = (begin.elapsed(), processor_time().saturating_sub(before));
    let calls = played.house.world.take_calls().total();
    let functions = played.house.take_times();
    for key in &keys {
        assert!(
            played.has_status(key, "bench/check", "success"),
            "{key} did not pass: {:?}",
            played.forge.change(key)
        );
    }
    Burst { projects, changes, wall, processor, calls, functions }
}
