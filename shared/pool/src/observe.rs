//! Applies observed facts about machines (launch answers, listings, checks) to the nodes' states.

use crate::failures::{self, PlacementLoss};
use crate::ledger::Ledger;
use crate::node::{InstanceId, LaunchProgress, Machine, NodeEvent, NodeState, PoolNode};
use crate::snapshot::{
    CheckFact, InstanceFact, InstanceState, LaunchFact, MachineListing, Paused, by_instance,
};
use sluice_model::{NodeId, Timestamp};

/// The maximum number of transitions of one node in one plan: launched, booted, checked.
const STEPS_MAX: usize = 4;

/// Applies all observed facts about machines (listing, launch answers, checks, removed holds) to
/// the nodes, as far as the commit has room. A failed machine is replaced, or its request is placed
/// again or fails. Adds actions that terminate leaked machines, and machines whose node was given
/// up before the launch was answered. Each node takes several steps if the facts allow.
pub(crate) fn observe_machines(ledger: &mut Ledger<'_>) {
    for (id, fact) in &ledger.facts.launches {
        if let (None, LaunchFact::Launched { machine, region }) = (ledger.nodes.get(id), fact) {
            ledger.terminate_stray(
                &machine.instance,
                region.as_deref(),
                "its node was given up before the launch was answered",
            );
        }
    }
    ledger.terminate_leaked();
    for id in ledger.nodes.keys().cloned().collect::<Vec<_>>() {
        for _ in 0..STEPS_MAX {
            let Some(node) = ledger.nodes.get(&id).cloned() else {
                break;
            };
            if !ledger.has_room(1) {
                return;
            }
            observe_node(ledger, &node);
            if ledger.nodes.get(&id).is_none_or(|after| after.state == node.state) {
                break;
            }
        }
    }
}

/// Applies the answers to checks of static hosts that this same plan lends; call it after the
/// requests are placed. It has an effect only when a plan is repeated with the answers to its own
/// checks, because the repeated plan lends the same hosts to the same nodes.
pub(crate) fn observe_lent_hosts(ledger: &mut Ledger<'_>) {
    for id in ledger.facts.checks.keys() {
        let Some(node) = ledger.nodes.get(id).cloned() else { continue };
        let is_new =
            node.is_static() && node.created_at == ledger.now && node.allocated_to.is_some();
        if is_new && matches!(node.state, NodeState::Testing { .. }) && ledger.has_room(1) {
            observe_node(ledger, &node);
        }
    }
}

/// Applies the facts about one node to its state, one step at a time, such as from booting to being
/// checked. A machine that ended, disappeared, takes too long or failed its check counts as failed,
/// except a ready one that a build may be about to claim. Used nodes, and held ones whose time is
/// over or whose hold was removed, are deleted. Nodes in use stay as they are. The caller has
/// checked that the commit has room for a record.
fn observe_node(ledger: &mut Ledger<'_>, node: &PoolNode) {
    let id = &node.id;
    match &node.state {
        NodeState::Requested(LaunchProgress::Reserved) => {}
        NodeState::Requested(LaunchProgress::Intended { tries, .. }) => {
            observe_launch(ledger, node, *tries)
        }
        NodeState::Building { machine } => match listed(ledger, &machine.instance) {
            Some(fact) if fact.state == InstanceState::Running && has_address(&fact.machine) => {
                let machine = Machine { launched_at: machine.launched_at, ..fact.machine.clone() };
                ledger.advance(id, NodeEvent::Booted(machine, ledger.now));
            }
            fact => fail_if_not_booting(ledger, node, machine, fact.map(|fact| fact.state)),
        },
        NodeState::Testing { machine, .. } => {
            let state = listed(ledger, &machine.instance).map(|fact| fact.state);
            match ledger.facts.checks.get(id) {
                Some(CheckFact::Passed { host_keys }) => {
                    ledger.advance(id, NodeEvent::Checked(host_keys.clone()))
                }
                Some(CheckFact::Failed(why)) => failures::machine_failed(ledger, id, why),
                Some(CheckFact::NotYet(why)) if boot_deadline(node, machine) <= ledger.now => {
                    failures::machine_failed(
                        ledger,
                        id,
                        &format!("no login within {} s: {why}", node.boot_timeout_seconds),
                    );
                }
                Some(CheckFact::NotYet(_)) => {
                    let next = ledger.now.plus_millis(ledger.limits.pace.poll_millis.max(1));
                    ledger.advance(id, NodeEvent::NotYet(next));
                }
                None => fail_if_not_booting(ledger, node, machine, state),
            }
        }
        NodeState::Ready { machine, .. } => {
            // A build may be about to claim this node. The build will find the host unreachable and
            // be retried.
            let may_be_claimed =
                node.allocated_to.is_some() && failures::placed_request_of(ledger, node).is_none();
            if !may_be_claimed
                && let Some(why) = disappearance(
                    ledger,
                    node,
                    machine,
                    listed(ledger, &machine.instance).map(|fact| fact.state),
                )
            {
                failures::machine_failed(ledger, id, &why);
            }
        }
        NodeState::InUse { .. } => {}
        NodeState::Used { .. } => ledger.delete_node(id, "it was used"),
        NodeState::Hold { until, .. } => {
            if ledger.facts.released.contains(id) {
                ledger.delete_node(id, "its hold request was removed");
            } else if until.is_some_and(|until| until <= ledger.now) {
                ledger.delete_node(id, "its hold expired");
            }
        }
        NodeState::Deleting { instance, since, .. } => {
            observe_deleting(ledger, node, instance.as_ref(), *since)
        }
    }
}

