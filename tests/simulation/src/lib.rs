//! The simulator: whole sites in memory, drawn from seeds, with people, faults and an oracle.
//!
//! [`play`] tells the story of one seed. The real functions run on the ports of `shared/memory`, on
//! one thread and one clock, as futures that stop in the middle of a cell while others go on
//! ([`sim`]); what goes wrong is drawn ([`faults`]); every write is checked against what must never
//! be ([`watch`]), and every decision against a gate that is too plain to be wrong ([`oracle`]);
//! then it is decided again from the same facts by a list and some loops, which has to come out the
//! same ([`replay`]).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test harness may panic")]

pub mod broken;
mod end;
pub mod executors;
pub mod faults;
pub mod graphs;
pub mod locks;
pub mod oracle;
pub mod people;
pub mod plays;
pub mod random;
pub mod replay;
pub mod reviews;
pub mod runner;
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

/// How a seed is played, where not as it is drawn.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// A rule that is broken on purpose.
    pub mutation: Option<Mutation>,
    /// Another site than the seed's own.
    pub shape: Option<Shape>,
}

/// What a seed came to.
#[derive(Debug, Clone)]
pub struct Told {
    /// Deliveries that were taken in.
    pub deliveries: u64,
    /// Calls of ports, forge, repositories and cloud.
    pub steps: u64,
    /// Changes that landed.
    pub landed: u64,
    /// Faults that struck.
    pub struck: u64,
    /// The weather.
    pub weather: &'static str,
    /// Virtual seconds.
    pub seconds: u64,
    /// Pushes that landed several changes at once.
    pub runs: u64,
    /// Jobs that failed after their reports while something behind was tested.
    pub tested_again: u64,
    /// Revisions of queues' heads that were replayed.
    pub replayed: u64,
    /// Those that could not be, and were believed.
    pub believed: u64,
    /// All by which two runs are compared.
    pub ending: String,
    /// The story.
    pub story: String,
}

/// That something was as it must not be.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What.
    pub why: String,
    /// What led to it.
    pub story: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.story, self.why)
    }
}

/// Plays a seed.
///
/// # Errors
/// What must not be, with the story that led to it.
pub fn play(seed: u64, settings: Settings) -> Result<Told, Failure> {
    sim::Sim::new(seed, settings).play()
}
