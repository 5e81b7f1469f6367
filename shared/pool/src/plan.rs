//! The plan of a provider's cell: all decisions about requests and nodes at one point in time.

use crate::ledger::Ledger;
use crate::node::{InstanceId, Node};
use crate::request::{NodeRequest, RequestRow};
use crate::snapshot::{ProviderHead, Snapshot};
use crate::{builds, observe, placement, supply};
use sluice_model::{NodeId, Timestamp, wakeup::Wakeup};

/// The maximum number of nodes of one request: a placement and its reversal must each fit in one
/// transaction.
pub const NODES_PER_REQUEST_MAX: usize = 40;

/// Decides what to do next at a provider (Z1.4 to Z1.11).
///
/// The plan is one commit: the head and at most [`crate::plan::RECORDS_MAX`] records. If something
/// does not fit, the plan is due again at once. After the commit, a plan without new facts is
/// empty.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> PoolPlan {
    let mut ledger = Ledger::new(snapshot, now);
    observe::observe_machines(&mut ledger);
    builds::apply_builds(&mut ledger);
    builds::recover_orphaned_nodes(&mut ledger);
    supply::launch_reserved(&mut ledger);
    let backlog = placement::place_requests(&mut ledger);
    observe::observe_lent_hosts(&mut ledger);
    supply::launch_reserved(&mut ledger);
    builds::fulfill_ready_requests(&mut ledger);
    supply::launch_min_ready(&mut ledger, backlog);
    supply::delete_surplus(&mut ledger, backlog);
    supply::request_checks(&mut ledger);
    supply::request_terminations(&mut ledger);
    ledger.finish(snapshot)
}

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
    /// Returns whether there is nothing to commit and nothing to carry out.
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
    CreateNode(Node),
    /// Overwrites an existing node.
    PutNode(Node),
    /// Removes a node whose machine is gone.
    RemoveNode(NodeId),
}

/// An action outside the cell, carried out after the commit. A [`Self::Check`] may be carried out
/// before it, since it changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolAction {
    /// Launch the node's machine, exactly as its record specifies. The answer is a
    /// [`crate::LaunchFact`].
    Launch(Box<Node>),
    /// Try to log in to this booted node. The answer is a [`crate::CheckFact`].
    Check(Box<Node>),
    /// Terminate a machine. The next listing shows whether it worked.
    Terminate {
        /// The machine's node; `None` for a leaked machine without a record.
        node: Option<NodeId>,
        /// The machine.
        instance: InstanceId,
        /// Why it is terminated.
        reason: String,
    },
}
