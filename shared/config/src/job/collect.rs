//! Which definitions of a job, and of those it inherits from, apply to a branch, in order (Z4.1,
//! Z4.2).

use super::trace::{Step, StepKind};
use crate::layout::{Defined, Layout, On};
use crate::objects::{JobStanza, Parent};
use sluice_model::{BranchName, ProjectName};
use std::collections::BTreeMap;

/// Depth of jobs that inherit from jobs.
const DEPTH_MAX: usize = 50;
/// Greatest number of definitions of a job and of those it inherits from that apply together.
const VARIANTS_MAX: usize = 1_000;

/// What a change is matched by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// Where it is.
    pub(super) on: On<'a>,
    /// The whole ref.
    pub(super) git_ref: &'a str,
}

impl<'a> Target<'a> {
    /// Returns its branch, or its ref where it is on none.
    pub(super) fn name(self) -> &'a str {
        match self.on {
            On::Branch(branch) => branch,
            On::Within(_) | On::Unknown => self.git_ref,
        }
    }

    /// Says why something counts for nothing here: `branches` are those that it names, if it names
    /// some; `own` is the branch that it stands on, and `is_bound_here` whether that is meant.
    pub(super) fn why_not(
        self,
        what: &str,
        branches: Option<&str>,
        own: &BranchName,
        is_bound_here: bool,
    ) -> String {
        match (self.on, branches) {
            (On::Within(_), Some(branches)) if is_bound_here => {
                format!(
                    "{branches} match neither {} nor a branch that has its commit",
                    self.git_ref
                )
            }
            (On::Within(_), _) => {
                format!("{what} is for {own}, which does not have the commit of {}", self.git_ref)
            }
            (On::Branch(_) | On::Unknown, Some(branches)) => {
                format!("{branches} do not match {}", self.name())
            }
            (On::Branch(_) | On::Unknown, None) => {
                format!("{what} is of {own} and that is not {}", self.name())
            }
        }
    }
}

/// Which branches are checked out instead of the target's own: definitions are chosen by them too
/// (Z4.3).
#[derive(Debug, Clone, Default)]
pub(super) struct Checkouts<'l> {
    of_all: Option<&'l str>,
    of_projects: BTreeMap<&'l ProjectName, &'l str>,
}

impl<'l> Checkouts<'l> {
    /// Takes what a definition or an entry says of the whole job and of projects that it requires;
    /// what was said before gives way.
    pub(super) fn take(&mut self, layout: &'l Layout, job: &'l JobStanza) {
        self.of_all = job.override_checkout.as_deref().or(self.of_all);
        for required in job.required_projects.iter().flat_map(|list| &list.value) {
            if let Some(branch) = required.override_checkout.as_deref()
                && let Some(project) = layout.project(&required.name)
            {
                self.of_projects.insert(&project.name, branch);
            }
        }
    }

    /// Returns the branch that definitions of a project are chosen by instead of the target's. What
    /// is said of the project itself counts before what is said of the job, and each only where the
    /// project has such a branch, as in the workspace: without any the target's own is meant.
    fn of(&self, layout: &Layout, project: &ProjectName) -> Option<&'l str> {
        let said = [self.of_projects.get(project).copied(), self.of_all];
        said.into_iter().flatten().find(|branch| layout.has_branch(project, branch))
    }
}

/// Why no list of definitions came out.
#[derive(Debug)]
pub(super) enum Unmatched<'l> {
    /// Nothing of the job, or of one it inherits from, applies here: the job does not run.
    NoVariant(String),
    /// The configuration contradicts itself.
    Broken(String),
    /// A job is not there, or inherits from itself: why, and the definition that names it as its
    /// parent, where one does.
    Named(String, Option<Defined<'l, JobStanza>>),
}

impl<'l> Unmatched<'l> {
    /// Returns the same of a definition whose parent could not be followed: the mistake is its own,
    /// unless it is one further up.
    fn below(self, defined: Defined<'l, JobStanza>) -> Self {
        match self {
            Self::Named(message, None) => Self::Named(message, Some(defined)),
            other => other,
        }
    }
}

/// One definition that applies.
#[derive(Clone, Copy)]
pub(super) struct Variant<'l> {
    pub(super) defined: Defined<'l, JobStanza>,
    pub(super) job: &'l JobStanza,
    /// How deep it stands: 0 is the base job.
    pub(super) depth: u32,
}

