//! Which jobs of a change are to run now.

use super::line::{Place, Stage, Task};
use super::turn::Turn;
use super::waits::wrong_wait;
use sluice_gate::{Item, Job, JobStatus, SlotStatus};
use sluice_model::BuildId;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;

impl Turn<'_> {
    /// Orders the builds of a place that wait for nothing, and skips what waits for something that
    /// did not pass. `held_by` is the job of a change ahead before which nothing of it begins.
    pub(super) fn order_jobs(&mut self, at: usize, held_by: Option<&str>) {
        let place = &self.line.places[at];
        let is_reported = place.standing == SlotStatus::Reporting;
        let is_current = place.layout == self.line.layout && !self.needs_are_failing(at);
        if place.merges().is_none() || !(is_reported || is_current) {
            return;
        }
        let (facts, known) = (self.facts, self.known);
        let after = facts.after(&place.id);
        // What runs after the report waits until that is made.
        let report = after.and_then(|item| item.reporting.as_ref());
        let may_follow_report =
            is_reported && report.is_some_and(|reporting| reporting.awaits.is_none());
        let id = place.id.clone();
        let place = &mut self.line.places[at];
        skip(place);
        let is_alone = place.cycle.is_empty();
        for nth in 0..place.tasks.len() {
            let task = &place.tasks[nth];
            let has_turn = if task.reporter { may_follow_report } else { !is_reported };
            if !has_turn || task.stage != Stage::Waiting || !is_unblocked(place, task) {
                continue;
            }
            let name = task.name.clone();
            // Of those that need each other one may have been given what another one runs.
            let wrong = after
                .filter(|_| is_alone)
                .and_then(|item| wrong_wait(facts, known, item, &name, held_by));
            self.misread.extend(wrong);
            if is_alone && held_by.is_some() {
                continue;
            }
            let under_way = |build, will_fail| Stage::UnderWay { build, will_fail };
            let stage = match recorded(after, &name) {
                // Whether it has a semaphore, or what it requires, is not this queue's alone to
                // say.
                Recorded::WaitsForOthers => continue,
                Recorded::Ended(result) => {
                    place.tasks[nth].stage = Stage::Ended(result);
                    continue;
                }
                // What another one of its bundle has run already may be known to fail.
                Recorded::UnderWay(build, will_fail) => under_way(build, will_fail && !is_alone),
                // Likewise it may be paused.
                Recorded::Paused(build, goes_on) if !is_alone => Stage::Paused { build, goes_on },
                Recorded::Paused(build, _) => under_way(build, false),
                // Of those that need each other one may run it for all, and choose for all what is
                // run behind it.
                Recorded::Waits if !is_alone => continue,
                Recorded::Skipped if !is_alone => {
                    place.tasks[nth].stage = Stage::Ended(BuildResult::Skipped);
                    continue;
                }
                Recorded::Waits | Recorded::Skipped => under_way(None, false),
            };
            if is_alone {
                self.orders.insert((id.clone(), name.clone()));
                self.steps.push(format!("{name} of {} is to run", place.change));
            }
            place.tasks[nth].stage = stage;
        }
        skip(place);
    }

    /// Returns whether something that a place needs, and that does not need it in turn, is failing
    /// ahead: nothing of it begins then.
    fn needs_are_failing(&self, at: usize) -> bool {
        let place = &self.line.places[at];
        let mut others = place.needs.iter().filter(|need| !place.cycle.contains(&need.key));
        let is_failing = |key: &ChangeKey| {
            let mut ahead = self.line.places[..at].iter();
            ahead.any(|other| other.change.key == *key && other.standing == SlotStatus::Failing)
        };
        self.line.is_dependent()
            && others.any(|need| is_failing(&need.key) && !self.line.has_landed(need))
    }
}

