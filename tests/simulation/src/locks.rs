//! Checks semaphores: no more builds hold one than allowed, and a build holds those that its job
//! names.

use crate::scenarios::{SEMAPHORE_JOBS, SemaphoreTiming, semaphore_max};
use sluice_gate::Semaphore;
use sluice_model::build::Order;
use sluice_model::{BuildId, JobName};
use sluice_runtime::record::Key;
use std::collections::{BTreeMap, BTreeSet};

/// The holders of all semaphores, and the jobs of all builds.
#[derive(Default)]
pub struct Locks {
    /// How many builds may hold the semaphore `one`.
    one: usize,
    /// The current semaphore records.
    semaphores: BTreeMap<Key, Semaphore>,
    /// The job of each ordered build.
    jobs: BTreeMap<BuildId, JobName>,
}

impl Locks {
    /// Returns the check before any semaphore is held. `one` is the maximum of the semaphore `one`.
    pub fn new(one: usize) -> Self {
        Self { one, ..Self::default() }
    }

    /// Checks and stores a written semaphore.
    ///
    /// # Errors
    /// When more builds hold it than allowed, or one holds it twice.
    pub fn written(&mut self, key: &Key, semaphore: Semaphore) -> Result<(), String> {
        let (count, most) = (semaphore.holders.len(), semaphore_max(&semaphore.key.name, self.one));
        let builds: BTreeSet<&BuildId> =
            semaphore.holders.iter().map(|holder| &holder.build).collect();
        if count > most || builds.len() < count {
            return Err(format!("{count} builds hold it, but at most {most} may"));
        }
        self.semaphores.insert(key.clone(), semaphore);
        Ok(())
    }

    /// Checks the semaphores of a newly ordered build, and stores its job.
    ///
    /// # Errors
    /// When it lacks a semaphore that it must already hold, or holds one that its job does not
    /// name.
    pub fn ordered(&mut self, order: &Order) -> Result<(), String> {
        self.jobs.insert(order.build.clone(), order.job.clone());
        self.holds(&order.build, &order.job, SemaphoreTiming::BeforeNodes)
    }

    /// Checks the semaphores of a newly claimed build.
    ///
    /// # Errors
    /// When it lacks a semaphore that its job names.
    pub fn claimed(&self, build: &BuildId) -> Result<(), String> {
        self.jobs
            .get(build)
            .map_or(Ok(()), |job| self.holds(build, job, SemaphoreTiming::WithNodes))
    }

    /// Checks that a build holds the semaphores that its job must hold at a time, and no others.
    fn holds(&self, build: &BuildId, job: &JobName, now: SemaphoreTiming) -> Result<(), String> {
        let held = self.semaphores.values().filter(|semaphore| semaphore.is_held_by(build));
        let held: BTreeSet<&str> = held.map(|semaphore| semaphore.key.name.as_str()).collect();
        let named = SEMAPHORE_JOBS.iter().find(|(name, ..)| *name == job.as_str());
        let (named, taken) = named
            .map_or((&[][..], SemaphoreTiming::BeforeNodes), |(_, named, taken)| (named, *taken));
        if let Some(other) = held.iter().find(|held| !named.contains(held)) {
            return Err(format!(
                "it holds the semaphore {other}, which its job {job} does not name"
            ));
        }
        let must_hold = taken == SemaphoreTiming::BeforeNodes || now == SemaphoreTiming::WithNodes;
        match named.iter().find(|name| must_hold && !held.contains(*name)) {
            Some(missing) => Err(format!(
                "it continues without the semaphore {missing} that its job {job} needs"
            )),
            None => Ok(()),
        }
    }
}
