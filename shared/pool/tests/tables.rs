//! Single decisions of a provider's cell, each as a short story.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(missing_docs, dead_code, reason = "each test program uses a part of it")]
mod common;

use common::{World, host, hosts, label, limits, request};
use sluice_model::{Timestamp, build::RequestRef, wakeup::Wakeup};
use sluice_pool::*;

fn builds_to_observe_in(world: &World) -> std::collections::BTreeSet<sluice_model::BuildId> {
    builds_to_observe(
        &world.cell.head,
        world.cell.requests.iter(),
        world.cell.nodes.iter(),
        world.now,
    )
}

/// N01, Z1.8
#[test]
fn a_request_gets_a_machine_that_is_terminated_when_its_build_ends() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small", "small"])];
    let first = world.step();
    assert_eq!(
        first.actions.len(),
        2,
        "the launches are asked for by the commit that records them"
    );
    assert_eq!(first.head.used, Resources::instances(2));
    world.carry_out();
    world.settle();
    assert_eq!(world.state(1), "fulfilled 2");
    let sent = Wakeup::Build {
        build: "build-1".into(),
        precedence: Default::default(),
        tenant: "one".into(),
        request: Some(RequestRef { provider: "cloud".into(), row: "200-0000-000000000001".into() }),
        nodes: world.cell.requests[0].nodes().to_vec(),
        zone: None,
    };
    assert_eq!(world.wakeups, [sent]);
    let zones: Vec<_> = world.cell.nodes.iter().map(|node| node.az.clone()).collect();
    assert_eq!(zones[0], zones[1]);
    assert!(world.cell.nodes[0].access(vec!["first".into()], "small".into()).is_some());
    world.executor_writes(1);
    world.step();
    assert_eq!(world.node_states(), ["in-use", "in-use"]);
    world.executor_writes(1);
    world.settle();
    assert_eq!((world.state(1).as_str(), world.cell.nodes.len(), world.alive()), ("removed", 0, 0));
}

/// N02, Z1.2, Z1.5
#[test]
fn a_request_that_can_never_be_satisfied_fails_and_wakes_up_its_queue() {
    let mut limits = limits(8);
    limits.labels.insert(
        "imageless".into(),
        LabelSpec { image: LabelImage::Missing { why: "never uploaded".into() }, ..label(0) },
    );
    limits.labels.insert("shapeless".into(), LabelSpec { flavor: None, ..label(3) });
    let mut world = World::new(limits);
    world.cell.requests = vec![
        request(1, &["small", "unknown"]),
        request(2, &["imageless"]),
        request(3, &["small"; 9]),
        request(4, &["small"; 8]),
        request(5, &["shapeless"]),
    ];
    world.step();
    let states: Vec<_> = (1..=5).map(|sequence| world.state(sequence)).collect();
    assert_eq!(
        states,
        [
            "failed: label unknown is unknown at cloud",
            "failed: label imageless has no image: never uploaded",
            "failed: 9 machines exceed the quota of 8",
            "placed 8",
            "failed: label shapeless has no flavor: add `flavor` to the label",
        ]
    );
    assert_eq!(
        world.wakeups.iter().filter(|wakeup| matches!(wakeup, Wakeup::Queue { .. })).count(),
        4
    );
}

