//! Tests of reading, merging, packing and checking out, with the real git beside them.
//!
//! They are one program, since linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod commit_delta;
mod containing;
mod fetch;
mod merge;
mod merge_like_git;
mod packs;
mod plant;
#[path = "../support/mod.rs"]
mod support;
mod workspace;
