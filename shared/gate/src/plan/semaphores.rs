//! Semaphores: taken before a build is ordered, all that it needs or none, and given back when it is known to be over.
//!
//! Foreign to the queue's cell, a semaphore is reserved: its record is written with the plan, on condition that nobody wrote it
//! since it was read. A build that was told to stop may still run for a while; it holds on until its run is over.

use super::{RunSeen, Work};
use crate::item::{Item, Job};
use crate::semaphore::{Holder, Semaphore, SemaphoreKey, WAITING_MAX};
use sluice_model::BuildId;
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
        for (key, max) in &wanted {
            let semaphore = self.semaphore(key);
            if !semaphore.is_held_by(build) && semaphore.holders.len() >= *max as usize {
                self.wait_for(key);
                return Permit::Waits(key.clone());
            }
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

    /// Gives back what builds of this queue hold that are over, and leaves the line where nothing waits any more (N17).
    pub(super) fn settle_semaphores(&mut self) {
        let live = self.live_builds();
        let queue = self.head.key.clone();
        let known: BTreeSet<SemaphoreKey> =
            self.snapshot.semaphores.keys().chain(self.semaphores.keys()).cloned().collect();
        let mut used = Vec::new();
        for key in known {
            let mut semaphore = self.semaphore(&key);
            let before = semaphore.holders.len();
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
            if semaphore.holders.len() < before {
                self.plan.wake.extend(semaphore.waiting.drain(..).filter(|waiting| *waiting != queue));
                // Its own jobs had their turn before the place was free.
                self.left_over |= self.waits.contains(&key);
            }
            // What was stopped before anybody began it is over as soon as the stop is written.
            self.left_over |= begins_to_leave;
            let waits = self.waits.contains(&key);
            // What its own builds give back it sees by itself.
            let others_hold = semaphore.holders.iter().any(|holder| holder.queue != queue);
            let is_listed = semaphore.waiting.contains(&queue);
            if waits && others_hold && !is_listed && semaphore.waiting.len() < WAITING_MAX {
                semaphore.waiting.push(queue.clone());
            } else if !waits {
                semaphore.waiting.retain(|waiting| *waiting != queue);
            }
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

    fn semaphore(&self, key: &SemaphoreKey) -> Semaphore {
        let known = self.semaphores.get(key).or_else(|| self.snapshot.semaphores.get(key));
        known.cloned().unwrap_or_else(|| Semaphore::new(key.clone()))
    }

    fn wait_for(&mut self, key: &SemaphoreKey) {
        self.waits.insert(key.clone());
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
