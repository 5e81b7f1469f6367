//! The ports in memory, with injected faults, and the rules of the services that they replace.
//!
//! [`World`] holds all state and returns [`sluice_runtime::Ports`] that share it. Every call of a
//! port is one *step*. A test can set or decide the [`Fate`] of a step, to stop a function at each
//! step, or to run other functions in between. [`sqs`] has the rules of the queues as pure code,
//! and [`prices`] the prices of requests.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod calls;
mod fate;
mod indexes;
mod intercept;
mod objects;
pub mod prices;
mod queues;
mod records;
pub mod sqs;
mod world;

pub use calls::{Calls, NO_CALLER, Used};
pub use fate::{Fate, PendingCall, RecordChange, poll_once};
pub use intercept::Meddled;
pub use world::World;
