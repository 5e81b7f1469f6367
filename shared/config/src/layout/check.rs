//! References between objects: what names something that is not there, or may not be used.

use super::build::find_project;
use super::{Defined, Layout};
use crate::error::{ConfigError, Problem, ProblemKind};
use crate::fragment::Source;
use crate::objects::{Alternative, JobStanza, NodesetBody, NodesetRef, Parent, Place, ProjectStanza, RoleSource};
use sluice_model::job::NodeSet;

/// The job that is built in and does nothing.
pub(crate) const NOOP: &str = "noop";

/// Returns every broken reference of a layout.
pub(super) fn references(layout: &Layout) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for defined in layout.jobs.values().flatten() {
        let Some(job) = defined.get() else { continue };
        Check { layout, source: defined.source(), stanza: format!("job {}", job.name), errors: &mut errors }.job(job);
    }
    for defined in layout.nodesets.values() {
        let Some(nodeset) = defined.get() else {
            continue;
        };
        let stanza = format!("nodeset {}", nodeset.name);
        Check { layout, source: defined.source(), stanza, errors: &mut errors }.nodeset(&nodeset.body, nodeset.place);
    }
    for defined in layout.projects.values().flatten().chain(layout.templates.values().flatten()) {
        project(layout, defined, &mut errors);
    }
    // A pattern of names puts one stanza on many projects.
    errors.sort();
    errors.dedup();
    errors
}

fn project(layout: &Layout, defined: &Defined<ProjectStanza>, errors: &mut Vec<ConfigError>) {
    let Some(project) = defined.get() else { return };
    let name = project.name.clone().unwrap_or_else(|| defined.source().project.name().to_owned());
    let mut check = Check { layout, source: defined.source(), stanza: format!("project {name}"), errors };
    for template in project.templates.iter().filter(|template| !layout.templates.contains_key(*template)) {
        let known = layout.templates.keys().map(String::as_str);
        check.unknown(
            project.place,
            "templates",
            format!("The project template \"{template}\" was not found."),
            template,
            known,
        );
    }
    for (pipeline, jobs) in &project.pipelines {
        if layout.pipeline(pipeline).is_none() {
            let known = layout.pipelines.iter().map(|pipeline| pipeline.name.as_str());
            check.unknown(
                project.place,
                pipeline,
                format!("The pipeline \"{pipeline}\" was not found."),
                pipeline,
                known,
            );
        }
        for job in &jobs.jobs {
            if !layout.jobs.contains_key(&job.name) && job.name != NOOP {
                check.unknown(
                    job.place,
                    pipeline,
                    format!("Job {} not defined", job.name),
                    &job.name,
                    layout.job_names(),
                );
            }
            check.job(job);
        }
    }
}

struct Check<'c> {
    layout: &'c Layout,
    source: &'c Source,
    stanza: String,
    errors: &'c mut Vec<ConfigError>,
}

