//! `make sim`: plays seeds, tells the story of each that fails at once, and keeps it for the tests.
//!
//! ```text
//! cargo run -p sluice-simulation                      a thousand seeds that nobody has played
//! cargo run -p sluice-simulation -- 1..500            these
//! cargo run -p sluice-simulation -- 71                this one, with its story
//! cargo run -p sluice-simulation -- 1..90000 1000000  these until so many deliveries were taken in
//! ```
//!
//! Every ten seconds a line tells the totals so far; who ends it with SIGTERM or SIGINT has them as
//! well, and the seed to go on with. `SLUICE_SIM_THREADS` says how many seeds are played at once;
//! with `SLUICE_SIM_REPLAY` stories tell each step of the replay.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's program may panic")]

use sluice_simulation::runner::{FAILURES_MAX, kept, play_safely, play_while, range, threads};
use std::io::Write as _;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};

/// Seeds that are played where nobody says how many.
const SEEDS: u64 = 1_000;

/// From one line of totals to the next.
const TOTALS_EVERY: Duration = Duration::from_secs(10);

/// Whether somebody wants the end.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).filter(|text| !text.is_empty());
    let seeds = match asked.as_deref().map(range) {
        Some(Some(seeds)) => seeds,
        Some(None) => {
            eprintln!("seeds are given as 7 or 1..200, not as {}", asked.unwrap_or_default());
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
            eprintln!("how many deliveries are enough is a number: {error}");
            return ExitCode::FAILURE;
        }
        None => u64::MAX,
    };
    if seeds.start() == seeds.end() {
        return tell_one(*seeds.start());
    }
    tell_many(seeds, most)
}

fn tell_many(seeds: RangeInclusive<u64>, deliveries_max: u64) -> ExitCode {
    std::thread::spawn(hear_the_end);
    let threads = std::env::var("SLUICE_SIM_THREADS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(threads);
    say(&format!("seeds {} to {} on {threads} threads", seeds.start(), seeds.end()));
    let (begun, told_at) = (Instant::now(), Mutex::new(Instant::now()));
    let sum = play_while(seeds, threads, |sum, failure| {
        if let Some((seed, failure)) = failure {
            say(&format!("\n=== seed {seed} ===\n{failure}"));
            keep(*seed, &failure.why);
        }
        let mut told_at = told_at.lock().unwrap();
        if told_at.elapsed() >= TOTALS_EVERY {
            *told_at = Instant::now();
            say(&format!("{:>7.1} s: {sum}", begun.elapsed().as_secs_f64()));
        }
        let is_enough = sum.deliveries >= deliveries_max || sum.failures.len() >= FAILURES_MAX;
        if is_enough || IS_ENDED.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    say(&format!(
        "in {:.1} s: {sum}; the next seed is {}",
        begun.elapsed().as_secs_f64(),
        sum.next
    ));
    let failed: Vec<u64> = sum.failures.iter().map(|(seed, _)| *seed).collect();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    say(&format!("failed: {failed:?}"));
    ExitCode::FAILURE
}

/// Waits for a signal that asks for the end, and says that it came. Seeds under way are played to
/// their end, a second or so.
fn hear_the_end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for signals");
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be heard");
        let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be heard");
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        IS_ENDED.store(true, Ordering::Relaxed);
    });
}

/// Prints a line at once, for whoever reads it from a file. A reader that has gone is no reason to
/// end.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn tell_one(seed: u64) -> ExitCode {
    match play_safely(seed) {
        Ok(told) => {
            println!(
                "{}\n{}: {} deliveries, {} calls",
                told.story, told.weather, told.deliveries, told.steps
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            keep(seed, &failure.why);
            ExitCode::FAILURE
        }
    }
}

/// Adds a seed to those that the tests play each time.
fn keep(seed: u64, why: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    if kept(&text).contains(&seed) {
        return;
    }
    let why: String = why.lines().next().unwrap_or_default().chars().take(150).collect();
    match std::fs::write(&path, format!("{text}{seed} {why}\n")) {
        Ok(()) => println!(
            "kept in regressions.txt: `cargo run -p sluice-simulation -- {seed}` tells it again"
        ),
        Err(error) => eprintln!("seed {seed} could not be kept in regressions.txt: {error}"),
    }
}
