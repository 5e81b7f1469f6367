//! Scenarios on whole sites in memory.
//!
//! They are one program, since linking one for each file takes minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod autohold;
mod branch_locks;
mod bundles;
mod caches;
mod deferred_events;
mod demo_scenario;
mod executors;
mod explain;
mod merge_modes;
mod node_requests;
mod open_work;
mod semaphores;
mod tenants;
