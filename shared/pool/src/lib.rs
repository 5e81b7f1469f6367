//! The provider cell without I/O: node requests, nodes, quota, and the plan that changes them (Z1).
//!
//! Start at [`plan()`]: it reads one [`Snapshot`] and returns one [`PoolPlan`]. It reads no clock,
//! draws no random number and does no I/O. The gate creates each [`NodeRequest`] and does not
//! change it afterwards. The plan writes everything else in the cell.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod builds;
mod command_effects;
pub mod commands;
pub mod decisions;
mod failures;
mod ledger;
mod lending;
pub mod limits;
pub mod node;
mod observe;
mod placement;
mod plan;
pub mod request;
mod service_order;
pub mod snapshot;
mod supply;

pub use commands::{PoolCommand, PoolCommandKind};
pub use decisions::{HeadChange, PoolAction, PoolChange, PoolPlan};
pub use limits::{
    Interface, LabelImage, LabelSpec, LaunchLocation, Pace, ProviderLimits, Resources, StaticHost,
};
pub use node::{
    Allocation, IllegalEvent, InstanceId, LaunchProgress, Machine, NodeEvent, NodeOrigin,
    NodeState, PoolNode,
};
pub use plan::plan;
pub use request::{NodeRequest, Placement, ReadyRecipient, RequestRow, RequestState};
pub use service_order::relative_priorities;
pub use snapshot::{
    BuildFact, CheckFact, InstanceFact, InstanceState, LaunchFact, MachineListing, Paused,
    PoolFacts, ProviderConnection, ProviderHead, Snapshot, builds_to_observe,
};
