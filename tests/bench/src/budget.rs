//! The budget of the design, step by step.

use sluice_model::wakeup::MessageQueue;

/// Own calls that a change with three jobs may make.
pub const GOAL_CALLS: u64 = 60;

/// Milliseconds from an event to its build request, without the forge's own time.
pub const GOAL_MILLISECONDS: f64 = 50.0;

/// Changes per second through one gate queue.
pub const GOAL_CHANGES_PER_SECOND: f64 = 50.0;

/// Changes per second in a burst over many projects in check.
pub const GOAL_BURST_PER_SECOND: f64 = 100.0;

/// Milliseconds of processor time per change, however many projects its tenant has.
pub const GOAL_CHANGE_MILLISECONDS: f64 = 5.0;

/// The factor by which a change may take longer in a tenant of a thousand projects than in one of
/// ten: constant, except for noise.
pub const GOAL_FLAT: f64 = 1.25;

/// Milliseconds of processor time of a full reconciliation of a queue with a thousand changes.
pub const GOAL_LOOK_MILLISECONDS: f64 = 10.0;

/// Item records that such a reconciliation may write per changed item. The head is written in
/// addition, once per commit.
pub const GOAL_ITEM_WRITES: u64 = 1;

/// Additional calls for cold nodes.
pub const COLD_NODES: u64 = 10;

/// The queues of successive message batches from a delivery to its node requests.
pub const WAY_TO_NODES: [MessageQueue; 3] =
    [MessageQueue::Events, MessageQueue::Merges, MessageQueue::Gate];

/// The same to its build.
pub const WAY_TO_BUILD: [MessageQueue; 4] =
    [MessageQueue::Events, MessageQueue::Merges, MessageQueue::Gate, MessageQueue::Pool];

/// Messages that wake the queue of a gate change with three jobs.
pub const POKES_OF_GATE: u64 = 6;

/// The steps of a change, in order.
pub const STEPS: [&str; 7] =
    ["webhook", "intake", "gate", "merger", "launcher", "executor", "reporter"];

/// Returns the budgeted calls of one step of a check change with warm nodes; 0 for an unknown step.
pub fn planned(step: &str, jobs: u64) -> u64 {
    match step {
        "webhook" => 2,
        "intake" => 4,
        "merger" | "launcher" => 6,
        "gate" => 4 + 2 * jobs + 3,
        "executor" => 4 + 5 * jobs,
        "reporter" => 3,
        _ => 0,
    }
}
