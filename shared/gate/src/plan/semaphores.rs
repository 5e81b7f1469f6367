//! Semaphores: a build acquires all that its job names or none, before it is ordered, and releases
//! them once it is known to be over.
//!
//! A semaphore does not belong to the queue's cell. Its record is written with the plan, on
//! condition that it is unchanged since it was read. A stopped build may still run for a while; it
//! holds its semaphores until its run is over.
//!
//! A job that waits stands in the line of every semaphore it names, and free places are reserved
//! for the jobs before it. So a job with several semaphores is not overtaken forever by jobs with
//! one, nor a queue by one with many jobs. All lines have the same order and every build ends, so
//! the first in all lines gets what it needs.
//!
//! Two kinds of jobs wait for fewer others, since others may wait for what they hold. A job of an
//! item with a paused build takes any free place. A job that has its nodes already
//! (`resources-first`) waits only for jobs before it that have theirs. In turn it may not request
//! nodes while earlier jobs without nodes need all free places.
//!
//! A job with nodes may wait for a semaphore holder that waits for those very nodes. This would
//! never end, so the job releases its nodes. From then on it acquires semaphores before nodes, and
//! keeps its place in line.

use super::{BuildStop, ObservedBuild, Planner, QueueAction, StopCause};
use crate::item::{Item, Job};
use crate::semaphore::{
    NodesHeld, Semaphore, SemaphoreHolder, SemaphoreKey, SemaphoreWaiter, WAITING_MAX, WaitingSince,
};
use sluice_model::{BuildId, Timestamp};
use std::collections::BTreeSet;

/// The most queues that are woken at once for free places. The others find out at their next
/// periodic reconcile.
const WOKEN_MAX: usize = 20;

/// Seconds that all holders of a semaphore must have been idle before a job with nodes that waits
/// for it releases the nodes. Machines take minutes to start, so a shorter wait proves nothing.
const IDLE_HOLDER_SECONDS: u64 = 300;

/// Whether a job may go on as far as semaphores are concerned.
pub(super) enum Permit {
    /// It holds all semaphores that it needs.
    Granted,
    /// It waits for this semaphore.
    WaitsFor(SemaphoreKey),
}

/// A job of this queue that was found waiting for a semaphore in this plan.
pub(super) struct WaitingJob {
    key: SemaphoreKey,
    since: Timestamp,
    nodes_held: NodesHeld,
}

