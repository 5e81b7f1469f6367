//! The calls of a change do not grow unnoticed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_bench::budget::GOAL_CALLS;
use sluice_bench::count::count;
use sluice_bench::sample::Nodes;

/// The plan's budget: a change with three jobs on warm nodes, goal 60. Calls are counted in one thread and by a clock of its
/// own, so they are always the same.
#[tokio::test]
async fn a_change_costs_no_more_calls_than_it_did() {
    let counted = count(Nodes::Warm).await;
    for (what, measured, known) in [("check", counted.check.total(), 55), ("gate", counted.gate.total(), 60)] {
        assert!(
            measured <= known,
            "a {what} change makes {measured} calls; it made {known}, and the goal is {GOAL_CALLS}"
        );
    }
}
