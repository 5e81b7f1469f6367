//! Queries on a layout: its projects, jobs, queues, merge modes and providers.

use super::placeholders::is_placeholder;
use super::providers::{canonical, is_built};
use super::resolve_names::in_order_of_effect;
use super::{BranchContext, Definition, File, Layout, QueueSettings};
use crate::connection::{Connections, Driver};
use crate::error::nearest;
use crate::fragment::{self, Fragment, Source, SourceFile};
use crate::layout::ProviderConfig;
use crate::objects::{
    JobStanza, NodesetStanza, ObjectKind, ProjectStanza, ProviderObject, QueueStanza, QueueType,
    SecretStanza, SemaphoreStanza,
};
use crate::pipeline::Pipeline;
use crate::tenant::{TenantConfig, TenantProject};
use sluice_model::git::MergeMode;
use sluice_model::{BranchName, ConnectionName, LabelName, PipelineName, ProjectName, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A stanza or template of a project.
struct ProjectPart<'l> {
    /// The stanza.
    stanza: &'l ProjectStanza,
    /// Whether it applies to the requested branch.
    applies: bool,
}

/// Returns whether a project stanza applies to a project's branch: by its `branches`, of which an
/// empty list matches every branch, or without any as `Definition::is_implied_for` says. Always
/// true without a branch.
fn applies(
    defined: &Definition<'_, ProjectStanza>,
    project: &ProjectName,
    branch: Option<&str>,
) -> bool {
    match (defined.object.branches.as_deref(), branch) {
        (Some([]), _) => true,
        (Some(patterns), Some(branch)) => patterns.iter().any(|pattern| pattern.matches(branch)),
        _ => defined.is_implied_for(project, BranchContext::branch(branch)),
    }
}

impl Layout {
    /// Returns the tenant.
    pub fn tenant(&self) -> &TenantConfig {
        &self.base.inputs.tenant
    }

    /// Returns the connections.
    pub fn connections(&self) -> &Connections {
        &self.base.inputs.connections
    }

    /// Returns the parsed files in effect, in configuration order.
    pub fn fragments(&self) -> &[Arc<Fragment>] {
        self.fragments
            .get_or_init(|| self.files().map(|(_, file)| Arc::clone(&file.fragment)).collect())
    }

    /// Returns a file parsed. Reuses the parsed file if the merged configuration has the same file
    /// in the same place, with the same trust, even if another version of the parser read it;
    /// otherwise parses it and stores nothing. Never fails: errors of the file are in the result.
    /// The overlay's files are not searched.
    pub fn parse(&self, file: &SourceFile) -> Arc<Fragment> {
        let hash = fragment::hash(file);
        let project = self.base.inputs.project(&file.source.project);
        let cached = project.and_then(|(rank, _)| {
            self.base
                .files_of(rank)
                .find(|(_, cached)| cached.fragment.hash == hash)
                .map(|(_, cached)| &cached.fragment)
        });
        cached.map_or_else(|| Arc::new(fragment::parse(file)), Arc::clone)
    }

    /// Returns the accepted pipelines in configuration order.
    pub fn pipelines(&self) -> &[Pipeline] {
        let overlay = self.overlay.as_deref().and_then(|overlay| overlay.pipelines.as_ref());
        overlay.unwrap_or(&self.base.pipelines)
    }

    /// Returns a pipeline by name; `None` if it is not defined.
    pub fn pipeline(&self, name: &str) -> Option<&Pipeline> {
        self.pipelines().iter().find(|pipeline| pipeline.name.as_str() == name)
    }

    /// Returns a project by its canonical name, or by its name without the host if that is
    /// unambiguous; otherwise `None`. The project of included files is never found.
    pub fn project(&self, name: &str) -> Option<&TenantProject> {
        self.base.inputs.find(name).ok()
    }

    /// Returns the names of all jobs that have an accepted definition, each once. The built-in job
    /// `noop` is not among them.
    pub fn job_names(&self) -> impl Iterator<Item = &str> {
        self.names(ObjectKind::Job)
    }

    /// Returns the branches of a project that the tenant does not exclude, the forge's default
    /// branch first. If these are unknown, returns the branches that have configuration files, by
    /// name. Empty for an unknown project.
    pub fn branches(&self, project: &ProjectName) -> Vec<BranchName> {
        if let Some(branches) = self.base.inputs.branches.get(project) {
            return branches.clone();
        }
        let files = self.files().filter(|(_, file)| file.source().project == *project);
        let found: BTreeSet<BranchName> =
            files.map(|(_, file)| file.source().branch.clone()).collect();
        found.into_iter().collect()
    }

