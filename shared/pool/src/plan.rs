//! Decides about the requests and nodes of a provider's cell at one point in time.

use crate::decisions::PoolPlan;
use crate::ledger::Ledger;
use crate::snapshot::Snapshot;
use crate::{builds, command_effects, observe, placement, supply};
use sluice_model::Timestamp;

/// Decides what to do next at a provider (Z1.4 to Z1.11): which requests are placed, fulfilled or
/// failed, and which machines are launched, checked or terminated. Returns what to commit in one
/// transaction and what to carry out after it; does nothing itself. What does not fit is left out,
/// and the plan is due again at once.
///
/// The plan is one commit: the head and at most [`crate::decisions::RECORDS_MAX`] records. If
/// something does not fit, the plan is due again at once. After the commit, a plan without new
/// facts is empty.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> PoolPlan {
    let mut ledger = Ledger::new(snapshot, now);
    observe::observe_machines(&mut ledger);
    builds::apply_builds(&mut ledger);
    builds::recover_orphaned_nodes(&mut ledger);
    command_effects::apply_commands(&mut ledger);
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
