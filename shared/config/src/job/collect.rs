//! Collects the definitions of a job and its ancestors that apply to a branch, in order (Z4.1,
//! Z4.2).

use super::trace::{StepKind, TraceStep};
use crate::layout::{BranchContext, Definition, Layout};
use crate::objects::{JobStanza, Parent};
use sluice_model::{BranchName, ProjectName};
use std::collections::BTreeMap;

/// Maximum depth of inheritance.
const DEPTH_MAX: usize = 50;
/// Maximum number of definitions of a job and its ancestors that apply together.
const VARIANTS_MAX: usize = 1_000;

/// The branch or ref that definitions are matched against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The branch, or the branches that contain a tag.
    pub(super) on: BranchContext<'a>,
    /// The whole ref.
    pub(super) git_ref: &'a str,
}

impl<'a> Target<'a> {
    /// Returns the branch, or the ref if there is no branch.
    pub(super) fn name(self) -> &'a str {
        match self.on {
            BranchContext::Branch(branch) => branch,
            BranchContext::Containing(_) | BranchContext::Unknown => self.git_ref,
        }
    }

    /// Returns the reason why a definition does not apply to the target; the caller has found that
    /// it does not. `subject` is the definition's file or stanza, and `branches` the attribute that
    /// names branches, both as words of the sentence; `branches` is `None` if the definition names
    /// none. `held_by` is the branch that holds the definition, and `is_bound_here` says whether
    /// the branches that the file implies match.
    pub(super) fn mismatch(
        self,
        subject: &str,
        branches: Option<&str>,
        held_by: &BranchName,
        is_bound_here: bool,
    ) -> String {
        match (self.on, branches) {
            (BranchContext::Containing(_), Some(branches)) if is_bound_here => {
                format!("{branches} match neither {} nor a branch that contains it", self.git_ref)
            }
            (BranchContext::Containing(_), _) => {
                format!(
                    "{subject} applies to branch {held_by}, which does not contain {}",
                    self.git_ref
                )
            }
            (BranchContext::Branch(_) | BranchContext::Unknown, Some(branches)) => {
                format!("{branches} do not match {}", self.name())
            }
            (BranchContext::Branch(_) | BranchContext::Unknown, None) => {
                format!("{subject} applies to branch {held_by}, not to {}", self.name())
            }
        }
    }
}

/// The branches that are checked out instead of the target's branch. Definitions are selected by
/// them too (Z4.3).
#[derive(Debug, Clone, Default)]
pub(super) struct Checkouts<'l> {
    /// The job's `override-checkout`.
    of_job: Option<&'l str>,
    /// The `override-checkout` of required projects.
    of_projects: BTreeMap<&'l ProjectName, &'l str>,
}

impl<'l> Checkouts<'l> {
    /// Adds the `override-checkout` of a definition or entry and of its required projects. Later
    /// values replace earlier ones, so the caller adds them in order of application; a missing
    /// value leaves the one before. Unknown projects are ignored.
    pub(super) fn take(&mut self, layout: &'l Layout, job: &'l JobStanza) {
        self.of_job = job.override_checkout.as_deref().or(self.of_job);
        for required in job.required_projects.iter().flat_map(|list| &list.value) {
            if let Some(branch) = required.override_checkout.as_deref()
                && let Some(project) = layout.project(&required.name)
            {
                self.of_projects.insert(&project.name, branch);
            }
        }
    }

    /// Returns the branch that selects the definitions that a project holds, in place of the
    /// target's branch: the value for the project, else the job's. Each counts only if the project
    /// has such a branch, as in the workspace. `None` if neither does; then the target's branch
    /// selects them.
    fn of(&self, layout: &Layout, project: &ProjectName) -> Option<&'l str> {
        let overrides = [self.of_projects.get(project).copied(), self.of_job];
        overrides.into_iter().flatten().find(|branch| layout.has_branch(project, branch))
    }
}

/// Why the definitions could not be collected.
#[derive(Debug)]
pub(super) enum Unmatched<'l> {
    /// No definition of this job applies here, so the job does not run.
    NoVariant(String),
    /// There are too many definitions.
    TooMany(String),
    /// The job is undefined or inherits from itself: the message, and the definition that names it
    /// as its parent, if any.
    BadReference(String, Option<Definition<'l, JobStanza>>),
}

impl<'l> Unmatched<'l> {
    /// Attaches the definition whose parent failed to an error about an undefined job or a cycle.
    /// An error that has a definition from further up, or is of another kind, stays as it is.
    fn at_parent_of(self, defined: Definition<'l, JobStanza>) -> Self {
        match self {
            Self::BadReference(message, None) => Self::BadReference(message, Some(defined)),
            other => other,
        }
    }
}

/// A definition that applies.
#[derive(Clone, Copy)]
pub(super) struct Variant<'l> {
    /// The definition with its file.
    pub(super) defined: Definition<'l, JobStanza>,
    /// The definition.
    pub(super) job: &'l JobStanza,
    /// Its depth: 0 for the base job.
    pub(super) depth: u32,
}

/// Returns whether a definition with these `branches` applies to a target. `implied` says whether
/// the branch that holds the definition, or its implied branches, match; this decides alone if
/// `branches` is `None`. An empty list matches every branch. Otherwise a branch must match one of
/// the patterns, whatever `implied` is, and a tag must match by its ref or by a branch that
/// contains it, with `implied` true as well. If the branch is unknown, the ref must match.
pub(super) fn applies(
    defined_branches: Option<&[crate::Pattern]>,
    implied: bool,
    target: Target<'_>,
) -> bool {
    let Some(patterns) = defined_branches else { return implied };
    let is_named = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
    match target.on {
        _ if patterns.is_empty() => true,
        BranchContext::Branch(branch) => is_named(branch),
        BranchContext::Containing(_) => {
            implied && (is_named(target.git_ref) || target.on.is_any(is_named))
        }
        BranchContext::Unknown => is_named(target.git_ref),
    }
}

