//! Measures the cost of a change and the throughput of the real functions, against the budget.
//!
//! [`count`] counts the calls of one change by function. [`latency`] measures the time from an
//! event to its build requests, [`long`] a queue of a thousand changes, [`burst`] many simultaneous
//! changes of many projects, and [`throughput`] many changes through one gate queue. [`money`]
//! computes prices, and [`report`] prints everything with the texts of [`wording`]. [`deployment`]
//! is the measured system: every function in one thread, with ports in memory that count calls by
//! caller. Its environment is [`real`] (git and a local forge), or [`simulated`] in memory to
//! measure Sluice's own work alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measuring harness may panic")]

pub mod budget;
pub mod burst;
pub mod clocked;
pub mod count;
pub mod deployment;
pub mod latency;
pub mod long;
pub mod money;
pub mod real;
pub mod report;
pub mod runner;
pub mod sample;
pub mod simulated;
pub mod throughput;
pub mod wording;
