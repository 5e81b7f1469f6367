//! References between objects: what names something that is not there, or may not be used.

mod job;
mod names;
mod parents;

pub(crate) use job::{foreign_image, held_twice};
pub(super) use names::{Facts, facts};

use super::Layout;
use super::alternatives::in_line;
use super::shelf::Unit;
use crate::error::{Hints, Problem, ProblemKind};
use crate::fragment::Source;
use crate::objects::read::members;
use crate::objects::{
    Alternative, JobStanza, NodesetBody, NodesetRef, ObjectKind, Parent, PipelineStanza, Place,
    Places, ProjectStanza, RoleSource, SecretStanza, Stanza,
};
use crate::yaml::Mark;
use names::{Jobs, Names};
use sluice_model::ProjectName;
use sluice_model::job::NodeSet;
use std::collections::{BTreeMap, BTreeSet};

/// Ways back to itself that are told of one nodeset.
const CIRCLES_MAX: usize = 20;
/// The job that is built in and does nothing.
pub(crate) const NOOP: &str = "noop";

/// What was found wrong with which stanza, and which stanza asked for which names.
pub(super) type Found = (Vec<(Unit, Problem)>, Vec<(u32, Unit)>);

/// Returns every broken reference of a layout; `faulty` are stanzas that stand nowhere, for their
/// mistakes.
pub(super) fn all(layout: &Layout, faulty: Vec<Unit>) -> Found {
    let mut units: Vec<Unit> =
        layout.base.shelves.standing().map(|(_, _, unit)| unit).chain(faulty).collect();
    units.sort_unstable();
    // A pattern of names puts one stanza on many projects.
    units.dedup();
    some(layout, units)
}

/// Returns every broken reference of some stanzas.
pub(super) fn some(layout: &Layout, units: impl IntoIterator<Item = Unit>) -> Found {
    look(layout, units, None)
}

/// Returns every name that is asked for and that nothing bears, with the project that asks.
pub(super) fn absent(layout: &Layout) -> BTreeSet<(ObjectKind, String, ProjectName)> {
    let mut by_project: BTreeMap<ProjectName, BTreeSet<(ObjectKind, String)>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for (number, file) in layout.files() {
        let project = file.source().project.clone();
        let units =
            file.fragment.stanzas().enumerate().map(|(index, _)| Unit::new(number as usize, index));
        look(layout, units, Some(&mut names));
        by_project.entry(project).or_default().append(&mut names);
    }
    let all = by_project.into_iter().flat_map(|(project, names)| {
        names.into_iter().map(move |(kind, name)| (kind, name, project.clone()))
    });
    all.collect()
}

/// Checks some stanzas; notes the names that nothing bears.
fn look(
    layout: &Layout,
    units: impl IntoIterator<Item = Unit>,
    mut absent: Option<&mut BTreeSet<(ObjectKind, String)>>,
) -> Found {
    let (mut errors, mut asked, mut jobs, hints) =
        (Vec::new(), Vec::new(), Jobs::default(), Hints::new());
    for unit in units {
        let Some((file, stanza)) = layout.stanza(unit) else { continue };
        let (name, place) = match stanza {
            Stanza::Job(job) => (format!("job {}", job.name).trim_end().to_owned(), job.place),
            Stanza::Nodeset(nodeset) => (format!("nodeset {}", nodeset.name), nodeset.place),
            Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
                let name = project.name.as_deref().unwrap_or_else(|| file.source().project.name());
                (format!("project {name}"), project.place)
            }
            Stanza::Secret(secret) => (format!("secret {}", secret.name), secret.place),
            Stanza::Pipeline(pipeline) => (format!("pipeline {}", pipeline.name), pipeline.place),
            _ => continue,
        };
        let names = Names {
            layout,
            unit,
            asked: &mut asked,
            jobs: &mut jobs,
            hints: &hints,
            absent: absent.as_deref_mut(),
        };
        let mut check = Check {
            names,
            source: file.source(),
            stanza: name,
            start: place.start,
            found: BTreeSet::new(),
        };
        match stanza {
            Stanza::Job(job) => {
                check.default_parent(job);
                check.job(job);
                check.parts(job, &BTreeSet::new());
            }
            Stanza::Nodeset(nodeset) => {
                let at = At { places: &nodeset.places, whole: nodeset.place };
                check.nodeset(Some(&nodeset.name), &nodeset.body, at);
            }
            Stanza::Secret(secret) => check.secret(secret),
            Stanza::Pipeline(pipeline) => check.pipeline(pipeline),
            Stanza::Project(project) | Stanza::ProjectTemplate(project) => check.project(project),
            _ => {}
        }
        errors.extend(check.found.into_iter().map(|problem| (unit, problem)));
    }
    (errors, asked)
}

