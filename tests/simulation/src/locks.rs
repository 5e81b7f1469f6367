//! Semaphores as they are held: no more at once than may be, and whoever runs holds what its job
//! names.

use crate::plays::{LOCKS, Taken, most};
use sluice_gate::Semaphore;
use sluice_model::build::Order;
use sluice_model::{BuildId, JobName};
use sluice_runtime::record::Key;
use std::collections::{BTreeMap, BTreeSet};

/// Who holds what.
#[derive(Default)]
pub struct Locks {
    /// The builds that may hold the semaphore `one` at once.
    one: usize,
    semaphores: BTreeMap<Key, Semaphore>,
    jobs: BTreeMap<BuildId, JobName>,
}

impl Locks {
    /// Returns semaphores that nobody holds, of which `one` has room for so many builds.
    pub fn new(one: usize) -> Self {
        Self { one, ..Self::default() }
    }

    /// Sees a semaphore written.
    ///
    /// # Errors
    /// When more hold it than may.
    pub fn written(&mut self, key: &Key, semaphore: Semaphore) -> Result<(), String> {
        let (count, most) = (semaphore.holders.len(), most(&semaphore.key.name, self.one));
        let builds: BTreeSet<&BuildId> =
            semaphore.holders.iter().map(|holder| &holder.build).collect();
        if count > most || builds.len() < count {
            return Err(format!("{count} builds hold it, and {most} may"));
        }
        self.semaphores.insert(key.clone(), semaphore);
        Ok(())
    }

    /// Sees a build ordered.
    ///
    /// # Errors
    /// When it lacks what it has to hold by then, or holds what its job does not name.
    pub fn ordered(&mut self, order: &Order) -> Result<(), String> {
        self.jobs.insert(order.build.clone(), order.job.clone());
        self.holds(&order.build, &order.job, Taken::BeforeNodes)
    }

    /// Sees a build claimed.
    ///
    /// # Errors
    /// When it runs without a semaphore that its job names.
    pub fn claimed(&self, build: &BuildId) -> Result<(), String> {
        self.jobs.get(build).map_or(Ok(()), |job| self.holds(build, job, Taken::WithNodes))
    }

    fn holds(&self, build: &BuildId, job: &JobName, now: Taken) -> Result<(), String> {
        let held = self.semaphores.values().filter(|semaphore| semaphore.is_held_by(build));
        let held: BTreeSet<&str> = held.map(|semaphore| semaphore.key.name.as_str()).collect();
        let named = LOCKS.iter().find(|(name, ..)| *name == job.as_str());
        let (named, taken) =
            named.map_or((&[][..], Taken::BeforeNodes), |(_, named, taken)| (named, *taken));
        if let Some(other) = held.iter().find(|held| !named.contains(held)) {
            return Err(format!(
                "it holds the semaphore {other}, which its job {job} does not name"
            ));
        }
        let must_hold = taken == Taken::BeforeNodes || now == Taken::WithNodes;
        match named.iter().find(|name| must_hold && !held.contains(*name)) {
            Some(missing) => {
                Err(format!("it goes on without the semaphore {missing} that its job {job} needs"))
            }
            None => Ok(()),
        }
    }
}