/// L3.2, L3.8, Z1.3: the other nodes of a request are launched in the same zone. A request for
/// labels of two zones fails.
#[test]
fn machines_of_a_label_with_a_zone_are_launched_in_that_zone() {
    let mut limits = limits(8);
    let bound =
        |zone: &str, min_ready| LabelSpec { zone: Some(zone.to_owned()), ..label(min_ready) };
    limits.labels.extend([("near".into(), bound("a", 0)), ("far".into(), bound("b", 2))]);
    let mut world = World::new(limits);
    world.cell.requests =
        vec![request(1, &["small", "far"]), request(2, &["near", "far"]), request(3, &["near"])];
    world.settle();
    assert_eq!([world.state(1), world.state(3)], ["fulfilled 2", "fulfilled 1"]);
    assert_eq!(
        world.state(2),
        "failed: label near is bound to zone a and label far to b, and all nodes of a request are in one zone"
    );
    let zones = |label: &str| -> Vec<&str> {
        let nodes = world.cell.nodes.iter().filter(|node| node.label.as_str() == label);
        nodes.map(|node| node.az.as_deref().unwrap_or_default()).collect()
    };
    assert_eq!((zones("small"), zones("near"), zones("far")), (vec!["b"], vec!["a"], vec!["b"; 3]));

    // When the label gets another zone, its ready machines are replaced.
    world.cell.limits.labels.insert("far".into(), bound("a", 2));
    world.settle();
    let free = world
        .cell
        .nodes
        .iter()
        .filter(|node| node.label.as_str() == "far" && node.allocated_to.is_none());
    assert_eq!(
        free.map(|node| node.az.as_deref().unwrap_or_default()).collect::<Vec<_>>(),
        ["a", "a"]
    );
}

/// Z1.5
#[test]
fn later_requests_wait_behind_one_that_waits_for_quota() {
    let mut world = World::new(limits(8));
    world.cell.requests =
        vec![request(1, &["small"; 5]), request(2, &["small"; 5]), request(3, &["small"])];
    world.settle();
    assert_eq!(
        [world.state(1), world.state(2), world.state(3)],
        ["fulfilled 5", "requested", "requested"]
    );
    assert_eq!(world.alive(), 5, "nothing is half reserved");
    world.build(1, BuildFact::Ended);
    world.settle();
    assert_eq!([world.state(2), world.state(3)], ["fulfilled 5", "fulfilled 1"]);
    world.build(2, BuildFact::Ended);
    world.build(3, BuildFact::Ended);
    world.settle();
    assert_eq!((world.cell.requests.len(), world.alive()), (0, 0));
}

/// Z1.1
#[test]
fn a_lower_priority_number_is_served_first() {
    let mut world = World::new(limits(1));
    let mut urgent = request(9, &["small"]);
    urgent.row = RequestRow::new(100, 0, 9);
    world.cell.requests = vec![request(1, &["small"]), urgent];
    world.step();
    assert_eq!(world.state(1), "requested");
    assert!(matches!(world.cell.requests[1].state, RequestState::Placed(_)));
}

/// Returns a request for a change in an independent pipeline, where each change has its own queue.
fn of_change(sequence: u64, project: &str, change: u64, asked_at: u64) -> NodeRequest {
    let mut request = request(sequence, &["small"]);
    request.queue.queue = format!("{project}#{change}").as_str().into();
    (request.group, request.created_at) = (Some(project.to_owned()), Timestamp(asked_at));
    request
}

/// Returns the builds in the order in which they get the only machine.
fn served(world: &mut World) -> Vec<u64> {
    let mut served = Vec::new();
    while !world.cell.requests.is_empty() {
        world.settle();
        let now = world
            .cell
            .requests
            .iter()
            .find(|request| !request.nodes().is_empty())
            .expect("one is served");
        let sequence = now.row.as_str().rsplit('-').next().unwrap().parse().unwrap();
        served.push(sequence);
        world.executor_writes(sequence);
        world.executor_writes(sequence);
        world.settle();
    }
    served
}

/// Z6.1: relative priority. The changes of one project do not all precede those of another.
#[test]
fn changes_of_projects_in_an_independent_pipeline_take_turns() {
    let mut world = World::new(limits(1));
    world.cell.requests = vec![
        of_change(1, "many", 1, 1),
        of_change(2, "many", 2, 2),
        of_change(3, "many", 3, 3),
        of_change(4, "few", 7, 4),
        of_change(5, "few", 7, 5),
        of_change(6, "few", 8, 6),
        of_change(7, "one", 9, 7),
    ];
    // The first change of each project in the order of their requests, then the next ones.
    assert_eq!(served(&mut world), [1, 2, 3, 4, 5, 6, 7], "the oldest change has position 0");

    let mut world = World::new(limits(2));
    world.cell.requests = (1..=8).map(|n| of_change(n, "many", n, n)).collect();
    world.cell.requests.push(of_change(9, "few", 7, 9));
    world.step();
    let is_served = |world: &World, sequence| world.state(sequence).starts_with("placed");
    assert!(is_served(&world, 1) && is_served(&world, 9), "{:?}", world.state(2));
    assert_eq!(world.state(2), "requested", "its project has one before it");
}

