//! Plays many seeds on several threads and reports each one as it ends.

use crate::{Failure, SeedReport, Settings, play};
use std::fmt;
use std::ops::{ControlFlow, RangeInclusive};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many seeds may fail before no further seed is started.
pub const FAILURES_MAX: usize = 5;

/// The totals of many seeds.
#[derive(Debug, Default)]
pub struct Totals {
    /// How many seeds were played without a failure.
    pub seeds: u64,
    /// How many deliveries were processed.
    pub deliveries: u64,
    /// How many calls of ports, forge, repositories and cloud were made.
    pub steps: u64,
    /// How many changes were merged by a gate.
    pub landed: u64,
    /// How many faults were injected.
    pub struck: u64,
    /// How many virtual seconds passed.
    pub seconds: u64,
    /// The first seed that was not started; all seeds before it were played.
    pub next: u64,
    /// The seeds that failed, in ascending order.
    pub failures: Vec<(u64, Failure)>,
}

impl Totals {
    fn add(&mut self, seed: u64, result: Result<SeedReport, Failure>) {
        match result {
            Ok(report) => {
                self.seeds += 1;
                self.deliveries += report.deliveries;
                self.steps += report.steps;
                self.landed += report.landed;
                self.struck += report.struck;
                self.seconds += report.seconds;
            }
            Err(failure) => self.failures.push((seed, failure)),
        }
    }
}

impl fmt::Display for Totals {
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

/// Plays seeds on as many threads as there are processors. Stops after [`FAILURES_MAX`] failures.
pub fn play_all(seeds: RangeInclusive<u64>) -> Totals {
    play_while(seeds, threads(), |sum, _| match sum.failures.len() {
        FAILURES_MAX.. => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
}

/// Returns the default number of threads: one for each processor.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Plays seeds in ascending order on `threads` threads.
///
/// Calls `on_end` after each seed with the totals so far, and with the failure if the seed failed.
/// When `on_end` breaks, no further seed is started; seeds that are being played run to their end.
pub fn play_while(
    seeds: RangeInclusive<u64>,
    threads: usize,
    on_end: impl Fn(&Totals, Option<&(u64, Failure)>) -> ControlFlow<()> + Sync,
) -> Totals {
    let (next, last) = (AtomicU64::new(*seeds.start()), *seeds.end());
    let (sum, is_over) = (Mutex::new(Totals::default()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    let result = play_safely(seed);
                    let mut sum = sum.lock().unwrap();
                    let has_failed = result.is_err();
                    sum.add(seed, result);
                    sum.next = next.load(Ordering::Relaxed).min(last + 1);
                    if on_end(&sum, sum.failures.last().filter(|_| has_failed)).is_break() {
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

/// Plays a seed. Returns a panic of a function as a failure with an empty log.
pub fn play_safely(seed: u64) -> Result<SeedReport, Failure> {
    catch_unwind(AssertUnwindSafe(|| play(seed, Settings::default()))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Failure {
            why: format!("a function panicked: {}", text.unwrap_or_default()),
            story: String::new(),
        })
    })
}

/// Parses a list of seeds: one at the start of each line. Ignores the rest of the line and lines
/// that start with `#`.
pub fn parse_seeds(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Parses `7` or `1..200` (both ends included). Returns `None` for any other text.
pub fn parse_range(text: &str) -> Option<RangeInclusive<u64>> {
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

    /// C2: a long run that is interrupted reports its totals and the seed to continue with.
    #[test]
    fn totals_are_reported_after_each_seed_and_survive_an_interruption() {
        let reported = Mutex::new(Vec::new());
        let sum = play_while(1..=1_000, 1, |sum, failure| {
            assert!(failure.is_none(), "{failure:?}");
            reported.lock().unwrap().push((sum.seeds, sum.deliveries, sum.next));
            if sum.seeds == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let reported = reported.into_inner().unwrap();
        let grows = reported.windows(2).all(|pair| pair[0].1 < pair[1].1);
        assert!(
            grows
                && reported.iter().map(|(seeds, _, next)| (*seeds, *next)).eq([
                    (1, 2),
                    (2, 3),
                    (3, 4)
                ]),
            "{reported:?}"
        );
        assert_eq!((sum.seeds, sum.deliveries, sum.next), reported[2]);
    }
}
