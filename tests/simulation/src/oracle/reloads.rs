//! Whether an item had to have the job that an operator adds for all projects and takes away: one
//! layout says one thing, and a new one counts soon.

use super::Oracle;
use crate::plays::reloads::SURPLUS;
use sluice_model::{ItemId, TenantName, Timestamp};
use sluice_records::report::Buildset;
use std::collections::BTreeMap;

/// Milliseconds after which a layout counts for whatever comes, where everything is heard.
const LIVE_MILLIS: u64 = 300_000;

/// What operators did to the job.
#[derive(Default)]
pub(super) struct Reloads {
    /// When it came, or went, in their order.
    said: Vec<(Timestamp, bool)>,
    /// Whether items of a layout have it, by tenant and layout.
    seen: BTreeMap<(TenantName, u64), bool>,
    /// When items came to stand.
    came_at: BTreeMap<ItemId, Timestamp>,
}

impl Reloads {
    /// Returns whether the job is there for what came and left at these times; `None` where one may
    /// have heard of it or not.
    fn due(&self, came_at: Timestamp, left_at: Timestamp) -> Option<bool> {
        let before =
            self.said.iter().take_while(|(at, _)| at.0.saturating_add(LIVE_MILLIS) < came_at.0);
        let count = before.clone().count();
        let is_unsure = self.said.get(count).is_some_and(|(at, _)| *at <= left_at);
        (!is_unsure).then(|| before.last().is_some_and(|(_, is_there)| *is_there))
    }
}

impl Oracle {
    /// Is told that an operator adds the job, or takes it away.
    pub fn reloaded(&mut self, is_there: bool, now: Timestamp) {
        self.reloads.said.push((now, is_there));
    }

    /// Is told when an item came to stand in its queue.
    pub fn has_come(&mut self, item: &ItemId, now: Timestamp) {
        self.reloads.came_at.insert(item.clone(), now);
    }

    /// Judges whether an item that was tested has the job.
    pub(super) fn judged_reloads(&mut self, set: &Buildset, now: Timestamp) -> Result<(), String> {
        let came_at = self.reloads.came_at.remove(&set.id);
        let is_tested =
            ["SUCCESS", "FAILURE"].contains(&set.result.as_str()) && set.item.merged().is_some();
        if !is_tested || !["check", "gate"].contains(&set.queue.pipeline.as_str()) {
            return Ok(());
        }
        let has = set.item.jobs.iter().any(|job| job.summary.name.as_str() == SURPLUS);
        let of = (set.queue.tenant.clone(), set.item.layout);
        if *self.reloads.seen.entry(of).or_insert(has) != has {
            let (layout, there) = (set.item.layout, if has { "has" } else { "has not" });
            return Err(format!(
                "it {there} the job {SURPLUS}, and another item of layout {layout} says otherwise"
            ));
        }
        let due =
            came_at.filter(|_| self.hears_all).and_then(|came_at| self.reloads.due(came_at, now));
        match due {
            Some(due) if due != has => {
                Err(format!("its layout is older than what counted since it came: {SURPLUS}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z2.6: what is live counts for what comes from then on.
    #[test]
    fn a_job_that_came_counts_for_what_comes_later_and_may_count_for_what_is_there() {
        let mut reloads = Reloads::default();
        let at = |minutes: u64| Timestamp(minutes * 60_000);
        assert_eq!(reloads.due(at(1), at(2)), Some(false));
        reloads.said = vec![(at(10), true), (at(20), false)];
        assert_eq!(reloads.due(at(1), at(9)), Some(false));
        assert_eq!((reloads.due(at(9), at(11)), reloads.due(at(12), at(13))), (None, None));
        assert_eq!((reloads.due(at(16), at(17)), reloads.due(at(16), at(21))), (Some(true), None));
        assert_eq!(reloads.due(at(30), at(31)), Some(false));
    }
}
