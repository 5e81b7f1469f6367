//! From fragments to a layout: order, permissions, and what is defined twice.

use super::{Defined, Layout, LayoutSources, check, content_id, providers};
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::fragment::{Fragment, Trust};
use crate::objects::{
    JobStanza, NodesetStanza, ObjectKind, Parent, PipelineStanza, Place, ProjectStanza, ProviderObject, QueueStanza,
    SecretStanza, SemaphoreStanza, Stanza,
};
use crate::tenant::{TenantConfig, TenantProject};
use crate::{Pattern, Pipeline};
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn build(mut sources: LayoutSources) -> Layout {
    order(&mut sources);
    let id = content_id(&sources);
    let mut builder = Builder::new(&sources);
    for fragment in &sources.fragments {
        builder.fragment(fragment);
    }
    let Builder {
        errors, pipelines, jobs, nodesets, secrets, semaphores, queues, templates, projects, objects, ..
    } = builder;
    let mut layout = Layout {
        id,
        errors,
        pipelines,
        jobs,
        nodesets,
        secrets,
        semaphores,
        queues,
        templates,
        projects,
        providers: Vec::new(),
        sources,
    };
    let mut errors = check::references(&layout);
    let (providers, provider_errors) = providers::resolve(&objects, &layout.sources.tenant.name);
    errors.extend(provider_errors);
    layout.providers = providers;
    layout.errors.extend(errors);
    layout
}

/// Sorts fragments as the tenant lists projects, the default branch first; drops what the tenant does not read.
fn order(sources: &mut LayoutSources) {
    let LayoutSources { tenant, fragments, .. } = sources;
    let rank: BTreeMap<&ProjectName, usize> =
        tenant.projects.iter().enumerate().map(|(rank, project)| (&project.name, rank)).collect();
    fragments.retain(|fragment| {
        let source = &fragment.source;
        tenant.project(&source.project).is_some_and(|project| tenant.reads_branch(project, source.branch.as_str()))
    });
    fragments.sort_by_key(|fragment| {
        let branch = fragment.source.branch.as_str();
        let main = if matches!(branch, "master" | "main") { 0 } else { 1 };
        (rank.get(&fragment.source.project).copied().unwrap_or(usize::MAX), main, branch.to_owned())
    });
}

pub(super) type Objects = BTreeMap<ObjectKind, Vec<Defined<ProviderObject>>>;

struct Builder<'s> {
    sources: &'s LayoutSources,
    /// Branches of each project that has more than one.
    branched: BTreeSet<&'s ProjectName>,
    errors: Vec<ConfigError>,
    pipelines: Vec<Pipeline>,
    jobs: BTreeMap<String, Vec<Defined<JobStanza>>>,
    nodesets: BTreeMap<String, Defined<NodesetStanza>>,
    secrets: BTreeMap<String, Defined<SecretStanza>>,
    semaphores: BTreeMap<String, Defined<SemaphoreStanza>>,
    queues: BTreeMap<String, Defined<QueueStanza>>,
    templates: BTreeMap<String, Vec<Defined<ProjectStanza>>>,
    projects: BTreeMap<ProjectName, Vec<Defined<ProjectStanza>>>,
    objects: Objects,
}

impl<'s> Builder<'s> {
    fn new(sources: &'s LayoutSources) -> Self {
        let mut seen: BTreeMap<&ProjectName, BTreeSet<&BranchName>> = BTreeMap::new();
        for fragment in &sources.fragments {
            seen.entry(&fragment.source.project).or_default().insert(&fragment.source.branch);
        }
        for (project, branches) in &sources.branches {
            seen.insert(project, branches.iter().collect());
        }
        let branched =
            seen.into_iter().filter(|(_, branches)| branches.len() > 1).map(|(project, _)| project).collect();
        Self {
            sources,
            branched,
            errors: Vec::new(),
            pipelines: Vec::new(),
            jobs: BTreeMap::new(),
            nodesets: BTreeMap::new(),
            secrets: BTreeMap::new(),
            semaphores: BTreeMap::new(),
            queues: BTreeMap::new(),
            templates: BTreeMap::new(),
            projects: BTreeMap::new(),
            objects: Objects::new(),
        }
    }

