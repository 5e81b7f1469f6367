//! Reporter jobs (`type: reporter`), which run after an item's reports. The item has succeeded,
//! stays first in its queue until they are over, and holds up the rest of the queue. Their results
//! do not change the item's result.

use super::finish::{DEQUEUE_RECORDS, Departure, Progress};
use super::ledger::Full;
use super::{Planner, QueueAction, RemovedItem};
use crate::item::{Item, Job, REASON_BYTES_MAX, Reporting, cut};
use crate::queue::{Slot, SlotStatus};
use crate::report::{Occasion, Report, ReportAction, ReportState};
use sluice_config::pipeline::Manager;
use sluice_model::ItemId;
use sluice_model::build::BuildResult;

/// Seconds after which an undelivered report counts as failed, so that a forge that does not answer
/// does not hold up a queue forever.
const REPORT_SECONDS: u64 = 600;

/// The progress of the report that an item's reporter jobs wait for.
enum ReportProgress {
    /// It is delivered; the jobs may run.
    Done,
    /// It is not delivered yet; the jobs wait.
    Pending,
    /// It failed for this reason; the jobs are skipped.
    Failed(String),
}

impl Planner<'_> {
    /// Returns whether an entry holds up the queue while its reporter jobs run. Then nothing else
    /// is started or merged. Always `false` in independent pipelines.
    pub(super) fn is_held(&self) -> bool {
        self.holding_position().is_some()
    }

    /// Returns the position of the first entry that holds up the queue while its reporter jobs run.
    /// Always `None` in independent pipelines, where the revisions of a change do not depend on
    /// each other.
    pub(super) fn holding_position(&self) -> Option<usize> {
        let is_reporting = |slot: &Slot| slot.status == SlotStatus::Reporting;
        let position =
            self.head.entries.iter().position(|entry| entry.members.iter().any(is_reporting));
        position.filter(|_| self.head.manager != Manager::Independent)
    }

    /// Returns whether an item is queued and its record names the commit that it was merged as.
    pub(super) fn has_landed(&self, id: &ItemId) -> bool {
        self.items.get(id).is_some_and(|item| item.landed.is_some())
    }

    /// Reports the success of the entry at `position`, counts it and grows the window. Removes the
    /// entry, or keeps it as reporting while a member's reporter jobs are left, with its buildset
    /// stored already. These jobs wait for the report if it goes to a forge. `why` is the reason
    /// that users see. The caller has reserved room for removing it.
    pub(super) fn succeed(&mut self, position: usize, why: &str) {
        let slots = self.head.entries[position].members.clone();
        self.resize_window("SUCCESS");
        let stays = |slot: &Slot| self.items.get(&slot.id).is_some_and(Item::has_reporters_left);
        if !slots.iter().any(stays) {
            self.remove_entry(position, |_| Departure::new("SUCCESS", why, Occasion::Success));
            return;
        }
        for Slot { id, change, .. } in &slots {
            let Some(item) = self.items.get(id).cloned() else { continue };
            let report = self.report_item(&item, Occasion::Success, why);
            // Reporter jobs wait only for reports to a forge, not for mail or MQTT.
            let is_for_forge =
                |report: &&Report| !report.actions.iter().all(ReportAction::is_message);
            let awaits = report.as_ref().filter(is_for_forge).map(|report| report.id.clone());
            let awaited = awaits.is_some();
            self.ledger.report(report.map(|report| Report { awaited, ..report }));
            let since = self.now;
            if let Some(item) = self.item_mut(id) {
                item.reporting = Some(Reporting { since, awaits });
            }
            self.note(id, format!("it succeeded: {why}; its reporter jobs follow"));
            self.ledger.explain(format!(
                "{change} succeeded in {}, and stays for its reporter jobs",
                self.head.key
            ));
            self.count_outcome(Occasion::Success);
            if let Some(item) = self.items.get(id).cloned() {
                // Its buildset shows the reported result at once. The results of its reporter jobs
                // are added when it leaves.
                let why = cut(why, REASON_BYTES_MAX);
                let succeeded = RemovedItem { item, result: "SUCCESS", why };
                self.ledger.push(QueueAction::StoreBuildset(Box::new(succeeded)));
            }
        }
        let entry = &mut self.head.entries[position];
        entry.ahead = None;
        for slot in &mut entry.members {
            slot.status = SlotStatus::Reporting;
        }
    }

    /// Applies the state of its reports to an entry that succeeded, and removes it once its
    /// reporter jobs are over. If a voting one failed, has the entries behind tested again, except
    /// in independent pipelines. Returns [`Progress::Settled`] while jobs are left, otherwise
    /// [`Progress::Reordered`].
    pub(super) fn finish_reporting(&mut self, position: usize) -> Result<Progress, Full> {
        let slots = self.head.entries[position].members.clone();
        for slot in &slots {
            self.require_room(1)?;
            self.apply_report_state(&slot.id);
        }
        let is_left =
            slots.iter().any(|slot| self.items.get(&slot.id).is_some_and(Item::has_reporters_left));
        if is_left {
            return Ok(Progress::Settled);
        }
        self.require_room(DEQUEUE_RECORDS * slots.len() + self.enqueue_records())?;
        let failed =
            slots.iter().filter_map(|slot| self.items.get(&slot.id)).find_map(reporter_failure);
        self.remove_entry(position, |_| {
            Departure::new("SUCCESS", "its reporter jobs are over", Occasion::Success)
        });
        if let Some(why) = failed.filter(|_| self.head.manager != Manager::Independent) {
            self.retest_from(position, &why);
        }
        Ok(Progress::Reordered)
    }

    /// Lets the reporter jobs of an item run once its report is delivered, or skips them once it
    /// failed, and notes that. Does nothing while the report is pending, or if none is awaited. The
    /// caller has reserved room for the item.
    fn apply_report_state(&mut self, id: &ItemId) {
        let progress = match self.items.get(id).and_then(|item| item.reporting.as_ref()) {
            Some(reporting) if reporting.awaits.is_some() => self.report_progress(id, reporting),
            _ => return,
        };
        let now = self.now;
        let (why, is_skipped) = match progress {
            ReportProgress::Pending => return,
            ReportProgress::Done => {
                ("its report was delivered: its reporter jobs may run".to_owned(), false)
            }
            ReportProgress::Failed(why) => (why, true),
        };
        let Some(item) = self.item_mut(id) else { return };
        if let Some(reporting) = &mut item.reporting {
            reporting.awaits = None;
        }
        let is_left_out = |job: &&mut Job| job.summary.reporter && job.result().is_none();
        for job in item.jobs.iter_mut().filter(is_left_out).filter(|_| is_skipped) {
            job.status = super::job_graph::ended(BuildResult::Skipped, Some(why.clone()), now);
        }
        self.note(id, why);
    }

    /// Returns the progress of the report that the reporter jobs of an item wait for. A dropped
    /// report counts as done. A refused one counts as failed, and so does one that is pending or
    /// unknown [`REPORT_SECONDS`] after the item's success.
    fn report_progress(&self, id: &ItemId, reporting: &Reporting) -> ReportProgress {
        match self.snapshot.reports.get(id) {
            Some(ReportState::Made { .. } | ReportState::Dropped { .. }) => ReportProgress::Done,
            Some(ReportState::Refused { why, .. }) => ReportProgress::Failed(format!(
                "Skipped because the report was rejected: {}",
                cut(why, REASON_BYTES_MAX / 2)
            )),
            None | Some(ReportState::Pending)
                if self.now.since(reporting.since) >= REPORT_SECONDS * 1_000 =>
            {
                ReportProgress::Failed(format!(
                    "Skipped because the report could not be delivered for {REPORT_SECONDS} seconds"
                ))
            }
            None | Some(ReportState::Pending) => ReportProgress::Pending,
        }
    }

    /// Starts a new generation of all items from the entry at `position` on, so that they are
    /// tested against the current state of the repositories, and notes `why`. Items that have not
    /// started are unchanged.
    fn retest_from(&mut self, position: usize, why: &str) {
        let mut retested = Vec::new();
        for slot in self.head.entries[position..].iter_mut().flat_map(|entry| &mut entry.members) {
            let is_asked = |item: &Item| item.generation == slot.generation && item.has_started();
            if self.items.get(&slot.id).is_some_and(is_asked) {
                slot.generation += 1;
                slot.status = SlotStatus::Waiting;
                retested.push(slot.id.clone());
            }
        }
        for id in retested {
            self.note(&id, format!("testing again: {why}"));
        }
    }
}

/// Returns the reason to retest the entries behind an item, which names its first voting reporter
/// job that failed; `None` if none did.
fn reporter_failure(item: &Item) -> Option<String> {
    let job = item
        .jobs
        .iter()
        .find(|job| job.summary.reporter && job.summary.voting && job.has_failed())?;
    Some(format!("the reporter job {} of {} failed", job.summary.name, item.candidate.change))
}

/// Returns whether a job belongs to the item's current phase. Reporter jobs run after the item's
/// success, once no report is awaited any more; all others before its success.
pub(super) fn is_in_phase(item: &Item, at: usize) -> bool {
    let may_report = item.reporting.as_ref().is_some_and(|reporting| reporting.awaits.is_none());
    match item.jobs[at].summary.reporter {
        true => may_report,
        false => item.reporting.is_none(),
    }
}
