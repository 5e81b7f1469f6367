//! The jobs of one change, decided: which run, with every definition merged (Z4.7).

use super::apply::{Building, Refused, deep_merge};
use super::blame::{Blame, blame_first, blame_last};
use super::blank::blank;
use super::circles::circles;
use super::collect::{Checkouts, Target, Unmatched, Variant, applies, collect};
use super::kinds::{begin_with_initializers, may_report, not_reported_by};
use super::limits;
use super::listed::{ENTRIES_MAX, Entries, Entry, entries};
use super::skipped::{skipped_by_files, skipped_by_image};
use super::trace::{JobTrace, Step, StepKind};
use super::weight::{self, Budget};
use crate::error::ConfigError;
use crate::layout::{Layout, NOOP, On, foreign_image, held_twice};
use crate::pipeline::Pipeline;
use serde_json::{Map, Value as Json};
use sluice_model::job::{FrozenJob, JobGraph, JobKind, NodeSet};
use sluice_model::{BranchName, JobName, ProjectName};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Mistakes that are told of one job.
const BLAMES_MAX: usize = 20;

/// What jobs are frozen for.
#[derive(Debug, Clone, Copy)]
pub struct FreezeInput<'a> {
    /// The pipeline.
    pub pipeline: &'a str,
    /// The project of the change.
    pub project: &'a ProjectName,
    /// The branch it is for; `None` for a tag.
    pub branch: Option<&'a str>,
    /// Of a tag, the branches whose history has its commit; `None` where that is not known, and
    /// then every branch may be meant.
    pub containing: Option<&'a [BranchName]>,
    /// The whole ref of a push (`refs/tags/1.0`); the branch's own for a change.
    pub git_ref: &'a str,
    /// The paths it touches; `None` where they are not known, which runs everything.
    pub files: Option<&'a [String]>,
    /// The layout without the change, when the change brings configuration: a job that it defines
    /// differently runs whatever files say.
    pub before: Option<&'a Layout>,
    /// The images that an event asks for: only their jobs run. Where it asks for none all do
    /// (L1.1).
    pub image_names: &'a [String],
}

impl<'a> FreezeInput<'a> {
    /// Returns the input for a change of a branch, its files unknown.
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

    /// Returns the same with the paths that the change touches.
    #[must_use]
    pub fn touching(self, files: &'a [String]) -> Self {
        Self { files: Some(files), ..self }
    }

    /// Returns what definitions are compared with.
    pub(super) fn target(&self) -> Target<'a> {
        let on = match (self.branch, self.containing) {
            (None, Some(branches)) => On::Within(branches),
            (branch, _) => On::branch(branch),
        };
        Target { on, git_ref: self.git_ref }
    }
}

impl Layout {
    /// Returns the jobs that run for `input`, in the order of the configuration, or every reason
    /// why there can be none.
    pub fn freeze(&self, input: &FreezeInput<'_>) -> Result<JobGraph, Vec<ConfigError>> {
        self.freeze_noting(input, None)
    }

    /// Returns as [`Layout::freeze`], and why each job is as it is; the latter also where there can
    /// be none.
    pub fn freeze_with_trace(
        &self,
        input: &FreezeInput<'_>,
    ) -> (Result<JobGraph, Vec<ConfigError>>, Vec<JobTrace>) {
        let mut trace = Vec::new();
        let result = self.freeze_noting(input, Some(&mut trace));
        (result, trace)
    }

    fn freeze_noting(
        &self,
        input: &FreezeInput<'_>,
        trace: Option<&mut Vec<JobTrace>>,
    ) -> Result<JobGraph, Vec<ConfigError>> {
        let Frozen { jobs, refused, .. } = self.freeze_as_far(input, trace);
        if refused.is_empty() {
            return Ok(JobGraph { jobs });
        }
        Err(refused.into_iter().map(|blame| blame.error).collect())
    }

