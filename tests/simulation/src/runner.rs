//! Plays many seeds, on as many threads as there are processors.

use crate::{Failure, Settings, Told, play};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that fail after which no further ones are played.
const FAILURES_MAX: usize = 5;

/// What many seeds came to.
#[derive(Debug, Default)]
pub struct Sum {
    /// Seeds that were played to their end.
    pub seeds: u64,
    /// Deliveries that were taken in.
    pub deliveries: u64,
    /// Calls.
    pub steps: u64,
    /// Changes that landed.
    pub landed: u64,
    /// Faults that struck.
    pub struck: u64,
    /// Virtual seconds.
    pub seconds: u64,
    /// Seeds that failed, in order.
    pub failures: Vec<(u64, Failure)>,
}

impl Sum {
    fn add(&mut self, seed: u64, told: Result<Told, Failure>) {
        match told {
            Ok(told) => {
                self.seeds += 1;
                self.deliveries += told.deliveries;
                self.steps += told.steps;
                self.landed += told.landed;
                self.struck += told.struck;
                self.seconds += told.seconds;
            }
            Err(failure) => self.failures.push((seed, failure)),
        }
    }
}

/// Plays seeds; ends early when some have failed.
pub fn play_all(seeds: RangeInclusive<u64>) -> Sum {
    let (next, last) = (AtomicU64::new(*seeds.start()), *seeds.end());
    let sum = Mutex::new(Sum::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last || sum.lock().unwrap().failures.len() >= FAILURES_MAX {
                        return;
                    }
                    let told = play_safely(seed);
                    sum.lock().unwrap().add(seed, told);
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap();
    sum.failures.sort_by_key(|(seed, _)| *seed);
    sum
}

/// Plays a seed; a function that panics is a failure like any other.
pub fn play_safely(seed: u64) -> Result<Told, Failure> {
    catch_unwind(AssertUnwindSafe(|| play(seed, Settings::default()))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Failure { why: format!("a function panicked: {}", text.unwrap_or_default()), story: String::new() })
    })
}

/// Reads the seeds of a text: one a line, what follows it says why it is kept.
pub fn kept(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Reads `7`, or `1..200`, both included.
pub fn range(text: &str) -> Option<RangeInclusive<u64>> {
    match text.split_once("..") {
        Some((first, last)) => Some(first.parse().ok()?..=last.parse().ok()?),
        None => {
            let seed = text.parse().ok()?;
            Some(seed..=seed)
        }
    }
}