/// Applies the observed outcome of a launch that was called `tries` times. A listed machine counts
/// more than the answer. After a `Transient` answer the launch is repeated later. If the cloud's
/// quota is used up, all launches are paused: the launch for a placed request is repeated later,
/// and any other node is given up. After other refusals the node is given up; its placed request
/// gets another node, is placed again or fails, and without a placed request launches for min-ready
/// are delayed. Does nothing without any outcome.
fn observe_launch(ledger: &mut Ledger<'_>, node: &PoolNode, tries: u32) {
    let id = &node.id;
    if let Some(fact) = tagged(ledger, id) {
        return match fact.state {
            InstanceState::Pending | InstanceState::Running => {
                ledger.advance(id, NodeEvent::Launched(fact.machine.clone()))
            }
            InstanceState::Stopping | InstanceState::Terminated => {
                ledger.advance(id, NodeEvent::Launched(fact.machine.clone()));
                failures::machine_failed(ledger, id, "the machine ended while it was launched");
            }
        };
    }
    match ledger.facts.launches.get(id) {
        None => {}
        Some(LaunchFact::Launched { machine, .. }) => {
            ledger.advance(id, NodeEvent::Launched(machine.clone()))
        }
        Some(LaunchFact::Quota(why)) => {
            let until = ledger.now.plus_seconds(ledger.limits.pace.launch_retry_seconds);
            ledger.head.paused = Paused::ByCloud { until };
            ledger.explain(format!("launches are paused: the cloud's own quota is used up: {why}"));
            if failures::placed_request_of(ledger, node).is_some() {
                explain_to_request(
                    ledger,
                    node,
                    &format!("the cloud's own quota is used up: {why}"),
                );
                postpone(ledger, id, until);
            } else {
                // Its request is gone, or it was for min-ready: a new one is made when launches
                // resume.
                remove_unlaunched(ledger, id, tries, why);
            }
        }
        Some(LaunchFact::NoCapacity(why)) => {
            let holder = failures::placed_request_of(ledger, node);
            remove_unlaunched(ledger, id, tries, why);
            match holder {
                Some((row, _)) => {
                    failures::drop_placement(ledger, &row, PlacementLoss::Transient, why)
                }
                None => ledger.head.min_ready_not_before = ledger.now.plus_seconds(60),
            }
        }
        Some(LaunchFact::Permanent(why)) => {
            let holder = failures::placed_request_of(ledger, node);
            remove_unlaunched(ledger, id, tries, why);
            match holder {
                Some((row, slot)) => {
                    let names = ledger.requests.get(&row).map(|request| request.label_names());
                    let label = names.and_then(|names| names.get(slot)).unwrap_or(&node.label);
                    let why = format!("label {label} cannot be launched: {why}");
                    failures::fail_request(ledger, &row, &why);
                }
                None => ledger.head.min_ready_not_before = ledger.now.plus_seconds(300),
            }
        }
        Some(LaunchFact::TokenTaken(why)) => failures::machine_failed(ledger, id, why),
        Some(LaunchFact::Transient { why, retry_after_seconds }) => {
            let wait = (2_u64 << tries.min(7)).max(*retry_after_seconds);
            ledger.explain(format!("node {id} is launched again in {wait} s: {why}"));
            explain_to_request(ledger, node, &format!("a launch has no answer yet: {why}"));
            postpone(ledger, id, ledger.now.plus_seconds(wait));
        }
    }
}

/// Records in the node's placed request why it still waits. Does nothing if the node has no placed
/// request, or the request already has this reason.
fn explain_to_request(ledger: &mut Ledger<'_>, node: &PoolNode, why: &str) {
    if let Some((row, _)) = failures::placed_request_of(ledger, node)
        && ledger.requests.get(&row).is_some_and(|request| request.reason != why)
    {
        ledger.update_request(&row, |request| why.clone_into(&mut request.reason));
    }
}

/// Removes a node whose launch answered that no machine was created. If there were several calls
/// (`tries`), an earlier one may have created a machine, so the node is marked for deletion
/// instead.
fn remove_unlaunched(ledger: &mut Ledger<'_>, id: &NodeId, tries: u32, why: &str) {
    if tries <= 1 { ledger.remove_node(id, why) } else { ledger.delete_node(id, why) }
}

