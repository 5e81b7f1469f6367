//! A small GitHub on one machine: bare git repositories over smart HTTP, the part of GitHub's REST
//! API that a gate needs, and signed webhooks. For the demo, for development and for tests.
//!
//! It listens on loopback only, plays no more than one owner of many repositories, and knows its
//! accounts from [`Options`]. Merges, pushes and commits are git's own. What it has acknowledged
//! survives a kill; a webhook is sent once and never again by itself, as on GitHub.
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
pub use faults::{Aim, Fault, Times};
pub use forge::{Account, Forge, Options, Permission, Proposal, StartError};
pub use git::{Edit, GitError};
pub use store::StoreError;
pub use views::{
    CheckRunView, CommentView, DeliveryView, PullState, PullView, ReviewVote, StatusView,
};
