//! Seeds that every run of the tests plays: a fixed set, and those that failed once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_simulation::plays::{ADDED_FROM, FURTHER_FROM, LATEST_FROM, RECENT_FROM};
use sluice_simulation::runner::{kept, play_all, play_safely, range};
use sluice_simulation::{Settings, play};

/// The fixed set; `SLUICE_SIM_SEEDS=1..2000` plays others.
const SEEDS: &str = "1..200";

/// C2, C3, Z6.4, Z6.5: whatever dies, comes twice, late or out of order, no invariant breaks, and
/// what lands is what a gate without any machinery would have let land.
#[test]
fn no_seed_breaks_an_invariant_or_surprises_the_oracle() {
    let asked = std::env::var("SLUICE_SIM_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    let seeds = range(&asked).expect("seeds are given as 1..200");
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
    // A site at which nothing happens breaks nothing either.
    assert!(sum.deliveries > 20 * count && sum.landed > count && sum.struck > 2 * count, "{sum:?}");
}

/// C2, J12, G20: the same of sites that draw what was last learnt to be played as well.
#[test]
fn no_seed_of_the_latest_plays_breaks_an_invariant_or_surprises_the_oracle() {
    let sum = play_all(LATEST_FROM..=LATEST_FROM + 59);
    if let Some((seed, failure)) = sum.failures.first() {
        panic!("{failure}\n\nseed {seed} failed; again: cargo run -p sluice-simulation -- {seed}");
    }
    assert!(sum.seeds == 60 && sum.landed > sum.seeds, "{sum:?}");
}

/// C2: and of those that draw the further plays besides.
#[test]
fn no_seed_of_the_further_plays_breaks_an_invariant_or_surprises_the_oracle() {
    let sum = play_all(FURTHER_FROM..=FURTHER_FROM + 59);
    if let Some((seed, failure)) = sum.failures.first() {
        panic!("{failure}\n\nseed {seed} failed; again: cargo run -p sluice-simulation -- {seed}");
    }
    assert!(sum.seeds == 60 && sum.landed > sum.seeds, "{sum:?}");
}

/// C2: and of those that draw what was added to these.
#[test]
fn no_seed_of_the_added_plays_breaks_an_invariant_or_surprises_the_oracle() {
    let sum = play_all(ADDED_FROM..=ADDED_FROM + 59);
    if let Some((seed, failure)) = sum.failures.first() {
        panic!("{failure}\n\nseed {seed} failed; again: cargo run -p sluice-simulation -- {seed}");
    }
    assert!(sum.seeds == 60 && sum.landed > sum.seeds, "{sum:?}");
}

/// C2, Z6.4: and of those that draw the most recent plays.
#[test]
fn no_seed_of_the_recent_plays_breaks_an_invariant_or_surprises_the_oracle() {
    let sum = play_all(RECENT_FROM..=RECENT_FROM + 39);
    if let Some((seed, failure)) = sum.failures.first() {
        panic!("{failure}\n\nseed {seed} failed; again: cargo run -p sluice-simulation -- {seed}");
    }
    assert!(sum.seeds == 40 && sum.landed > sum.seeds, "{sum:?}");
}

/// C2: what failed once does not fail again.
#[test]
fn no_seed_that_failed_once_fails_again() {
    let seeds = kept(include_str!("../regressions.txt"));
    assert!(!seeds.is_empty());
    for seed in seeds {
        if let Err(failure) = play_safely(seed) {
            panic!(
                "{failure}\n\nseed {seed} fails again: cargo run -p sluice-simulation -- {seed}"
            );
        }
    }
}

/// C2: otherwise a story that is printed would be another one than the one that failed.
#[test]
fn a_seed_tells_the_same_story_again() {
    for seed in [3, 4, 5, 11] {
        let tell = || play(seed, Settings::default()).map_err(|failure| failure.why).unwrap();
        let (one, other) = (tell(), tell());
        assert_eq!(one.ending, other.ending, "seed {seed}");
        assert!(one.story == other.story, "seed {seed}");
    }
}
