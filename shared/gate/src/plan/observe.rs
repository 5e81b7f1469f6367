//! Applies results of merger and executors to items, and carries out resets that the head already
//! contains.

use super::job_graph::{choose_children, ended, restart_dependents};
use super::ledger::Full;
use super::{BuildStop, ObservedBuild, Planner, QueueAction, RECORDS_MAX, StopCause};
use crate::item::{
    Item, Job, JobStatus, MergeStatus, REASON_BYTES_MAX, RETRY_REASON_BYTES_MAX, WHY_BYTES_MAX, cut,
};
use crate::job_feedback::{self, JobFeedback};
use crate::merge::{LINE_NOTE_BYTES_MAX, LINE_NOTES_MAX, LineNote, MergeResult, TestedState};
use crate::queue::SlotStatus;
use sluice_model::build::{BuildResult, EXECUTOR_LOST, RunEnd};
use sluice_model::{ItemId, Timestamp};

/// Bytes of a job's failure reason that an item's reasons hold.
const WHY_MAX: usize = 300;

/// Which plan decided the resets to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecidedBy {
    /// An earlier plan, whose transaction had no room for them.
    EarlierPlan,
    /// The current plan.
    ThisPlan,
}

impl Planner<'_> {
    /// Resets items whose slot has a newer generation: stops their builds, removes their jobs and
    /// clears their tested state. Their reasons say why; if an earlier plan `decided` the reset,
    /// that is derived from the item's position. Where not all fit into the transaction, the next
    /// plan resets the rest.
    pub(super) fn apply_resets(&mut self, decided: DecidedBy) -> Result<(), Full> {
        let is_outdated = |id: &ItemId, generation: u64| {
            self.items.get(id).is_some_and(|item| item.generation < generation)
        };
        let mut outdated = Vec::new();
        for (position, entry) in self.head.entries.iter().enumerate() {
            let slots = entry.members.iter().filter(|slot| is_outdated(&slot.id, slot.generation));
            outdated.extend(slots.map(|slot| (position, slot.id.clone(), slot.generation)));
        }
        for (position, id, generation) in outdated {
            // Reset an item in one plan, so that it is written once. One with very many builds
            // takes several.
            let builds = self
                .items
                .get(&id)
                .map_or(0, |item| item.jobs.iter().filter(|job| job.is_under_way()).count());
            let records = if builds == 0 { 1 } else { (2 + 2 * builds).min(RECORDS_MAX / 2) };
            self.require_room(records)?;
            self.stop_builds(&id, "its tested state changed")?;
            // The reason for a reset decided by an earlier plan follows from the item's position.
            let why = self.retest_reasons.remove(&id).or_else(|| {
                (decided == DecidedBy::EarlierPlan).then(|| self.retest_reason(position))
            });
            let now = self.now;
            if let Some(item) = self.item_mut(&id) {
                if let Some(why) = why {
                    item.add_reason(now, why);
                }
                item.generation = generation;
                item.layout = 0;
                item.tested_tree = None;
                item.merge_status = MergeStatus::NotRequested;
                item.jobs.clear();
            }
        }
        Ok(())
    }

    /// Applies merge outcomes and build results to the items that they are about, and ends the
    /// remaining jobs of failing items with `fail-fast`. Items that are not reset yet are skipped.
    /// Results that do not fit into the transaction are left to the next plan.
    pub(super) fn apply_results(&mut self) {
        for (position, at) in self.head.slot_positions() {
            let slot = &self.head.entries[position].members[at];
            if self.items.get(&slot.id).is_none_or(|item| item.generation != slot.generation) {
                continue;
            }
            let has_results = self.has_results(&slot.id);
            if !has_results && !self.should_fail_fast(&slot.id) {
                continue;
            }
            let id = slot.id.clone();
            if has_results {
                // An item with very many builds to stop is processed alone, with the rest of the
                // transaction's records.
                if !self.has_room((1 + 2 * self.stops_needed(&id)).min(RECORDS_MAX - 2)) {
                    return;
                }
                self.apply_merge_outcome(&id);
                self.apply_build_results(&id);
            }
            self.fail_fast(&id);
        }
    }

    /// Returns whether a merge outcome of an item, or an observed state of one of its builds that
    /// are under way, was read. It need not be new.
    fn has_results(&self, id: &ItemId) -> bool {
        let builds = self.items.get(id).map(|item| &item.jobs).into_iter().flatten();
        let mut builds =
            builds.filter(|job| job.is_under_way()).filter_map(|job| job.build.as_ref());
        self.snapshot.merge_outcomes.contains_key(id)
            || builds.any(|build| self.snapshot.observed_builds.contains_key(build))
    }

    /// Returns the largest number of builds that an item's new results may stop: all under way if a
    /// merge outcome was read or a job is paused, otherwise those that are lost or get no nodes.
    fn stops_needed(&self, id: &ItemId) -> usize {
        let jobs = self.items.get(id).map(|item| item.jobs.as_slice()).unwrap_or_default();
        let under_way = jobs.iter().filter(|job| job.is_under_way());
        if self.snapshot.merge_outcomes.contains_key(id) || jobs.iter().any(Job::is_paused) {
            return under_way.count();
        }
        let seen =
            under_way.filter_map(|job| self.snapshot.observed_builds.get(job.build.as_ref()?));
        seen.filter(|seen| matches!(seen, ObservedBuild::Lost { .. } | ObservedBuild::NoNodes(_)))
            .count()
    }

    /// Applies the merger's outcome to an item that waits for it: stores its tested state and jobs,
    /// or that it cannot be tested. Ignores an outcome of another generation or layout. The caller
    /// has reserved room.
    fn apply_merge_outcome(&mut self, id: &ItemId) {
        let layout = self.head.layout;
        let Some(item) = self
            .items
            .get(id)
            .filter(|item| matches!(item.merge_status, MergeStatus::Requested { .. }))
        else {
            return;
        };
        let Some(outcome) = self
            .snapshot
            .merge_outcomes
            .get(id)
            .filter(|o| o.generation == item.generation && o.layout == layout)
        else {
            return;
        };
        let result = outcome.result.clone();
        match result {
            MergeResult::Merged(merged) => self.apply_merged(id, merged),
            MergeResult::Conflict { change, detail } => {
                self.apply_unmergeable(
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
                self.apply_unmergeable(id, errors.join("\n\n"), true, notes);
            }
        }
    }

    /// Stores the tested state of an item and its jobs. Jobs that are unchanged keep their builds;
    /// builds of the others are stopped, unless another item uses them. Dependents of a paused job
    /// that changed start again. If the item was tested on another tree before, stores nothing and
    /// starts a new generation of its whole entry instead. The caller has reserved room for the
    /// builds to stop.
    fn apply_merged(&mut self, id: &ItemId, merged: TestedState) {
        let layout = self.head.layout;
        let now = self.now;
        let note = format!("prepared: its jobs test the tree {}", merged.tested.tree.short());
        let Some(item) = self.item_mut(id) else { return };
        let is_other_tree =
            (item.tested_tree.as_ref()).is_some_and(|tree| *tree != merged.tested.tree);
        if is_other_tree {
            // Its branch moved while its jobs were being frozen again: what its own builds, its
            // bundle's and those of its successors tested is not what would be merged.
            self.note(id, "its branch moved: testing again".to_owned());
            self.restart_bundle(id);
            return;
        }
        item.tested_tree = Some(merged.tested.tree.clone());
        item.layout = layout;
        let old = std::mem::take(&mut item.jobs);
        let (jobs, gone) = carry_over_jobs(old, &merged);
        item.jobs = jobs;
        let mut stops = Vec::new();
        for job in gone.iter().filter(|job| job.is_paused()) {
            let Some(at) = item.jobs.iter().position(|new| new.summary.name == job.summary.name)
            else {
                continue;
            };
            stops.extend(restart_dependents(
                item,
                at,
                "the configuration of the paused job it depends on changed",
            ));
        }
        item.merge_status = MergeStatus::Merged(merged);
        item.add_reason(now, note.clone());
        let stops: Vec<BuildStop> =
            stops.into_iter().filter(|stop| !self.is_used_elsewhere(id, &stop.build)).collect();
        self.ledger.extend(stops.into_iter().map(QueueAction::StopBuild));
        for job in gone.into_iter().filter(Job::is_under_way) {
            if let Some(build) = job.build.filter(|build| !self.is_used_elsewhere(id, build)) {
                let why = "the configuration of its job changed".to_owned();
                self.ledger.push(QueueAction::StopBuild(BuildStop {
                    build,
                    request: job.request,
                    why,
                    cause: StopCause::Cancelled,
                }));
            }
        }
        self.ledger.explain(format!("{id} {note} at {}", now.to_iso()));
        self.set_status(id, SlotStatus::Testing);
    }

    /// Stores that an item cannot be tested, stops its builds, removes its jobs and marks it as
    /// failing. `why` is for users and is cut. `configuration` says that its configuration is
    /// invalid; otherwise it has a merge conflict. `notes` are comments on lines of its files. If
    /// not all builds can be stopped in this plan, stores nothing; the next plan does.
    fn apply_unmergeable(
        &mut self,
        id: &ItemId,
        why: String,
        configuration: bool,
        notes: Vec<LineNote>,
    ) {
        let why = cut(&why, WHY_BYTES_MAX);
        if self.stop_builds(id, "it cannot be tested") == Err(Full) {
            return; // The outcome is still there for the next plan.
        }
        let layout = self.head.layout;
        if let Some(item) = self.item_mut(id) {
            item.layout = layout;
            item.merge_status = MergeStatus::Unmergeable { why: why.clone(), configuration, notes };
            item.jobs.clear();
        }
        self.note(id, why);
        self.set_status(id, SlotStatus::Failing);
    }

    /// Applies the observed states of builds that are under way to the jobs of an item. Stops
    /// builds that are lost or get no nodes, so that the nodes and requests are freed, and builds
    /// that depend on a lost paused one. The caller has reserved room.
    fn apply_build_results(&mut self, id: &ItemId) {
        let has_changed = |item: &&Item| {
            item.jobs
                .iter()
                .any(|job| self.observed_build(job).is_some_and(|seen| would_change(job, seen)))
        };
        let Some(mut item) = self.items.get(id).filter(has_changed).cloned() else {
            return; // Most builds have not changed; avoid a copy of each item.
        };
        let mut changed = false;
        let mut stops = Vec::new();
        for at in 0..item.jobs.len() {
            let Some(build) = item.jobs[at].build.clone().filter(|_| item.jobs[at].is_under_way())
            else {
                continue;
            };
            let Some(seen) = self.snapshot.observed_builds.get(&build) else { continue };
            if let ObservedBuild::Lost { why } = seen {
                // No executor will report its end, so its nodes must be freed here.
                let (request, why) = (item.jobs[at].request.clone(), executor_lost(why));
                stops.push(BuildStop { build, request, why, cause: StopCause::ExecutorLost });
            }
            changed |= apply_observed_build(&mut item, at, seen, self.now, &mut stops);
        }
        self.ledger.extend(stops.into_iter().map(QueueAction::StopBuild));
        if changed {
            self.changed_items.insert(id.clone());
            self.items.insert(id.clone(), item);
        }
    }

    /// Returns what is known of the current build of a job; `None` if nothing is known, or if no
    /// build is under way.
    fn observed_build(&self, job: &Job) -> Option<&ObservedBuild> {
        job.build
            .as_ref()
            .filter(|_| job.is_under_way())
            .and_then(|build| self.snapshot.observed_builds.get(build))
    }

    /// Starts a new generation for an item and the rest of its bundle, as [`Self::restart_entry`]
    /// does. Does nothing if it is not queued.
    fn restart_bundle(&mut self, id: &ItemId) {
        let Some(position) = self.head.position(id) else { return };
        // The members of a bundle are tested together, so they restart together.
        self.restart_entry(position);
    }

    /// Raises the generation of all members of the entry at `position` and lets them wait, even if
    /// they are being merged. Their items are reset later, by [`Self::apply_resets`].
    pub(super) fn restart_entry(&mut self, position: usize) {
        for slot in &mut self.head.entries[position].members {
            slot.generation += 1;
            slot.status = SlotStatus::Waiting;
        }
    }

    /// Sets the status of an item in the head. Does nothing if it is not queued, is being merged,
    /// or has succeeded.
    pub(super) fn set_status(&mut self, id: &ItemId, status: SlotStatus) {
        if let Some(slot) =
            self.head.slots_mut().find(|slot| slot.id == *id && !slot.status.is_decided())
        {
            slot.status = status;
        }
    }
}

