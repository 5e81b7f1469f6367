//! Which stanzas may stand: what each may do by itself, and who of several with one name is in
//! whose way.

use super::Files;
use super::ground::{File, Ground, word};
use super::shelf::{Entry, Unit};
use crate::Pattern;
use crate::error::{Hints, Problem, ProblemKind};
use crate::fragment::Trust;
use crate::objects::{
    JobStanza, NodesetStanza, ObjectKind, Parent, PipelineStanza, Place, ProjectStanza,
    ProviderObject, QueueStanza, SecretStanza, SemaphoreStanza, Stanza,
};
use crate::tenant::TenantProject;
use sluice_model::job::JobKind;
use std::collections::{BTreeMap, BTreeSet};

/// An object that stanzas define.
pub(crate) trait Object: 'static {
    /// Returns the object of a stanza, if it is one of this sort.
    fn of(stanza: &Stanza) -> Option<&Self>;
}

macro_rules! objects {
    ($($object:ty: $($kind:ident)|+),+ $(,)?) => {
        $(impl Object for $object {
            fn of(stanza: &Stanza) -> Option<&Self> {
                match stanza {
                    $(Stanza::$kind(found))|+ => Some(found),
                    _ => None,
                }
            }
        })+
    };
}

objects! {
    PipelineStanza: Pipeline,
    JobStanza: Job,
    NodesetStanza: Nodeset,
    QueueStanza: Queue,
    SecretStanza: Secret,
    SemaphoreStanza: Semaphore,
    ProjectStanza: Project | ProjectTemplate,
    ProviderObject: Image | Flavor | Label | Section | Provider,
}

/// Returns the names that a stanza lays claim to, whoever else does, or every reason why it may
/// not.
pub(super) fn claims<'f>(
    ground: &'f Ground,
    file: &'f File,
    stanza: &'f Stanza,
    hints: &Hints,
) -> Result<Vec<(ObjectKind, &'f str)>, Vec<Problem>> {
    let Some(project) = ground.project_of(file) else { return Ok(Vec::new()) };
    let (kind, name) = match stanza {
        Stanza::Pragma(_) => return Ok(Vec::new()),
        Stanza::Pipeline(found) => {
            if file.source().trust == Trust::Untrusted {
                let message = "Pipelines may not be defined in untrusted repositories, only in config repositories";
                let stanza = format!("pipeline {}", found.name);
                return Err(vec![File::problem(
                    ProblemKind::NotPermitted,
                    &stanza,
                    found.place,
                    message,
                )]);
            }
            (ObjectKind::Pipeline, found.name.as_str())
        }
        Stanza::Job(found) => (ObjectKind::Job, found.name.as_str()),
        Stanza::Project(_) => (ObjectKind::Project, ""),
        Stanza::ProjectTemplate(found) => {
            (ObjectKind::ProjectTemplate, found.name.as_deref().unwrap_or_default())
        }
        Stanza::Nodeset(found) => (ObjectKind::Nodeset, found.name.as_str()),
        Stanza::Queue(found) => (ObjectKind::Queue, found.name.as_str()),
        Stanza::Secret(found) => (ObjectKind::Secret, found.name.as_str()),
        Stanza::Semaphore(found) => (ObjectKind::Semaphore, found.name.as_str()),
        Stanza::Image(found) => (ObjectKind::Image, found.name.as_str()),
        Stanza::Flavor(found) => (ObjectKind::Flavor, found.name.as_str()),
        Stanza::Label(found) => (ObjectKind::Label, found.name.as_str()),
        Stanza::Section(found) => (ObjectKind::Section, found.name.as_str()),
        Stanza::Provider(found) => (ObjectKind::Provider, found.name.as_str()),
    };
    if !project.kinds.contains(&kind) {
        return Ok(Vec::new());
    }
    let refused = match stanza {
        Stanza::Job(job) => job_refused(ground, file, project, job),
        Stanza::Project(stanza) => {
            let name = stanza.name.as_deref().unwrap_or(file.source().project.name());
            let mut refused = entries_refused(file, project, stanza, &format!("project {name}"));
            match targets(ground, file, project, stanza, hints) {
                Ok(targets) if refused.is_empty() => {
                    return Ok(targets
                        .into_iter()
                        .map(|name| (ObjectKind::Project, name))
                        .collect());
                }
                Ok(_) => {}
                Err(problem) => refused.push(problem),
            }
            refused
        }
        Stanza::ProjectTemplate(template) => {
            entries_refused(file, project, template, &format!("project-template {name}"))
        }
        _ => Vec::new(),
    };
    if refused.is_empty() { Ok(vec![(kind, name)]) } else { Err(refused) }
}

