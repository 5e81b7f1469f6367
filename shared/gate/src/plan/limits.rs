//! The limit on the number of changes in a pipeline (`max-changes-per-pipeline`), and the reports
//! of changes beyond it.

use super::Planner;
use crate::inbox::{Candidate, InboxMessage};

/// The limit on the number of changes in all queues of a pipeline (`max-changes-per-pipeline`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangesLimit {
    /// The largest number of changes allowed.
    pub max: u32,
    /// The number of changes in the pipeline's other queues, as last reported by them. Changes that
    /// enter several queues at once may exceed the limit.
    pub in_other_queues: u32,
}

impl Planner<'_> {
    /// Returns why the candidates would exceed the pipeline's limit, alone or with the changes in
    /// all its queues, as a text for users; `None` if they do not or there is no limit.
    /// Dependencies that are only tested below another change count too. The texts are Zuul's.
    pub(super) fn over_limit(&self, candidates: &[&Candidate]) -> Option<String> {
        let limit = self.snapshot.changes_limit?;
        let more: u64 =
            candidates.iter().map(|candidate| candidate.change_count_in(self.head.manager)).sum();
        let max = u64::from(limit.max);
        if more > max {
            return Some(format!(
                "Unable to enqueue change: {more} changes to enqueue greater than pipeline max of {max}"
            ));
        }
        let all = more + self.change_count() + u64::from(limit.in_other_queues);
        (all > max).then(|| {
            format!("Unable to enqueue change: {more} additional changes would exceed pipeline max of {max} under current conditions")
        })
    }

    /// Returns how many changes the queue holds, including dependencies that are only tested below
    /// another change.
    fn change_count(&self) -> u64 {
        self.items.values().map(|item| item.candidate.change_count_in(self.head.manager)).sum()
    }

    /// Logs that candidates are not enqueued because they would exceed the pipeline's limit, and
    /// reports each of them as refused. A candidate that the configuration moved here gets a
    /// dequeue report and a buildset instead. `reason` is the text of [`Self::over_limit`]. The
    /// caller has reserved room, and consumes the message.
    pub(super) fn report_over_limit(
        &mut self,
        message: &InboxMessage,
        candidates: &[&Candidate],
        reason: &str,
    ) {
        for candidate in candidates {
            self.ledger.explain(format!(
                "{} is not enqueued in {}: {reason}",
                candidate.change, self.head.key
            ));
            let report = self.report_refusal(candidate, message, reason);
            self.ledger.report(report.filter(|_| candidate.moved_from.is_none()));
        }
        self.report_refused_moves(message, candidates, reason);
    }
}
