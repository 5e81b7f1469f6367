//! The job graph of one item: what may start, what never will, and what a finished job decides
//! about those behind it.

use super::{Stop, Work};
use crate::item::{Item, Job, JobStatus};
use crate::told::Told;
use serde_json::{Map, Value};
use sluice_model::build::BuildResult;
use sluice_model::job::Shared;
use sluice_model::{BuildId, ItemId, JobName, Timestamp};
use std::collections::BTreeSet;

/// Bytes of what builds of an item chose that its record holds; without it, who takes a build over
/// leaves out what the other one does.
const CHOSEN_BYTES_MAX: usize = 2 << 10;

/// Bytes that a name takes in a record besides its text.
const NAME_BYTES: usize = 3;

/// Returns whether every job it depends on is over in a way that lets it run, or paused for it.
pub(super) fn is_unblocked(item: &Item, job: &Job) -> bool {
    job.summary.dependencies.iter().all(|dependency| {
        let other = item.jobs.iter().find(|other| other.summary.name == dependency.name);
        match other {
            Some(other) if dependency.soft => other.result().is_some() || other.is_paused(),
            Some(other) => other.is_served(),
            None => dependency.soft,
        }
    })
}

/// Skips jobs whose hard dependencies did not pass (J12). Returns whether any was.
pub(super) fn settle_dependents(item: &mut Item, now: Timestamp) -> bool {
    let mut any = false;
    // Each round settles at least one job, or it is the last.
    for _ in 0..item.jobs.len() {
        let waiting =
            item.jobs.iter().enumerate().filter(|(_, job)| job.status == JobStatus::Waiting);
        let Some((at, why)) = waiting.filter_map(|(at, job)| Some((at, barred(item, job)?))).next()
        else {
            break;
        };
        item.jobs[at].waits_for = None;
        item.jobs[at].status = ended(BuildResult::Skipped, Some(why), now);
        any = true;
    }
    any
}

/// Returns whether a job will never run.
pub(super) fn is_barred(item: &Item, job: &Job) -> bool {
    barred(item, job).is_some()
}

/// Returns why a job will never run, if so: the first of the jobs it depends on that did not
/// succeed. Where that one was skipped itself, what it was skipped for counts for this one too.
fn barred(item: &Item, job: &Job) -> Option<String> {
    let hard = job.summary.dependencies.iter().filter(|dependency| !dependency.soft);
    hard.filter_map(|dependency| {
        let name = &dependency.name;
        let Some(other) = item.jobs.iter().find(|other| other.summary.name == *name) else {
            return Some(format!("Skipped since it depends on the job {name}, which is not run"));
        };
        match &other.status {
            JobStatus::Ended { result: BuildResult::Skipped, detail: Some(why), .. } => {
                Some(why.clone())
            }
            JobStatus::Ended { result, .. } if !result.passed() => {
                Some(format!("Skipped due to failed job {name}"))
            }
            _ => None,
        }
    })
    .next()
}

/// Returns the positions of all jobs behind one, directly or not.
pub(super) fn behind(item: &Item, at: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut level = BTreeSet::from([at]);
    // A graph is not deeper than it has jobs.
    for _ in 0..item.jobs.len() {
        let is_next = |job: &Job| {
            let names = job.summary.dependencies.iter().map(|dependency| &dependency.name);
            names
                .into_iter()
                .any(|name| level.iter().any(|before| item.jobs[*before].summary.name == *name))
        };
        let next: BTreeSet<usize> =
            (0..item.jobs.len()).filter(|other| is_next(&item.jobs[*other])).collect();
        level = next.into_iter().filter(|other| *other != at && found.insert(*other)).collect();
        if level.is_empty() {
            break;
        }
    }
    found
}

/// Returns whether all is over that runs beside a job while that is paused: what runs after the
/// reports waits for it itself.
fn is_over_behind(item: &Item, at: usize) -> bool {
    let is_beside =
        |other: &&usize| item.jobs[at].summary.reporter || !item.jobs[**other].summary.reporter;
    behind(item, at).iter().filter(is_beside).all(|other| item.jobs[*other].result().is_some())
}

