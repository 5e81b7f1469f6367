//! A layout in which names that nothing bears stand for something that allows everything: what is
//! wrong besides shows then.

use super::check;
use super::{Layout, LayoutSources};
use crate::fragment::{Fragment, Source, SourceFile, Trust, parse};
use crate::objects::{JobStanza, ObjectKind, Stanza};
use crate::tenant::TenantProject;
use serde_json::{Value as Json, json};
use sluice_model::ProjectName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The file that what is supposed lies in. No repository has one of that name.
const PATH: &str = "supposed";
/// The project that it lies in.
const ELSEWHERE: &str = "supposed.invalid/names";

impl Layout {
    /// Returns the layout with something under each name that is asked for and that nothing bears.
    /// A secret belongs to the project that asks for it, as it must.
    pub(crate) fn supposing(&self) -> Self {
        let mut absent = check::absent(self);
        absent.extend(
            self.images_to_build()
                .map(|(name, project)| (ObjectKind::Image, name.to_owned(), project)),
        );
        let ground = &self.base.ground;
        let elsewhere = TenantProject::new(PATH, ProjectName(ELSEWHERE.to_owned()), Trust::Config);
        let mut files: BTreeMap<ProjectName, Vec<Json>> = BTreeMap::new();
        let mut known: BTreeSet<(ObjectKind, &str)> = BTreeSet::new();
        for (kind, name, asked_by) in &absent {
            let Some(stanza) = stanza(*kind, name).filter(|_| known.insert((*kind, name))) else {
                continue;
            };
            let project = if *kind == ObjectKind::Secret { asked_by } else { &elsewhere.name };
            files.entry(project.clone()).or_default().push(stanza);
        }
        if files.is_empty() {
            return self.clone();
        }
        let mut tenant = ground.tenant.clone();
        tenant.projects.push(elsewhere);
        let mut fragments = self.fragments().to_vec();
        for (name, stanzas) in files {
            let Some(project) = tenant.project(&name) else { continue };
            let own = self.fragments().iter().find(|fragment| fragment.source.project == name);
            fragments.push(fragment(project, own, &stanzas));
        }
        let (connections, branches) = (ground.connections.clone(), ground.branches.clone());
        Self::build(LayoutSources { tenant, connections, branches, fragments })
    }

    /// Returns whether a job has a definition that somebody wrote.
    pub(crate) fn is_defined(&self, job: &str) -> bool {
        self.jobs(job).any(|defined| !is_supposed(&defined.source().project))
    }

    /// Returns the images that jobs say they build and that are none, with the project that says
    /// so.
    fn images_to_build(&self) -> impl Iterator<Item = (&str, ProjectName)> {
        let named = self.fragments().iter().flat_map(move |fragment| {
            let images =
                fragment.stanzas().flat_map(jobs).filter_map(|job| job.image_build_name.as_deref());
            images.map(|name| (name, fragment.source.project.clone()))
        });
        named.filter(|(name, _)| !self.has_image(name))
    }
}

/// Returns whether a project is none, and only has what is supposed to be there.
pub(super) fn is_supposed(project: &ProjectName) -> bool {
    project.as_str() == ELSEWHERE
}

/// Returns the definitions and entries of jobs in a stanza.
fn jobs(stanza: &Stanza) -> Vec<&JobStanza> {
    match stanza {
        Stanza::Job(job) => vec![job],
        Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
            project.pipelines.values().flat_map(|list| &list.jobs).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns an object that allows everything; `None` for kinds that no job is frozen by.
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

/// Puts stanzas into a file of a project, beside one that it has.
fn fragment(
    project: &TenantProject,
    own: Option<&Arc<Fragment>>,
    stanzas: &[Json],
) -> Arc<Fragment> {
    let source = Source {
        connection: project.connection.clone(),
        project: project.name.clone(),
        branch: own.map_or_else(|| "master".into(), |fragment| fragment.source.branch.clone()),
        path: PATH.to_owned(),
        trust: project.trust,
    };
    // JSON is YAML.
    let text = serde_json::to_string_pretty(stanzas).unwrap_or_default();
    Arc::new(parse(&SourceFile { source, text }))
}
