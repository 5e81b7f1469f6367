//! What every form of the ports must do, as checks that run on any of them.
//!
//! A [`Check`] is a function over a [`Ground`]: fresh ports onto an empty table, bucket and set of
//! queues. [`run`] runs checks and compares what went wrong with the listed [`Difference`]s of that
//! form, so that a known difference is noticed when it goes away. [`Site`] makes grounds at an
//! endpoint that speaks AWS's protocols.
//!
//! The suite in `tests/` runs them on the ports in memory, on the emulator without and over a
//! socket, and on foreign endpoints: what our own two forms agree on might be a mistake of both.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod check;
mod objects;
mod queues;
mod records;
mod run;
mod seal;
mod site;

pub use check::{Check, Ground, Mismatch, Needs};
pub use run::{Difference, Report, run};
pub use site::{Site, SiteError, sdk_config};

/// Returns every check.
pub fn checks() -> Vec<Check> {
    [records::checks(), objects::checks(), queues::checks(), seal::checks()].concat()
}
