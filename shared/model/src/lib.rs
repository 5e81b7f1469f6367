//! Plain data types that all crates share: names and ids, changes, events, wakeups, jobs and
//! results.
//!
//! Nothing here reads a clock, draws a random number or does I/O. All stored or sent types
//! serialize with serde.
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
pub mod plain_text;
mod text;
pub mod time;
pub mod wakeup;

pub use id::{BuildId, DeliveryId, InboxMessageId, ItemId, NodeId, SessionId};
pub use name::{
    BranchName, ConnectionName, JobName, LabelName, PipelineName, ProjectName, ProviderName,
    QueueKey, QueueName, TenantName, ZoneName,
};
pub use time::Timestamp;