/// Z1.1, Z6.1: the current position in a shared queue replaces the one in the row.
#[test]
fn a_request_is_served_by_the_current_position_of_its_change() {
    let behind = |sequence: u64, relative: u32| {
        let row = RequestRow::new(200, relative, sequence);
        NodeRequest { row, ..request(sequence, &["small"]) }
    };
    for (moved_up, served) in [(None, "build-2"), (Some(1), "build-2"), (Some(0), "build-1")] {
        let mut world = World::new(limits(1));
        world.cell.requests = vec![behind(1, 3), behind(2, 0)];
        let places = moved_up.map(|place| (RequestRow::new(200, 3, 1), place));
        world.cell.facts.queue_positions = places.into_iter().collect();
        world.step();
        let placed = world
            .cell
            .requests
            .iter()
            .filter(|request| matches!(request.state, RequestState::Placed(_)));
        let placed: Vec<&str> = placed.map(|request| request.build.as_str()).collect();
        assert_eq!(placed, [served], "{moved_up:?}");
    }
}

/// Z1.1, Z6.1: priority counts before position. Positions in shared queues and in independent
/// pipelines count alike.
#[test]
fn positions_only_count_within_one_priority() {
    let mut world = World::new(limits(2));
    let mut urgent = of_change(9, "many", 9, 9);
    urgent.row = RequestRow::new(100, 0, 9);
    let mut second_in_queue = request(1, &["small"]);
    second_in_queue.row = RequestRow::new(200, 1, 1);
    world.cell.requests =
        vec![second_in_queue, of_change(2, "many", 2, 2), of_change(3, "few", 3, 3), urgent];
    world.step();
    let waits: Vec<&str> = (world.cell.requests.iter())
        .filter(|request| request.state == RequestState::Requested)
        .map(|request| request.row.as_str())
        .collect();
    assert_eq!(waits, ["200-0001-000000000001", "200-0000-000000000003"]);
}

/// Z1.7
#[test]
fn a_withdrawn_request_gives_its_unused_nodes_to_the_next_one() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small", "small"])];
    world.settle();
    world.build(1, BuildFact::Withdrawn);
    world.cell.requests.push(request(2, &["small", "small"]));
    let plan = world.step();
    assert_eq!((world.state(1).as_str(), world.state(2).as_str()), ("removed", "fulfilled 2"));
    assert!(plan.actions.is_empty(), "ready nodes are used before new ones are made");
}

/// Z1.6
#[test]
fn a_machine_that_does_not_boot_is_replaced() {
    let mut world = World::new(limits(1));
    world.cell.requests = vec![request(1, &["small"])];
    world.step();
    world.carry_out();
    world.machines.values_mut().for_each(|fact| fact.state = InstanceState::Pending);
    world.list();
    world.step();
    world.now = world.now.plus_seconds(61);
    world.list();
    let plan = world.step();
    assert!(
        plan.reasons.iter().any(|reason| reason.contains("attempt 2 of 3")),
        "{:?}",
        plan.reasons
    );
    assert_eq!(world.node_states(), ["building", "deleting"]);
    assert!(
        !plan.actions.iter().any(|action| matches!(action, PoolAction::Launch(_))),
        "the old machine still takes the quota"
    );
    world.carry_out();
    world.settle();
    assert_eq!((world.state(1).as_str(), world.alive()), ("fulfilled 1", 1));
}

