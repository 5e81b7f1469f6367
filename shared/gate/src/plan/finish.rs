//! Completes entries: orders and follows landings, reports results and removes what is done.

use super::job_graph::skip_job;
use super::ledger::Full;
use super::{Planner, QueueAction, RemovedItem, is_dependent};
use crate::item::{Item, Job, JobStatus, MergeStatus, REASON_BYTES_MAX, cut};
use crate::landing::lands_in;
use crate::queue::{Slot, SlotStatus};
use crate::report::Occasion;
use sluice_model::ItemId;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;

/// Why a change leaves whose dependencies changed since it was enqueued.
pub(super) const DEPENDENCIES_CHANGED: &str = "its dependencies changed";

/// The most failed jobs that the reason of a failure names.
const FAILED_JOBS_MAX: usize = 10;

/// Records that dequeueing a change writes, without those of its builds.
pub(super) const DEQUEUE_RECORDS: usize = 7;

/// The report text of a change whose dependency was dequeued without being merged.
const DEPENDENCY_FAILED: &str = "This change depends on a change that failed to merge.";

/// The report text of a change whose bundle failed.
const BUNDLE_FAILED: &str = "This change is part of a dependency cycle that failed.";

/// The result of completing what can be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The order of the queue is unchanged.
    Settled,
    /// An entry left or is tested again, so that the queue must be aligned again.
    Reordered,
}

/// How an item leaves its queue.
pub(super) struct Departure {
    /// Zuul's name of the result ([`RemovedItem::result`]).
    result: &'static str,
    /// The reason that users see.
    why: String,
    /// What is reported.
    occasion: Occasion,
}

impl Departure {
    /// Returns how an item leaves: with Zuul's name of the result, the reason that users see, and
    /// the occasion of its report.
    pub(super) fn new(result: &'static str, why: &str, occasion: Occasion) -> Self {
        Self { result, why: why.to_owned(), occasion }
    }
}

