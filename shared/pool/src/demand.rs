//! What befalls a request through its nodes: a machine that fails is replaced, a placement is given
//! up, a request fails.

use crate::ledger::Ledger;
use crate::node::{Allocation, Launch, Node, NodeState, Origin};
use crate::request::{RequestState, Row};
use sluice_model::{NodeId, poke::Poke};

/// Whether a lost placement speaks against the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Machines did not boot: so many in a row mean they never will.
    NeverBooted,
    /// Nobody's fault: it will work later, or elsewhere.
    Passing,
}

/// Gives up a machine that did not become ready, and replaces it within its request (Z1.6).
pub(crate) fn machine_failed(ledger: &mut Ledger<'_>, id: &NodeId, why: &str) {
    let Some(node) = ledger.nodes.get(id).cloned() else {
        return;
    };
    let holder = placed_request(ledger, &node);
    if !ledger.room(2 + holder.as_ref().map_or(0, |(row, _)| ledger_nodes(ledger, row))) {
        return;
    }
    ledger.delete_node(id, why);
    let Some((row, slot)) = holder else {
        // A kept-ready machine that fails at once would be launched for ever at full speed.
        ledger.head.min_ready_not_before = ledger.now.plus_seconds(60);
        return;
    };
    match node.origin {
        Origin::Cloud { .. } if node.attempt < ledger.limits.pace.max_attempts => {
            replace(ledger, &row, slot, &node, why)
        }
        Origin::Cloud { .. } => drop_placement(ledger, &row, Lost::NeverBooted, why),
        Origin::Static { .. } => drop_placement(ledger, &row, Lost::Passing, why),
    }
}

fn ledger_nodes(ledger: &Ledger<'_>, row: &Row) -> usize {
    ledger.requests.get(row).map_or(0, |request| request.nodes().len())
}

/// Returns the placed request that holds the node, and the node's place in it.
pub(crate) fn placed_request(ledger: &Ledger<'_>, node: &Node) -> Option<(Row, usize)> {
    let row = &node.allocated_to.as_ref()?.row;
    match &ledger.requests.get(row)?.state {
        RequestState::Placed(placement) => {
            Some((row.clone(), placement.nodes.iter().position(|candidate| *candidate == node.id)?))
        }
        _ => None,
    }
}

fn replace(ledger: &mut Ledger<'_>, row: &Row, slot: usize, failed: &Node, why: &str) {
    let attempt = failed.attempt.saturating_add(1);
    let id = NodeId::derive(&["replacement", failed.id.as_str(), &attempt.to_string()]);
    let mut origin = failed.origin.clone();
    // The label may have a newer image by now; the new machine is a new launch.
    if let (Origin::Cloud { client_token, image_id, flavor, .. }, Some(label)) =
        (&mut origin, ledger.limits.labels.get(&failed.label))
    {
        *client_token = id.0.clone();
        flavor.clone_from(&label.flavor);
        if let crate::limits::Image::Available { id } = &label.image {
            image_id.clone_from(id);
        }
    }
    let Some(build) = ledger.requests.get(row).map(|request| request.build.clone()) else {
        return;
    };
    ledger.add_node(Node {
        id: id.clone(),
        origin,
        allocated_to: Some(Allocation { row: row.clone(), build, missing_since: None }),
        state: NodeState::Requested(Launch::Reserved),
        attempt,
        created_at: ledger.now,
        updated_at: ledger.now,
        ..failed.clone()
    });
    let max = ledger.limits.pace.max_attempts;
    ledger.say(format!(
        "request {row}: node {} is replaced by {id}, attempt {attempt} of {max}: {why}",
        failed.id
    ));
    ledger.request(row, |request| {
        request.reason = format!("a node is replaced, attempt {attempt} of {max}: {why}");
        if let RequestState::Placed(placement) = &mut request.state
            && let Some(place) = placement.nodes.get_mut(slot)
        {
            *place = id;
        }
    });
}

/// Gives back everything a placed request holds, and lets it wait for another placement.
pub(crate) fn drop_placement(ledger: &mut Ledger<'_>, row: &Row, lost: Lost, why: &str) {
    let Some(request) = ledger.requests.get(row) else {
        return;
    };
    let lost_placements = request.lost_placements + u32::from(lost == Lost::NeverBooted);
    if lost_placements >= ledger.limits.pace.max_placements {
        fail(
            ledger,
            row,
            &format!("machines of {lost_placements} placements did not boot; the last: {why}"),
        );
        return;
    }
    for id in request.nodes().to_vec() {
        ledger.release_node(&id, "its request is placed anew");
    }
    let wait_seconds = match lost {
        Lost::NeverBooted => 10_u64.saturating_mul(1 << lost_placements.min(6)),
        Lost::Passing => 15,
    };
    let not_before = ledger.now.plus_seconds(wait_seconds);
    ledger.say(format!("request {row} is placed anew in {wait_seconds} s: {why}"));
    ledger.request(row, |request| {
        request.state = RequestState::Requested;
        request.lost_placements = lost_placements;
        request.not_before = not_before;
        request.reason = format!("its placement was given up: {why}");
    });
}

/// Ends a request without nodes, and tells its queue (Z1.6).
pub(crate) fn fail(ledger: &mut Ledger<'_>, row: &Row, why: &str) {
    let Some(request) = ledger.requests.get(row) else {
        return;
    };
    let queue = request.queue.clone();
    for id in request.nodes().to_vec() {
        ledger.release_node(&id, "its request failed");
    }
    ledger.say(format!("request {row} fails: {why}"));
    ledger.request(row, |request| {
        request.reason = why.to_owned();
        request.state = RequestState::Failed { reason: why.to_owned() };
    });
    ledger.pokes.push(Poke::Queue { queue });
}
