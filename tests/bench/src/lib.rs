//! What a change costs and how fast changes pass: measured on the real functions, against the
//! plan's budget.
//!
//! [`count`] counts the calls of one change by function, [`latency`] times an event until its
//! builds are asked for, [`long`] looks at a queue of a thousand changes, [`burst`] lets many
//! changes of many projects come at once, [`throughput`] sends many changes through one gate queue,
//! [`money`] prices what was counted, [`report`] prints it all in [`words`]. [`house`] is the
//! system that is measured: every function in one thread, on ports in memory that count who called.
//! What stands around it is [`real`] (git, and a forge on this machine) or [`played`] in memory,
//! where our own work alone is asked for.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measuring harness may panic")]

pub mod budget;
pub mod burst;
pub mod clocked;
pub mod count;
pub mod house;
pub mod latency;
pub mod long;
pub mod money;
pub mod played;
pub mod real;
pub mod report;
pub mod runner;
pub mod sample;
pub mod throughput;
pub mod words;
