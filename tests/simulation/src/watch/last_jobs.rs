//! Jobs that run after the reports: when one begins, what it comes to, and what it makes worthless
//! by failing.

use super::{Kind, News, Watch, both, key_of, kind};
use crate::plays::PUBLISH;
use sluice_gate::Item;
use sluice_gate::queue::Standing;
use sluice_memory::Written;
use sluice_model::build::{BuildResult, Order};
use sluice_model::{BuildId, ItemId};
use sluice_records::report::Buildset;
use std::collections::{BTreeMap, BTreeSet};

/// Why an item leaves whose jobs after its report are over, which nobody took out.
const OVER: &str = "the jobs after its report are over";

/// What is known of such jobs.
#[derive(Default)]
pub(super) struct LastJobs {
    /// The newest build of each item.
    builds: BTreeMap<ItemId, BuildId>,
    /// Builds that an executor brought to their end.
    done: BTreeSet<BuildId>,
    /// Builds of what stood behind one that failed.
    stale: BTreeSet<BuildId>,
}

impl LastJobs {
    /// Hears that a build ended.
    pub(super) fn ended(&mut self, build: &BuildId, result: BuildResult) {
        if matches!(result, BuildResult::Success | BuildResult::Failure) {
            self.done.insert(build.clone());
        }
    }

    /// Returns whether an item was tested before a job failed by which it is to be tested again.
    pub(super) fn is_stale(&self, item: &Item) -> bool {
        builds_of(item).any(|build| self.stale.contains(build))
    }
}

impl Watch {
    /// Judges a build that is ordered: one that comes after a report belongs to something that was
    /// reported.
    pub(super) fn last_job_ordered(
        &mut self,
        order: &Order,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        if order.job.as_str() != PUBLISH {
            return Ok(());
        }
        let head = self.heads.get(&order.queue);
        let slot = head.into_iter().flat_map(|head| &head.slots).find(|slot| slot.id == order.item);
        if slot.is_none_or(|slot| slot.standing != Standing::Reporting) {
            return Err(format!(
                "{PUBLISH} of {} is ordered, which has not been reported",
                order.change
            ));
        }
        let earlier = self.last_jobs.builds.insert(order.item.clone(), order.build.clone());
        let done = earlier.filter(|earlier| self.last_jobs.done.contains(earlier));
        news.push(News::AfterReport(Box::new(order.clone()), done));
        Ok(())
    }

    /// Hears that an item which had been told left by the end of its jobs; where one failed, what
    /// is behind it is worth nothing more.
    pub(super) fn left_after_report(
        &mut self,
        set: Buildset,
        transaction: &[Written],
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let result = set
            .item
            .jobs
            .iter()
            .find(|job| job.summary.name.as_str() == PUBLISH)
            .and_then(|job| job.result());
        if result == Some(BuildResult::Failure) && set.why == OVER {
            let slots = self.heads.get(&set.queue).into_iter().flat_map(|head| &head.slots);
            let behind: BTreeSet<ItemId> =
                slots.map(|slot| slot.id.clone()).filter(|id| *id != set.id).collect();
            let mut stale: BTreeSet<BuildId> = BTreeSet::new();
            let of_items = transaction
                .iter()
                .filter(|write| key_of(write).is_some_and(|key| kind(key) == Kind::Item));
            let mut written: BTreeSet<ItemId> = BTreeSet::new();
            for write in of_items {
                let (before, after) = both::<Item>(write.before.as_ref(), write.after.as_ref())?;
                written.extend(after.iter().chain(&before).map(|item| item.id.clone()));
                let before = before.filter(|item| behind.contains(&item.id));
                stale.extend(before.iter().flat_map(builds_of).cloned());
            }
            let others = self
                .items
                .values()
                .filter(|item| behind.contains(&item.id) && !written.contains(&item.id));
            stale.extend(others.flat_map(builds_of).cloned());
            self.tested_again += u64::from(!stale.is_empty());
            self.last_jobs.stale.extend(stale);
        }
        news.push(News::Over(Box::new(set)));
        Ok(())
    }
}

/// Returns the newest builds of an item's jobs that decide about it.
fn builds_of(item: &Item) -> impl Iterator<Item = &BuildId> {
    let deciding = item.jobs.iter().filter(|job| job.summary.name.as_str() != PUBLISH);
    deciding.filter_map(|job| job.build.as_ref())
}
