//! The plan of a provider's cell: every decision about requests and nodes, made at one place and
//! time.

use crate::ledger::Ledger;
use crate::node::{InstanceId, Node};
use crate::request::{Request, Row};
use crate::snapshot::{ProviderHead, Snapshot};
use crate::{ends, observe, place, supply};
use sluice_model::{NodeId, Timestamp, poke::Poke};

/// Nodes that one request may ask for: a placement and its reversal must each fit in one
/// transaction.
pub const NODES_PER_REQUEST_MAX: usize = 40;

/// Decides what happens next at a provider (Z1.4 to Z1.11).
///
/// The plan is one commit: the head and at most [`crate::plan::RECORDS_MAX`] records. What did not
/// fit makes the plan due at once. The plan of a snapshot that took in the commit and no new fact
/// is empty.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut ledger = Ledger::new(snapshot, now);
    observe::machines(&mut ledger);
    ends::builds(&mut ledger);
    ends::orphans(&mut ledger);
    supply::launch(&mut ledger);
    let waiting = place::requests(&mut ledger);
    observe::lent(&mut ledger);
    supply::launch(&mut ledger);
    ends::fulfil(&mut ledger);
    supply::keep_ready(&mut ledger, waiting);
    supply::drop_surplus(&mut ledger, waiting);
    supply::check(&mut ledger);
    supply::terminate(&mut ledger);
    ledger.finish(snapshot)
}

/// Records that one commit may change besides the head.
pub const RECORDS_MAX: usize = 95;

/// What to commit, and what to do after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The head after the plan.
    pub head: ProviderHead,
    /// Whether the head differs from what was read.
    pub head_changed: HeadChange,
    /// Records to change with it.
    pub changes: Vec<Change>,
    /// What to do outside after the commit. Each may be done twice; its answer is a fact for the
    /// next plan.
    pub actions: Vec<Action>,
    /// Messages for the outbox.
    pub pokes: Vec<Poke>,
    /// What was decided and why, a line each.
    pub reasons: Vec<String>,
    /// When to look again without a poke; `None` when there is nothing to look after.
    pub due: Option<Timestamp>,
}

impl Plan {
    /// Returns whether there is nothing to commit and nothing to do.
    pub fn is_empty(&self) -> bool {
        self.head_changed == HeadChange::Same
            && self.changes.is_empty()
            && self.actions.is_empty()
            && self.pokes.is_empty()
    }
}

/// Whether a head has to be written for its own sake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadChange {
    /// As it was read.
    Same,
    /// Different.
    Changed,
}

/// A record to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A request that was read changed.
    PutRequest(Request),
    /// A request is over.
    RemoveRequest(Row),
    /// A new node; its record must not exist.
    CreateNode(Node),
    /// A node that was read changed.
    PutNode(Node),
    /// A node's machine is gone.
    RemoveNode(NodeId),
}

/// Something to do outside after the commit; only a [`Self::Check`], which changes nothing there,
/// may as well be done before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Launch the machine of this node, exactly as its record says. The answer is a
    /// [`crate::LaunchFact`].
    Launch(Box<Node>),
    /// Try to log in to this booted node. The answer is a [`crate::CheckFact`].
    Check(Box<Node>),
    /// Terminate a machine. The next listing tells whether it worked.
    Terminate {
        /// Its node; `None` for a leaked machine without a record.
        node: Option<NodeId>,
        /// The machine.
        instance: InstanceId,
        /// Why.
        reason: String,
    },
}