/// Where the parts of a stanza stand.
#[derive(Clone, Copy)]
struct At<'p> {
    places: &'p Places,
    whole: Place,
}

impl At<'_> {
    fn attribute(self, name: &str) -> Place {
        self.places.of(name).unwrap_or(self.whole)
    }

    fn member(self, attribute: &str, number: usize) -> Place {
        self.places.of_member(attribute, &number.to_string()).unwrap_or(self.whole)
    }
}

struct Check<'c> {
    names: Names<'c>,
    source: &'c Source,
    stanza: String,
    /// Where the stanza begins.
    start: Mark,
    /// In the order in which they stand, each once.
    found: BTreeSet<Problem>,
}

impl Check<'_> {
    fn project(&mut self, project: &ProjectStanza) {
        let at = At { places: &project.places, whole: project.place };
        for (number, template) in project.templates.iter().enumerate() {
            if !self.names.has(ObjectKind::ProjectTemplate, template) {
                let message = format!("The project template \"{template}\" was not found.");
                let known = self.names.known(ObjectKind::ProjectTemplate);
                self.unknown(at.member("templates", number), "templates", message, template, known);
            }
        }
        for (pipeline, jobs) in &project.pipelines {
            if !self.names.has(ObjectKind::Pipeline, pipeline) {
                let message = format!("The pipeline \"{pipeline}\" was not found.");
                let known = self.names.known(ObjectKind::Pipeline);
                self.unknown(at.attribute(pipeline), pipeline, message, pipeline, known);
            }
            let listed: BTreeSet<&str> = jobs.jobs.iter().map(|job| job.name.as_str()).collect();
            for job in &jobs.jobs {
                let definitions = self.names.under(ObjectKind::Job, &job.name);
                if definitions.is_empty() && job.name != NOOP {
                    let message = format!("Job {} not defined", job.name);
                    let known = self.names.known(ObjectKind::Job);
                    self.unknown(job.place, pipeline, message, &job.name, known);
                }
                self.job(job);
                self.parts(job, &listed);
                self.image_of(job, definitions);
            }
        }
    }

    fn add(&mut self, problem: Problem) {
        self.found.insert(problem.in_stanza(&self.stanza).from_stanza_at(self.start));
    }

    fn unknown<'a>(
        &mut self,
        place: Place,
        attribute: &str,
        message: String,
        wrong: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        let problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, message)
            .about(attribute);
        self.add(problem.hinting(self.names.hints, wrong, known));
    }

    fn refuse(&mut self, place: Place, attribute: &str, message: String) {
        self.add(
            Problem::new(ProblemKind::NotPermitted, place.start, place.end, message)
                .about(attribute),
        );
    }

    fn pipeline(&mut self, pipeline: &PipelineStanza) {
        for word in ["supercedes", "supersedes"] {
            for node in pipeline.node.get(word).map(members).unwrap_or_default() {
                let Some(name) = node.as_text() else { continue };
                if !self.names.has(ObjectKind::Pipeline, name) {
                    let known = self.names.known(ObjectKind::Pipeline);
                    let message = format!("The pipeline \"{name}\" was not found.");
                    self.unknown(Place::of(node), word, message, name, known);
                }
            }
        }
    }

    /// Holds a token that a secret asks for against what the tenant lets tokens say.
    fn secret(&mut self, secret: &SecretStanza) {
        let at = At { places: &secret.places, whole: secret.place };
        let tenant = self.names.layout.tenant();
        let Some(token) = &secret.oidc else { return };
        if let Some(message) = tenant.refuses_lifetime(secret) {
            self.refuse(at.attribute("oidc.ttl"), "oidc.ttl", message);
        }
        if let (Some(issuer), Some(message)) = (&token.issuer, tenant.refuses_issuer(secret)) {
            let known = tenant.allowed_oidc_issuers.iter().map(String::as_str);
            let place = at.attribute("oidc.iss");
            let problem = Problem::new(ProblemKind::NotPermitted, place.start, place.end, message)
                .about("oidc.iss");
            self.add(problem.hinting(self.names.hints, issuer, known));
        }
    }

    /// Tells of a job that names no parent where the tenant's default one does not exist.
    fn default_parent(&mut self, job: &JobStanza) {
        let parent = &self.names.layout.tenant().default_parent;
        if job.parent == Parent::Unset
            && job.name != *parent
            && !self.names.has(ObjectKind::Job, parent)
        {
            // A further definition inherits from nothing.
            let first = self.names.layout.jobs(&job.name).next();
            if first.is_some_and(|first| std::ptr::eq(first.object, job)) {
                let known = self.names.known(ObjectKind::Job);
                let message = format!("Job {parent} not defined");
                self.unknown(job.place, "default-parent", message, parent, known);
            }
        }
    }

    fn job(&mut self, job: &JobStanza) {
        let at = At { places: &job.places, whole: job.place };
        self.parent(job, at);
        match &job.nodeset {
            Some(NodesetRef::Named(name)) => self.nodeset_name(name, at.attribute("nodeset")),
            Some(NodesetRef::Inline(body)) => self.nodeset(None, body, at),
            None => {}
        }
        for (number, secret) in job.secrets.iter().flatten().enumerate() {
            match self.names.facts(ObjectKind::Secret, &secret.secret) {
                Facts::Secret(project) if project == self.source.project => {}
                Facts::Secret(_) => {
                    let message = format!(
                        "Unable to use secret {}. Secrets must be defined in the same project in which they are used",
                        secret.secret
                    );
                    self.refuse(at.member("secrets", number), "secrets", message);
                }
                _ => {
                    let message = format!("The secret \"{}\" was not found.", secret.secret);
                    let known = self.names.known(ObjectKind::Secret);
                    self.unknown(
                        at.member("secrets", number),
                        "secrets",
                        message,
                        &secret.secret,
                        known,
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
            if let Some(message) = tenant.refuses_timeout(&job.name, seconds) {
                self.refuse(at.attribute(attribute), attribute, message);
            }
        }
    }

    fn parent(&mut self, job: &JobStanza, at: At<'_>) {
        let Parent::Named(parent) = &job.parent else {
            return;
        };
        let place = at.attribute("parent");
        if *parent == job.name && !parent.is_empty() {
            let message = format!(
                "Dependency cycle detected in the parents of job {parent}: {parent} → {parent}"
            );
            return self.conflict(place, "parent", message);
        }
        let Facts::Job(barriers) = self.names.facts(ObjectKind::Job, parent) else {
            let message = format!("Job {parent} not defined");
            let known = self.names.known(ObjectKind::Job);
            return self.unknown(place, "parent", message, parent, known);
        };
        if barriers.is_final {
            let message = format!("The job \"{parent}\" is final and can not act as a parent");
            self.refuse(place, "parent", message);
        }
        if barriers.intermediate && job.is_abstract != Some(true) {
            let message = format!(
                "The job \"{parent}\" is intermediate, and \"{}\" is not abstract",
                job.name
            );
            self.refuse(place, "parent", message);
        }
        if let Some(project) =
            barriers.protected_in.as_ref().filter(|project| **project != self.source.project)
        {
            let message = format!(
                "The job \"{parent}\" of {project} is a protected job in a different project and can not act as a parent"
            );
            self.refuse(place, "parent", message);
        }
        if barriers.keeps_credentials {
            let message = format!(
                "The job \"{parent}\" keeps its credentials to itself (no \"inherit\" in \"auth\") and can not act as a parent"
            );
            self.refuse(place, "parent", message);
        }
        // A way back from a further definition, or from an entry, ends at the first definition,
        // which may come to an end itself.
        let layout = self.names.layout;
        let is_first =
            || layout.jobs(&job.name).next().is_none_or(|first| std::ptr::eq(first.object, job));
        if let Some(circle) = self.way_back(&job.name, parent)
            && is_first()
        {
            let message = format!(
                "Dependency cycle detected in the parents of job {}: {}",
                job.name,
                circle.join(" → ")
            );
            self.conflict(place, "parent", message);
        }
    }

    fn project_name(&mut self, name: &str, attribute: &str, number: usize, at: At<'_>) {
        let ground = &self.names.layout.base.ground;
        if let Err(problem) = ground.find(name) {
            self.add(
                problem.at(at.member(attribute, number), ground, self.names.hints).about(attribute),
            );
        }
    }

    fn nodeset_name(&mut self, name: &str, place: Place) {
        if !self.names.has(ObjectKind::Nodeset, name) {
            let known = self.names.known(ObjectKind::Nodeset);
            self.unknown(
                place,
                "nodeset",
                format!("The nodeset \"{name}\" was not found."),
                name,
                known,
            );
        }
    }

    fn nodeset(&mut self, name: Option<&str>, body: &NodesetBody, at: At<'_>) {
        self.alternatives(name, body, at.attribute("alternatives"));
        match body {
            NodesetBody::Nodes(set) => self.nodes(set, 0, at),
            NodesetBody::Alternatives(list) => {
                let mut labels = 0;
                for (number, alternative) in list.iter().enumerate() {
                    match alternative {
                        Alternative::Named(name) => {
                            self.nodeset_name(name, at.member("alternatives", number))
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

    /// Tells of a nodeset that comes to too much, or back to itself; of circles among those it
    /// names, these are told of.
    fn alternatives(&mut self, name: Option<&str>, body: &NodesetBody, place: Place) {
        let layout = self.names.layout;
        let found = in_line(name, body, &mut |name| {
            // What it comes to depends on all of them.
            self.names.has(ObjectKind::Nodeset, name);
            layout.nodeset(name).map(|found| &found.object.body)
        });
        let which =
            name.map_or_else(|| "The nodeset".to_owned(), |name| format!("The nodeset \"{name}\""));
        match found {
            Err(why) => self.conflict(place, "alternatives", format!("{which} {why}")),
            Ok(found) => {
                let is_own = |circle: &&Vec<String>| {
                    name.is_some() && circle.first().map(String::as_str) == name
                };
                for circle in found.circles.iter().filter(is_own).take(CIRCLES_MAX) {
                    let message = format!("{which} comes back to itself: {}", circle.join(" → "));
                    self.conflict(place, "alternatives", message);
                }
            }
        }
    }

    fn conflict(&mut self, place: Place, attribute: &str, message: String) {
        self.add(
            Problem::new(ProblemKind::Conflict, place.start, place.end, message).about(attribute),
        );
    }

    /// Labels without an object are for the older way, which is not carried out (L4.1): a mistake
    /// where the tenant does without it altogether, else told where others of the nodeset have
    /// objects. `first` is the number of the first label among all of the nodeset's.
    fn known_labels(&mut self, set: &NodeSet, first: usize, at: At<'_>) {
        let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, node) in set.nodes.iter().enumerate() {
            labels.entry(node.label.as_str()).or_insert(first + number);
        }
        let (known, unknown): (Vec<_>, Vec<_>) =
            labels.into_iter().partition(|(label, _)| self.names.has(ObjectKind::Label, label));
        let is_older = self.names.layout.tenant().use_nodepool;
        if is_older && known.is_empty() {
            return;
        }
        let known: Vec<&str> = known.into_iter().map(|(label, _)| label).collect();
        for (label, number) in unknown {
            let (place, labels) = (at.member("label", number), self.names.known(ObjectKind::Label));
            if !is_older {
                let message = format!("The label \"{label}\" was not found.");
                self.unknown(place, "nodes.label", message, label, labels);
                continue;
            }
            let message = format!(
                "There is no label object \"{label}\", and the older protocol that asked for labels without one is not carried out: \
                 unless a provider's own nodes bear the label, jobs with this nodeset end as NODE_FAILURE, whoever offers {}",
                known.join(", ")
            );
            let problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, message);
            self.add(
                problem.about("nodes.label").hinting(self.names.hints, label, labels).as_warning(),
            );
        }
    }

    fn nodes(&mut self, set: &NodeSet, first: usize, at: At<'_>) {
        self.known_labels(set, first, at);
        let tenant = self.names.layout.tenant();
        for (number, node) in set.nodes.iter().enumerate() {
            if let Some(message) = tenant.refuses_label(node.label.as_str()) {
                self.refuse(at.member("label", first + number), "nodes.label", message);
            }
        }
        if let Some(message) = tenant.refuses_nodes(set) {
            let place = at.places.of("nodeset").unwrap_or_else(|| at.attribute("nodes"));
            self.refuse(place, "nodeset", message);
        }
    }
}
