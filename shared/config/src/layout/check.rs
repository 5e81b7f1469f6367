//! Checks references between objects: names that are undefined, or that the object may not use.

mod job;
mod names;
mod parents;

pub(crate) use job::{foreign_image_error, semaphore_used_twice};
pub(super) use names::{Facts, facts};

use super::Layout;
use super::flatten_nodesets::flatten;
use super::symbol_table::StanzaId;
use crate::error::{Diagnostic, DiagnosticKind, SuggestionBudget};
use crate::fragment::Source;
use crate::objects::read::members;
use crate::objects::{
    Alternative, AttributeSpans, JobStanza, NodesetBody, NodesetRef, ObjectKind, Parent,
    PipelineStanza, ProjectStanza, RoleSource, SecretStanza, Span, Stanza,
};
use crate::yaml::Mark;
use names::{JobCache, NameLookup};
use sluice_model::ProjectName;
use sluice_model::job::NodeSet;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of cycles reported for one nodeset.
const CYCLES_MAX: usize = 20;
/// The built-in job that does nothing.
pub(crate) const NOOP: &str = "noop";

/// The diagnostics by stanza, and the hashes of the names that each stanza references.
pub(super) type Found = (Vec<(StanzaId, Diagnostic)>, Vec<(u32, StanzaId)>);

/// Checks the references of all accepted stanzas, and of the stanzas with errors (`faulty`);
/// provider objects, queues and semaphores are skipped. The layout must have no overlay, since only
/// its base is read. Returns the diagnostics by stanza, and the hash of each name that a stanza
/// references.
pub(super) fn check_all(layout: &Layout, faulty: Vec<StanzaId>) -> Found {
    let mut stanza_ids: Vec<StanzaId> =
        layout.base.symbols.accepted().map(|(_, _, stanza_id)| stanza_id).chain(faulty).collect();
    stanza_ids.sort_unstable();
    // A project pattern attaches one stanza to many projects.
    stanza_ids.dedup();
    check(layout, stanza_ids)
}

/// Checks the references of some stanzas; unknown ids are skipped, and so are provider objects,
/// queues and semaphores. Returns the diagnostics by stanza, and the hash of each name that a
/// stanza references, also of undefined names.
pub(super) fn check(layout: &Layout, stanza_ids: impl IntoIterator<Item = StanzaId>) -> Found {
    check_stanzas(layout, stanza_ids, None)
}

/// Returns every undefined name that jobs, nodesets, projects, templates, secrets and pipelines
/// reference, with the project that references it. Stanzas of any kind that were parsed with errors
/// are left out. Those without errors that the layout rejected count, and so do those of kinds that
/// the tenant does not load from the project. Names of projects, names in provider configuration
/// and the built-in job `noop` are left out.
pub(super) fn undefined(layout: &Layout) -> BTreeSet<(ObjectKind, String, ProjectName)> {
    let mut by_project: BTreeMap<ProjectName, BTreeSet<(ObjectKind, String)>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for (number, file) in layout.files() {
        let project = file.source().project.clone();
        let stanza_ids = file
            .fragment
            .stanzas()
            .enumerate()
            .map(|(index, _)| StanzaId::new(number as usize, index));
        check_stanzas(layout, stanza_ids, Some(&mut names));
        by_project.entry(project).or_default().append(&mut names);
    }
    let undefined = by_project.into_iter().flat_map(|(project, names)| {
        names.into_iter().map(move |(kind, name)| (kind, name, project.clone()))
    });
    undefined.collect()
}

