//! One build for several changes of a bundle, where they run the same job (`deduplicate`, D15).
//!
//! The first of them in the queue orders it, and the others take it over as it is: same build, same
//! request, same result. Nothing of it is kept anywhere but in the jobs of the items that name it.
//! What became of its nodes is told by the request alone, which is gone when the first has read it:
//! then the others learn it from the first.

use super::Work;
use super::graph::{has_room_for, leave_out, left_out_by};
use crate::item::{Item, Job, JobStatus};
use crate::told::{self, Told};
use sluice_model::build::{BuildResult, RequestRef};
use sluice_model::job::{Dependency, Shared};
use sluice_model::{BuildId, ItemId, JobName, Timestamp};

/// Whose build a job is given.
pub(super) enum Sharing {
    /// One of its own.
    Own,
    /// That of another change of the bundle, which has not been ordered yet.
    NotYet,
    /// That of another change.
    With(Box<Taken>),
}

/// A build that another change ordered.
pub(super) struct Taken {
    build: BuildId,
    /// Where its nodes are asked for, so that each of them sees what became of that.
    request: Option<RequestRef>,
    /// Which of the job's nodesets that is.
    alternative: u32,
    /// Whether the job takes its semaphores first by now.
    semaphores_first: bool,
    attempt: u32,
    status: JobStatus,
    /// What it told, where it is over.
    told: Told,
    /// Jobs behind it that it chose to leave out.
    left_out: Vec<(JobName, JobStatus)>,
    /// Which jobs behind it it chose, where that is known.
    chosen: Option<Vec<JobName>>,
    of: String,
    now: Timestamp,
}

impl Taken {
    /// Gives the build to a job of another item.
    pub(super) fn take(self, item: &mut Item, at: usize) {
        let Self {
            build,
            request,
            alternative,
            semaphores_first,
            attempt,
            status,
            told,
            left_out,
            chosen,
            of,
            now,
        } = self;
        let room = told::room(item, at);
        let job = &mut item.jobs[at];
        (job.build, job.attempt, job.status, job.waits_for) =
            (Some(build.clone()), attempt, status, None);
        (job.request, job.alternative, job.semaphores_first) =
            (request, alternative, semaphores_first);
        (job.told, job.taken_over) = (told.within(room), true);
        let name = job.summary.name.clone();
        if let Some(chosen) = &chosen {
            // The other one may have nothing behind it that this one has.
            leave_out(item, at, chosen, now);
        }
        let kept = chosen.filter(|chosen| has_room_for(item, at, chosen));
        item.jobs[at].chosen = kept;
        for job in item
            .jobs
            .iter_mut()
            .filter(|job| job.status == JobStatus::Waiting && is_behind(job, &name))
        {
            if let Some((_, status)) = left_out.iter().find(|(left, _)| *left == job.summary.name) {
                job.status = status.clone();
            }
        }
        if !item.builds.contains(&build) {
            item.builds.push(build);
        }
        item.note(format!("{name}: runs once for the cycle, with {of}"));
    }
}

impl Work<'_> {
    /// Returns whose build a job is to be given that may be ordered now.
    pub(super) fn shared_build(&self, item: &Item, at: usize) -> Sharing {
        let Some((other, twin)) = self.twin(item, at) else { return Sharing::Own };
        match &twin.build {
            Some(build) if twin.attempt > item.jobs[at].attempt => {
                Sharing::With(Box::new(taken(build, other, twin, self.now)))
            }
            // It ended without a build, or ended for good: nothing of it is to be had.
            _ if twin.status != JobStatus::Waiting => Sharing::Own,
            _ => Sharing::NotYet,
        }
    }

    /// Follows a shared build whose nodes cannot be had, which only the change that ordered it may
    /// have seen: its end, that the next nodeset is asked for, or that they were given back.
    /// Returns whether that was news.
    pub(super) fn follow_shared(&self, item: &mut Item, at: usize) -> bool {
        if !matches!(item.jobs[at].status, JobStatus::Ordered { .. }) {
            return false;
        }
        let Some((other, twin)) = self.twin(item, at) else { return false };
        let job = &item.jobs[at];
        match &twin.build {
            Some(build)
                if job.build == twin.build && twin.result() == Some(BuildResult::NodeFailure) =>
            {
                taken(build, other, twin, self.now).take(item, at);
                true
            }
            _ if twin.alternative > job.alternative => {
                let job = &mut item.jobs[at];
                (job.build, job.request, job.alternative) = (None, None, twin.alternative);
                job.attempt = job.attempt.saturating_sub(1);
                job.status = JobStatus::Waiting;
                true
            }
            _ if twin.semaphores_first && !job.semaphores_first => {
                item.jobs[at].begin_with_semaphores();
                true
            }
            _ => false,
        }
    }

    /// Returns the job of a change of the bundle, ahead in the queue, whose build can stand for
    /// this one, with its item.
    fn twin<'w>(&'w self, item: &Item, at: usize) -> Option<(&'w Item, &'w Job)> {
        let position = self.position(&item.id)?;
        self.head.slots[self.head.bundle(position).start..position].iter().find_map(|slot| {
            let other =
                self.items.get(&slot.id).filter(|other| other.generation == slot.generation)?;
            // What has succeeded keeps the jobs that it was frozen with.
            let is_frozen = other.reporting.is_some() || self.is_frozen_now(other);
            let twins = other.jobs.iter().filter(|_| other.merged().is_some() && is_frozen);
            let twin = twins.into_iter().find(|twin| are_one(item, &item.jobs[at], other, twin))?;
            Some((other, twin))
        })
    }

    /// Returns whether a change ahead sees to a build that this one shares.
    pub(super) fn is_seen_to(&self, item: &Item, build: &BuildId) -> bool {
        let Some(position) = self.position(&item.id) else { return false };
        let ahead = self.head.slots[self.head.bundle(position).start..position].iter();
        let jobs = ahead.filter_map(|slot| self.items.get(&slot.id)).flat_map(|item| &item.jobs);
        jobs.into_iter().any(|job| {
            job.is_under_way() && job.build.as_ref() == Some(build) && job.request.is_some()
        })
    }

    /// Returns whether another item of the queue waits for a build too.
    pub(super) fn is_wanted_elsewhere(&self, id: &ItemId, build: &BuildId) -> bool {
        let mut others =
            self.items.values().filter(|item| item.id != *id).flat_map(|item| &item.jobs);
        others.any(|job| job.is_under_way() && job.build.as_ref() == Some(build))
    }
}

