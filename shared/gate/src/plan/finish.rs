//! Lands, reports and removes what is over.

use super::admit::LEAVING_RECORDS;
use super::align::ahead_of;
use super::{RECORDS_MAX, Removed, Work, is_dependent};
use crate::arrival::{Arrival, ArrivalKind, Candidate};
use crate::item::{Ask, Item, REASON_BYTES_MAX, cut};
use crate::landing::{
    Asks, Behind, Landing, LandingEnd, LandingState, MERGED_ELSEWHERE, RUN_MAX, Together, lands_in,
};
use crate::queue::{LANDED_MAX, Slot, Standing};
use crate::report::Occasion;
use crate::turn::branch_of;
use sluice_model::ItemId;
use sluice_model::build::BuildResult;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::{Commit, LandingWay};

/// Bytes of what a forge says when it does not show what landed that the head of a frozen queue
/// holds.
const UNREAD_BYTES_MAX: usize = 250;

/// What is told of a change that needs one which left without landing.
const NEED_FAILED: &str = "This change depends on a change that failed to merge.";

impl Work<'_> {
    /// Ends what can be ended. Returns whether the order of the queue changed, so that it has to be
    /// aligned again.
    pub(super) fn finish(&mut self) -> bool {
        if self.head.frozen.is_some() {
            return false;
        }
        if let Some(has_left) = self.finish_let_go() {
            return has_left;
        }
        if let Some(position) = self.held_by() {
            return self.finish_reporting(self.head.bundle(position));
        }
        for position in 0..self.head.slots.len() {
            if position > 0 && is_dependent(&self.head) {
                return self.finish_behind() || self.finish_orphans();
            }
            if !self.has_room(LEAVING_RECORDS + self.entry_records()) {
                return false;
            }
            if self.finish_one(position) {
                return true;
            }
        }
        self.finish_orphans()
    }

    fn finish_one(&mut self, position: usize) -> bool {
        let bundle = self.head.bundle(position);
        if self.head.slots[position].standing == Standing::Reporting {
            return self.finish_reporting(bundle);
        }
        if bundle.len() > 1 {
            return self.finish_bundle(bundle);
        }
        let slot = self.head.slots[position].clone();
        if slot.standing == Standing::Landing {
            return self.finish_landing(position);
        }
        let Some(item) = self
            .items
            .get(&slot.id)
            .filter(|item| item.generation == slot.generation && item.is_complete())
            .filter(|item| self.is_frozen_now(item))
        else {
            return false;
        };
        let may_run_otherwise = self.awaits_configuration();
        match &item.ask {
            Ask::Unmergeable { configuration: true, .. } if may_run_otherwise => false,
            Ask::Unmergeable { why, configuration: true, .. } => {
                let why = why.clone();
                self.remove(position, "CONFIG_ERROR", &why, Occasion::ConfigError)
            }
            Ask::Unmergeable { why, configuration: false, .. } => {
                let why = why.clone();
                self.remove(position, "MERGE_CONFLICT", &why, Occasion::MergeConflict)
            }
            _ if item.reported_jobs().next().is_none() && may_run_otherwise => false,
            _ if item.reported_jobs().next().is_none() => {
                self.remove(position, "NO_JOBS", "no job is to be run for it", Occasion::NoJobs)
            }
            _ if slot.standing == Standing::Failing => {
                self.remove(position, "FAILURE", "a job failed", Occasion::Failure)
            }
            _ if self.lands() && slot.change.key.number().is_some() => self.order_landing(position),
            _ => self.succeed(position..position + 1, "every voting job passed"),
        }
    }

    /// Returns whether a success in this pipeline puts the change into its branch.
    pub(super) fn lands(&self) -> bool {
        // To merge is what a reporter of success does, and a disabled pipeline has none.
        let is_disabled = self.health.as_ref().is_some_and(|health| health.disabled);
        self.snapshot.pipeline.filter(|_| !is_disabled).is_some_and(lands_in)
    }

    /// Returns whether configuration is on its way that may have changes which are to land run what
    /// they do not run by the live one, such as that of a change that they need: once that has
    /// landed nothing of it is below them any more, and it is not live yet.
    pub(super) fn awaits_configuration(&self) -> bool {
        self.is_settling() && self.lands()
    }

    fn order_landing(&mut self, position: usize) -> bool {
        if self.is_settling() {
            return false; // The layout it was tested under is about to go.
        }
        if self.is_withheld(&self.head.slots[position]) {
            let (id, change) =
                (self.head.slots[position].id.clone(), self.head.slots[position].change.clone());
            self.note(
                &id,
                format!("every voting job passed; {change} does not land while news wait by which it leaves"),
            );
            return false; // Whoever takes them in looks again.
        }
        if self.landing_of(position, Vec::new()).is_none()
            || !self.take_branches(position..position + 1)
        {
            return false; // Whoever lets go of the branch has this queue looked at again.
        }
        let Some(landing) =
            self.landing_of(position, Vec::new()).filter(|landing| landing.fence.is_some())
        else {
            return false;
        };
        let (id, change) = (landing.item.clone(), landing.change.clone());
        self.plan.wants_layout |= landing.configures;
        let run = self.run_behind(position, &landing);
        let behind = run
            .iter()
            .map(|next| Behind { item: next.item.clone(), generation: next.generation })
            .collect();
        self.plan.landings.push(Landing { behind, ..landing });
        self.head.slots[position].standing = Standing::Landing;
        self.note(&id, format!("every voting job passed: {change} is to land"));
        for (at, next) in (position + 1..).zip(run) {
            self.head.slots[at].standing = Standing::Landing;
            self.note(
                &next.item,
                format!(
                    "every voting job passed: {} is to land right behind {change}",
                    next.change
                ),
            );
            self.plan.landings.push(next);
        }
        false
    }

    /// Returns the orders to land what passed right behind something that is to land, as far as one
    /// move of the branch may land all.
    fn run_behind(&self, position: usize, first: &Landing) -> Vec<Landing> {
        let mut run: Vec<Landing> = Vec::new();
        // While jobs run after a report nothing else of the queue moves: what has some lands by
        // itself.
        let has_reporters =
            self.items.get(&self.head.slots[position].id).is_some_and(Item::has_reporters_left);
        if !is_dependent(&self.head) || has_reporters {
            return run;
        }
        for at in position + 1..self.head.slots.len() {
            // A landing and its item for each, and for the first.
            let has_room = self.used() + 2 * (run.len() + 2) <= RECORDS_MAX;
            if run.len() + 1 == RUN_MAX || !has_room || !self.may_follow(at) {
                break;
            }
            let Some(mut next) = self.landing_of(at, Vec::new()) else { break };
            // What it needs of the run itself has not landed yet. That it did its branch tells,
            // which has to be what this one was tested on; where it would be that without it as
            // well, the forge is asked, which may show a merge late.
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

    /// Returns whether what stands in a slot passed on top of the slot before, by itself, and
    /// nothing keeps it from landing.
    fn may_follow(&self, at: usize) -> bool {
        let slot = &self.head.slots[at];
        let is_behind = slot.ahead.as_ref() == Some(&ahead_of(&self.head.slots[at - 1]));
        let item = self.items.get(&slot.id).filter(|item| item.generation == slot.generation);
        slot.standing == Standing::Passed
            && is_behind
            && self.head.bundle(at).len() == 1
            && slot.change.key.number().is_some()
            && item.is_some_and(|item| self.is_frozen_now(item) && !item.has_reporters_left())
            && !self.is_withheld(slot)
            && !self.is_let_go(slot)
    }

    /// Takes what was ordered to land behind something else, and did not: it is tested again, or
    /// leaves, whatever becomes of what is ahead. What landed waits for what is ahead, which is in
    /// the branch as well.
    fn finish_behind(&mut self) -> bool {
        let has_failed = |slot: &Slot| {
            let landing = self
                .snapshot
                .landings
                .get(&slot.id)
                .filter(|found| found.generation == slot.generation);
            let end = landing.and_then(|landing| match &landing.state {
                LandingState::Ended { end, .. } => Some(end),
                LandingState::Wanted | LandingState::Attempting { .. } => None,
            });
            end.is_some_and(LandingEnd::is_clean)
        };
        let position = (1..self.head.slots.len()).find(|at| {
            let slot = &self.head.slots[*at];
            slot.standing == Standing::Landing
                && self.head.bundle(*at).len() == 1
                && has_failed(slot)
        });
        let Some(position) = position else { return false };
        self.has_room(LEAVING_RECORDS + self.entry_records()) && self.finish_landing(position)
    }

    /// Returns the order to land what stands at `position`, once it has a tested state.
    pub(super) fn landing_of(&self, position: usize, together: Vec<Together>) -> Option<Landing> {
        let slot = &self.head.slots[position];
        let item = self.items.get(&slot.id)?;
        let merged = item.merged()?;
        let branch = branch_of(&slot.change);
        let mode = (self.snapshot.merge_mode)(&branch);
        // Elsewhere what it depends on need not stand ahead of it, so that it has landed only where
        // the queue knows it: this very revision.
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
            way: if merged.kept && mode.keeps_head() {
                LandingWay::FastForward
            } else {
                LandingWay::Merge
            },
            behind: Vec::new(),
            base: merged.base.clone(),
            tested: merged.tested.clone(),
            configures: merged.touches_configuration,
            together,
            asks: self.snapshot.pipeline.map(|pipeline| Asks::of(pipeline, item.admitted_at)),
            fence: self.fence_of(&branch),
            tried: item.tried,
            pushed: false,
            asked_until: None,
            trouble: None,
            unread_since: None,
            wanted_at: self.now,
            state: LandingState::Wanted,
        })
    }

    fn finish_landing(&mut self, position: usize) -> bool {
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
        self.plan.poke_tenant |= touched;
        let has_landed = |key: &ChangeKey| self.head.landed.contains(key);
        let is_below = !is_dependent(&self.head) && landing.needs.iter().all(has_landed);
        let tried = landing.tried;
        match end {
            LandingEnd::Landed { commit } => {
                self.note(
                    &slot.id,
                    format!(
                        "landed as {} with the tested tree {}",
                        commit.id.short(),
                        commit.tree.short()
                    ),
                );
                if let Some(item) = self.item(&slot.id) {
                    item.landed = Some(commit.id.clone());
                }
                let is_pushed = self.is_pushed(&slot.id);
                self.remember_landed(&slot.change, is_pushed);
                self.tell(ZuulEvent::ProjectChangeMerged, &slot.id, &slot.change);
                for behind in &mut self.head.slots {
                    // What is behind was tested on exactly what the branch is now: nothing is
                    // thrown away.
                    if behind.ahead.as_ref().is_some_and(|ahead| ahead.item == slot.id) {
                        behind.ahead = None;
                    }
                }
                self.succeed(position..position + 1, "landed")
            }
            LandingEnd::BaseMoved { tip } => {
                // What stands behind something of this queue still was tested on that, which did
                // not land.
                let is_overtaken = tip.tree != landing.base.tree && slot.ahead.is_none();
                self.note(
                    &slot.id,
                    format!(
                        "{} is at {}, which is not what was tested: tested again",
                        slot.change.branch,
                        tip.id.short()
                    ),
                );
                self.head.slots[position].generation += 1;
                self.head.slots[position].standing = Standing::Waiting;
                self.note_tried(&slot.id, tried);
                if is_overtaken {
                    self.note_overtaken(position..position + 1);
                }
                if is_below && let Some(item) = self.item(&slot.id) {
                    // Whoever wanted to land it saw that all that it depends on is merged: it is
                    // tested on its branch alone.
                    item.candidate.needs.clear();
                }
                true
            }
            LandingEnd::MergedElsewhere { .. } => {
                self.remember_landed(&slot.change, false);
                self.remove(position, "DEQUEUED", MERGED_ELSEWHERE, Occasion::Dequeue)
            }
            LandingEnd::Refused { why } => {
                let has_left = self.remove(position, "MERGE_FAILURE", &why, Occasion::MergeFailure);
                self.remember_merged(std::slice::from_ref(&slot.change));
                has_left
            }
            LandingEnd::Mismatch { landed } => {
                let why = mismatch(landing, &landed);
                self.freeze(&slot, why)
            }
            LandingEnd::Unproven { why } => {
                let why = unproven(landing, &why);
                self.freeze(&slot, why)
            }
        }
    }

    /// Remembers what landed, with its head if a push brought it; what an item of the queue needs
    /// is not forgotten while that item is here.
    pub(super) fn remember_landed(&mut self, change: &ChangeRef, is_pushed: bool) {
        self.head.remember(&change.key, is_pushed.then_some(&change.head));
        let needed = |key: &ChangeKey| {
            (self.items.values())
                .any(|item| item.candidate.needs.iter().any(|need| need.change.key == *key))
        };
        if self.head.landed.len() > LANDED_MAX
            && let Some(at) = self.head.landed.iter().position(|key| !needed(key))
        {
            self.head.forget(at);
        }
    }

    /// Remembers of changes that have left, and did not land here, those that somebody else merged
    /// by news that are left: once they are gone nobody hears these, and what needs them has them
    /// in its branch (D08).
    pub(super) fn remember_merged(&mut self, changes: &[ChangeRef]) {
        if !is_dependent(&self.head) {
            return;
        }
        for change in changes {
            let is_told = self.left().any(|arrival| says_merged(arrival, change));
            if is_told && !self.head.has_landed(change) {
                self.remember_landed(change, false);
            }
        }
    }

    /// Takes out items that need a change which left without landing (D08, D09). The queue itself
    /// tells who they are, so that one that did not fit into this plan is found by the next.
    fn finish_orphans(&mut self) -> bool {
        if !is_dependent(&self.head) {
            return false;
        }
        for position in 0..self.head.slots.len() {
            if self.head.slots[position].standing.is_decided() || !self.is_orphan(position) {
                continue;
            }
            let bundle = self.head.bundle(position);
            if bundle.len() > 1 {
                return self.leave_together(bundle, "FAILURE", NEED_FAILED, Occasion::NeedFailed);
            }
            let id = self.head.slots[position].id.clone();
            if !self.stop_builds(&id, "a change it depends on failed to merge")
                || !self.has_room(LEAVING_RECORDS)
            {
                return false;
            }
            return self.remove(position, "FAILURE", NEED_FAILED, Occasion::NeedFailed);
        }
        false
    }

    pub(super) fn is_orphan(&self, position: usize) -> bool {
        // What needs it in turn stands in its bundle.
        let ahead = &self.head.slots[..self.head.bundle(position).end];
        let Some(item) = self.items.get(&self.head.slots[position].id) else {
            return false;
        };
        item.candidate.needs.iter().any(|need| {
            let is_ahead = |slot: &Slot| slot.change == need.change;
            // It is right ahead, or not far: of a long queue little is compared.
            !ahead.iter().rev().any(is_ahead) && !self.head.has_landed(&need.change)
        })
    }

    /// Removes the item at `position` with its report. Always returns true: the order changed.
    pub(super) fn remove(
        &mut self,
        position: usize,
        result: &'static str,
        why: &str,
        occasion: Occasion,
    ) -> bool {
        let slot = self.head.slots.remove(position);
        self.give_back(&slot.change.key);
        // What has succeeded was told, counted and moved the window then; whatever ends its last
        // jobs takes nothing of that back.
        let is_told = slot.standing == Standing::Reporting;
        let result = if is_told { "SUCCESS" } else { result };
        if !is_told {
            self.move_window(result);
        }
        let Some(mut item) = self.items.remove(&slot.id) else {
            return true;
        };
        self.touched.remove(&slot.id);
        if let Some(why) = self.moved.remove(&slot.id) {
            item.note(why);
        }
        self.skip_unstarted(&mut item);
        item.note(format!("left {}: {result}: {why}", self.head.key.pipeline));
        self.plan
            .reasons
            .push(format!("{} leaves {}: {result}: {why}", slot.change, self.head.key));
        // Of what was never told to have begun nobody is told that it was taken out, as in Zuul.
        let is_quiet = is_told || (occasion == Occasion::Dequeue && !item.start_reported);
        if let Some(report) = self.report_item(&item, occasion, why).filter(|_| !is_quiet) {
            self.plan.reports.push(report);
        }
        if !is_told {
            self.count(occasion);
        }
        self.plan.removed.push(Removed { item, result, why: cut(why, REASON_BYTES_MAX) });
        true
    }

    /// Counts how an item ended among those of its pipeline.
    pub(super) fn count(&mut self, occasion: Occasion) {
        let most =
            self.snapshot.pipeline.and_then(|pipeline| pipeline.disable_after_consecutive_failures);
        if let (Some(health), Some(most)) = (&mut self.health, most) {
            health.count(occasion, most);
        }
    }

    /// Moves the window by how a change ended, as Zuul does: it grows when one landed, shrinks when
    /// its jobs did not succeed, which no jobs do not either, and stays where they did and its
    /// forge did not merge it, or where somebody took it out.
    pub(super) fn move_window(&mut self, result: &str) {
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

    fn skip_unstarted(&self, item: &mut Item) {
        for job in item.jobs.iter_mut().filter(|job| job.status == crate::item::JobStatus::Waiting)
        {
            job.status = super::graph::ended(BuildResult::Skipped, None, self.now);
        }
    }

    pub(super) fn remind_landing(&mut self, id: &ItemId) {
        self.plan.reminders.push(id.clone());
    }
}

/// Returns whether an arrival says that a change is merged into its branch.
fn says_merged(arrival: &Arrival, change: &ChangeRef) -> bool {
    let ArrivalKind::Seen { change: seen, merged, .. } = &arrival.kind else { return false };
    *merged && seen.key == change.key && seen.branch == change.branch
}

/// Returns why a queue is frozen when something landed that was not tested.
pub(super) fn mismatch(landing: &Landing, landed: &Commit) -> String {
    format!(
        "{} landed as {} with tree {}, but tree {} was tested; nothing moves in this queue until an operator has looked",
        landing.change,
        landed.id.short(),
        landed.tree.short(),
        landing.tested.tree.short()
    )
}

/// Returns why a queue is frozen when nobody can tell what landed.
pub(super) fn unproven(landing: &Landing, why: &str) -> String {
    format!(
        "{} is merged, as its forge says, and nobody can tell what landed: {}; nothing moves in this queue until an operator has looked: \
         have the connection {} read that, see that its tree is {}, and thaw the queue",
        landing.change,
        cut(why, UNREAD_BYTES_MAX),
        landing.change.key.connection,
        landing.tested.tree
    )
}