/// Returns every reason why a repository may not define a job.
fn job_refused(
    ground: &Ground,
    file: &File,
    project: &TenantProject,
    job: &JobStanza,
) -> Vec<Problem> {
    let stanza = format!("job {}", job.name);
    let mut refused = Vec::new();
    let is_default_parent = job.parent == Parent::Unset && job.name == ground.tenant.default_parent;
    if (job.parent == Parent::Base || is_default_parent) && !project.allow_base_jobs {
        let place = job.places.of("parent").unwrap_or(job.place);
        let message = "Base jobs may only be defined in config-projects, and not where the tenant says \"allow-base-jobs: false\": name a parent";
        let problem = File::problem(ProblemKind::NotPermitted, &stanza, place, message);
        refused.push(problem.about("parent").from_stanza_at(job.place.start));
    }
    refused.extend(asked_refused(file, project, job, &stanza, job.place));
    refused
}

/// Returns what a repository may not ask for, as a definition and as an entry of a project's list:
/// credentials for storage (Z4.8), and jobs that are reporters.
fn asked_refused(
    file: &File,
    project: &TenantProject,
    job: &JobStanza,
    stanza: &str,
    start: Place,
) -> Vec<Problem> {
    let refuse = |attribute: &str, message: String| {
        let place = job.places.of(attribute).unwrap_or(job.place);
        let problem = File::problem(ProblemKind::NotPermitted, stanza, place, message);
        problem.about(attribute).from_stanza_at(start.start)
    };
    let mut refused = Vec::new();
    if file.source().trust == Trust::Untrusted && job.run_time.containers.is_some() {
        refused.push(refuse(
            "auth",
            "Swift credentials may only be asked for in config repositories".to_owned(),
        ));
    }
    let is_reporter = job.run_time.kind == Some(JobKind::Reporter);
    if is_reporter && !file.source().trust.is_trusted() && !project.allow_reporter_jobs {
        let message = format!(
            "Reporter jobs may be defined in config-projects and where the tenant says allow-reporter-jobs: move it to a config project, or have the tenant say allow-reporter-jobs of {}",
            project.name
        );
        refused.push(refuse("type", message));
    }
    refused
}

fn entries_refused(
    file: &File,
    project: &TenantProject,
    list: &ProjectStanza,
    stanza: &str,
) -> Vec<Problem> {
    let entries = list.pipelines.values().flat_map(|jobs| &jobs.jobs);
    entries.flat_map(|job| asked_refused(file, project, job, stanza, list.place)).collect()
}

/// Returns the projects that a project's stanza is about.
fn targets<'g>(
    ground: &'g Ground,
    file: &File,
    project: &TenantProject,
    stanza: &ProjectStanza,
    hints: &Hints,
) -> Result<Vec<&'g str>, Problem> {
    let own = &file.source().project;
    let name = stanza.name.as_deref().unwrap_or(own.as_str());
    let in_stanza = format!("project {name}");
    let place = stanza.places.of("name").unwrap_or(stanza.place);
    let refuse = |kind, message: String| {
        let problem = File::problem(kind, &in_stanza, place, message).about("name");
        Err(problem.from_stanza_at(stanza.place.start))
    };
    let is_pattern = stanza.expression().is_some();
    let not_permitted = || {
        let permitted = match project.configure_projects.is_empty() {
            true => "the only project definition permitted is its own",
            false => {
                "only its own project definition is permitted, and those of the untrusted projects that configure-projects names"
            }
        };
        format!("Within {own}, {permitted}, but this is for {name}")
    };
    if is_pattern
        && file.source().trust == Trust::Untrusted
        && project.configure_projects.is_empty()
    {
        // A pattern is there to match others; it is not even tried on all the tenant's projects.
        return refuse(ProblemKind::NotPermitted, not_permitted());
    }
    let targets: Vec<&TenantProject> = if is_pattern {
        let pattern = match Pattern::new(name) {
            Ok(pattern) => pattern,
            Err(cause) => return refuse(ProblemKind::Syntax, cause.to_string()),
        };
        // As Zuul: the whole name is meant, so that a short one does not take in every project
        // whose name begins with it.
        let matching = |one: &&TenantProject| {
            pattern.matches_whole(one.name.as_str()) || pattern.matches_whole(one.name.name())
        };
        ground.tenant.projects.iter().filter(matching).collect()
    } else {
        let found = ground.find(name).map_err(|problem| {
            problem
                .at(place, ground, hints)
                .about("name")
                .in_stanza(&in_stanza)
                .from_stanza_at(stanza.place.start)
        })?;
        vec![found]
    };
    let may_configure = |target: &&TenantProject| {
        // No untrusted project has a say in what is trusted.
        let is_trusted = target.trust.is_trusted();
        let target = &target.name;
        let named = |pattern: &Pattern| {
            pattern.matches_whole(target.as_str()) || pattern.matches_whole(target.name())
        };
        target == own || !is_trusted && project.configure_projects.iter().any(named)
    };
    if file.source().trust == Trust::Untrusted && !targets.iter().all(may_configure) {
        return refuse(ProblemKind::NotPermitted, not_permitted());
    }
    Ok(targets.into_iter().map(|target| target.name.as_str()).collect())
}

