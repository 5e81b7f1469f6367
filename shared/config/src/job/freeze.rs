//! Freezes the jobs of one change: decides which run, with every definition merged (Z4.7).

use super::apply::{JobBuilder, Rejection, deep_merge};
use super::collect::{Checkouts, Target, Unmatched, Variant, applies, collect};
use super::defaults::empty_job;
use super::dependency_cycles::dependency_cycles;
use super::errors::{JobError, error_at_first, error_at_last};
use super::job_lists::{ENTRIES_MAX, Entries, Entry, entries};
use super::kinds::{depend_on_initializers, may_report, reporter_not_allowed};
use super::limits;
use super::skip::{skipped_by_files, skipped_by_image};
use super::trace::{JobTrace, StepKind, TraceStep};
use super::weight::{self, Budget};
use crate::error::ConfigError;
use crate::layout::{BranchContext, Layout, NOOP, foreign_image_error, semaphore_used_twice};
use crate::pipeline::Pipeline;
use serde_json::{Map, Value as Json};
use sluice_model::job::{ANSIBLE_VERSIONS, FrozenJob, JobGraph, JobKind, NodeSet};
use sluice_model::{BranchName, JobName, ProjectName};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of errors reported for one job.
const ERRORS_MAX: usize = 20;

/// The change, or other ref, that jobs are frozen for.
#[derive(Debug, Clone, Copy)]
pub struct FreezeInput<'a> {
    /// The pipeline.
    pub pipeline: &'a str,
    /// The project of the change.
    pub project: &'a ProjectName,
    /// Its branch; `None` for a tag.
    pub branch: Option<&'a str>,
    /// For a tag, the branches that contain its commit. If unknown (`None`), definitions for any
    /// branch may apply.
    pub containing: Option<&'a [BranchName]>,
    /// The full ref of a push (`refs/tags/1.0`); the branch for a change.
    pub git_ref: &'a str,
    /// The paths that it changes; `None` if unknown, and then file matchers exclude nothing.
    pub files: Option<&'a [String]>,
    /// The layout without the change, if the change modifies configuration: a job that it defines
    /// differently runs regardless of its file matchers.
    pub before: Option<&'a Layout>,
    /// The images that the event requests: only jobs that build them run. All jobs run if it
    /// requests none (L1.1).
    pub image_names: &'a [String],
}

impl<'a> FreezeInput<'a> {
    /// Returns the input for a change to a branch that does not change configuration and requests
    /// no image. Its files are unknown, so file matchers exclude no job.
    pub fn change(pipeline: &'a str, project: &'a ProjectName, branch: &'a str) -> Self {
        Self {
            pipeline,
            project,
            branch: Some(branch),
            containing: None,
            git_ref: branch,
            files: None,
            before: None,
            image_names: &[],
        }
    }

    /// Sets the paths that the change touches.
    #[must_use]
    pub fn touching(self, files: &'a [String]) -> Self {
        Self { files: Some(files), ..self }
    }

    /// Returns what definitions are matched against: the branch; for a ref without a branch, the
    /// branches that contain it, or any branch if these are unknown. The ref is returned with it.
    pub(super) fn target(&self) -> Target<'a> {
        let on = match (self.branch, self.containing) {
            (None, Some(branches)) => BranchContext::Containing(branches),
            (branch, _) => BranchContext::branch(branch),
        };
        Target { on, git_ref: self.git_ref }
    }
}

impl Layout {
    /// Returns the jobs that run, with all definitions merged, in the order in which the project
    /// lists them, or every reason why jobs cannot be frozen (at most 20 for each job, besides
    /// wrong dependencies). A job that branches, file matchers or requested images exclude is left
    /// out without an error, and so is one of which an ancestor has no definition for the branch.
    /// Errors in the definitions of a job that file matchers or images exclude still count. No job
    /// runs, which is no error, if the pipeline or the project is unknown.
    pub fn freeze(&self, input: &FreezeInput<'_>) -> Result<JobGraph, Vec<ConfigError>> {
        self.freeze_traced(input, None)
    }

