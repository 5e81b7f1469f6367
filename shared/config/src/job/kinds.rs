//! Kinds of jobs: initializers run before all other jobs of their item, reporters after its
//! reports.

use super::apply::Rejection;
use crate::fragment::Source;
use crate::layout::Layout;
use sluice_model::job::{FrozenJob, JobDependency, JobKind};
use sluice_model::{JobName, ProjectName};

/// Adds a hard dependency on every initializer to every job in `jobs` that is not an initializer.
/// An existing soft dependency on an initializer becomes hard. Such a job runs once all
/// initializers have succeeded, and gets their returned data. An initializer that depends on
/// another kind of job thus creates a cycle, which this function does not report.
pub(super) fn depend_on_initializers(jobs: &mut [FrozenJob]) {
    let is_first = |job: &FrozenJob| job.run_time.kind == JobKind::Initializer;
    let first: Vec<JobName> =
        jobs.iter().filter(|job| is_first(job)).map(|job| job.name.clone()).collect();
    for job in jobs.iter_mut().filter(|job| !is_first(job)) {
        for name in &first {
            match job.dependencies.iter_mut().find(|dependency| dependency.name == *name) {
                Some(existing) => existing.soft = false,
                None => job.dependencies.push(JobDependency { name: name.clone(), soft: false }),
            }
        }
    }
}

/// Returns whether a project may run reporter jobs: config projects, and those with
/// `allow-reporter-jobs`. `source` is the file whose project lists the job or names the template.
/// Where the job or template is defined makes no difference.
pub(super) fn may_report(layout: &Layout, source: &Source) -> bool {
    let project = || layout.project(source.project.as_str());
    source.trust.is_trusted() || project().is_some_and(|project| project.allow_reporter_jobs)
}

/// Builds the error for a reporter job that `project` lists, directly or through a template, and
/// may not run. The caller has checked that with [`may_report`]; nothing is checked here.
pub(super) fn reporter_not_allowed(job: &str, project: &ProjectName) -> Rejection {
    let message = format!(
        "Job {job} is a reporter, but {project} lists it, directly or through a template: list it \
         in a config project, or set \"allow-reporter-jobs\" for {project} in the tenant \
         configuration"
    );
    Rejection::of("type", message)
}