/// Returns the definitions of `name` and its ancestors that apply, each with its depth. All
/// definitions of a parent come before the first definition that names it. An error if a job of the
/// chain has no definition that applies, is undefined, or inherits from itself, over more than 50
/// levels, or if more than 1,000 definitions apply. `checkouts` are those of the job's entries,
/// which also select definitions. The examined definitions are added to `steps`, if given, also
/// before an error. The built-in job `noop` counts as undefined unless the layout defines it.
pub(super) fn collect<'l>(
    layout: &'l Layout,
    name: &str,
    target: Target<'_>,
    checkouts: &Checkouts<'l>,
    steps: Option<&mut Vec<TraceStep>>,
) -> Result<Vec<Variant<'l>>, Unmatched<'l>> {
    let mut traversal = Traversal { layout, target, stack: Vec::new(), found: Vec::new(), steps };
    traversal.job(name, checkouts)?;
    let mut found = traversal.found;
    let depths: Vec<String> =
        found.iter().map(|variant: &Variant<'_>| variant.job.name.clone()).collect();
    let mut seen: Vec<&String> = Vec::new();
    for (variant, name) in found.iter_mut().zip(&depths) {
        let depth = seen.iter().position(|one| *one == name).unwrap_or_else(|| {
            seen.push(name);
            seen.len() - 1
        });
        variant.depth = u32::try_from(depth).unwrap_or(u32::MAX);
    }
    Ok(found)
}

/// The traversal from a job through its ancestors.
struct Traversal<'l, 's> {
    layout: &'l Layout,
    target: Target<'s>,
    stack: Vec<String>,
    found: Vec<Variant<'l>>,
    steps: Option<&'s mut Vec<TraceStep>>,
}

impl<'l> Traversal<'l, '_> {
    /// Adds the definitions of a job that apply to `self.found`, and before them those of each
    /// parent, unless they are there already. The caller has checked that the job's own definitions
    /// are not there. `checkouts` are those of the entries and of the children; their branch, if
    /// the job's project has it, selects the definitions instead of the target's. An error if none
    /// applies, the job is undefined or inherits from itself, an ancestor fails, or a limit is
    /// exceeded; `self` must not be used then. Depths are not set yet.
    fn job(&mut self, name: &str, checkouts: &Checkouts<'l>) -> Result<(), Unmatched<'l>> {
        if self.stack.len() >= DEPTH_MAX || self.stack.iter().any(|above| above == name) {
            self.stack.push(name.to_owned());
            let path = self.stack.join(" → ");
            let message = format!("Dependency cycle detected in the parents of job {name}: {path}");
            return Err(Unmatched::BadReference(message, None));
        }
        self.stack.push(name.to_owned());
        let mut variants = self.layout.jobs(name).peekable();
        let Some(first) = variants.peek() else {
            return Err(Unmatched::BadReference(format!("Job {name} not defined"), None));
        };
        // All definitions of a job belong to one project.
        let target = match checkouts.of(self.layout, &first.source().project) {
            Some(branch) => Target { on: BranchContext::Branch(branch), ..self.target },
            None => self.target,
        };
        // A job's checkouts also select its ancestors' definitions, and no other job's.
        let mut of_parents = checkouts.clone();
        let mut matched = false;
        for defined in variants {
            let job = defined.object;
            let is_bound_here = defined.matches_implied(target.on);
            if !applies(job.branches.as_deref(), is_bound_here, target) {
                if let Some(steps) = self.steps.as_deref_mut() {
                    let branches = job.branches.as_ref().map(|_| "its branches");
                    let reason = target.mismatch(
                        "its file",
                        branches,
                        &defined.source().branch,
                        is_bound_here,
                    );
                    steps.push(TraceStep::step(
                        StepKind::Definition,
                        job,
                        defined.source(),
                        Some(reason),
                    ));
                }
                continue;
            }
            of_parents.take(self.layout, job);
            let parent = match &job.parent {
                Parent::Base => None,
                Parent::Named(parent) => Some(parent.as_str()),
                // A base job without `parent` is a further variant of the default parent.
                Parent::Unset if !matched => Some(self.layout.tenant().default_parent.as_str())
                    .filter(|parent| *parent != name),
                Parent::Unset => None,
            };
            // A job that names itself as its parent would run without a base job, or only seem to
            // inherit if another definition came before.
            if let Some(parent) = parent
                && (parent == name || !self.found.iter().any(|variant| variant.job.name == parent))
            {
                self.job(parent, &of_parents).map_err(|why| why.at_parent_of(defined))?;
            }
            matched = true;
            if self.found.len() >= VARIANTS_MAX {
                return Err(Unmatched::TooMany(format!(
                    "More than {VARIANTS_MAX} definitions of job {} and its ancestors apply",
                    self.stack.first().map_or(name, String::as_str)
                )));
            }
            if let Some(steps) = self.steps.as_deref_mut() {
                steps.push(TraceStep::applied(StepKind::Definition, job, defined.source()));
            }
            self.found.push(Variant { defined, job, depth: 0 });
        }
        self.stack.pop();
        if matched { Ok(()) } else { Err(Unmatched::NoVariant(name.to_owned())) }
    }
}
