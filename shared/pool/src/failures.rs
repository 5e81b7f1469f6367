//! Failures of machines, placements and requests.

use crate::ledger::Ledger;
use crate::lending;
use crate::limits::machine_at;
use crate::node::{Allocation, LaunchProgress, NodeOrigin, NodeState, PoolNode};
use crate::request::{RequestRow, RequestState};
use sluice_model::{NodeId, wakeup::Wakeup};

/// The most static hosts that a request remembers because their check failed. With this many, it
/// waits before each further host.
const FAILED_HOSTS_MAX: usize = 40;

/// Whether a failed placement counts against the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlacementLoss {
    /// Machines did not boot. After too many such placements the request fails.
    NeverBooted,
    /// A later placement may succeed.
    Transient,
    /// The check of a static host failed. Another host may pass it.
    HostFailed,
}

/// Deletes a node whose machine failed. If it belongs to a placed request, adds a replacement;
/// after the last attempt, or for a static host, gives up the placement, which may fail the request
/// (Z1.6). For any other node, no machine is launched for min-ready in the next minute. Does
/// nothing if the node does not exist or the commit has no room.
pub(crate) fn machine_failed(ledger: &mut Ledger<'_>, id: &NodeId, why: &str) {
    let Some(node) = ledger.nodes.get(id).cloned() else {
        return;
    };
    let holder = placed_request_of(ledger, &node);
    if !ledger.has_room(2 + holder.as_ref().map_or(0, |(row, _)| node_count(ledger, row))) {
        return;
    }
    ledger.delete_node(id, why);
    let Some((row, slot)) = holder else {
        // Without this delay, a min-ready machine that fails at once would be launched in an
        // endless loop.
        ledger.head.min_ready_not_before = ledger.now.plus_seconds(60);
        return;
    };
    match node.origin {
        NodeOrigin::Cloud { .. } if node.attempt < ledger.limits.pace.max_attempts => {
            replace_node(ledger, &row, slot, &node, why)
        }
        NodeOrigin::Cloud { .. } => drop_placement(ledger, &row, PlacementLoss::NeverBooted, why),
        NodeOrigin::Static { .. } => {
            remember_failed_host(ledger, &row, &node);
            drop_placement(ledger, &row, PlacementLoss::HostFailed, why);
        }
    }
}

/// Records in a request that the check of this lent host failed. Beyond [`FAILED_HOSTS_MAX`] hosts,
/// drops the one that failed first. Does nothing if the request does not exist.
fn remember_failed_host(ledger: &mut Ledger<'_>, row: &RequestRow, node: &PoolNode) {
    let address = node.machine().and_then(|machine| machine.private_ipv4.as_deref());
    let Some(failed) = address.map(machine_at) else { return };
    ledger.update_request(row, |request| {
        request.failed_hosts.retain(|host| *host != failed);
        request.failed_hosts.push(failed);
        if request.failed_hosts.len() > FAILED_HOSTS_MAX {
            request.failed_hosts.remove(0);
        }
    });
}

/// Returns the number of nodes that a request holds; 0 if the request does not exist.
fn node_count(ledger: &Ledger<'_>, row: &RequestRow) -> usize {
    ledger.requests.get(row).map_or(0, |request| request.nodes().len())
}

/// Returns the placed request that the node belongs to, and the node's index in it. `None` if the
/// node is not allocated, or if its request is gone, does not list it or is in another state than
/// placed, such as fulfilled.
pub(crate) fn placed_request_of(
    ledger: &Ledger<'_>,
    node: &PoolNode,
) -> Option<(RequestRow, usize)> {
    let row = &node.allocated_to.as_ref()?.row;
    match &ledger.requests.get(row)?.state {
        RequestState::Placed(placement) => {
            Some((row.clone(), placement.nodes.iter().position(|candidate| *candidate == node.id)?))
        }
        _ => None,
    }
}