fn taken(build: &BuildId, other: &Item, twin: &Job, now: Timestamp) -> Taken {
    Taken {
        build: build.clone(),
        request: twin.request.clone(),
        alternative: twin.alternative,
        semaphores_first: twin.semaphores_first,
        attempt: twin.attempt,
        status: twin.status.clone(),
        told: twin.told.clone(),
        left_out: left_out(other, twin),
        chosen: twin.chosen.clone().filter(|_| twin.is_served()),
        now,
        of: other.candidate.change.key.to_string(),
    }
}

/// Returns the jobs behind a build that the build itself left out. What else was skipped there was
/// so for what other jobs of that change came to, and the same jobs of another change may have to
/// run.
fn left_out(other: &Item, twin: &Job) -> Vec<(JobName, JobStatus)> {
    let name = &twin.summary.name;
    let why = left_out_by(name);
    let is_told = |job: &Job| match &job.status {
        JobStatus::Ended { result: BuildResult::Skipped, detail, .. } => {
            detail.as_deref() == Some(why.as_str())
        }
        _ => false,
    };
    // What could not run without one that was left out says the same, and may have been chosen
    // itself.
    let inherits = |job: &Job| {
        let mut hard = job.summary.dependencies.iter().filter(|dependency| !dependency.soft);
        hard.any(|dependency| {
            other.jobs.iter().any(|job| job.summary.name == dependency.name && is_told(job))
        })
    };
    let left_out =
        other.jobs.iter().filter(|job| is_behind(job, name) && is_told(job) && !inherits(job));
    left_out.map(|job| (job.summary.name.clone(), job.status.clone())).collect()
}

fn is_behind(job: &Job, name: &JobName) -> bool {
    job.summary.dependencies.iter().any(|before| before.name == *name)
}

/// Returns whether one build can stand for the jobs of two changes of a bundle: they may be one,
/// and what comes before them was one build as well.
fn are_one(item: &Item, job: &Job, other: &Item, twin: &Job) -> bool {
    let build = |item: &Item, name: &JobName| {
        item.jobs.iter().find(|job| job.summary.name == *name).map(|job| job.build.clone())
    };
    let before =
        |dependency: &Dependency| build(item, &dependency.name) == build(other, &dependency.name);
    may_be_one(item, job, other, twin) && job.summary.dependencies.iter().all(before)
}

/// Returns whether one build may stand for the jobs of two changes of a bundle, as far as these
/// jobs tell: they are frozen alike, and their projects and branches do not matter, or are the
/// same.
pub fn may_be_one(item: &Item, job: &Job, other: &Item, twin: &Job) -> bool {
    let (own, its) = (&job.summary, &twin.summary);
    let may = match own.shared {
        Shared::Never => false,
        // Of another branch its sources are others, and what passes there may fail here.
        Shared::InProject => {
            let (change, its) = (&item.candidate.change, &other.candidate.change);
            change.key.project == its.key.project && change.branch == its.branch
        }
        Shared::InCycle => true,
    };
    may && own.name.as_str() != "noop" && own.name == its.name && own.hash == its.hash
}
