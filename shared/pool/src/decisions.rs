//! The result of planning a provider's cell: record changes to commit, and actions to carry out.

use crate::node::{InstanceId, PoolNode};
use crate::request::{NodeRequest, RequestRow};
use crate::snapshot::ProviderHead;
use sluice_model::{NodeId, Timestamp, wakeup::Wakeup};

/// The maximum number of nodes of one request: a placement and its reversal must each fit in one
/// transaction.
pub const NODES_PER_REQUEST_MAX: usize = 40;

/// The maximum number of records that one commit may change in addition to the head.
pub const RECORDS_MAX: usize = 95;

/// The commit to make, and the actions to carry out after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan {
    /// The head after the plan.
    pub head: ProviderHead,
    /// Whether the head differs from the one in the snapshot.
    pub head_changed: HeadChange,
    /// Records to change in the commit.
    pub changes: Vec<PoolChange>,
    /// Actions to carry out after the commit. Each may be repeated; its answer is a fact for the
    /// next plan.
    pub actions: Vec<PoolAction>,
    /// Wakeups for the outbox.
    pub wakeups: Vec<Wakeup>,
    /// The decisions and their reasons, one line each.
    pub reasons: Vec<String>,
    /// When to plan again without a wakeup; `None` if nothing is pending.
    pub due: Option<Timestamp>,
}

impl PoolPlan {
    /// Returns whether there is nothing to commit, send or carry out. The plan may still have
    /// reasons, and be due again.
    pub fn is_empty(&self) -> bool {
        self.head_changed == HeadChange::Same
            && self.changes.is_empty()
            && self.actions.is_empty()
            && self.wakeups.is_empty()
    }
}

/// Whether the head record has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadChange {
    /// The head is unchanged.
    Same,
    /// The head has changed.
    Changed,
}

/// A change to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolChange {
    /// Overwrites an existing request.
    PutRequest(NodeRequest),
    /// Removes a request that is over.
    RemoveRequest(RequestRow),
    /// Creates a node; its record must not exist.
    CreateNode(PoolNode),
    /// Overwrites an existing node.
    PutNode(PoolNode),
    /// Removes a node whose machine is gone.
    RemoveNode(NodeId),
    /// Removes an operator's command that was applied, by its id.
    RemoveCommand(String),
}

/// An action outside the cell, carried out after the commit. A [`Self::Check`] may be carried out
/// before it, since it changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolAction {
    /// Launch the node's machine, exactly as its record specifies. The answer is a
    /// [`crate::LaunchFact`].
    Launch(Box<PoolNode>),
    /// Try to log in to this booted node. The answer is a [`crate::CheckFact`].
    Check(Box<PoolNode>),
    /// Terminate a machine. The next listing shows whether it worked.
    Terminate {
        /// The machine's node; `None` for a leaked machine without a record.
        node: Option<NodeId>,
        /// The machine.
        instance: InstanceId,
        /// The region that it runs in; `None` for the connection's own.
        region: Option<String>,
        /// Why it is terminated.
        reason: String,
    },
}
