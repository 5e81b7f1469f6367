//! Launches, min-ready, checks and terminations of machines.

use crate::decisions::PoolAction;
use crate::failures;
use crate::ledger::Ledger;
use crate::limits::{LabelImage, LabelSpec, Resources};
use crate::node::{LaunchProgress, NodeEvent, NodeOrigin, NodeState, PoolNode};
use crate::placement::{self, Backlog};
use crate::request::RequestState;
use crate::service_order;
use crate::snapshot::Paused;
use sluice_model::{LabelName, NodeId};

/// Seconds between two calls to terminate the same machine.
const TERMINATE_RETRY_SECONDS: u64 = 30;

/// Launches reserved nodes of placed requests: notes the intent in each node and adds its launch
/// action. Goes in service order until a node does not fit into the free quota. Also repeats the
/// launch calls of any nodes whose time has come; these need no quota. A request that has reserved
/// nodes and whose nodes exceed the whole quota fails. Does nothing while launches are paused (by
/// an operator or the cloud), and leaves out what the commit has no room for.
pub(crate) fn launch_reserved(ledger: &mut Ledger<'_>) {
    if ledger.head.paused != Paused::No {
        return;
    }
    // A launch that waits for quota blocks later launches, but not the repeated calls below.
    'requests: for request in
        service_order::in_service_order(&ledger.requests, &ledger.facts.queue_positions)
    {
        let RequestState::Placed(placement) = &request.state else {
            continue;
        };
        let total = placement
            .nodes
            .iter()
            .filter_map(|id| ledger.nodes.get(id))
            .fold(Resources::default(), |sum, node| sum.plus(node.used()).plus(node.reserved()));
        for id in &placement.nodes {
            let Some(node) = ledger.nodes.get(id).cloned() else {
                continue;
            };
            if node.state != NodeState::Requested(LaunchProgress::Reserved)
                || !ledger.has_room(1 + placement.nodes.len())
            {
                continue;
            }
            if !total.fits(ledger.limits.quota) {
                failures::fail_request(
                    ledger,
                    &request.row,
                    "the quota became smaller than the request",
                );
                break;
            }
            if !ledger.used().plus(node.reserved()).fits(ledger.limits.quota) {
                break 'requests;
            }
            intend_launch(ledger, &node);
        }
    }
    for node in ledger.nodes.values().cloned().collect::<Vec<_>>() {
        if let NodeState::Requested(LaunchProgress::Intended { retry_at, .. }) = node.state
            && retry_at <= ledger.now
            && ledger.has_room(1)
        {
            intend_launch(ledger, &node);
        }
    }
}

/// Records in a node the intent to launch it and when to repeat the call, and adds the launch
/// action. The caller has checked that the node is reserved or waits for an answer, that it fits
/// into the quota and that the commit has room; nothing is checked here. Does nothing if the node
/// does not exist.
fn intend_launch(ledger: &mut Ledger<'_>, node: &PoolNode) {
    let retry_at = ledger.now.plus_seconds(ledger.limits.pace.launch_retry_seconds.max(1));
    ledger.advance(&node.id, NodeEvent::LaunchIntended { retry_at });
    if let Some(node) = ledger.nodes.get(&node.id).cloned() {
        ledger.explain(format!("node {} is launched as {}", node.id, node.label));
        ledger.actions.push(PoolAction::Launch(Box::new(node)));
    }
}

/// Adds nodes with launch actions until each label has `min-ready` free nodes as it would launch
/// them now, in each form in which a tenant has the label (Z1.11). Stops when the quota or the
/// commit is full. A new node gets the label's zone, or else the zones of its location in turn.
/// Labels without an image or a flavor are left out. Does nothing if `backlog`, the result of
/// `place_requests`, is `Blocked`, while launches are paused, and before the head's
/// `min_ready_not_before`.
pub(crate) fn launch_min_ready(ledger: &mut Ledger<'_>, backlog: Backlog) {
    if backlog == Backlog::Blocked
        || ledger.head.paused != Paused::No
        || ledger.now < ledger.head.min_ready_not_before
    {
        return;
    }
    let limits = ledger.limits;
    for (name, label) in limits.all_labels() {
        if matches!(label.image, LabelImage::Missing { .. }) || label.flavor.is_none() {
            continue;
        }
        let have = free_count(ledger, name, label);
        for _ in have..label.min_ready as usize {
            if !ledger
                .used()
                .plus(ledger.reserved())
                .plus(label.resources)
                .fits(ledger.limits.quota)
                || !ledger.has_room(1)
            {
                return;
            }
            ledger.head.generation += 1;
            ledger.head.next_zone = ledger.head.next_zone.wrapping_add(1);
            let zones = &label.location.zones;
            let next = || {
                (!zones.is_empty())
                    .then(|| zones[ledger.head.next_zone as usize % zones.len()].clone())
            };
            let zone = label.zone.clone().or_else(next);
            let id = placement::add_reserved_node(ledger, (name, label), zone, "kept ready", None);
            if let Some(node) = ledger.nodes.get(&id).cloned() {
                intend_launch(ledger, &node);
            }
        }
    }
}

