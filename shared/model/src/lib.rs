//! Plain data that every room shares: names and ids, changes as a forge showed them, events, pokes,
//! jobs and results.
//!
//! Nothing here reads a clock, draws a random number or does I/O; whatever is stored or sent
//! serialises with serde.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod build;
pub mod change;
pub mod event;
pub mod gerrit;
pub mod git;
pub mod hold;
pub mod host;
pub mod id;
pub mod job;
pub mod name;
pub mod node;
pub mod poke;
mod text;
pub mod time;

pub use id::{ArrivalId, BuildId, DeliveryId, ItemId, NodeId, SessionId};
pub use name::{
    BranchName, ConnectionName, JobName, LabelName, PipelineName, ProjectName, ProviderName,
    QueueKey, QueueName, TenantName,
};
pub use time::Timestamp;
