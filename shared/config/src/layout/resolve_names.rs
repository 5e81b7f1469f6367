//! Name resolution: which names a stanza may define, and which stanza wins where several define one
//! name.

use super::Files;
use super::inputs::{File, LayoutInputs, keyword};
use super::symbol_table::{StanzaId, Symbol};
use crate::Pattern;
use crate::error::{Diagnostic, DiagnosticKind, SuggestionBudget};
use crate::fragment::Trust;
use crate::objects::{
    JobStanza, NodesetStanza, ObjectKind, Parent, PipelineStanza, ProjectStanza, ProviderObject,
    QueueStanza, SecretStanza, SemaphoreStanza, Span, Stanza,
};
use crate::tenant::TenantProject;
use sluice_model::job::JobKind;
use std::collections::{BTreeMap, BTreeSet};

/// An object that a stanza defines.
pub(crate) trait Object: 'static {
    /// Returns the object of a stanza; `None` if the stanza is of another kind.
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

/// Returns the kinds and names that a stanza defines, or every reason why its project may not
/// define them. A project stanza defines the name of each project that it is for; a name that is
/// unknown, ambiguous or an invalid pattern is an error too. Other errors within the stanza, and
/// conflicts with other stanzas, are not considered. Empty for a pragma, for a file of an unknown
/// project, for a pattern that matches no project, and for a kind that the tenant does not load
/// from the project; but a pipeline in a known untrusted project is an error even if the tenant
/// does not load pipelines from it. `hints` limits the suggestions for an unknown project.
pub(super) fn claims<'f>(
    inputs: &'f LayoutInputs,
    file: &'f File,
    stanza: &'f Stanza,
    hints: &SuggestionBudget,
) -> Result<Vec<(ObjectKind, &'f str)>, Vec<Diagnostic>> {
    let Some(project) = inputs.project_of(file) else { return Ok(Vec::new()) };
    let (kind, name) = match stanza {
        Stanza::Pragma(_) => return Ok(Vec::new()),
        Stanza::Pipeline(found) => {
            if file.source().trust == Trust::Untrusted {
                let message =
                    "Pipelines may only be defined in config projects, not in untrusted projects";
                let stanza = format!("pipeline {}", found.name);
                return Err(vec![File::diagnostic(
                    DiagnosticKind::NotPermitted,
                    &stanza,
                    found.span,
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
    let rejected = match stanza {
        Stanza::Job(job) => job_errors(inputs, file, project, job),
        Stanza::Project(stanza) => {
            let name = stanza.name.as_deref().unwrap_or(file.source().project.name());
            let mut rejected = entry_errors(file, project, stanza, &format!("project {name}"));
            match targets(inputs, file, project, stanza, hints) {
                Ok(targets) if rejected.is_empty() => {
                    return Ok(targets
                        .into_iter()
                        .map(|name| (ObjectKind::Project, name))
                        .collect());
                }
                Ok(_) => {}
                Err(diagnostic) => rejected.push(diagnostic),
            }
            rejected
        }
        Stanza::ProjectTemplate(template) => {
            entry_errors(file, project, template, &format!("project-template {name}"))
        }
        _ => Vec::new(),
    };
    if rejected.is_empty() { Ok(vec![(kind, name)]) } else { Err(rejected) }
}

/// Returns every reason why a repository may not define a job: it is a base job, requests Swift
/// credentials, or is a reporter job, and `project`, the file's project, may not define such jobs.
/// The tenant's default parent counts as a base job if it names no parent.
fn job_errors(
    inputs: &LayoutInputs,
    file: &File,
    project: &TenantProject,
    job: &JobStanza,
) -> Vec<Diagnostic> {
    let stanza = format!("job {}", job.name);
    let mut rejected = Vec::new();
    let is_default_parent = job.parent == Parent::Unset && job.name == inputs.tenant.default_parent;
    if (job.parent == Parent::Base || is_default_parent) && !project.allow_base_jobs {
        let span = job.spans.of("parent").unwrap_or(job.span);
        let parent = match is_default_parent {
            true => "another job",
            false => inputs.tenant.default_parent.as_str(),
        };
        let message = format!(
            "Base jobs may only be defined in config projects: this project may not define base \
             jobs (parent: null); name a parent, such as {parent}"
        );
        let diagnostic = File::diagnostic(DiagnosticKind::NotPermitted, &stanza, span, message);
        rejected.push(diagnostic.about("parent").from_stanza_at(job.span.start));
    }
    rejected.extend(request_errors(file, project, job, &stanza, job.span));
    rejected
}

/// Returns an error for each thing that a project requests in a job definition or a job list entry
/// and may not: Swift credentials (Z4.8), or a reporter job. `stanza` is the keyword and name of
/// the stanza, and `start` its span. `project` is the project of `file`.
fn request_errors(
    file: &File,
    project: &TenantProject,
    job: &JobStanza,
    stanza: &str,
    start: Span,
) -> Vec<Diagnostic> {
    let refuse = |attribute: &str, message: String| {
        let span = job.spans.of(attribute).unwrap_or(job.span);
        let diagnostic = File::diagnostic(DiagnosticKind::NotPermitted, stanza, span, message);
        diagnostic.about(attribute).from_stanza_at(start.start)
    };
    let mut rejected = Vec::new();
    if file.source().trust == Trust::Untrusted && job.run_time.containers.is_some() {
        rejected.push(refuse(
            "auth",
            "Swift credentials may only be requested in config projects".to_owned(),
        ));
    }
    let is_reporter = job.run_time.kind == Some(JobKind::Reporter);
    if is_reporter && !file.source().trust.is_trusted() && !project.allow_reporter_jobs {
        let message = format!(
            "Reporter jobs may only be defined in config projects and in projects with \
             \"allow-reporter-jobs\": move the job to a config project, or set \
             \"allow-reporter-jobs\" for {} in the tenant configuration",
            project.name
        );
        rejected.push(refuse("type", message));
    }
    rejected
}

/// Returns every reason why a project may not list these jobs: what [`request_errors`] refuses in
/// the entries of a project or template. `stanza` is the keyword and name of the stanza.
fn entry_errors(
    file: &File,
    project: &TenantProject,
    list: &ProjectStanza,
    stanza: &str,
) -> Vec<Diagnostic> {
    let entries = list.pipelines.values().flat_map(|jobs| &jobs.jobs);
    entries.flat_map(|job| request_errors(file, project, job, stanza, list.span)).collect()
}

/// Returns the canonical names of the projects that a project stanza is for: its own project
/// without a name, the named one, or all whose whole name matches a pattern, which may be none. A
/// stanza in an untrusted project may only be for that project and the untrusted ones in
/// `configure-projects`; without these, it may not have a pattern. An error if it is for another
/// project, the named project is unknown or its short name ambiguous, or the pattern is invalid.
/// The project of included files counts as unknown, so a stanza in them needs a name.
fn targets<'g>(
    inputs: &'g LayoutInputs,
    file: &File,
    project: &TenantProject,
    stanza: &ProjectStanza,
    hints: &SuggestionBudget,
) -> Result<Vec<&'g str>, Diagnostic> {
    let own_project = &file.source().project;
    let name = stanza.name.as_deref().unwrap_or(own_project.as_str());
    let in_stanza = format!("project {name}");
    let span = stanza.spans.of("name").unwrap_or(stanza.span);
    let refuse = |kind, message: String| {
        let diagnostic = File::diagnostic(kind, &in_stanza, span, message).about("name");
        Err(diagnostic.from_stanza_at(stanza.span.start))
    };
    let is_pattern = stanza.expression().is_some();
    let not_permitted = || {
        let permitted = match project.configure_projects.is_empty() {
            true => "only a stanza for the project itself is permitted",
            false => {
                "only stanzas for the project itself and for untrusted projects in \
                 \"configure-projects\" are permitted"
            }
        };
        format!("Within {own_project}, {permitted}, but this stanza is for {name}")
    };
    if is_pattern
        && file.source().trust == Trust::Untrusted
        && project.configure_projects.is_empty()
    {
        // A pattern is meant for other projects, so it is refused without trying it on every
        // project.
        return refuse(DiagnosticKind::NotPermitted, not_permitted());
    }
    let targets: Vec<&TenantProject> = if is_pattern {
        let pattern = match Pattern::new(name) {
            Ok(pattern) => pattern,
            Err(cause) => return refuse(DiagnosticKind::Syntax, cause.to_string()),
        };
        // As in Zuul, the pattern must match the whole name, so that a short one does not match
        // every project whose name begins with it.
        let matching = |one: &&TenantProject| {
            pattern.matches_whole(one.name.as_str()) || pattern.matches_whole(one.name.name())
        };
        inputs.tenant.projects.iter().filter(matching).collect()
    } else {
        let found = inputs.find(name).map_err(|diagnostic| {
            diagnostic
                .at(span, inputs, hints)
                .about("name")
                .in_stanza(&in_stanza)
                .from_stanza_at(stanza.span.start)
        })?;
        vec![found]
    };
    let may_configure = |target: &&TenantProject| {
        // An untrusted project never configures a trusted one.
        let is_trusted = target.trust.is_trusted();
        let target = &target.name;
        let named = |pattern: &Pattern| {
            pattern.matches_whole(target.as_str()) || pattern.matches_whole(target.name())
        };
        target == own_project || !is_trusted && project.configure_projects.iter().any(named)
    };
    if file.source().trust == Trust::Untrusted && !targets.iter().all(may_configure) {
        return refuse(DiagnosticKind::NotPermitted, not_permitted());
    }
    Ok(targets.into_iter().map(|target| target.name.as_str()).collect())
}

/// The result of resolving one name.
#[derive(Default)]
pub(super) struct Resolution {
    /// The accepted and rejected definitions.
    pub(super) entry: Symbol,
    /// The diagnostics of those definitions.
    pub(super) diagnostics: Vec<(StanzaId, Diagnostic)>,
}

impl Resolution {
    /// Adds a stanza to the rejected ones, and a diagnostic about it.
    fn refuse(&mut self, stanza_id: StanzaId, diagnostic: Diagnostic) {
        self.entry.rejected.push(stanza_id);
        self.diagnostics.push((stanza_id, diagnostic));
    }
}

/// Decides which of the stanzas that define one name are accepted, and returns the accepted and
/// rejected ones with diagnostics. `claimants` are in configuration order, in which earlier ones
/// win; the caller has checked with [`claims`] that their projects may define the name. An equal
/// definition on another branch of a project, and a permitted shadow of a job, are rejected without
/// a diagnostic. The stanzas of a project are all accepted, in the order in which they apply.
pub(super) fn resolve(
    inputs: &LayoutInputs,
    files: Files<'_>,
    kind: ObjectKind,
    name: &str,
    claimants: &[StanzaId],
) -> Resolution {
    let resolver = Resolver { inputs, files, kind, name };
    let mut resolution = Resolution::default();
    for stanza_id in claimants {
        match kind {
            ObjectKind::Pipeline => resolver.pipeline(*stanza_id, &mut resolution),
            ObjectKind::Job => resolver.job(*stanza_id, &mut resolution),
            ObjectKind::Project => resolution.entry.accepted.push(*stanza_id),
            ObjectKind::ProjectTemplate => resolver.template(*stanza_id, &mut resolution),
            ObjectKind::Nodeset => {
                resolver
                    .singleton(*stanza_id, &mut resolution, |a: &NodesetStanza, b| a.body == b.body)
            }
            ObjectKind::Queue => {
                resolver.singleton(*stanza_id, &mut resolution, |a: &QueueStanza, b| {
                    QueueStanza { span: b.span, ..a.clone() } == *b
                })
            }
            ObjectKind::Secret => {
                resolver.singleton(*stanza_id, &mut resolution, |a: &SecretStanza, b| {
                    a.data == b.data && a.oidc == b.oidc
                });
            }
            ObjectKind::Semaphore => resolver.semaphore(*stanza_id, &mut resolution),
            ObjectKind::Image
            | ObjectKind::Flavor
            | ObjectKind::Label
            | ObjectKind::Section
            | ObjectKind::Provider => {
                resolver.object(*stanza_id, &mut resolution);
            }
        }
    }
    // A single stanza need not be decoded.
    if kind == ObjectKind::Project && resolution.entry.accepted.len() > 1 {
        resolution.entry.accepted = project_stanzas_in_order(files, &resolution.entry.accepted);
    }
    resolution
}

/// Returns a project's stanzas in the order in which they apply, as [`in_order_of_effect`].
/// `stanza_ids` are in configuration order.
fn project_stanzas_in_order(files: Files<'_>, stanza_ids: &[StanzaId]) -> Vec<StanzaId> {
    in_order_of_effect(stanza_ids, |stanza_id| {
        files.object::<ProjectStanza>(stanza_id).and_then(ProjectStanza::expression)
    })
}

/// Returns a project's stanzas in the order in which they apply: those that name the project first,
/// then those with a pattern. The stanzas of one pattern stay together, at the position of the
/// first of them. Otherwise the given order is kept. `expression` returns the pattern of a stanza;
/// `None` if it names the project.
pub(super) fn in_order_of_effect<'p, T: Copy>(
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
    // The sort is stable: stanzas of equal rank keep their order.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, stanza)| stanza).collect()
}

struct Resolver<'l> {
    inputs: &'l LayoutInputs,
    files: Files<'l>,
    kind: ObjectKind,
    name: &'l str,
}

impl<'l> Resolver<'l> {
    /// Returns the file of a stanza; `None` if no file has its number.
    fn file(&self, stanza_id: StanzaId) -> Option<&'l File> {
        self.files.get(stanza_id.file)
    }

    /// Returns a diagnostic about the stanza of the resolved kind and name, located at `span`.
    fn diagnostic(&self, kind: DiagnosticKind, span: Span, message: String) -> Diagnostic {
        File::diagnostic(kind, &format!("{} {}", keyword(self.kind), self.name), span, message)
    }

    /// Accepts or rejects a pipeline. Rejected, with a diagnostic: a name that is already accepted,
    /// a definition that does not resolve, and a connection that the tenant may not use as trigger
    /// or reporter. An accepted pipeline can have diagnostics too.
    fn pipeline(&self, stanza_id: StanzaId, resolution: &mut Resolution) {
        let Some(stanza) = self.files.object::<PipelineStanza>(stanza_id) else { return };
        if !resolution.entry.accepted.is_empty() {
            let message = format!("Pipeline {} is already defined", self.name);
            return resolution.refuse(
                stanza_id,
                self.diagnostic(DiagnosticKind::Duplicate, stanza.span, message),
            );
        }
        let (pipeline, diagnostics) = stanza.resolve(&self.inputs.connections);
        resolution
            .diagnostics
            .extend(diagnostics.into_iter().map(|diagnostic| (stanza_id, diagnostic)));
        let Some(pipeline) = pipeline else { return resolution.entry.rejected.push(stanza_id) };
        let tenant = &self.inputs.tenant;
        let rejected = |allowed: &Option<Vec<String>>, name: &str| {
            allowed.as_ref().is_some_and(|list| !list.iter().any(|one| one == name))
        };
        // Each connection once, however often it is named.
        let triggers = pipeline.triggers.iter().map(|trigger| trigger.connection.as_str());
        let triggers: BTreeSet<&str> =
            triggers.filter(|name| rejected(&tenant.allowed_triggers, name)).collect();
        let reporters = pipeline.reporters.all().map(|reporter| reporter.connection.as_str());
        let reporters: BTreeSet<&str> =
            reporters.filter(|name| rejected(&tenant.allowed_reporters, name)).collect();
        if triggers.is_empty() && reporters.is_empty() {
            return resolution.entry.accepted.push(stanza_id);
        }
        let triggers =
            triggers.into_iter().map(|name| ("trigger", name, &["trigger"] as &[&'static str]));
        let reporters = reporters
            .into_iter()
            .map(|name| ("reporter", name, &REPORTER_ATTRIBUTES as &[&'static str]));
        let not_allowed = triggers.chain(reporters).map(|(what, name, words)| {
            let message =
                format!("Unknown {what}: tenant {} may not use connection \"{name}\"", tenant.name);
            let (attribute, span) =
                find_connection(stanza, words, name).unwrap_or((what, stanza.span));
            let diagnostic = self.diagnostic(DiagnosticKind::NotPermitted, span, message);
            (stanza_id, diagnostic.about(attribute).from_stanza_at(stanza.span.start))
        });
        resolution.diagnostics.extend(not_allowed);
        resolution.entry.rejected.push(stanza_id);
    }

    /// Accepts or rejects a definition of a job. Any number are accepted from the project of the
    /// first accepted one. A definition from another project is rejected: without a diagnostic if
    /// the tenant lists the first one's project in the `shadow` of the definition's project,
    /// otherwise with one.
    fn job(&self, stanza_id: StanzaId, resolution: &mut Resolution) {
        let (Some(file), Some(job)) =
            (self.file(stanza_id), self.files.object::<JobStanza>(stanza_id))
        else {
            return;
        };
        let Some(project) = self.inputs.project_of(file) else { return };
        // All accepted definitions of a job belong to one project.
        let first = resolution.entry.accepted.first().and_then(|first| self.file(*first));
        let other = first
            .map(|first| &first.source().project)
            .filter(|other| **other != file.source().project);
        let Some(other) = other else { return resolution.entry.accepted.push(stanza_id) };
        // The tenant lets the other project's definition shadow this one.
        if project.shadow.iter().any(|name| name == other.as_str() || name == other.name()) {
            return resolution.entry.rejected.push(stanza_id);
        }
        let message = format!(
            "Job {} in {} is not permitted to shadow job {} in {other}",
            job.name,
            file.source().project,
            job.name
        );
        resolution
            .refuse(stanza_id, self.diagnostic(DiagnosticKind::NotPermitted, job.span, message));
    }

    /// Accepts or rejects a semaphore. Rejected, with a diagnostic: the name of a global semaphore,
    /// and a later definition that is in another project, on the branch of the first, or has
    /// another `max`. A later definition on another branch of the project with the same `max` is
    /// rejected without a diagnostic.
    fn semaphore(&self, stanza_id: StanzaId, resolution: &mut Resolution) {
        if self.inputs.tenant.global_semaphores.contains_key(self.name)
            && let Some(stanza) = self.files.object::<SemaphoreStanza>(stanza_id)
        {
            let message = format!(
                "Semaphore {} has the same name as a global semaphore of the tenant; rename it",
                self.name
            );
            return resolution.refuse(
                stanza_id,
                self.diagnostic(DiagnosticKind::Conflict, stanza.span, message),
            );
        }
        self.singleton(stanza_id, resolution, |a: &SemaphoreStanza, b| a.max == b.max);
    }

    /// Accepts or rejects a definition of a project template. Any number are accepted from the
    /// project of the first accepted one; a definition from another project is rejected, with a
    /// diagnostic.
    fn template(&self, stanza_id: StanzaId, resolution: &mut Resolution) {
        let (Some(file), Some(template)) =
            (self.file(stanza_id), self.files.object::<ProjectStanza>(stanza_id))
        else {
            return;
        };
        // All accepted definitions of a template belong to one project.
        let first = resolution.entry.accepted.first().and_then(|first| self.file(*first));
        if let Some(other) = first.filter(|first| first.source().project != file.source().project) {
            let message = format!(
                "Project template {} is already defined in {}",
                self.name,
                other.source().project
            );
            return resolution.refuse(
                stanza_id,
                self.diagnostic(DiagnosticKind::Duplicate, template.span, message),
            );
        }
        resolution.entry.accepted.push(stanza_id);
    }

    /// Accepts a definition if it is the first of its name, and rejects it otherwise. One on
    /// another branch of the first one's project that is equal to it, as `same` decides, is
    /// rejected without a diagnostic. A diagnostic is added for a definition in another project, on
    /// the same branch, or that differs.
    fn singleton<T: Object + Singleton + 'l>(
        &self,
        stanza_id: StanzaId,
        resolution: &mut Resolution,
        same: impl Fn(&T, &T) -> bool,
    ) {
        let (Some(file), Some(object)) = (self.file(stanza_id), self.files.object::<T>(stanza_id))
        else {
            return;
        };
        let Some(first) = resolution.entry.accepted.first().copied() else {
            return resolution.entry.accepted.push(stanza_id);
        };
        let (Some(other_file), Some(other)) = (self.file(first), self.files.object::<T>(first))
        else {
            return;
        };
        let (source, name) = (other_file.source(), self.name);
        let kind = T::TITLE;
        if source.project != file.source().project {
            let message = format!("{kind} {name} is already defined in project {}", source.project);
            resolution.refuse(
                stanza_id,
                self.diagnostic(DiagnosticKind::Duplicate, object.span(), message),
            );
        } else if source.branch == file.source().branch {
            let message = format!("{kind} {name} is already defined in {}", source.path);
            resolution.refuse(
                stanza_id,
                self.diagnostic(DiagnosticKind::Duplicate, object.span(), message),
            );
        } else if same(other, object) {
            resolution.entry.rejected.push(stanza_id);
        } else {
            let message =
                format!("{kind} {name} does not match its definition in branch {}", source.branch);
            resolution.refuse(
                stanza_id,
                self.diagnostic(DiagnosticKind::Conflict, object.span(), message),
            );
        }
    }

    /// Accepts an image, flavor, label, section or provider if it is the first of its name, and
    /// rejects it otherwise. One on another branch of the first one's project with the same
    /// attributes is rejected without a diagnostic. A diagnostic is added for an object in another
    /// project, on the same branch, or that differs.
    fn object(&self, stanza_id: StanzaId, resolution: &mut Resolution) {
        let (Some(file), Some(object)) =
            (self.file(stanza_id), self.files.object::<ProviderObject>(stanza_id))
        else {
            return;
        };
        let Some(first) = resolution.entry.accepted.first().copied() else {
            return resolution.entry.accepted.push(stanza_id);
        };
        let (Some(other_file), Some(other)) =
            (self.file(first), self.files.object::<ProviderObject>(first))
        else {
            return;
        };
        let (source, kind, name) = (other_file.source(), keyword(self.kind), &object.name);
        let (diagnostic, message) = if source.project != file.source().project {
            let message = format!("The {kind} \"{name}\" is already defined in {}", source.project);
            (DiagnosticKind::Duplicate, message)
        } else if source.branch == file.source().branch {
            // Even an identical one, since only one of the two would be changed later.
            (
                DiagnosticKind::Duplicate,
                format!("The {kind} \"{name}\" is already defined in {}", source.path),
            )
        } else if other.attributes == object.attributes {
            return resolution.entry.rejected.push(stanza_id);
        } else {
            let message = format!(
                "The {kind} \"{name}\" does not match its definition in branch {}",
                source.branch
            );
            (DiagnosticKind::Conflict, message)
        };
        resolution.refuse(stanza_id, self.diagnostic(diagnostic, object.span, message));
    }
}

/// The attributes of a pipeline that name the connections it reports to.
const REPORTER_ATTRIBUTES: [&str; 10] = [
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

/// Returns the first of the attributes `words` in which a pipeline names a connection, and the span
/// of the name there; `None` if none does.
fn find_connection(
    stanza: &PipelineStanza,
    words: &[&'static str],
    connection: &str,
) -> Option<(&'static str, Span)> {
    words.iter().find_map(|keyword| {
        let mut keys = stanza.node.get(keyword)?.as_map()?.iter().map(|(key, _)| key);
        keys.find(|key| key.as_text() == Some(connection)).map(|key| (*keyword, Span::of(key)))
    })
}

/// An object of which a tenant can have one per name.
trait Singleton {
    /// Its kind, capitalized for the start of a sentence.
    const TITLE: &'static str;

    /// Returns the span of the stanza.
    fn span(&self) -> Span;
}

macro_rules! singletons {
    ($($object:ty: $title:literal),+ $(,)?) => {
        $(impl Singleton for $object {
            const TITLE: &'static str = $title;

            fn span(&self) -> Span {
                self.span
            }
        })+
    };
}

singletons! { NodesetStanza: "Nodeset", QueueStanza: "Queue", SecretStanza: "Secret", SemaphoreStanza: "Semaphore" }
