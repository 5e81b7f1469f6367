//! Plays many seeds, on several threads, and tells of each as it ends.

use crate::{Failure, Settings, Told, play};
use std::fmt;
use std::ops::{ControlFlow, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Seeds that fail after which no further ones are played.
pub const FAILURES_MAX: usize = 5;

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
    /// The first seed that was not begun; each before it was played.
    pub next: u64,
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

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds: {} deliveries, {} calls, {} faults, {} landings, {:.1} virtual days; {} failed",
            self.seeds + self.failures.len() as u64,
            self.deliveries,
            self.steps,
            self.struck,
            self.landed,
            self.seconds as f64 / 86_400.0,
            self.failures.len(),
        )
    }
}

/// Plays seeds on as many threads as there are processors; ends early when some have failed.
pub fn play_all(seeds: RangeInclusive<u64>) -> Sum {
    play_while(seeds, threads(), |sum, _| match sum.failures.len() {
        FAILURES_MAX.. => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
}

/// Returns how many threads play at once where nobody says.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Plays seeds in their order on so many threads. `hear` is told of each that ended, with the
/// totals so far, and how it failed if it did; when it says so no further one is begun, and those
/// under way are played to their end.
pub fn play_while(
    seeds: RangeInclusive<u64>,
    threads: usize,
    hear: impl Fn(&Sum, Option<&(u64, Failure)>) -> ControlFlow<()> + Sync,
) -> Sum {
    let (next, last) = (AtomicU64::new(*seeds.start()), *seeds.end());
    let (sum, is_over) = (Mutex::new(Sum::default()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    let told = play_safely(seed);
                    let mut sum = sum.lock().unwrap();
                    let has_failed = told.is_err();
                    sum.add(seed, told);
                    sum.next = next.load(Ordering::Relaxed).min(last + 1);
                    if hear(&sum, sum.failures.last().filter(|_| has_failed)).is_break() {
                        is_over.store(true, Ordering::Relaxed);
                    }
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
        Err(Failure {
            why: format!("a function panicked: {}", text.unwrap_or_default()),
            story: String::new(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// C2: a long run that is cut tells what it came to until then, and where to go on.
    #[test]
    fn totals_are_told_with_each_seed_and_survive_a_cut() {
        let heard = Mutex::new(Vec::new());
        let sum = play_while(1..=1_000, 1, |sum, failure| {
            assert!(failure.is_none(), "{failure:?}");
            heard.lock().unwrap().push((sum.seeds, sum.deliveries, sum.next));
            if sum.seeds == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let heard = heard.into_inner().unwrap();
        let grows = heard.windows(2).all(|pair| pair[0].1 < pair[1].1);
        assert!(
            grows
                && heard.iter().map(|(seeds, _, next)| (*seeds, *next)).eq([
                    (1, 2),
                    (2, 3),
                    (3, 4)
                ]),
            "{heard:?}"
        );
        assert_eq!((sum.seeds, sum.deliveries, sum.next), heard[2]);
    }
}
