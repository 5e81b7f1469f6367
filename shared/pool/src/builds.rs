//! Applies build states to requests and nodes, fulfills complete requests, and recovers nodes whose
//! request is gone.

use crate::ledger::Ledger;
use crate::node::{NodeEvent, NodeState};
use crate::request::{NodeRequest, ReadyRecipient, RequestState};
use crate::snapshot::BuildFact;
use sluice_model::build::RequestRef;
use sluice_model::{NodeId, wakeup::Wakeup};

/// Seconds after which an unclaimed build is sent to the executors again, in case its message was
/// lost.
const RESEND_SECONDS: u64 = 900;

/// Applies the observed state of each request's build to the request and its nodes. Stops at the
/// first request for which the commit has no room. Notes in the head when the builds of claimed
/// requests were read, if there are such requests, the read was due and all these builds were read.
pub(crate) fn apply_builds(ledger: &mut Ledger<'_>) {
    let mut running = ledger
        .requests
        .values()
        .filter(|request| matches!(request.state, RequestState::Claimed(_)))
        .peekable();
    if running.peek().is_some()
        && ledger.head.is_time_for_running(ledger.now)
        && running.all(|request| ledger.facts.builds.contains_key(&request.build))
    {
        ledger.head.running_checked_at = ledger.now;
    }
    for request in ledger.requests.values().cloned().collect::<Vec<_>>() {
        if !ledger.has_room(request.nodes().len() + 1) {
            return;
        }
        if let Some(fact) = observed_build(&request, ledger.facts.builds.get(&request.build)) {
            apply_build(ledger, &request, &fact);
        }
    }
}

/// Returns the state of a request's build from the request and the observed fact. An ended request
/// counts as ended, or as held if the fact says so. For a claimed request, a missing, waiting or
/// withdrawn fact counts as claimed. Otherwise the fact counts; `None` if there is none.
fn observed_build(request: &NodeRequest, fact: Option<&BuildFact>) -> Option<BuildFact> {
    match (&request.state, fact) {
        (RequestState::Ended(_), Some(held @ BuildFact::EndedHeld { .. })) => Some(held.clone()),
        (RequestState::Ended(_), _) => Some(BuildFact::Ended),
        // The executor writes run and request together, so an unclaimed run was read earlier.
        (RequestState::Claimed(_), None | Some(BuildFact::Waiting | BuildFact::Withdrawn)) => {
            Some(BuildFact::Claimed)
        }
        (_, fact) => fact.cloned(),
    }
}

/// Applies the state of a build to its request and nodes. If the build is claimed and its nodes
/// were ready, the nodes become in use, and the request stays as it is. When such a build ends, its
/// nodes are deleted or held; if it is gone, only nodes in use are deleted. If the build was
/// withdrawn, or ended or is gone before its nodes were ready, the nodes are released. In all these
/// cases but the first the request is removed. If a build with ready nodes waits for an executor,
/// the build may be sent again. Whether the commit has room is not checked.
fn apply_build(ledger: &mut Ledger<'_>, request: &NodeRequest, fact: &BuildFact) {
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
        (_, BuildFact::Withdrawn) => release_request(ledger, request, "its build was withdrawn"),
        (_, BuildFact::Gone) => release_request(ledger, request, "its build is gone"),
        (_, BuildFact::Ended | BuildFact::EndedHeld { .. }) => {
            release_request(ledger, request, "its build ended without using it")
        }
    }
}

/// Releases all nodes of a request ([`Ledger::release_node`]) and removes it. Whether the commit
/// has room is not checked.
fn release_request(ledger: &mut Ledger<'_>, request: &NodeRequest, why: &str) {
    for id in request.nodes() {
        ledger.release_node(id, why);
    }
    close(ledger, request, why);
}

