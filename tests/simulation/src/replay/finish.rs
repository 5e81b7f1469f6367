//! What is over: it lands, leaves, or stays for the jobs after its report.

use super::line::{Answer, Line, Place};
use super::turn::Turn;
use sluice_gate::{InboxMessage, InboxMessageKind, Landing, LandingEnd, SlotStatus};
use sluice_model::change::ChangeRef;
use sluice_model::git::Oid;
use std::ops::Range;

impl Turn<'_> {
    /// Ends what can be ended. Returns whether something left, or is to be tested again, so that
    /// all have to find their places again.
    pub(super) fn finish(&mut self) -> bool {
        if self.line.is_frozen {
            return false;
        }
        let places = &self.line.places;
        if let Some(at) = places.iter().position(|place| place.is_let_go && !place.is_decided()) {
            self.leave_together(at, "DEQUEUED");
            return true;
        }
        if let Some(at) = places.iter().position(|place| place.standing == SlotStatus::Reporting) {
            return self.finish_last_jobs(at);
        }
        if !self.line.is_dependent() {
            // Each for itself.
            return (0..self.line.places.len()).any(|at| self.finish_at(at));
        }
        // The first in the queue reports first.
        (!self.line.places.is_empty() && self.finish_at(0))
            || self.finish_behind()
            || self.finish_lost()
    }

    fn finish_at(&mut self, at: usize) -> bool {
        let bundle = self.line.bundle(at);
        if bundle.len() > 1 {
            return self.finish_bundle(bundle);
        }
        let place = &self.line.places[at];
        if place.standing == SlotStatus::Landing {
            return self.finish_landing(at);
        }
        if !self.is_over(place) {
            return false;
        }
        let result = match &place.answer {
            Answer::Cannot { configuration: true } => "CONFIG_ERROR",
            Answer::Cannot { configuration: false } => "MERGE_CONFLICT",
            _ if place.deciding().next().is_none() => "NO_JOBS",
            _ if place.standing == SlotStatus::Failing => "FAILURE",
            _ if self.line.lands && place.change.key.number().is_some() => {
                self.order_landing(at);
                return false;
            }
            _ => return self.succeed(bundle),
        };
        if self.may_run_otherwise(at, result) {
            return false;
        }
        self.leave_together(at, result);
        true
    }

    /// Returns whether configuration was on its way by which a place may run what it does not run
    /// as it is. That is in no record of the queue's: that it leaves for this before that is there,
    /// or not, is a fact.
    fn may_run_otherwise(&self, at: usize, result: &str) -> bool {
        let is_about_configuration = matches!(result, "CONFIG_ERROR" | "NO_JOBS");
        is_about_configuration
            && self.line.lands
            && !self.facts.left.contains_key(&self.line.places[at].id)
    }

    /// Returns whether all is known that decides about a place, by the layout that the queue is at.
    fn is_over(&self, place: &Place) -> bool {
        place.is_known() && place.is_complete() && place.layout == self.line.layout
    }

    /// Has the first land, with what passed right behind it where one move of the branch may land
    /// both. When that is ordered is up to the branch, the tenant's layout and news that wait: that
    /// it was is a fact, and what is ordered is the model's.
    fn order_landing(&mut self, at: usize) {
        let place = &self.line.places[at];
        let Some(landing) = self.facts.landing(&place.id, place.state) else { return };
        self.land(at);
        for behind in &landing.followers {
            let next = self.landed_last(at) + 1;
            let is_next =
                |place: &Place| place.id == behind.item && place.state == behind.generation;
            if !self.line.places.get(next).is_some_and(is_next) || !self.may_follow(next) {
                return;
            }
            self.land(next);
        }
    }

    /// Returns the last of a line of places from `at` on that are to land.
    fn landed_last(&self, at: usize) -> usize {
        let is_landing = |place: &&Place| place.standing == SlotStatus::Landing;
        at + self.line.places[at..].iter().take_while(is_landing).count().saturating_sub(1)
    }

    fn land(&mut self, at: usize) {
        let place = &mut self.line.places[at];
        place.standing = SlotStatus::Landing;
        let (name, text) = (place.name(), format!("{} passed and is to land", place.change));
        self.landings.insert(name);
        self.step(text);
    }

    /// Returns whether what stands at a position passed by itself on exactly what the one before
    /// makes of the branch, without a word of configuration, and may be moved there.
    fn may_follow(&self, at: usize) -> bool {
        let (before, place) = (&self.line.places[at - 1], &self.line.places[at]);
        let (Some(below), Some(own)) = (before.merges(), place.merges()) else { return false };
        let is_moved = below.kept && own.kept && !below.configures && !own.configures;
        place.standing == SlotStatus::Passed
            && place.ahead.as_ref() == Some(&before.name())
            && self.line.bundle(at).len() == 1
            && self.is_over(place)
            && !place.has_last_jobs_left()
            && !before.has_last_jobs_left()
            && !place.is_let_go
            && is_moved
            && below.tested == own.base
    }

    fn finish_landing(&mut self, at: usize) -> bool {
        let Some(end) = self.end_of(at) else { return false };
        let change = self.line.places[at].change.clone();
        self.step(format!("the landing of {change} ended: {end:?}"));
        match end {
            LandingEnd::Landed { commit } => {
                self.has_landed(at, &commit.id);
                self.succeed(at..at + 1)
            }
            LandingEnd::BaseMoved { .. } => {
                let place = &mut self.line.places[at];
                place.state += 1;
                place.standing = SlotStatus::Waiting;
                true
            }
            LandingEnd::Refused { .. } => {
                self.leave_refused(at);
                true
            }
            LandingEnd::MergedElsewhere { .. } => {
                self.leave_merged(at);
                true
            }
            LandingEnd::Mismatch { .. } | LandingEnd::Unproven { .. } => {
                self.line.is_frozen = true;
                false
            }
        }
    }

    /// Remembers that a place is in its branch: what is behind it was tested on exactly what the
    /// branch is now.
    fn has_landed(&mut self, at: usize, commit: &Oid) {
        self.line.places[at].is_in_branch = true;
        self.remember_landed(at, commit);
    }

    fn remember_landed(&mut self, at: usize, commit: &Oid) {
        let place = &self.line.places[at];
        let id = place.id.clone();
        let is_pushed =
            place.merges().is_some_and(|merges| merges.kept && merges.tested == *commit);
        let head = if is_pushed { place.change.head.as_str().to_owned() } else { String::new() };
        self.line.landed.push((place.change.key.clone(), head));
        for behind in &mut self.line.places {
            if behind.ahead.as_ref().is_some_and(|(ahead, _)| *ahead == id) {
                behind.ahead = None;
            }
        }
    }

    /// Hears of what was to land behind something else and did not: it is tested again, or leaves.
    fn finish_behind(&mut self) -> bool {
        let has_failed = |at: &usize| {
            self.line.places[*at].standing == SlotStatus::Landing
                && self.line.bundle(*at).len() == 1
                && matches!(
                    self.end_of(*at),
                    Some(
                        LandingEnd::BaseMoved { .. }
                            | LandingEnd::MergedElsewhere { .. }
                            | LandingEnd::Refused { .. }
                    )
                )
        };
        let found = (1..self.line.places.len()).find(has_failed);
        found.is_some_and(|at| self.finish_landing(at))
    }

    /// Takes out the first that needs something which left without landing, with its bundle.
    fn finish_lost(&mut self) -> bool {
        let is_lost = |at: &usize| !self.line.places[*at].is_decided() && self.line.is_lost(*at);
        let found = (0..self.line.places.len()).find(is_lost);
        if let Some(at) = found {
            self.leave_together(at, "FAILURE");
        }
        found.is_some()
    }

    /// Has what succeeded leave; or stay, where jobs of it run after its report.
    fn succeed(&mut self, bundle: Range<usize>) -> bool {
        if !self.line.places[bundle.clone()].iter().any(Place::has_last_jobs_left) {
            self.leave_together(bundle.start, "SUCCESS");
            return true;
        }
        for at in bundle {
            let place = &mut self.line.places[at];
            place.standing = SlotStatus::Reporting;
            place.ahead = None;
            let text = format!("{} succeeded, and its last jobs follow", place.change);
            self.step(text);
        }
        self.count("SUCCESS");
        true
    }

    /// Has what was reported leave when its last jobs are over; where one of them failed all behind
    /// is tested again.
    fn finish_last_jobs(&mut self, at: usize) -> bool {
        let bundle = self.line.bundle(at);
        let own = &self.line.places[bundle.clone()];
        if own.iter().any(Place::has_last_jobs_left) {
            return false;
        }
        let has_failed = own
            .iter()
            .flat_map(|place| &place.tasks)
            .any(|task| task.reporter && task.voting && task.has_failed());
        for _ in bundle.clone() {
            self.remove(bundle.start, "SUCCESS");
        }
        for place in self.line.places[bundle.start..].iter_mut().filter(|_| has_failed) {
            if place.is_known() && place.has_begun() {
                place.state += 1;
                place.standing = SlotStatus::Waiting;
                self.steps.push(format!(
                    "{} is tested again: a job failed after the report ahead",
                    place.change
                ));
            }
        }
        true
    }

    /// Takes out what stands at a position, with those that need it, for one reason, which counts
    /// once for the window.
    pub(super) fn leave_together(&mut self, at: usize, result: &str) {
        let bundle = self.line.bundle(at);
        let was_reported = self.line.places[at].standing == SlotStatus::Reporting;
        for _ in bundle.clone() {
            self.remove(bundle.start, result);
        }
        if !was_reported || bundle.len() > 1 {
            self.count(result);
        }
    }

    /// Takes out what another party merged, with those that need it in turn: what else needs it has
    /// it from now on.
    fn leave_merged(&mut self, at: usize) {
        let change = self.line.places[at].change.clone();
        let together = self.changes_at(self.line.bundle(at));
        self.leave_together(at, "DEQUEUED");
        if !self.line.has_landed(&change) {
            self.line.landed.push((change.key, String::new()));
        }
        self.remember_merged(&together);
    }

    /// Takes out what its forge did not merge.
    fn leave_refused(&mut self, at: usize) {
        let together = self.changes_at(self.line.bundle(at));
        self.leave_together(at, "MERGE_FAILURE");
        self.remember_merged(&together);
    }

    /// Returns the changes of some places.
    pub(super) fn changes_at(&self, places: Range<usize>) -> Vec<ChangeRef> {
        self.line.places[places].iter().map(|place| place.change.clone()).collect()
    }

    /// Remembers of changes that have left those that another party merged, where news that were
    /// there say so: what needs them has them. Whether news had come by then is in no record, so
    /// that what is remembered is believed where any say so.
    pub(super) fn remember_merged(&mut self, changes: &[ChangeRef]) {
        if !self.line.is_dependent() {
            return;
        }
        for change in changes {
            let says_so = |(_, arrival): &(String, InboxMessage)| {
                let InboxMessageKind::ChangeUpdated { change: seen, merged, .. } = &arrival.kind
                else {
                    return false;
                };
                *merged && seen.key == change.key && seen.branch == change.branch
            };
            let is_reported = self.facts.waiting.iter().chain(&self.facts.taken).any(says_so);
            let is_remembered = self.facts.head.landed.contains(&change.key);
            if is_reported && is_remembered && !self.line.has_landed(change) {
                self.line.landed.push((change.key.clone(), String::new()));
            }
        }
    }

    /// Takes one place out. What had succeeded has: that was reported.
    pub(super) fn remove(&mut self, at: usize, result: &str) {
        let place = self.line.places.remove(at);
        let result = if place.standing == SlotStatus::Reporting { "SUCCESS" } else { result };
        self.stops.extend(place.builds().cloned());
        self.step(format!("{} leaves as {result}", place.change));
        self.left.insert(place.id, result.to_owned());
    }

    /// Moves the window as its rules have it.
    pub(super) fn count(&mut self, result: &str) {
        if self.line.rules.initial == 0 {
            return;
        }
        let before = self.line.window;
        self.line.window = self.line.rules.after_one(before, result);
        if self.line.window != before {
            self.step(format!(
                "the window was {before} and is {}, after {result}",
                self.line.window
            ));
        }
    }
}

