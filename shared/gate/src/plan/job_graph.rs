//! The job graph of one item: which jobs may start, which never run, and how the end of a job
//! affects its dependents.

use super::ledger::Full;
use super::{BuildStop, Planner, QueueAction, StopCause};
use crate::item::{Item, Job, JobStatus};
use crate::job_feedback::JobFeedback;
use serde_json::{Map, Value};
use sluice_model::build::BuildResult;
use sluice_model::job::BuildSharing;
use sluice_model::{BuildId, ItemId, JobName, Timestamp};
use std::collections::BTreeSet;

/// Bytes of `zuul.child_jobs` lists that an item's record holds. A list that does not fit is not
/// passed on to changes that share the build.
const CHOSEN_BYTES_MAX: usize = 2 << 10;

/// Bytes of a name in a record besides its text.
const NAME_BYTES: usize = 3;

/// Returns whether all dependencies of a job allow it to run. A hard dependency must have passed, a
/// soft one must have ended in any way; both may also be paused. A dependency that the item does
/// not have blocks only if it is hard.
pub(super) fn is_unblocked(item: &Item, job: &Job) -> bool {
    job.summary.dependencies.iter().all(|dependency| {
        let other = item.jobs.iter().find(|other| other.summary.name == dependency.name);
        match other {
            Some(other) if dependency.soft => other.result().is_some() || other.is_paused(),
            Some(other) => other.satisfies_dependents(),
            None => dependency.soft,
        }
    })
}

/// Ends waiting jobs as skipped if a hard dependency did not pass or does not exist, and then those
/// that depend on them (J12). Returns whether any was skipped.
pub(super) fn skip_unreachable_jobs(item: &mut Item, now: Timestamp) -> bool {
    let mut any = false;
    // Each round skips at least one job, or is the last.
    for _ in 0..item.jobs.len() {
        let waiting =
            item.jobs.iter().enumerate().filter(|(_, job)| job.status == JobStatus::Waiting);
        let Some((at, why)) =
            waiting.filter_map(|(at, job)| Some((at, unreachable_reason(item, job)?))).next()
        else {
            break;
        };
        skip_job(&mut item.jobs[at], Some(why), now);
        any = true;
    }
    any
}

/// Returns whether a job will never run, because a hard dependency ended without passing or does
/// not exist.
pub(super) fn is_unreachable(item: &Item, job: &Job) -> bool {
    unreachable_reason(item, job).is_some()
}