impl Turn<'_> {
    /// Skips what waits right behind a job that passed, or is paused, and that its build did not
    /// choose.
    pub(super) fn choose(&mut self, at: usize, parent: &str, chosen: &[String]) {
        for task in &mut self.line.places[at].tasks {
            let is_behind =
                task.dependencies.iter().any(|dependency| dependency.name.as_str() == parent);
            if task.stage == Stage::Waiting && is_behind && !chosen.contains(&task.name) {
                task.stage = Stage::Ended(BuildResult::Skipped);
            }
        }
    }

    /// Ends the rest of a place that fails by itself, where its project asks to fail fast; of a
    /// bundle every job is run to its end.
    pub(super) fn cut_short(&mut self, at: usize) {
        // While answers wait nothing is cut short either.
        let item = self.facts.after(&self.line.places[at].id);
        let goes_on = item.is_some_and(|item| item.jobs.iter().any(Job::is_under_way));
        if goes_on && self.known.was_held(&self.facts.head.key.tenant) {
            return;
        }
        let place = &mut self.line.places[at];
        let is_cut =
            place.merges().is_some_and(|merges| merges.fail_fast) && place.cycle.is_empty();
        if !is_cut || !place.fails_by_itself() || place.is_complete() {
            return;
        }
        self.stops.extend(place.builds().cloned());
        for task in &mut place.tasks {
            match task.stage {
                Stage::Waiting => task.stage = Stage::Ended(BuildResult::Skipped),
                Stage::UnderWay { .. } | Stage::Paused { .. } => {
                    task.stage = Stage::Ended(BuildResult::Aborted)
                }
                Stage::Ended(_) => {}
            }
        }
        let text = format!("{} fails fast: its other jobs are ended", place.change);
        self.step(text);
    }
}

/// What is recorded of a job whose turn it is.
enum Recorded {
    Waits,
    WaitsForOthers,
    Skipped,
    /// By this build, and whether it is known that it will fail.
    UnderWay(Option<BuildId>, bool),
    /// This build of it is paused, and whether it was reported to go on.
    Paused(Option<BuildId>, bool),
    /// It ended with its order: no one has its nodes; or it is what another change of its bundle
    /// had run.
    Ended(BuildResult),
}

fn recorded(after: Option<&Item>, name: &str) -> Recorded {
    let job = after.and_then(|item| item.jobs.iter().find(|job| job.summary.name.as_str() == name));
    let Some(job) = job else { return Recorded::Waits };
    match &job.status {
        JobStatus::Waiting if job.waits_for.is_some() => Recorded::WaitsForOthers,
        JobStatus::Waiting => Recorded::Waits,
        JobStatus::Ended { result: BuildResult::Skipped, .. } => Recorded::Skipped,
        JobStatus::Ended { result, .. } => Recorded::Ended(*result),
        JobStatus::Running { pre_fail, .. } => Recorded::UnderWay(job.build.clone(), *pre_fail),
        JobStatus::Ordered { .. } => Recorded::UnderWay(job.build.clone(), false),
        JobStatus::Paused { resumed, .. } => Recorded::Paused(job.build.clone(), *resumed),
    }
}

/// Returns whether every job that a job depends on is over, and passed where it has to, or is
/// paused for it.
fn is_unblocked(place: &Place, task: &Task) -> bool {
    task.dependencies.iter().all(|dependency| {
        let other = place.tasks.iter().find(|other| other.name == dependency.name.as_str());
        match other {
            Some(other) if other.is_paused() => true,
            Some(other) if dependency.soft => other.is_over(),
            Some(other) => other.stage == Stage::Ended(BuildResult::Success),
            None => dependency.soft,
        }
    })
}

/// Skips jobs whose dependencies did not pass, and those behind these.
fn skip(place: &mut Place) {
    for _ in 0..place.tasks.len() {
        let is_barred = |task: &Task| {
            let hard = task.dependencies.iter().filter(|dependency| !dependency.soft);
            let mut others = hard.map(|dependency| {
                place
                    .tasks
                    .iter()
                    .find(|other| other.name == dependency.name.as_str())
                    .map(|other| &other.stage)
            });
            let is_passing = |stage: Option<&Stage>| match stage {
                Some(Stage::Ended(result)) => *result == BuildResult::Success,
                Some(Stage::Waiting | Stage::UnderWay { .. } | Stage::Paused { .. }) => true,
                None => false,
            };
            task.stage == Stage::Waiting && !others.all(is_passing)
        };
        let Some(at) = place.tasks.iter().position(is_barred) else { return };
        place.tasks[at].stage = Stage::Ended(BuildResult::Skipped);
    }
}
