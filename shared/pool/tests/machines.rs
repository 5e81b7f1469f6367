//! What becomes of machines and requests at the bounds of a plan.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(missing_docs, dead_code, reason = "each test program uses a part of it")]
mod common;

use common::{World, host, hosts, limits, request};
use sluice_pool::decisions::RECORDS_MAX;
use sluice_pool::*;

/// Returns a provider with machines and one static host, with the label `iron`.
fn limits_with_host() -> ProviderLimits {
    let mut limits = limits(8);
    limits.static_hosts = hosts(&[host("192.0.2.1", &["iron"])]);
    limits
}

/// Returns a cell with one node whose machine is booting.
fn booting() -> World {
    let mut world = World::new(limits(1));
    world.cell.requests = vec![request(1, &["small"])];
    world.step();
    world.carry_out();
    world.machines.values_mut().for_each(|fact| fact.state = InstanceState::Pending);
    world.list();
    world.step();
    assert_eq!(world.node_states(), ["building"]);
    world
}

/// Z1.8: each change of a node's state has its reason, and nothing else counts as a change.
#[test]
fn every_state_of_a_node_is_explained_once() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    let mut moves = Vec::new();
    for _ in 0..6 {
        let reasons = world.step().reasons;
        let of = |reason: &String| Some(reason.split_once(" changes from ")?.1.to_owned());
        moves.extend(reasons.iter().filter_map(of));
        world.carry_out();
        world.now = world.now.plus_seconds(3);
    }
    assert_eq!(world.state(1), "fulfilled 1");
    // The cloud runs the machine before the first listing.
    assert_eq!(moves, ["building to testing", "testing to ready"]);
}

/// Z1.9: a second machine for a node that is being deleted is terminated too.
#[test]
fn a_second_machine_of_a_node_that_is_being_deleted_is_terminated() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    let mut twin = world.machines["i-0"].clone();
    world.executor_writes(1);
    world.step();
    world.executor_writes(1);
    world.step();
    assert_eq!(world.node_states(), ["deleting"]);
    world.actions.clear();
    twin.machine.instance = InstanceId("i-twin".into());
    world.machines.insert("i-twin".into(), twin);
    world.list();
    let strays: Vec<PoolAction> = world.step().actions;
    let is_twin = |action: &PoolAction| matches!(action, PoolAction::Terminate { node: None, instance, .. } if instance.0 == "i-twin");
    assert_eq!(strays.iter().filter(|action| is_twin(action)).count(), 1, "{strays:?}");
    assert!(
        strays
            .iter()
            .all(|action| is_twin(action)
                || !matches!(action, PoolAction::Terminate { node: None, .. })),
        "the node's own machine is no stray: {strays:?}"
    );
}

/// Z1.6: a machine that ended, or is no longer listed, is replaced before its time to boot is over.
#[test]
fn a_starting_machine_that_disappears_is_replaced_at_once() {
    let mut world = booting();
    world.machines.values_mut().for_each(|fact| fact.state = InstanceState::Terminated);
    world.list();
    let reasons = world.step().reasons;
    assert!(
        reasons.iter().any(|reason| reason.contains("machine i-0 ended by itself")),
        "{reasons:?}"
    );

    // A machine may be missing in a listing that is as old as the machine.
    for (seconds, is_gone) in [(0, false), (100, true)] {
        let mut world = booting();
        world.cell.nodes[0].boot_timeout_seconds = 600;
        world.machines.clear();
        world.now = world.now.plus_seconds(seconds);
        world.list();
        let reasons = world.step().reasons;
        let found = reasons.iter().any(|reason| reason.contains("machine i-0 is no longer listed"));
        assert_eq!(found, is_gone, "{seconds}: {reasons:?}");
    }
}

/// Z1.5: a request that does not fit into the transaction, with the record of itself and one for
/// each node, is placed by the next plan, which is due at once.
#[test]
fn requests_that_do_not_fit_into_a_plan_are_placed_by_the_next() {
    for (labels, fits) in [(12, true), (13, false)] {
        let mut world = World::new(limits(200));
        world.cell.requests = vec![
            request(1, &["small"; 40]),
            request(2, &["small"; 40]),
            request(3, &vec!["small"; labels]),
        ];
        let plan = world.step();
        assert!(plan.changes.len() <= RECORDS_MAX, "{labels}: {}", plan.changes.len());
        assert_eq!(world.state(3).starts_with("placed"), fits, "{labels}");
        assert!(fits || plan.due == Some(world.now), "{:?}", plan.due);
        world.carry_out();
        world.step();
        world.step();
        assert!(world.state(3) != "requested");
    }
}

/// L2.5: a request that is split between machines and static hosts says so.
#[test]
fn the_reason_of_a_placement_says_whether_it_is_split() {
    for (labels, is_split) in
        [(&["small", "iron"][..], true), (&["small", "small"], false), (&["iron"], false)]
    {
        let mut world = World::new(limits_with_host());
        world.cell.requests = vec![request(1, labels)];
        world.step();
        let reason = &world.cell.requests[0].reason;
        assert_eq!(
            reason.contains("are split between machines and static hosts"),
            is_split,
            "{reason}"
        );
    }
}

/// Z1.9: machines are listed while one changes, and otherwise only to find leaked ones.
#[test]
fn machines_are_not_listed_while_all_are_at_rest() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    world.step();
    world.cell.head.listed_at = world.now;
    assert!(world.cell.needs_listing(world.now), "a node is requested");
    world.settle();
    assert_eq!(world.node_states(), ["ready"]);
    world.cell.head.listed_at = world.now;
    assert!(!world.cell.needs_listing(world.now));
    let leak_seconds = world.cell.limits.pace.leak_seconds;
    assert!(!world.cell.needs_listing(world.now.plus_seconds(leak_seconds - 1)));
    assert!(world.cell.needs_listing(world.now.plus_seconds(leak_seconds)));
}
