//! Builds that begin, end or are withdrawn, requests that become complete, and nodes whose request
//! vanished.

use crate::ledger::Ledger;
use crate::node::{NodeEvent, NodeState};
use crate::request::{Request, RequestState, Told};
use crate::snapshot::BuildFact;
use sluice_model::build::RequestRef;
use sluice_model::{NodeId, poke::Poke};

/// Seconds after which a build that nobody has claimed is sent to the executors once more: its
/// message may have been lost.
const SENT_AGAIN_SECONDS: u64 = 900;

/// Takes in where builds stand.
pub(crate) fn builds(ledger: &mut Ledger<'_>) {
    let mut running = ledger
        .requests
        .values()
        .filter(|request| matches!(request.state, RequestState::Claimed(_)))
        .peekable();
    if running.peek().is_some()
        && ledger.head.is_time_for_running(ledger.now)
        && running.all(|request| ledger.facts.builds.contains_key(&request.build))
    {
        ledger.head.running_seen_at = ledger.now;
    }
    for request in ledger.requests.values().cloned().collect::<Vec<_>>() {
        if !ledger.room(request.nodes().len() + 1) {
            return;
        }
        if let Some(fact) = told(&request, ledger.facts.builds.get(&request.build)) {
            build(ledger, &request, &fact);
        }
    }
}

/// Returns where a request's build stands, by the request itself where its executor wrote it, else
/// by what was seen.
fn told(request: &Request, seen: Option<&BuildFact>) -> Option<BuildFact> {
    match (&request.state, seen) {
        (RequestState::Ended(_), Some(held @ BuildFact::EndedHeld { .. })) => Some(held.clone()),
        (RequestState::Ended(_), _) => Some(BuildFact::Ended),
        // Run and request were written together: that nobody has it was seen before.
        (RequestState::Claimed(_), None | Some(BuildFact::Waiting | BuildFact::Withdrawn)) => {
            Some(BuildFact::Claimed)
        }
        (_, seen) => seen.cloned(),
    }
}

fn build(ledger: &mut Ledger<'_>, request: &Request, fact: &BuildFact) {
    use RequestState as S;
    match (&request.state, fact) {
        (S::Fulfilled(_), BuildFact::Waiting) => send_again(ledger, request),
        (_, BuildFact::Waiting)
        | (S::Requested | S::Placed(_) | S::Failed { .. }, BuildFact::Claimed) => {}
        (
            S::Fulfilled(placement) | S::Claimed(placement) | S::Ended(placement),
            BuildFact::Claimed,
        ) => {
            for id in &placement.nodes {
                ledger.advance(id, NodeEvent::Claimed(request.build.clone()));
            }
        }
        (
            S::Fulfilled(placement) | S::Claimed(placement) | S::Ended(placement),
            BuildFact::Ended,
        ) => {
            for id in &placement.nodes {
                ledger.delete_node(id, "its build ended");
            }
            close(ledger, request, "its build ended");
        }
        (
            S::Fulfilled(placement) | S::Claimed(placement) | S::Ended(placement),
            BuildFact::EndedHeld { reason, until, hold },
        ) => {
            for id in &placement.nodes {
                ledger.advance(
                    id,
                    NodeEvent::Held { reason: reason.clone(), until: *until, hold: hold.clone() },
                );
            }
            close(ledger, request, "its build ended and its nodes are held");
        }
        (
            S::Fulfilled(placement) | S::Claimed(placement) | S::Ended(placement),
            BuildFact::Gone,
        ) => {
            for id in &placement.nodes {
                if ledger
                    .nodes
                    .get(id)
                    .is_some_and(|node| matches!(node.state, NodeState::InUse { .. }))
                {
                    ledger.delete_node(id, "its build is gone");
                }
            }
            close(ledger, request, "its build is gone");
        }
        (_, BuildFact::Withdrawn) => give_back(ledger, request, "its build was withdrawn"),
        (_, BuildFact::Gone) => give_back(ledger, request, "its build is gone"),
        (_, BuildFact::Ended | BuildFact::EndedHeld { .. }) => {
            give_back(ledger, request, "its build ended without it")
        }
    }
}

fn give_back(ledger: &mut Ledger<'_>, request: &Request, why: &str) {
    for id in request.nodes() {
        ledger.release_node(id, why);
    }
    close(ledger, request, why);
}

/// Sends a build again that has waited for an executor for long; it is sent no more often than
/// that.
fn send_again(ledger: &mut Ledger<'_>, request: &Request) {
    if ledger.now < request.updated_at.plus_seconds(SENT_AGAIN_SECONDS) {
        return;
    }
    ledger.say(format!("request {}: its build has waited for long and is sent again", request.row));
    ledger.request(&request.row, |request| {
        request.reason = "all its nodes are ready; no executor has claimed it".to_owned();
        // A queue that waits for a semaphore may do so for hours, and counts what it sends by
        // itself.
        request.sent_again += u32::from(request.told == Told::Executors);
    });
    let sent = send(ledger, request);
    ledger.pokes.push(sent);
}

/// Returns the message that the nodes are ready: to the executors with the keys of what they will
/// read, or to the queue.
fn send(ledger: &Ledger<'_>, request: &Request) -> Poke {
    if request.told == Told::Queue {
        return Poke::Answer { queue: request.queue.clone() };
    }
    Poke::Build {
        build: request.build.clone(),
        precedence: request.precedence,
        tenant: request.queue.tenant.clone(),
        request: Some(RequestRef {
            provider: ledger.limits.provider.clone(),
            row: request.row.0.clone(),
        }),
        nodes: request.nodes().to_vec(),
    }
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
        let ready = |id: &NodeId| {
            ledger.nodes.get(id).is_some_and(|node| matches!(node.state, NodeState::Ready { .. }))
        };
        if !placement.nodes.iter().all(ready) || !ledger.room(1) {
            continue;
        }
        ledger.say(format!(
            "request {} is fulfilled: all {} nodes are ready",
            request.row,
            placement.nodes.len()
        ));
        ledger.request(&request.row, |request| {
            request.reason = "all its nodes are ready".to_owned();
            request.state = RequestState::Fulfilled(placement);
            request.sent_again = 0;
        });
        if let Some(sent) = ledger.requests.get(&request.row).map(|request| send(ledger, request)) {
            ledger.pokes.push(sent);
        }
    }
}

/// Mends nodes that point to a request that does not know them (Z1.9).
pub(crate) fn orphans(ledger: &mut Ledger<'_>) {
    for node in ledger.nodes.values().cloned().collect::<Vec<_>>() {
        let Some(allocation) = &node.allocated_to else {
            continue;
        };
        let held = ledger
            .requests
            .get(&allocation.row)
            .is_some_and(|request| request.nodes().contains(&node.id));
        if held || !ledger.room(1) {
            continue;
        }
        match (&node.state, allocation.missing_since) {
            (NodeState::InUse { build, .. }, _) => match ledger.facts.builds.get(build) {
                None | Some(BuildFact::Waiting | BuildFact::Claimed) => {}
                Some(BuildFact::EndedHeld { reason, until, hold }) => {
                    ledger.advance(
                        &node.id,
                        NodeEvent::Held {
                            reason: reason.clone(),
                            until: *until,
                            hold: hold.clone(),
                        },
                    );
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