    /// Does the same as [`Layout::freeze`], and also explains the result for each listed job,
    /// including those that do not run or are listed only for other branches. The explanation is
    /// returned even if the jobs cannot be frozen. Errors about dependencies are not in it: a job
    /// with wrong dependencies counts as running. It is empty if the pipeline or the project is
    /// unknown or the project lists too many jobs, and ends early if the definitions are too large.
    pub fn freeze_with_trace(
        &self,
        input: &FreezeInput<'_>,
    ) -> (Result<JobGraph, Vec<ConfigError>>, Vec<JobTrace>) {
        let mut trace = Vec::new();
        let result = self.freeze_traced(input, Some(&mut trace));
        (result, trace)
    }

    /// Does the same as [`Layout::freeze`]. Also adds an explanation for each listed job, including
    /// jobs that do not run, to `trace` if it is given, even if the jobs cannot be frozen. Errors
    /// about dependencies are not in the explanation.
    fn freeze_traced(
        &self,
        input: &FreezeInput<'_>,
        trace: Option<&mut Vec<JobTrace>>,
    ) -> Result<JobGraph, Vec<ConfigError>> {
        let Frozen { jobs, rejections, .. } = self.freeze_each(input, trace);
        if rejections.is_empty() {
            return Ok(JobGraph { jobs });
        }
        Err(rejections.into_iter().map(|error| error.error).collect())
    }

    /// Freezes each job, regardless of errors in others. Returns the jobs that run, which count
    /// only if there are no errors, all errors, and an error for each job of which an ancestor has
    /// no definition for the branch (`parentless`); such a job only does not run. Adds an
    /// explanation for each job to `trace` if it is given. The result is empty if the pipeline is
    /// not defined.
    pub(super) fn freeze_each(
        &self,
        input: &FreezeInput<'_>,
        trace: Option<&mut Vec<JobTrace>>,
    ) -> Frozen {
        let Some(pipeline) = self.pipeline(input.pipeline) else {
            // A queue can briefly outlive its pipeline; nothing runs then.
            return Frozen::default();
        };
        let budgets = (Budget::whole(), Budget::whole());
        let mut freezer = Freezer {
            layout: self,
            pipeline,
            input,
            trace,
            found: Frozen::default(),
            broken: BTreeSet::new(),
            budget: &budgets.0,
            budget_before: &budgets.1,
            before: OnceCell::new(),
        };
        let jobs = freezer.jobs();
        Frozen { jobs, ..freezer.found }
    }
}

/// The result of freezing the jobs of one change.
#[derive(Default)]
pub(super) struct Frozen {
    /// The jobs that run; meaningful only if `rejections` is empty.
    pub(super) jobs: Vec<FrozenJob>,
    /// Why other jobs cannot be frozen.
    pub(super) rejections: Vec<JobError>,
    /// Jobs that do not run because an ancestor has no definition for the branch.
    pub(super) parentless: Vec<JobError>,
}

struct Freezer<'l, 't> {
    /// The layout.
    layout: &'l Layout,
    /// The pipeline in which the jobs would run.
    pipeline: &'l Pipeline,
    /// The change and its circumstances.
    input: &'l FreezeInput<'l>,
    /// Collects an explanation for each job, if requested.
    trace: Option<&'t mut Vec<JobTrace>>,
    /// The jobs and errors so far.
    found: Frozen,
    /// Jobs that cannot be frozen.
    broken: BTreeSet<JobName>,
    budget: &'l Budget,
    /// The remaining weight of the jobs without the change.
    budget_before: &'l Budget,
    before: OnceCell<Entries<'l>>,
}

/// The result for one job.
enum Outcome {
    Runs(Box<FrozenJob>),
    Skipped(String),
    Parentless(Box<JobError>),
    Failed(Vec<JobError>),
}

