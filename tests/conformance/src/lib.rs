//! The rules that all implementations of the ports must follow, as checks that run on any of them.
//!
//! A [`Check`] is a function over [`TestPorts`]: fresh ports with an empty table, bucket and set of
//! queues. [`run`] runs checks and compares the failures with the listed [`Difference`]s of the
//! implementation, so that a known difference is noticed when it disappears. [`Site`] creates such
//! ports on an endpoint with AWS's protocols.
//!
//! The suite in `tests/` runs them on the ports in memory, on the emulator with and without a
//! socket, and on third-party endpoints: our two implementations might share a mistake.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod check;
mod objects;
mod queues;
mod records;
mod run;
mod seal;
mod site;

pub use check::{Check, Mismatch, Needs, TestPorts};
pub use run::{ConformanceReport, Difference, run};
pub use site::{Site, SiteError, sdk_config};

/// Returns every check.
pub fn checks() -> Vec<Check> {
    [records::checks(), objects::checks(), queues::checks(), seal::checks()].concat()
}
