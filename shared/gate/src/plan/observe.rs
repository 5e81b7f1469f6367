//! Sees what merger and executors answered, and carries out resets that the head already decided.

use super::graph::{begin_again_behind, choose_children, ended};
use super::{RECORDS_MAX, RunSeen, Stop, Work};
use crate::item::{Ask, Item, Job, JobStatus, REASON_BYTES_MAX, WHY_BYTES_MAX, cut};
use crate::merge::{LINE_NOTE_BYTES_MAX, LINE_NOTES_MAX, LineNote, MergeResult, Merged};
use crate::queue::{Slot, Standing};
use crate::told::{self, Told};
use sluice_model::build::{BuildResult, Ended};
use sluice_model::{ItemId, Timestamp};

/// Characters of the reason why a job ended that an item remembers.
const WHY_MAX: usize = 300;

/// Which plan decided the resets that are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    /// One of before, which had no room for them.
    Before,
    /// This one.
    Now,
}

impl Work<'_> {
    /// Brings items up to the generation that the head gave them: their builds stop, their
    /// questions are open again. Returns false where some are left for the next plan, since the
    /// transaction is full.
    pub(super) fn carry_out_resets(&mut self, decided: Decided) -> bool {
        for at in 0..self.head.slots.len() {
            let Slot { id, generation, .. } = &self.head.slots[at];
            if self.items.get(id).is_none_or(|item| item.generation >= *generation) {
                continue;
            }
            let (id, generation) = (id.clone(), *generation);
            // All that it writes goes into one plan, so that the item is written once; one with
            // very many builds takes several.
            let builds = self
                .items
                .get(&id)
                .map_or(0, |item| item.jobs.iter().filter(|job| job.is_under_way()).count());
            let records = if builds == 0 { 1 } else { (2 + 2 * builds).min(RECORDS_MAX / 2) };
            if !self.has_room(records) || !self.stop_builds(&id, "what it is tested on changed") {
                return false;
            }
            // What an earlier plan decided and had no room for is told by where the item stands.
            let why = self
                .moved
                .remove(&id)
                .or_else(|| (decided == Decided::Before).then(|| self.why_again(at)));
            if let Some(item) = self.item(&id) {
                if let Some(why) = why {
                    item.note(why);
                }
                item.generation = generation;
                item.layout = 0;
                item.tested_tree = None;
                item.ask = Ask::No;
                item.jobs.clear();
            }
        }
        true
    }

    /// Takes in answers to open questions.
    pub(super) fn observe(&mut self) {
        for at in 0..self.head.slots.len() {
            let Slot { id, generation, .. } = &self.head.slots[at];
            if self.items.get(id).is_none_or(|item| item.generation != *generation) {
                continue;
            }
            let has_news = self.has_news(id);
            if !has_news && !self.is_to_cut_short(id) {
                continue;
            }
            let id = id.clone();
            if has_news {
                // An item with very many builds to stop is taken in alone; its transaction has the
                // rest of the hundred.
                if !self.has_room((1 + 2 * self.stops_of_news(&id)).min(RECORDS_MAX - 2)) {
                    return;
                }
                self.observe_merge(&id);
                self.observe_runs(&id);
            }
            self.cut_short(&id);
        }
    }

    fn has_news(&self, id: &ItemId) -> bool {
        let builds = self.items.get(id).map(|item| &item.jobs).into_iter().flatten();
        let mut builds =
            builds.filter(|job| job.is_under_way()).filter_map(|job| job.build.as_ref());
        self.snapshot.outcomes.contains_key(id)
            || builds.any(|build| self.snapshot.runs.contains_key(build))
    }

    /// Returns how many builds an item's news may stop at most.
    fn stops_of_news(&self, id: &ItemId) -> usize {
        let jobs = self.items.get(id).map(|item| item.jobs.as_slice()).unwrap_or_default();
        let under_way = jobs.iter().filter(|job| job.is_under_way());
        if self.snapshot.outcomes.contains_key(id) || jobs.iter().any(Job::is_paused) {
            return under_way.count();
        }
        let seen = under_way.filter_map(|job| self.snapshot.runs.get(job.build.as_ref()?));
        seen.filter(|seen| matches!(seen, RunSeen::Lost { .. } | RunSeen::NoNodes(_))).count()
    }

    fn observe_merge(&mut self, id: &ItemId) {
        let layout = self.head.layout;
        let Some(item) = self.items.get(id).filter(|item| matches!(item.ask, Ask::Asked { .. }))
        else {
            return;
        };
        let Some(outcome) = self
            .snapshot
            .outcomes
            .get(id)
            .filter(|o| o.generation == item.generation && o.layout == layout)
        else {
            return;
        };
        let result = outcome.result.clone();
        match result {
            MergeResult::Merged(merged) => self.take_merged(id, merged),
            MergeResult::Conflict { change, detail } => {
                self.take_unmergeable(
                    id,
                    format!("{change} does not merge: {detail}"),
                    false,
                    Vec::new(),
                );
            }
            MergeResult::Misconfigured { errors, mut notes } => {
                notes.truncate(LINE_NOTES_MAX);
                for note in &mut notes {
                    note.text = cut(&note.text, LINE_NOTE_BYTES_MAX);
                }
                self.take_unmergeable(id, errors.join("\n\n"), true, notes);
            }
        }
    }

    fn take_merged(&mut self, id: &ItemId, merged: Merged) {
        let layout = self.head.layout;
        let now = self.now;
        let note = format!("merged: tree {} is to be tested", merged.tested.tree.short());
        let Some(item) = self.item(id) else { return };
        let is_other_tree =
            (item.tested_tree.as_ref()).is_some_and(|tree| *tree != merged.tested.tree);
        if is_other_tree {
            // Its branch moved while it was frozen again: what was tested, by its own builds or by
            // those of whatever stands on it or beside it in a bundle, is not what would land.
            self.note(id, "its branch moved: tested again".to_owned());
            self.next_generation(id);
            return;
        }
        item.tested_tree = Some(merged.tested.tree.clone());
        item.layout = layout;
        let old = std::mem::take(&mut item.jobs);
        let (jobs, gone) = reconcile(old, &merged);
        item.jobs = jobs;
        let mut stops = Vec::new();
        for job in gone.iter().filter(|job| job.is_paused()) {
            let Some(at) = item.jobs.iter().position(|new| new.summary.name == job.summary.name)
            else {
                continue;
            };
            stops.extend(begin_again_behind(
                item,
                at,
                "the configuration of the paused job it ran beside changed",
            ));
        }
        item.ask = Ask::Merged(merged);
        item.note(note.clone());
        let stops: Vec<Stop> =
            stops.into_iter().filter(|stop| !self.is_wanted_elsewhere(id, &stop.build)).collect();
        self.plan.stops.extend(stops);
        for job in gone.into_iter().filter(Job::is_under_way) {
            if let Some(build) = job.build.filter(|build| !self.is_wanted_elsewhere(id, build)) {
                let why = "the configuration of its job changed".to_owned();
                self.plan.stops.push(Stop { build, request: job.request, why, lost: false });
            }
        }
        self.plan.reasons.push(format!("{id} {note} at {}", now.to_iso()));
        self.set_standing(id, Standing::Testing);
    }

    fn take_unmergeable(
        &mut self,
        id: &ItemId,
        why: String,
        configuration: bool,
        notes: Vec<LineNote>,
    ) {
        let why = cut(&why, WHY_BYTES_MAX);
        if !self.stop_builds(id, "it cannot be tested any more") {
            return; // The answer is there for the next plan too.
        }
        let layout = self.head.layout;
        if let Some(item) = self.item(id) {
            item.layout = layout;
            item.ask = Ask::Unmergeable { why: why.clone(), configuration, notes };
            item.jobs.clear();
        }
        self.note(id, why);
        self.set_standing(id, Standing::Failing);
    }

    fn observe_runs(&mut self, id: &ItemId) {
        let has_changed = |item: &&Item| {
            item.jobs.iter().any(|job| self.run_of(job).is_some_and(|seen| is_news(job, seen)))
        };
        let Some(mut item) = self.items.get(id).filter(has_changed).cloned() else {
            return; // Most builds run on as they did, and a copy of each item would be most of what a look costs.
        };
        let mut changed = false;
        for at in 0..item.jobs.len() {
            let Some(build) = item.jobs[at].build.clone().filter(|_| item.jobs[at].is_under_way())
            else {
                continue;
            };
            let Some(seen) = self.snapshot.runs.get(&build) else { continue };
            if let RunSeen::Lost { why } = seen {
                // Nobody will end it any more: its nodes are free only if somebody says so.
                let (request, why) = (item.jobs[at].request.clone(), why.clone());
                self.plan.stops.push(Stop { build, request, why, lost: true });
            }
            changed |= take_run(&mut item, at, seen, self.now, &mut self.plan.stops);
        }
        if changed {
            self.touched.insert(id.clone());
            self.items.insert(id.clone(), item);
        }
    }

    /// Returns what is known of the build of a job that is under way.
    fn run_of(&self, job: &Job) -> Option<&RunSeen> {
        job.build
            .as_ref()
            .filter(|_| job.is_under_way())
            .and_then(|build| self.snapshot.runs.get(build))
    }

    fn next_generation(&mut self, id: &ItemId) {
        let Some(position) = self.head.position(id) else { return };
        // What is tested together starts again together.
        for at in self.head.bundle(position) {
            self.head.slots[at].generation += 1;
            self.head.slots[at].standing = Standing::Waiting;
        }
    }

    pub(super) fn set_standing(&mut self, id: &ItemId, standing: Standing) {
        if let Some(slot) =
            self.head.slots.iter_mut().find(|slot| slot.id == *id && !slot.standing.is_decided())
        {
            slot.standing = standing;
        }
    }
}