/// Who stands, and what is wrong with whom.
#[derive(Default)]
pub(super) struct Settled {
    pub(super) entry: Entry,
    pub(super) problems: Vec<(Unit, Problem)>,
}

impl Settled {
    fn refuse(&mut self, unit: Unit, problem: Problem) {
        self.entry.refused.push(unit);
        self.problems.push((unit, problem));
    }
}

/// Decides between those that lay claim to one name, in the order of configuration. A project's
/// stanzas stand as they count.
pub(super) fn settle(
    ground: &Ground,
    files: Files<'_>,
    kind: ObjectKind,
    name: &str,
    claimants: &[Unit],
) -> Settled {
    let court = Court { ground, files, kind, name };
    let mut settled = Settled::default();
    for unit in claimants {
        match kind {
            ObjectKind::Pipeline => court.pipeline(*unit, &mut settled),
            ObjectKind::Job => court.job(*unit, &mut settled),
            ObjectKind::Project => settled.entry.accepted.push(*unit),
            ObjectKind::ProjectTemplate => court.template(*unit, &mut settled),
            ObjectKind::Nodeset => {
                court.singleton(*unit, &mut settled, |a: &NodesetStanza, b| a.body == b.body)
            }
            ObjectKind::Queue => court.singleton(*unit, &mut settled, |a: &QueueStanza, b| {
                QueueStanza { place: b.place, ..a.clone() } == *b
            }),
            ObjectKind::Secret => {
                court.singleton(*unit, &mut settled, |a: &SecretStanza, b| {
                    a.data == b.data && a.oidc == b.oidc
                });
            }
            ObjectKind::Semaphore => court.semaphore(*unit, &mut settled),
            ObjectKind::Image
            | ObjectKind::Flavor
            | ObjectKind::Label
            | ObjectKind::Section
            | ObjectKind::Provider => {
                court.object(*unit, &mut settled);
            }
        }
    }
    // One alone need not even be read.
    if kind == ObjectKind::Project && settled.entry.accepted.len() > 1 {
        settled.entry.accepted = named_first(files, &settled.entry.accepted);
    }
    settled
}

/// Returns the stanzas of a project as they count, which are in the order of configuration.
fn named_first(files: Files<'_>, units: &[Unit]) -> Vec<Unit> {
    as_they_count(units, |unit| {
        files.object::<ProjectStanza>(unit).and_then(ProjectStanza::expression)
    })
}

/// Returns stanzas of a project as they count: first those that name it, then those whose
/// expression covers its name, each expression's together where the first of them stands. All
/// within that in the order in which they are given.
pub(super) fn as_they_count<'p, T: Copy>(
    stanzas: &[T],
    expression: impl Fn(T) -> Option<&'p str>,
) -> Vec<T> {
    let mut ranks: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rank = |stanza: T| {
        let Some(expression) = expression(stanza) else { return 0 };
        let next = ranks.len() + 1;
        *ranks.entry(expression).or_insert(next)
    };
    let mut ranked: Vec<(usize, T)> =
        stanzas.iter().map(|stanza| (rank(*stanza), *stanza)).collect();
    // Stable: what is of one rank stays in its order.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, stanza)| stanza).collect()
}

struct Court<'l> {
    ground: &'l Ground,
    files: Files<'l>,
    kind: ObjectKind,
    name: &'l str,
}

