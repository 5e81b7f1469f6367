//! The calls of a change do not grow unnoticed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_bench::budget::{GOAL_CALLS, GOAL_LOOK_WRITES};
use sluice_bench::count::count;
use sluice_bench::sample::Nodes;
use sluice_bench::{burst, long};

/// The plan's budget: a change with three jobs on warm nodes, goal 60, which is missed. Calls are counted in one thread and by a clock of its
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

/// Z6.7: what waits in a long queue is neither read nor written when something happens to one of its changes, or nothing at all.
#[tokio::test]
async fn a_look_at_a_long_queue_reads_and_writes_what_changed() {
    let (short, long) = (long::measure(60).await, long::measure(360).await);
    assert_eq!((short.items, long.items), (60, 360));
    for measured in [&short, &long] {
        assert_eq!(measured.idle_written, 0, "{measured:?}");
        assert!(measured.changed_written <= GOAL_LOOK_WRITES, "{measured:?}");
    }
    // Three hundred items more are 300 units at least; their ids in the head are two or three.
    assert!(long.idle_read_units < short.idle_read_units + 10.0, "{short:?} {long:?}");
    assert!(long.changed_read_units < short.changed_read_units + 10.0, "{short:?} {long:?}");
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