/// Z1.6: a transient refusal never fails a request. Too many placements without a boot do.
#[test]
fn only_permanent_failures_fail_a_request() {
    let mut world = World::new(limits(1));
    world.cell.requests = vec![request(1, &["small"])];
    for fact in [
        LaunchFact::Quota("limit".into()),
        LaunchFact::Transient { why: "throttled".into(), retry_after_seconds: 1 },
        LaunchFact::NoCapacity("none left".into()),
    ] {
        for _ in 0..20 {
            world.step();
            for action in std::mem::take(&mut world.actions) {
                if let PoolAction::Launch(node) = action {
                    world.cell.facts.launches.insert(node.id.clone(), fact.clone());
                }
            }
            world.list();
            world.now = world.now.plus_seconds(60);
        }
        assert!(!world.state(1).starts_with("failed"), "{fact:?}");
    }
    let mut boots = 0;
    for _ in 0..400 {
        world.step();
        boots +=
            world.actions.iter().filter(|action| matches!(action, PoolAction::Launch(_))).count();
        world.carry_out();
        world
            .machines
            .values_mut()
            .filter(|fact| fact.state == InstanceState::Running)
            .for_each(|fact| fact.state = InstanceState::Pending);
        world.list();
        world.now = world.now.plus_seconds(61);
    }
    assert!(
        world.state(1).starts_with("failed: machines of 3 placements did not boot"),
        "{}",
        world.state(1)
    );
    assert!((9..=12).contains(&boots), "{boots}");
    assert_eq!((world.alive(), world.cell.nodes.len()), (0, 0));
}

/// L2.3: a launch refused for the cloud's own quota is repeated while its request exists.
#[test]
fn a_launch_refused_for_quota_is_given_up_when_its_request_is_gone() {
    for before in 1..4 {
        let mut world = World::new(limits(8));
        world.cell.requests = vec![request(1, &["small"])];
        let refuse = |world: &mut World| {
            let mut launches = 0;
            for action in std::mem::take(&mut world.actions) {
                if let PoolAction::Launch(node) = action {
                    launches += 1;
                    world
                        .cell
                        .facts
                        .launches
                        .insert(node.id.clone(), LaunchFact::Quota("limit".into()));
                }
            }
            world.list();
            world.now = world.now.plus_seconds(60);
            launches
        };
        let mut asked = 0;
        while asked < before {
            world.step();
            asked += refuse(&mut world);
        }
        world.build(1, BuildFact::Withdrawn);
        let mut since = 0;
        for _ in 0..30 {
            world.step();
            since += refuse(&mut world);
        }
        assert!(since <= 1, "{since} after {before}");
        assert_eq!((world.cell.nodes.len(), world.state(1).as_str()), (0, "removed"), "{before}");
    }
}

/// N03
#[test]
fn a_permanent_launch_failure_fails_the_request_and_frees_its_other_nodes() {
    let mut world = World::new(limits(2));
    world.cell.requests = vec![request(1, &["small", "small"])];
    world.step();
    let bad = world.launched(0);
    world.carry_out();
    world.cell.facts.launches.insert(bad.clone(), LaunchFact::Permanent("no such image".into()));
    world.machines.retain(|_, fact| fact.node.as_ref() != Some(&bad));
    world.list();
    world.step();
    assert_eq!(world.state(1), "failed: label small cannot be launched: no such image");
    assert_eq!(world.cell.nodes.iter().filter(|node| node.allocated_to.is_some()).count(), 0);
}

/// Covers a crash between commit and call, and one between call and answer.
#[test]
fn a_launch_without_an_answer_is_called_again_with_the_same_token() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    let plan = world.step();
    let PoolAction::Launch(first) = &plan.actions[0] else { panic!("{plan:?}") };
    assert!(world.step().is_empty(), "an answer is waited for");
    world.now = world.now.plus_seconds(31);
    let PoolAction::Launch(again) = &world.step().actions[0] else { panic!("no second call") };
    assert_eq!((&first.origin, &first.id), (&again.origin, &again.id));
    world.launch(first);
    world.actions.clear();
    world.list();
    world.step();
    assert!(
        matches!(world.cell.nodes[0].state, NodeState::Testing { .. }),
        "the tag names the machine's node"
    );
}