/// Checks jobs, nodesets, projects, templates, secrets and pipelines; stanzas of other kinds and
/// unknown ids are skipped. Returns the diagnostics by stanza, and the hash of each name that a
/// stanza references, also of undefined names. Undefined names are added to `undefined` if it is
/// given.
fn check_stanzas(
    layout: &Layout,
    stanza_ids: impl IntoIterator<Item = StanzaId>,
    mut undefined: Option<&mut BTreeSet<(ObjectKind, String)>>,
) -> Found {
    let (mut errors, mut references, mut jobs, hints) =
        (Vec::new(), Vec::new(), JobCache::default(), SuggestionBudget::new());
    for stanza_id in stanza_ids {
        let Some((file, stanza)) = layout.stanza(stanza_id) else { continue };
        let (name, span) = match stanza {
            Stanza::Job(job) => (format!("job {}", job.name).trim_end().to_owned(), job.span),
            Stanza::Nodeset(nodeset) => (format!("nodeset {}", nodeset.name), nodeset.span),
            Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
                let name = project.name.as_deref().unwrap_or_else(|| file.source().project.name());
                (format!("project {name}"), project.span)
            }
            Stanza::Secret(secret) => (format!("secret {}", secret.name), secret.span),
            Stanza::Pipeline(pipeline) => (format!("pipeline {}", pipeline.name), pipeline.span),
            _ => continue,
        };
        let names = NameLookup {
            layout,
            stanza_id,
            references: &mut references,
            jobs: &mut jobs,
            hints: &hints,
            undefined: undefined.as_deref_mut(),
        };
        let mut check = Check {
            names,
            source: file.source(),
            stanza: name,
            start: span.start,
            found: BTreeSet::new(),
        };
        match stanza {
            Stanza::Job(job) => {
                check.default_parent(job);
                check.job(job);
                check.details(job, &BTreeSet::new());
            }
            Stanza::Nodeset(nodeset) => {
                let at = Spans { spans: &nodeset.spans, whole: nodeset.span };
                check.nodeset(Some(&nodeset.name), &nodeset.body, at);
            }
            Stanza::Secret(secret) => check.secret(secret),
            Stanza::Pipeline(pipeline) => check.pipeline(pipeline),
            Stanza::Project(project) | Stanza::ProjectTemplate(project) => check.project(project),
            _ => {}
        }
        errors.extend(check.found.into_iter().map(|diagnostic| (stanza_id, diagnostic)));
    }
    (errors, references)
}

/// The spans of a stanza's parts.
#[derive(Clone, Copy)]
struct Spans<'p> {
    /// The spans of attributes.
    spans: &'p AttributeSpans,
    /// The span of the whole stanza.
    whole: Span,
}

impl Spans<'_> {
    /// Returns the span of an attribute, or that of the whole stanza if the attribute has none.
    fn attribute_span(self, name: &str) -> Span {
        self.spans.of(name).unwrap_or(self.whole)
    }

    /// Returns the span of the member of an attribute's list with the index `number`, or that of
    /// the attribute if the member has none, or that of the whole stanza if neither has one.
    fn member_span(self, attribute: &str, number: usize) -> Span {
        self.spans.of_member(attribute, &number.to_string()).unwrap_or(self.whole)
    }
}

struct Check<'c> {
    /// Looks up names and records the references.
    names: NameLookup<'c>,
    /// The file of the stanza that is checked.
    source: &'c Source,
    /// The name of the stanza.
    stanza: String,
    /// The start of the stanza.
    start: Mark,
    /// The diagnostics in the order of their position, without duplicates.
    found: BTreeSet<Diagnostic>,
}

