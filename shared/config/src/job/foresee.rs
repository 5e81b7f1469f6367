//! Finds freeze errors before there is a change: freezes the jobs of every pipeline of a project on
//! every branch.

use super::errors::JobError;
use super::freeze::{ALLOWED_PROJECTS, FreezeInput, Frozen};
use crate::error::{ConfigError, Diagnostic, DiagnosticKind, Severity};
use crate::layout::Layout;
use sluice_model::job::FrozenJob;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pipelines and branches that are tried for all projects together.
const TRIES_MAX: usize = 2_000;
/// Maximum number of branches named in an error that only some branches have.
const BRANCHES_NAMED_MAX: usize = 3;

/// How much of a tenant the layout contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All of it.
    Tenant,
    /// A single repository. Other repositories may list jobs for its project, and the project's
    /// name is a guess.
    Repository,
}

/// The result of freezing jobs in advance.
#[derive(Debug, Default)]
pub struct Forecast {
    /// Reasons why jobs cannot be frozen, and warnings about jobs that will not run, each once.
    /// Without those in [`Layout::errors`].
    pub diagnostics: Vec<ConfigError>,
    /// Jobs that would run the playbook with their name (Z4.9).
    pub implied: Vec<FrozenJob>,
    /// The number of pipelines and branches that were not tried because there were too many.
    pub untried: usize,
}

impl Layout {
    /// Freezes the jobs of every pipeline of these projects on the given branches, with unknown
    /// files, and returns the errors and warnings that changes to these would get, sorted by place.
    /// Errors that [`Layout::errors`] has, and errors that depend on undefined names, are left out.
    /// With [`Coverage::Repository`], so are errors about `allowed-projects`, and errors about
    /// dependencies become warnings. Also returns the jobs that would run the playbook with their
    /// name, one for each job name and branch. After 2,000 pairs of pipeline and branch, over all
    /// projects, the remaining pairs are only counted.
    pub fn foresee(
        &self,
        projects: &[(ProjectName, Vec<BranchName>)],
        coverage: Coverage,
    ) -> Forecast {
        let layout = self.with_placeholders();
        let mut foreseen = Forecast::default();
        let (mut tried, mut jobs) = (0, BTreeMap::new());
        for (project, branches) in projects {
            let mut places: BTreeMap<ConfigError, BTreeSet<&BranchName>> = BTreeMap::new();
            for pipeline in layout.project_pipelines(project) {
                for branch in branches {
                    tried += 1;
                    if tried > TRIES_MAX {
                        foreseen.untried += 1;
                        continue;
                    }
                    let input = FreezeInput::change(pipeline.as_str(), project, branch.as_str());
                    let frozen = layout.freeze_each(&input, None);
                    for error in reported(&frozen, coverage) {
                        places.entry(error).or_default().insert(branch);
                    }
                    let implied = frozen.jobs.into_iter().filter(|job| job.run_time.implied_run);
                    jobs.extend(implied.map(|job| ((job.name.clone(), branch.clone()), job)));
                }
            }
            foreseen.diagnostics.extend(
                places.into_iter().map(|(error, on)| with_branches(error, &on, branches.len())),
            );
        }
        let reported =
            self.errors().iter().filter(|error| error.diagnostic.severity == Severity::Error);
        let reported: Vec<&ConfigError> = reported.collect();
        foreseen.diagnostics.retain(|error| !reported.iter().any(|one| is_same(one, error)));
        let place = |error: &ConfigError| {
            (error.project.clone(), error.path.clone(), error.diagnostic.start)
        };
        foreseen.diagnostics.sort_by_cached_key(|error| (place(error), error.clone()));
        foreseen.diagnostics.dedup();
        foreseen.implied = jobs.into_values().collect();
        foreseen
    }
}

/// Returns the diagnostics of one attempt to freeze: errors of jobs, and warnings about jobs of
/// which an ancestor has no definition for the branch. Errors that the layout itself reports are
/// left out. If only a repository is covered, errors about `allowed-projects` are left out too, and
/// those about dependencies become warnings.
fn reported(frozen: &Frozen, coverage: Coverage) -> Vec<ConfigError> {
    let rejections = frozen.rejections.iter().filter(|job_error| !job_error.is_reported_elsewhere);
    let rejections = rejections.filter_map(|job_error| match (coverage, job_error.attribute) {
        // The lists name projects by their real names, which are not known here.
        (Coverage::Repository, ALLOWED_PROJECTS) => None,
        (Coverage::Repository, "dependencies") => {
            Some(warning(job_error, DiagnosticKind::NotPermitted))
        }
        _ => Some(job_error.error.clone()),
    });
    rejections
        .chain(
            frozen.parentless.iter().map(|job_error| warning(job_error, DiagnosticKind::Conflict)),
        )
        .collect()
}

/// Returns the error of a job as a warning, with its kind replaced by `kind`.
fn warning(job_error: &JobError, kind: DiagnosticKind) -> ConfigError {
    let mut error = job_error.error.clone();
    error.diagnostic = Diagnostic { kind, ..error.diagnostic.as_warning() };
    error
}

/// Adds the names of the affected branches `on` to the message of a diagnostic, at most 3 of them
/// and the number of the others. Returns it unchanged if all branches are affected (`all` is their
/// number), unless it is of kind `Conflict`, which is about branches.
fn with_branches(mut error: ConfigError, on: &BTreeSet<&BranchName>, all: usize) -> ConfigError {
    if on.len() < all || error.diagnostic.kind == DiagnosticKind::Conflict {
        let names: Vec<&str> =
            on.iter().take(BRANCHES_NAMED_MAX).map(|branch| branch.as_str()).collect();
        let more = match on.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        error.diagnostic.message += &format!(" (for {}{more})", names.join(", "));
    }
    error
}

/// Returns whether two diagnostics count as the same: they are in the same file of the same branch,
/// and have the same start or the same message.
fn is_same(reported: &ConfigError, found: &ConfigError) -> bool {
    let file =
        |error: &ConfigError| (error.project.clone(), error.branch.clone(), error.path.clone());
    let (one, other) = (&reported.diagnostic, &found.diagnostic);
    (one.start == other.start || one.message == other.message) && file(reported) == file(found)
}
