//! The runtime of all functions: load a cell, decide, commit in one conditional transaction, and
//! send the outbox.
//!
//! [`port`] defines what a function may touch (records, objects, queues, clock, seal, entropy).
//! [`cell`] commits and sends, [`batch`] reconciles one cell per queue message, and [`quarantine`]
//! stores unreadable messages and halts broken cells. [`role_session`] issues temporary credentials.
//! [`zone_builds`] are builds that wait for an executor of a zone.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod batch;
pub mod cell;
pub mod metric;
pub mod object;
pub mod port;
pub mod quarantine;
pub mod record;
pub mod role_session;
pub mod zone_builds;

pub use cell::{CellCommit, CommitOutcome};
pub use port::{Clock, Entropy, Objects, PortError, Ports, Queues, Records, Seal};
pub use record::{Due, Expect, Key, Query, Record, TransactionOutcome, Write};
