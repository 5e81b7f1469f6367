//! Machines: what is launched, kept ready, checked and terminated.

use crate::demand;
use crate::ledger::Ledger;
use crate::limits::{Image, Resources};
use crate::node::{Launch, Node, NodeEvent, NodeState, Origin};
use crate::place::{self, Waiting};
use crate::plan::Action;
use crate::request::RequestState;
use crate::snapshot::Paused;
use crate::turns;
use sluice_model::{LabelName, NodeId};

/// Seconds between two calls to terminate one machine.
const TERMINATE_RETRY_SECONDS: u64 = 30;

/// Launches reserved nodes in the order of their requests as far as the quota goes, and calls
/// unanswered launches again.
pub(crate) fn launch(ledger: &mut Ledger<'_>) {
    if ledger.head.paused != Paused::No {
        return;
    }
    // One that waits for quota holds back those behind it, but not the repeats of launches that
    // were called.
    'requests: for request in turns::in_order(&ledger.requests, &ledger.facts.places) {
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
            if node.state != NodeState::Requested(Launch::Reserved)
                || !ledger.room(1 + placement.nodes.len())
            {
                continue;
            }
            if !total.fits(ledger.limits.quota) {
                demand::fail(ledger, &request.row, "the quota became smaller than the request");
                break;
            }
            if !ledger.used().plus(node.reserved()).fits(ledger.limits.quota) {
                break 'requests;
            }
            call(ledger, &node);
        }
    }
    for node in ledger.nodes.values().cloned().collect::<Vec<_>>() {
        if let NodeState::Requested(Launch::Intended { retry_at, .. }) = node.state
            && retry_at <= ledger.now
            && ledger.room(1)
        {
            call(ledger, &node);
        }
    }
}

/// Records the intent to launch, and asks for the call.
fn call(ledger: &mut Ledger<'_>, node: &Node) {
    let retry_at = ledger.now.plus_seconds(ledger.limits.pace.launch_retry_seconds.max(1));
    ledger.advance(&node.id, NodeEvent::LaunchIntended { retry_at });
    if let Some(node) = ledger.nodes.get(&node.id).cloned() {
        ledger.say(format!("node {} is launched as {}", node.id, node.label));
        ledger.actions.push(Action::Launch(Box::new(node)));
    }
}

/// Launches what min-ready misses, when no request waits for the room (Z1.11).
pub(crate) fn keep_ready(ledger: &mut Ledger<'_>, waiting: Waiting) {
    if waiting == Waiting::ForRoom
        || ledger.head.paused != Paused::No
        || ledger.now < ledger.head.min_ready_not_before
    {
        return;
    }
    for (name, label) in &ledger.limits.labels {
        if matches!(label.image, Image::Missing { .. }) {
            continue;
        }
        let have = ledger
            .nodes
            .values()
            .filter(|node| node.label == *name && node.is_free() && place::is_current(ledger, node))
            .count();
        for _ in have..label.min_ready as usize {
            if !ledger
                .used()
                .plus(ledger.reserved())
                .plus(label.resources)
                .fits(ledger.limits.quota)
                || !ledger.room(1)
            {
                return;
            }
            ledger.head.generation += 1;
            ledger.head.next_zone = ledger.head.next_zone.wrapping_add(1);
            let zones = &ledger.limits.zones;
            let next = || {
                (!zones.is_empty())
                    .then(|| zones[ledger.head.next_zone as usize % zones.len()].clone())
            };
            let zone = label.zone.clone().or_else(next);
            let id = place::launchable(ledger, name, zone, "kept ready", None);
            if let Some(node) = ledger.nodes.get(&id).cloned() {
                call(ledger, &node);
            }
        }
    }
}

/// Lets ready machines go that nobody wants: outdated, too old, or idle beyond min-ready while no
/// request waits for its place.
pub(crate) fn drop_surplus(ledger: &mut Ledger<'_>, waiting: Waiting) {
    let ready = |node: &&Node| {
        node.is_free() && !node.is_static() && matches!(node.state, NodeState::Ready { .. })
    };
    let mut nodes: Vec<Node> = ledger.nodes.values().filter(ready).cloned().collect();
    nodes.sort_by_key(|node| (node.updated_at, node.id.clone()));
    for node in nodes {
        if !ledger.room(1) {
            return;
        }
        if let Some(why) = unwanted(ledger, &node, waiting) {
            ledger.delete_node(&node.id, why);
        }
    }
}

fn unwanted(ledger: &Ledger<'_>, node: &Node, waiting: Waiting) -> Option<&'static str> {
    let now = ledger.now;
    let Some(label) = ledger.limits.labels.get(&node.label) else {
        return Some("its label is not known any more");
    };
    if !place::is_current(ledger, node) {
        return Some("its label has another image or zone now");
    }
    if label.max_ready_age_seconds.is_some_and(|age| now > node.created_at.plus_seconds(age)) {
        return Some("it has been ready for too long");
    }
    // What a waiting request cannot use has made way for it already.
    let idle = waiting == Waiting::Nobody
        && now > node.updated_at.plus_seconds(ledger.limits.pace.idle_seconds);
    (idle && ready_count(ledger, &node.label) > label.min_ready as usize)
        .then_some("nobody needs it")
}

fn ready_count(ledger: &Ledger<'_>, label: &LabelName) -> usize {
    ledger.nodes.values().filter(|node| node.label == *label && node.is_free()).count()
}

/// Asks for a check of every booted machine whose time has come.
pub(crate) fn check(ledger: &mut Ledger<'_>) {
    for node in ledger.nodes.values() {
        if let NodeState::Testing { next_check_at, .. } = node.state
            && next_check_at <= ledger.now
        {
            ledger.actions.push(Action::Check(Box::new(node.clone())));
        }
    }
}

/// Asks for the termination of every machine that is to go.
pub(crate) fn terminate(ledger: &mut Ledger<'_>) {
    let due = |node: &Node| match &node.state {
        NodeState::Deleting { instance: Some(instance), retry_at, reason, .. }
            if *retry_at <= ledger.now =>
        {
            Some((node.id.clone(), instance.clone(), reason.clone()))
        }
        _ => None,
    };
    let all: Vec<(NodeId, _, _)> = ledger
        .nodes
        .values()
        .filter(|node| matches!(node.origin, Origin::Cloud { .. }))
        .filter_map(due)
        .collect();
    for (id, instance, reason) in all {
        if !ledger.room(1) {
            return;
        }
        ledger.advance(
            &id,
            NodeEvent::TerminateIntended(ledger.now.plus_seconds(TERMINATE_RETRY_SECONDS)),
        );
        ledger.actions.push(Action::Terminate { node: Some(id), instance, reason });
    }
}
