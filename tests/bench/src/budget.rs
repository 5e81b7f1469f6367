//! What the plan allows, step by step.

use sluice_model::poke::Queue;

/// Own calls that a change with three jobs may make.
pub const GOAL_CALLS: u64 = 60;

/// Milliseconds from an event to its build request, the forge's own time left out.
pub const GOAL_MILLISECONDS: f64 = 50.0;

/// Changes that pass one gate queue in a second.
pub const GOAL_CHANGES_PER_SECOND: f64 = 50.0;

/// Changes of a burst over many projects that are checked in a second.
pub const GOAL_BURST_PER_SECOND: f64 = 100.0;

/// Milliseconds of processor time of one change, however many projects its tenant has.
pub const GOAL_CHANGE_MILLISECONDS: f64 = 5.0;

/// How many times as much a change may take in a tenant of a thousand projects as in one of ten:
/// flat, but for noise.
pub const GOAL_FLAT: f64 = 1.25;

/// Milliseconds of processor time that a whole look at a queue of a thousand changes may take.
pub const GOAL_LOOK_MILLISECONDS: f64 = 10.0;

/// Records of items that such a look may write for each item that changed. The head is written
/// besides, once for each commit.
pub const GOAL_ITEM_WRITES: u64 = 1;

/// Calls that cold nodes add.
pub const COLD_NODES: u64 = 10;

/// Queues of the batches of messages, one after another, from a delivery to its request for nodes.
pub const WAY_TO_NODES: [Queue; 3] = [Queue::Events, Queue::Merges, Queue::Gate];

/// The same to its build.
pub const WAY_TO_BUILD: [Queue; 4] = [Queue::Events, Queue::Merges, Queue::Gate, Queue::Pool];

/// Messages by which a gate change with three jobs has its queue looked at.
pub const POKES_OF_GATE: u64 = 6;

/// The steps of a change in their order.
pub const STEPS: [&str; 7] =
    ["webhook", "intake", "gate", "merger", "launcher", "executor", "reporter"];

/// Returns the calls that the plan gives one step of a check change with warm nodes; 0 for what it
/// does not know.
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