/// Returns why a job will never run, or `None` if it still may: its first hard dependency that
/// ended without passing or does not exist. If that one was skipped, its own reason is passed on.
fn unreachable_reason(item: &Item, job: &Job) -> Option<String> {
    let hard = job.summary.dependencies.iter().filter(|dependency| !dependency.soft);
    hard.filter_map(|dependency| {
        let name = &dependency.name;
        let Some(other) = item.jobs.iter().find(|other| other.summary.name == *name) else {
            return Some(format!(
                "Skipped because it depends on the job {name}, which does not run"
            ));
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

/// Returns the positions of all direct and indirect dependents of a job, hard and soft, without the
/// job itself.
pub(super) fn dependents(item: &Item, at: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut level = BTreeSet::from([at]);
    // A graph is not deeper than its number of jobs.
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

/// Returns whether all direct and indirect dependents of the paused job at `at` have ended. For a
/// job that is no reporter job, reporter jobs do not count.
fn are_dependents_over(item: &Item, at: usize) -> bool {
    let is_beside =
        |other: &&usize| item.jobs[at].summary.reporter || !item.jobs[**other].summary.reporter;
    dependents(item, at).iter().filter(is_beside).all(|other| item.jobs[*other].result().is_some())
}

/// Lets all direct and indirect dependents of the job at `at` wait again, since its paused build is
/// gone. Returns their builds that are under way, for the caller to stop for the reason `why`.
/// Their lost attempts do not count. Jobs that a job outside of this set did not choose stay
/// skipped.
pub(super) fn restart_dependents(item: &mut Item, at: usize, why: &str) -> Vec<BuildStop> {
    let mut stops = Vec::new();
    let again = dependents(item, at);
    let others =
        item.jobs.iter().enumerate().filter(|(other, _)| *other != at && !again.contains(other));
    let chosen: Vec<String> = others.map(|(_, job)| left_out_reason(&job.summary.name)).collect();
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
            stops.push(BuildStop {
                build,
                request,
                why: why.to_owned(),
                cause: StopCause::Cancelled,
            });
        }
        if job.build.take().is_some() {
            job.attempt = job.attempt.saturating_sub(1);
        }
        job.waits_for = None;
        job.feedback = JobFeedback::default();
        job.child_jobs = None;
        job.status = JobStatus::Waiting;
    }
    stops
}

/// Skips the waiting direct dependents of the job at `at` that `zuul.child_jobs` in the data
/// `returned` by its build does not list; without the list all go on. Stores the list in the job if
/// [`can_store_choice`] allows it, and otherwise removes the stored one.
///
/// Their hard dependents follow in [`skip_unreachable_jobs`].
pub(super) fn choose_children(
    item: &mut Item,
    at: usize,
    returned: &Map<String, Value>,
    now: Timestamp,
) {
    item.jobs[at].child_jobs = None;
    let Some(chosen) =
        returned.get("zuul").and_then(|zuul| zuul.get("child_jobs")).and_then(Value::as_array)
    else {
        return;
    };
    let chosen: Vec<JobName> = chosen.iter().filter_map(Value::as_str).map(JobName::from).collect();
    skip_unchosen(item, at, &chosen, now);
    if can_store_choice(item, at, &chosen) {
        item.jobs[at].child_jobs = Some(chosen);
    }
}

/// Ends the waiting direct dependents of the job at `at` as skipped unless `chosen` lists them.
pub(super) fn skip_unchosen(item: &mut Item, at: usize, chosen: &[JobName], now: Timestamp) {
    let parent = item.jobs[at].summary.name.clone();
    for job in item.jobs.iter_mut().filter(|job| job.status == JobStatus::Waiting) {
        let is_child = job.summary.dependencies.iter().any(|dependency| dependency.name == parent);
        if is_child && !chosen.contains(&job.summary.name) {
            skip_job(job, Some(left_out_reason(&parent)), now);
        }
    }
}

/// Returns whether an item stores which dependents a build chose: another change may share the
/// build, and the record has room.
pub(super) fn can_store_choice(item: &Item, at: usize, chosen: &[JobName]) -> bool {
    let bytes = |names: &[JobName]| {
        names.iter().map(|name| name.as_str().len() + NAME_BYTES).sum::<usize>()
    };
    let others = item.jobs.iter().enumerate().filter(|(other, _)| *other != at);
    let stored: usize = others.filter_map(|(_, job)| job.child_jobs.as_deref()).map(bytes).sum();
    let is_shared =
        item.jobs[at].summary.sharing != BuildSharing::Never && !item.candidate.bundle.is_empty();
    is_shared && stored + bytes(chosen) <= CHOSEN_BYTES_MAX
}

/// Formats the reason of a job that a finished job did not choose.
pub(super) fn left_out_reason(parent: &JobName) -> String {
    format!("Skipped due to child_jobs return value in job {parent}")
}

/// Returns the builds of all direct and indirect dependencies of a job, whose returned data it
/// receives: the farthest first, so that nearer ones override them. Dependencies without a build
/// are left out.
pub(super) fn parent_builds(item: &Item, job: &Job) -> Vec<BuildId> {
    let mut near_first: Vec<usize> = Vec::new();
    let mut level: BTreeSet<usize> = dependency_positions(item, job).collect();
    // A graph is not deeper than its number of jobs. A job that is reached twice counts as far as
    // its longest path.
    for _ in 0..item.jobs.len() {
        if level.is_empty() {
            break;
        }
        near_first.retain(|at| !level.contains(at));
        near_first.extend(level.iter().rev());
        level = level.iter().flat_map(|at| dependency_positions(item, &item.jobs[*at])).collect();
    }
    near_first.iter().rev().filter_map(|at| item.jobs[*at].build.clone()).collect()
}

/// Returns the positions of the direct dependencies of a job, hard and soft. Those that the item
/// does not have are left out.
fn dependency_positions<'a>(item: &'a Item, job: &'a Job) -> impl Iterator<Item = usize> + 'a {
    let named = |name: &JobName| item.jobs.iter().position(|other| other.summary.name == *name);
    job.summary.dependencies.iter().filter_map(move |dependency| named(&dependency.name))
}

impl Planner<'_> {
    /// Resumes paused builds, at any position of the queue, once their dependents are over in every
    /// item that shares the build. Must be called after jobs were ordered and skipped, since
    /// skipped jobs count as over. Each build is resumed once, which the job and the item's reasons
    /// record. Builds that do not fit into the transaction wait for the next plan.
    pub(super) fn resume_paused(&mut self) {
        let pauses = |item: &&Item| item.jobs.iter().any(Job::is_paused);
        let ids: Vec<ItemId> =
            self.items.values().filter(pauses).map(|item| item.id.clone()).collect();
        for id in ids {
            let Some(item) = self.items.get(&id) else { continue };
            let is_ready = |at: &usize| {
                matches!(item.jobs[*at].status, JobStatus::Paused { resumed: false, .. })
                    && are_dependents_over(item, *at)
                    && self.are_dependents_over_elsewhere(item, item.jobs[*at].build.as_ref())
            };
            let ready: Vec<usize> = (0..item.jobs.len()).filter(is_ready).collect();
            for at in ready {
                if !self.has_room(2) {
                    return;
                }
                let Some(job) = self.item_mut(&id).and_then(|item| item.jobs.get_mut(at)) else {
                    continue;
                };
                let JobStatus::Paused { resumed, .. } = &mut job.status else { continue };
                *resumed = true;
                let (build, name) = (job.build.clone(), job.summary.name.clone());
                self.ledger.extend(build.map(QueueAction::ResumeBuild));
                self.note(&id, format!("{name}: resumed, since its dependent jobs are over"));
            }
        }
    }

    /// Returns whether the dependents of a shared build are over for the other changes that share
    /// it; `true` if none does.
    fn are_dependents_over_elsewhere(&self, item: &Item, build: Option<&BuildId>) -> bool {
        let others = self.items.values().filter(|other| other.id != item.id);
        others
            .flat_map(|other| other.jobs.iter().enumerate().map(move |(at, job)| (other, at, job)))
            .all(|(other, at, job)| job.build.as_ref() != build || are_dependents_over(other, at))
    }

    /// Returns whether the remaining jobs of a failing item must be ended, since its project has
    /// `fail-fast`; `false` if all have ended. Never for members of a bundle: their builds may be
    /// shared, so all jobs run to their end.
    pub(super) fn should_fail_fast(&self, id: &ItemId) -> bool {
        let is_cut = |item: &Item| {
            item.merged().is_some_and(|merged| merged.fail_fast)
                && item.is_failing()
                && !item.is_complete()
                && item.candidate.bundle.is_empty()
        };
        self.items.get(id).is_some_and(is_cut)
    }

    /// Ends the remaining jobs of a failing item if its project has `fail-fast` (G20): stops the
    /// builds under way and skips the waiting jobs. Does nothing for members of a bundle. Where not
    /// all builds fit into the transaction, the next plan stops the rest and skips the jobs.
    pub(super) fn fail_fast(&mut self, id: &ItemId) {
        if !self.should_fail_fast(id) {
            return;
        }
        let why = "another job of the change failed (fail-fast)";
        if !self.has_room(1) || self.stop_builds(id, why) == Err(Full) {
            return;
        }
        let now = self.now;
        if let Some(item) = self.item_mut(id) {
            for job in item.jobs.iter_mut().filter(|job| job.status == JobStatus::Waiting) {
                skip_job(job, Some(why.to_owned()), now);
            }
        }
    }
}

/// Ends a waiting job at `now` as skipped, without a build. It no longer names the build of an
/// earlier attempt, which has a result of its own (J16).
pub(super) fn skip_job(job: &mut Job, detail: Option<String>, now: Timestamp) {
    (job.build, job.waits_for) = (None, None);
    job.status = ended(BuildResult::Skipped, detail, now);
}

/// Returns the status of a job that ends at `now` without a result of a build: without start time
/// and log.
pub(super) fn ended(result: BuildResult, detail: Option<String>, now: Timestamp) -> JobStatus {
    JobStatus::Ended { result, detail, started_at: None, ended_at: now, log_url: None }
}
