//! Builds that begin, end or are withdrawn, requests that become complete, and nodes whose request vanished.

use crate::ledger::Ledger;
use crate::node::{NodeEvent, NodeState};
use crate::request::{Request, RequestState};
use crate::snapshot::BuildFact;
use sluice_model::{NodeId, poke::Poke};

/// Takes in where builds stand.
pub(crate) fn builds(ledger: &mut Ledger<'_>) {
    for request in ledger.requests.values().cloned().collect::<Vec<_>>() {
        if !ledger.room(request.nodes().len() + 1) {
            return;
        }
        if let Some(fact) = ledger.facts.builds.get(&request.build) {
            build(ledger, &request, fact);
        }
    }
}

fn build(ledger: &mut Ledger<'_>, request: &Request, fact: &BuildFact) {
    use RequestState as S;
    match (&request.state, fact) {
        (_, BuildFact::Waiting) | (S::Requested | S::Placed(_) | S::Failed { .. }, BuildFact::Claimed) => {}
        (S::Fulfilled(placement), BuildFact::Claimed) => {
            for id in &placement.nodes {
                ledger.advance(id, NodeEvent::Claimed(request.build.clone()));
            }
        }
        (S::Fulfilled(placement), BuildFact::Ended) => {
            for id in &placement.nodes {
                ledger.delete_node(id, "its build ended");
            }
            close(ledger, request, "its build ended");
        }
        (S::Fulfilled(placement), BuildFact::EndedHeld { reason, until }) => {
            for id in &placement.nodes {
                ledger.advance(id, NodeEvent::Held { reason: reason.clone(), until: *until });
            }
            close(ledger, request, "its build ended and its nodes are held");
        }
        (S::Fulfilled(placement), BuildFact::Gone) => {
            for id in &placement.nodes {
                if ledger.nodes.get(id).is_some_and(|node| matches!(node.state, NodeState::InUse { .. })) {
                    ledger.delete_node(id, "its build is gone");
                }
            }
            close(ledger, request, "its build is gone");
        }
        (_, BuildFact::Withdrawn) => give_back(ledger, request, "its build was withdrawn"),
        (_, BuildFact::Gone) => give_back(ledger, request, "its build is gone"),
        (_, BuildFact::Ended | BuildFact::EndedHeld { .. }) => give_back(ledger, request, "its build ended without it"),
    }
}

fn give_back(ledger: &mut Ledger<'_>, request: &Request, why: &str) {
    for id in request.nodes() {
        ledger.release_node(id, why);
    }
    close(ledger, request, why);
}

fn close(ledger: &mut Ledger<'_>, request: &Request, why: &str) {
    ledger.say(format!("request {} is over: {why}", request.row));
    ledger.remove_request(&request.row);
}

/// Sends every build whose nodes are all ready to the executors (Z1.8).
pub(crate) fn fulfil(ledger: &mut Ledger<'_>) {
    for request in ledger.requests.values().cloned().collect::<Vec<_>>() {
        let RequestState::Placed(placement) = request.state else {
            continue;
        };
        let ready =
            |id: &NodeId| ledger.nodes.get(id).is_some_and(|node| matches!(node.state, NodeState::Ready { .. }));
        if !placement.nodes.iter().all(ready) || !ledger.room(1) {
            continue;
        }
        ledger.say(format!("request {} is fulfilled: all {} nodes are ready", request.row, placement.nodes.len()));
        ledger.request(&request.row, |request| {
            request.reason = "all its nodes are ready".to_owned();
            request.state = RequestState::Fulfilled(placement);
        });
        ledger.pokes.push(Poke::Build {
            build: request.build,
            precedence: request.precedence,
            tenant: request.queue.tenant,
        });
    }
}

/// Mends nodes that point to a request that does not know them (Z1.9).
pub(crate) fn orphans(ledger: &mut Ledger<'_>) {
    for node in ledger.nodes.values().cloned().collect::<Vec<_>>() {
        let Some(allocation) = &node.allocated_to else {
            continue;
        };
        let held = ledger.requests.get(&allocation.row).is_some_and(|request| request.nodes().contains(&node.id));
        if held || !ledger.room(1) {
            continue;
        }
        match (&node.state, allocation.missing_since) {
            (NodeState::InUse { build, .. }, _) => match ledger.facts.builds.get(build) {
                None | Some(BuildFact::Waiting | BuildFact::Claimed) => {}
                Some(BuildFact::EndedHeld { reason, until }) => {
                    ledger.advance(&node.id, NodeEvent::Held { reason: reason.clone(), until: *until });
                }
                Some(BuildFact::Ended | BuildFact::Withdrawn | BuildFact::Gone) => {
                    ledger.delete_node(&node.id, "its build is gone")
                }
            },
            (NodeState::Used { .. } | NodeState::Hold { .. } | NodeState::Deleting { .. }, _) => {}
            (_, None) => {
                let now = ledger.now;
                ledger.node(&node.id, |node| {
                    if let Some(allocation) = &mut node.allocated_to {
                        allocation.missing_since = Some(now);
                    }
                });
            }
            (_, Some(since)) => {
                let end = since.plus_seconds(ledger.limits.pace.orphan_seconds);
                if end < ledger.now {
                    ledger.release_node(&node.id, "its request has been gone for too long");
                } else {
                    ledger.due_at(end.plus_millis(1));
                }
            }
        }
    }
}
