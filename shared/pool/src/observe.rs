//! Facts about machines: what launches, listings and checks said becomes each node's next state.

use crate::demand::{self, Lost};
use crate::ledger::Ledger;
use crate::node::{InstanceId, Launch, Machine, Node, NodeEvent, NodeState};
use crate::snapshot::{CheckFact, InstanceFact, InstanceState, LaunchFact, Paused, by_instance};
use sluice_model::{NodeId, Timestamp};

/// Steps that one node may take in one plan: launched, booted, checked.
const STEPS_MAX: usize = 4;

/// Takes in everything that was seen of machines.
pub(crate) fn machines(ledger: &mut Ledger<'_>) {
    for (id, fact) in &ledger.facts.launches {
        if let (None, LaunchFact::Launched(machine)) = (ledger.nodes.get(id), fact) {
            ledger.terminate_stray(
                &machine.instance,
                "its node was given up before the launch answered",
            );
        }
    }
    ledger.leaks();
    for id in ledger.nodes.keys().cloned().collect::<Vec<_>>() {
        for _ in 0..STEPS_MAX {
            let Some(node) = ledger.nodes.get(&id).cloned() else {
                break;
            };
            if !ledger.room(1) {
                return;
            }
            step(ledger, &node);
            if ledger.nodes.get(&id).is_none_or(|after| after.state == node.state) {
                break;
            }
        }
    }
}

/// Takes in checks of hosts that this very plan lends: a plan that is made again with the answers
/// to its own checks gives the same hosts the same nodes.
pub(crate) fn lent(ledger: &mut Ledger<'_>) {
    for id in ledger.facts.checks.keys() {
        let Some(node) = ledger.nodes.get(id).cloned() else { continue };
        let is_new =
            node.is_static() && node.created_at == ledger.now && node.allocated_to.is_some();
        if is_new && matches!(node.state, NodeState::Testing { .. }) && ledger.room(1) {
            step(ledger, &node);
        }
    }
}

fn step(ledger: &mut Ledger<'_>, node: &Node) {
    let id = &node.id;
    match &node.state {
        NodeState::Requested(Launch::Reserved) => {}
        NodeState::Requested(Launch::Intended { tries, .. }) => launching(ledger, node, *tries),
        NodeState::Building { machine } => match seen(ledger, &machine.instance) {
            Some(fact) if fact.state == InstanceState::Running && has_address(&fact.machine) => {
                let machine = Machine { launched_at: machine.launched_at, ..fact.machine.clone() };
                ledger.advance(id, NodeEvent::Booted(machine, ledger.now));
            }
            fact => starting(ledger, node, machine, fact.map(|fact| fact.state)),
        },
        NodeState::Testing { machine, .. } => {
            let state = seen(ledger, &machine.instance).map(|fact| fact.state);
            match ledger.facts.checks.get(id) {
                Some(CheckFact::Passed { host_keys }) => {
                    ledger.advance(id, NodeEvent::Checked(host_keys.clone()))
                }
                Some(CheckFact::Failed(why)) => demand::machine_failed(ledger, id, why),
                Some(CheckFact::NotYet(why)) if boot_deadline(node, machine) <= ledger.now => {
                    demand::machine_failed(
                        ledger,
                        id,
                        &format!("no login within {} s: {why}", node.boot_timeout_seconds),
                    );
                }
                Some(CheckFact::NotYet(_)) => {
                    let next = ledger.now.plus_millis(ledger.limits.pace.poll_millis.max(1));
                    ledger.advance(id, NodeEvent::NotYet(next));
                }
                None => starting(ledger, node, machine, state),
            }
        }
        NodeState::Ready { machine, .. } => {
            // One that a build may be about to claim is left to the build: it will find the host
            // unreachable and be retried.
            let promised =
                node.allocated_to.is_some() && demand::placed_request(ledger, node).is_none();
            if !promised
                && let Some(why) = vanished(
                    ledger,
                    node,
                    machine,
                    seen(ledger, &machine.instance).map(|fact| fact.state),
                )
            {
                demand::machine_failed(ledger, id, &why);
            }
        }
        NodeState::InUse { .. } => {}
        NodeState::Used { .. } => ledger.delete_node(id, "it was used"),
        NodeState::Hold { until, .. } => {
            if ledger.facts.released.contains(id) {
                ledger.delete_node(id, "nobody wants it held any more");
            } else if *until <= ledger.now {
                ledger.delete_node(id, "it was held long enough");
            }
        }
        NodeState::Deleting { instance, since, .. } => {
            deleting(ledger, node, instance.as_ref(), *since)
        }
    }
}

