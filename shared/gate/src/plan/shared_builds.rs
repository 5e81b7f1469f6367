//! Builds shared by several changes of a bundle that run the same job (`deduplicate`, D15).
//!
//! The first change in the queue orders the build; the others share it with its request and result.
//! Only the jobs that name the build record this. The node request exists only until the first
//! change has read its outcome; the others learn the outcome from the first.

use super::Planner;
use super::job_graph::{can_store_choice, left_out_reason, skip_unchosen};
use crate::item::{Item, Job, JobStatus, MergeStatus};
use crate::job_feedback::{self, JobFeedback};
use crate::queue::Slot;
use sluice_model::build::{BuildResult, RequestRef};
use sluice_model::change::ChangeKey;
use sluice_model::job::{BuildSharing, JobDependency};
use sluice_model::{BuildId, ItemId, JobName, Timestamp};

/// Which build a job gets.
pub(super) enum Sharing {
    /// A build of its own.
    OwnBuild,
    /// The build of another member, which is not ordered yet.
    Pending,
    /// The build of another member.
    Shared(Box<SharedBuild>),
}

/// A build that another member ordered.
pub(super) struct SharedBuild {
    build: BuildId,
    /// Its node request, so that each member sees the outcome.
    request: Option<RequestRef>,
    /// The index of its nodeset among the job's nodesets.
    alternative: u32,
    /// Whether the job acquires semaphores before nodes.
    semaphores_first: bool,
    attempt: u32,
    status: JobStatus,
    /// What it returned for the report, once it is over.
    feedback: JobFeedback,
    /// The dependents that it did not choose, with their status.
    left_out: Vec<(JobName, JobStatus)>,
    /// The dependents that it chose; `None` if it did not say or that is not known.
    chosen: Option<Vec<JobName>>,
    of: String,
    now: Timestamp,
}

impl SharedBuild {
    /// Assigns the build to the job at `at` of another item, with its attempt, status, node request
    /// and feedback. Skips the job's waiting dependents that the build did not choose. Adds the
    /// build and a reason to the item.
    pub(super) fn take(self, item: &mut Item, at: usize) {
        let Self {
            build,
            request,
            alternative,
            semaphores_first,
            attempt,
            status,
            feedback,
            left_out,
            chosen,
            of,
            now,
        } = self;
        let room = job_feedback::free_bytes(item, at);
        let job = &mut item.jobs[at];
        (job.build, job.attempt, job.status, job.waits_for) =
            (Some(build.clone()), attempt, status, None);
        (job.request, job.alternative, job.semaphores_first) =
            (request, alternative, semaphores_first);
        (job.feedback, job.is_shared_build) = (feedback.truncated_to(room), true);
        let name = job.summary.name.clone();
        if let Some(chosen) = &chosen {
            // The other member may lack dependents that this one has.
            skip_unchosen(item, at, chosen, now);
        }
        let stored = chosen.filter(|chosen| can_store_choice(item, at, chosen));
        item.jobs[at].child_jobs = stored;
        for job in item
            .jobs
            .iter_mut()
            .filter(|job| job.status == JobStatus::Waiting && is_direct_dependent(job, &name))
        {
            if let Some((_, status)) = left_out.iter().find(|(left, _)| *left == job.summary.name) {
                (job.build, job.status) = (None, status.clone());
            }
        }
        if !item.builds.contains(&build) {
            item.builds.push(build);
        }
        item.add_reason(now, format!("{name}: shares the build of {of} in the same bundle"));
    }
}