    fn tenant(&self) -> &'s TenantConfig {
        &self.sources.tenant
    }

    fn fragment(&mut self, fragment: &Arc<Fragment>) {
        let Some(project) = self.tenant().project(&fragment.source.project) else {
            return;
        };
        self.errors.extend(fragment.errors());
        let implied = self.implied(fragment, project).map(Arc::new);
        for (index, stanza) in fragment.stanzas.iter().enumerate() {
            self.stanza(&At { fragment, index, implied: &implied, project }, stanza);
        }
    }

    /// Returns the branches that jobs and projects of a file are bound to where they name none (Z4.2).
    fn implied(&self, fragment: &Fragment, project: &TenantProject) -> Option<Vec<Pattern>> {
        let own = || {
            let branches = fragment.pragma.implied_branches.clone();
            branches.unwrap_or_else(|| vec![Pattern::exactly(fragment.source.branch.as_str())])
        };
        match fragment.pragma.implied_branch_matchers.or(project.implied_branch_matchers) {
            Some(true) => return Some(own()),
            Some(false) => return None,
            None => {}
        }
        if fragment.source.trust == Trust::Config {
            return None;
        }
        if fragment.pragma.implied_branches.is_some() || self.branched.contains(&fragment.source.project) {
            return Some(own());
        }
        None
    }

    fn stanza(&mut self, at: &At<'_>, stanza: &Stanza) {
        let kind = match stanza {
            Stanza::Pragma(_) => return,
            Stanza::Pipeline(pipeline) => return self.pipeline(at, pipeline),
            Stanza::Job(_) => ObjectKind::Job,
            Stanza::Project(_) => ObjectKind::Project,
            Stanza::ProjectTemplate(_) => ObjectKind::ProjectTemplate,
            Stanza::Nodeset(_) => ObjectKind::Nodeset,
            Stanza::Queue(_) => ObjectKind::Queue,
            Stanza::Secret(_) => ObjectKind::Secret,
            Stanza::Semaphore(_) => ObjectKind::Semaphore,
            Stanza::Image(_) => ObjectKind::Image,
            Stanza::Flavor(_) => ObjectKind::Flavor,
            Stanza::Label(_) => ObjectKind::Label,
            Stanza::Section(_) => ObjectKind::Section,
            Stanza::Provider(_) => ObjectKind::Provider,
        };
        if !at.project.kinds.contains(&kind) {
            return;
        }
        match stanza {
            Stanza::Job(job) => self.job(at, job),
            Stanza::Project(project) => self.project(at, project),
            Stanza::ProjectTemplate(template) => self.template(at, template),
            Stanza::Nodeset(found) => {
                let defined = at.defined(|stanza| if let Stanza::Nodeset(found) = stanza { Some(found) } else { None });
                singleton(
                    &mut self.nodesets,
                    &mut self.errors,
                    at,
                    &Named("Nodeset", &found.name, found.place),
                    defined,
                    |a, b| a.body == b.body,
                );
            }
            Stanza::Queue(found) => {
                let defined = at.defined(|stanza| if let Stanza::Queue(found) = stanza { Some(found) } else { None });
                singleton(
                    &mut self.queues,
                    &mut self.errors,
                    at,
                    &Named("Queue", &found.name, found.place),
                    defined,
                    |a, b| {
                        a.queue_type == b.queue_type
                            && a.allow_circular_dependencies == b.allow_circular_dependencies
                            && a.dependencies_by_topic == b.dependencies_by_topic
                    },
                );
            }
            Stanza::Secret(found) => {
                let defined = at.defined(|stanza| if let Stanza::Secret(found) = stanza { Some(found) } else { None });
                singleton(
                    &mut self.secrets,
                    &mut self.errors,
                    at,
                    &Named("Secret", &found.name, found.place),
                    defined,
                    |a, b| a.data == b.data && a.oidc == b.oidc,
                );
            }
            Stanza::Semaphore(found) => {
                let defined =
                    at.defined(|stanza| if let Stanza::Semaphore(found) = stanza { Some(found) } else { None });
                singleton(
                    &mut self.semaphores,
                    &mut self.errors,
                    at,
                    &Named("Semaphore", &found.name, found.place),
                    defined,
                    |a, b| a.max == b.max,
                );
            }
            Stanza::Image(found)
            | Stanza::Flavor(found)
            | Stanza::Label(found)
            | Stanza::Section(found)
            | Stanza::Provider(found) => {
                self.object(at, kind, found);
            }
            Stanza::Pragma(_) | Stanza::Pipeline(_) => {}
        }
    }

    fn pipeline(&mut self, at: &At<'_>, stanza: &PipelineStanza) {
        let name = format!("pipeline {}", stanza.name);
        if at.fragment.source.trust == Trust::Untrusted {
            let message = "Pipelines may not be defined in untrusted repositories, only in config repositories";
            return self.errors.push(at.error(ProblemKind::NotPermitted, &name, stanza.place, message));
        }
        if !at.project.kinds.contains(&ObjectKind::Pipeline) {
            return;
        }
        if self.pipelines.iter().any(|other| other.name.as_str() == stanza.name) {
            let message = format!("Pipeline {} is already defined", stanza.name);
            return self.errors.push(at.error(ProblemKind::Duplicate, &name, stanza.place, message));
        }
        let (pipeline, problems) = stanza.resolve(&self.sources.connections);
        self.errors.extend(problems.into_iter().map(|problem| at.fragment.source.error(problem)));
        let Some(pipeline) = pipeline else { return };
        let refused = |allowed: &Option<Vec<String>>, name: &str| {
            allowed.as_ref().is_some_and(|list| !list.iter().any(|one| one == name))
        };
        if let Some(trigger) =
            pipeline.triggers.iter().find(|one| refused(&self.tenant().allowed_triggers, one.connection.as_str()))
        {
            let message = format!(
                "Unknown trigger: tenant {} may not use connection \"{}\"",
                self.tenant().name,
                trigger.connection
            );
            return self.errors.push(at.error(ProblemKind::NotPermitted, &name, stanza.place, message));
        }
        self.pipelines.push(pipeline);
    }

    fn job(&mut self, at: &At<'_>, job: &JobStanza) {
        let stanza = format!("job {}", job.name);
        let is_default_parent = job.parent == Parent::Unset && job.name == self.tenant().default_parent;
        if (job.parent == Parent::Base || is_default_parent) && !at.project.allow_base_jobs {
            let message = "Base jobs may only be defined in config-projects that the tenant allows to";
            return self.errors.push(at.error(ProblemKind::NotPermitted, &stanza, job.place, message));
        }
        if at.fragment.source.trust == Trust::Untrusted && job.other.contains_key("auth-swift") {
            let message = "Swift credentials may only be asked for in config repositories";
            return self.errors.push(at.error(ProblemKind::NotPermitted, &stanza, job.place, message));
        }
        let prior = self.jobs.get(&job.name).map(Vec::as_slice).unwrap_or_default();
        let elsewhere: Vec<_> =
            prior.iter().filter(|other| other.source().project != at.fragment.source.project).collect();
        let yields = |other: &&&Defined<JobStanza>| {
            let project = &other.source().project;
            at.project.shadow.iter().any(|name| name == project.as_str() || name == project.name())
        };
        if let Some(other) = elsewhere.iter().find(|other| !yields(other)) {
            let message = format!(
                "Job {} in {} is not permitted to shadow job {} in {}",
                job.name,
                at.fragment.source.project,
                job.name,
                other.source().project
            );
            return self.errors.push(at.error(ProblemKind::NotPermitted, &stanza, job.place, message));
        }
        // The tenant lets the other project's definition stand in for this one.
        if !elsewhere.is_empty() {
            return;
        }
        let defined = at.defined(|stanza| if let Stanza::Job(job) = stanza { Some(job.as_ref()) } else { None });
        self.jobs.entry(job.name.clone()).or_default().push(defined);
    }

    fn project(&mut self, at: &At<'_>, project: &ProjectStanza) {
        let own = &at.fragment.source.project;
        let name = project.name.clone().unwrap_or_else(|| own.as_str().to_owned());
        let stanza = format!("project {name}");
        let targets: Vec<ProjectName> = if name.starts_with('^') {
            match Pattern::new(&name) {
                Err(cause) => {
                    return self.errors.push(at.error(ProblemKind::Syntax, &stanza, project.place, cause.to_string()));
                }
                Ok(pattern) => {
                    let matching =
                        |one: &&TenantProject| pattern.matches(one.name.as_str()) || pattern.matches(one.name.name());
                    self.tenant().projects.iter().filter(matching).map(|one| one.name.clone()).collect()
                }
            }
        } else {
            match find_project(self.tenant(), &name) {
                Ok(found) => vec![found.name.clone()],
                Err(problem) => {
                    let problem = problem.at(project.place).in_stanza(&stanza);
                    return self.errors.push(at.fragment.source.error(problem));
                }
            }
        };
        let may_configure = |target: &ProjectName| {
            let named =
                |pattern: &Pattern| pattern.matches_whole(target.as_str()) || pattern.matches_whole(target.name());
            target == own || at.project.configure_projects.iter().any(named)
        };
        let foreign = name.starts_with('^') || targets.iter().any(|target| !may_configure(target));
        if at.fragment.source.trust == Trust::Untrusted && foreign && !targets.iter().all(may_configure) {
            let message =
                format!("Within {own}, the only project definition permitted is its own, but this is for {name}");
            return self.errors.push(at.error(ProblemKind::NotPermitted, &stanza, project.place, message));
        }
        for target in targets {
            let defined = at.defined(|stanza| if let Stanza::Project(project) = stanza { Some(project) } else { None });
            self.projects.entry(target).or_default().push(defined);
        }
    }

    fn template(&mut self, at: &At<'_>, template: &ProjectStanza) {
        let name = template.name.clone().unwrap_or_default();
        let prior = self.templates.entry(name.clone()).or_default();
        if let Some(other) = prior.iter().find(|other| other.source().project != at.fragment.source.project) {
            let message = format!("Project template {name} is already defined in {}", other.source().project);
            let error = at.error(ProblemKind::Duplicate, &format!("project-template {name}"), template.place, message);
            return self.errors.push(error);
        }
        prior.push(at.defined(
            |stanza| {
                if let Stanza::ProjectTemplate(template) = stanza { Some(template) } else { None }
            },
        ));
    }

    fn object(&mut self, at: &At<'_>, kind: ObjectKind, object: &ProviderObject) {
        let word = ObjectKind::WORDS.iter().find(|(_, one)| *one == kind).map_or("object", |(word, _)| word);
        let list = self.objects.entry(kind).or_default();
        let prior = list.iter().find(|other| other.get().is_some_and(|other| other.name == object.name));
        if let Some(other) = prior {
            let same_project = other.source().project == at.fragment.source.project;
            if same_project && other.get().is_some_and(|other| other.attributes == object.attributes) {
                return;
            }
            let message = format!("The {word} \"{}\" is already defined in {}", object.name, other.source().project);
            let error = at.error(ProblemKind::Duplicate, &format!("{word} {}", object.name), object.place, message);
            return self.errors.push(error);
        }
        list.push(at.defined(|stanza| match stanza {
            Stanza::Image(found)
            | Stanza::Flavor(found)
            | Stanza::Label(found)
            | Stanza::Section(found)
            | Stanza::Provider(found) => Some(found),
            _ => None,
        }));
    }
}