impl Planner<'_> {
    /// Completes entries in order, up to the first one that leaves or is tested again: orders or
    /// follows their landings, reports them, or dequeues them; entries marked for dequeueing come
    /// first. In a dependent queue only the first entry can be completed, and entries behind it
    /// that must leave. Returns [`Progress::Reordered`] if an entry left or is tested again; the
    /// caller then aligns the queue and calls this again. While reporter jobs hold up the queue,
    /// only their entry is completed. Does nothing in a halted queue.
    pub(super) fn finish(&mut self) -> Result<Progress, Full> {
        if self.head.halted.is_some() {
            return Ok(Progress::Settled);
        }
        if self.dequeue_marked()? == Progress::Reordered {
            return Ok(Progress::Reordered);
        }
        if let Some(position) = self.holding_position() {
            return self.finish_reporting(position);
        }
        for position in 0..self.head.entries.len() {
            if position > 0 && is_dependent(&self.head) {
                return match self.finish_failed_follower() {
                    Ok(Progress::Reordered) => Ok(Progress::Reordered),
                    Ok(Progress::Settled) | Err(Full) => self.dequeue_orphans(),
                };
            }
            self.require_room(DEQUEUE_RECORDS + self.enqueue_records())?;
            // An entry that does not fit waits for the next plan; others may be smaller.
            if self.finish_entry(position) == Ok(Progress::Reordered) {
                return Ok(Progress::Reordered);
            }
        }
        self.dequeue_orphans()
    }

    /// Completes the entry at `position`: reports and removes it with its result, or orders its
    /// landing if it passed and the pipeline merges; refs are never merged. Returns
    /// [`Progress::Settled`] if it stays as it is, waits for results, or is being merged. An entry
    /// without jobs or with invalid configuration also stays while a pending layout may give it
    /// other jobs. An entry that is being merged, or runs its reporter jobs, is followed instead.
    /// The caller has reserved room for one change.
    fn finish_entry(&mut self, position: usize) -> Result<Progress, Full> {
        let members = &self.head.entries[position].members;
        if members[0].status == SlotStatus::Reporting {
            return self.finish_reporting(position);
        }
        if members[0].status.is_landing() {
            return self.follow_landing(position);
        }
        let in_bundle = members.len() > 1;
        let known = |slot: &Slot| {
            let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
            item.filter(|item| self.has_current_layout(item))
        };
        let items: Vec<Option<&Item>> = members.iter().map(known).collect();
        let untestable = items.iter().flatten().find_map(|item| match &item.merge_status {
            MergeStatus::Unmergeable { why, configuration, .. } => {
                Some((item.id.clone(), why.clone(), *configuration))
            }
            _ => None,
        });
        let failing =
            members.iter().zip(&items).filter(|(_, item)| item.is_some_and(Item::is_failing));
        let bundle_failed = bundle_failed_reason(failing.map(|(slot, _)| &slot.change.key));
        let may_get_other_jobs = self.awaits_configuration();
        if let Some((id, why, configuration)) = untestable {
            if configuration && may_get_other_jobs {
                return Ok(Progress::Settled);
            }
            let (result, occasion) = match configuration {
                true => ("CONFIG_ERROR", Occasion::ConfigError),
                false => ("MERGE_CONFLICT", Occasion::MergeConflict),
            };
            return self.dequeue_entry(position, result, |slot| {
                if slot.id == id {
                    Departure::new(result, &why, occasion)
                } else {
                    Departure::new("FAILURE", &bundle_failed, Occasion::BundleFailed)
                }
            });
        }
        if !items.iter().all(|item| item.is_some_and(Item::is_complete)) {
            return Ok(Progress::Settled);
        }
        let has_jobs = items.iter().flatten().any(|item| item.reported_jobs().next().is_some());
        if !has_jobs && may_get_other_jobs {
            return Ok(Progress::Settled);
        }
        if !has_jobs {
            return self.dequeue_entry(position, "NO_JOBS", |_| {
                Departure::new("NO_JOBS", "no job is to be run", Occasion::NoJobs)
            });
        }
        if members.iter().any(|slot| slot.status == SlotStatus::Failing) {
            let failed_jobs = failed_jobs_reason(items.iter().flatten().copied());
            let progress = self.dequeue_entry(position, "FAILURE", |_| match in_bundle {
                true => Departure::new("FAILURE", &bundle_failed, Occasion::BundleFailed),
                false => Departure::new("FAILURE", &failed_jobs, Occasion::Failure),
            })?;
            if in_bundle {
                self.count_outcome(Occasion::Failure); // Counted once; the occasion of the members does not count.
            }
            return Ok(progress);
        }
        if self.lands() && members.iter().all(|slot| slot.change.key.number().is_some()) {
            self.order_landing(position);
            return Ok(Progress::Settled);
        }
        let records = DEQUEUE_RECORDS * members.len() + self.enqueue_records();
        self.require_room(records)?;
        self.succeed(position, "every voting job passed");
        Ok(Progress::Reordered)
    }

    /// Returns whether a successful change is merged in this pipeline. `false` if the live layout
    /// has no such pipeline, or if the pipeline is disabled after too many failures.
    pub(super) fn lands(&self) -> bool {
        // A success reporter merges, and a disabled pipeline has no success reporters.
        let is_disabled = self.health.as_ref().is_some_and(|health| health.disabled);
        self.snapshot.pipeline.filter(|_| !is_disabled).is_some_and(lands_in)
    }

    /// Returns whether a change that is to be merged may get other jobs from the pending layout.
    /// For example: the configuration change that it depends on has just been merged, is no longer
    /// part of its tested state, and is not live yet.
    pub(super) fn awaits_configuration(&self) -> bool {
        self.awaits_layout() && self.lands()
    }

    /// Dequeues the first entry that depends on a change which left without being merged (D08,
    /// D09), stops its builds and reports it as failed. Returns [`Progress::Settled`] if there is
    /// none, and in other than dependent queues. This is derived from the queue itself, so the next
    /// plan finds what does not fit into this one.
    fn dequeue_orphans(&mut self) -> Result<Progress, Full> {
        if !is_dependent(&self.head) {
            return Ok(Progress::Settled);
        }
        let is_orphan = |position: &usize| {
            let mut members = self.head.entries[*position].members.iter();
            members.any(|slot| !slot.status.is_decided() && self.is_orphan(*position, slot))
        };
        let Some(position) = (0..self.head.entries.len()).find(is_orphan) else {
            return Ok(Progress::Settled);
        };
        self.stop_entry(position, |_| "a change it depends on failed to merge".to_owned())?;
        self.dequeue_entry(position, "FAILURE", |_| {
            Departure::new("FAILURE", DEPENDENCY_FAILED, Occasion::DependencyFailed)
        })
    }

    /// Returns whether a dependency of a member of the entry at `position` is, in the needed
    /// revision, neither ahead of it nor in its entry nor merged. `false` if the member has no
    /// record.
    pub(super) fn is_orphan(&self, position: usize, slot: &Slot) -> bool {
        let Some(item) = self.items.get(&slot.id) else {
            return false;
        };
        // Members of its bundle count as ahead. Search backwards: a dependency is usually near.
        let ahead = &self.head.entries[..=position];
        item.candidate.needs.iter().any(|need| {
            let mut ahead = ahead.iter().rev().flat_map(|entry| &entry.members);
            !ahead.any(|slot| slot.change == need.change) && !self.head.has_landed(&need.change)
        })
    }

    /// Dequeues an item with its entry, stops the builds and reports it for `occasion`, with the
    /// result `DEQUEUED`; with [`Occasion::Superseded`] the item gets no report. The other members
    /// of its bundle leave with it and are reported too. An item whose start was not reported gets
    /// no dequeue report. Does nothing if the item is not queued; whether it is being merged is not
    /// checked. Where it does not fit into the transaction, it stays queued, but some builds may be
    /// stopped.
    pub(super) fn dequeue(
        &mut self,
        id: &ItemId,
        why: &str,
        occasion: Occasion,
    ) -> Result<(), Full> {
        let Some(position) = self.position(id) else { return Ok(()) };
        let change = self.head.entries[position].members.iter().find(|slot| slot.id == *id);
        let Some(key) = change.map(|slot| slot.change.key.clone()) else { return Ok(()) };
        let others_why = format!("{key} of its dependency cycle left: {why}");
        // The other members are enqueued again together with the one that was replaced. Their
        // authors get a dequeue report.
        let others_occasion =
            if occasion == Occasion::Superseded { Occasion::Dequeue } else { occasion };
        self.dequeue_entry(position, "DEQUEUED", |slot| {
            if slot.id == *id {
                Departure::new("DEQUEUED", why, occasion)
            } else {
                Departure::new("DEQUEUED", &others_why, others_occasion)
            }
        })?;
        Ok(())
    }

    /// Dequeues the entry at `position` in one plan, stops its builds and reports each member as
    /// `how` says; dequeue reports only on members whose start was reported. Counts the entry once
    /// for the window, with `result`, unless its success was counted before. Always returns
    /// [`Progress::Reordered`]. Where it does not fit into the transaction, the entry stays, but
    /// some of its builds may be stopped.
    pub(super) fn dequeue_entry(
        &mut self,
        position: usize,
        result: &str,
        how: impl Fn(&Slot) -> Departure,
    ) -> Result<Progress, Full> {
        let members = self.head.entries[position].members.len();
        self.stop_entry(position, |slot| how(slot).why)?;
        // Reserve room for enqueueing a member again in the same transaction.
        self.require_room(DEQUEUE_RECORDS * members + self.enqueue_records())?;
        if self.head.entries[position].first().status != SlotStatus::Reporting {
            self.resize_window(result);
        }
        self.remove_entry(position, how);
        Ok(Progress::Reordered)
    }

    /// Stops all builds of the entry at `position`, each member's for the reason that `why`
    /// returns. Where not all fit into the transaction, the next plan stops the rest.
    fn stop_entry(&mut self, position: usize, why: impl Fn(&Slot) -> String) -> Result<(), Full> {
        let members = self.head.entries[position].members.clone();
        members.iter().try_for_each(|slot| self.stop_builds(&slot.id, &why(slot)))
    }

    /// Removes the entry at `position`, reports and counts the results of its members as `how`
    /// says, and stores their buildsets. The window stays. As in Zuul, a member whose start was not
    /// reported gets no dequeue report. The caller has stopped the builds, which are not stopped
    /// here, and has reserved room.
    pub(super) fn remove_entry(&mut self, position: usize, how: impl Fn(&Slot) -> Departure) {
        for slot in self.head.entries.remove(position).members {
            let departure = how(&slot);
            self.remove_item(slot, departure);
        }
    }

    /// Has the plan delete the record of an item whose entry was removed, with its waiting jobs
    /// ended as skipped, store its buildset and report the result; ends its hosting and counts the
    /// result. An item that had succeeded before keeps that result and is neither reported nor
    /// counted again. As in Zuul, an item whose start was not reported gets no dequeue report. The
    /// caller has stopped its builds. Does no more than end the hosting if the item has no record.
    fn remove_item(&mut self, slot: Slot, Departure { result, why, occasion }: Departure) {
        self.end_residency(&slot.change.key);
        // The result was reported, counted and applied to the window when it succeeded; the end of
        // its reporter jobs does not change that.
        let has_succeeded = slot.status == SlotStatus::Reporting;
        let result = if has_succeeded { "SUCCESS" } else { result };
        let Some(mut item) = self.items.remove(&slot.id) else {
            return;
        };
        self.changed_items.remove(&slot.id);
        if let Some(why) = self.retest_reasons.remove(&slot.id) {
            item.add_reason(self.now, why);
        }
        self.skip_unstarted_jobs(&mut item);
        item.add_reason(self.now, format!("left {}: {result}: {why}", self.head.key.pipeline));
        self.ledger.explain(format!("{} leaves {}: {result}: {why}", slot.change, self.head.key));
        // Like Zuul, sends no dequeue report if no start report was sent.
        let is_silent = has_succeeded || (occasion == Occasion::Dequeue && !item.start_reported);
        let report = self.report_item(&item, occasion, &why).filter(|_| !is_silent);
        self.ledger.report(report);
        if !has_succeeded {
            self.count_outcome(occasion);
        }
        let removed = RemovedItem { item, result, why: cut(&why, REASON_BYTES_MAX) };
        self.ledger.push(QueueAction::RemoveItem(Box::new(removed)));
    }

    /// Counts an item's result for the pipeline's consecutive failures; only a success and a job's
    /// failure count ([`crate::Health`]). Does nothing in a pipeline without
    /// `disable-after-consecutive-failures`.
    pub(super) fn count_outcome(&mut self, occasion: Occasion) {
        let most =
            self.snapshot.pipeline.and_then(|pipeline| pipeline.disable_after_consecutive_failures);
        if let (Some(health), Some(most)) = (&mut self.health, most) {
            health.count(occasion, most);
        }
    }

    /// Resizes the window by a result in Zuul's words, as Zuul does: SUCCESS grows it; FAILURE,
    /// MERGE_CONFLICT, CONFIG_ERROR and NO_JOBS shrink it; any other leaves it unchanged. Does
    /// nothing if the pipeline's window is unlimited or the live layout has no such pipeline.
    /// Called once for an entry, not for each member.
    pub(super) fn resize_window(&mut self, result: &str) {
        let Some(pipeline) = self.snapshot.pipeline.filter(|pipeline| pipeline.window.is_limited())
        else {
            return;
        };
        self.head.window = match result {
            "SUCCESS" => pipeline.window.after_success(self.head.window),
            "FAILURE" | "MERGE_CONFLICT" | "CONFIG_ERROR" | "NO_JOBS" => {
                pipeline.window.after_failure(self.head.window)
            }
            _ => self.head.window,
        };
    }

    /// Ends the waiting jobs of an item as skipped.
    fn skip_unstarted_jobs(&self, item: &mut Item) {
        for job in item.jobs.iter_mut().filter(|job| job.status == JobStatus::Waiting) {
            skip_job(job, None, self.now);
        }
    }
}