/// Adds a new reserved node, one attempt higher, in the place of the failed cloud node at index
/// `slot` of a placed request. It has the label's current image and flavor; the failed node's image
/// stays if the label's is not available, and both stay if the label is gone. The caller deletes
/// the failed node, and has checked that it is no static host, that it has attempts left and that
/// the commit has room. `why` is for display. Does nothing if the request does not exist.
fn replace_node(
    ledger: &mut Ledger<'_>,
    row: &RequestRow,
    slot: usize,
    failed: &PoolNode,
    why: &str,
) {
    let attempt = failed.attempt.saturating_add(1);
    let id = NodeId::derive(&["replacement", failed.id.as_str(), &attempt.to_string()]);
    let Some((build, tenant)) =
        ledger.requests.get(row).map(|request| (request.build.clone(), &request.queue.tenant))
    else {
        return;
    };
    let mut origin = failed.origin.clone();
    // The replacement uses the label's current image and flavor, and needs its own token.
    if let (NodeOrigin::Cloud { client_token, image_id, flavor, .. }, Some(label)) =
        (&mut origin, ledger.limits.label(tenant, &failed.label))
    {
        *client_token = id.0.clone();
        if let Some(machine_type) = &label.flavor {
            flavor.clone_from(machine_type);
        }
        if let crate::limits::LabelImage::Available { id } = &label.image {
            image_id.clone_from(id);
        }
    }
    ledger.add_node(PoolNode {
        id: id.clone(),
        origin,
        allocated_to: Some(Allocation { row: row.clone(), build, missing_since: None }),
        state: NodeState::Requested(LaunchProgress::Reserved),
        attempt,
        created_at: ledger.now,
        updated_at: ledger.now,
        ..failed.clone()
    });
    let max = ledger.limits.pace.max_attempts;
    ledger.explain(format!(
        "request {row}: node {} is replaced by {id}, attempt {attempt} of {max}: {why}",
        failed.id
    ));
    ledger.update_request(row, |request| {
        request.reason = format!("a node is replaced, attempt {attempt} of {max}: {why}");
        if let RequestState::Placed(placement) = &mut request.state
            && let Some(node) = placement.nodes.get_mut(slot)
        {
            *node = id;
        }
    });
}

/// Releases all nodes of a placed request, which then waits for another placement: 15 seconds after
/// a `Transient` loss, longer with each `NeverBooted` one. After a `HostFailed` one, it does not
/// wait if hosts are free that did not fail its check; otherwise it waits 15 seconds. After too many
/// `NeverBooted` ones, fails the request instead. Does nothing if the request does not exist. Whether the commit has room for
/// the request and its nodes is not checked.
pub(crate) fn drop_placement(
    ledger: &mut Ledger<'_>,
    row: &RequestRow,
    loss: PlacementLoss,
    why: &str,
) {
    let Some(request) = ledger.requests.get(row) else {
        return;
    };
    let failed_placements =
        request.failed_placements + u32::from(loss == PlacementLoss::NeverBooted);
    if failed_placements >= ledger.limits.pace.max_placements {
        fail_request(
            ledger,
            row,
            &format!("machines of {failed_placements} placements did not boot; the last: {why}"),
        );
        return;
    }
    for id in request.nodes().to_vec() {
        ledger.release_node(&id, "its request waits for another placement");
    }
    let wait_seconds = match loss {
        PlacementLoss::NeverBooted => 10_u64.saturating_mul(1 << failed_placements.min(6)),
        PlacementLoss::HostFailed if has_other_hosts(ledger, row) => 0,
        PlacementLoss::HostFailed | PlacementLoss::Transient => 15,
    };
    let not_before = ledger.now.plus_seconds(wait_seconds);
    ledger.explain(format!("request {row} will be placed again in {wait_seconds} s: {why}"));
    ledger.update_request(row, |request| {
        request.state = RequestState::Requested;
        request.failed_placements = failed_placements;
        request.not_before = not_before;
        request.reason = format!("its placement was given up: {why}");
    });
}

/// Returns whether static hosts are free for a request that did not fail its check, and few enough
/// failed it to remember all.
fn has_other_hosts(ledger: &Ledger<'_>, row: &RequestRow) -> bool {
    ledger.requests.get(row).is_some_and(|request| {
        request.failed_hosts.len() < FAILED_HOSTS_MAX && lending::has_untried_hosts(ledger, request)
    })
}

/// Marks a request as failed for this reason, releases its nodes and adds the wakeup of its queue
/// (Z1.6). Does nothing if the request does not exist. Whether the commit has room for the request
/// and its nodes is not checked.
pub(crate) fn fail_request(ledger: &mut Ledger<'_>, row: &RequestRow, why: &str) {
    let Some(request) = ledger.requests.get(row) else {
        return;
    };
    let queue = request.queue.clone();
    for id in request.nodes().to_vec() {
        ledger.release_node(&id, "its request failed");
    }
    ledger.explain(format!("request {row} fails: {why}"));
    ledger.update_request(row, |request| {
        request.reason = why.to_owned();
        request.state = RequestState::Failed { reason: why.to_owned() };
    });
    ledger.wakeups.push(Wakeup::Queue { queue });
}
