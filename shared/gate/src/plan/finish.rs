//! Completes entries: orders and follows landings, reports results and removes what is done.
//!
//! Most methods here return whether the order of the queue changed, so that it must be aligned
//! again.

use super::admit::DEQUEUE_RECORDS;
use super::align::ahead_of;
use super::{Planner, RECORDS_MAX, RemovedItem, is_dependent};
use crate::branch_lock::branch_of;
use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::item::{Item, MergeStatus, REASON_BYTES_MAX, cut};
use crate::landing::{
    FollowingLanding, LANDING_RUN_MAX, Landing, LandingEnd, LandingState, LaterMember,
    MERGED_ELSEWHERE, MergeRequirements, lands_in,
};
use crate::queue::{LANDED_MAX, Slot, SlotStatus};
use crate::report::Occasion;
use sluice_model::ItemId;
use sluice_model::build::BuildResult;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::{Commit, LandingMethod};

/// Bytes of a forge's error text that the head of a halted queue holds.
const UNVERIFIED_BYTES_MAX: usize = 250;

/// The report text of a change whose dependency was dequeued without being merged.
const DEPENDENCY_FAILED: &str = "This change depends on a change that failed to merge.";

/// Which revisions of a merged change count as merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MergedRevisions {
    /// Only the pushed head: other revisions of the change are still open at the forge.
    PushedHead,
    /// All: the forge merged the change itself.
    All,
}