/// Has everything behind a job wait again, since the build that it ran beside is gone; returns what
/// has to stop for it. What was attempted that way is no attempt. What a job that is not asked
/// again left out stays left out.
pub(super) fn begin_again_behind(item: &mut Item, at: usize, why: &str) -> Vec<Stop> {
    let mut stops = Vec::new();
    let again = behind(item, at);
    let others =
        item.jobs.iter().enumerate().filter(|(other, _)| *other != at && !again.contains(other));
    let chosen: Vec<String> = others.map(|(_, job)| left_out_by(&job.summary.name)).collect();
    for other in again {
        let job = &mut item.jobs[other];
        if let JobStatus::Ended { result: BuildResult::Skipped, detail: Some(why), .. } =
            &job.status
            && chosen.contains(why)
        {
            continue;
        }
        let request = job.request.take();
        if job.is_under_way()
            && let Some(build) = job.build.clone()
        {
            stops.push(Stop { build, request, why: why.to_owned(), lost: false });
        }
        if job.build.take().is_some() {
            job.attempt = job.attempt.saturating_sub(1);
        }
        job.waits_for = None;
        job.told = Told::default();
        job.chosen = None;
        job.status = JobStatus::Waiting;
    }
    stops
}

/// Skips the jobs directly behind a finished one that its `zuul.child_jobs` leaves out; without
/// that list all go on.
///
/// What is behind those by a hard dependency follows in [`settle_dependents`].
pub(super) fn choose_children(
    item: &mut Item,
    at: usize,
    returned: &Map<String, Value>,
    now: Timestamp,
) {
    item.jobs[at].chosen = None;
    let Some(chosen) =
        returned.get("zuul").and_then(|zuul| zuul.get("child_jobs")).and_then(Value::as_array)
    else {
        return;
    };
    let chosen: Vec<JobName> = chosen.iter().filter_map(Value::as_str).map(JobName::from).collect();
    leave_out(item, at, &chosen, now);
    if has_room_for(item, at, &chosen) {
        item.jobs[at].chosen = Some(chosen);
    }
}

/// Skips the jobs directly behind one that waited for it and that its build did not choose.
pub(super) fn leave_out(item: &mut Item, at: usize, chosen: &[JobName], now: Timestamp) {
    let parent = item.jobs[at].summary.name.clone();
    for job in item.jobs.iter_mut().filter(|job| job.status == JobStatus::Waiting) {
        let is_child = job.summary.dependencies.iter().any(|dependency| dependency.name == parent);
        if is_child && !chosen.contains(&job.summary.name) {
            job.status = ended(BuildResult::Skipped, Some(left_out_by(&parent)), now);
        }
    }
}

/// Returns whether an item keeps what a build of it chose: another change may take the build over,
/// and its record has room.
pub(super) fn has_room_for(item: &Item, at: usize, chosen: &[JobName]) -> bool {
    let bytes = |names: &[JobName]| {
        names.iter().map(|name| name.as_str().len() + NAME_BYTES).sum::<usize>()
    };
    let others = item.jobs.iter().enumerate().filter(|(other, _)| *other != at);
    let kept: usize = others.filter_map(|(_, job)| job.chosen.as_deref()).map(bytes).sum();
    let is_shared =
        item.jobs[at].summary.shared != Shared::Never && !item.candidate.cycle.is_empty();
    is_shared && kept + bytes(chosen) <= CHOSEN_BYTES_MAX
}

/// Returns what is told of a job that a finished one left out of what is behind it.
pub(super) fn left_out_by(parent: &JobName) -> String {
    format!("Skipped due to child_jobs return value in job {parent}")
}