    /// Returns what comes of each job, whatever is wrong with others.
    pub(super) fn freeze_as_far(
        &self,
        input: &FreezeInput<'_>,
        trace: Option<&mut Vec<JobTrace>>,
    ) -> Frozen {
        let Some(pipeline) = self.pipeline(input.pipeline) else {
            // A queue can outlive its pipeline by a moment; nothing is to be run then.
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

/// What came of the jobs of one change.
#[derive(Default)]
pub(super) struct Frozen {
    /// Those that run; meant only where nothing is refused.
    pub(super) jobs: Vec<FrozenJob>,
    /// Why others can not be frozen.
    pub(super) refused: Vec<Blame>,
    /// Jobs that do not run since one that they inherit from has no definition for the branch.
    pub(super) parentless: Vec<Blame>,
}

struct Freezer<'l, 't> {
    layout: &'l Layout,
    pipeline: &'l Pipeline,
    input: &'l FreezeInput<'l>,
    trace: Option<&'t mut Vec<JobTrace>>,
    found: Frozen,
    /// Jobs that can not be frozen.
    broken: BTreeSet<JobName>,
    budget: &'l Budget,
    /// For the jobs as they were without the change.
    budget_before: &'l Budget,
    before: OnceCell<Entries<'l>>,
}

/// What became of one job.
enum Outcome {
    Runs(Box<FrozenJob>),
    Skipped(String),
    Parentless(Box<Blame>),
    Broken(Vec<Blame>),
}

impl<'l> Freezer<'l, '_> {
    fn jobs(&mut self) -> Vec<FrozenJob> {
        let found = entries(self.layout, self.input);
        // Nobody else wants to know.
        let elsewhere = if self.trace.is_some() { found.left_out(self.input) } else { Vec::new() };
        let Entries { order, by_name: entries, variables, over, .. } = found;
        if let Some(entry) = over {
            let message =
                format!("More than {ENTRIES_MAX} jobs are listed for the project in the pipeline");
            self.refuse(&[entry], message);
            return Vec::new();
        }
        let mut jobs = Vec::new();
        for name in order {
            // Whatever follows would fail for the same reason.
            if self.budget.is_spent() {
                return Vec::new();
            }
            let Some(of_job) = entries.get(name) else {
                continue;
            };
            let mut steps = self.trace.as_ref().map(|_| Vec::new());
            let outcome = self.job(name, of_job, &variables, steps.as_mut());
            steps.iter_mut().for_each(|steps| steps.extend(steps_elsewhere(&elsewhere, name)));
            let (runs, reason) = match outcome {
                Outcome::Runs(job) => {
                    jobs.push(*job);
                    (true, None)
                }
                Outcome::Skipped(reason) => (false, Some(reason)),
                Outcome::Parentless(blame) => {
                    let reason = blame.error.problem.message.clone();
                    self.found.parentless.push(*blame);
                    (false, Some(reason))
                }
                Outcome::Broken(blames) => {
                    let messages: Vec<&str> =
                        blames.iter().map(|blame| blame.error.problem.message.as_str()).collect();
                    let reason = messages.join("; ");
                    self.found.refused.extend(blames);
                    self.broken.insert(JobName(name.to_owned()));
                    (false, Some(reason))
                }
            };
            if let (Some(trace), Some(steps)) = (self.trace.as_deref_mut(), steps) {
                trace.push(JobTrace { job: name.to_owned(), runs, reason, steps });
            }
        }
        self.trace_elsewhere(&elsewhere, &entries);
        self.dependencies(&mut jobs, &entries);
        jobs
    }

    /// Tells of jobs that only stanzas for other branches list.
    fn trace_elsewhere(
        &mut self,
        elsewhere: &[(Entry<'l>, String)],
        entries: &BTreeMap<&str, Vec<Entry<'l>>>,
    ) {
        let Some(trace) = self.trace.as_deref_mut() else { return };
        let mut told: BTreeSet<&str> = BTreeSet::new();
        for (entry, why) in elsewhere {
            let name = entry.job.name.as_str();
            if !entries.contains_key(name) && told.insert(name) {
                let steps = steps_elsewhere(elsewhere, name);
                trace.push(JobTrace {
                    job: name.to_owned(),
                    runs: false,
                    reason: Some(why.clone()),
                    steps,
                });
            }
        }
    }

    fn refuse(&mut self, entries: &[Entry<'_>], message: String) {
        let Some(entry) = entries.first() else { return };
        self.found.refused.push(Blame::of_entry(entry, self.input, message.into()));
    }

    fn job(
        &self,
        name: &str,
        entries: &[Entry<'l>],
        variables: &Map<String, Json>,
        steps: Option<&mut Vec<Step>>,
    ) -> Outcome {
        let place = Place {
            layout: self.layout,
            pipeline: self.pipeline,
            input: self.input,
            budget: self.budget,
        };
        let built = match build(place, name, entries, variables, steps) {
            Ok(built) => built,
            Err(outcome) => return outcome,
        };
        let Built { job, why_not, unmet } = built;
        match why_not.filter(|_| !self.is_new(name, &job)) {
            Some(reason) => Outcome::Skipped(reason),
            None if unmet.is_empty() => Outcome::Runs(Box::new(job)),
            None => Outcome::Broken(unmet),
        }
    }

    /// Returns whether the change defines the job otherwise than it was (match-on-config-updates).
    fn is_new(&self, name: &str, job: &FrozenJob) -> bool {
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
        let Some(of_job) = by_name.get(name) else {
            return true;
        };
        let place =
            Place { layout: before, pipeline, input: self.input, budget: self.budget_before };
        match build(place, name, of_job, variables, None) {
            // The hash leaves out where a job was written: one that moved to another file is not
            // changed.
            Ok(old) => old.job.hash() != job.hash(),
            // Nobody knows what it was, and who mends it need not run it: its files say, as in
            // Zuul.
            Err(Outcome::Broken(_)) => false,
            Err(_) => true,
        }
    }

    fn dependencies(&mut self, jobs: &mut [FrozenJob], entries: &BTreeMap<&str, Vec<Entry<'l>>>) {
        let running: BTreeSet<JobName> = jobs.iter().map(|job| job.name.clone()).collect();
        let is_reporter = |job: &&FrozenJob| job.run_time.kind == JobKind::Reporter;
        let reporters: BTreeSet<JobName> =
            jobs.iter().filter(is_reporter).map(|job| job.name.clone()).collect();
        for job in jobs.iter_mut() {
            // What runs after the reports is awaited by nobody that is reported.
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
            // What is wrong with the other one is told; that this one waits for it is not another
            // mistake.
            .filter(|(job, wanted)| {
                let is_too_late = reporters.contains(wanted) && !reporters.contains(job);
                (!running.contains(wanted) || is_too_late) && !self.broken.contains(wanted)
            })
            .collect();
        for (job, wanted) in missing {
            let of_job = entries.get(job.as_str()).map(Vec::as_slice).unwrap_or_default();
            let message = match reporters.contains(&wanted) {
                true => format!(
                    "Job {job} depends on {wanted}, a reporter, which runs after {job} was reported."
                ),
                false => format!("Job {job} depends on {wanted} which was not run."),
            };
            let is_told = !self.layout.is_defined(wanted.as_str());
            self.refuse_waiting(
                of_job,
                &wanted,
                Refused { attribute: "dependencies", message, is_told },
            );
        }
        begin_with_initializers(jobs);
        for circle in circles(jobs) {
            let Some(job) = circle.first() else { continue };
            let of_job = entries.get(job.as_str()).map(Vec::as_slice).unwrap_or_default();
            let way: Vec<&str> = circle.iter().chain([job]).map(JobName::as_str).collect();
            let message = format!("Dependency cycle detected in job {job}: {}", way.join(" → "));
            self.refuse_waiting(of_job, circle.get(1).unwrap_or(job), message.into());
        }
    }

    /// Refuses that a job waits for another one: at the entry that says so, where it is one and not
    /// the job's definition.
    fn refuse_waiting(&mut self, of_job: &[Entry<'_>], wanted: &JobName, why: Refused) {
        let said = of_job.iter().find_map(|entry| {
            let list = &entry.job.dependencies.as_ref()?.value;
            let number = list.iter().position(|dependency| dependency.name == *wanted)?;
            let place = entry.job.places.of_member("dependencies", &number.to_string());
            Some((entry, place.unwrap_or(entry.job.place)))
        });
        let blame = match said {
            Some((entry, place)) => Some(Blame::at(entry, self.input, place, why)),
            None => of_job.first().map(|entry| Blame::of_entry(entry, self.input, why)),
        };
        self.found.refused.extend(blame);
    }
}

/// Returns what stanzas for other branches say of a job.
fn steps_elsewhere(elsewhere: &[(Entry<'_>, String)], name: &str) -> Vec<Step> {
    let of_job = elsewhere.iter().filter(|(entry, _)| entry.job.name == name);
    let step = |(entry, why): &(Entry<'_>, String)| {
        Step::left_out(StepKind::Entry, entry.job, entry.source, Some(why.clone()))
    };
    of_job.map(step).collect()
}

/// Where a job is built: in which layout, for what, and how much it may come to.
#[derive(Clone, Copy)]
struct Place<'l> {
    layout: &'l Layout,
    pipeline: &'l Pipeline,
    input: &'l FreezeInput<'l>,
    budget: &'l Budget,
}

/// A job with every definition merged.
struct Built {
    job: FrozenJob,
    /// Why files or images say that it does not run.
    why_not: Option<String>,
    /// Why it may not run where it would run all the same.
    unmet: Vec<Blame>,
}

/// Merges every definition of a job.
fn build<'l>(
    place: Place<'l>,
    name: &str,
    entries: &[Entry<'l>],
    variables: &Map<String, Json>,
    mut steps: Option<&mut Vec<Step>>,
) -> Result<Built, Outcome> {
    let Place { layout, pipeline, input, budget } = place;
    let target = input.target();
    let matching: Vec<&Entry<'_>> = entries
        .iter()
        .filter(|entry| applies(entry.job.branches.as_deref(), true, target))
        .collect();
    // The one that has the job run at all: what is wrong with it that nobody else says is told
    // there.
    let Some(first) = matching.first().copied() else {
        return Err(Outcome::Skipped("no entry of the project is for this branch".to_owned()));
    };
    if name == NOOP && layout.jobs(NOOP).next().is_none() {
        let noop = blank(NOOP);
        let why_not = skipped_by_image(&noop, input.image_names);
        return Ok(Built { job: noop, why_not, unmet: Vec::new() });
    }
    let by_entry = |entry: &Entry<'_>, why: Refused| Blame::of_entry(entry, input, why);
    let broken = |message: String| Outcome::Broken(vec![by_entry(first, message.into())]);
    let mut checkouts = Checkouts::default();
    matching.iter().for_each(|entry| checkouts.take(layout, entry.job));
    let variants = collect(layout, name, target, &checkouts, steps.as_deref_mut()).map_err(|cause| match cause {
        Unmatched::NoVariant(missing) if missing == name => {
            Outcome::Skipped(format!("no definition of {missing} is for this branch"))
        }
        Unmatched::NoVariant(missing) => {
            let why = format!(
                "Job {name} does not run: no definition of {missing}, which it inherits from, is for this branch"
            );
            Outcome::Parentless(Box::new(by_entry(first, Refused::of("parent", why))))
        }
        Unmatched::Broken(message) | Unmatched::Named(message, None) => broken(message),
        Unmatched::Named(message, Some(defined)) => {
            let namer = Variant { defined, job: defined.object, depth: 0 };
            Outcome::Broken(vec![Blame::of_definition(&namer, Refused::of("parent", message))])
        }
    })?;
    if let Some(steps) = steps {
        steps.extend(entries.iter().map(|entry| {
            if applies(entry.job.branches.as_deref(), true, target) {
                return Step::applied(StepKind::Entry, entry.job, entry.source);
            }
            let reason =
                target.why_not("its stanza", Some("its branches"), &entry.source.branch, true);
            Step::left_out(StepKind::Entry, entry.job, entry.source, Some(reason))
        }));
    }
    let mut building = Building::new(layout, budget, name);
    let mut blames: Vec<Blame> = Vec::new();
    for variant in &variants {
        let refused = building.variant(variant);
        blames.extend(refused.into_iter().map(|why| Blame::of_definition(variant, why)));
    }
    for entry in &matching {
        blames.extend(
            building.entry(entry.job, entry.source).into_iter().map(|why| by_entry(entry, why)),
        );
        // Whatever files or images say, as in Zuul: the list as such is wrong.
        let image = building.job.image_build_name.as_deref();
        let foreign = image.and_then(|image| foreign_image(layout, name, image, entry.source));
        blames
            .extend(foreign.map(|message| by_entry(entry, Refused::of(IMAGE_BUILD_NAME, message))));
    }
    let blame_said = |why: Refused| blame_last(&matching, &variants, input, why);
    let version =
        building.job.ansible_version.as_ref().or(layout.tenant().default_ansible_version.as_ref());
    if let Some(version) = version.filter(|version| !is_ansible_version(version)) {
        blames.extend(blame_said(Refused::of("ansible-version", unknown_ansible(name, version))));
    }
    let image = building.job.image_build_name.as_ref();
    if let Some(image) = image.filter(|image| !layout.has_image(image)) {
        let message = format!("Job {name} builds the image \"{image}\", which was not found");
        blames.extend(blame_said(Refused::of(IMAGE_BUILD_NAME, message)));
    }
    // Who may run it depends on which playbooks it comes to.
    building.imply_run();
    building.guard_secrets();
    // A config project may add any job to any project's pipelines.
    let is_added = matching.iter().any(|entry| entry.source.trust.is_trusted());
    let refused = check(&building, pipeline, input, name);
    let refused =
        refused.into_iter().filter(|why| !(is_added && why.attribute == ALLOWED_PROJECTS));
    let mut unmet: Vec<Blame> =
        refused.filter_map(|why| blame_first(layout, &matching, &variants, input, why)).collect();
    if building.job.run_time.kind == JobKind::Reporter {
        let listing = matching.iter().filter(|entry| !may_report(layout, entry.attached));
        unmet.extend(
            listing.map(|entry| by_entry(entry, not_reported_by(name, &entry.attached.project))),
        );
    }
    unmet.truncate(BLAMES_MAX);
    let why_not = skipped_by_files(&building, input.files)
        .or_else(|| skipped_by_image(&building.job, input.image_names));
    // Who is not run in any case may be what cannot be run: that keeps nobody else from being
    // tested.
    if why_not.is_none() {
        blames.append(&mut unmet);
    }
    let exceeded = limits::exceeded(&building, layout.tenant(), name);
    let said =
        variants.iter().map(|variant| variant.job).chain(matching.iter().map(|entry| entry.job));
    let contradicted = limits::contradicted(&building, name, said);
    let of_limits = exceeded.into_iter().chain(contradicted);
    blames.extend(of_limits.filter_map(blame_said));
    if !blames.is_empty() {
        // Of what is too much, once is enough.
        blames.truncate(if budget.is_spent() { 1 } else { BLAMES_MAX });
        return Err(Outcome::Broken(blames));
    }
    let mut job = building.job;
    if let Some(image) = &job.image_build_name {
        job.run_time.image_formats = layout.image_formats(image);
    }
    job.match_on_config_updates = building.match_on_config_updates;
    // A host of one's own asks nothing of the pool (Z8.1).
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
        let why = Refused { attribute: "nodeset", message, is_told: true };
        return Err(Outcome::Broken(blame_said(why).into_iter().collect()));
    }
    Ok(Built { job, why_not, unmet })
}

/// Ansible's versions that a job may ask for, as Zuul counts them.
pub(crate) const ANSIBLE_VERSIONS: [&str; 2] = ["9", "11"];

/// Returns whether a job may ask for a version of Ansible.
pub(crate) fn is_ansible_version(version: &str) -> bool {
    ANSIBLE_VERSIONS.contains(&version)
}

/// Says that a job asks for a version that is not there.
pub(crate) fn unknown_ansible(job: &str, version: &str) -> String {
    let known = ANSIBLE_VERSIONS.join(" and ");
    format!(
        "Job {job} asks for Ansible version {version}, which is not supported; there are {known}"
    )
}

/// The attribute that says which projects may run a job.
pub(super) const ALLOWED_PROJECTS: &str = "allowed-projects";
/// The attribute that says which image a job builds.
const IMAGE_BUILD_NAME: &str = "image-build-name";

/// Returns every reason why a job may not run in a pipeline.
fn check(
    building: &Building<'_>,
    pipeline: &Pipeline,
    input: &FreezeInput<'_>,
    name: &str,
) -> Vec<Refused> {
    let project = input.project;
    let mut found = Vec::new();
    if building.is_abstract {
        found.push(Refused::of(
            "abstract",
            format!("Job {name} is abstract and may not be directly run"),
        ));
    }
    if building.allowed_projects.as_ref().is_some_and(|allowed| !allowed.contains(project)) {
        let message = format!("Project {} is not allowed to run job {name}", project.name());
        found.push(Refused::of(ALLOWED_PROJECTS, message));
    }
    if building.job.post_review && !pipeline.post_review {
        let message =
            format!("Pre-review pipeline {} does not allow post-review job {name}", pipeline.name);
        found.push(Refused::of("post-review", message));
    }
    let job = &building.job;
    let playbooks = job.pre_run.iter().chain(&job.run).chain(&job.post_run);
    let of_playbooks: BTreeSet<&String> =
        playbooks.flat_map(|playbook| &playbook.semaphores).collect();
    let twice = job.semaphores.iter().filter(|held| of_playbooks.contains(&held.name));
    found.extend(twice.map(|held| Refused::of("semaphores", held_twice(name, &held.name))));
    if building.uses_secrets && pipeline.allow_secrets == Some(false) {
        let message = format!(
            "Pipeline {} does not allow jobs with secrets, but {name} has some",
            pipeline.name
        );
        found.push(Refused::of("allow-secrets", message));
    }
    found
}
