//! A tenant's layout: all its configuration put together, ready to be asked (Z2.1).
//!
//! A layout is a function of its [`LayoutSources`]; that is also how it is stored. Building is in `build`, the rules of trust and
//! references in `check`, node providers in [`providers`].

mod build;
mod check;
pub mod providers;

pub(crate) use check::NOOP;
pub use providers::{LabelConfig, ProviderConfig, SectionQuota, StaticNode};

use crate::connection::Connections;
use crate::error::{ConfigError, Severity};
use crate::fragment::{Fragment, Source};
use crate::objects::{
    JobStanza, NodesetStanza, ProjectStanza, QueueStanza, QueueType, SecretStanza, SemaphoreStanza, Stanza,
};
use crate::pipeline::Pipeline;
use crate::tenant::{TenantConfig, TenantProject};
use crate::{Pattern, Trust};
use serde::{Deserialize, Serialize};
use sluice_model::git::MergeMode;
use sluice_model::id::digest;
use sluice_model::{BranchName, PipelineName, ProjectName, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a layout is made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayoutSources {
    /// The tenant.
    pub tenant: TenantConfig,
    /// The system's connections.
    pub connections: Connections,
    /// The branches of each project; a project that is missing has those that its fragments come from.
    #[serde(default)]
    pub branches: BTreeMap<ProjectName, Vec<BranchName>>,
    /// Every configuration file of the tenant. Order counts within one project and branch only.
    pub fragments: Vec<Arc<Fragment>>,
}

/// A tenant's configuration with all names resolved. Objects with mistakes are left out; the mistakes are kept.
#[derive(Debug, Clone)]
pub struct Layout {
    pub(crate) sources: LayoutSources,
    id: String,
    errors: Vec<ConfigError>,
    pipelines: Vec<Pipeline>,
    pub(crate) jobs: BTreeMap<String, Vec<Defined<JobStanza>>>,
    pub(crate) nodesets: BTreeMap<String, Defined<NodesetStanza>>,
    pub(crate) secrets: BTreeMap<String, Defined<SecretStanza>>,
    semaphores: BTreeMap<String, Defined<SemaphoreStanza>>,
    queues: BTreeMap<String, Defined<QueueStanza>>,
    pub(crate) templates: BTreeMap<String, Vec<Defined<ProjectStanza>>>,
    /// Every stanza that applies to a project, in order; patterns of names are already spread.
    projects: BTreeMap<ProjectName, Vec<Defined<ProjectStanza>>>,
    providers: Vec<ProviderConfig>,
}

/// An object with the file it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Defined<T> {
    fragment: Arc<Fragment>,
    stanza: usize,
    /// Branches it is bound to because of where it stands; `None` for everywhere.
    pub(crate) implied: Option<Arc<Vec<Pattern>>>,
    pick: fn(&Stanza) -> Option<&T>,
}

impl<T> Defined<T> {
    pub(crate) fn source(&self) -> &Source {
        &self.fragment.source
    }

    /// Returns the object. It was there when the layout was built and a fragment never changes.
    pub(crate) fn get(&self) -> Option<&T> {
        self.fragment.stanzas.get(self.stanza).and_then(self.pick)
    }

    /// Returns whether a branch is one of those it is bound to; what has no branch (a tag) belongs everywhere.
    pub(crate) fn matches_implied(&self, branch: Option<&str>) -> bool {
        match (&self.implied, branch) {
            (Some(patterns), Some(branch)) => patterns.iter().any(|pattern| pattern.matches(branch)),
            _ => true,
        }
    }
}

/// What the shared queue of a project allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// Its name; the project's canonical name where none is given.
    pub name: QueueName,
    /// Whether each branch has a queue of its own.
    pub per_branch: bool,
    /// Whether changes may depend on each other in a circle.
    pub allow_circular_dependencies: bool,
    /// Whether changes of one topic depend on each other.
    pub dependencies_by_topic: bool,
}

/// The proposed configuration of one branch of a project, all its files.
#[derive(Debug, Clone)]
pub struct BranchConfig {
    /// The project.
    pub project: ProjectName,
    /// The branch.
    pub branch: BranchName,
    /// Its configuration files as they would be.
    pub fragments: Vec<Arc<Fragment>>,
}

/// Which proposed configuration counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// That of untrusted projects: what a change is tested with.
    UntrustedOnly,
    /// All of it: only to find mistakes before they are merged (C06), never to run.
    ToValidate,
}

