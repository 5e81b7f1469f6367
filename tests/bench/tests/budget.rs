//! Detects growth of the number of calls of a change.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_bench::budget::{GOAL_CALLS, GOAL_ITEM_WRITES, WAY_TO_BUILD};
use sluice_bench::count::{IDLE_MINUTES, Stage, count, idle};
use sluice_bench::long::{Window, Written};
use sluice_bench::runner::Builds;
use sluice_bench::sample::Nodes;
use sluice_bench::wording::{asked_a_minute, at_least, at_most, unplanned, way_spent};
use sluice_bench::{burst, long, throughput};
use sluice_memory::Used;
use sluice_model::wakeup::MessageQueue;
use std::collections::BTreeMap;

/// The plan's budget: a change with three jobs on warm nodes, goal 60. Calls are counted in one
/// thread and by a clock of its own, so they are always the same. Of three builds that end
/// together only the last one wakes their queue: the first two cost neither a message nor a
/// reconciliation with its read and commit.
#[tokio::test]
async fn a_change_costs_no_more_calls_than_it_did() {
    let counted = count(Nodes::Warm).await;
    for (what, stage, known) in [("check", &counted.check, 56), ("gate", &counted.gate, 55)] {
        assert!(
            stage.total() <= known,
            "a {what} change makes {} calls; it made {known}, and the goal is {GOAL_CALLS}: {}",
            stage.total(),
            stage.spent()
        );
    }
}

/// Changes of three jobs that land, at most, by the builds that end before the first one fails.
const LANDED_MAX: u64 = 7;

/// Z6.7: what waits in a long queue is neither read nor written when something happens to one of
/// its changes, or nothing at all. The head is no item: it is written besides, once for a commit.
#[tokio::test]
async fn a_look_at_a_long_queue_reads_and_writes_what_changed() {
    let (short, long) =
        (long::measure(60, Window::Default).await, long::measure(360, Window::Default).await);
    assert_eq!((short.items, long.items), (60, 360));
    for measured in [&short, &long] {
        let changed = &measured.changed.written;
        assert_eq!(measured.idle.written.total(), 0, "{measured:?}");
        assert_eq!(changed.items, 1, "{measured:?}");
        assert!(
            changed.item_writes <= GOAL_ITEM_WRITES * changed.items && changed.head <= 1,
            "{measured:?}"
        );
        assert!(changed.others.is_empty(), "{measured:?}");
    }
    // Three hundred items more are 300 units at least; their ids in the head are two or three.
    assert!(long.idle.read_units < short.idle.read_units + 10.0, "{short:?} {long:?}");
    assert!(long.changed.read_units < short.changed.read_units + 10.0, "{short:?} {long:?}");
    // What moves when the first one fails is the window, however many wait behind it; it has grown
    // by each that landed before.
    assert!(short.moved.written.items > 10, "{short:?}");
    assert!(
        long.moved.written.items <= short.moved.written.items + LANDED_MAX,
        "{short:?} {long:?}"
    );
    for measured in [&short, &long] {
        each_item_is_written_once(&measured.moved.written);
    }
}

/// Z6.7: with an unlimited window, all changes behind a failed one move.
#[tokio::test]
async fn a_failure_at_the_head_of_a_wide_queue_writes_each_change_behind_it_once() {
    let wide = long::measure(60, Window::All).await;
    assert_eq!((wide.items, wide.idle.written.total()), (60, 0), "{wide:?}");
    assert!(wide.moved.written.items > 30, "{wide:?}");
    each_item_is_written_once(&wide.moved.written);
    assert!(wide.restarted.written.items + 2 >= wide.moved.written.items, "{wide:?}");
}

/// That an item moves is written with its reason by the plan that stops its builds, which one
/// transaction has room for.
fn each_item_is_written_once(moved: &Written) {
    assert!(moved.item_writes <= GOAL_ITEM_WRITES * moved.items, "{moved:?}");
}

/// C1, C2: the cost of a change does not grow with the projects of its tenant, and all changes of a
/// burst pass.
#[tokio::test]
async fn a_change_makes_the_same_calls_in_a_tenant_of_few_projects_and_of_many() {
    let (few, many) = (burst::measure(20, 5).await, burst::measure(20, 150).await);
    assert_eq!((few.changes, many.changes), (20, 20));
    let most = few.calls + few.calls / 10;
    assert!(
        many.calls <= most,
        "{} calls at {} projects, {} at {}",
        few.calls,
        few.projects,
        many.calls,
        many.projects
    );
}

/// A step over its budget is reported with its own calls; a step within its budget is not reported.
#[test]
fn a_step_that_makes_more_calls_than_planned_says_which() {
    let used = |calls| Used { calls, ..Used::default() };
    let launcher = BTreeMap::from([
        ("records.get", used(4)),
        ("records.commit", used(7)),
        ("seal.open", used(2)),
    ]);
    let reporter = BTreeMap::from([("records.commit", used(3))]);
    let calls = BTreeMap::from([("launcher", launcher), ("reporter", reporter)]);
    let stage = Stage { calls, ..Stage::default() };
    assert_eq!(
        stage.over_plan(3),
        ["launcher: 5 over plan; spent on: records.commit 7, records.get 4"]
    );
}

/// A path that is longer than planned is reported with its additional queues.
#[test]
fn a_way_that_is_longer_than_planned_says_by_what() {
    let way = [
        MessageQueue::Events,
        MessageQueue::Gate,
        MessageQueue::Merges,
        MessageQueue::Gate,
        MessageQueue::Pool,
    ];
    assert_eq!(unplanned(&way, &WAY_TO_BUILD), [MessageQueue::Gate]);
    assert!(unplanned(&WAY_TO_BUILD, &WAY_TO_BUILD).is_empty());
    let spent = way_spent(&way, &WAY_TO_BUILD);
    assert!(
        spent.starts_with("Events, Gate, Merges, Gate, Pool; beyond the plan: Gate (intake writes"),
        "{spent}"
    );
    assert_eq!(at_most(5.0, 4.0), "MISSED by 1 (1.25 times it)");
    assert_eq!(at_most(4.0, 4.0), "met (1.00 of it)");
    assert_eq!(at_least(40.0, 50.0), "MISSED by 10.0 (0.80 of it)");
    assert_eq!(at_least(50.0, 50.0), "met (1.00 of it)");
}

/// A session is renewed by one write. While it runs builds, it also reads whether one must stop.
#[tokio::test]
async fn a_session_costs_a_write_a_second_and_a_read_more_while_it_builds() {
    let idle = idle().await;
    let seconds = IDLE_MINUTES * 60;
    assert_eq!(idle.session.total(), seconds, "{}", idle.session.spent());
    assert_eq!(idle.building.total(), 2 * seconds, "{}", idle.building.spent());
    assert!((asked_a_minute(3, 20) - 9.0).abs() < f64::EPSILON);
}

/// The rate with real merges leaves out Ansible alone: builds have their workspace from the packs,
/// and what they test lands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_land_by_real_merges_have_their_builds_prepared() {
    let rate = throughput::real(2).await;
    assert_eq!((rate.asked, rate.landed, rate.builds), (2, 2, Builds::Prepared));
    assert!(rate.functions.contains_key("executor"), "{rate:?}");
}
