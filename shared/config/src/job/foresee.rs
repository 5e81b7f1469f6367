//! What changes of a project would be told when their jobs are frozen, found before there is a
//! change: every pipeline that the project lists jobs for, on every branch of it.

use super::blame::Blame;
use super::freeze::{ALLOWED_PROJECTS, FreezeInput, Frozen};
use crate::error::{ConfigError, Problem, ProblemKind, Severity};
use crate::layout::Layout;
use sluice_model::job::FrozenJob;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};

/// Pipelines and branches that are tried for all projects together.
const TRIES_MAX: usize = 2_000;
/// Branches that are named with a mistake that not all of them have.
const BRANCHES_NAMED_MAX: usize = 3;

/// How much of a tenant a layout is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// All of it.
    Tenant,
    /// One repository by itself: others may list jobs for its projects, and what its project is
    /// called is a guess.
    Repository,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Foreseen {
    /// Every reason why jobs can not be frozen, and warnings of jobs that will not run, each once.
    /// What the layout tells by itself ([`Layout::errors`]) is left out.
    pub found: Vec<ConfigError>,
    /// Jobs that would run the playbook of their name (Z4.9).
    pub implied: Vec<FrozenJob>,
    /// Pipelines and branches that were too many to be tried.
    pub untried: usize,
}

impl Layout {
    /// Returns what changes of these projects would be told, on these branches of each.
    ///
    /// Names that nothing bears stand for something that allows everything: whatever depends on
    /// them is not told.
    pub fn foresee(&self, projects: &[(ProjectName, Vec<BranchName>)], known: Known) -> Foreseen {
        let layout = self.supposing();
        let mut foreseen = Foreseen::default();
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
                    let frozen = layout.freeze_as_far(&input, None);
                    for error in told(&frozen, known) {
                        places.entry(error).or_default().insert(branch);
                    }
                    let implied = frozen.jobs.into_iter().filter(|job| job.run_time.implied_run);
                    jobs.extend(implied.map(|job| ((job.name.clone(), branch.clone()), job)));
                }
            }
            foreseen
                .found
                .extend(places.into_iter().map(|(error, on)| naming(error, &on, branches.len())));
        }
        let told = self.errors().iter().filter(|error| error.problem.severity == Severity::Error);
        let told: Vec<&ConfigError> = told.collect();
        foreseen.found.retain(|error| !told.iter().any(|one| is_same(one, error)));
        let place =
            |error: &ConfigError| (error.project.clone(), error.path.clone(), error.problem.start);
        foreseen.found.sort_by_cached_key(|error| (place(error), error.clone()));
        foreseen.found.dedup();
        foreseen.implied = jobs.into_values().collect();
        foreseen
    }
}

/// Returns what is told of one try.
fn told(frozen: &Frozen, known: Known) -> Vec<ConfigError> {
    let refused = frozen.refused.iter().filter(|blame| !blame.is_told);
    let refused = refused.filter_map(|blame| match (known, blame.attribute) {
        // Which projects are meant there, and whether this is one of them, its own name would tell.
        (Known::Repository, ALLOWED_PROJECTS) => None,
        (Known::Repository, "dependencies") => Some(warning(blame, ProblemKind::NotPermitted)),
        _ => Some(blame.error.clone()),
    });
    refused
        .chain(frozen.parentless.iter().map(|blame| warning(blame, ProblemKind::Conflict)))
        .collect()
}

fn warning(blame: &Blame, kind: ProblemKind) -> ConfigError {
    let mut error = blame.error.clone();
    error.problem = Problem { kind, ..error.problem.as_warning() };
    error
}

/// Names the branches that have a mistake, where others have not or it is one of branches.
fn naming(mut error: ConfigError, on: &BTreeSet<&BranchName>, all: usize) -> ConfigError {
    if on.len() < all || error.problem.kind == ProblemKind::Conflict {
        let names: Vec<&str> =
            on.iter().take(BRANCHES_NAMED_MAX).map(|branch| branch.as_str()).collect();
        let more = match on.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        error.problem.message += &format!(" (for {}{more})", names.join(", "));
    }
    error
}

/// Returns whether two mistakes are one: they stand at one place, or say the same of one file.
fn is_same(told: &ConfigError, found: &ConfigError) -> bool {
    let file =
        |error: &ConfigError| (error.project.clone(), error.branch.clone(), error.path.clone());
    let (one, other) = (&told.problem, &found.problem);
    (one.start == other.start || one.message == other.message) && file(told) == file(found)
}
