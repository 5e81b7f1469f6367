//! Layout changes: an operator adds a job for all projects and removes it again. All items of a
//! layout must agree on the job, and a new layout must become live soon.

use super::Oracle;
use crate::scenarios::newcomers::is_newcomer;
use crate::scenarios::reloads::SURPLUS;
use sluice_model::{ItemId, TenantName, Timestamp};
use sluice_records::report::Buildset;
use std::collections::BTreeMap;

/// Milliseconds after which a new layout applies to every new item, if no event is lost.
const LIVE_MILLIS: u64 = 300_000;

/// What an operator did to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobChange {
    /// Added it for all projects.
    Added,
    /// Removed it.
    Removed,
}

/// The changes of the job, and the items that show them.
#[derive(Default)]
pub(super) struct Reloads {
    /// When it was added or removed, in order.
    changes: Vec<(Timestamp, JobChange)>,
    /// Whether items of a layout have the job.
    seen: BTreeMap<(TenantName, u64), bool>,
    /// When items entered.
    came_at: BTreeMap<ItemId, Timestamp>,
}

impl Reloads {
    /// Returns whether an item that entered and left at these times must have the job; `None` if
    /// either is possible.
    fn due(&self, came_at: Timestamp, left_at: Timestamp) -> Option<bool> {
        let before =
            self.changes.iter().take_while(|(at, _)| at.0.saturating_add(LIVE_MILLIS) < came_at.0);
        let count = before.clone().count();
        let is_unsure = self.changes.get(count).is_some_and(|(at, _)| *at <= left_at);
        (!is_unsure).then(|| before.last().is_some_and(|(_, change)| *change == JobChange::Added))
    }
}

impl Oracle {
    /// Records that an operator added or removed the job.
    pub fn record_job_change(&mut self, change: JobChange, now: Timestamp) {
        self.reloads.changes.push((now, change));
    }

    /// Records when an item entered its queue.
    pub fn record_entry(&mut self, item: &ItemId, now: Timestamp) {
        self.reloads.came_at.insert(item.clone(), now);
    }

    /// Checks whether a tested item has the job as its layout says.
    pub(super) fn check_reloaded_job(
        &mut self,
        set: &Buildset,
        now: Timestamp,
    ) -> Result<(), String> {
        let came_at = self.reloads.came_at.remove(&set.id);
        let is_tested =
            ["SUCCESS", "FAILURE"].contains(&set.result.as_str()) && set.item.merged().is_some();
        let is_newcomer = is_newcomer(set.item.candidate.change.key.project.name());
        if !is_tested || is_newcomer || !["check", "gate"].contains(&set.queue.pipeline.as_str()) {
            return Ok(());
        }
        let has = set.item.jobs.iter().any(|job| job.summary.name.as_str() == SURPLUS);
        let of = (set.queue.tenant.clone(), set.item.layout);
        if *self.reloads.seen.entry(of).or_insert(has) != has {
            let (layout, there) = (set.item.layout, if has { "has" } else { "lacks" });
            return Err(format!(
                "it {there} the job {SURPLUS}, unlike another item of layout {layout}"
            ));
        }
        let due = came_at
            .filter(|_| self.sees_all_events)
            .and_then(|came_at| self.reloads.due(came_at, now));
        match due {
            Some(due) if due != has => {
                Err(format!("its layout is outdated: it was wrong about {SURPLUS} when it entered"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z2.6: a live layout applies to later items.
    #[test]
    fn a_job_that_came_counts_for_what_comes_later_and_may_count_for_what_is_there() {
        let mut reloads = Reloads::default();
        let at = |minutes: u64| Timestamp(minutes * 60_000);
        assert_eq!(reloads.due(at(1), at(2)), Some(false));
        reloads.changes = vec![(at(10), JobChange::Added), (at(20), JobChange::Removed)];
        assert_eq!(reloads.due(at(1), at(9)), Some(false));
        assert_eq!((reloads.due(at(9), at(11)), reloads.due(at(12), at(13))), (None, None));
        assert_eq!((reloads.due(at(16), at(17)), reloads.due(at(16), at(21))), (Some(true), None));
        assert_eq!(reloads.due(at(30), at(31)), Some(false));
    }
}