impl Planner<'_> {
    /// Returns the build that a job which may start gets: its own, or that of a member ahead with
    /// the same job. [`Sharing::Pending`] if that member has yet to order it. Its own if the other
    /// job ended without a build, or this job has used that attempt.
    pub(super) fn shared_build(&self, item: &Item, at: usize) -> Sharing {
        let Some((other, other_job)) = self.shareable_job(item, at) else {
            return Sharing::OwnBuild;
        };
        match &other_job.build {
            Some(build) if other_job.attempt > item.jobs[at].attempt => {
                Sharing::Shared(Box::new(shared_build_of(build, other, other_job, self.now)))
            }
            // It ended without a build, or for good: there is no build to share.
            _ if other_job.status != JobStatus::Waiting => Sharing::OwnBuild,
            _ => Sharing::Pending,
        }
    }

    /// Updates an ordered job whose shared build got no nodes, as only the ordering member may have
    /// seen: the build failed, went on to the next nodeset, or released its nodes. Then the job
    /// ends, or waits again. Returns whether the job changed; `false` if it is not ordered.
    pub(super) fn follow_shared_build(&self, item: &mut Item, at: usize) -> bool {
        if !matches!(item.jobs[at].status, JobStatus::Ordered { .. }) {
            return false;
        }
        let Some((other, other_job)) = self.shareable_job(item, at) else { return false };
        let job = &item.jobs[at];
        match &other_job.build {
            Some(build)
                if job.build == other_job.build
                    && other_job.result() == Some(BuildResult::NodeFailure) =>
            {
                shared_build_of(build, other, other_job, self.now).take(item, at);
                true
            }
            _ if other_job.alternative > job.alternative => {
                let job = &mut item.jobs[at];
                (job.build, job.request, job.alternative) = (None, None, other_job.alternative);
                job.attempt = job.attempt.saturating_sub(1);
                job.status = JobStatus::Waiting;
                true
            }
            _ if other_job.semaphores_first && !job.semaphores_first => {
                item.jobs[at].restart_with_semaphores_first();
                true
            }
            _ => false,
        }
    }

    /// Returns the job of the first member ahead in the bundle whose build this job can share, with
    /// its item; `None` if there is none. That member has its tested state, under the queue's
    /// layout unless it has succeeded.
    fn shareable_job<'w>(&'w self, item: &Item, at: usize) -> Option<(&'w Item, &'w Job)> {
        self.members_before(item).find_map(|slot| {
            let other =
                self.items.get(&slot.id).filter(|other| other.generation == slot.generation)?;
            // An item that succeeded keeps the jobs that it was frozen with.
            let is_frozen = other.reporting.is_some() || self.has_current_layout(other);
            let other_jobs = other.jobs.iter().filter(|_| other.merged().is_some() && is_frozen);
            let other_job = other_jobs
                .into_iter()
                .find(|other_job| can_share_build(item, &item.jobs[at], other, other_job))?;
            Some((other, other_job))
        })
    }

    /// Returns the members behind in the bundle that can share the build of a job, which is about to
    /// be ordered. The build's variables name them.
    pub(super) fn sharers(&self, item: &Item, at: usize) -> Vec<ChangeKey> {
        let members = self.members_behind(item).filter_map(|slot| self.items.get(&slot.id));
        let can_share = |other: &&Item| {
            other.merged().is_some()
                && other.jobs.iter().any(|job| can_share_build(other, job, item, &item.jobs[at]))
        };
        members.filter(can_share).map(|other| other.candidate.change.key.clone()).collect()
    }

    /// Returns whether it is not known yet which members behind in the bundle share the build of a
    /// job, because the jobs of one of them are not frozen. The build is ordered then.
    pub(super) fn has_unknown_sharers(&self, item: &Item, at: usize) -> bool {
        if matches!(item.jobs[at].summary.sharing, BuildSharing::Never) {
            return false;
        }
        let mut members = self.members_behind(item).filter_map(|slot| self.items.get(&slot.id));
        members.any(|other| {
            matches!(other.merge_status, MergeStatus::NotRequested | MergeStatus::Requested { .. })
        })
    }

    /// Returns whether a member ahead in the bundle has this same build under way with its node
    /// request. Then that member, not this item, sends it to the executors.
    pub(super) fn is_managed_ahead(&self, item: &Item, build: &BuildId) -> bool {
        let ahead = self.members_before(item).filter_map(|slot| self.items.get(&slot.id));
        ahead.flat_map(|item| &item.jobs).any(|job| {
            job.is_under_way() && job.build.as_ref() == Some(build) && job.request.is_some()
        })
    }

    /// Returns the members of an item's bundle before it, in merge order; empty if it is not
    /// queued.
    fn members_before<'w>(&'w self, item: &Item) -> impl Iterator<Item = &'w Slot> {
        let entry = self.position(&item.id).map(|position| &self.head.entries[position]);
        let members = entry.map(|entry| entry.members.as_slice()).unwrap_or_default();
        let own = members.iter().position(|slot| slot.id == item.id).unwrap_or(0);
        members[..own].iter()
    }

    /// Returns the members of an item's bundle behind it, in merge order; empty if it is not
    /// queued.
    fn members_behind<'w>(&'w self, item: &Item) -> impl Iterator<Item = &'w Slot> {
        let entry = self.position(&item.id).map(|position| &self.head.entries[position]);
        let members = entry.map(|entry| entry.members.as_slice()).unwrap_or_default();
        let own = members.iter().position(|slot| slot.id == item.id);
        members.iter().skip(own.map_or(members.len(), |own| own + 1))
    }

    /// Returns whether a job of another item than `id` has this build under way.
    pub(super) fn is_used_elsewhere(&self, id: &ItemId, build: &BuildId) -> bool {
        let mut others =
            self.items.values().filter(|item| item.id != *id).flat_map(|item| &item.jobs);
        others.any(|job| job.is_under_way() && job.build.as_ref() == Some(build))
    }
}

