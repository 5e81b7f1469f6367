//! Executors that live, on the ports in memory: their sessions, and builds that pause.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod life;
mod paused;
mod world;
