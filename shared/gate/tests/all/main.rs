//! Tests of the filters of pipelines.
//!
//! They are one program, since linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod filter;
mod filter_connections;
mod filter_debug;
mod filter_gerrit;
mod filter_ours;
mod filter_triggers;