/// Returns the build of another member's job, for sharing it.
fn shared_build_of(build: &BuildId, other: &Item, other_job: &Job, now: Timestamp) -> SharedBuild {
    SharedBuild {
        build: build.clone(),
        request: other_job.request.clone(),
        alternative: other_job.alternative,
        semaphores_first: other_job.semaphores_first,
        attempt: other_job.attempt,
        status: other_job.status.clone(),
        feedback: other_job.feedback.clone(),
        left_out: jobs_left_out(other, other_job),
        chosen: other_job.child_jobs.clone().filter(|_| other_job.satisfies_dependents()),
        now,
        of: other.candidate.change.key.to_string(),
    }
}

/// Returns the names and statuses of the direct dependents that a job's build did not choose. Other
/// skipped jobs were skipped because of other jobs of that change, and may have to run for another
/// change.
fn jobs_left_out(other: &Item, other_job: &Job) -> Vec<(JobName, JobStatus)> {
    let name = &other_job.summary.name;
    let why = left_out_reason(name);
    let is_unchosen = |job: &Job| match &job.status {
        JobStatus::Ended { result: BuildResult::Skipped, detail, .. } => {
            detail.as_deref() == Some(why.as_str())
        }
        _ => false,
    };
    // Hard dependents of an unchosen job have the same reason, but may have been chosen themselves.
    let inherits = |job: &Job| {
        let mut hard = job.summary.dependencies.iter().filter(|dependency| !dependency.soft);
        hard.any(|dependency| {
            other.jobs.iter().any(|job| job.summary.name == dependency.name && is_unchosen(job))
        })
    };
    let left_out = other
        .jobs
        .iter()
        .filter(|job| is_direct_dependent(job, name) && is_unchosen(job) && !inherits(job));
    left_out.map(|job| (job.summary.name.clone(), job.status.clone())).collect()
}

/// Returns whether a job depends directly on the job `name`.
fn is_direct_dependent(job: &Job, name: &JobName) -> bool {
    job.summary.dependencies.iter().any(|before| before.name == *name)
}

/// Returns whether two jobs of different members can share one build: [`may_share_build`] allows
/// it, and each dependency of the first has the same build in both items, has none in both, or
/// exists in neither.
fn can_share_build(item: &Item, job: &Job, other: &Item, other_job: &Job) -> bool {
    let build = |item: &Item, name: &JobName| {
        // Each member has a build of its own of `noop`, and they never differ.
        let own = |job: &Job| job.build.clone().filter(|_| name.as_str() != "noop");
        item.jobs.iter().find(|job| job.summary.name == *name).map(own)
    };
    let before = |dependency: &JobDependency| {
        build(item, &dependency.name) == build(other, &dependency.name)
    };
    may_share_build(item, job, other, other_job) && job.summary.dependencies.iter().all(before)
}

/// Returns whether two jobs of different members of one bundle allow a shared build: they have the
/// same name and are frozen alike, and `deduplicate` allows it for any project of the bundle, or
/// only for changes of the same project and branch. Never for `noop`. That both are in one bundle
/// is not checked.
pub fn may_share_build(item: &Item, job: &Job, other: &Item, other_job: &Job) -> bool {
    let (own, its) = (&job.summary, &other_job.summary);
    let may = match own.sharing {
        BuildSharing::Never => false,
        // Another branch has other sources, so the results may differ.
        BuildSharing::InProject => {
            let (change, its) = (&item.candidate.change, &other.candidate.change);
            change.key.project == its.key.project && change.branch == its.branch
        }
        BuildSharing::InBundle => true,
    };
    may && own.name.as_str() != "noop" && own.name == its.name && own.hash == its.hash
}