/// Sends the build of a fulfilled request again if the request has not changed for
/// [`RESEND_SECONDS`]: adds the wakeup of the request's recipient and updates the request. Counts
/// the resend only if the recipient is the executors. The caller has checked that no executor has
/// claimed the build.
fn send_again(ledger: &mut Ledger<'_>, request: &NodeRequest) {
    if ledger.now < request.updated_at.plus_seconds(RESEND_SECONDS) {
        return;
    }
    ledger.explain(format!(
        "request {}: {} has claimed its build; sending it again",
        request.row,
        no_executor(request)
    ));
    ledger.update_request(&request.row, |request| {
        request.reason =
            format!("all its nodes are ready; {} has claimed it", no_executor(request));
        // A queue may wait for a semaphore for hours, and counts its resends itself.
        request.resends += u32::from(request.ready_recipient == ReadyRecipient::Executors);
    });
    let sent = ready_wakeup(ledger, request);
    ledger.wakeups.push(sent);
}

/// Returns which executors have not claimed a request's build: "no executor", or those of its zone.
fn no_executor(request: &NodeRequest) -> String {
    match &request.executor_zone {
        None => "no executor".to_owned(),
        Some(zone) => format!("no executor of the zone {zone}"),
    }
}

/// Returns the wakeup that says that the nodes are ready, for the request's recipient: the
/// executors, with the keys of all records they will read, or the queue. Sends nothing, and does
/// not check that the nodes are ready.
fn ready_wakeup(ledger: &Ledger<'_>, request: &NodeRequest) -> Wakeup {
    if request.ready_recipient == ReadyRecipient::Queue {
        return Wakeup::Answer { queue: request.queue.clone() };
    }
    Wakeup::Build {
        build: request.build.clone(),
        precedence: request.precedence,
        tenant: request.queue.tenant.clone(),
        request: Some(RequestRef {
            provider: ledger.limits.provider.clone(),
            row: request.row.0.clone(),
        }),
        nodes: request.nodes().to_vec(),
        zone: request.executor_zone.clone(),
    }
}

/// Removes a request that is over, and records why. Its nodes stay as they are; the caller has
/// dealt with them.
fn close(ledger: &mut Ledger<'_>, request: &NodeRequest, why: &str) {
    ledger.explain(format!("request {} is over: {why}", request.row));
    ledger.remove_request(&request.row);
}

/// Marks each placed request whose nodes are all ready as fulfilled, and adds the wakeup of its
/// recipient, the executors or the queue (Z1.8). Requests for which the commit has no room stay
/// placed.
pub(crate) fn fulfill_ready_requests(ledger: &mut Ledger<'_>) {
    for request in ledger.requests.values().cloned().collect::<Vec<_>>() {
        let RequestState::Placed(placement) = request.state else {
            continue;
        };
        let ready = |id: &NodeId| {
            ledger.nodes.get(id).is_some_and(|node| matches!(node.state, NodeState::Ready { .. }))
        };
        if !placement.nodes.iter().all(ready) || !ledger.has_room(1) {
            continue;
        }
        ledger.explain(format!(
            "request {} is fulfilled: all {} nodes are ready",
            request.row,
            placement.nodes.len()
        ));
        ledger.update_request(&request.row, |request| {
            request.reason = "all its nodes are ready".to_owned();
            request.state = RequestState::Fulfilled(placement);
            request.resends = 0;
        });
        if let Some(sent) =
            ledger.requests.get(&request.row).map(|request| ready_wakeup(ledger, request))
        {
            ledger.wakeups.push(sent);
        }
    }
}

/// Recovers nodes allocated to a request that is gone or does not list them (Z1.9). A node in use
/// is held or deleted once its build is known to have ended, to be withdrawn or to be gone. A used,
/// held or deleted node stays as it is. Any other node is released when this has lasted for longer
/// than the provider's `orphan_seconds`; the first time only notes since when. Nodes for which the
/// commit has no room are skipped.
pub(crate) fn recover_orphaned_nodes(ledger: &mut Ledger<'_>) {
    for node in ledger.nodes.values().cloned().collect::<Vec<_>>() {
        let Some(allocation) = &node.allocated_to else {
            continue;
        };
        let is_listed = ledger
            .requests
            .get(&allocation.row)
            .is_some_and(|request| request.nodes().contains(&node.id));
        if is_listed || !ledger.has_room(1) {
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
                ledger.update_node(&node.id, |node| {
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