impl<'l> Freezer<'l, '_> {
    /// Freezes each job in the item's job lists and returns those that run, in listed order, with
    /// their dependencies resolved. Stores the errors in `self.found`, the names of failed jobs in
    /// `self.broken`, and an explanation for each job in `self.trace` if that is set. Returns no
    /// job, with an error in `self.found`, if there are too many entries or the budget is spent
    /// before the last job.
    fn jobs(&mut self) -> Vec<FrozenJob> {
        let found = entries(self.layout, self.input);
        // Only the trace needs them.
        let other_branches =
            if self.trace.is_some() { found.left_out(self.input) } else { Vec::new() };
        let Entries { order, by_name: entries, variables, over, .. } = found;
        if let Some(entry) = over {
            let message = format!("The project lists more than {ENTRIES_MAX} jobs in the pipeline");
            self.refuse(&[entry], message);
            return Vec::new();
        }
        let mut jobs = Vec::new();
        for name in order {
            // All remaining jobs would fail for the same reason.
            if self.budget.is_spent() {
                return Vec::new();
            }
            let Some(job_entries) = entries.get(name) else {
                continue;
            };
            let mut steps = self.trace.as_ref().map(|_| Vec::new());
            let outcome = self.job(name, job_entries, &variables, steps.as_mut());
            steps
                .iter_mut()
                .for_each(|steps| steps.extend(other_branch_steps(&other_branches, name)));
            let (runs, reason) = match outcome {
                Outcome::Runs(job) => {
                    jobs.push(*job);
                    (true, None)
                }
                Outcome::Skipped(reason) => (false, Some(reason)),
                Outcome::Parentless(error) => {
                    let reason = error.error.diagnostic.message.clone();
                    self.found.parentless.push(*error);
                    (false, Some(reason))
                }
                Outcome::Failed(errors) => {
                    let messages: Vec<&str> = errors
                        .iter()
                        .map(|error| error.error.diagnostic.message.as_str())
                        .collect();
                    let reason = messages.join("; ");
                    self.found.rejections.extend(errors);
                    self.broken.insert(JobName(name.to_owned()));
                    (false, Some(reason))
                }
            };
            if let (Some(trace), Some(steps)) = (self.trace.as_deref_mut(), steps) {
                trace.push(JobTrace { job: name.to_owned(), runs, reason, steps });
            }
        }
        self.trace_other_branches(&other_branches, &entries);
        self.dependencies(&mut jobs, &entries);
        jobs
    }

    /// Adds the jobs that are only listed in stanzas for other branches to the trace, as jobs that
    /// do not run. `other_branches` are the entries of such stanzas, each with the reason why it
    /// does not apply; `entries` are the entries that do apply, by job. Does nothing without a
    /// trace.
    fn trace_other_branches(
        &mut self,
        other_branches: &[(Entry<'l>, String)],
        entries: &BTreeMap<&str, Vec<Entry<'l>>>,
    ) {
        let Some(trace) = self.trace.as_deref_mut() else { return };
        let mut traced: BTreeSet<&str> = BTreeSet::new();
        for (entry, why) in other_branches {
            let name = entry.job.name.as_str();
            if !entries.contains_key(name) && traced.insert(name) {
                let steps = other_branch_steps(other_branches, name);
                trace.push(JobTrace {
                    job: name.to_owned(),
                    runs: false,
                    reason: Some(why.clone()),
                    steps,
                });
            }
        }
    }

    /// Stores an error with this message, located at the first of the entries. Stores nothing if
    /// `entries` is empty.
    fn refuse(&mut self, entries: &[Entry<'_>], message: String) {
        let Some(entry) = entries.first() else { return };
        self.found.rejections.push(JobError::of_entry(entry, self.input, message.into()));
    }

    /// Freezes one job from its definitions and entries. Returns the merged job, or why it is
    /// skipped, or that an ancestor has no definition for the branch, or its errors. If the change
    /// redefines the job (`is_redefined`), file matchers and requested images do not exclude it: it
    /// runs, or fails if it may not run here. `variables` are the project's. The examined
    /// definitions and entries are added to `steps`, if given. Stores no result in `self`, but uses
    /// up the budget.
    fn job(
        &self,
        name: &str,
        entries: &[Entry<'l>],
        variables: &Map<String, Json>,
        steps: Option<&mut Vec<TraceStep>>,
    ) -> Outcome {
        let context = BuildContext {
            layout: self.layout,
            pipeline: self.pipeline,
            input: self.input,
            budget: self.budget,
        };
        let built = match build(context, name, entries, variables, steps) {
            Ok(built) => built,
            Err(outcome) => return outcome,
        };
        let Built { job, skip_reason, forbidden } = built;
        match skip_reason.filter(|_| !self.is_redefined(name, &job)) {
            Some(reason) => Outcome::Skipped(reason),
            None if forbidden.is_empty() => Outcome::Runs(Box::new(job)),
            None => Outcome::Failed(forbidden),
        }
    }

    /// Returns whether `match-on-config-updates` makes a job run that matchers exclude: the change
    /// defines `job`, the merged job, differently than `input.before`, apart from where it is
    /// defined. Also true if the job does not apply there: the pipeline is unknown, no entry lists
    /// the job for the branch, or the job or an ancestor has no definition for it. `false` if the
    /// change does not modify configuration (`before` is `None`), the job disables the attribute,
    /// or its old definition has errors.
    fn is_redefined(&self, name: &str, job: &FrozenJob) -> bool {
        let Some(before) = self.input.before else {
            return false;
        };
        if !job.match_on_config_updates {
            return false;
        }
        let Some(pipeline) = before.pipeline(self.input.pipeline) else {
            return true;
        };
        let Entries { by_name, variables, .. } =
            self.before.get_or_init(|| entries(before, self.input));
        let Some(job_entries) = by_name.get(name) else {
            return true;
        };
        let context = BuildContext {
            layout: before,
            pipeline,
            input: self.input,
            budget: self.budget_before,
        };
        match build(context, name, job_entries, variables, None) {
            // The hash does not include where a job is defined, so a job that only moved to another
            // file is unchanged.
            Ok(old) => old.job.hash() != job.hash(),
            // The old job is unknown. A change that repairs it need not run it; as in Zuul, its
            // file matchers decide.
            Err(Outcome::Failed(_)) => false,
            Err(_) => true,
        }
    }

    /// Removes soft dependencies on jobs that do not run, and on reporters, which run only after
    /// the reports, unless the dependent job is a reporter too. Stores an error for each hard
    /// dependency of this kind and for each dependency cycle, at most 20; the jobs themselves stay.
    /// A dependency on a job in `self.broken`, which has an error itself, is not reported. Makes
    /// all jobs but initializers depend on the initializers. `entries` are the entries of the
    /// item's job lists, by job.
    fn dependencies(&mut self, jobs: &mut [FrozenJob], entries: &BTreeMap<&str, Vec<Entry<'l>>>) {
        let running: BTreeSet<JobName> = jobs.iter().map(|job| job.name.clone()).collect();
        let is_reporter = |job: &&FrozenJob| job.run_time.kind == JobKind::Reporter;
        let reporters: BTreeSet<JobName> =
            jobs.iter().filter(is_reporter).map(|job| job.name.clone()).collect();
        for job in jobs.iter_mut() {
            // A reporter runs after the reports, so a reported job cannot wait for it.
            let reports = reporters.contains(&job.name);
            let is_awaited =
                |name: &JobName| running.contains(name) && (reports || !reporters.contains(name));
            job.dependencies.retain(|dependency| !dependency.soft || is_awaited(&dependency.name));
        }
        let missing: Vec<(JobName, JobName)> = jobs
            .iter()
            .flat_map(|job| {
                job.dependencies
                    .iter()
                    .map(|dependency| (job.name.clone(), dependency.name.clone()))
            })
            // If the dependency itself is broken, that is reported already; the dependent job has
            // no error of its own.
            .filter(|(job, dependency)| {
                let is_too_late = reporters.contains(dependency) && !reporters.contains(job);
                (!running.contains(dependency) || is_too_late) && !self.broken.contains(dependency)
            })
            .collect();
        for (job, dependency) in missing {
            let job_entries = entries.get(job.as_str()).map(Vec::as_slice).unwrap_or_default();
            let message = match reporters.contains(&dependency) {
                true => format!(
                    "Job {job} depends on {dependency}, a reporter, which runs only after {job} was \
                     reported."
                ),
                false => format!("Job {job} depends on {dependency} which was not run."),
            };
            let is_reported_elsewhere = !self.layout.is_defined(dependency.as_str());
            self.refuse_dependency(
                job_entries,
                &dependency,
                Rejection { attribute: "dependencies", message, is_reported_elsewhere },
            );
        }
        depend_on_initializers(jobs);
        for cycle in dependency_cycles(jobs) {
            let Some(job) = cycle.first() else { continue };
            let job_entries = entries.get(job.as_str()).map(Vec::as_slice).unwrap_or_default();
            let names: Vec<&str> = cycle.iter().chain([job]).map(JobName::as_str).collect();
            let message = format!("Dependency cycle detected in job {job}: {}", names.join(" → "));
            self.refuse_dependency(job_entries, cycle.get(1).unwrap_or(job), message.into());
        }
    }

    /// Stores an error about a dependency, located at the first of the job's entries that names it,
    /// or at the first entry if only a definition names it. Stores nothing if there are no entries.
    fn refuse_dependency(
        &mut self,
        job_entries: &[Entry<'_>],
        dependency: &JobName,
        why: Rejection,
    ) {
        let listed = job_entries.iter().find_map(|entry| {
            let list = &entry.job.dependencies.as_ref()?.value;
            let number = list.iter().position(|named| named.name == *dependency)?;
            let span = entry.job.spans.of_member("dependencies", &number.to_string());
            Some((entry, span.unwrap_or(entry.job.span)))
        });
        let error = match listed {
            Some((entry, span)) => Some(JobError::at(entry, self.input, span, why)),
            None => job_entries.first().map(|entry| JobError::of_entry(entry, self.input, why)),
        };
        self.found.rejections.extend(error);
    }
}

/// Returns a step for each entry of job `name` in stanzas for other branches. `other_branches` are
/// the entries of all jobs in such stanzas, each with the reason why it does not apply.
fn other_branch_steps(other_branches: &[(Entry<'_>, String)], name: &str) -> Vec<TraceStep> {
    let job_entries = other_branches.iter().filter(|(entry, _)| entry.job.name == name);
    let step = |(entry, why): &(Entry<'_>, String)| {
        TraceStep::step(StepKind::Entry, entry.job, entry.source, Some(why.clone()))
    };
    job_entries.map(step).collect()
}

/// The context in which a job is built.
#[derive(Clone, Copy)]
struct BuildContext<'l> {
    /// The layout.
    layout: &'l Layout,
    /// The pipeline in which the job would run.
    pipeline: &'l Pipeline,
    /// The change and its circumstances.
    input: &'l FreezeInput<'l>,
    /// The weight that all jobs of the item may have.
    budget: &'l Budget,
}

/// A job with every definition merged.
struct Built {
    /// The merged job.
    job: FrozenJob,
    /// Why file matchers or requested images exclude it; `None` if they do not.
    skip_reason: Option<String>,
    /// Why it may not run, in case it would run.
    forbidden: Vec<JobError>,
}

/// Merges the definitions and job list entries of a job that match the item. The error is why it
/// does not run: nothing matches, an ancestor has no definition for the branch, or its errors, at
/// most 20, or one if the budget is spent. A job that file matchers or requested images exclude is
/// still built, with the reason in `skip_reason`; errors about where it may run are then only in
/// `forbidden`, which is empty otherwise. `variables` are the project's, which those of the job
/// override. Uses up the budget, and adds the examined definitions and entries to `steps`, if
/// given.
fn build<'l>(
    context: BuildContext<'l>,
    name: &str,
    entries: &[Entry<'l>],
    variables: &Map<String, Json>,
    mut steps: Option<&mut Vec<TraceStep>>,
) -> Result<Built, Outcome> {
    let BuildContext { layout, pipeline, input, budget } = context;
    let target = input.target();
    let matching: Vec<&Entry<'_>> = entries
        .iter()
        .filter(|entry| applies(entry.job.branches.as_deref(), true, target))
        .collect();
    // The entry that makes the job run. Errors that no definition or entry causes are reported
    // here.
    let Some(first) = matching.first().copied() else {
        return Err(Outcome::Skipped(
            "no job list entry of the project matches this branch".to_owned(),
        ));
    };
    if name == NOOP && layout.jobs(NOOP).next().is_none() {
        let noop = empty_job(NOOP);
        let skip_reason = skipped_by_image(&noop, input.image_names);
        return Ok(Built { job: noop, skip_reason, forbidden: Vec::new() });
    }
    let by_entry = |entry: &Entry<'_>, why: Rejection| JobError::of_entry(entry, input, why);
    let broken = |message: String| Outcome::Failed(vec![by_entry(first, message.into())]);
    let mut checkouts = Checkouts::default();
    matching.iter().for_each(|entry| checkouts.take(layout, entry.job));
    let variants = collect(layout, name, target, &checkouts, steps.as_deref_mut()).map_err(
        |cause| match cause {
            Unmatched::NoVariant(missing) if missing == name => {
                Outcome::Skipped(format!("no definition of {missing} matches this branch"))
            }
            Unmatched::NoVariant(missing) => {
                let why = format!(
                    "Job {name} does not run: no definition of {missing}, which it inherits from, \
                 matches this branch"
                );
                Outcome::Parentless(Box::new(by_entry(first, Rejection::of("parent", why))))
            }
            Unmatched::TooMany(message) | Unmatched::BadReference(message, None) => broken(message),
            Unmatched::BadReference(message, Some(defined)) => {
                let namer = Variant { defined, job: defined.object, depth: 0 };
                Outcome::Failed(vec![JobError::of_definition(
                    &namer,
                    Rejection::of("parent", message),
                )])
            }
        },
    )?;
    if let Some(steps) = steps {
        steps.extend(entries.iter().map(|entry| {
            if applies(entry.job.branches.as_deref(), true, target) {
                return TraceStep::applied(StepKind::Entry, entry.job, entry.source);
            }
            let reason =
                target.mismatch("its stanza", Some("its branches"), &entry.source.branch, true);
            TraceStep::step(StepKind::Entry, entry.job, entry.source, Some(reason))
        }));
    }
    let mut builder = JobBuilder::new(layout, budget, name);
    let mut errors: Vec<JobError> = Vec::new();
    for variant in &variants {
        let rejections = builder.apply_variant(variant);
        errors.extend(rejections.into_iter().map(|why| JobError::of_definition(variant, why)));
    }
    for entry in &matching {
        errors.extend(
            builder
                .apply_entry(entry.job, entry.source)
                .into_iter()
                .map(|why| by_entry(entry, why)),
        );
        // As in Zuul, this does not depend on files or images: the job list itself is wrong.
        let image = builder.job.image_build_name.as_deref();
        let foreign =
            image.and_then(|image| foreign_image_error(layout, name, image, entry.source));
        errors.extend(
            foreign.map(|message| by_entry(entry, Rejection::of(IMAGE_BUILD_NAME, message))),
        );
    }
    let located = |why: Rejection| error_at_last(&matching, &variants, input, why);
    let version =
        builder.job.ansible_version.as_ref().or(layout.tenant().default_ansible_version.as_ref());
    if let Some(version) = version.filter(|version| !is_ansible_version(version)) {
        errors.extend(located(Rejection::of("ansible-version", unknown_ansible(name, version))));
    }
    let image = builder.job.image_build_name.as_ref();
    if let Some(image) = image.filter(|image| !layout.has_image(image)) {
        let message = format!("Job {name} builds the image \"{image}\", which was not found");
        errors.extend(located(Rejection::of(IMAGE_BUILD_NAME, message)));
    }
    // Who may run the job depends on its playbooks.
    builder.imply_run();
    builder.require_review_for_secrets();
    // A config project may add any job to the pipelines of any project.
    let is_added = matching.iter().any(|entry| entry.source.trust.is_trusted());
    let rejections = check(&builder, pipeline, input, name);
    let rejections =
        rejections.into_iter().filter(|why| !(is_added && why.attribute == ALLOWED_PROJECTS));
    let mut forbidden: Vec<JobError> = rejections
        .filter_map(|why| error_at_first(layout, &matching, &variants, input, why))
        .collect();
    if builder.job.run_time.kind == JobKind::Reporter {
        let listing = matching.iter().filter(|entry| !may_report(layout, entry.attached));
        forbidden.extend(
            listing
                .map(|entry| by_entry(entry, reporter_not_allowed(name, &entry.attached.project))),
        );
    }
    forbidden.truncate(ERRORS_MAX);
    let skip_reason = skipped_by_files(&builder, input.files)
        .or_else(|| skipped_by_image(&builder.job, input.image_names));
    // A job that is skipped anyway must not prevent other jobs from running.
    if skip_reason.is_none() {
        errors.append(&mut forbidden);
    }
    let tenant_limit_errors = limits::tenant_limit_errors(&builder, layout.tenant(), name);
    let definitions =
        variants.iter().map(|variant| variant.job).chain(matching.iter().map(|entry| entry.job));
    let timeout_error = limits::timeout_error(&builder, name, definitions);
    let of_limits = tenant_limit_errors.into_iter().chain(timeout_error);
    errors.extend(of_limits.filter_map(located));
    if !errors.is_empty() {
        // If the budget is spent, one error is enough.
        errors.truncate(if budget.is_spent() { 1 } else { ERRORS_MAX });
        return Err(Outcome::Failed(errors));
    }
    let mut job = builder.job;
    if let Some(image) = &job.image_build_name {
        job.run_time.image_formats = layout.image_formats(image);
    }
    job.match_on_config_updates = builder.match_on_config_updates;
    // A static host uses no nodes of the pool (Z8.1).
    if job.run_time.host.is_some() {
        job.nodesets = vec![NodeSet::default()];
    }
    budget.take(weight::of_map(variables)).map_err(broken)?;
    let mut merged = variables.clone();
    deep_merge(&mut merged, &job.vars);
    job.vars = merged;
    if job.ansible_version.is_none() {
        job.ansible_version = layout.tenant().default_ansible_version.clone();
    }
    if job.nodesets.is_empty() {
        let message = format!("The nodeset of job {name} was not found.");
        let why = Rejection { attribute: "nodeset", message, is_reported_elsewhere: true };
        return Err(Outcome::Failed(located(why).into_iter().collect()));
    }
    Ok(Built { job, skip_reason, forbidden })
}

/// Returns whether a job may use this version of Ansible: `9` or `11`.
pub(crate) fn is_ansible_version(version: &str) -> bool {
    ANSIBLE_VERSIONS.contains(&version)
}

/// Returns the message of the error for a job with an unsupported Ansible version, with the
/// supported ones.
pub(crate) fn unknown_ansible(job: &str, version: &str) -> String {
    let supported = ANSIBLE_VERSIONS.join(" and ");
    format!(
        "Job {job} uses Ansible version {version}, which is not supported; supported versions are \
         {supported}"
    )
}

/// The attribute with the projects that may run a job.
pub(super) const ALLOWED_PROJECTS: &str = "allowed-projects";
/// The attribute with the image that a job builds.
const IMAGE_BUILD_NAME: &str = "image-build-name";

/// Returns every reason why a merged job may not run for the project in a pipeline: it is abstract,
/// its `allowed-projects` lack the project, it needs review and the pipeline runs before review, it
/// and one of its playbooks use the same semaphore, or it uses secrets and the pipeline forbids
/// them. Call it after `imply_run` and `require_review_for_secrets`. A reporter that the project
/// may not list is not reported here.
fn check(
    builder: &JobBuilder<'_>,
    pipeline: &Pipeline,
    input: &FreezeInput<'_>,
    name: &str,
) -> Vec<Rejection> {
    let project = input.project;
    let mut found = Vec::new();
    if builder.is_abstract {
        found.push(Rejection::of(
            "abstract",
            format!("Job {name} is abstract and may not be directly run"),
        ));
    }
    if builder.allowed_projects.as_ref().is_some_and(|allowed| !allowed.contains(project)) {
        let message = format!("Project {} is not allowed to run job {name}", project.name());
        found.push(Rejection::of(ALLOWED_PROJECTS, message));
    }
    if builder.job.post_review && !pipeline.post_review {
        let message = format!(
            "Pre-review pipeline {} does not allow post-review job {name}{}",
            pipeline.name,
            builder.review_cause()
        );
        found.push(Rejection::of("post-review", message));
    }
    let job = &builder.job;
    let playbooks = job.pre_run.iter().chain(&job.run).chain(&job.post_run);
    let of_playbooks: BTreeSet<&String> =
        playbooks.flat_map(|playbook| &playbook.semaphores).collect();
    let twice = job.semaphores.iter().filter(|held| of_playbooks.contains(&held.name));
    found.extend(
        twice.map(|held| Rejection::of("semaphores", semaphore_used_twice(name, &held.name))),
    );
    if builder.uses_secrets && pipeline.allow_secrets == Some(false) {
        let message = format!(
            "Pipeline {} does not allow jobs with secrets, but {name} uses secrets",
            pipeline.name
        );
        found.push(Rejection::of("allow-secrets", message));
    }
    found
}
