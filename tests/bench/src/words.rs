//! Words for what was measured: verdicts against goals, and where the time and the way went.

use crate::throughput::Times;
use sluice_model::poke::Queue;
use std::time::Duration;

/// Names of which a ranking tells the time.
const RANKED_MAX: usize = 7;

/// Says whether a goal is met that something must not exceed, and by how much not.
pub fn verdict(is: f64, goal: f64) -> String {
    let ratio = is / goal;
    if is <= goal {
        format!("met ({ratio:.2} of it)")
    } else {
        format!("MISSED by {:.0} ({ratio:.2} times it)", is - goal)
    }
}

/// Says whether a goal is met that something must reach, and by how much not.
pub fn at_least(is: f64, goal: f64) -> String {
    let ratio = is / goal;
    if is >= goal {
        format!("met ({ratio:.2} of it)")
    } else {
        format!("MISSED by {:.1} ({ratio:.2} of it)", goal - is)
    }
}

/// Returns milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Says what most time went to, for each of so many changes.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn ranked(times: &Times, changes: u64) -> String {
    let mut rows: Vec<_> = times.iter().collect();
    rows.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
    let row = |(name, (time, count)): &(&&str, &(Duration, u64))| {
        format!("{name} {:.2} in {count} calls", millis(*time) / changes.max(1) as f64)
    };
    rows.iter().take(RANKED_MAX).map(row).collect::<Vec<_>>().join(", ")
}

/// Returns the queues that a way passes beyond those that were planned, however often each.
pub fn unplanned(way: &[Queue], planned: &[Queue]) -> Vec<Queue> {
    let (mut left, mut beyond) = (planned.to_vec(), Vec::new());
    for queue in way {
        match left.iter().position(|of| of == queue) {
            Some(place) => {
                left.remove(place);
            }
            None => beyond.push(*queue),
        }
    }
    beyond
}

/// Says what batches a way has, which of them are beyond the plan, and why, where that is known.
pub fn way_spent(way: &[Queue], planned: &[Queue]) -> String {
    let names = |queues: &[Queue]| {
        queues.iter().map(|queue| format!("{queue:?}")).collect::<Vec<_>>().join(", ")
    };
    let beyond = unplanned(way, planned);
    let why = if beyond.contains(&Queue::Gate) {
        " (intake writes arrivals and creates no items, as a queue's head has one writer: the gate takes them in)"
    } else {
        ""
    };
    format!("{}; beyond the plan: {}{why}", names(way), names(&beyond))
}

/// Returns the questions of a minute that something asks, when each waits so long where nothing
/// comes.
pub fn asked_a_minute(askers: usize, wait_seconds: u32) -> f64 {
    askers as f64 * 60.0 / f64::from(wait_seconds.max(1))
}
