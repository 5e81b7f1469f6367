//! The simulator: whole sites in memory, drawn from seeds, with actors, faults and an oracle.
//!
//! [`play`] runs one seed. The real functions run on the ports of `shared/memory`, on one thread
//! and one clock. They are futures that can be suspended in the middle of a cell while others
//! continue ([`sim`]).
//!
//! - [`faults`] draws what goes wrong.
//! - [`watch`] checks every write against invariants.
//! - [`oracle`] checks every decision against a much simpler gate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test harness may panic")]

pub mod actors;
pub mod broken;
mod end;
pub mod executors;
pub mod faults;
pub mod graphs;
pub mod locks;
pub mod noticed;
pub mod oracle;
pub mod random;
pub mod reviews;
pub mod runner;
pub mod scenarios;
pub mod shape;
pub mod sim;
pub mod site;
pub mod story;
pub mod task;
pub mod truth;
pub mod watch;
pub mod windows;

pub use broken::{Cell, Mutation};
pub use shape::Shape;

use std::fmt;

/// Overrides of what a seed draws.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The defect to inject, if any.
    pub mutation: Option<Mutation>,
    /// The site to play instead of the one that the seed draws.
    pub shape: Option<Shape>,
}

/// The counts and texts of a seed that was played without a failure.
#[derive(Debug, Clone)]
pub struct SeedReport {
    /// How many deliveries were processed.
    pub deliveries: u64,
    /// How many calls of ports, forge, repositories and cloud were made.
    pub steps: u64,
    /// How many changes were merged by a gate.
    pub landed: u64,
    /// How many faults were injected.
    pub struck: u64,
    /// The name of the fault profile.
    pub fault_profile: &'static str,
    /// How many virtual seconds passed.
    pub seconds: u64,
    /// How many pushes landed several changes at once.
    pub runs: u64,
    /// How many reporter jobs failed while successors of their change were being tested.
    pub tested_again: u64,
    /// The final state as text, which two runs of one seed must have in common.
    pub ending: String,
    /// The log of the run.
    pub story: String,
}

/// A violated expectation, with the log that led to it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which expectation was violated, and how.
    pub why: String,
    /// The log of the run up to the failure.
    pub story: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.story, self.why)
    }
}

/// Plays a seed to its end and returns its counts.
///
/// # Errors
/// The first violated expectation, with the log that led to it.
pub fn play(seed: u64, settings: Settings) -> Result<SeedReport, Failure> {
    sim::Sim::new(seed, settings).play()
}
