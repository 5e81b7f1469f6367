//! Seeds that every test run plays: a fixed set and those that failed once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_simulation::runner::{parse_range, parse_seeds, play_all, play_safely};
use sluice_simulation::scenarios::{
    ADDED_FROM, CURRENT_FROM, FURTHER_FROM, LATEST_FROM, RECENT_FROM,
};
use sluice_simulation::{Settings, play};

/// The fixed set; `SLUICE_SIM_SEEDS=1..2000` plays others.
const SEEDS: &str = "1..60";

/// C2, C3, Z6.4, Z6.5: with crashes and duplicate, late or reordered messages, no invariant breaks
/// and the oracle agrees with every landing.
#[test]
fn no_seed_breaks_an_invariant_or_surprises_the_oracle() {
    let asked = std::env::var("SLUICE_SIM_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    let seeds = parse_range(&asked).expect("seeds are given as 1..200");
    let count = seeds.end() - seeds.start() + 1;
    let sum = play_all(seeds);
    if let Some((seed, failure)) = sum.failures.first() {
        let all: Vec<u64> = sum.failures.iter().map(|(seed, _)| *seed).collect();
        panic!(
            "{failure}\n\nseed {seed} failed, of {all:?}; again: cargo run -p sluice-simulation -- {seed}"
        );
    }
    println!("{sum:?}");
    assert_eq!(sum.seeds, count);
    // The sites must not be idle.
    assert!(sum.deliveries > 20 * count && sum.landed > count && sum.struck > 2 * count, "{sum:?}");
}

/// Plays the first 15 seeds from `first_seed` on, and panics at the first failure.
fn play_from(first_seed: u64) {
    let sum = play_all(first_seed..=first_seed + 14);
    if let Some((seed, failure)) = sum.failures.first() {
        panic!("{failure}\n\nseed {seed} failed; again: cargo run -p sluice-simulation -- {seed}");
    }
    assert!(sum.seeds == 15 && sum.landed > sum.seeds, "{sum:?}");
}

/// C2, J12, G20: the same with the scenarios from seed 2000000.
#[test]
fn no_seed_of_the_latest_plays_breaks_an_invariant_or_surprises_the_oracle() {
    play_from(LATEST_FROM);
}

/// C2: the same with the scenarios from seed 4000000.
#[test]
fn no_seed_of_the_further_plays_breaks_an_invariant_or_surprises_the_oracle() {
    play_from(FURTHER_FROM);
}

/// C2: the same with the scenarios from seed 5000000.
#[test]
fn no_seed_of_the_added_plays_breaks_an_invariant_or_surprises_the_oracle() {
    play_from(ADDED_FROM);
}

/// C2, Z6.4: the same with the scenarios from seed 9000000.
#[test]
fn no_seed_of_the_recent_plays_breaks_an_invariant_or_surprises_the_oracle() {
    play_from(RECENT_FROM);
}

/// C2, D02, C14: the same with the scenarios from seed 30000000.
#[test]
fn no_seed_of_the_current_plays_breaks_an_invariant_or_surprises_the_oracle() {
    play_from(CURRENT_FROM);
}

/// C2: seeds that failed once pass.
#[test]
fn no_seed_that_failed_once_fails_again() {
    let seeds = parse_seeds(include_str!("../regressions.txt"));
    assert!(!seeds.is_empty());
    for seed in seeds {
        if let Err(failure) = play_safely(seed) {
            panic!(
                "{failure}\n\nseed {seed} fails again: cargo run -p sluice-simulation -- {seed}"
            );
        }
    }
}

/// C2: a seed plays the same story each time, so that a failure can be replayed.
#[test]
fn a_seed_plays_the_same_story_each_time() {
    for seed in [3, 4, 5, 11] {
        let play_again = || play(seed, Settings::default()).map_err(|failure| failure.why).unwrap();
        let (one, other) = (play_again(), play_again());
        assert_eq!(one.ending, other.ending, "seed {seed}");
        assert!(one.story == other.story, "seed {seed}");
    }
}