/// Returns the builds whose returned data a job is given: of all jobs before it, the farthest
/// first, so that what a nearer one says wins.
pub(super) fn parents(item: &Item, job: &Job) -> Vec<BuildId> {
    let mut near_first: Vec<usize> = Vec::new();
    let mut level: BTreeSet<usize> = positions(item, job).collect();
    // A graph is not deeper than it has jobs; what is met again farther away counts as farther
    // away.
    for _ in 0..item.jobs.len() {
        if level.is_empty() {
            break;
        }
        near_first.retain(|at| !level.contains(at));
        near_first.extend(level.iter().rev());
        level = level.iter().flat_map(|at| positions(item, &item.jobs[*at])).collect();
    }
    near_first.iter().rev().filter_map(|at| item.jobs[*at].build.clone()).collect()
}

fn positions<'a>(item: &'a Item, job: &'a Job) -> impl Iterator<Item = usize> + 'a {
    let named = |name: &JobName| item.jobs.iter().position(|other| other.summary.name == *name);
    job.summary.dependencies.iter().filter_map(move |dependency| named(&dependency.name))
}

impl Work<'_> {
    /// Lets paused builds go on whose followers are all over, wherever in the queue they stand.
    pub(super) fn resume_paused(&mut self) {
        let pauses = |item: &&Item| item.jobs.iter().any(Job::is_paused);
        let ids: Vec<ItemId> =
            self.items.values().filter(pauses).map(|item| item.id.clone()).collect();
        for id in ids {
            let Some(item) = self.items.get(&id) else { continue };
            let is_ready = |at: &usize| {
                matches!(item.jobs[*at].status, JobStatus::Paused { resumed: false, .. })
                    && is_over_behind(item, *at)
                    && self.is_over_elsewhere(item, item.jobs[*at].build.as_ref())
            };
            let ready: Vec<usize> = (0..item.jobs.len()).filter(is_ready).collect();
            for at in ready {
                if !self.has_room(2) {
                    return;
                }
                let Some(job) = self.item(&id).and_then(|item| item.jobs.get_mut(at)) else {
                    continue;
                };
                let JobStatus::Paused { resumed, .. } = &mut job.status else { continue };
                *resumed = true;
                let (build, name) = (job.build.clone(), job.summary.name.clone());
                self.plan.resumes.extend(build);
                self.note(&id, format!("{name}: the jobs behind it are over, so it goes on"));
            }
        }
    }

    /// Returns whether what is behind a build is over for the other changes that share it, too.
    fn is_over_elsewhere(&self, item: &Item, build: Option<&BuildId>) -> bool {
        let others = self.items.values().filter(|other| other.id != item.id);
        others
            .flat_map(|other| other.jobs.iter().enumerate().map(move |(at, job)| (other, at, job)))
            .all(|(other, at, job)| job.build.as_ref() != build || is_over_behind(other, at))
    }

    /// Returns whether an item is known to fail whose project asks to end the rest then
    /// (`fail-fast`). Builds of a change in a cycle may be those of the changes beside it as well:
    /// of a bundle that fails every job is run to its end.
    pub(super) fn is_to_cut_short(&self, id: &ItemId) -> bool {
        let is_cut = |item: &Item| {
            item.merged().is_some_and(|merged| merged.fail_fast)
                && item.is_failing()
                && !item.is_complete()
                && item.candidate.cycle.is_empty()
        };
        self.items.get(id).is_some_and(is_cut)
    }

    /// Ends the rest of an item that is known to fail where its project asks for that (G20).
    pub(super) fn cut_short(&mut self, id: &ItemId) {
        if !self.is_to_cut_short(id) {
            return;
        }
        let why = "another job of the change failed, and its project asks to fail fast";
        if !self.has_room(1) || !self.stop_builds(id, why) {
            return;
        }
        let now = self.now;
        if let Some(item) = self.item(id) {
            for job in item.jobs.iter_mut().filter(|job| job.status == JobStatus::Waiting) {
                job.status = ended(BuildResult::Skipped, Some(why.to_owned()), now);
            }
        }
    }
}

/// Returns the status of a job that ended without a build of its own to tell.
pub(super) fn ended(result: BuildResult, detail: Option<String>, now: Timestamp) -> JobStatus {
    JobStatus::Ended { result, detail, started_at: None, ended_at: now, log_url: None }
}