    /// Returns whether a project has a branch that the tenant does not exclude. If the project's
    /// branches are unknown, returns whether the branch has configuration files.
    pub(crate) fn has_branch(&self, project: &ProjectName, branch: &str) -> bool {
        if let Some(branches) = self.base.inputs.branches.get(project) {
            return branches.iter().any(|one| one.as_str() == branch);
        }
        let of_branch = |(_, file): (u32, &File)| {
            let source = file.source();
            source.project == *project && source.branch.as_str() == branch
        };
        self.files().any(of_branch)
    }

    /// Returns every accepted stanza that is about a project, for all branches, in the order in
    /// which they apply. Templates are not among them. Empty for an unknown project.
    pub(crate) fn stanzas_of<'l>(
        &'l self,
        project: &ProjectName,
    ) -> impl Iterator<Item = Definition<'l, ProjectStanza>> + use<'l> {
        self.under(ObjectKind::Project, project.as_str())
    }

    /// Returns every stanza of a project in order, then their templates, each with whether it
    /// applies to `branch`; those that do not apply are included. A template counts as its naming
    /// stanza does, whatever branch holds the template. Without a branch, all apply. A template
    /// that is named again counts once among those that apply, and once among those that do not.
    fn stanzas_with_templates(
        &self,
        project: &ProjectName,
        branch: Option<&str>,
    ) -> Vec<ProjectPart<'_>> {
        let (mut found, mut of_templates) = (Vec::new(), Vec::new());
        // A template that is named again by a stanza of the same scope adds nothing.
        let mut taken: BTreeSet<(&str, bool)> = BTreeSet::new();
        for defined in self.stanzas_of(project) {
            let applies = applies(&defined, project, branch);
            for template in defined
                .object
                .templates
                .iter()
                .filter(|name| taken.insert((name.as_str(), applies)))
            {
                of_templates.extend(
                    self.templates(template)
                        .map(|found| ProjectPart { stanza: found.object, applies }),
                );
            }
            found.push(ProjectPart { stanza: defined.object, applies });
        }
        found.extend(of_templates);
        found
    }

    /// Returns the pipelines for which a stanza of the project or one of its templates, on any
    /// branch, has settings or jobs, in configuration order. Undefined pipelines are left out.
    pub fn project_pipelines(&self, project: &ProjectName) -> Vec<PipelineName> {
        let stanzas = self.stanzas_with_templates(project, None);
        let takes_part = |pipeline: &&Pipeline| {
            stanzas.iter().any(|part| part.stanza.pipelines.contains_key(pipeline.name.as_str()))
        };
        self.pipelines().iter().filter(takes_part).map(|pipeline| pipeline.name.clone()).collect()
    }

    /// Returns the other projects whose configuration decides which pipelines a project takes part
    /// in, by name. These define stanzas for it, or templates that such stanzas name, on any
    /// branch, or may configure it (`configure-projects`), even if they do not. The permission does
    /// not count for a config project.
    pub fn configured_by(&self, project: &ProjectName) -> Vec<&ProjectName> {
        let is_trusted = self
            .tenant()
            .project(project)
            .is_some_and(|known_project| known_project.trust.is_trusted());
        let mut found: BTreeSet<&ProjectName> = BTreeSet::new();
        for other in self.tenant().projects.iter().filter(|_| !is_trusted) {
            let mut patterns = other.configure_projects.iter();
            if patterns
                .any(|one| one.matches_whole(project.as_str()) || one.matches_whole(project.name()))
            {
                found.insert(&other.name);
            }
        }
        for defined in self.stanzas_of(project) {
            found.insert(&defined.source().project);
            for template in &defined.object.templates {
                found.extend(self.templates(template).map(|template| &template.source().project));
            }
        }
        found.remove(project);
        found.into_iter().collect()
    }

    /// Returns the settings of the shared queue of a project in a pipeline (Z6.3), whatever the
    /// branch: a queue that a stanza for any branch names counts, even a branch-assigned one.
    /// Otherwise the same as [`Self::queue_on`].
    pub fn queue(&self, project: &ProjectName, pipeline: &str) -> QueueSettings {
        self.queue_on(project, pipeline, None)
    }

    /// Returns the settings of the shared queue of a project's branch in a pipeline. The first
    /// `queue` in the project's stanzas and templates counts, then the first for the pipeline;
    /// without any, the queue has the project's canonical name. Stanzas for other branches count
    /// too, except that a branch-assigned queue counts only if a stanza that applies to the branch
    /// names it. Without a branch, all stanzas apply. If no queue stanza defines the queue, it is
    /// not per branch, topics do not count, and the tenant decides whether dependency cycles are
    /// allowed.
    pub fn queue_on(
        &self,
        project: &ProjectName,
        pipeline: &str,
        branch: Option<&str>,
    ) -> QueueSettings {
        let stanzas = self.stanzas_with_templates(project, branch);
        let kind = |name: &String| {
            self.one::<QueueStanza>(ObjectKind::Queue, name)
                .map(|defined| defined.object.queue_type)
        };
        let counts =
            |name: &String, applies: bool| applies || kind(name) != Some(QueueType::BranchAssigned);
        // The first value counts, and the project's own stanzas come before its templates.
        let chosen = |pick: &dyn Fn(&ProjectStanza) -> Option<&String>| {
            let mut named =
                stanzas.iter().filter_map(|part| Some((pick(part.stanza)?, part.applies)));
            named.find(|(name, applies)| counts(name, *applies)).map(|(name, _)| name.clone())
        };
        let of_project = chosen(&|stanza| stanza.queue.as_ref());
        let of_pipeline = || chosen(&|stanza| stanza.pipelines.get(pipeline)?.queue.as_ref());
        let name = of_project.or_else(of_pipeline);
        let stanza =
            name.as_ref().and_then(|name| self.one::<QueueStanza>(ObjectKind::Queue, name));
        let stanza = stanza.map(|defined| defined.object);
        let inputs = &self.base.inputs;
        let tenant_allows = inputs
            .project(project)
            .and_then(|(_, project)| project.allow_circular_dependencies)
            .or(inputs.tenant.allow_circular_dependencies)
            .unwrap_or(false);
        QueueSettings {
            name: name.map_or_else(|| QueueName(project.as_str().to_owned()), QueueName),
            per_branch: stanza.is_some_and(|stanza| stanza.queue_type == QueueType::PerBranch),
            allow_circular_dependencies: stanza
                .map_or(tenant_allows, |stanza| stanza.allow_circular_dependencies),
            dependencies_by_topic: stanza.is_some_and(|stanza| stanza.dependencies_by_topic),
        }
    }

    /// Returns the merge mode of a project: the first value in its stanzas, whatever branches they
    /// are for; `merge` if none sets it. Templates are ignored.
    pub fn merge_mode(&self, project: &ProjectName) -> MergeMode {
        self.stanzas_of(project).find_map(|defined| defined.object.merge_mode).unwrap_or_default()
    }

    /// Returns the branch that replaces a change's branch in projects that do not have it: the
    /// first that a project stanza declares (`default-branch`), else the tenant's `load-branch`,
    /// else the forge's, else `master`. A declared branch need not exist.
    pub fn default_branch(&self, project: &ProjectName) -> BranchName {
        let inputs = &self.base.inputs;
        let mut stanzas: Vec<Definition<'_, ProjectStanza>> = self.stanzas_of(project).collect();
        // Use the order without declarations: merged configuration then gives one answer, whatever
        // the default branch is.
        stanzas.sort_by_key(|one| (inputs.undeclared_order(one.file), one.object.span.start));
        let stanzas = in_order_of_effect(&stanzas, |one| one.object.expression());
        let declared = stanzas.iter().find_map(|one| one.object.default_branch.as_deref());
        let of_forge = || inputs.default_branch(inputs.project(project)?.1);
        declared.or_else(of_forge).unwrap_or("master").into()
    }

    /// Returns whether a semaphore is global, which means shared by tenants, and how many builds
    /// may hold it. An undefined semaphore is not global and can be held once.
    pub fn semaphore(&self, name: &str) -> (bool, u32) {
        if let Some(max) = self.base.inputs.tenant.global_semaphores.get(name) {
            return (true, *max);
        }
        let found = self.one::<SemaphoreStanza>(ObjectKind::Semaphore, name);
        (false, found.map_or(1, |semaphore| semaphore.object.max))
    }

    /// Returns the names of all semaphores of the tenant, including global ones.
    pub fn semaphore_names(&self) -> impl Iterator<Item = &str> {
        let shared = self.base.inputs.tenant.global_semaphores.keys().map(String::as_str);
        self.names(ObjectKind::Semaphore).chain(shared)
    }

    /// Returns the providers with all references resolved (L3.2), in order of preference (L2.2).
    /// Invalid providers are left out; [`Layout::errors`] says why.
    pub fn providers(&self) -> &[ProviderConfig] {
        let overlay = self.overlay.as_deref().and_then(|overlay| overlay.providers.as_ref());
        overlay.map_or(&self.base.providers, |(providers, _)| providers)
    }

    /// Returns whether a provider has static nodes, which are lent and not launched: it has no
    /// connection, or one of the static driver.
    pub fn has_static_nodes(&self, provider: &ProviderConfig) -> bool {
        let driver = |name: &ConnectionName| self.connections().driver(name.as_str());
        provider.connection.as_ref().is_none_or(|name| driver(name) == Some(Driver::Static))
    }

    /// Returns the name of a label across tenants: the project that defines it, a slash and its
    /// name (L3.4). The name itself if the tenant does not define the label.
    pub fn canonical_label(&self, name: &str) -> LabelName {
        let defined = self.one::<ProviderObject>(ObjectKind::Label, name);
        LabelName(defined.map_or_else(|| name.to_owned(), |found| canonical(found, name)))
    }

    /// Returns the names of the tenant's labels by their names across tenants.
    pub fn label_names(&self) -> BTreeMap<LabelName, LabelName> {
        let names = self.names(ObjectKind::Label);
        names.map(|name| (self.canonical_label(name), LabelName::from(name))).collect()
    }

    /// Returns the formats in which providers need an image that Sluice builds, sorted, each once
    /// (L1.1). `image` is its short name. Providers of which no label uses the image do not need
    /// it. Empty if no provider needs it, if the image is unknown, or if the cloud provides it.
    pub fn image_formats(&self, image: &str) -> Vec<String> {
        let images = self.providers().iter().flat_map(|provider| {
            // An image that no label uses is not needed.
            let taken: BTreeSet<&str> =
                provider.labels.iter().filter_map(|label| label.image.as_deref()).collect();
            provider
                .images
                .iter()
                .filter(move |image| taken.contains(image.canonical_name.as_str()))
        });
        let formats: BTreeSet<&str> = images
            .filter(|one| one.is_built && one.name == image)
            .map(|one| one.format.as_str())
            .collect();
        formats.into_iter().map(str::to_owned).collect()
    }

    /// Returns the file that defines an image that Sluice builds. An event that requests the image
    /// is about the project and branch of that file (L1.2). The error is a message: there is no
    /// such image, or the cloud provides it. Images that only a proposed change defines do not
    /// count, unless it is proposed with [`Scope::ToValidate`](super::Scope::ToValidate).
    ///
    /// # Errors
    /// If there is no such image, or the cloud provides it.
    pub fn image_to_build(&self, name: &str) -> Result<&Source, String> {
        let Some(found) = self.one::<ProviderObject>(ObjectKind::Image, name) else {
            let hint = nearest(name, self.names(ObjectKind::Image));
            let hint = hint.map(|hint| format!(" (did you mean \"{hint}\"?)")).unwrap_or_default();
            return Err(format!("tenant {} has no image \"{name}\"{hint}", self.tenant().name));
        };
        if is_built(found.object) {
            return Ok(found.source());
        }
        Err(format!("the image \"{name}\" is of type cloud; only images of type zuul can be built"))
    }

    /// Returns whether an image has an accepted definition, or the overlay's files define it.
    /// Images take effect when they are merged (L3.3), but the job that builds one may be part of
    /// the same change.
    pub(crate) fn has_image(&self, name: &str) -> bool {
        let stands =
            self.symbol(ObjectKind::Image, name).is_some_and(|entry| !entry.accepted.is_empty());
        stands || self.overlay.as_deref().is_some_and(|overlay| overlay.images.contains_key(name))
    }

    /// Returns the project that defines an image: the accepted definition, else a proposed one.
    /// `None` for unknown images and placeholders.
    pub(crate) fn image_home(&self, name: &str) -> Option<&ProjectName> {
        let accepted = self
            .one::<ProviderObject>(ObjectKind::Image, name)
            .map(|found| &found.source().project);
        let proposed = || self.overlay.as_deref().and_then(|overlay| overlay.images.get(name));
        accepted.or_else(proposed).filter(|project| !is_placeholder(project))
    }

    /// Returns the accepted definitions of a job in configuration order; empty if it is not
    /// defined.
    pub(crate) fn jobs<'l>(
        &'l self,
        name: &str,
    ) -> impl Iterator<Item = Definition<'l, JobStanza>> + use<'l> {
        self.under(ObjectKind::Job, name)
    }

    /// Returns the accepted definitions of a template in configuration order; empty if it is not
    /// defined.
    pub(crate) fn templates<'l>(
        &'l self,
        name: &str,
    ) -> impl Iterator<Item = Definition<'l, ProjectStanza>> + use<'l> {
        self.under(ObjectKind::ProjectTemplate, name)
    }

    /// Returns the definition of a nodeset; `None` if it is not defined.
    pub(crate) fn nodeset(&self, name: &str) -> Option<Definition<'_, NodesetStanza>> {
        self.one(ObjectKind::Nodeset, name)
    }

    /// Returns the definition of a secret; `None` if it is not defined.
    pub(crate) fn secret(&self, name: &str) -> Option<Definition<'_, SecretStanza>> {
        self.one(ObjectKind::Secret, name)
    }
}