/// Takes in what is known of a launch that was called.
fn launching(ledger: &mut Ledger<'_>, node: &Node, tries: u32) {
    let id = &node.id;
    if let Some(fact) = tagged(ledger, id) {
        return match fact.state {
            InstanceState::Pending | InstanceState::Running => {
                ledger.advance(id, NodeEvent::Launched(fact.machine.clone()))
            }
            InstanceState::Stopping | InstanceState::Terminated => {
                ledger.advance(id, NodeEvent::Launched(fact.machine.clone()));
                demand::machine_failed(ledger, id, "the machine ended while it was launched");
            }
        };
    }
    match ledger.facts.launches.get(id) {
        None => {}
        Some(LaunchFact::Launched(machine)) => {
            ledger.advance(id, NodeEvent::Launched(machine.clone()))
        }
        Some(LaunchFact::Quota(why)) => {
            let until = ledger.now.plus_seconds(ledger.limits.pace.launch_retry_seconds);
            ledger.head.paused = Paused::ByCloud { until };
            ledger.say(format!("launches rest: the cloud's own quota is used up: {why}"));
            if demand::placed_request(ledger, node).is_some() {
                tell_holder(ledger, node, &format!("the cloud's own quota is used up: {why}"));
                postpone(ledger, id, until);
            } else {
                // Nobody waits for it any more, or it was to be kept ready: then another one is
                // asked for when launches go on.
                nothing_made(ledger, id, tries, why);
            }
        }
        Some(LaunchFact::NoCapacity(why)) => {
            let holder = demand::placed_request(ledger, node);
            nothing_made(ledger, id, tries, why);
            match holder {
                Some((row, _)) => demand::drop_placement(ledger, &row, Lost::Passing, why),
                None => ledger.head.min_ready_not_before = ledger.now.plus_seconds(60),
            }
        }
        Some(LaunchFact::Permanent(why)) => {
            let holder = demand::placed_request(ledger, node);
            nothing_made(ledger, id, tries, why);
            match holder {
                Some((row, _)) => demand::fail(
                    ledger,
                    &row,
                    &format!("label {} cannot be launched: {why}", node.label),
                ),
                None => ledger.head.min_ready_not_before = ledger.now.plus_seconds(300),
            }
        }
        Some(LaunchFact::TokenTaken(why)) => demand::machine_failed(ledger, id, why),
        Some(LaunchFact::Transient { why, retry_after_seconds }) => {
            let wait = (2_u64 << tries.min(7)).max(*retry_after_seconds);
            ledger.say(format!("node {id} is launched again in {wait} s: {why}"));
            tell_holder(ledger, node, &format!("a launch has no answer yet: {why}"));
            postpone(ledger, id, ledger.now.plus_seconds(wait));
        }
    }
}

/// Lets the request that waits for a node say why it still does.
fn tell_holder(ledger: &mut Ledger<'_>, node: &Node, why: &str) {
    if let Some((row, _)) = demand::placed_request(ledger, node)
        && ledger.requests.get(&row).is_some_and(|request| request.reason != why)
    {
        ledger.request(&row, |request| why.clone_into(&mut request.reason));
    }
}

