//! Formats measurements: comparisons with goals, and breakdowns of times and message paths.

use crate::throughput::Times;
use sluice_model::wakeup::MessageQueue;
use std::time::Duration;

/// The number of names in a ranking.
const RANKED_MAX: usize = 7;

/// Formats whether a value is at most its goal, and the excess.
pub fn at_most(is: f64, goal: f64) -> String {
    let ratio = is / goal;
    if is <= goal {
        format!("met ({ratio:.2} of it)")
    } else {
        format!("MISSED by {:.0} ({ratio:.2} times it)", is - goal)
    }
}

/// Formats whether a value reaches its goal, and the shortfall.
pub fn at_least(is: f64, goal: f64) -> String {
    let ratio = is / goal;
    if is >= goal {
        format!("met ({ratio:.2} of it)")
    } else {
        format!("MISSED by {:.1} ({ratio:.2} of it)", goal - is)
    }
}

/// Returns a duration in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Formats the names with the most time, per change.
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
pub fn unplanned(way: &[MessageQueue], planned: &[MessageQueue]) -> Vec<MessageQueue> {
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

/// Formats the batches of a path, those beyond the plan, and a known reason.
pub fn way_spent(way: &[MessageQueue], planned: &[MessageQueue]) -> String {
    let names = |queues: &[MessageQueue]| {
        queues.iter().map(|queue| format!("{queue:?}")).collect::<Vec<_>>().join(", ")
    };
    let beyond = unplanned(way, planned);
    let why = if beyond.contains(&MessageQueue::Gate) {
        " (intake writes inbox messages; only the gate creates items, because a queue's head has one writer)"
    } else {
        ""
    };
    format!("{}; beyond the plan: {}{why}", names(way), names(&beyond))
}

/// Returns the polls per minute of `askers` pollers that wait up to `wait_seconds` for a message.
pub fn asked_a_minute(askers: usize, wait_seconds: u32) -> f64 {
    askers as f64 * 60.0 / f64::from(wait_seconds.max(1))
}
