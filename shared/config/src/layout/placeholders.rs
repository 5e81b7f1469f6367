//! Error recovery: a layout in which undefined names resolve to permissive placeholders, so that
//! one undefined name does not hide other errors.

use super::check;
use super::{Layout, LayoutSources};
use crate::fragment::{Fragment, Source, SourceFile, Trust, parse};
use crate::objects::{JobStanza, ObjectKind, Stanza};
use crate::tenant::TenantProject;
use serde_json::{Value as Json, json};
use sluice_model::ProjectName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The path of the file with the placeholders. No repository has a file of that name.
const PATH: &str = "placeholders";
/// The project that defines the placeholders.
const PROJECT: &str = "placeholder.invalid/names";

impl Layout {
    /// Returns the layout with a placeholder under each name of a pipeline, job, template, nodeset,
    /// secret or image that is referenced and undefined. If there are such names, the result has no
    /// overlay, and its overlay's files count as merged; otherwise it is a copy. A placeholder
    /// secret belongs to the first project, by name, that references it. All other placeholders
    /// belong to a project of their own, which is added to the tenant.
    pub(crate) fn with_placeholders(&self) -> Self {
        let mut undefined = check::undefined(self);
        undefined.extend(
            self.images_to_build()
                .map(|(name, project)| (ObjectKind::Image, name.to_owned(), project)),
        );
        let inputs = &self.base.inputs;
        let placeholder_project =
            TenantProject::new(PATH, ProjectName(PROJECT.to_owned()), Trust::Config);
        let mut files: BTreeMap<ProjectName, Vec<Json>> = BTreeMap::new();
        let mut added: BTreeSet<(ObjectKind, &str)> = BTreeSet::new();
        for (kind, name, referenced_by) in &undefined {
            let Some(stanza) = stanza(*kind, name).filter(|_| added.insert((*kind, name))) else {
                continue;
            };
            let project =
                if *kind == ObjectKind::Secret { referenced_by } else { &placeholder_project.name };
            files.entry(project.clone()).or_default().push(stanza);
        }
        if files.is_empty() {
            return self.clone();
        }
        let mut tenant = inputs.tenant.clone();
        tenant.projects.push(placeholder_project);
        let mut fragments = self.fragments().to_vec();
        for (name, stanzas) in files {
            let Some(project) = tenant.project(&name) else { continue };
            let own_file = self.fragments().iter().find(|fragment| fragment.source.project == name);
            fragments.push(fragment(project, own_file, &stanzas));
        }
        let (connections, branches) = (inputs.connections.clone(), inputs.branches.clone());
        Self::build(LayoutSources { tenant, connections, branches, fragments })
    }

    /// Returns whether a job is defined in the configuration, not only by a placeholder.
    pub(crate) fn is_defined(&self, job: &str) -> bool {
        self.jobs(job).any(|defined| !is_placeholder(&defined.source().project))
    }

    /// Returns the undefined images that jobs or job list entries build, each with the project of
    /// the file that names it. An image that several jobs or entries name appears several times.
    fn images_to_build(&self) -> impl Iterator<Item = (&str, ProjectName)> {
        let named = self.fragments().iter().flat_map(move |fragment| {
            let images =
                fragment.stanzas().flat_map(jobs).filter_map(|job| job.image_build_name.as_deref());
            images.map(|name| (name, fragment.source.project.clone()))
        });
        named.filter(|(name, _)| !self.has_image(name))
    }
}

/// Returns whether a project only holds placeholders.
pub(super) fn is_placeholder(project: &ProjectName) -> bool {
    project.as_str() == PROJECT
}

/// Returns the job definition or the job list entries of a stanza; empty for a stanza without
/// either.
fn jobs(stanza: &Stanza) -> Vec<&JobStanza> {
    match stanza {
        Stanza::Job(job) => vec![job],
        Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
            project.pipelines.values().flat_map(|list| &list.jobs).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns a stanza, as JSON, that defines a name and permits as much as possible; `None` for kinds
/// that do not affect freezing.
fn stanza(kind: ObjectKind, name: &str) -> Option<Json> {
    match kind {
        ObjectKind::Pipeline => {
            Some(json!({"pipeline": {"name": name, "manager": "independent", "post-review": true}}))
        }
        ObjectKind::Job => Some(json!({"job": {"name": name, "parent": null}})),
        ObjectKind::ProjectTemplate => Some(json!({"project-template": {"name": name}})),
        ObjectKind::Nodeset => Some(json!({"nodeset": {"name": name, "nodes": []}})),
        ObjectKind::Secret => Some(json!({"secret": {"name": name, "data": {}}})),
        ObjectKind::Image => Some(json!({"image": {"name": name, "type": "zuul"}})),
        _ => None,
    }
}

/// Parses placeholder stanzas as a file of a project. Its branch is that of `own_file`, which may
/// be any file of the project; without one it is `master`.
fn fragment(
    project: &TenantProject,
    own_file: Option<&Arc<Fragment>>,
    stanzas: &[Json],
) -> Arc<Fragment> {
    let source = Source {
        connection: project.connection.clone(),
        project: project.name.clone(),
        branch: own_file.map_or_else(|| "master".into(), |fragment| fragment.source.branch.clone()),
        path: PATH.to_owned(),
        trust: project.trust,
    };
    // JSON is YAML.
    let text = serde_json::to_string_pretty(stanzas).unwrap_or_default();
    Arc::new(parse(&SourceFile { source, text }))
}