/// Z1.9
#[test]
fn a_machine_without_a_record_is_terminated_and_a_node_without_a_request_returns() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    let mut stray = world.machines["i-0"].clone();
    stray.machine.instance = InstanceId("i-stray".into());
    stray.node = Some("unknown".into());
    stray.region = Some("there".into());
    world.machines.insert("i-stray".into(), stray);
    world.cell.requests.clear();
    world.list();
    let plan = world.step();
    assert_eq!(
        plan.actions,
        [PoolAction::Terminate {
            node: None,
            instance: InstanceId("i-stray".into()),
            region: Some("there".into()),
            reason: "no node record knows this machine".into()
        }]
    );
    world.now = world.now.plus_seconds(300);
    world.step();
    assert!(world.cell.nodes[0].allocated_to.is_some(), "not before more than 300 s");
    world.now = world.now.plus_seconds(1);
    world.step();
    assert!(world.cell.nodes[0].allocated_to.is_none());
    assert_eq!(world.node_states(), ["ready"]);
}

/// Z1.9
#[test]
fn a_node_in_use_whose_build_is_gone_is_deleted() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    world.build(1, BuildFact::Claimed);
    world.step();
    world.cell.requests.clear();
    assert!(builds_to_observe_in(&world).contains(&"build-1".into()));
    world.build(1, BuildFact::Gone);
    world.settle();
    assert_eq!((world.cell.nodes.len(), world.alive()), (0, 0));
}

/// Z1.10
#[test]
fn a_static_host_is_lent_up_to_its_limit_and_never_terminated() {
    let mut limits = limits(0);
    limits.labels.clear();
    let twice = StaticHost { max_parallel: 2, ..host("127.0.2.1", &["metal"]) };
    limits.static_hosts = hosts(&[twice]);
    let mut world = World::new(limits);
    world.cell.requests =
        vec![request(1, &["metal", "metal"]), request(2, &["metal"]), request(3, &["metal"; 3])];
    world.settle();
    assert_eq!([world.state(1), world.state(2)], ["fulfilled 2", "requested"]);
    world.build(1, BuildFact::Ended);
    let plan = world.step();
    assert!(!plan.actions.iter().any(|action| matches!(action, PoolAction::Terminate { .. })));
    world.carry_out();
    world.settle();
    assert_eq!(world.state(2), "fulfilled 1");
    assert_eq!(world.state(3), "failed: 3 static hosts are more than the provider has");
}

/// Z1.11, N09
#[test]
fn min_ready_nodes_are_launched_used_refilled_and_deleted_for_other_requests() {
    let mut limits = limits(4);
    limits.labels.insert("small".into(), label(2));
    let mut world = World::new(limits);
    world.settle();
    assert_eq!(world.node_states(), ["ready", "ready"]);
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    assert_eq!((world.state(1).as_str(), world.node_states().len()), ("fulfilled 1", 3));
    world.build(1, BuildFact::Ended);
    world.cell.requests.push(request(2, &["large"; 4]));
    world.settle();
    assert_eq!((world.state(2).as_str(), world.alive()), ("fulfilled 4", 4));
    world.build(2, BuildFact::Ended);
    world.settle();
    assert_eq!(world.node_states(), ["ready", "ready"]);
}

/// Z1.8: autohold
#[test]
fn a_held_node_stays_until_its_hold_expires() {
    let mut world = World::new(limits(4));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    let until = world.now.plus_seconds(3_600);
    world.build(
        1,
        BuildFact::EndedHeld { reason: "to look at it".into(), until: Some(until), hold: None },
    );
    world.settle();
    assert_eq!((world.node_states(), world.state(1).as_str()), (vec!["hold"], "removed"));
    world.now = until;
    world.settle();
    assert_eq!(world.alive(), 0);
}