/// Splits jobs after a new freeze. Returns first the new job list, in the order of `merged`, in
/// which jobs with the same name and hash keep their state; then, in no particular order, the old
/// jobs that are gone or changed (Z4.7; a reconfiguration keeps builds of unchanged jobs).
fn carry_over_jobs(mut old: Vec<Job>, merged: &TestedState) -> (Vec<Job>, Vec<Job>) {
    let mut jobs = Vec::with_capacity(merged.jobs.len());
    for summary in &merged.jobs {
        let unchanged = old
            .iter()
            .position(|job| job.summary.name == summary.name && job.summary.hash == summary.hash);
        jobs.push(match unchanged {
            Some(at) => old.swap_remove(at),
            None => Job::new(summary.clone()),
        });
    }
    (jobs, old)
}

/// Returns whether [`apply_observed_build`] would change the job, which has a build under way.
fn would_change(job: &Job, seen: &ObservedBuild) -> bool {
    match seen {
        ObservedBuild::Paused { .. } => !job.is_paused(),
        ObservedBuild::Running { started_at, pre_fail } => {
            let status = JobStatus::Running { started_at: *started_at, pre_fail: *pre_fail };
            !job.is_paused() && job.status != status
        }
        ObservedBuild::NeverClaimed | ObservedBuild::NodesReady => false,
        ObservedBuild::NoNodes(_) | ObservedBuild::Lost { .. } | ObservedBuild::Ended(_) => true,
    }
}

