//! The ports in memory, with faults; and the rules of the services they stand for.
//!
//! [`World`] holds all state and gives [`sluice_runtime::Ports`] that share it. Every call of a
//! port is one *step*; a step's [`Fate`] can be set or decided, so that a test stops a function at
//! each of them, or has others go on in between. [`sqs`] holds the pure rules of the queues,
//! [`prices`] what the services ask for requests.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod calls;
mod fate;
mod indexes;
mod meddled;
mod objects;
pub mod prices;
mod queues;
mod records;
pub mod sqs;
mod world;

pub use calls::{Calls, NOBODY, Used};
pub use fate::{Fate, Step, Written, poll_once};
pub use meddled::Meddled;
pub use world::World;