impl Check<'_> {
    fn add(&mut self, problem: Problem) {
        self.errors.push(self.source.error(problem.in_stanza(&self.stanza)));
    }

    fn unknown<'a>(
        &mut self,
        place: Place,
        attribute: &str,
        message: String,
        wrong: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        let problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, message).about(attribute);
        self.add(problem.suggesting(wrong, known));
    }

    fn refuse(&mut self, place: Place, attribute: &str, message: String) {
        self.add(Problem::new(ProblemKind::NotPermitted, place.start, place.end, message).about(attribute));
    }

    fn job(&mut self, job: &JobStanza) {
        self.parent(job);
        match &job.nodeset {
            Some(NodesetRef::Named(name)) => self.nodeset_name(name, job.place),
            Some(NodesetRef::Inline(body)) => self.nodeset(body, job.place),
            None => {}
        }
        for secret in job.secrets.iter().flatten() {
            match self.layout.secrets.get(&secret.secret) {
                None => {
                    let message = format!("The secret \"{}\" was not found.", secret.secret);
                    let known: Vec<&str> = self.layout.secrets.keys().map(String::as_str).collect();
                    self.unknown(job.place, "secrets", message, &secret.secret, known);
                }
                Some(found) if found.source().project != self.source.project => {
                    let message = format!(
                        "Unable to use secret {}. Secrets must be defined in the same project in which they are used",
                        secret.secret
                    );
                    self.refuse(job.place, "secrets", message);
                }
                Some(_) => {}
            }
        }
        for required in job.required_projects.iter().flat_map(|list| &list.value) {
            self.project_name(&required.name, "required-projects", job.place);
        }
        for name in job.allowed_projects.iter().flatten() {
            self.project_name(name, "allowed-projects", job.place);
        }
        for role in job.roles.iter().flatten() {
            if let RoleSource::Zuul(name) = &role.source {
                self.project_name(name, "roles", job.place);
            }
        }
        let longest =
            [job.timeout_seconds, job.pre_timeout_seconds, job.post_timeout_seconds].into_iter().flatten().max();
        if let (Some(limit), Some(longest)) = (self.layout.tenant().max_job_timeout_seconds, longest)
            && longest > limit
        {
            let message = format!("The job \"{}\" exceeds tenant max-job-timeout {limit}.", job.name);
            self.refuse(job.place, "timeout", message);
        }
    }

    fn parent(&mut self, job: &JobStanza) {
        let Parent::Named(parent) = &job.parent else {
            return;
        };
        let Some(variants) = self.layout.jobs.get(parent) else {
            let message = format!("Job {parent} not defined");
            return self.unknown(job.place, "parent", message, parent, self.layout.job_names());
        };
        let definitions: Vec<&JobStanza> = variants.iter().filter_map(Defined::get).collect();
        if definitions.iter().any(|parent| parent.is_final == Some(true)) {
            let message = format!("The job \"{parent}\" is final and can not act as a parent");
            self.refuse(job.place, "parent", message);
        }
        if definitions.iter().any(|parent| parent.auth_inherit == Some(false)) {
            let message = format!(
                "The job \"{parent}\" keeps its credentials to itself (no \"inherit\" in \"auth\") and can not act as a parent"
            );
            self.refuse(job.place, "parent", message);
        }
    }

    fn project_name(&mut self, name: &str, attribute: &str, place: Place) {
        if let Err(problem) = find_project(self.layout.tenant(), name) {
            self.add(problem.at(place).about(attribute));
        }
    }

    fn nodeset_name(&mut self, name: &str, place: Place) {
        if !self.layout.nodesets.contains_key(name) {
            let known: Vec<&str> = self.layout.nodesets.keys().map(String::as_str).collect();
            self.unknown(place, "nodeset", format!("The nodeset \"{name}\" was not found."), name, known);
        }
    }

    fn nodeset(&mut self, body: &NodesetBody, place: Place) {
        match body {
            NodesetBody::Nodes(set) => self.nodes(set, place),
            NodesetBody::Alternatives(list) => {
                for alternative in list {
                    match alternative {
                        Alternative::Named(name) => self.nodeset_name(name, place),
                        Alternative::Inline(set) => self.nodes(set, place),
                    }
                }
            }
        }
    }

    fn nodes(&mut self, set: &NodeSet, place: Place) {
        let tenant = self.layout.tenant();
        for node in &set.nodes {
            let label = node.label.as_str();
            let allowed = tenant
                .allowed_labels
                .as_ref()
                .is_none_or(|list| list.iter().any(|pattern| pattern.matches_whole(label)));
            let disallowed = tenant
                .disallowed_labels
                .as_ref()
                .is_some_and(|list| list.iter().any(|pattern| pattern.matches_whole(label)));
            if !allowed || disallowed {
                let message =
                    format!("Label named \"{label}\" is not part of the allowed labels of tenant {}", tenant.name);
                self.refuse(place, "nodes.label", message);
            }
        }
        if let Some(limit) = tenant.max_nodes_per_job
            && set.nodes.len() > usize::try_from(limit).unwrap_or(usize::MAX)
        {
            let message =
                format!("The nodeset exceeds tenant max-nodes-per-job {limit}: it has {} nodes", set.nodes.len());
            self.refuse(place, "nodeset", message);
        }
    }
}