/// Returns whether a definition applies to a target. One that names no branch in its list is for
/// all of them, wherever it stands; a tag is named by its ref, or by a branch that has its commit,
/// and only by what stands on such a branch or is bound to none.
pub(super) fn applies(
    defined_branches: Option<&[crate::Pattern]>,
    implied: bool,
    target: Target<'_>,
) -> bool {
    let Some(patterns) = defined_branches else { return implied };
    let is_named = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
    match target.on {
        _ if patterns.is_empty() => true,
        On::Branch(branch) => is_named(branch),
        On::Within(_) => implied && (is_named(target.git_ref) || target.on.is_any(is_named)),
        On::Unknown => is_named(target.git_ref),
    }
}

/// Returns the definitions of `name` and its ancestors that apply, outermost ancestor first.
/// `checkouts` are those that entries name.
///
/// What was looked at is put into `steps`, where somebody wants to know.
pub(super) fn collect<'l>(
    layout: &'l Layout,
    name: &str,
    target: Target<'_>,
    checkouts: &Checkouts<'l>,
    steps: Option<&mut Vec<Step>>,
) -> Result<Vec<Variant<'l>>, Unmatched<'l>> {
    let mut walk = Walk { layout, target, stack: Vec::new(), found: Vec::new(), steps };
    walk.job(name, checkouts)?;
    let mut found = walk.found;
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

/// The way from a job through those it inherits from.
struct Walk<'l, 's> {
    layout: &'l Layout,
    target: Target<'s>,
    stack: Vec<String>,
    found: Vec<Variant<'l>>,
    steps: Option<&'s mut Vec<Step>>,
}

impl<'l> Walk<'l, '_> {
    fn job(&mut self, name: &str, checkouts: &Checkouts<'l>) -> Result<(), Unmatched<'l>> {
        if self.stack.len() >= DEPTH_MAX || self.stack.iter().any(|above| above == name) {
            self.stack.push(name.to_owned());
            let way = self.stack.join(" → ");
            let message = format!("Dependency cycle detected in the parents of job {name}: {way}");
            return Err(Unmatched::Named(message, None));
        }
        self.stack.push(name.to_owned());
        let mut variants = self.layout.jobs(name).peekable();
        let Some(first) = variants.peek() else {
            return Err(Unmatched::Named(format!("Job {name} not defined"), None));
        };
        // All definitions of a job are of one project.
        let target = match checkouts.of(self.layout, &first.source().project) {
            Some(branch) => Target { on: On::Branch(branch), ..self.target },
            None => self.target,
        };
        // What a job checks out is also what its parents are chosen by, and no other job.
        let mut of_parents = checkouts.clone();
        let mut matched = false;
        for defined in variants {
            let job = defined.object;
            let is_bound_here = defined.matches_implied(target.on);
            if !applies(job.branches.as_deref(), is_bound_here, target) {
                if let Some(steps) = self.steps.as_deref_mut() {
                    let branches = job.branches.as_ref().map(|_| "its branches");
                    let reason = target.why_not(
                        "its file",
                        branches,
                        &defined.source().branch,
                        is_bound_here,
                    );
                    steps.push(Step::left_out(
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
                // A base job that says nothing of its parent is the default parent itself: a
                // further variant of it.
                Parent::Unset if !matched => Some(self.layout.tenant().default_parent.as_str())
                    .filter(|parent| *parent != name),
                Parent::Unset => None,
            };
            // Whoever names itself would run without a base job, or, where another definition came
            // before, only seem to inherit.
            if let Some(parent) = parent
                && (parent == name || !self.found.iter().any(|variant| variant.job.name == parent))
            {
                self.job(parent, &of_parents).map_err(|why| why.below(defined))?;
            }
            matched = true;
            if self.found.len() >= VARIANTS_MAX {
                return Err(Unmatched::Broken(format!(
                    "More than {VARIANTS_MAX} definitions of job {} and of those it inherits from apply",
                    self.stack.first().map_or(name, String::as_str)
                )));
            }
            if let Some(steps) = self.steps.as_deref_mut() {
                steps.push(Step::applied(StepKind::Definition, job, defined.source()));
            }
            self.found.push(Variant { defined, job, depth: 0 });
        }
        self.stack.pop();
        if matched { Ok(()) } else { Err(Unmatched::NoVariant(name.to_owned())) }
    }
}