/// Where a stanza stands.
struct At<'a> {
    fragment: &'a Arc<Fragment>,
    index: usize,
    implied: &'a Option<Arc<Vec<Pattern>>>,
    project: &'a TenantProject,
}

impl At<'_> {
    fn defined<T>(&self, pick: fn(&Stanza) -> Option<&T>) -> Defined<T> {
        Defined { fragment: Arc::clone(self.fragment), stanza: self.index, implied: self.implied.clone(), pick }
    }

    fn error(&self, kind: ProblemKind, stanza: &str, place: Place, message: impl Into<String>) -> ConfigError {
        self.fragment.source.error(Problem::new(kind, place.start, place.end, message).in_stanza(stanza))
    }
}

/// Kind, name and place of an object, for messages.
struct Named<'a>(&'a str, &'a str, Place);

/// Adds an object that a tenant has once; the same again in another branch of its project is no mistake.
fn singleton<T>(
    map: &mut BTreeMap<String, Defined<T>>,
    errors: &mut Vec<ConfigError>,
    at: &At<'_>,
    named: &Named<'_>,
    defined: Defined<T>,
    same: impl Fn(&T, &T) -> bool,
) {
    let Named(kind, name, place) = named;
    let stanza = format!("{} {name}", kind.to_lowercase());
    let Some(other) = map.get(*name) else {
        map.insert((*name).to_owned(), defined);
        return;
    };
    let source = other.source();
    if source.project != at.fragment.source.project {
        let message = format!("{kind} {name} is already defined in project {}", source.project);
        errors.push(at.error(ProblemKind::Duplicate, &stanza, *place, message));
    } else if source.branch == at.fragment.source.branch {
        errors.push(at.error(
            ProblemKind::Duplicate,
            &stanza,
            *place,
            format!("{kind} {name} is already defined in {}", source.path),
        ));
    } else if !matches!((other.get(), defined.get()), (Some(a), Some(b)) if same(a, b)) {
        let message = format!("{kind} {name} does not match its definition in branch {}", source.branch);
        errors.push(at.error(ProblemKind::Conflict, &stanza, *place, message));
    }
}

/// A name that is no project of the tenant.
pub(crate) struct NoProject {
    message: String,
    suggestion: Option<String>,
}

impl NoProject {
    pub(crate) fn at(self, place: Place) -> Problem {
        let mut problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, self.message);
        problem.suggestion = self.suggestion;
        problem
    }
}

/// Finds a project by canonical or short name.
pub(crate) fn find_project<'t>(tenant: &'t TenantConfig, name: &str) -> Result<&'t TenantProject, NoProject> {
    if let Some(found) = tenant.projects.iter().find(|project| project.name.as_str() == name) {
        return Ok(found);
    }
    let mut short = tenant.projects.iter().filter(|project| project.name.name() == name);
    match (short.next(), short.next()) {
        (Some(found), None) => Ok(found),
        (Some(one), Some(other)) => {
            let message = format!(
                "Project name \"{name}\" is ambiguous: it is {} and {}; use the canonical name",
                one.name, other.name
            );
            Err(NoProject { message, suggestion: None })
        }
        (None, _) => {
            let known = tenant.projects.iter().map(|project| project.name.name());
            let suggestion = crate::error::nearest(name, known).map(str::to_owned);
            Err(NoProject { message: format!("The project \"{name}\" was not found."), suggestion })
        }
    }
}