/// Marks free ready machines of the cloud for deletion that are otherwise than their label would
/// launch them for any tenant now, are too old, or have a label that is no longer configured. If
/// `backlog` is `Empty`, also those that have been idle for long and exceed their label's
/// `min-ready`. The machines unchanged for longest come first. Stops when the commit has no more
/// room.
pub(crate) fn delete_surplus(ledger: &mut Ledger<'_>, backlog: Backlog) {
    let ready = |node: &&PoolNode| {
        node.is_free() && !node.is_static() && matches!(node.state, NodeState::Ready { .. })
    };
    let mut nodes: Vec<PoolNode> = ledger.nodes.values().filter(ready).cloned().collect();
    nodes.sort_by_key(|node| (node.updated_at, node.id.clone()));
    for node in nodes {
        if !ledger.has_room(1) {
            return;
        }
        if let Some(why) = surplus_reason(ledger, &node, backlog) {
            ledger.delete_node(&node.id, why);
        }
    }
}

/// Returns why a ready node of the cloud, which the caller knows to be free, is to be deleted;
/// `None` if it is to be kept. The reasons are those of `delete_surplus`. With a `Blocked` backlog
/// a node never counts as idle.
fn surplus_reason(ledger: &Ledger<'_>, node: &PoolNode, backlog: Backlog) -> Option<&'static str> {
    let now = ledger.now;
    let forms: Vec<&LabelSpec> = ledger.limits.forms_of(&node.label).collect();
    let current: Vec<&LabelSpec> =
        forms.iter().copied().filter(|label| placement::suits(label, node)).collect();
    if current.is_empty() {
        let why = match forms.is_empty() {
            true => "its label is no longer configured",
            false => "its label is configured otherwise now",
        };
        // A tenant that cannot be read may have the label as it is.
        return ledger.limits.unread_tenants.is_empty().then_some(why);
    }
    let is_old = |label: &&LabelSpec| {
        label.max_ready_age_seconds.is_some_and(|age| now > node.created_at.plus_seconds(age))
    };
    if current.iter().all(is_old) {
        return Some("it has been ready for too long");
    }
    // If a request waits, placement has already deleted what that request cannot use.
    let idle = backlog == Backlog::Empty
        && now > node.updated_at.plus_seconds(ledger.limits.pace.idle_seconds);
    let exceeds =
        |label: &&LabelSpec| free_count(ledger, &node.label, label) > label.min_ready as usize;
    (idle && current.iter().all(exceeds)).then_some("it is idle and no request needs it")
}

/// Returns the number of nodes that are not allocated and can be given to a request for this form
/// of a label, now or once they are ready.
fn free_count(ledger: &Ledger<'_>, name: &LabelName, label: &LabelSpec) -> usize {
    let is_of =
        |node: &&PoolNode| node.label == *name && node.is_free() && placement::suits(label, node);
    ledger.nodes.values().filter(is_of).count()
}

/// Adds a check action for every node in state `Testing`, cloud machine or static host, whose next
/// check is due. Changes no node, and needs no room in the commit.
pub(crate) fn request_checks(ledger: &mut Ledger<'_>) {
    for node in ledger.nodes.values() {
        if let NodeState::Testing { next_check_at, .. } = node.state
            && next_check_at <= ledger.now
        {
            ledger.actions.push(PoolAction::Check(Box::new(node.clone())));
        }
    }
}

/// Adds a terminate action for every cloud machine that is to be deleted and whose id is known, and
/// notes in its node when to repeat it, 30 seconds later. Machines whose time has not come are left
/// out. Stops when the commit has no more room.
pub(crate) fn request_terminations(ledger: &mut Ledger<'_>) {
    let due = |node: &PoolNode| match &node.state {
        NodeState::Deleting { instance: Some(instance), retry_at, reason, .. }
            if *retry_at <= ledger.now =>
        {
            Some((node.id.clone(), instance.clone(), node.region.clone(), reason.clone()))
        }
        _ => None,
    };
    let all: Vec<(NodeId, _, _, _)> = ledger
        .nodes
        .values()
        .filter(|node| matches!(node.origin, NodeOrigin::Cloud { .. }))
        .filter_map(due)
        .collect();
    for (id, instance, region, reason) in all {
        if !ledger.has_room(1) {
            return;
        }
        ledger.advance(
            &id,
            NodeEvent::TerminateIntended(ledger.now.plus_seconds(TERMINATE_RETRY_SECONDS)),
        );
        ledger.actions.push(PoolAction::Terminate { node: Some(id), instance, region, reason });
    }
}