/// Applies the observed state of a job's build, which is under way, and adds an end or a pause to
/// the item's reasons. A build that is lost or ended with `RETRY` is retried, or ends the job if
/// all attempts are used; one without nodes goes on to the next nodeset or ends the job. If a
/// paused build is to be retried, its dependents start again. Adds to `stops` the builds to stop,
/// except a lost build, which the caller stops. Returns whether the job changed.
fn apply_observed_build(
    item: &mut Item,
    at: usize,
    seen: &ObservedBuild,
    now: Timestamp,
    stops: &mut Vec<BuildStop>,
) -> bool {
    let (name, room) = (item.jobs[at].summary.name.clone(), job_feedback::free_bytes(item, at));
    let job = &mut item.jobs[at];
    let was_paused = job.is_paused();
    match seen {
        ObservedBuild::Running { .. } | ObservedBuild::Paused { .. } if was_paused => return false,
        ObservedBuild::Paused { started_at, data } => {
            job.status = JobStatus::Paused { started_at: *started_at, resumed: false };
            choose_children(item, at, data, now);
            item.add_reason(now, format!("{name}: paused until its dependent jobs are over"));
            return true;
        }
        ObservedBuild::Running { started_at, pre_fail } => {
            let status = JobStatus::Running { started_at: *started_at, pre_fail: *pre_fail };
            if job.status == status {
                return false;
            }
            job.status = status;
            return true;
        }
        ObservedBuild::NeverClaimed | ObservedBuild::NodesReady => return false,
        // The next nodeset belongs to the same attempt (N14).
        ObservedBuild::NoNodes(reason)
            if (job.alternative as usize) + 1 < job.summary.labels.len() =>
        {
            let why = format!("{reason}; requesting the next nodeset");
            stops.extend(job.build.take().map(|build| BuildStop {
                build,
                request: job.request.take(),
                why: why.clone(),
                cause: StopCause::Cancelled,
            }));
            job.alternative += 1;
            job.attempt = job.attempt.saturating_sub(1);
            job.status = JobStatus::Waiting;
            item.add_reason(now, format!("{name}: {why}"));
            return true;
        }
        ObservedBuild::NoNodes(reason) => {
            // The request stays in the provider's records until it is withdrawn.
            let (build, request) = (job.build.clone(), job.request.take());
            stops.extend(build.map(|build| BuildStop {
                build,
                request,
                why: reason.clone(),
                cause: StopCause::NoNodes,
            }));
            job.status = ended(BuildResult::NodeFailure, Some(reason.clone()), now);
        }
        ObservedBuild::Lost { why } => {
            retry_or_end(job, BuildResult::RetryLimit, Some(executor_lost(why)), None, now)
        }
        ObservedBuild::Ended(end) if end.result == BuildResult::Retry => {
            retry_or_end(job, BuildResult::RetryLimit, end.detail.clone(), Some(end), now);
        }
        ObservedBuild::Ended(end) => {
            (job.status, job.retry_reason) = (ended_status(end), None);
            job.feedback = JobFeedback::of(&end.data, room);
            job.child_jobs = None;
            if end.result.passed() {
                choose_children(item, at, &end.data, now);
            }
        }
    }
    if was_paused && item.jobs[at].status == JobStatus::Waiting {
        // The dependent jobs have lost the data of the paused build: they run again after its next
        // attempt.
        stops.extend(restart_dependents(
            item,
            at,
            &format!("the paused job {name} was lost and is started again"),
        ));
    }
    let job = &item.jobs[at];
    let outcome = job.result().map_or("RETRY", BuildResult::as_str);
    let why = match &job.status {
        JobStatus::Ended { result, detail: Some(why), .. } if !result.passed() => {
            format!(": {}", cut(summary(why), WHY_MAX))
        }
        JobStatus::Waiting => {
            let why = job.retry_reason.as_deref().map(|why| format!(" ({why})"));
            let (next, last) = (job.attempt + 1, job.summary.attempts);
            format!("{}, attempt {next} of {last} follows", why.unwrap_or_default())
        }
        _ => String::new(),
    };
    item.add_reason(now, format!("{name}: {outcome}{why}"));
    true
}