/// Why stored bytes are no layout.
#[derive(Debug, thiserror::Error)]
#[error("cannot read a stored layout because it is malformed; build it again from the repositories")]
pub struct LayoutDecodeError(#[source] serde_json::Error);

impl Layout {
    /// Puts fragments together. It never fails: what is wrong is left out and kept in [`Layout::errors`].
    pub fn build(sources: LayoutSources) -> Self {
        build::build(sources)
    }

    /// Returns the name of its content: equal sources have equal ids.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the layout as it would be with proposed configuration (Z6.6).
    ///
    /// Fragments that did not change are not parsed again.
    #[must_use]
    pub fn overlay(&self, proposed: &[BranchConfig], scope: Scope) -> Self {
        let counts = |project: &ProjectName| match (self.sources.tenant.project(project), scope) {
            (Some(_), Scope::ToValidate) => true,
            (Some(found), Scope::UntrustedOnly) => found.trust == Trust::Untrusted,
            (None, _) => false,
        };
        let proposed: Vec<&BranchConfig> = proposed.iter().filter(|config| counts(&config.project)).collect();
        let replaced: BTreeSet<(&ProjectName, &BranchName)> =
            proposed.iter().map(|config| (&config.project, &config.branch)).collect();
        let mut sources = self.sources.clone();
        sources.fragments.retain(|fragment| !replaced.contains(&(&fragment.source.project, &fragment.source.branch)));
        sources.fragments.extend(proposed.iter().flat_map(|config| config.fragments.iter().cloned()));
        Self::build(sources)
    }

    /// Returns the mistakes.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    /// Returns the mistakes that `before` did not have: those that a change brings in. Warnings are left out.
    ///
    /// A mistake that only moved within its file is not new.
    pub fn errors_since(&self, before: &Layout) -> Vec<ConfigError> {
        let key = |error: &ConfigError| {
            let problem = &error.problem;
            (
                error.project.clone(),
                error.branch.clone(),
                error.path.clone(),
                problem.stanza.clone(),
                problem.message.clone(),
            )
        };
        let known: BTreeSet<_> = before.errors.iter().map(key).collect();
        self.errors
            .iter()
            .filter(|error| error.problem.severity == Severity::Error && !known.contains(&key(error)))
            .cloned()
            .collect()
    }

    /// Returns the tenant it belongs to.
    pub fn tenant(&self) -> &TenantConfig {
        &self.sources.tenant
    }

    /// Returns the connections it was built with.
    pub fn connections(&self) -> &Connections {
        &self.sources.connections
    }

    /// Returns its files.
    pub fn fragments(&self) -> &[Arc<Fragment>] {
        &self.sources.fragments
    }

    /// Returns its pipelines in order.
    pub fn pipelines(&self) -> &[Pipeline] {
        &self.pipelines
    }

    /// Returns a pipeline.
    pub fn pipeline(&self, name: &str) -> Option<&Pipeline> {
        self.pipelines.iter().find(|pipeline| pipeline.name.as_str() == name)
    }

    /// Returns a project by its canonical name, or by its short name where only one has it.
    pub fn project(&self, name: &str) -> Option<&TenantProject> {
        let projects = &self.sources.tenant.projects;
        if let Some(found) = projects.iter().find(|project| project.name.as_str() == name) {
            return Some(found);
        }
        let mut short = projects.iter().filter(|project| project.name.name() == name);
        short.next().filter(|_| short.next().is_none())
    }

    /// Returns the names of all jobs.
    pub fn job_names(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }

    /// Returns the branches of a project as far as they are known.
    pub fn branches(&self, project: &ProjectName) -> Vec<BranchName> {
        match self.sources.branches.get(project) {
            Some(branches) => branches.clone(),
            None => {
                let fragments = self.sources.fragments.iter().filter(|fragment| fragment.source.project == *project);
                let found: BTreeSet<BranchName> = fragments.map(|fragment| fragment.source.branch.clone()).collect();
                found.into_iter().collect()
            }
        }
    }

    /// Returns every stanza of a project in order, whatever the branch.
    pub(crate) fn stanzas_of(&self, project: &ProjectName) -> &[Defined<ProjectStanza>] {
        self.projects.get(project).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the stanzas that apply to a project and branch, in order.
    fn project_stanzas(&self, project: &ProjectName, branch: Option<&str>) -> Vec<&ProjectStanza> {
        let is_meant = |defined: &&Defined<ProjectStanza>| {
            let explicit = defined.get().and_then(|stanza| stanza.branches.as_ref());
            match (explicit, branch) {
                (Some(patterns), Some(branch)) => patterns.iter().any(|pattern| pattern.matches(branch)),
                _ => defined.matches_implied(branch),
            }
        };
        self.stanzas_of(project).iter().filter(is_meant).filter_map(Defined::get).collect()
    }

    /// Returns every stanza of a project with its templates, templates first, whatever the branch.
    fn stanzas_with_templates(&self, project: &ProjectName) -> Vec<&ProjectStanza> {
        let mut found = Vec::new();
        for stanza in self.stanzas_of(project).iter().filter_map(Defined::get) {
            for template in &stanza.templates {
                found.extend(
                    self.templates.get(template).map(Vec::as_slice).unwrap_or_default().iter().filter_map(Defined::get),
                );
            }
            found.push(stanza);
        }
        found
    }

    /// Returns the pipelines a project takes part in, in the layout's order.
    pub fn project_pipelines(&self, project: &ProjectName) -> Vec<PipelineName> {
        let stanzas = self.stanzas_with_templates(project);
        let takes_part =
            |pipeline: &&Pipeline| stanzas.iter().any(|stanza| stanza.pipelines.contains_key(pipeline.name.as_str()));
        self.pipelines.iter().filter(takes_part).map(|pipeline| pipeline.name.clone()).collect()
    }

    /// Returns the shared queue of a project in a pipeline (Z6.3).
    pub fn queue(&self, project: &ProjectName, pipeline: &str) -> QueueSettings {
        let stanzas = self.stanzas_with_templates(project);
        // A project's own word counts before its templates', which come first in the list.
        let of_project = stanzas.iter().rev().find_map(|stanza| stanza.queue.clone());
        let of_pipeline = || stanzas.iter().rev().find_map(|stanza| stanza.pipelines.get(pipeline)?.queue.clone());
        let name = of_project.or_else(of_pipeline);
        let stanza = name.as_ref().and_then(|name| self.queues.get(name)).and_then(Defined::get);
        let tenant_allows = self
            .sources
            .tenant
            .project(project)
            .and_then(|project| project.allow_circular_dependencies)
            .or(self.sources.tenant.allow_circular_dependencies)
            .unwrap_or(false);
        QueueSettings {
            name: name.map_or_else(|| QueueName(project.as_str().to_owned()), QueueName),
            per_branch: stanza.is_some_and(|stanza| stanza.queue_type == QueueType::PerBranch),
            allow_circular_dependencies: stanza.map_or(tenant_allows, |stanza| stanza.allow_circular_dependencies),
            dependencies_by_topic: stanza.is_some_and(|stanza| stanza.dependencies_by_topic),
        }
    }

    /// Returns how changes of a branch are put into it.
    pub fn merge_mode(&self, project: &ProjectName, branch: &str) -> MergeMode {
        self.project_stanzas(project, Some(branch)).iter().find_map(|stanza| stanza.merge_mode).unwrap_or_default()
    }

    /// Returns the branch of a project that is taken where a change's own does not exist.
    pub fn default_branch(&self, project: &ProjectName) -> BranchName {
        let stanzas = self.project_stanzas(project, None);
        stanzas.iter().find_map(|stanza| stanza.default_branch.clone()).map_or_else(|| "master".into(), BranchName)
    }

    /// Returns how many may hold a semaphore; one that is not defined is held by one.
    pub fn semaphore_max(&self, name: &str) -> u32 {
        self.semaphores.get(name).and_then(Defined::get).map_or(1, |semaphore| semaphore.max)
    }

    /// Returns the providers of nodes with everything resolved (L3.2), in order of preference (L2.2).
    pub fn providers(&self) -> &[ProviderConfig] {
        &self.providers
    }

    /// Returns it as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Every key of the sources is a text, which is all that could fail.
        serde_json::to_vec(&self.sources).unwrap_or_default()
    }

    /// Returns the layout of stored bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LayoutDecodeError> {
        serde_json::from_slice(bytes).map(Self::build).map_err(LayoutDecodeError)
    }
}

/// Returns the name of the content of `sources`.
fn content_id(sources: &LayoutSources) -> String {
    let tenant = serde_json::to_string(&(&sources.tenant, &sources.connections, &sources.branches)).unwrap_or_default();
    let mut parts = vec!["layout-1", tenant.as_str()];
    parts.extend(sources.fragments.iter().map(|fragment| fragment.hash.as_str()));
    digest(&parts)
}