/// N15: held nodes use quota, and are checked for release even without requests.
#[test]
fn a_held_node_uses_quota_until_its_hold_request_is_removed() {
    let mut world = World::new(limits(1));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    let until = world.now.plus_seconds(360_000);
    world.build(
        1,
        BuildFact::EndedHeld { reason: "to look at it".into(), until: Some(until), hold: None },
    );
    world.settle();
    world.cell.requests.push(request(2, &["small"]));
    world.now = world.now.plus_seconds(3_600);
    world.settle();
    assert_eq!((world.node_states(), world.state(2).as_str()), (vec!["hold"], "requested"));
    let plan = sluice_pool::plan(&world.cell, world.now);
    assert!(
        plan.due.is_some_and(|due| due <= world.now.plus_seconds(60)),
        "a word that was lost is found soon"
    );
    world.cell.facts.released = world.cell.nodes.iter().map(|node| node.id.clone()).collect();
    world.settle();
    assert_eq!((world.node_states(), world.state(2).as_str()), (vec!["ready"], "fulfilled 1"));
}

/// N10, N4
#[test]
fn a_ready_node_of_an_older_image_is_replaced() {
    let mut limits = limits(4);
    limits.labels.insert("small".into(), label(1));
    let mut world = World::new(limits);
    world.settle();
    world.cell.limits.labels.get_mut(&"small".into()).unwrap().image =
        LabelImage::Available { id: "image-2".into() };
    world.settle();
    let images: Vec<_> = world.cell.nodes.iter().map(|node| &node.origin).collect();
    assert!(
        matches!(images[..], [NodeOrigin::Cloud { image_id, .. }] if image_id == "image-2"),
        "{images:?}"
    );
}

#[test]
fn a_provider_paused_by_an_operator_places_and_launches_nothing() {
    let mut world = World::new(limits(4));
    world.cell.head.paused = Paused::ByOperator { reason: "maintenance".into() };
    world.cell.requests = vec![request(1, &["small"])];
    assert!(world.step().actions.is_empty());
    assert_eq!(world.state(1), "requested");
    assert_eq!(world.cell.head.min_ready_not_before, Timestamp(0));
}

/// Z1.7, Z1.9: executors write claims and ends themselves; running builds are read as a fallback.
#[test]
fn a_running_build_is_read_each_minute_and_its_nodes_are_deleted_when_its_run_has_ended() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    assert_eq!(builds_to_observe_in(&world).len(), 1, "it waits for an executor");
    world.executor_writes(1);
    world.build(1, BuildFact::Claimed);
    world.step();
    assert_eq!(builds_to_observe_in(&world).len(), 0, "the request itself holds the state");
    world.now = world.now.plus_seconds(60);
    assert_eq!(builds_to_observe_in(&world).len(), 1);
    world.build(1, BuildFact::Ended);
    world.settle();
    assert_eq!((world.state(1).as_str(), world.alive()), ("removed", 0));
}

/// Z1.8: the request written by the executor counts more than an older read of the run.
#[test]
fn a_claim_is_not_undone_by_an_older_read_of_the_build() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    world.executor_writes(1);
    for earlier in [BuildFact::Waiting, BuildFact::Withdrawn] {
        world.build(1, earlier);
        world.step();
        assert_eq!((world.state(1).as_str(), world.node_states()), ("claimed 1", vec!["in-use"]));
    }
}

/// A message queue may lose the wakeup, so it is sent again every 15 minutes.
#[test]
fn an_unclaimed_build_is_sent_again() {
    let mut world = World::new(limits(8));
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    let sent = world.wakeups.clone();
    for (seconds, times) in [(600, 1), (600, 2), (600, 2), (600, 3)] {
        world.now = world.now.plus_seconds(seconds);
        world.build(1, BuildFact::Waiting);
        world.step();
        assert_eq!(world.wakeups.len(), times, "{:?}", world.now);
        assert!(world.wakeups.iter().all(|wakeup| *wakeup == sent[0]));
        assert_eq!(
            world.cell.requests[0].resends as usize,
            times - 1,
            "the first time is not once more"
        );
    }
}