impl Check<'_> {
    /// Reports undefined templates, pipelines and jobs of a project stanza or template, and checks
    /// its job list entries like job definitions, except for a default parent. Also reports an
    /// entry for a job that builds the image of another project. Records that the stanza references
    /// all these names.
    fn project(&mut self, project: &ProjectStanza) {
        let at = Spans { spans: &project.spans, whole: project.span };
        for (number, template) in project.templates.iter().enumerate() {
            if !self.names.has(ObjectKind::ProjectTemplate, template) {
                let message = format!("The project template \"{template}\" was not found.");
                let defined = self.names.defined_names(ObjectKind::ProjectTemplate);
                self.unknown(
                    at.member_span("templates", number),
                    "templates",
                    message,
                    template,
                    defined,
                );
            }
        }
        for (pipeline, jobs) in &project.pipelines {
            if !self.names.has(ObjectKind::Pipeline, pipeline) {
                let message = format!("The pipeline \"{pipeline}\" was not found.");
                let defined = self.names.defined_names(ObjectKind::Pipeline);
                self.unknown(at.attribute_span(pipeline), pipeline, message, pipeline, defined);
            }
            let listed: BTreeSet<&str> = jobs.jobs.iter().map(|job| job.name.as_str()).collect();
            for job in &jobs.jobs {
                let definitions = self.names.under(ObjectKind::Job, &job.name);
                if definitions.is_empty() && job.name != NOOP {
                    let message = format!("Job {} not defined", job.name);
                    let defined = self.names.defined_names(ObjectKind::Job);
                    self.unknown(job.span, pipeline, message, &job.name, defined);
                }
                self.job(job);
                self.details(job, &listed);
                self.image_of(job, definitions);
            }
        }
    }

    /// Adds a diagnostic about the stanza that is checked; an equal one is added once.
    fn add(&mut self, diagnostic: Diagnostic) {
        self.found.insert(diagnostic.in_stanza(&self.stanza).from_stanza_at(self.start));
    }

    /// Adds an error about the undefined name `wrong` at `span`. Suggests the most similar of the
    /// names in `defined`, if any is similar enough and the budget for suggestions is not used up.
    /// `attribute` is the attribute that names it, and `message` the whole text.
    fn unknown<'a>(
        &mut self,
        span: Span,
        attribute: &str,
        message: String,
        wrong: &str,
        defined: impl IntoIterator<Item = &'a str>,
    ) {
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message)
                .about(attribute);
        self.add(diagnostic.suggesting_within(self.names.hints, wrong, defined));
    }

    /// Adds an error about something that is not permitted at `span`.
    fn refuse(&mut self, span: Span, attribute: &str, message: String) {
        self.add(
            Diagnostic::new(DiagnosticKind::NotPermitted, span.start, span.end, message)
                .about(attribute),
        );
    }

    /// Reports undefined pipelines that a pipeline supersedes (`supersedes` or `supercedes`).
    /// Records that the stanza references these pipelines.
    fn pipeline(&mut self, pipeline: &PipelineStanza) {
        for word in ["supercedes", "supersedes"] {
            for node in pipeline.node.get(word).map(members).unwrap_or_default() {
                let Some(name) = node.as_text() else { continue };
                if !self.names.has(ObjectKind::Pipeline, name) {
                    let defined = self.names.defined_names(ObjectKind::Pipeline);
                    let message = format!("The pipeline \"{name}\" was not found.");
                    self.unknown(Span::of(node), word, message, name, defined);
                }
            }
        }
    }

    /// Reports a secret whose OIDC token lives longer than the tenant allows, has an issuer that it
    /// does not allow, or an algorithm that is not supported. A secret without a token is not
    /// checked.
    fn secret(&mut self, secret: &SecretStanza) {
        let at = Spans { spans: &secret.spans, whole: secret.span };
        let tenant = self.names.layout.tenant();
        let Some(token) = &secret.oidc else { return };
        if let Some(message) = tenant.lifetime_refusal(secret) {
            self.refuse(at.attribute_span("oidc.ttl"), "oidc.ttl", message);
        }
        if let Some(message) = tenant.algorithm_refusal(secret) {
            self.refuse(at.attribute_span("oidc.algorithm"), "oidc.algorithm", message);
        }
        if let (Some(issuer), Some(message)) = (&token.issuer, tenant.issuer_refusal(secret)) {
            let defined = tenant.allowed_oidc_issuers.iter().map(String::as_str);
            let span = at.attribute_span("oidc.iss");
            let diagnostic =
                Diagnostic::new(DiagnosticKind::NotPermitted, span.start, span.end, message)
                    .about("oidc.iss");
            self.add(diagnostic.suggesting_within(self.names.hints, issuer, defined));
        }
    }

    /// Reports that the tenant's default parent is undefined, at the first definition of a job if
    /// that has no `parent`. Later definitions without `parent` do not inherit, and neither does
    /// the default parent itself. A definition that is not accepted is not checked. Records that a
    /// definition without `parent` references the default parent.
    fn default_parent(&mut self, job: &JobStanza) {
        let parent = &self.names.layout.tenant().default_parent;
        if job.parent == Parent::Unset
            && job.name != *parent
            && !self.names.has(ObjectKind::Job, parent)
        {
            // A further definition does not inherit.
            let first = self.names.layout.jobs(&job.name).next();
            if first.is_some_and(|first| std::ptr::eq(first.object, job)) {
                let defined = self.names.defined_names(ObjectKind::Job);
                let message = format!("Job {parent} not defined");
                self.unknown(job.span, "default-parent", message, parent, defined);
            }
        }
    }

    /// Reports what is wrong in the references of a job definition or entry: undefined nodesets,
    /// secrets, projects and parents, secrets of another project, parents that may not be inherited
    /// from or that make the job inherit from itself, and errors in an inline nodeset. Also reports
    /// timeouts over the tenant's limit. Undefined default parents and what [`Self::details`]
    /// checks are left out. Records that the stanza references these names, except those of
    /// projects.
    fn job(&mut self, job: &JobStanza) {
        let at = Spans { spans: &job.spans, whole: job.span };
        self.parent(job, at);
        match &job.nodeset {
            Some(NodesetRef::Named(name)) => self.nodeset_name(name, at.attribute_span("nodeset")),
            Some(NodesetRef::Inline(body)) => self.nodeset(None, body, at),
            None => {}
        }
        for (number, secret) in job.secrets.iter().flatten().enumerate() {
            match self.names.facts(ObjectKind::Secret, &secret.secret) {
                Facts::Secret(project) if project == self.source.project => {}
                Facts::Secret(_) => {
                    let message = format!(
                        "Unable to use secret {}. Secrets must be defined in the same project in \
                         which they are used",
                        secret.secret
                    );
                    self.refuse(at.member_span("secrets", number), "secrets", message);
                }
                _ => {
                    let message = format!("The secret \"{}\" was not found.", secret.secret);
                    let defined = self.names.defined_names(ObjectKind::Secret);
                    self.unknown(
                        at.member_span("secrets", number),
                        "secrets",
                        message,
                        &secret.secret,
                        defined,
                    );
                }
            }
        }
        for (number, required) in
            job.required_projects.iter().flat_map(|list| &list.value).enumerate()
        {
            self.project_name(&required.name, "required-projects", number, at);
        }
        for (number, name) in job.allowed_projects.iter().flatten().enumerate() {
            self.project_name(name, "allowed-projects", number, at);
        }
        let selectors = [
            ("include-projects", &job.run_time.include_projects),
            ("exclude-projects", &job.run_time.exclude_projects),
        ];
        for (attribute, list) in selectors {
            for (number, selector) in list.iter().flat_map(|list| &list.value).enumerate() {
                if let Some(name) = &selector.name {
                    self.project_name(name, attribute, number, at);
                }
            }
        }
        for (number, file) in
            job.run_time.include_vars.iter().flat_map(|list| &list.value).enumerate()
        {
            if let Some(name) = &file.project {
                self.project_name(name, "include-vars", number, at);
            }
        }
        for (number, role) in job.roles.iter().flatten().enumerate() {
            if let RoleSource::Zuul(name) = &role.source {
                self.project_name(name, "roles", number, at);
            }
        }
        let timeouts = [
            ("timeout", job.timeout_seconds),
            ("pre-timeout", job.pre_timeout_seconds),
            ("post-timeout", job.post_timeout_seconds),
        ];
        let tenant = self.names.layout.tenant();
        for (attribute, seconds) in timeouts {
            if let Some(message) = tenant.timeout_refusal(&job.name, seconds) {
                self.refuse(at.attribute_span(attribute), attribute, message);
            }
        }
    }

    /// Reports a named parent that is undefined, that the job may not inherit from, or that makes
    /// the job inherit from itself. Rules of the parent count only if all its definitions have
    /// them. A longer cycle is reported only at the first definition of the job, and only if each
    /// parent in it applies on every branch. Records that the stanza references the parent and the
    /// ancestors examined. Does nothing if the job names no parent.
    fn parent(&mut self, job: &JobStanza, at: Spans<'_>) {
        let Parent::Named(parent) = &job.parent else {
            return;
        };
        let span = at.attribute_span("parent");
        if *parent == job.name && !parent.is_empty() {
            let message = format!(
                "Dependency cycle detected in the parents of job {parent}: {parent} → {parent}"
            );
            return self.conflict(span, "parent", message);
        }
        let Facts::Job(barriers) = self.names.facts(ObjectKind::Job, parent) else {
            let message = format!("Job {parent} not defined");
            let defined = self.names.defined_names(ObjectKind::Job);
            return self.unknown(span, "parent", message, parent, defined);
        };
        if barriers.is_final {
            let message = format!("The job \"{parent}\" is final and can not act as a parent");
            self.refuse(span, "parent", message);
        }
        if barriers.intermediate && job.is_abstract != Some(true) {
            let message = format!(
                "The job \"{parent}\" is intermediate and only abstract jobs can inherit from it, \
                 but \"{}\" is not abstract",
                job.name
            );
            self.refuse(span, "parent", message);
        }
        if let Some(project) =
            barriers.protected_in.as_ref().filter(|project| **project != self.source.project)
        {
            let message = format!(
                "The job \"{parent}\" is protected in project {project}, so jobs in other projects \
                 can not inherit from it"
            );
            self.refuse(span, "parent", message);
        }
        if barriers.withholds_credentials {
            let message = format!(
                "The job \"{parent}\" does not share its credentials with children (no \"inherit\" \
                 in \"auth\") and can not act as a parent"
            );
            self.refuse(span, "parent", message);
        }
        // A cycle through a further definition or a job list entry ends at the first definition,
        // which may have a different parent.
        let layout = self.names.layout;
        let is_first =
            || layout.jobs(&job.name).next().is_none_or(|first| std::ptr::eq(first.object, job));
        if let Some(cycle) = self.cycle_through(&job.name, parent)
            && is_first()
        {
            let message = format!(
                "Dependency cycle detected in the parents of job {}: {}",
                job.name,
                cycle.join(" → ")
            );
            self.conflict(span, "parent", message);
        }
    }

    /// Reports a project that the tenant does not have or whose short name is ambiguous, at the
    /// member `number` of the attribute's list.
    fn project_name(&mut self, name: &str, attribute: &str, number: usize, at: Spans<'_>) {
        let inputs = &self.names.layout.base.inputs;
        if let Err(diagnostic) = inputs.find(name) {
            self.add(
                diagnostic
                    .at(at.member_span(attribute, number), inputs, self.names.hints)
                    .about(attribute),
            );
        }
    }

    /// Reports a nodeset that is not defined, in the attribute `nodeset` at `span`. Records that
    /// the stanza references it.
    fn nodeset_name(&mut self, name: &str, span: Span) {
        if !self.names.has(ObjectKind::Nodeset, name) {
            let defined = self.names.defined_names(ObjectKind::Nodeset);
            self.unknown(
                span,
                "nodeset",
                format!("The nodeset \"{name}\" was not found."),
                name,
                defined,
            );
        }
    }

    /// Reports what is wrong in a nodeset: undefined labels and alternatives, labels and numbers of
    /// nodes that the tenant does not allow, too many alternatives, and a nodeset that contains
    /// itself. `name` is `None` for a nodeset within a job. The nodes of named alternatives are not
    /// checked here. Not every undefined label is reported; see [`Self::check_labels`]. Records
    /// that the stanza references the labels and nodesets.
    fn nodeset(&mut self, name: Option<&str>, body: &NodesetBody, at: Spans<'_>) {
        self.alternatives(name, body, at.attribute_span("alternatives"));
        match body {
            NodesetBody::Nodes(set) => self.nodes(set, 0, at),
            NodesetBody::Alternatives(list) => {
                let mut labels = 0;
                for (number, alternative) in list.iter().enumerate() {
                    match alternative {
                        Alternative::Named(name) => {
                            self.nodeset_name(name, at.member_span("alternatives", number))
                        }
                        Alternative::Inline(set) => {
                            self.nodes(set, labels, at);
                            labels += set.nodes.len();
                        }
                    }
                }
            }
        }
    }

    /// Reports at `span` a nodeset that has too many alternatives, nests them too deep, or contains
    /// itself. A cycle is reported only at the named nodesets that are part of it, at most 20 for
    /// each. `name` is `None` for a nodeset within a job. Records that the stanza references every
    /// nodeset that was followed.
    fn alternatives(&mut self, name: Option<&str>, body: &NodesetBody, span: Span) {
        let layout = self.names.layout;
        let found = flatten(name, body, &mut |name| {
            // The result depends on every named nodeset.
            self.names.has(ObjectKind::Nodeset, name);
            layout.nodeset(name).map(|found| &found.object.body)
        });
        let which =
            name.map_or_else(|| "The nodeset".to_owned(), |name| format!("The nodeset \"{name}\""));
        match found {
            Err(why) => self.conflict(span, "alternatives", format!("{which} {why}")),
            Ok(found) => {
                let starts_here = |cycle: &&Vec<String>| {
                    name.is_some() && cycle.first().map(String::as_str) == name
                };
                for cycle in found.cycles.iter().filter(starts_here).take(CYCLES_MAX) {
                    let message = format!("{which} contains itself: {}", cycle.join(" → "));
                    self.conflict(span, "alternatives", message);
                }
            }
        }
    }

    /// Adds an error about contradictory definitions at `span`.
    fn conflict(&mut self, span: Span, attribute: &str, message: String) {
        self.add(
            Diagnostic::new(DiagnosticKind::Conflict, span.start, span.end, message)
                .about(attribute),
        );
    }

    /// Reports labels without a `label` object, each once; Sluice does not support the Nodepool
    /// protocol for these (L4.1). They are errors if the tenant sets `use-nodepool: false`.
    /// Otherwise they are warnings if another label of the set is defined, and not reported if none
    /// is. Records that the stanza references all labels. `first` is the number of nodes in the
    /// nodeset's inline sets before this one.
    fn check_labels(&mut self, set: &NodeSet, first: usize, at: Spans<'_>) {
        let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, node) in set.nodes.iter().enumerate() {
            labels.entry(node.label.as_str()).or_insert(first + number);
        }
        let (defined, unknown): (Vec<_>, Vec<_>) =
            labels.into_iter().partition(|(label, _)| self.names.has(ObjectKind::Label, label));
        let uses_nodepool = self.names.layout.tenant().use_nodepool;
        if uses_nodepool && defined.is_empty() {
            return;
        }
        let defined: Vec<&str> = defined.into_iter().map(|(label, _)| label).collect();
        for (label, number) in unknown {
            let (span, labels) =
                (at.member_span("label", number), self.names.defined_names(ObjectKind::Label));
            if !uses_nodepool {
                let message = format!("The label \"{label}\" was not found.");
                self.unknown(span, "nodes.label", message, label, labels);
                continue;
            }
            let message = format!(
                "The label \"{label}\" was not found, and Nodepool labels without a \"label\" object are not supported: \
                 jobs with this nodeset end with NODE_FAILURE unless a static node has the label. Definition labels of this nodeset: {}",
                defined.join(", ")
            );
            let diagnostic =
                Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, message);
            self.add(
                diagnostic
                    .about("nodes.label")
                    .suggesting_within(self.names.hints, label, labels)
                    .as_warning(),
            );
        }
    }

    /// Reports labels of a set of nodes that are undefined, as [`Self::check_labels`] decides,
    /// labels that the tenant does not allow, and more nodes than it allows. Records that the
    /// stanza references the labels. `first` is the number of nodes in the nodeset's inline sets
    /// before this one, since the spans of labels are numbered over the whole nodeset.
    fn nodes(&mut self, set: &NodeSet, first: usize, at: Spans<'_>) {
        self.check_labels(set, first, at);
        let tenant = self.names.layout.tenant();
        for (number, node) in set.nodes.iter().enumerate() {
            if let Some(message) = tenant.label_refusal(node.label.as_str()) {
                self.refuse(at.member_span("label", first + number), "nodes.label", message);
            }
        }
        if let Some(message) = tenant.nodes_refusal(set) {
            let span = at.spans.of("nodeset").unwrap_or_else(|| at.attribute_span("nodes"));
            self.refuse(span, "nodeset", message);
        }
    }
}