impl Planner<'_> {
    /// Completes the first entry that can be completed. Returns whether the order of the queue
    /// changed, so that it must be aligned again.
    pub(super) fn finish(&mut self) -> bool {
        if self.head.halted.is_some() {
            return false;
        }
        if let Some(has_left) = self.dequeue_marked() {
            return has_left;
        }
        if let Some(position) = self.holding_position() {
            return self.finish_reporting(self.head.bundle(position));
        }
        for position in 0..self.head.slots.len() {
            if position > 0 && is_dependent(&self.head) {
                return self.finish_failed_follower() || self.dequeue_orphans();
            }
            if !self.has_room(DEQUEUE_RECORDS + self.enqueue_records()) {
                return false;
            }
            if self.finish_entry(position) {
                return true;
            }
        }
        self.dequeue_orphans()
    }

    /// Completes the entry at `position`, if it can be completed. Returns whether the order of the
    /// queue changed.
    fn finish_entry(&mut self, position: usize) -> bool {
        let bundle = self.head.bundle(position);
        if self.head.slots[position].status == SlotStatus::Reporting {
            return self.finish_reporting(bundle);
        }
        if bundle.len() > 1 {
            return self.finish_bundle(bundle);
        }
        let slot = self.head.slots[position].clone();
        if slot.status == SlotStatus::Landing {
            return self.follow_landing(position);
        }
        let Some(item) = self
            .items
            .get(&slot.id)
            .filter(|item| item.generation == slot.generation && item.is_complete())
            .filter(|item| self.has_current_layout(item))
        else {
            return false;
        };
        let may_get_other_jobs = self.awaits_configuration();
        match &item.merge_status {
            MergeStatus::Unmergeable { configuration: true, .. } if may_get_other_jobs => false,
            MergeStatus::Unmergeable { why, configuration: true, .. } => {
                let why = why.clone();
                self.remove_at(position, "CONFIG_ERROR", &why, Occasion::ConfigError)
            }
            MergeStatus::Unmergeable { why, configuration: false, .. } => {
                let why = why.clone();
                self.remove_at(position, "MERGE_CONFLICT", &why, Occasion::MergeConflict)
            }
            _ if item.reported_jobs().next().is_none() && may_get_other_jobs => false,
            _ if item.reported_jobs().next().is_none() => {
                self.remove_at(position, "NO_JOBS", "no job is to be run", Occasion::NoJobs)
            }
            _ if slot.status == SlotStatus::Failing => {
                self.remove_at(position, "FAILURE", "a job failed", Occasion::Failure)
            }
            _ if self.lands() && slot.change.key.number().is_some() => self.order_landing(position),
            _ => self.succeed(position..position + 1, "every voting job passed"),
        }
    }

    /// Returns whether a successful change is merged in this pipeline.
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

    /// Orders the landing of the entry at `position` and of those that can be merged with it.
    /// Returns false: the order of the queue stays.
    fn order_landing(&mut self, position: usize) -> bool {
        if self.awaits_layout() {
            return false; // The layout that it was tested under is about to be replaced.
        }
        if self.is_landing_withheld(&self.head.slots[position]) {
            let (id, change) =
                (self.head.slots[position].id.clone(), self.head.slots[position].change.clone());
            self.note(
                &id,
                format!("every voting job passed; {change} is not merged yet: a pending update dequeues it"),
            );
            return false; // The function that consumes the messages reconciles this queue again.
        }
        if self.landing_order(position, Vec::new()).is_none()
            || !self.acquire_branch_locks(position..position + 1)
        {
            return false; // The queue that releases the branch lock wakes this one.
        }
        let Some(landing) =
            self.landing_order(position, Vec::new()).filter(|landing| landing.fence.is_some())
        else {
            return false;
        };
        let (id, change) = (landing.item.clone(), landing.change.clone());
        self.plan.requests_layout |= landing.changes_configuration;
        let run = self.following_landings(position, &landing);
        let behind = run
            .iter()
            .map(|next| FollowingLanding { item: next.item.clone(), generation: next.generation })
            .collect();
        self.plan.landings.push(Landing { followers: behind, ..landing });
        self.head.slots[position].status = SlotStatus::Landing;
        self.note(&id, format!("every voting job passed: {change} will be merged"));
        for (at, next) in (position + 1..).zip(run) {
            self.head.slots[at].status = SlotStatus::Landing;
            self.note(
                &next.item,
                format!(
                    "every voting job passed: {} will be merged right after {change}",
                    next.change
                ),
            );
            self.plan.landings.push(next);
        }
        false
    }

    /// Returns the landings of entries right behind `first` that one move of the branch can merge
    /// together with it.
    fn following_landings(&self, position: usize, first: &Landing) -> Vec<Landing> {
        let mut run: Vec<Landing> = Vec::new();
        // While reporter jobs run nothing else of the queue moves; an entry that has some lands
        // alone.
        let has_reporters =
            self.items.get(&self.head.slots[position].id).is_some_and(Item::has_reporters_left);
        if !is_dependent(&self.head) || has_reporters {
            return run;
        }
        for at in position + 1..self.head.slots.len() {
            // Two records for each and for the first: the landing and the item.
            let has_room = self.records_used() + 2 * (run.len() + 2) <= RECORDS_MAX;
            if run.len() + 1 == LANDING_RUN_MAX || !has_room || !self.can_follow(at) {
                break;
            }
            let Some(mut next) = self.landing_order(at, Vec::new()) else { break };
            // A dependency inside the run is not merged yet. Normally the branch itself proves that
            // it was merged, since this one was tested on it. If it left the tree unchanged, the
            // forge must confirm it, and that may come late: it stays in `needs`.
            let ahead: Vec<&Landing> = std::iter::once(first).chain(&run).collect();
            let shown =
                ahead.iter().take_while(|before| before.base.tree != next.base.tree).count();
            next.needs.retain(|key| !ahead[shown..].iter().any(|before| before.change.key == *key));
            if !run.last().unwrap_or(first).may_move_with(&next) {
                break;
            }
            run.push(next);
        }
        run
    }

    /// Returns whether the entry at `at` passed on top of the entry before it, is no bundle, and
    /// can be merged together with it.
    fn can_follow(&self, at: usize) -> bool {
        let slot = &self.head.slots[at];
        let is_behind = slot.ahead.as_ref() == Some(&ahead_of(&self.head.slots[at - 1]));
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        slot.status == SlotStatus::Passed
            && is_behind
            && self.head.bundle(at).len() == 1
            && slot.change.key.number().is_some()
            && item.is_some_and(|item| self.has_current_layout(item) && !item.has_reporters_left())
            && !self.is_landing_withheld(slot)
            && !self.is_marked_for_dequeue(slot)
    }

    /// Completes an entry that was ordered to land behind another one and was not merged: it is
    /// tested again or leaves, whatever happens ahead. A merged one waits for the entries ahead,
    /// which must be merged too.
    fn finish_failed_follower(&mut self) -> bool {
        let has_failed = |slot: &Slot| {
            let landing = self
                .snapshot
                .landings
                .get(&slot.id)
                .filter(|found| found.generation == slot.generation);
            let end = landing.and_then(|landing| match &landing.state {
                LandingState::Ended { end, .. } => Some(end),
                LandingState::Ordered | LandingState::Attempting { .. } => None,
            });
            end.is_some_and(LandingEnd::left_branch_unchanged)
        };
        let position = (1..self.head.slots.len()).find(|at| {
            let slot = &self.head.slots[*at];
            slot.status == SlotStatus::Landing
                && self.head.bundle(*at).len() == 1
                && has_failed(slot)
        });
        let Some(position) = position else { return false };
        self.has_room(DEQUEUE_RECORDS + self.enqueue_records()) && self.follow_landing(position)
    }

    /// Returns the landing to order for the entry at `position`, or `None` if it has no tested
    /// state. `together` are the later members of its bundle.
    pub(super) fn landing_order(
        &self,
        position: usize,
        together: Vec<LaterMember>,
    ) -> Option<Landing> {
        let slot = &self.head.slots[position];
        let item = self.items.get(&slot.id)?;
        let merged = item.merged()?;
        let branch = branch_of(&slot.change);
        let mode = (self.snapshot.merge_mode)(&branch);
        // In other pipelines a dependency need not be queued ahead; it counts as merged only if
        // this queue remembers that revision as merged.
        let has_landed =
            |need: &&Candidate| is_dependent(&self.head) || self.head.has_landed(&need.change);
        let landed =
            item.candidate.needs.iter().filter(has_landed).map(|need| need.change.key.clone());
        Some(Landing {
            item: slot.id.clone(),
            generation: slot.generation,
            queue: self.head.key.clone(),
            change: slot.change.clone(),
            needs: landed.collect(),
            mode,
            method: if merged.can_fast_forward && mode.keeps_head() {
                LandingMethod::FastForward
            } else {
                LandingMethod::Merge
            },
            followers: Vec::new(),
            base: merged.base.clone(),
            tested: merged.tested.clone(),
            changes_configuration: merged.touches_configuration,
            later_members: together,
            requirements: self
                .snapshot
                .pipeline
                .map(|pipeline| MergeRequirements::of(pipeline, item.admitted_at)),
            fence: self.fence_of(&branch),
            merge_attempted: item.merge_attempted,
            has_unanswered_push: false,
            in_flight_until: None,
            trouble: None,
            unverifiable_since: None,
            ordered_at: self.now,
            state: LandingState::Ordered,
        })
    }

    /// Completes the entry at `position` by the end of its landing. Returns whether the order of
    /// the queue changed.
    fn follow_landing(&mut self, position: usize) -> bool {
        let slot = self.head.slots[position].clone();
        let Some(landing) = self
            .snapshot
            .landings
            .get(&slot.id)
            .filter(|landing| landing.generation == slot.generation)
        else {
            return false;
        };
        let LandingState::Ended { end, .. } = landing.state.clone() else {
            return false;
        };
        let touched = self
            .items
            .get(&slot.id)
            .and_then(|item| item.merged())
            .is_some_and(|merged| merged.touches_configuration);
        self.plan.wake_tenant |= touched;
        let has_landed = |key: &ChangeKey| self.head.landed.contains(key);
        let is_below = !is_dependent(&self.head) && landing.needs.iter().all(has_landed);
        let tried = landing.merge_attempted;
        match end {
            LandingEnd::Landed { commit } => {
                self.note(
                    &slot.id,
                    format!(
                        "merged as {} with the tested tree {}",
                        commit.id.short(),
                        commit.tree.short()
                    ),
                );
                if let Some(item) = self.item_mut(&slot.id) {
                    item.landed = Some(commit.id.clone());
                }
                let revisions = self.merged_revisions(&slot.id);
                self.remember_landed(&slot.change, revisions);
                self.emit_event(ZuulEvent::ProjectChangeMerged, &slot.id, &slot.change);
                for behind in &mut self.head.slots {
                    // The entries behind were tested on exactly the branch's new state, so their
                    // results stay valid.
                    if behind.ahead.as_ref().is_some_and(|ahead| ahead.item == slot.id) {
                        behind.ahead = None;
                    }
                }
                self.succeed(position..position + 1, "merged")
            }
            LandingEnd::BaseMoved { tip } => {
                // An entry that is still behind another one was tested on that, which was not
                // merged: nothing overtook it.
                let is_overtaken = tip.tree != landing.base.tree && slot.ahead.is_none();
                self.note(
                    &slot.id,
                    format!(
                        "{} is at {}, not at the tested commit: testing again",
                        slot.change.branch,
                        tip.id.short()
                    ),
                );
                self.head.slots[position].generation += 1;
                self.head.slots[position].status = SlotStatus::Waiting;
                self.note_tried(&slot.id, tried);
                if is_overtaken {
                    self.note_overtaken(position..position + 1);
                }
                if is_below && let Some(item) = self.item_mut(&slot.id) {
                    // The reporter saw that all its dependencies are merged: it is tested on its
                    // branch alone.
                    item.candidate.needs.clear();
                }
                true
            }
            LandingEnd::MergedElsewhere { .. } => {
                self.remember_landed(&slot.change, MergedRevisions::All);
                self.remove_at(position, "DEQUEUED", MERGED_ELSEWHERE, Occasion::Dequeue)
            }
            LandingEnd::Refused { why } => {
                let has_left =
                    self.remove_at(position, "MERGE_FAILURE", &why, Occasion::MergeFailure);
                self.remember_merged(std::slice::from_ref(&slot.change));
                has_left
            }
            LandingEnd::Mismatch { landed } => {
                let why = mismatch_reason(landing, &landed);
                self.halt(&slot, why)
            }
            LandingEnd::Unproven { why } => {
                let why = unverified_reason(landing, &why);
                self.halt(&slot, why)
            }
        }
    }

    /// Remembers a merged change, with the pushed head if it was merged by a push. Beyond the
    /// limit, forgets the oldest that no queued item depends on.
    pub(super) fn remember_landed(&mut self, change: &ChangeRef, revisions: MergedRevisions) {
        let pushed_head = match revisions {
            MergedRevisions::PushedHead => Some(&change.head),
            MergedRevisions::All => None,
        };
        self.head.record_landed(&change.key, pushed_head);
        let needed = |key: &ChangeKey| {
            (self.items.values())
                .any(|item| item.candidate.needs.iter().any(|need| need.change.key == *key))
        };
        if self.head.landed.len() > LANDED_MAX
            && let Some(at) = self.head.landed.iter().position(|key| !needed(key))
        {
            self.head.forget_landed(at);
        }
    }

    /// Remembers, for changes that left the queue, which of them were merged elsewhere by an update
    /// still in the inbox. That update finds no entry any more, but changes that depend on them
    /// must know (D08).
    pub(super) fn remember_merged(&mut self, changes: &[ChangeRef]) {
        if !is_dependent(&self.head) {
            return;
        }
        for change in changes {
            let is_merged = self.unconsumed().any(|message| reports_merge(message, change));
            if is_merged && !self.head.has_landed(change) {
                self.remember_landed(change, MergedRevisions::All);
            }
        }
    }

    /// Dequeues the first entry that depends on a change which left without being merged (D08,
    /// D09). This is derived from the queue itself, so the next plan finds what does not fit into
    /// this one.
    fn dequeue_orphans(&mut self) -> bool {
        if !is_dependent(&self.head) {
            return false;
        }
        for position in 0..self.head.slots.len() {
            if self.head.slots[position].status.is_decided() || !self.is_orphan(position) {
                continue;
            }
            let bundle = self.head.bundle(position);
            if bundle.len() > 1 {
                return self.dequeue_bundle(
                    bundle,
                    "FAILURE",
                    DEPENDENCY_FAILED,
                    Occasion::DependencyFailed,
                );
            }
            let id = self.head.slots[position].id.clone();
            if !self.stop_builds(&id, "a change it depends on failed to merge")
                || !self.has_room(DEQUEUE_RECORDS)
            {
                return false;
            }
            return self.remove_at(
                position,
                "FAILURE",
                DEPENDENCY_FAILED,
                Occasion::DependencyFailed,
            );
        }
        false
    }

    /// Returns whether a dependency of the entry at `position` is neither ahead of it nor merged.
    pub(super) fn is_orphan(&self, position: usize) -> bool {
        // Members of its bundle count as ahead.
        let ahead = &self.head.slots[..self.head.bundle(position).end];
        let Some(item) = self.items.get(&self.head.slots[position].id) else {
            return false;
        };
        item.candidate.needs.iter().any(|need| {
            let is_ahead = |slot: &Slot| slot.change == need.change;
            // Search backwards: a dependency is usually near.
            !ahead.iter().rev().any(is_ahead) && !self.head.has_landed(&need.change)
        })
    }

    /// Removes the entry at `position` and reports its result. Always returns true, since the order
    /// of the queue changed.
    pub(super) fn remove_at(
        &mut self,
        position: usize,
        result: &'static str,
        why: &str,
        occasion: Occasion,
    ) -> bool {
        let slot = self.head.slots.remove(position);
        self.end_residency(&slot.change.key);
        // The result was reported, counted and applied to the window when it succeeded; the end of
        // its reporter jobs does not change that.
        let has_succeeded = slot.status == SlotStatus::Reporting;
        let result = if has_succeeded { "SUCCESS" } else { result };
        if !has_succeeded {
            self.resize_window(result);
        }
        let Some(mut item) = self.items.remove(&slot.id) else {
            return true;
        };
        self.changed_items.remove(&slot.id);
        if let Some(why) = self.retest_reasons.remove(&slot.id) {
            item.add_reason(why);
        }
        self.skip_unstarted_jobs(&mut item);
        item.add_reason(format!("left {}: {result}: {why}", self.head.key.pipeline));
        self.plan
            .reasons
            .push(format!("{} leaves {}: {result}: {why}", slot.change, self.head.key));
        // Like Zuul, sends no dequeue report if no start report was sent.
        let is_silent = has_succeeded || (occasion == Occasion::Dequeue && !item.start_reported);
        if let Some(report) = self.report_item(&item, occasion, why).filter(|_| !is_silent) {
            self.plan.reports.push(report);
        }
        if !has_succeeded {
            self.count_outcome(occasion);
        }
        self.plan.removed.push(RemovedItem { item, result, why: cut(why, REASON_BYTES_MAX) });
        true
    }

    /// Counts an item's result for the pipeline's consecutive failures.
    pub(super) fn count_outcome(&mut self, occasion: Occasion) {
        let most =
            self.snapshot.pipeline.and_then(|pipeline| pipeline.disable_after_consecutive_failures);
        if let (Some(health), Some(most)) = (&mut self.health, most) {
            health.count(occasion, most);
        }
    }

    /// Resizes the window by an item's result, as Zuul does: SUCCESS grows it; FAILURE,
    /// MERGE_CONFLICT, CONFIG_ERROR and NO_JOBS shrink it; MERGE_FAILURE and DEQUEUED leave it
    /// unchanged.
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
        for job in item.jobs.iter_mut().filter(|job| job.status == crate::item::JobStatus::Waiting)
        {
            job.status = super::job_graph::ended(BuildResult::Skipped, None, self.now);
        }
    }

    /// Wakes the reporter again for the landing of an item.
    pub(super) fn remind_landing(&mut self, id: &ItemId) {
        self.plan.landing_reminders.push(id.clone());
    }
}

/// Returns whether a message says that `change` was merged into its branch.
fn reports_merge(message: &InboxMessage, change: &ChangeRef) -> bool {
    let InboxMessageKind::ChangeUpdated { change: seen, merged, .. } = &message.kind else {
        return false;
    };
    *merged && seen.key == change.key && seen.branch == change.branch
}

/// Formats why a queue is halted after something was merged that was not tested.
pub(super) fn mismatch_reason(landing: &Landing, landed: &Commit) -> String {
    format!(
        "{} was merged as {} with tree {}, but tree {} was tested; the queue is halted until an operator resumes it",
        landing.change,
        landed.id.short(),
        landed.tree.short(),
        landing.tested.tree.short()
    )
}

/// Formats why a queue is halted if the merged tree cannot be read.
pub(super) fn unverified_reason(landing: &Landing, why: &str) -> String {
    format!(
        "{} is merged according to its forge, but the result cannot be read: {}; the queue is halted until an operator resumes it: \
         restore access by the connection {}, check that the merged tree is {}, then run `sluice queue resume`",
        landing.change,
        cut(why, UNVERIFIED_BYTES_MAX),
        landing.change.key.connection,
        landing.tested.tree
    )
}