impl Planner<'_> {
    /// Acquires all semaphores that a job names for its build `build`, or none of them (N16). `at`
    /// is the index of the job in its item. If one has no place, records the job as waiting for all
    /// of them in this plan and returns the one without a place; the caller records in the job
    /// since when it waits. A job that names none, or whose build holds them already, is granted.
    /// The caller has reserved room.
    pub(super) fn acquire(&mut self, item: &Item, at: usize, build: &BuildId) -> Permit {
        let wanted = self.semaphores_of(item, at);
        let since = item.jobs[at].semaphores_requested_at.unwrap_or(self.now);
        let nodes_held = nodes_held(&item.jobs[at]);
        if let Some(key) = self.blocking_semaphore(item, at, build) {
            for (wanted, _) in &wanted {
                self.add_waiting_job(wanted, since, nodes_held);
            }
            return Permit::WaitsFor(key);
        }
        let holder = SemaphoreHolder {
            build: build.clone(),
            queue: self.head.key.clone(),
            item: item.id.clone(),
            job: item.jobs[at].summary.name.clone(),
            since: self.now,
            leaving: false,
        };
        for (key, _) in &wanted {
            let mut semaphore = self.semaphore(key);
            if !semaphore.is_held_by(build) {
                semaphore.holders.push(holder.clone());
                self.semaphores.insert(key.clone(), semaphore);
            }
        }
        Permit::Granted
    }

    /// Releases the nodes of a job whose build has them but no place in a semaphore, if all holders
    /// of that semaphore have been idle for [`IDLE_HOLDER_SECONDS`] and so may be waiting for
    /// nodes. Stops the build, and the job starts the attempt again: semaphores first, with its
    /// place in line. The caller has checked that the nodes are ready, the build was never sent and
    /// no bundle member ahead manages it, has reserved room, and stores `item`. Returns whether the
    /// nodes are released; `false` also if no semaphore blocks the job.
    pub(super) fn release_nodes(&mut self, item: &mut Item, at: usize, build: &BuildId) -> bool {
        let Some(key) =
            self.blocking_semaphore(item, at, build).filter(|key| self.is_held_idly(key))
        else {
            return false;
        };
        let job = &mut item.jobs[at];
        let why = format!(
            "it releases its nodes: the holder of the semaphore {} has been idle for {IDLE_HOLDER_SECONDS} s and may be waiting for them; \
             it requests nodes again once it holds its semaphores",
            key.name
        );
        let (build, request) = (build.clone(), job.request.take());
        let stop = BuildStop { build, request, why: why.clone(), cause: StopCause::Cancelled };
        self.ledger.push(QueueAction::StopBuild(stop));
        job.restart_with_semaphores_first();
        let reason = format!("{}: {why}", job.summary.name);
        item.add_reason(self.now, reason.clone());
        self.ledger.explain(format!("{}: {reason}", item.candidate.change));
        true
    }

    /// Returns the first semaphore of a job that has no place for its build. `None` if all have one
    /// or the build holds them already. Places that are reserved for jobs before it do not count as
    /// free: for a job with nodes only those of other jobs with nodes, for any other job all. For a
    /// job of an item with a paused build, all free places count.
    fn blocking_semaphore(&self, item: &Item, at: usize, build: &BuildId) -> Option<SemaphoreKey> {
        let since = item.jobs[at].semaphores_requested_at.unwrap_or(self.now);
        let kept_for: &[NodesHeld] = match nodes_held(&item.jobs[at]) {
            NodesHeld::With => &[NodesHeld::With],
            NodesHeld::Without => &[NodesHeld::Without, NodesHeld::With],
        };
        let is_beside_paused = item.jobs.iter().any(Job::is_paused);
        let mut wanted = self.semaphores_of(item, at).into_iter();
        let blocking = wanted.find(|(key, max)| {
            let semaphore = self.semaphore(key);
            let before = if is_beside_paused {
                0
            } else {
                self.places_reserved(&semaphore, since, kept_for)
            };
            !semaphore.is_held_by(build) && semaphore.holders.len() + before >= *max as usize
        });
        blocking.map(|(key, _)| key)
    }

    /// Returns whether all holders of a semaphore have been idle for [`IDLE_HOLDER_SECONDS`];
    /// `false` if it has none.
    fn is_held_idly(&self, key: &SemaphoreKey) -> bool {
        let semaphore = self.semaphore(key);
        let is_idle = |holder: &SemaphoreHolder| {
            let since = self.snapshot.idle_holders.get(&holder.build);
            since.is_some_and(|since| self.now.since(*since) >= IDLE_HOLDER_SECONDS * 1_000)
        };
        !semaphore.holders.is_empty() && semaphore.holders.iter().all(is_idle)
    }

    /// Decides whether a job that acquires its semaphores after its nodes may request nodes;
    /// acquires nothing. It may not while earlier jobs without nodes need all free places of a
    /// semaphore, since jobs with nodes would always overtake them. Then records the job as waiting
    /// for all its semaphores in this plan; the caller has reserved room. A job of an item with a
    /// paused build always may.
    pub(super) fn may_request_nodes(&mut self, item: &Item, at: usize) -> Permit {
        if item.jobs.iter().any(Job::is_paused) {
            return Permit::Granted; // An earlier job may be waiting for what the paused build holds.
        }
        let wanted = self.semaphores_of(item, at);
        let since = item.jobs[at].semaphores_requested_at.unwrap_or(self.now);
        let behind = wanted.iter().find(|(key, max)| {
            let semaphore = self.semaphore(key);
            let before = self.places_reserved(&semaphore, since, &[NodesHeld::Without]);
            before > 0 && semaphore.holders.len() + before >= *max as usize
        });
        let Some((key, _)) = behind else { return Permit::Granted };
        for (wanted, _) in &wanted {
            self.add_waiting_job(wanted, since, NodesHeld::Without);
        }
        Permit::WaitsFor(key.clone())
    }

    /// Returns the semaphores that a job names, each with the number of holders allowed.
    fn semaphores_of(&self, item: &Item, at: usize) -> Vec<(SemaphoreKey, u32)> {
        item.jobs[at]
            .summary
            .semaphores
            .iter()
            .map(|used| (self.snapshot.resolve_semaphore)(&used.name))
            .collect()
    }

    /// Returns how many places are reserved for others before a job that asked at `since`: one for
    /// each queue before it in line, and one for each job of this queue that asked then or before
    /// and that this plan has already found waiting. The job itself must not be among these yet
    /// ([`Self::add_waiting_job`]). Counts only those that wait in a state listed in `states`.
    fn places_reserved(
        &self,
        semaphore: &Semaphore,
        since: Timestamp,
        states: &[NodesHeld],
    ) -> usize {
        let asked = |waiter: &SemaphoreWaiter| {
            states.iter().filter_map(|state| waiter.waiting_since(*state)).min()
        };
        let others = semaphore
            .waiting
            .iter()
            .filter(|waiter| self.is_ahead_in_line(waiter, asked(waiter), since));
        let of_queue =
            self.waiting_jobs.iter().filter(|one| one.key == semaphore.key && one.since <= since);
        others.count() + of_queue.filter(|one| states.contains(&one.nodes_held)).count()
    }

    /// Returns whether another queue, a job of which asked at `asked`, comes before a job of this
    /// queue that asked at `since`: by the pipelines' priorities, then by time. `false` if `asked`
    /// is `None`, if `waiter` is this queue itself, and for a queue that cannot take the semaphore
    /// now ([`super::QueueSnapshot::blocked_queues`]).
    fn is_ahead_in_line(
        &self,
        waiter: &SemaphoreWaiter,
        asked: Option<Timestamp>,
        since: Timestamp,
    ) -> bool {
        let own = SemaphoreWaiter::new(&self.head.key, self.priority(), since).service_order();
        let other = waiter.key();
        let is_first = asked.is_some_and(|asked| {
            SemaphoreWaiter::new(&other, waiter.priority, asked).service_order() < own
        });
        is_first && other != self.head.key && !self.snapshot.blocked_queues.contains(&other)
    }

    /// Returns the numeric precedence of the queue's pipeline, lower for more urgent ones; 200 if
    /// the live layout has no such pipeline.
    fn priority(&self) -> u32 {
        self.snapshot.pipeline.map_or(200, |pipeline| pipeline.precedence.priority())
    }

    /// Releases the semaphores of this queue's builds that are over, marks holders whose builds
    /// were stopped as leaving, and updates this queue's place in the lines (N17). Must be called
    /// after all jobs were processed: the queue leaves a line if this plan found no job waiting in
    /// it, unless the plan is incomplete. Lists in the head the semaphores that the queue holds or
    /// waits for. Where this queue releases a semaphore or falls back in its line, has the plan
    /// wake as many others as it has free places, at most [`WOKEN_MAX`]. Changes that do not fit
    /// into the transaction are left to the next plan.
    pub(super) fn update_semaphores(&mut self) {
        let known: BTreeSet<SemaphoreKey> =
            self.snapshot.semaphores.keys().chain(self.semaphores.keys()).cloned().collect();
        if known.is_empty() {
            // Avoid listing the builds of a long queue if no semaphore is involved.
            self.head.semaphores = Vec::new();
            return;
        }
        let live = self.active_builds();
        let queue = self.head.key.clone();
        let mut used = Vec::new();
        for key in known {
            let mut semaphore = self.semaphore(&key);
            let before = semaphore.clone();
            let mut begins_to_leave = false;
            semaphore.holders.retain_mut(|holder| {
                if holder.queue != queue || live.contains(&holder.build) {
                    return true;
                }
                if self.is_over(&holder.build) {
                    return false;
                }
                begins_to_leave |= !holder.leaving;
                holder.leaving = true;
                true
            });
            let waits = self.semaphore_waits.get(&key).copied();
            let is_given_back = semaphore.holders.len() < before.holders.len();
            // This queue's own jobs were processed before the place became free: reconcile again.
            self.is_incomplete |= is_given_back && waits.is_some();
            // A build stopped before an executor claimed it is over once the stop is written.
            self.is_incomplete |= begins_to_leave;
            self.update_waiter(&mut semaphore, waits);
            let place = |semaphore: &Semaphore| {
                semaphore
                    .waiting
                    .iter()
                    .find(|waiter| waiter.key() == queue)
                    .map(SemaphoreWaiter::service_order)
            };
            let (was, is) = (place(&before), place(&semaphore));
            let has_stepped_back = was.is_some() && (is.is_none() || is > was);
            let held = self.snapshot.semaphores.get(&key).map_or(0, |seen| seen.holders.len());
            let has_taken = before.holders.len() > held;
            if is_given_back || (has_stepped_back && !has_taken) {
                // As many as there are places now; the limit may have risen. Queues that cannot
                // come take none.
                let places = self.free_places(&semaphore).min(WOKEN_MAX);
                let others = semaphore
                    .waiting
                    .iter()
                    .map(SemaphoreWaiter::key)
                    .filter(|other| *other != queue);
                let gone = &self.snapshot.blocked_queues;
                let next = others.filter(|other| !gone.contains(other)).take(places);
                self.ledger.extend(next.map(QueueAction::WakeQueue));
            }
            let waits = waits.is_some();
            if waits || semaphore.holders.iter().any(|holder| holder.queue == queue) {
                used.push(key.clone());
            }
            // An acquired semaphore has its room reserved; a release may wait for the next plan.
            let has_changed = self.snapshot.semaphores.get(&key) != Some(&semaphore);
            if self.semaphores.contains_key(&key) || (has_changed && self.has_room(1)) {
                self.semaphores.insert(key, semaphore);
            }
        }
        self.head.semaphores = used;
    }

    /// Returns how many more builds may hold a semaphore by the live layout; 1 if the live layout
    /// means another semaphore by this name.
    fn free_places(&self, semaphore: &Semaphore) -> usize {
        let (key, max) = (self.snapshot.resolve_semaphore)(&semaphore.key.name);
        if key != semaphore.key {
            return 1; // The live layout means another semaphore by this name; the queues still waiting for this one must look for themselves.
        }
        (max as usize).saturating_sub(semaphore.holders.len())
    }

    /// Updates this queue's entry in the line of a semaphore: asking since `asked`, or removed for
    /// `None`. Does not add it to a line that already has [`WAITING_MAX`] queues. While the plan is
    /// incomplete, may add the entry but neither changes nor removes it. If this queue asks, also
    /// removes queues that cannot take the semaphore now. Sorts the line.
    fn update_waiter(&self, semaphore: &mut Semaphore, asked: Option<WaitingSince>) {
        let queue = &self.head.key;
        let is_sure = !self.is_incomplete;
        match asked {
            Some(asked) => {
                let place = semaphore.waiting.iter().position(|waiter| waiter.key() == *queue);
                let waiter = SemaphoreWaiter::with_jobs(queue, self.priority(), asked);
                match place {
                    Some(at) if is_sure => semaphore.waiting[at] = waiter,
                    None if semaphore.waiting.len() < WAITING_MAX => semaphore.waiting.push(waiter),
                    _ => {}
                }
            }
            // If the transaction was full, not all jobs were processed: keep the entry.
            None if is_sure => semaphore.waiting.retain(|waiter| waiter.key() != *queue),
            None => {}
        }
        if asked.is_some() {
            semaphore
                .waiting
                .retain(|waiter| !self.snapshot.blocked_queues.contains(&waiter.key()));
        }
        semaphore.waiting.sort_by_cached_key(SemaphoreWaiter::service_order);
    }

    /// Returns a semaphore in this plan's state; a new one if it has no record.
    fn semaphore(&self, key: &SemaphoreKey) -> Semaphore {
        let known = self.semaphores.get(key).or_else(|| self.snapshot.semaphores.get(key));
        known.cloned().unwrap_or_else(|| Semaphore::new(key.clone()))
    }

    /// Records in this plan that a job of this queue waits for a semaphore since `since`, so that
    /// the queue is added to the semaphore's waiting queues and its later jobs come after. `nodes_held` says whether the job
    /// has its nodes. The caller has reserved room for the semaphore's record.
    fn add_waiting_job(&mut self, key: &SemaphoreKey, since: Timestamp, nodes_held: NodesHeld) {
        self.semaphore_waits.entry(key.clone()).or_default().add(nodes_held, since);
        self.waiting_jobs.push(WaitingJob { key: key.clone(), since, nodes_held });
        let semaphore = self.semaphore(key);
        self.semaphores.entry(key.clone()).or_insert(semaphore);
    }

    /// Returns the builds of this queue's jobs that are ordered, run or are paused.
    fn active_builds(&self) -> BTreeSet<BuildId> {
        let jobs = self.items.values().flat_map(|item| &item.jobs);
        jobs.filter(|job| Job::is_under_way(job)).filter_map(|job| job.build.clone()).collect()
    }

    /// Returns whether a build is known to be over: it ended, was lost, gets no nodes, or was
    /// stopped before an executor claimed it. `false` if nothing is known of it.
    fn is_over(&self, build: &BuildId) -> bool {
        matches!(
            self.snapshot.observed_builds.get(build),
            Some(
                ObservedBuild::Ended(_)
                    | ObservedBuild::Lost { .. }
                    | ObservedBuild::NoNodes(_)
                    | ObservedBuild::NeverClaimed
            )
        )
    }
}

/// Returns whether a job has its nodes when it acquires its semaphores, by the order in which it
/// takes them. It need not have them yet.
fn nodes_held(job: &Job) -> NodesHeld {
    if job.takes_nodes_first() { NodesHeld::With } else { NodesHeld::Without }
}
