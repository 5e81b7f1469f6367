//! Semaphores: taken before a build is ordered, all that it needs or none, and given back when it is known to be over.
//!
//! Foreign to the queue's cell, a semaphore is reserved: its record is written with the plan, on condition that nobody wrote it
//! since it was read. A build that was told to stop may still run for a while; it holds on until its run is over.
//!
//! Whoever waits stands in the line of everything that he waits for, and a place that is free is kept for those before him: a job that
//! needs several semaphores is not passed by for ever by those that need one, nor a queue by one that has many jobs. All lines go by one
//! order, and what runs ends, so whoever is first of all gets what he needs. Two stand in no line and take what is free, for others may wait
//! for what they have: a job beside a paused build, and one that has its nodes already.

use super::{RunSeen, Work};
use crate::item::{Item, Job};
use crate::semaphore::{Holder, Semaphore, SemaphoreKey, WAITING_MAX, Waiter};
use sluice_model::{BuildId, Timestamp};
use std::collections::BTreeSet;

/// What a job may do now as far as semaphores go.
pub(super) enum Permit {
    /// It holds all that it needs.
    Granted,
    /// It waits for the one that is named.
    Waits(SemaphoreKey),
}

impl Work<'_> {
    /// Takes every semaphore that a job names for one of its builds, or none of them (N16).
    pub(super) fn acquire(&mut self, item: &Item, at: usize, build: &BuildId) -> Permit {
        let wanted: Vec<(SemaphoreKey, u32)> =
            item.jobs[at].summary.semaphores.iter().map(|used| (self.snapshot.semaphore)(&used.name)).collect();
        let since = item.jobs[at].asked_at.unwrap_or(self.now);
        let is_first_served = item.jobs.iter().any(Job::is_paused) || item.jobs[at].takes_nodes_first();
        let blocked = wanted.iter().find(|(key, max)| {
            let semaphore = self.semaphore(key);
            let before = if is_first_served { 0 } else { self.before(&semaphore, since) };
            !semaphore.is_held_by(build) && semaphore.holders.len() + before >= *max as usize
        });
        if let Some((key, _)) = blocked {
            for (wanted, _) in &wanted {
                self.wait_for(wanted, since);
            }
            return Permit::Waits(key.clone());
        }
        let holder = Holder {
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

    /// Returns how many places are kept for others than a job that asked at this time: one for each queue before it in line that can
    /// come, and one for each job of this queue that was looked at before it and asked no later.
    fn before(&self, semaphore: &Semaphore, since: Timestamp) -> usize {
        let own = Waiter::new(&self.head.key, self.priority(), since).place();
        let is_before = |waiter: &&Waiter| {
            let place = waiter.place();
            place.2 != self.head.key && place < own && !self.snapshot.gone.contains(&place.2)
        };
        let of_queue = self.line.iter().filter(|(key, asked_at)| *key == semaphore.key && *asked_at <= since);
        semaphore.waiting.iter().filter(is_before).count() + of_queue.count()
    }

    fn priority(&self) -> u32 {
        self.snapshot.pipeline.map_or(200, |pipeline| pipeline.precedence.priority())
    }

    /// Gives back what builds of this queue hold that are over, and leaves the line where nothing waits any more (N17).
    pub(super) fn settle_semaphores(&mut self) {
        let live = self.live_builds();
        let queue = self.head.key.clone();
        let known: BTreeSet<SemaphoreKey> =
            self.snapshot.semaphores.keys().chain(self.semaphores.keys()).cloned().collect();
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
            let waits = self.waits.get(&key).copied();
            let is_given_back = semaphore.holders.len() < before.holders.len();
            // Its own jobs had their turn before the place was free.
            self.left_over |= is_given_back && waits.is_some();
            // What was stopped before anybody began it is over as soon as the stop is written.
            self.left_over |= begins_to_leave;
            self.stand_in_line(&mut semaphore, waits);
            let place = |semaphore: &Semaphore| {
                semaphore.waiting.iter().find(|waiter| waiter.key() == queue).map(Waiter::place)
            };
            let (was, is) = (place(&before), place(&semaphore));
            let has_stepped_back = was.is_some() && (is.is_none() || is > was);
            let held = self.snapshot.semaphores.get(&key).map_or(0, |seen| seen.holders.len());
            let has_taken = before.holders.len() > held;
            if is_given_back || (has_stepped_back && !has_taken) {
                // Whoever is before the others; those behind are told by those.
                let others = semaphore.waiting.iter().map(Waiter::key).filter(|other| *other != queue);
                let given_back = before.holders.len().saturating_sub(semaphore.holders.len()).max(1);
                self.plan.wake.extend(others.take(given_back));
            }
            let waits = waits.is_some();
            if waits || semaphore.holders.iter().any(|holder| holder.queue == queue) {
                used.push(key.clone());
            }
            // What was taken in this plan has its room; what is given back may wait for the next.
            let has_changed = self.snapshot.semaphores.get(&key) != Some(&semaphore);
            if self.semaphores.contains_key(&key) || (has_changed && self.has_room(1)) {
                self.semaphores.insert(key, semaphore);
            }
        }
        self.head.semaphores = used;
    }

    /// Has this queue stand in line since then, or not at all; and nobody who cannot come.
    fn stand_in_line(&self, semaphore: &mut Semaphore, since: Option<Timestamp>) {
        let queue = &self.head.key;
        let is_sure = !self.left_over;
        match since {
            Some(since) => {
                let place = semaphore.waiting.iter().position(|waiter| waiter.key() == *queue);
                match place {
                    Some(at) if is_sure => semaphore.waiting[at] = Waiter::new(queue, self.priority(), since),
                    None if semaphore.waiting.len() < WAITING_MAX => {
                        semaphore.waiting.push(Waiter::new(queue, self.priority(), since));
                    }
                    _ => {}
                }
            }
            // The transaction may have been full before its jobs were looked at.
            None if is_sure => semaphore.waiting.retain(|waiter| waiter.key() != *queue),
            None => {}
        }
        if since.is_some() {
            semaphore.waiting.retain(|waiter| !self.snapshot.gone.contains(&waiter.key()));
        }
        semaphore.waiting.sort_by_cached_key(Waiter::place);
    }

    fn semaphore(&self, key: &SemaphoreKey) -> Semaphore {
        let known = self.semaphores.get(key).or_else(|| self.snapshot.semaphores.get(key));
        known.cloned().unwrap_or_else(|| Semaphore::new(key.clone()))
    }

    fn wait_for(&mut self, key: &SemaphoreKey, since: Timestamp) {
        let longest = self.waits.entry(key.clone()).or_insert(since);
        *longest = since.min(*longest);
        self.line.push((key.clone(), since));
        let semaphore = self.semaphore(key);
        self.semaphores.entry(key.clone()).or_insert(semaphore);
    }

    fn live_builds(&self) -> BTreeSet<BuildId> {
        let jobs = self.items.values().flat_map(|item| &item.jobs);
        jobs.filter(|job| Job::is_under_way(job)).filter_map(|job| job.build.clone()).collect()
    }

    fn is_over(&self, build: &BuildId) -> bool {
        matches!(
            self.snapshot.runs.get(build),
            Some(RunSeen::Ended(_) | RunSeen::Lost { .. } | RunSeen::NoNodes(_) | RunSeen::NeverBegun)
        )
    }
}
