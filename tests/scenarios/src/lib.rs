//! A complete Sluice in memory, single-threaded and seeded: the real functions with a forge,
//! repositories, a cloud and executors that a test controls. Every call of a port is a step at
//! which a test can inject a failure.
//!
//! [`Site`] is the whole system, [`forge::PlayedForge`] the outside world, and [`Site::ending`]
//! the state that a test asserts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test harness may panic")]

pub mod cloud;
mod ending;
pub mod forge;
pub mod notifier;
pub mod repos;
pub mod sample;
pub mod site;
pub mod stops;

pub use ending::Ending;
pub use forge::PlayedForge;
pub use site::Site;
