//! When jobs of a kind run: initializers come before all others of their item.

use sluice_model::JobName;
use sluice_model::job::{Dependency, FrozenJob, JobKind};

/// Has every other job wait for the initializers of its item, whatever it says itself: it runs once all of them have succeeded, and
/// is given what they returned. An initializer that depends on another job closes a circle, which is told as any.
pub(super) fn begin_with_initializers(jobs: &mut [FrozenJob]) {
    let is_first = |job: &FrozenJob| job.run_time.kind == JobKind::Initializer;
    let first: Vec<JobName> = jobs.iter().filter(|job| is_first(job)).map(|job| job.name.clone()).collect();
    for job in jobs.iter_mut().filter(|job| !is_first(job)) {
        for name in &first {
            match job.dependencies.iter_mut().find(|dependency| dependency.name == *name) {
                Some(known) => known.soft = false,
                None => job.dependencies.push(Dependency { name: name.clone(), soft: false }),
            }
        }
    }
}
