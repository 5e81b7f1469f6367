//! A whole Sluice in memory, single-threaded and seeded: the real functions, with a forge,
//! repositories, a cloud and executors that a test plays. Every call of theirs is a step that a
//! test can stop at.
//!
//! [`Site`] is the whole; [`forge::PlayedForge`] the outside world; what a test asserts is
//! [`Site::ending`].
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test harness may panic")]

pub mod cloud;
mod ending;
pub mod forge;
pub mod post;
pub mod repos;
pub mod sample;
pub mod site;

pub use ending::Ending;
pub use forge::PlayedForge;
pub use site::Site;
