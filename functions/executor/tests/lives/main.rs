//! Executors that live and die, on the ports in memory: their sessions, and builds that pause or
//! lose their executor.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod dead;
mod drain;
mod ends;
mod life;
mod paused;
mod work;
mod world;
mod zones;
