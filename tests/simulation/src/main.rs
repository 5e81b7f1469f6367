//! `make sim`: plays seeds, prints the log of each that fails, and records it for the tests.
//!
//! ```text
//! cargo run -p sluice-simulation                      a thousand seeds not played before
//! cargo run -p sluice-simulation -- 1..500            these seeds
//! cargo run -p sluice-simulation -- 71                this seed, with its log
//! cargo run -p sluice-simulation -- 1..90000 1000000  until a million deliveries were processed
//! ```
//!
//! Every ten seconds it prints the totals so far. On SIGTERM or SIGINT it prints them as well, with
//! the seed to continue with. `SLUICE_SIM_THREADS` sets how many seeds are played at once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's program may panic")]

use sluice_simulation::runner::{
    FAILURES_MAX, parse_range, parse_seeds, play_safely, play_while, threads,
};
use std::io::Write as _;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};

/// How many seeds are played without a range on the command line.
const SEEDS: u64 = 1_000;

/// The time between two lines of totals.
const TOTALS_EVERY: Duration = Duration::from_secs(10);

/// Whether a signal asked for the end.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).filter(|text| !text.is_empty());
    let seeds = match argument.as_deref().map(parse_range) {
        Some(Some(seeds)) => seeds,
        Some(None) => {
            eprintln!(
                "cannot read the seeds {}: give one seed (7) or a range (1..200)",
                argument.unwrap_or_default()
            );
            return ExitCode::FAILURE;
        }
        None => {
            let now =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
            now * SEEDS..=now * SEEDS + SEEDS - 1
        }
    };
    let most = match std::env::args().nth(2).map(|text| text.parse()) {
        Some(Ok(most)) => most,
        Some(Err(error)) => {
            eprintln!("cannot read the number of deliveries: {error}");
            return ExitCode::FAILURE;
        }
        None => u64::MAX,
    };
    if seeds.start() == seeds.end() {
        return play_one(*seeds.start());
    }
    play_many(seeds, most)
}

fn play_many(seeds: RangeInclusive<u64>, deliveries_max: u64) -> ExitCode {
    std::thread::spawn(wait_for_signal);
    let threads = std::env::var("SLUICE_SIM_THREADS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(threads);
    print_line(&format!("seeds {} to {} on {threads} threads", seeds.start(), seeds.end()));
    let (begun, printed_at) = (Instant::now(), Mutex::new(Instant::now()));
    let sum = play_while(seeds, threads, |sum, failure| {
        if let Some((seed, failure)) = failure {
            print_line(&format!("\n=== seed {seed} ===\n{failure}"));
            record_regression(*seed, &failure.why);
        }
        let mut printed_at = printed_at.lock().unwrap();
        if printed_at.elapsed() >= TOTALS_EVERY {
            *printed_at = Instant::now();
            print_line(&format!("{:>7.1} s: {sum}", begun.elapsed().as_secs_f64()));
        }
        let is_enough = sum.deliveries >= deliveries_max || sum.failures.len() >= FAILURES_MAX;
        if is_enough || IS_ENDED.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    print_line(&format!(
        "in {:.1} s: {sum}; the next seed is {}",
        begun.elapsed().as_secs_f64(),
        sum.next
    ));
    let failed: Vec<u64> = sum.failures.iter().map(|(seed, _)| *seed).collect();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    print_line(&format!("failed: {failed:?}"));
    ExitCode::FAILURE
}

/// Waits for SIGTERM or SIGINT and sets [`IS_ENDED`]. Seeds that are being played still run to
/// their end, which takes about a second.
fn wait_for_signal() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for signals");
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).expect("a handler for SIGTERM");
        let mut interrupt = signal(SignalKind::interrupt()).expect("a handler for SIGINT");
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        IS_ENDED.store(true, Ordering::Relaxed);
    });
}

/// Prints a line and flushes it, so that a log file is current. Ignores a closed pipe.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn play_one(seed: u64) -> ExitCode {
    match play_safely(seed) {
        Ok(report) => {
            println!(
                "{}\n{}: {} deliveries, {} calls",
                report.story, report.fault_profile, report.deliveries, report.steps
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            record_regression(seed, &failure.why);
            ExitCode::FAILURE
        }
    }
}

/// Appends a failed seed to `regressions.txt`, which the tests play each time.
fn record_regression(seed: u64, why: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    if parse_seeds(&text).contains(&seed) {
        return;
    }
    let why: String = why.lines().next().unwrap_or_default().chars().take(150).collect();
    match std::fs::write(&path, format!("{text}{seed} {why}\n")) {
        Ok(()) => println!(
            "recorded in regressions.txt: `cargo run -p sluice-simulation -- {seed}` plays it again"
        ),
        Err(error) => eprintln!("seed {seed} could not be recorded in regressions.txt: {error}"),
    }
}