/// Names the jobs that make an entry fail, with results other than `FAILURE`: one with the first
/// line of its explanation, of several the first [`FAILED_JOBS_MAX`]. Without any, says only that a
/// job failed.
fn failed_jobs_reason<'i>(items: impl Iterator<Item = &'i Item>) -> String {
    let failed: Vec<&Job> =
        items.flat_map(|item| &item.jobs).filter(|job| job.fails_item()).collect();
    let named = |job: &Job| match job.result().filter(|result| *result != BuildResult::Failure) {
        Some(result) => format!("{} ({result})", job.summary.name),
        None => job.summary.name.to_string(),
    };
    match failed.as_slice() {
        [] => "a job failed".to_owned(),
        [job] => {
            let detail = match &job.status {
                JobStatus::Ended { detail, .. } => detail.as_deref(),
                _ => None,
            };
            let summary = detail.and_then(|detail| detail.lines().next());
            let why = summary.map(|summary| format!(": {summary}")).unwrap_or_default();
            format!("job {} failed{why}", named(job))
        }
        jobs => {
            let mut names: Vec<String> =
                jobs.iter().take(FAILED_JOBS_MAX).map(|job| named(job)).collect();
            if jobs.len() > FAILED_JOBS_MAX {
                names.push(format!("{} more", jobs.len() - FAILED_JOBS_MAX));
            }
            format!("{} jobs failed: {}", jobs.len(), names.join(", "))
        }
    }
}

/// Formats the report text of a failed bundle. It names the members in `failing`, if there are any.
fn bundle_failed_reason<'k>(failing: impl Iterator<Item = &'k ChangeKey>) -> String {
    let named: Vec<String> = failing.map(ToString::to_string).collect();
    if named.is_empty() {
        BUNDLE_FAILED.to_owned()
    } else {
        format!("{BUNDLE_FAILED} Failed changes: {}.", named.join(", "))
    }
}