/// Lets a node go whose launch answered that it made nothing. Only the first call's answer is
/// proof: an earlier one may have made a machine.
fn nothing_made(ledger: &mut Ledger<'_>, id: &NodeId, tries: u32, why: &str) {
    if tries <= 1 { ledger.remove_node(id, why) } else { ledger.delete_node(id, why) }
}

fn postpone(ledger: &mut Ledger<'_>, id: &NodeId, at: Timestamp) {
    ledger.node(id, |node| {
        if let NodeState::Requested(Launch::Intended { retry_at, .. }) = &mut node.state {
            *retry_at = at;
        }
    });
}

/// Gives up a starting machine that ended, vanished or takes too long.
fn starting(ledger: &mut Ledger<'_>, node: &Node, machine: &Machine, state: Option<InstanceState>) {
    if let Some(why) = vanished(ledger, node, machine, state) {
        demand::machine_failed(ledger, &node.id, &why);
    } else if boot_deadline(node, machine) <= ledger.now {
        demand::machine_failed(
            ledger,
            &node.id,
            &format!("it did not boot within {} s", node.boot_timeout_seconds),
        );
    }
}

/// Returns why a machine that should exist does not; `None` while it does, or nobody looked.
fn vanished(
    ledger: &Ledger<'_>,
    node: &Node,
    machine: &Machine,
    state: Option<InstanceState>,
) -> Option<String> {
    let listing = ledger.facts.listing.as_ref().filter(|_| !node.is_static())?;
    match state {
        Some(InstanceState::Stopping | InstanceState::Terminated) => {
            Some(format!("machine {} ended by itself", machine.instance))
        }
        Some(InstanceState::Pending | InstanceState::Running) => None,
        None => (listing.taken_at
            >= machine.launched_at.plus_seconds(ledger.limits.pace.visible_seconds))
        .then(|| format!("machine {} is not listed any more", machine.instance)),
    }
}

fn deleting(ledger: &mut Ledger<'_>, node: &Node, instance: Option<&InstanceId>, since: Timestamp) {
    let id = &node.id;
    let Some(instance) = instance else {
        let found = tagged(ledger, id).map(|fact| fact.machine.clone());
        let answered = match ledger.facts.launches.get(id) {
            Some(LaunchFact::Launched(machine)) => Some(machine.clone()),
            _ => None,
        };
        let settled = since.plus_seconds(ledger.limits.pace.launch_settle_seconds);
        match found.or(answered) {
            Some(machine) => ledger.advance(id, NodeEvent::Launched(machine)),
            None if ledger
                .facts
                .listing
                .as_ref()
                .is_some_and(|listing| listing.taken_at >= settled) =>
            {
                ledger.remove_node(id, "its launch never made a machine");
            }
            None => {}
        }
        return;
    };
    let Some(listing) = &ledger.facts.listing else {
        return;
    };
    match by_instance(listing).get(instance).map(|fact| fact.state) {
        Some(InstanceState::Terminated) => {
            ledger.remove_node(id, &format!("machine {instance} is terminated"))
        }
        None if listing.taken_at >= since.plus_seconds(ledger.limits.pace.visible_seconds) => {
            ledger.remove_node(id, &format!("machine {instance} is not listed any more"));
        }
        Some(_) | None => {}
    }
}

fn boot_deadline(node: &Node, machine: &Machine) -> Timestamp {
    machine.launched_at.max(node.created_at).plus_seconds(node.boot_timeout_seconds)
}

fn has_address(machine: &Machine) -> bool {
    machine.private_ipv4.is_some() || machine.public_ipv4.is_some() || machine.public_ipv6.is_some()
}

fn tagged<'a>(ledger: &Ledger<'a>, id: &NodeId) -> Option<&'a InstanceFact> {
    ledger.facts.listing.as_ref()?.instances.iter().find(|fact| fact.node.as_ref() == Some(id))
}

fn seen<'a>(ledger: &Ledger<'a>, instance: &InstanceId) -> Option<&'a InstanceFact> {
    ledger.facts.listing.as_ref()?.instances.iter().find(|fact| fact.machine.instance == *instance)
}
