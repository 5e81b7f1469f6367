//! Reporter jobs: when they start, how they end, and which builds their failure invalidates.

use super::{Kind, Watch, WriteEffect, both, key_of, kind};
use crate::scenarios::PUBLISH;
use sluice_gate::queue::SlotStatus;
use sluice_gate::{Head, Item};
use sluice_memory::RecordChange;
use sluice_model::build::{BuildResult, Order};
use sluice_model::{BuildId, ItemId};
use sluice_records::report::Buildset;
use std::collections::{BTreeMap, BTreeSet};

/// The reason of an item that leaves because its reporter jobs ended.
const REPORTER_JOBS_ENDED: &str = "its reporter jobs are over";

/// Builds of reporter jobs.
#[derive(Default)]
pub(super) struct ReporterJobs {
    /// The newest build of each item.
    builds: BTreeMap<ItemId, BuildId>,
    /// Builds that an executor ended.
    done: BTreeSet<BuildId>,
    /// Builds of items behind a failed reporter job.
    stale: BTreeSet<BuildId>,
}

impl ReporterJobs {
    /// Records the end of a build.
    pub(super) fn record_end(&mut self, build: &BuildId, result: BuildResult) {
        if matches!(result, BuildResult::Success | BuildResult::Failure) {
            self.done.insert(build.clone());
        }
    }

    /// Returns whether an item has builds from before the failure of a reporter job ahead.
    pub(super) fn is_stale(&self, item: &Item) -> bool {
        builds_of(item).any(|build| self.stale.contains(build))
    }
}

impl Watch {
    /// Checks that a reporter job is ordered after the report of its item.
    pub(super) fn check_reporter_job_order(
        &mut self,
        order: &Order,
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        if order.job.as_str() != PUBLISH {
            return Ok(());
        }
        let head = self.heads.get(&order.queue);
        let slot = head.into_iter().flat_map(Head::slots).find(|slot| slot.id == order.item);
        if slot.is_none_or(|slot| slot.status != SlotStatus::Reporting) {
            return Err(format!("{PUBLISH} of {} is ordered before the report", order.change));
        }
        let earlier = self.reporter_jobs.builds.insert(order.item.clone(), order.build.clone());
        let done = earlier.filter(|earlier| self.reporter_jobs.done.contains(earlier));
        effects.push(WriteEffect::ReporterJobOrdered(Box::new(order.clone()), done));
        Ok(())
    }

    /// Records an item that left after its report. If a reporter job failed, the builds behind it
    /// become stale.
    pub(super) fn check_reporter_jobs_end(
        &mut self,
        set: Buildset,
        transaction: &[RecordChange],
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        let result = set
            .item
            .jobs
            .iter()
            .find(|job| job.summary.name.as_str() == PUBLISH)
            .and_then(|job| job.result());
        if result == Some(BuildResult::Failure) && set.why == REPORTER_JOBS_ENDED {
            let slots = self.heads.get(&set.queue).into_iter().flat_map(Head::slots);
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
            self.retested += u64::from(!stale.is_empty());
            self.reporter_jobs.stale.extend(stale);
        }
        effects.push(WriteEffect::ReporterJobsEnded(Box::new(set)));
        Ok(())
    }
}

/// Returns the newest builds of an item's jobs, without reporter jobs.
fn builds_of(item: &Item) -> impl Iterator<Item = &BuildId> {
    let deciding = item.jobs.iter().filter(|job| job.summary.name.as_str() != PUBLISH);
    deciding.filter_map(|job| job.build.as_ref())
}