impl<'l> Court<'l> {
    fn file(&self, unit: Unit) -> Option<&'l File> {
        self.files.get(unit.file)
    }

    fn problem(&self, kind: ProblemKind, place: Place, message: String) -> Problem {
        File::problem(kind, &format!("{} {}", word(self.kind), self.name), place, message)
    }

    fn pipeline(&self, unit: Unit, settled: &mut Settled) {
        let Some(stanza) = self.files.object::<PipelineStanza>(unit) else { return };
        if !settled.entry.accepted.is_empty() {
            let message = format!("Pipeline {} is already defined", self.name);
            return settled
                .refuse(unit, self.problem(ProblemKind::Duplicate, stanza.place, message));
        }
        let (pipeline, problems) = stanza.resolve(&self.ground.connections);
        settled.problems.extend(problems.into_iter().map(|problem| (unit, problem)));
        let Some(pipeline) = pipeline else { return settled.entry.refused.push(unit) };
        let tenant = &self.ground.tenant;
        let refused = |allowed: &Option<Vec<String>>, name: &str| {
            allowed.as_ref().is_some_and(|list| !list.iter().any(|one| one == name))
        };
        // Each connection once, however often it is named.
        let triggers = pipeline.triggers.iter().map(|trigger| trigger.connection.as_str());
        let triggers: BTreeSet<&str> =
            triggers.filter(|name| refused(&tenant.allowed_triggers, name)).collect();
        let reporters = pipeline.reporters.all().map(|reporter| reporter.connection.as_str());
        let reporters: BTreeSet<&str> =
            reporters.filter(|name| refused(&tenant.allowed_reporters, name)).collect();
        if triggers.is_empty() && reporters.is_empty() {
            return settled.entry.accepted.push(unit);
        }
        let triggers =
            triggers.into_iter().map(|name| ("trigger", name, &["trigger"] as &[&'static str]));
        let reporters =
            reporters.into_iter().map(|name| ("reporter", name, &OCCASIONS as &[&'static str]));
        let told = triggers.chain(reporters).map(|(what, name, words)| {
            let message =
                format!("Unknown {what}: tenant {} may not use connection \"{name}\"", tenant.name);
            let (attribute, place) = said_at(stanza, words, name).unwrap_or((what, stanza.place));
            let problem = self.problem(ProblemKind::NotPermitted, place, message);
            (unit, problem.about(attribute).from_stanza_at(stanza.place.start))
        });
        settled.problems.extend(told);
        settled.entry.refused.push(unit);
    }

    fn job(&self, unit: Unit, settled: &mut Settled) {
        let (Some(file), Some(job)) = (self.file(unit), self.files.object::<JobStanza>(unit))
        else {
            return;
        };
        let Some(project) = self.ground.project_of(file) else { return };
        // All that stand are of one project.
        let first = settled.entry.accepted.first().and_then(|first| self.file(*first));
        let other = first
            .map(|first| &first.source().project)
            .filter(|other| **other != file.source().project);
        let Some(other) = other else { return settled.entry.accepted.push(unit) };
        // The tenant lets the other project's definition stand in for this one.
        if project.shadow.iter().any(|name| name == other.as_str() || name == other.name()) {
            return settled.entry.refused.push(unit);
        }
        let message = format!(
            "Job {} in {} is not permitted to shadow job {} in {other}",
            job.name,
            file.source().project,
            job.name
        );
        settled.refuse(unit, self.problem(ProblemKind::NotPermitted, job.place, message));
    }

    fn semaphore(&self, unit: Unit, settled: &mut Settled) {
        if self.ground.tenant.global_semaphores.contains_key(self.name)
            && let Some(stanza) = self.files.object::<SemaphoreStanza>(unit)
        {
            let message = format!(
                "Semaphore {} may not have the name of a global semaphore of the tenant",
                self.name
            );
            return settled
                .refuse(unit, self.problem(ProblemKind::Conflict, stanza.place, message));
        }
        self.singleton(unit, settled, |a: &SemaphoreStanza, b| a.max == b.max);
    }

    fn template(&self, unit: Unit, settled: &mut Settled) {
        let (Some(file), Some(template)) =
            (self.file(unit), self.files.object::<ProjectStanza>(unit))
        else {
            return;
        };
        // All that stand are of one project.
        let first = settled.entry.accepted.first().and_then(|first| self.file(*first));
        if let Some(other) = first.filter(|first| first.source().project != file.source().project) {
            let message = format!(
                "Project template {} is already defined in {}",
                self.name,
                other.source().project
            );
            return settled
                .refuse(unit, self.problem(ProblemKind::Duplicate, template.place, message));
        }
        settled.entry.accepted.push(unit);
    }

    /// Judges an object that a tenant has once; the same again in another branch of its project is
    /// no mistake.
    fn singleton<T: Object + Placed + 'l>(
        &self,
        unit: Unit,
        settled: &mut Settled,
        same: impl Fn(&T, &T) -> bool,
    ) {
        let (Some(file), Some(object)) = (self.file(unit), self.files.object::<T>(unit)) else {
            return;
        };
        let Some(first) = settled.entry.accepted.first().copied() else {
            return settled.entry.accepted.push(unit);
        };
        let (Some(other_file), Some(other)) = (self.file(first), self.files.object::<T>(first))
        else {
            return;
        };
        let (source, name) = (other_file.source(), self.name);
        let kind = T::TITLE;
        if source.project != file.source().project {
            let message = format!("{kind} {name} is already defined in project {}", source.project);
            settled.refuse(unit, self.problem(ProblemKind::Duplicate, object.place(), message));
        } else if source.branch == file.source().branch {
            let message = format!("{kind} {name} is already defined in {}", source.path);
            settled.refuse(unit, self.problem(ProblemKind::Duplicate, object.place(), message));
        } else if same(other, object) {
            settled.entry.refused.push(unit);
        } else {
            let message =
                format!("{kind} {name} does not match its definition in branch {}", source.branch);
            settled.refuse(unit, self.problem(ProblemKind::Conflict, object.place(), message));
        }
    }

    /// Judges an image, flavor, label, section or provider, by the rule of all that a tenant has
    /// once.
    fn object(&self, unit: Unit, settled: &mut Settled) {
        let (Some(file), Some(object)) =
            (self.file(unit), self.files.object::<ProviderObject>(unit))
        else {
            return;
        };
        let Some(first) = settled.entry.accepted.first().copied() else {
            return settled.entry.accepted.push(unit);
        };
        let (Some(other_file), Some(other)) =
            (self.file(first), self.files.object::<ProviderObject>(first))
        else {
            return;
        };
        let (source, kind, name) = (other_file.source(), word(self.kind), &object.name);
        let (problem, message) = if source.project != file.source().project {
            let message = format!("The {kind} \"{name}\" is already defined in {}", source.project);
            (ProblemKind::Duplicate, message)
        } else if source.branch == file.source().branch {
            // Also the very same: of two, somebody will change one.
            (
                ProblemKind::Duplicate,
                format!("The {kind} \"{name}\" is already defined in {}", source.path),
            )
        } else if other.attributes == object.attributes {
            return settled.entry.refused.push(unit);
        } else {
            let message = format!(
                "The {kind} \"{name}\" does not match its definition in branch {}",
                source.branch
            );
            (ProblemKind::Conflict, message)
        };
        settled.refuse(unit, self.problem(problem, object.place, message));
    }
}

/// Attributes of a pipeline that name the connections it reports on.
const OCCASIONS: [&str; 10] = [
    "start",
    "enqueue",
    "success",
    "failure",
    "merge-conflict",
    "merge-failure",
    "no-jobs",
    "dequeue",
    "config-error",
    "disabled",
];

/// Returns under which of these words a pipeline names a connection first, and where.
fn said_at(
    stanza: &PipelineStanza,
    words: &[&'static str],
    connection: &str,
) -> Option<(&'static str, Place)> {
    words.iter().find_map(|word| {
        let mut keys = stanza.node.get(word)?.as_map()?.iter().map(|(key, _)| key);
        keys.find(|key| key.as_text() == Some(connection)).map(|key| (*word, Place::of(key)))
    })
}

/// An object of which a tenant has one.
trait Placed {
    /// What it is called at the beginning of a sentence.
    const TITLE: &'static str;

    fn place(&self) -> Place;
}

macro_rules! placed {
    ($($object:ty: $title:literal),+ $(,)?) => {
        $(impl Placed for $object {
            const TITLE: &'static str = $title;

            fn place(&self) -> Place {
                self.place
            }
        })+
    };
}

placed! { NodesetStanza: "Nodeset", QueueStanza: "Queue", SecretStanza: "Secret", SemaphoreStanza: "Semaphore" }
