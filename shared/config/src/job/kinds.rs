//! When jobs of a kind run: initializers come before all others of their item, reporters after its
//! reports.

use super::apply::Refused;
use crate::fragment::Source;
use crate::layout::Layout;
use sluice_model::job::{Dependency, FrozenJob, JobKind};
use sluice_model::{JobName, ProjectName};

/// Has every other job wait for the initializers of its item, whatever it says itself: it runs once
/// all of them have succeeded, and is given what they returned. An initializer that depends on
/// another job closes a circle, which is told as any.
pub(super) fn begin_with_initializers(jobs: &mut [FrozenJob]) {
    let is_first = |job: &FrozenJob| job.run_time.kind == JobKind::Initializer;
    let first: Vec<JobName> =
        jobs.iter().filter(|job| is_first(job)).map(|job| job.name.clone()).collect();
    for job in jobs.iter_mut().filter(|job| !is_first(job)) {
        for name in &first {
            match job.dependencies.iter_mut().find(|dependency| dependency.name == *name) {
                Some(known) => known.soft = false,
                None => job.dependencies.push(Dependency { name: name.clone(), soft: false }),
            }
        }
    }
}

/// Returns whether a project may have reporters run: config projects, and those that the tenant
/// lets (`allow-reporter-jobs`). Who lists the job for the project, itself or by naming a template,
/// counts, wherever job and template are defined.
pub(super) fn may_report(layout: &Layout, source: &Source) -> bool {
    let project = || layout.project(source.project.as_str());
    source.trust.is_trusted() || project().is_some_and(|project| project.allow_reporter_jobs)
}

/// Says that a project lists a reporter and may not.
pub(super) fn not_reported_by(job: &str, project: &ProjectName) -> Refused {
    let message = format!(
        "Job {job} is a reporter, and {project} lists it, itself or by a template: list it in a config project, or have the tenant say allow-reporter-jobs of {project}"
    );
    Refused::of("type", message)
}
