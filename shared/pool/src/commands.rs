//! Operators' commands to a provider: to hold or release a node, and to delete a node request.
//!
//! A command is consumed by the plan that applies it. One that cannot be applied any more, because
//! the node is in use or the request has its nodes, is consumed too, with a reason in the log.

use crate::node::{NodeState, PoolNode};
use crate::request::{NodeRequest, RequestRow, RequestState};
use serde::{Deserialize, Serialize};
use sluice_model::{NodeId, TenantName, Timestamp};
use std::fmt;

/// A command to a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCommand {
    /// Its id, by which it is consumed.
    pub id: String,
    /// When it was given.
    pub at: Timestamp,
    /// The tenant in which it was given.
    pub tenant: TenantName,
    /// Who gave it; empty if unknown.
    pub by: String,
    /// What to do.
    pub kind: PoolCommandKind,
}

/// What a command does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolCommandKind {
    /// Holds a ready node for people to inspect, until it is released.
    HoldNode {
        /// The node.
        node: NodeId,
        /// Why; may be empty.
        reason: String,
    },
    /// Deletes a node that no build uses or waits for.
    ReleaseNode {
        /// The node.
        node: NodeId,
    },
    /// Fails a request that does not have its nodes yet.
    DeleteRequest {
        /// The request.
        row: RequestRow,
    },
}

impl fmt::Display for PoolCommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HoldNode { node, reason } if reason.is_empty() => write!(f, "hold node {node}"),
            Self::HoldNode { node, reason } => write!(f, "hold node {node}: {reason}"),
            Self::ReleaseNode { node } => write!(f, "release node {node}"),
            Self::DeleteRequest { row } => write!(f, "delete the node request {row}"),
        }
    }
}

/// Returns why an operator cannot hold a node now; `None` if that is possible: it is ready, and no
/// request has it.
pub fn why_not_held(node: &PoolNode) -> Option<&'static str> {
    match (&node.state, &node.allocated_to) {
        (_, Some(_)) => Some("a build uses it or waits for it"),
        (NodeState::Ready { .. }, None) => None,
        (NodeState::Hold { .. }, None) => Some("it is held already"),
        _ => Some("only a ready node can be held"),
    }
}

/// Returns why an operator of a tenant cannot release a node now; `None` if that is possible: no
/// build uses it or waits for it, and it is not held for another tenant. A held node of a build that
/// has ended can be released.
pub fn why_not_released(node: &PoolNode, tenant: &TenantName) -> Option<&'static str> {
    match (&node.state, &node.allocated_to) {
        (NodeState::Hold { hold: Some(hold), .. }, _) if hold.tenant != *tenant => {
            Some("it is held for another tenant")
        }
        (NodeState::Hold { .. }, _) => None,
        (NodeState::Deleting { .. }, _) => Some("it is being deleted already"),
        (_, Some(_)) => Some("a build uses it or waits for it"),
        (_, None) => None,
    }
}

/// Returns why an operator cannot delete a request now; `None` if that is possible: its nodes are
/// not all ready yet.
pub fn why_not_deleted(request: &NodeRequest) -> Option<&'static str> {
    match request.state {
        RequestState::Requested | RequestState::Placed(_) => None,
        RequestState::Fulfilled(_) | RequestState::Claimed(_) => {
            Some("its build has its nodes: dequeue the change instead")
        }
        RequestState::Ended(_) | RequestState::Failed { .. } => Some("it has ended already"),
    }
}