/// Z7.6: a build whose nodes are in a zone is sent to the executors of the zone, also again, and the
/// request says for whom it waits.
#[test]
fn a_build_of_a_zone_is_sent_to_the_executors_of_the_zone() {
    let mut world = World::new(limits(8));
    let executor_zone = Some("west".into());
    world.cell.requests = vec![NodeRequest { executor_zone, ..request(1, &["small"]) }];
    world.settle();
    world.now = world.now.plus_seconds(1_000);
    world.build(1, BuildFact::Waiting);
    world.step();
    let zones = world.wakeups.iter().map(|wakeup| match wakeup {
        Wakeup::Build { zone, .. } => zone.clone().map(|zone| zone.0),
        other => panic!("{other:?}"),
    });
    assert_eq!(zones.collect::<Vec<_>>(), [Some("west".to_owned()), Some("west".to_owned())]);
    let reason = &world.cell.requests[0].reason;
    assert!(reason.contains("no executor of the zone west has claimed it"), "{reason}");
}

/// Z1.10: planning again with the answers to its own checks saves a second commit.
#[test]
fn a_static_host_that_answers_is_ready_in_the_plan_that_lends_it() {
    let mut limits = limits(8);
    limits.static_hosts = hosts(&[host("192.0.2.1", &["iron"])]);
    let mut world = World::new(limits);
    world.cell.requests = vec![request(1, &["iron"])];
    let asks = plan(&world.cell, world.now);
    let [PoolAction::Check(node)] = asks.actions.as_slice() else { panic!("{:?}", asks.actions) };
    world.cell.facts.checks.insert(node.id.clone(), CheckFact::Passed { host_keys: Vec::new() });
    world.step();
    assert_eq!(
        (world.state(1).as_str(), world.wakeups.len(), world.actions.len()),
        ("fulfilled 1", 1, 0)
    );
    world.cell.requests = vec![request(2, &["iron"])];
    world.cell.nodes.clear();
    let asks = plan(&world.cell, world.now);
    let [PoolAction::Check(node)] = asks.actions.as_slice() else { panic!("{:?}", asks.actions) };
    world.cell.facts.checks.insert(node.id.clone(), CheckFact::NotYet("no route".into()));
    world.step();
    assert_eq!(
        (world.state(2).as_str(), world.actions.len()),
        ("placed 1", 0),
        "it is asked again later, not at once"
    );
}

/// Z1.10, L3.1: the node that lends a host has the host's keys for its check, and a build gets the
/// keys that the check accepted. A refused host ends the placement with the reason of the check.
#[test]
fn a_lent_host_must_show_a_configured_key() {
    let mut limits = limits(0);
    limits.labels.clear();
    let host_keys = vec!["ssh-ed25519 BBBB".into()];
    limits.static_hosts = hosts(&[StaticHost { host_keys, ..host("127.0.2.1", &["metal"]) }]);
    let mut world = World::new(limits);
    world.cell.requests = vec![request(1, &["metal"])];
    let asks = world.step();
    let [PoolAction::Check(node)] = asks.actions.as_slice() else { panic!("{:?}", asks.actions) };
    assert_eq!(node.required_host_keys(), ["ssh-ed25519 BBBB"]);
    let why = "it shows the host key SHA256:x".to_owned();
    world.cell.facts.checks.insert(node.id.clone(), CheckFact::Failed(why));
    world.step();
    assert_eq!((world.state(1).as_str(), world.cell.nodes.len()), ("requested", 0));
    let reason = &world.cell.requests[0].reason;
    assert_eq!(reason, "its placement was given up: it shows the host key SHA256:x");
    world.now = world.now.plus_seconds(20);
    world.actions.clear();
    let asks = world.step();
    let [PoolAction::Check(node)] = asks.actions.as_slice() else { panic!("{:?}", asks.actions) };
    let host_keys = node.required_host_keys().to_vec();
    world.cell.facts.checks.insert(node.id.clone(), CheckFact::Passed { host_keys });
    world.step();
    assert_eq!(world.state(1), "fulfilled 1");
    let access = world.cell.nodes[0].access(vec!["n".into()], "metal".into()).unwrap();
    assert_eq!(access.host_keys, ["ssh-ed25519 BBBB"]);
}

