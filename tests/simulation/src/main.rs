//! `make sim`: plays seeds, tells the story of each that fails, and keeps it for the tests.
//!
//! ```text
//! cargo run -p sluice-simulation             a thousand seeds that nobody has played
//! cargo run -p sluice-simulation -- 1..500   these
//! cargo run -p sluice-simulation -- 71       this one, with its story
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's program may panic")]

use sluice_simulation::runner::{kept, play_all, play_safely, range};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seeds that are played where nobody says how many.
const SEEDS: u64 = 1_000;

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).filter(|text| !text.is_empty());
    let seeds = match asked.as_deref().map(range) {
        Some(Some(seeds)) => seeds,
        Some(None) => {
            eprintln!("seeds are given as 7 or 1..200, not as {}", asked.unwrap_or_default());
            return ExitCode::FAILURE;
        }
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
            now * SEEDS..=now * SEEDS + SEEDS - 1
        }
    };
    if seeds.start() == seeds.end() {
        return tell_one(*seeds.start());
    }
    println!("seeds {} to {}", seeds.start(), seeds.end());
    let begun = Instant::now();
    let sum = play_all(seeds);
    println!(
        "{} seeds in {:.1} s: {} deliveries, {} calls, {} faults, {} landings, {:.1} virtual days; {} failed",
        sum.seeds,
        begun.elapsed().as_secs_f64(),
        sum.deliveries,
        sum.steps,
        sum.struck,
        sum.landed,
        sum.seconds as f64 / 86_400.0,
        sum.failures.len(),
    );
    for (seed, failure) in &sum.failures {
        println!("\n=== seed {seed} ===\n{failure}");
        keep(*seed, &failure.why);
    }
    if sum.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell_one(seed: u64) -> ExitCode {
    match play_safely(seed) {
        Ok(told) => {
            println!("{}\n{}: {} deliveries, {} calls", told.story, told.weather, told.deliveries, told.steps);
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
        Ok(()) => println!("kept in regressions.txt: `cargo run -p sluice-simulation -- {seed}` tells it again"),
        Err(error) => eprintln!("seed {seed} could not be kept in regressions.txt: {error}"),
    }
}
