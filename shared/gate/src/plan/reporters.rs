//! Jobs that run after an item's reports (`type: reporter`): the item has succeeded, stays first in
//! its queue until they are over, and keeps the rest of the queue waiting meanwhile. What they come
//! to decides nothing about the item.

use super::admit::LEAVING_RECORDS;
use super::{Removed, Work};
use crate::item::{Item, Job, REASON_BYTES_MAX, Reporting, cut};
use crate::queue::{Slot, Standing};
use crate::report::{Action, Occasion, Report, ReportState};
use sluice_config::pipeline::Manager;
use sluice_model::ItemId;
use sluice_model::build::BuildResult;
use std::ops::Range;

/// Seconds after which a report that could not be made counts as one that met an error: a forge
/// that does not answer is not to keep a queue for ever.
const REPORT_SECONDS: u64 = 600;

/// Records that it writes when a change stays for its last jobs: fewer than when it leaves, for
/// which whoever asks has seen that there is room.
const STAYING_RECORDS: usize = 4;

/// What becomes of an item's jobs that wait for its report.
enum Told {
    /// They may run.
    Well,
    /// They wait on.
    NotYet,
    /// They are not run, for this reason.
    Badly(String),
}

impl Work<'_> {
    /// Returns whether something of the queue has succeeded and runs its last jobs: nothing else is
    /// asked for, ordered or landed.
    pub(super) fn is_held(&self) -> bool {
        self.held_by().is_some()
    }

    /// Returns the position of what keeps the rest of the queue waiting while its last jobs run,
    /// the first where several do. In an independent pipeline nothing does: the revisions of a
    /// change go on beside each other.
    pub(super) fn held_by(&self) -> Option<usize> {
        let is_reporting = |slot: &Slot| slot.standing == Standing::Reporting;
        let position = self.head.slots.iter().position(is_reporting);
        position.filter(|_| self.head.manager != Manager::Independent)
    }

    /// Returns whether it is known that an item is in its branch.
    pub(super) fn has_landed(&self, id: &ItemId) -> bool {
        self.items.get(id).is_some_and(|item| item.landed.is_some())
    }

    /// Returns whether an item is in its branch as the very commit that was tested. A push brought
    /// that, so that of its change its forge takes no other revision for merged; what the forge
    /// merges itself is a commit of the forge's.
    pub(super) fn is_pushed(&self, id: &ItemId) -> bool {
        let Some(item) = self.items.get(id) else { return false };
        let tested = item.merged().filter(|merged| merged.kept).map(|merged| &merged.tested.id);
        item.landed.is_some() && item.landed.as_ref() == tested
    }

    /// Has what succeeded leave with its report; or has it told, and stay, where jobs of it run
    /// after that. A bundle goes together. Returns whether the order of the queue changed.
    pub(super) fn succeed(&mut self, bundle: Range<usize>, why: &str) -> bool {
        let slots = self.head.slots[bundle.clone()].to_vec();
        let stays = |slot: &Slot| self.items.get(&slot.id).is_some_and(Item::has_reporters_left);
        if !slots.iter().any(stays) {
            return match slots.len() {
                1 => self.remove(bundle.start, "SUCCESS", why, Occasion::Success),
                _ => self.leave_together(bundle, "SUCCESS", why, Occasion::Success),
            };
        }
        if !self.has_room(STAYING_RECORDS * slots.len()) {
            return false;
        }
        for Slot { id, change, .. } in &slots {
            let Some(item) = self.items.get(id).cloned() else { continue };
            let report = self.report_item(&item, Occasion::Success, why);
            // Whom no forge shows to be told, by mail or MQTT, is waited for by nobody.
            let tells_forge = |report: &&Report| !report.actions.iter().all(Action::is_message);
            let awaits = report.as_ref().filter(tells_forge).map(|report| report.id.clone());
            let awaited = awaits.is_some();
            self.plan.reports.extend(report.map(|report| Report { awaited, ..report }));
            let since = self.now;
            if let Some(item) = self.item(id) {
                item.reporting = Some(Reporting { since, awaits });
            }
            self.note(
                id,
                format!("it succeeded: {why}; its jobs that run after the report follow"),
            );
            self.plan.reasons.push(format!(
                "{change} succeeded in {}, and stays for its last jobs",
                self.head.key
            ));
            self.count(Occasion::Success);
            if let Some(item) = self.items.get(id).cloned() {
                // Whoever looks it up finds how it ended, as the report says; what its last jobs
                // come to is added when it leaves.
                self.plan.reported.push(Removed {
                    item,
                    result: "SUCCESS",
                    why: cut(why, REASON_BYTES_MAX),
                });
            }
        }
        for slot in &mut self.head.slots[bundle] {
            slot.standing = Standing::Reporting;
            slot.ahead = None;
        }
        self.move_window("SUCCESS");
        true
    }

    /// Takes in that reports were made, and has what succeeded leave when its last jobs are over.
    /// Returns whether the order of the queue changed.
    pub(super) fn finish_reporting(&mut self, bundle: Range<usize>) -> bool {
        let slots = self.head.slots[bundle.clone()].to_vec();
        for slot in &slots {
            if !self.has_room(1) {
                return false;
            }
            self.hear_report(&slot.id);
        }
        let is_left =
            slots.iter().any(|slot| self.items.get(&slot.id).is_some_and(Item::has_reporters_left));
        if is_left || !self.has_room(LEAVING_RECORDS * slots.len() + self.entry_records()) {
            return false;
        }
        let failed =
            slots.iter().filter_map(|slot| self.items.get(&slot.id)).find_map(failed_reporter);
        for _ in &slots {
            self.remove(
                bundle.start,
                "SUCCESS",
                "the jobs after its report are over",
                Occasion::Success,
            );
        }
        if let Some(why) = failed.filter(|_| self.head.manager != Manager::Independent) {
            self.begin_again_from(bundle.start, &why);
        }
        true
    }

    fn hear_report(&mut self, id: &ItemId) {
        let told = match self.items.get(id).and_then(|item| item.reporting.as_ref()) {
            Some(reporting) if reporting.awaits.is_some() => self.told(id, reporting),
            _ => return,
        };
        let now = self.now;
        let (why, is_skipped) = match told {
            Told::NotYet => return,
            Told::Well => ("its report was made: its last jobs may run".to_owned(), false),
            Told::Badly(why) => (why, true),
        };
        let Some(item) = self.item(id) else { return };
        if let Some(reporting) = &mut item.reporting {
            reporting.awaits = None;
        }
        let is_left_out = |job: &&mut Job| job.summary.reporter && job.result().is_none();
        for job in item.jobs.iter_mut().filter(is_left_out).filter(|_| is_skipped) {
            job.status = super::graph::ended(BuildResult::Skipped, Some(why.clone()), now);
        }
        self.note(id, why);
    }

    fn told(&self, id: &ItemId, reporting: &Reporting) -> Told {
        match self.snapshot.reports.get(id) {
            Some(ReportState::Made { .. } | ReportState::Dropped { .. }) => Told::Well,
            Some(ReportState::Refused { why, .. }) => Told::Badly(format!(
                "Skipped since the report was refused: {}",
                cut(why, REASON_BYTES_MAX / 2)
            )),
            None | Some(ReportState::Wanted)
                if self.now.since(reporting.since) >= REPORT_SECONDS * 1_000 =>
            {
                Told::Badly(format!(
                    "Skipped since the report could not be made for {REPORT_SECONDS} seconds"
                ))
            }
            None | Some(ReportState::Wanted) => Told::NotYet,
        }
    }

    /// Has everything from a position on tested anew on what the repositories are now. Where
    /// nothing was asked yet there is nothing to throw away.
    fn begin_again_from(&mut self, position: usize, why: &str) {
        for at in position..self.head.slots.len() {
            let slot = &self.head.slots[at];
            let is_asked = |item: &Item| item.generation == slot.generation && item.was_asked();
            if !self.items.get(&slot.id).is_some_and(is_asked) {
                continue;
            }
            let id = slot.id.clone();
            self.head.slots[at].generation += 1;
            self.head.slots[at].standing = Standing::Waiting;
            self.note(&id, format!("tested again: {why}"));
        }
    }
}

/// Returns why what is behind an item begins again, where a job after its reports failed.
fn failed_reporter(item: &Item) -> Option<String> {
    let job = item
        .jobs
        .iter()
        .find(|job| job.summary.reporter && job.summary.voting && job.has_failed())?;
    Some(format!(
        "the job {} of {} ahead, which ran after its report, failed",
        job.summary.name, item.candidate.change
    ))
}

/// Returns whether a job's turn has come, by whether its item's success was told: what runs after
/// that, or what decides about it.
pub(super) fn has_its_turn(item: &Item, at: usize) -> bool {
    let may_report = item.reporting.as_ref().is_some_and(|reporting| reporting.awaits.is_none());
    match item.jobs[at].summary.reporter {
        true => may_report,
        false => item.reporting.is_none(),
    }
}
