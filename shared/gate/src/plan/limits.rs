//! How many changes a pipeline may hold (`max-changes-per-pipeline`), and what is told where it
//! holds them.

use super::Work;
use crate::arrival::{Arrival, Candidate};

/// How many changes a pipeline may hold in all its queues (`max-changes-per-pipeline`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangesLimit {
    /// The most.
    pub max: u32,
    /// Those in the pipeline's other queues, as they said last: what enters several queues at the
    /// same moment may exceed it.
    pub elsewhere: u32,
}

impl Work<'_> {
    /// Returns why candidates may not enter, where the pipeline would hold more changes than it
    /// may: those that are only tested below another one count too. The texts are Zuul's.
    pub(super) fn over_limit(&self, candidates: &[&Candidate]) -> Option<String> {
        let limit = self.snapshot.changes?;
        let more: u64 =
            candidates.iter().map(|candidate| candidate.changes_in(self.head.manager)).sum();
        let max = u64::from(limit.max);
        if more > max {
            return Some(format!(
                "Unable to enqueue change: {more} changes to enqueue greater than pipeline max of {max}"
            ));
        }
        let all = more + self.changes() + u64::from(limit.elsewhere);
        (all > max).then(|| {
            format!("Unable to enqueue change: {more} additional changes would exceed pipeline max of {max} under current conditions")
        })
    }

    /// Returns how many changes the queue holds, those among them that are only tested below
    /// another one.
    fn changes(&self) -> u64 {
        self.items.values().map(|item| item.candidate.changes_in(self.head.manager)).sum()
    }

    /// Tells that the pipeline is full. Always returns true: the arrival was dealt with.
    pub(super) fn tell_full(
        &mut self,
        arrival: &Arrival,
        candidates: &[&Candidate],
        reason: &str,
    ) -> bool {
        for candidate in candidates {
            self.plan.reasons.push(format!(
                "{} is not enqueued in {}: {reason}",
                candidate.change, self.head.key
            ));
            let report = self.report_refusal(candidate, arrival, reason);
            self.plan.reports.extend(report.filter(|_| candidate.moved_from.is_none()));
        }
        self.refuse_moved(arrival, candidates, reason);
        true
    }
}