/// Lets the job wait for its next attempt, or ends it with the result `last` if all attempts are
/// used (J16). `end` is the end of its build; without one the job ends at `now` with `detail`. In
/// either case the job no longer has a node request.
fn retry_or_end(
    job: &mut Job,
    last: BuildResult,
    detail: Option<String>,
    end: Option<&RunEnd>,
    now: Timestamp,
) {
    (job.request, job.child_jobs) = (None, None);
    if job.attempt < job.summary.attempts {
        job.status = JobStatus::Waiting;
        let why = detail.as_deref().map(summary).filter(|why| !why.is_empty());
        job.retry_reason = why.map(|why| cut(why, RETRY_REASON_BYTES_MAX));
    } else {
        job.retry_reason = None;
        job.status = match end {
            Some(end) => ended_status(&RunEnd { result: last, ..end.clone() }),
            None => ended(last, detail, now),
        };
    }
}

/// Returns why a build is lost, in words that say that its executor is.
fn executor_lost(why: &str) -> String {
    match why.starts_with(EXECUTOR_LOST) {
        true => why.to_owned(),
        false => format!("{EXECUTOR_LOST}{why}"),
    }
}

/// Returns the first line of an explanation, which is its summary.
fn summary(detail: &str) -> &str {
    detail.lines().next().unwrap_or_default()
}

/// Returns the status of a job whose build ended, with its explanation cut to [`REASON_BYTES_MAX`].
fn ended_status(end: &RunEnd) -> JobStatus {
    JobStatus::Ended {
        result: end.result,
        detail: end.detail.as_deref().map(|detail| cut(detail, REASON_BYTES_MAX)),
        started_at: end.started_at,
        ended_at: end.ended_at,
        log_url: end.log_url.clone(),
    }
}
