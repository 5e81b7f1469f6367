//! The calls of a change do not grow unnoticed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_bench::budget::GOAL_CALLS;
use sluice_bench::count::count;
use sluice_bench::sample::Nodes;

/// Calls that may come on top of what was measured when this was written.
const SLACK: u64 = 2;

/// The plan's budget: a check change with three jobs on warm nodes, goal 60.
#[tokio::test]
async fn a_change_costs_no_more_calls_than_it_did() {
    let counted = count(Nodes::Warm).await;
    for (what, measured, known) in [("check", counted.check.total(), 59), ("gate", counted.gate.total(), 66)] {
        assert!(
            measured <= known + SLACK,
            "a {what} change makes {measured} calls; it made {known}, and the goal is {GOAL_CALLS}"
        );
    }
}
