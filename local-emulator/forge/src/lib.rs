//! An emulator of GitHub on one machine, for the demo, development and tests: bare Git repositories
//! over smart HTTP, the part of GitHub's REST API that a gate needs, and signed webhooks.
//!
//! It listens on loopback only. Its accounts come from [`ForgeOptions`]. Git itself does merges,
//! pushes and commits. Acknowledged data survives a kill. Like GitHub, it sends a webhook only
//! once.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod api;
mod busy;
mod engine;
mod error;
mod faults;
mod forge;
mod git;
mod git_http;
mod hooks;
mod model;
mod page;
mod shapes;
mod store;
mod views;

pub use error::ApiError;
pub use faults::{Aim, ForgeFault, Times};
pub use forge::{AccountPermission, ForgeAccount, ForgeOptions, LocalForge, Proposal, StartError};
pub use git::{Edit, GitError};
pub use store::ForgeStoreError;
pub use views::{
    CheckRunView, CommentView, DeliveryView, PullState, PullView, ReviewVote, StatusView,
};