/// Keeps the state of jobs that are frozen as they were; returns the others as gone (Z4.7; a
/// reconfiguration spares their builds).
fn reconcile(mut old: Vec<Job>, merged: &Merged) -> (Vec<Job>, Vec<Job>) {
    let mut jobs = Vec::with_capacity(merged.jobs.len());
    for summary in &merged.jobs {
        let kept = old
            .iter()
            .position(|job| job.summary.name == summary.name && job.summary.hash == summary.hash);
        jobs.push(match kept {
            Some(at) => old.swap_remove(at),
            None => Job::new(summary.clone()),
        });
    }
    (jobs, old)
}

/// Returns whether [`take_run`] would change anything about a job by what is known of its build.
fn is_news(job: &Job, seen: &RunSeen) -> bool {
    match seen {
        RunSeen::Paused { .. } => !job.is_paused(),
        RunSeen::Running { started_at, pre_fail } => {
            let status = JobStatus::Running { started_at: *started_at, pre_fail: *pre_fail };
            !job.is_paused() && job.status != status
        }
        RunSeen::NeverBegun | RunSeen::NodesReady => false,
        RunSeen::NoNodes(_) | RunSeen::Lost { .. } | RunSeen::Ended(_) => true,
    }
}

fn take_run(
    item: &mut Item,
    at: usize,
    seen: &RunSeen,
    now: Timestamp,
    stops: &mut Vec<Stop>,
) -> bool {
    let (name, room) = (item.jobs[at].summary.name.clone(), told::room(item, at));
    let job = &mut item.jobs[at];
    let was_paused = job.is_paused();
    match seen {
        RunSeen::Running { .. } | RunSeen::Paused { .. } if was_paused => return false,
        RunSeen::Paused { started_at, data } => {
            job.status = JobStatus::Paused { started_at: *started_at, resumed: false };
            choose_children(item, at, data, now);
            item.note(format!("{name}: is paused until the jobs behind it are over"));
            return true;
        }
        RunSeen::Running { started_at, pre_fail } => {
            let status = JobStatus::Running { started_at: *started_at, pre_fail: *pre_fail };
            if job.status == status {
                return false;
            }
            job.status = status;
            return true;
        }
        RunSeen::NeverBegun | RunSeen::NodesReady => return false,
        // The next nodeset is another order of the same attempt (N14).
        RunSeen::NoNodes(reason) if (job.alternative as usize) + 1 < job.summary.labels.len() => {
            let why = format!("{reason}; the next nodeset is asked for");
            stops.extend(job.build.take().map(|build| Stop {
                build,
                request: job.request.take(),
                why: why.clone(),
                lost: false,
            }));
            job.alternative += 1;
            job.attempt = job.attempt.saturating_sub(1);
            job.status = JobStatus::Waiting;
            item.note(format!("{name}: {why}"));
            return true;
        }
        RunSeen::NoNodes(reason) => {
            // Its request stands until nobody wants it.
            let (build, request) = (job.build.clone(), job.request.take());
            stops.extend(build.map(|build| Stop {
                build,
                request,
                why: reason.clone(),
                lost: false,
            }));
            job.status = ended(BuildResult::NodeFailure, Some(reason.clone()), now);
        }
        RunSeen::Lost { why } => {
            again_or(job, BuildResult::RetryLimit, Some(why.clone()), None, now)
        }
        RunSeen::Ended(end) if end.result == BuildResult::Retry => {
            again_or(job, BuildResult::RetryLimit, end.detail.clone(), Some(end), now);
        }
        RunSeen::Ended(end) => {
            job.status = ended_as(end);
            job.told = Told::of(&end.data, room);
            job.chosen = None;
            if end.result.passed() {
                choose_children(item, at, &end.data, now);
            }
        }
    }
    if was_paused && item.jobs[at].status == JobStatus::Waiting {
        // What ran beside it has lost what it was given: it runs again with the next attempt.
        stops.extend(begin_again_behind(
            item,
            at,
            &format!("the paused job {name} was lost and begins again"),
        ));
    }
    let word = item.jobs[at].result().map_or("is attempted again", BuildResult::as_str);
    let why = match &item.jobs[at].status {
        // A job that failed tells why in its log; the others were never let run to their end.
        JobStatus::Ended { result, detail: Some(why), .. }
            if !result.passed() && *result != BuildResult::Failure =>
        {
            format!(": {}", why.chars().take(WHY_MAX).collect::<String>())
        }
        _ => String::new(),
    };
    item.note(format!("{name}: {word}{why}"));
    true
}

/// Makes the job wait for a further attempt, or ends it when all are used up (J16).
fn again_or(
    job: &mut Job,
    last: BuildResult,
    detail: Option<String>,
    end: Option<&Ended>,
    now: Timestamp,
) {
    (job.request, job.chosen) = (None, None);
    if job.attempt < job.summary.attempts {
        job.status = JobStatus::Waiting;
    } else {
        job.status = match end {
            Some(end) => ended_as(&Ended { result: last, ..end.clone() }),
            None => ended(last, detail, now),
        };
    }
}

fn ended_as(end: &Ended) -> JobStatus {
    JobStatus::Ended {
        result: end.result,
        detail: end.detail.as_deref().map(|detail| cut(detail, REASON_BYTES_MAX)),
        started_at: end.started_at,
        ended_at: end.ended_at,
        log_url: end.log_url.clone(),
    }
}
