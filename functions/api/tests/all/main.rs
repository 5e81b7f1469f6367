//! Tests of the REST API on sites in memory.
//!
//! They are one program, since linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod attacks;
mod authentication;
mod builds;
mod bundles;
#[path = "../common/mod.rs"]
mod common;
mod damaged;
mod keys;
mod logs;
mod narrowed;
mod openid;
mod parameters;
mod polls;
mod protected;
mod refs;
mod rules;
mod status;
mod token_keys;
mod writes;
