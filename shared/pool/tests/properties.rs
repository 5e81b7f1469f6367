//! Properties that hold for any sequence of events: quota, service order, and no leaked machine.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(missing_docs, dead_code, reason = "each test program uses a part of it")]
mod common;

use common::{World, label, limits, request};
use proptest::prelude::*;
use sluice_model::NodeId;
use sluice_pool::*;
use std::collections::{BTreeMap, BTreeSet};

const QUOTA: u32 = 8;

/// An event between two plans.
#[derive(Debug, Clone)]
enum WorldEvent {
    Request(Vec<&'static str>),
    CarryOut,
    /// Some actions are carried out, but their answers are lost.
    LoseAnswers,
    /// No action is carried out, as after a crash behind the commit.
    Crash,
    LaunchesAnswer(LaunchFact),
    MachineEnds(usize),
    NeverBoots,
    Claim(usize),
    End(usize),
    /// The run holds a state that the executor could not write into the request.
    Observe(usize, BuildFact),
    Withdraw(usize),
    Wait(u64),
    List,
}

fn world_event() -> impl Strategy<Value = WorldEvent> {
    let labels =
        prop::collection::vec(prop_oneof![Just("small"), Just("large")], 1..=QUOTA as usize);
    let answer = prop_oneof![
        Just(LaunchFact::Quota("limit".into())),
        Just(LaunchFact::NoCapacity("zone".into())),
        Just(LaunchFact::Transient { why: "slow".into(), retry_after_seconds: 5 }),
        Just(LaunchFact::TokenTaken("token".into())),
        Just(LaunchFact::Permanent("image".into())),
    ];
    prop_oneof![
        3 => labels.prop_map(WorldEvent::Request),
        6 => Just(WorldEvent::CarryOut),
        1 => Just(WorldEvent::LoseAnswers),
        1 => Just(WorldEvent::Crash),
        1 => answer.prop_map(WorldEvent::LaunchesAnswer),
        1 => any::<usize>().prop_map(WorldEvent::MachineEnds),
        1 => Just(WorldEvent::NeverBoots),
        2 => any::<usize>().prop_map(WorldEvent::Claim),
        2 => any::<usize>().prop_map(WorldEvent::End),
        1 => (any::<usize>(), prop_oneof![Just(BuildFact::Claimed), Just(BuildFact::Ended), Just(BuildFact::Gone)])
            .prop_map(|(number, fact)| WorldEvent::Observe(number, fact)),
        1 => any::<usize>().prop_map(WorldEvent::Withdraw),
        2 => prop_oneof![Just(1_u64), Just(31), Just(61), Just(400)].prop_map(WorldEvent::Wait),
        2 => Just(WorldEvent::List),
    ]
}

fn pick(world: &World, number: usize) -> Option<u64> {
    let request = world.cell.requests.get(number.checked_rem(world.cell.requests.len())?)?;
    request.build.as_str().strip_prefix("build-")?.parse().ok()
}

fn apply_event(world: &mut World, world_event: WorldEvent, sequence: u64) {
    match world_event {
        WorldEvent::Request(labels) => world.cell.requests.push(request(sequence, &labels)),
        WorldEvent::CarryOut => world.carry_out(),
        WorldEvent::LoseAnswers => {
            world.carry_out();
            world.cell.facts = PoolFacts::default();
        }
        WorldEvent::Crash => world.actions.clear(),
        WorldEvent::LaunchesAnswer(fact) => {
            for action in std::mem::take(&mut world.actions) {
                // A used token returns its machine, even if the cloud would now refuse a launch.
                if let PoolAction::Launch(node) = action
                    && !world
                        .machines
                        .values()
                        .any(|machine| machine.node.as_ref() == Some(&node.id))
                {
                    world.cell.facts.launches.insert(node.id.clone(), fact.clone());
                }
            }
        }
        WorldEvent::MachineEnds(number) => {
            let count = world.machines.len().max(1);
            if let Some(fact) = world.machines.values_mut().nth(number % count) {
                fact.state = InstanceState::Terminated;
            }
        }
        WorldEvent::NeverBoots => {
            world.carry_out();
            world.cell.facts.checks.clear();
        }
        WorldEvent::Claim(number) => {
            if let Some(sequence) = pick(world, number)
                && world.state(sequence).starts_with("fulfilled")
            {
                world.executor_writes(sequence);
            }
        }
        WorldEvent::End(number) => {
            if let Some(sequence) = pick(world, number)
                && world.state(sequence).starts_with("claimed")
            {
                world.executor_writes(sequence);
            }
        }
        WorldEvent::Observe(number, fact) => {
            if let Some(sequence) = pick(world, number)
                && ["fulfilled", "claimed"]
                    .iter()
                    .any(|word| world.state(sequence).starts_with(word))
            {
                world.build(sequence, fact);
            }
        }
        WorldEvent::Withdraw(number) => {
            if let Some(sequence) = pick(world, number) {
                world.build(sequence, BuildFact::Withdrawn);
            }
        }
        WorldEvent::Wait(seconds) => world.now = world.now.plus_seconds(seconds),
        WorldEvent::List => world.list(),
    }
}

fn check(world: &World, before: &Snapshot, plan: &PoolPlan) {
    assert!(world.alive() <= QUOTA as usize, "more machines than the quota: {}", world.alive());
    assert!(plan.head.used.instances <= QUOTA, "more launches than the quota");
    assert!(plan.changes.len() <= sluice_pool::decisions::RECORDS_MAX);
    // Every machine has a record until it is gone.
    for fact in world.machines.values().filter(|fact| fact.state != InstanceState::Terminated) {
        let known = world.cell.nodes.iter().any(|node| Some(&node.id) == fact.node.as_ref());
        assert!(known, "machine {} was forgotten: {:?}", fact.machine.instance, plan.reasons);
    }
    // No request behind a waiting one is placed.
    let placed: BTreeSet<&RequestRow> = plan
        .changes
        .iter()
        .filter_map(|change| match change {
            PoolChange::PutRequest(NodeRequest {
                row,
                state: RequestState::Placed(_) | RequestState::Fulfilled(_),
                ..
            }) => Some(row),
            _ => None,
        })
        .filter(|row| {
            before
                .requests
                .iter()
                .any(|request| request.row == **row && request.state == RequestState::Requested)
        })
        .collect();
    let waiting = world.cell.requests.iter().filter(|request| {
        request.state == RequestState::Requested && request.not_before <= world.now
    });
    for request in waiting {
        assert!(placed.iter().all(|row| **row < request.row), "{} was overtaken", request.row);
    }
    // All nodes of a request are in its zone, and each node serves one request.
    let mut seen = BTreeSet::new();
    for request in &world.cell.requests {
        let (RequestState::Placed(placement)
        | RequestState::Fulfilled(placement)
        | RequestState::Claimed(placement)
        | RequestState::Ended(placement)) = &request.state
        else {
            continue;
        };
        for id in &placement.nodes {
            assert!(seen.insert(id.clone()), "node {id} serves two requests");
            if let Some(node) = world.cell.nodes.iter().find(|node| node.id == *id) {
                assert_eq!(node.az, placement.az);
            }
        }
    }
}

/// Adds the nodes that a build has, or had, to `used`, and checks that none of them is free or given
/// to another build, and that each reserved node exists for its request.
fn check_nodes(world: &World, used: &mut BTreeMap<NodeId, RequestRow>) {
    for request in &world.cell.requests {
        match &request.state {
            RequestState::Placed(placement) | RequestState::Fulfilled(placement) => {
                for id in &placement.nodes {
                    let node = world.cell.nodes.iter().find(|node| node.id == *id);
                    let owner = node.and_then(|node| node.allocated_to.as_ref());
                    assert_eq!(
                        owner.map(|owner| owner.row.as_str()),
                        Some(request.row.as_str()),
                        "the reservation of {id} was forgotten"
                    );
                    let user = used.get(id);
                    assert!(
                        user.is_none(),
                        "{id} was used by {user:?}, and {} gets it",
                        request.row
                    );
                }
            }
            RequestState::Claimed(placement) | RequestState::Ended(placement) => {
                used.extend(placement.nodes.iter().map(|id| (id.clone(), request.row.clone())));
            }
            RequestState::Requested | RequestState::Failed { .. } => {}
        }
    }
    for node in world.cell.nodes.iter().filter(|node| used.contains_key(&node.id)) {
        assert!(!node.is_free(), "{} was used and is free again", node.id);
    }
}

/// Ends every build and lets time pass until no record is left.
fn wind_down(world: &mut World) {
    for _ in 0..3_000 {
        for sequence in world
            .cell
            .requests
            .iter()
            .filter_map(|request| request.build.as_str().strip_prefix("build-")?.parse().ok())
            .collect::<Vec<u64>>()
        {
            let state = world.state(sequence);
            if state.starts_with("claimed") {
                world.executor_writes(sequence);
            } else if state.starts_with("fulfilled") || state.starts_with("failed") {
                world.build(sequence, BuildFact::Ended);
            }
        }
        world.step();
        world.carry_out();
        world.now = world.now.plus_seconds(10);
        if world.cell.requests.is_empty() && world.cell.nodes.iter().all(|node| node.is_free()) {
            return;
        }
    }
    panic!("requests are left: {:?}; nodes: {:#?}", world.cell.requests, world.cell.nodes);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Z1.4 to Z1.9
    #[test]
    fn quota_and_order_hold_and_every_machine_is_terminated(
        events in prop::collection::vec((world_event(), any::<bool>()), 1..60),
        min_ready in 0..3_u32,
    ) {
        let mut limits = limits(QUOTA);
        limits.labels.insert("small".into(), label(min_ready));
        let mut world = World::new(limits);
        let mut used = BTreeMap::new();
        for (sequence, (world_event, planned)) in events.into_iter().enumerate() {
            apply_event(&mut world, world_event, sequence as u64);
            check_nodes(&world, &mut used);
            if planned {
                let before = world.cell.clone();
                let plan = world.step();
                check(&world, &before, &plan);
                check_nodes(&world, &mut used);
            }
        }
        wind_down(&mut world);
    }

    /// A committed plan leaves nothing to decide.
    #[test]
    fn a_plan_without_new_facts_is_empty(events in prop::collection::vec(world_event(), 1..40)) {
        let mut world = World::new(limits(QUOTA));
        for (sequence, world_event) in events.into_iter().enumerate() {
            apply_event(&mut world, world_event, sequence as u64);
            world.step();
        }
        let again = plan(&world.cell, world.now);
        // Only checks are requested again until they are answered.
        let asked = again.actions.iter().all(|action| matches!(action, PoolAction::Check(_)));
        prop_assert!(again.changes.is_empty() && again.wakeups.is_empty() && asked, "{again:#?}");
    }

    /// Z1.5: two requests that each fit alone do not deadlock.
    #[test]
    fn two_requests_that_only_fit_one_at_a_time_both_end(first in 1..=QUOTA as usize, second in 1..=QUOTA as usize, end_first in any::<bool>()) {
        let mut world = World::new(limits(QUOTA));
        world.cell.requests = vec![request(1, &vec!["small"; first]), request(2, &vec!["large"; second])];
        if end_first { world.settle(); }
        wind_down(&mut world);
        prop_assert_eq!(world.wakeups.len(), 2);
    }
}
