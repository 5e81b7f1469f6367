//! Operators' commands to a provider.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(missing_docs, dead_code, reason = "each test program uses a part of it")]
mod common;

use common::{World, limits, request};
use sluice_model::Timestamp;
use sluice_pool::commands::{why_not_deleted, why_not_held, why_not_released};
use sluice_pool::node::HoldRef;
use sluice_pool::*;

/// Plans with a command, and returns the plan.
fn command(world: &mut World, kind: PoolCommandKind) -> PoolPlan {
    let id = format!("{}", world.now.0);
    world.cell.facts.commands =
        vec![PoolCommand { id, at: world.now, tenant: "one".into(), by: "ada".to_owned(), kind }];
    world.step()
}

/// Returns whether a plan consumes its command.
fn is_consumed(plan: &PoolPlan) -> bool {
    plan.changes.iter().any(|change| matches!(change, PoolChange::RemoveCommand(_)))
}

/// Returns a provider with one node in this state.
fn with_node(state: NodeState) -> World {
    let mut world = World::new(limits(2));
    world.cell.nodes.push(PoolNode {
        id: "node-1".into(),
        label: "small".into(),
        provider: "cloud".into(),
        region: None,
        az: Some("a".to_owned()),
        origin: NodeOrigin::Cloud {
            client_token: "node-1".to_owned(),
            image_id: "image-1".to_owned(),
            flavor: "small".to_owned(),
            resources: Resources::instances(1),
        },
        allocated_to: None,
        state,
        attempt: 1,
        username: "zuul".to_owned(),
        ssh_port: 22,
        python_path: None,
        interface: Interface::PublicFirst,
        boot_timeout_seconds: 60,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    });
    world
}

fn machine() -> Machine {
    Machine {
        instance: InstanceId("i-1".to_owned()),
        private_ipv4: Some("10.0.0.1".to_owned()),
        public_ipv4: None,
        public_ipv6: None,
        ssh_port: None,
        launched_at: Timestamp(0),
    }
}

fn ready() -> NodeState {
    NodeState::Ready { machine: machine(), host_keys: Vec::new() }
}

/// Z9.1, Z1.8: a ready node is held for an operator, and released again.
#[test]
fn a_ready_node_is_held_and_released() {
    let mut world = with_node(ready());
    let hold = PoolCommandKind::HoldNode { node: "node-1".into(), reason: "look".to_owned() };
    let plan = command(&mut world, hold);
    assert!(is_consumed(&plan));
    let NodeState::Hold { reason, until, hold, .. } = &world.cell.nodes[0].state else {
        panic!("{:?}", world.cell.nodes[0].state);
    };
    let of_tenant = Some(HoldRef { tenant: "one".into(), id: None });
    assert_eq!((reason.as_str(), hold), ("held by ada: look", &of_tenant));
    assert_eq!(*until, None);
    world.now = world.now.plus_seconds(86_400 * 365 * 20);
    let plan = world.step();
    assert_eq!(world.cell.nodes[0].state.as_str(), "hold", "it stays: {plan:?}");
    let plan = command(&mut world, PoolCommandKind::ReleaseNode { node: "node-1".into() });
    assert!(is_consumed(&plan));
    assert_eq!(world.cell.nodes[0].state.as_str(), "deleting");
}

/// Z9.1: a node that a build uses stays as it is, and the command does not come back.
#[test]
fn a_command_that_comes_too_late_has_no_effect_and_is_consumed() {
    let build = "build-1".into();
    let mut world =
        with_node(NodeState::InUse { machine: machine(), host_keys: Vec::new(), build });
    let row = RequestRow::new(200, 0, 1);
    world.cell.nodes[0].allocated_to =
        Some(Allocation { row, build: "build-1".into(), missing_since: None });
    for kind in [
        PoolCommandKind::ReleaseNode { node: "node-1".into() },
        PoolCommandKind::HoldNode { node: "node-1".into(), reason: String::new() },
        PoolCommandKind::ReleaseNode { node: "node-2".into() },
        PoolCommandKind::DeleteRequest { row: RequestRow::new(1, 1, 1) },
    ] {
        let plan = command(&mut world, kind.clone());
        assert!(is_consumed(&plan), "{kind}");
        assert!(plan.reasons.iter().any(|why| why.contains("has no effect")), "{kind}");
        assert_eq!(world.cell.nodes[0].state.as_str(), "in-use", "{kind}");
    }
}

/// Z9.1, Z2.3: a node that is held for a tenant is not released by operators of another one that
/// shares its provider.
#[test]
fn a_node_held_for_another_tenant_is_not_released() {
    let hold = Some(HoldRef { tenant: "two".into(), id: None });
    let until = Some(Timestamp(1_000_000_000_000));
    let state = NodeState::Hold {
        machine: machine(),
        host_keys: Vec::new(),
        reason: String::new(),
        until,
        hold,
    };
    let mut world = with_node(state);
    let plan = command(&mut world, PoolCommandKind::ReleaseNode { node: "node-1".into() });
    assert!(is_consumed(&plan));
    let why = "it is held for another tenant";
    assert!(plan.reasons.iter().any(|reason| reason.contains(why)), "{:?}", plan.reasons);
    assert_eq!(world.cell.nodes[0].state.as_str(), "hold");
    assert_eq!(why_not_released(&world.cell.nodes[0], &"one".into()), Some(why));
}

/// Z9.1, Z1.6: a deleted request fails, with who deleted it, and its queue is woken.
#[test]
fn a_deleted_request_fails_and_wakes_its_queue() {
    let mut world = World::new(limits(1));
    // The first one takes the only instance.
    world.cell.requests.extend([request(1, &["small"]), request(2, &["small"])]);
    world.step();
    let row = world.cell.requests[1].row.clone();
    let plan = command(&mut world, PoolCommandKind::DeleteRequest { row });
    assert!(is_consumed(&plan) && plan.wakeups.len() == 1, "{plan:?}");
    assert_eq!(
        world.cell.requests[1].state,
        RequestState::Failed { reason: "ada deleted the request".to_owned() }
    );
    assert!(why_not_deleted(&world.cell.requests[1]).is_some());
}

/// Z9.1: what is possible in which state.
#[test]
fn commands_depend_on_the_state_of_the_node() {
    let hold = NodeState::Hold {
        machine: machine(),
        host_keys: Vec::new(),
        reason: String::new(),
        until: Some(Timestamp(0)),
        hold: None,
    };
    for (state, can_hold, can_release) in [
        (ready(), true, true),
        (hold, false, true),
        (NodeState::Building { machine: machine() }, false, true),
        (NodeState::Used { machine: machine(), host_keys: Vec::new() }, false, true),
    ] {
        let world = with_node(state);
        let node = &world.cell.nodes[0];
        assert_eq!(why_not_held(node).is_none(), can_hold, "{:?}", node.state);
        assert_eq!(
            why_not_released(node, &"one".into()).is_none(),
            can_release,
            "{:?}",
            node.state
        );
    }
}
