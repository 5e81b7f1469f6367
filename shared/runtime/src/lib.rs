//! The one idea used everywhere: a cell is loaded, decided on, committed in one conditional
//! transaction, and its outbox delivered.
//!
//! [`port`] names what a function may touch (records, objects, queues, clock, seal, entropy),
//! [`cell`] commits and delivers, [`batch`] turns queue messages into looks at cells,
//! [`quarantine`] keeps what nobody could read.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod batch;
pub mod cell;
pub mod object;
pub mod port;
pub mod quarantine;
pub mod record;

pub use cell::{Commit, Saved};
pub use port::{Clock, Entropy, Objects, PortError, Ports, Queues, Records, Seal};
pub use record::{Committed, Due, Expect, Key, Query, Record, Write};