/// Sets when the launch call of a node is repeated. In another state than `Intended` only the
/// node's time of update changes.
fn postpone(ledger: &mut Ledger<'_>, id: &NodeId, at: Timestamp) {
    ledger.update_node(id, |node| {
        if let NodeState::Requested(LaunchProgress::Intended { retry_at, .. }) = &mut node.state {
            *retry_at = at;
        }
    });
}

/// Fails the starting machine of a node if it ended, disappeared or takes too long, as far as the
/// commit has room; otherwise does nothing. `state` is its state in the listing; `None` if it is
/// not listed or there is no listing.
fn fail_if_not_booting(
    ledger: &mut Ledger<'_>,
    node: &PoolNode,
    machine: &Machine,
    state: Option<InstanceState>,
) {
    if let Some(why) = disappearance(ledger, node, machine, state) {
        failures::machine_failed(ledger, &node.id, &why);
    } else if boot_deadline(node, machine) <= ledger.now {
        failures::machine_failed(
            ledger,
            &node.id,
            &format!("it did not boot within {} s", node.boot_timeout_seconds),
        );
    }
}

/// Returns why a machine that should exist is gone. `state` is its state in the listing; `None` if
/// it is not listed. The result is `None` if it exists, is too new to be listed or belongs to a
/// static host, or if its region was not listed.
fn disappearance(
    ledger: &Ledger<'_>,
    node: &PoolNode,
    machine: &Machine,
    state: Option<InstanceState>,
) -> Option<String> {
    let listing = listing_with(ledger, node).filter(|_| !node.is_static())?;
    match state {
        Some(InstanceState::Stopping | InstanceState::Terminated) => {
            Some(format!("machine {} ended by itself", machine.instance))
        }
        Some(InstanceState::Pending | InstanceState::Running) => None,
        None => (listing.taken_at
            >= machine.launched_at.plus_seconds(ledger.limits.pace.visible_seconds))
        .then(|| format!("machine {} is no longer listed", machine.instance)),
    }
}

/// Removes a node being deleted once a listing shows that its machine is gone or was never created.
/// `instance` is `None` while the machine is unknown; then sets it from the listing or the answer
/// to the launch, if one shows it. `since` is when the node was marked for deletion. Otherwise does
/// nothing.
fn observe_deleting(
    ledger: &mut Ledger<'_>,
    node: &PoolNode,
    instance: Option<&InstanceId>,
    since: Timestamp,
) {
    let id = &node.id;
    let Some(instance) = instance else {
        let tagged = tagged(ledger, id).map(|fact| fact.machine.clone());
        let answered = match ledger.facts.launches.get(id) {
            Some(LaunchFact::Launched { machine, .. }) => Some(machine.clone()),
            _ => None,
        };
        let settled = since.plus_seconds(ledger.limits.pace.launch_settle_seconds);
        match tagged.or(answered) {
            Some(machine) => ledger.advance(id, NodeEvent::Launched(machine)),
            None if listing_with(ledger, node)
                .is_some_and(|listing| listing.taken_at >= settled) =>
            {
                ledger.remove_node(id, "its launch never made a machine");
            }
            None => {}
        }
        return;
    };
    let Some(listing) = listing_with(ledger, node) else {
        return;
    };
    match by_instance(listing).get(instance).map(|fact| fact.state) {
        Some(InstanceState::Terminated) => {
            ledger.remove_node(id, &format!("machine {instance} is terminated"))
        }
        None if listing.taken_at >= since.plus_seconds(ledger.limits.pace.visible_seconds) => {
            ledger.remove_node(id, &format!("machine {instance} is no longer listed"));
        }
        Some(_) | None => {}
    }
}

/// Returns when a machine that has not booted or cannot be logged in to counts as failed.
fn boot_deadline(node: &PoolNode, machine: &Machine) -> Timestamp {
    machine.launched_at.max(node.created_at).plus_seconds(node.boot_timeout_seconds)
}

/// Returns whether a machine has any address.
fn has_address(machine: &Machine) -> bool {
    machine.private_ipv4.is_some() || machine.public_ipv4.is_some() || machine.public_ipv6.is_some()
}

/// Returns the listing if it includes the region of a node, so that it shows whether the node's
/// machine exists.
fn listing_with<'a>(ledger: &Ledger<'a>, node: &PoolNode) -> Option<&'a MachineListing> {
    ledger.facts.listing.as_ref().filter(|listing| listing.regions.contains(&node.region))
}

/// Returns the listed machine whose tag names the node; `None` if there is none or no listing.
fn tagged<'a>(ledger: &Ledger<'a>, id: &NodeId) -> Option<&'a InstanceFact> {
    ledger.facts.listing.as_ref()?.instances.iter().find(|fact| fact.node.as_ref() == Some(id))
}

/// Returns the listed machine with this id; `None` if there is none or no listing.
fn listed<'a>(ledger: &Ledger<'a>, instance: &InstanceId) -> Option<&'a InstanceFact> {
    ledger.facts.listing.as_ref()?.instances.iter().find(|fact| fact.machine.instance == *instance)
}