/// Changes that need each other: they are tested, reported and landed as one.
impl Turn<'_> {
    fn finish_bundle(&mut self, bundle: Range<usize>) -> bool {
        if self.line.places[bundle.start].is_landing() {
            return self.finish_bundle_landing(bundle);
        }
        let own = &self.line.places[bundle.clone()];
        let is_current = |place: &&Place| place.is_known() && place.layout == self.line.layout;
        let cannot = own.iter().filter(is_current).find_map(|place| match &place.answer {
            Answer::Cannot { configuration } => Some((place.id.clone(), *configuration)),
            _ => None,
        });
        if let Some((id, configuration)) = cannot {
            let result = if configuration { "CONFIG_ERROR" } else { "MERGE_CONFLICT" };
            if self.may_run_otherwise(bundle.start, result) {
                return false;
            }
            for _ in bundle.clone() {
                let own = if self.line.places[bundle.start].id == id { result } else { "FAILURE" };
                self.remove(bundle.start, own);
            }
            self.count(result);
            return true;
        }
        if !own.iter().all(|place| self.is_over(place)) {
            return false;
        }
        let result = if own.iter().all(|place| place.deciding().next().is_none()) {
            "NO_JOBS"
        } else if own.iter().any(|place| place.standing == SlotStatus::Failing) {
            "FAILURE"
        } else if self.line.lands {
            self.order_bundle(bundle);
            return false;
        } else {
            return self.succeed(bundle);
        };
        if self.may_run_otherwise(bundle.start, result) {
            return false;
        }
        self.leave_together(bundle.start, result);
        true
    }

    /// Has a bundle land, one after the other; when it begins is a fact, as with
    /// [`Self::order_landing`].
    fn order_bundle(&mut self, bundle: Range<usize>) {
        let first = &self.line.places[bundle.start];
        let Some(landing) = self.facts.landing(&first.id, first.state) else { return };
        let named: Vec<_> = landing
            .later_members
            .iter()
            .map(|other| (other.item.clone(), other.generation))
            .collect();
        let behind: Vec<_> =
            self.line.places[bundle.start + 1..bundle.end].iter().map(Place::name).collect();
        if named != behind {
            return self.step("a landing names others than stand in its bundle".to_owned());
        }
        self.land(bundle.start);
        for at in bundle.start + 1..bundle.end {
            self.line.places[at].standing = SlotStatus::AwaitingLanding;
        }
    }

    fn finish_bundle_landing(&mut self, bundle: Range<usize>) -> bool {
        let find = |line: &Line, standing: SlotStatus| {
            bundle.clone().find(|at| line.places[*at].standing == standing)
        };
        if let Some(at) = find(&self.line, SlotStatus::Landing) {
            let Some(end) = self.end_of(at) else { return false };
            let change = self.line.places[at].change.clone();
            self.step(format!("the landing of {change}, of a bundle, ended: {end:?}"));
            let is_first = at == bundle.start;
            match end {
                LandingEnd::Landed { .. } => {
                    self.line.places[at].is_in_branch = true;
                    self.line.places[at].standing = SlotStatus::Landed;
                }
                LandingEnd::BaseMoved { .. } if is_first => {
                    for at in bundle {
                        let place = &mut self.line.places[at];
                        place.state += 1;
                        place.standing = SlotStatus::Waiting;
                    }
                    return true;
                }
                LandingEnd::Refused { .. } if is_first => {
                    self.leave_refused(at);
                    return true;
                }
                LandingEnd::MergedElsewhere { .. } if is_first => {
                    self.leave_merged(at);
                    return true;
                }
                // Half of it is in its branch, or what no one tested: an operator has to look.
                _ => {
                    self.line.is_frozen = true;
                    return false;
                }
            }
        }
        if let Some(at) = find(&self.line, SlotStatus::AwaitingLanding) {
            let place = &self.line.places[at];
            if self.facts.landing(&place.id, place.state).is_some() {
                self.land(at);
            }
            return false;
        }
        for at in bundle.clone() {
            let place = &self.line.places[at];
            let commit = match self.known.end(&place.id, place.state) {
                Some(LandingEnd::Landed { commit }) => commit.id.clone(),
                _ => return false,
            };
            self.remember_landed(at, &commit);
        }
        self.succeed(bundle)
    }
}

/// Returns what a landing is of, as a difference shows it.
pub(super) fn named(landing: &Landing) -> String {
    format!("{} in state {}", landing.change, landing.generation)
}