/// L3.4, Z1.11: a label that is otherwise in a tenant is launched, kept ready and given to requests
/// as the tenant of the request has it.
#[test]
fn a_label_is_launched_as_the_tenant_of_the_request_has_it() {
    let mut limits = limits(8);
    let image = LabelImage::Available { id: "image-2".into() };
    let own = LabelSpec { image, username: "fedora".into(), ..label(1) };
    limits.tenant_labels.insert("two".into(), [("small".into(), own)].into());
    let mut world = World::new(limits);
    world.settle();
    let images = |world: &World| {
        let image = |node: &PoolNode| match &node.origin {
            NodeOrigin::Cloud { image_id, .. } => image_id.clone(),
            NodeOrigin::Static { .. } => panic!("a machine"),
        };
        let owner = |node: &PoolNode| node.allocated_to.as_ref().map(|given| given.build.0.clone());
        let mut all: Vec<_> = world.cell.nodes.iter().map(|n| (owner(n), image(n))).collect();
        all.sort();
        all
    };
    assert_eq!(images(&world), [(None, "image-2".to_owned())], "kept ready for one tenant");
    let mut second = request(2, &["small"]);
    second.queue.tenant = "two".into();
    world.cell.requests = vec![request(1, &["small"]), second];
    world.settle();
    let of = |build: &str, image: &str| (Some(build.to_owned()), image.to_owned());
    assert_eq!(
        images(&world),
        [(None, "image-2".to_owned()), of("build-1", "image-1"), of("build-2", "image-2"),]
    );
    // Another image than before replaces only the machines of that form.
    let other = LabelImage::Available { id: "image-3".into() };
    world.cell.limits.labels.get_mut(&"small".into()).unwrap().image = other;
    world.settle();
    assert_eq!(images(&world)[0], (None, "image-2".to_owned()));
}

/// L3.4: users see the labels by the names that the job uses.
#[test]
fn a_failure_names_the_label_as_the_job_does() {
    let mut world = World::new(limits(8));
    let names = vec!["tiny".into()];
    world.cell.requests = vec![NodeRequest { names, ..request(1, &["forge/org/pool/tiny"]) }];
    world.step();
    assert_eq!(world.state(1), "failed: label tiny is unknown at cloud");
}

/// L3.4, Z7: requests of a tenant whose configuration cannot be read wait, others do not wait
/// behind them, and ready machines of labels that only that tenant may have stay.
#[test]
fn requests_of_an_unreadable_tenant_wait_and_hinder_no_others() {
    let mut limits = limits(8);
    limits.labels.insert("odd".into(), label(1));
    let mut world = World::new(limits);
    world.settle();
    assert_eq!(world.node_states(), ["ready"]);
    world.cell.limits.labels.remove(&"odd".into());
    world.cell.limits.unread_tenants = ["two".into()].into();
    let mut first = request(1, &["odd"]);
    first.queue.tenant = "two".into();
    world.cell.requests = vec![first, request(2, &["small"])];
    world.settle();
    assert_eq!([world.state(1), world.state(2)], ["requested", "fulfilled 1"]);
    assert!(world.cell.requests[0].reason.contains("of tenant two"), "{:?}", world.cell.requests);
    assert_eq!(world.node_states(), ["ready", "ready"]);
    world.cell.limits.unread_tenants.clear();
    world.settle();
    assert_eq!(world.state(1), "failed: label odd is unknown at cloud");
    assert_eq!(world.node_states(), ["ready"]);
}
