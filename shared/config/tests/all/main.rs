//! Tests of what the crate offers to others: parsing, layouts, frozen jobs, diagnostics.
//!
//! They are one program, since linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bounds;
mod branches;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod diagnostics;
mod examples;
mod founding_examples;
mod galaxy_roles;
mod inheritance;
mod job_kinds;
mod layout;
mod limits;
mod numbers;
mod order;
mod predicted_errors;
mod providers;
mod references;
mod run_time;
mod scenarios;
mod semantics;
mod spans;
mod tasks;
mod trust;
mod unsupported;
mod unusual;
