//! The calls of a change do not grow unnoticed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_bench::budget::{GOAL_CALLS, GOAL_ITEM_WRITES};
use sluice_bench::count::count;
use sluice_bench::long::{Window, Written};
use sluice_bench::sample::Nodes;
use sluice_bench::{burst, long};

/// The plan's budget: a change with three jobs on warm nodes, goal 60. Calls are counted in one thread and by a clock of its
/// own, so they are always the same. Of three builds that pass side by side the last one tells their queue: the first two cost no
/// message, and no look of the gate's with its read and its commit.
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

/// Z6.7: what waits in a long queue is neither read nor written when something happens to one of its changes, or nothing at all. The
/// head is no item: it is written besides, once for a commit.
#[tokio::test]
async fn a_look_at_a_long_queue_reads_and_writes_what_changed() {
    let (short, long) = (long::measure(60, Window::Default).await, long::measure(360, Window::Default).await);
    assert_eq!((short.items, long.items), (60, 360));
    for measured in [&short, &long] {
        let changed = &measured.changed.written;
        assert_eq!(measured.idle.written.total(), 0, "{measured:?}");
        assert_eq!(changed.items, 1, "{measured:?}");
        assert!(changed.item_writes <= GOAL_ITEM_WRITES * changed.items && changed.head <= 1, "{measured:?}");
        assert!(changed.others.is_empty(), "{measured:?}");
    }
    // Three hundred items more are 300 units at least; their ids in the head are two or three.
    assert!(long.idle.read_units < short.idle.read_units + 10.0, "{short:?} {long:?}");
    assert!(long.changed.read_units < short.changed.read_units + 10.0, "{short:?} {long:?}");
    // What moves when the first one fails is the window, however many wait behind it; it has grown by each that landed before.
    assert!(short.moved.written.items > 10, "{short:?}");
    assert!(long.moved.written.items <= short.moved.written.items + LANDED_MAX, "{short:?} {long:?}");
    for measured in [&short, &long] {
        each_item_is_written_once(&measured.moved.written);
    }
}

/// Z6.7: where all changes are tested at once, all behind one that fails move.
#[tokio::test]
async fn a_failure_at_the_head_of_a_wide_queue_writes_each_change_behind_it_once() {
    let wide = long::measure(60, Window::All).await;
    assert_eq!((wide.items, wide.idle.written.total()), (60, 0), "{wide:?}");
    assert!(wide.moved.written.items > 30, "{wide:?}");
    each_item_is_written_once(&wide.moved.written);
    assert!(wide.restarted.written.items + 2 >= wide.moved.written.items, "{wide:?}");
}

/// That an item moves is written with its reason by the plan that stops its builds, which one transaction has room for.
fn each_item_is_written_once(moved: &Written) {
    assert!(moved.item_writes <= GOAL_ITEM_WRITES * moved.items, "{moved:?}");
}

/// C1, C2: what a change costs does not grow with the projects of its tenant, and many that come at once all pass.
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
