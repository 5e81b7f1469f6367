//! The provider cell, pure: requests for nodes, nodes, quota, and the plan that moves them (Z1).
//!
//! Start at [`plan()`]: it reads one [`Snapshot`] and answers one [`Plan`]. It reads no clock,
//! draws no random number and does no I/O. Who writes what: the gate creates a [`Request`] and
//! never touches it again; everything else in the cell is written by its plan.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod demand;
mod ends;
mod ledger;
pub mod limits;
pub mod node;
mod observe;
mod place;
pub mod plan;
pub mod request;
pub mod snapshot;
mod supply;
mod turns;

pub use limits::{Image, Interface, Label, Pace, ProviderLimits, Resources, StaticHost};
pub use node::{
    Allocation, IllegalEvent, InstanceId, Launch, Machine, Node, NodeEvent, NodeState, Origin,
};
pub use plan::{Action, Change, Plan, plan};
pub use request::{Placement, Request, RequestState, Row, Told};
pub use snapshot::{
    BuildFact, CheckFact, Facts, InstanceFact, InstanceState, LaunchFact, Listing, Paused,
    ProviderHead, Snapshot, builds_to_look_at,
};
