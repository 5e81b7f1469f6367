//! The job graph of one item: what may start, what never will, and what a finished job decides about those behind it.

use super::Work;
use crate::item::{Item, Job, JobStatus};
use serde_json::{Map, Value};
use sluice_model::build::BuildResult;
use sluice_model::{BuildId, ItemId, JobName, Timestamp};
use std::collections::BTreeSet;

/// Returns whether every job it depends on is over in a way that lets it run.
pub(super) fn is_unblocked(item: &Item, job: &Job) -> bool {
    job.summary.dependencies.iter().all(|dependency| {
        let other = item.jobs.iter().find(|other| other.summary.name == dependency.name);
        match other {
            Some(other) if dependency.soft => other.result().is_some(),
            Some(other) => other.result().is_some_and(BuildResult::passed),
            None => dependency.soft,
        }
    })
}

/// Skips jobs whose hard dependencies did not pass (J12). Returns whether any was.
pub(super) fn settle_dependents(item: &mut Item, now: Timestamp) -> bool {
    let mut any = false;
    // Each round settles at least one job, or it is the last.
    for _ in 0..item.jobs.len() {
        let blocked = item.jobs.iter().position(|job| job.status == JobStatus::Waiting && is_barred(item, job));
        let Some(at) = blocked else { break };
        item.jobs[at].status = ended(BuildResult::Skipped, Some("a job it depends on did not pass".to_owned()), now);
        any = true;
    }
    any
}

fn is_barred(item: &Item, job: &Job) -> bool {
    job.summary.dependencies.iter().filter(|dependency| !dependency.soft).any(|dependency| {
        let other = item.jobs.iter().find(|other| other.summary.name == dependency.name);
        other.is_none_or(|other| other.result().is_some_and(|result| !result.passed()))
    })
}

/// Skips the jobs directly behind a finished one that its `zuul.child_jobs` leaves out; without that list all go on.
///
/// What is behind those by a hard dependency follows in [`settle_dependents`].
pub(super) fn choose_children(item: &mut Item, at: usize, returned: &Map<String, Value>, now: Timestamp) {
    let Some(chosen) = returned.get("zuul").and_then(|zuul| zuul.get("child_jobs")).and_then(Value::as_array) else {
        return;
    };
    let parent = item.jobs[at].summary.name.clone();
    for job in item.jobs.iter_mut().filter(|job| job.status == JobStatus::Waiting) {
        let is_child = job.summary.dependencies.iter().any(|dependency| dependency.name == parent);
        let is_chosen = chosen.iter().any(|name| name.as_str() == Some(job.summary.name.as_str()));
        if is_child && !is_chosen {
            job.status = ended(BuildResult::Skipped, Some(format!("{parent} chose other jobs to follow it")), now);
        }
    }
}

/// Returns the builds whose returned data a job is given: of all jobs before it, the farthest first, so that what a nearer
/// one says wins.
pub(super) fn parents(item: &Item, job: &Job) -> Vec<BuildId> {
    let mut near_first: Vec<usize> = Vec::new();
    let mut level: BTreeSet<usize> = positions(item, job).collect();
    // A graph is not deeper than it has jobs; what is met again farther away counts as farther away.
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
    /// Ends the rest of an item that is known to fail where its project asks for that (`fail-fast`, G20).
    pub(super) fn cut_short(&mut self, id: &ItemId) {
        let is_cut = (self.items.get(id))
            .is_some_and(|item| item.merged().is_some_and(|merged| merged.fail_fast) && item.is_failing());
        if !is_cut || self.items.get(id).is_none_or(Item::is_complete) {
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
