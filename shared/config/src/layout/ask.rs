//! What a layout is asked: its projects, jobs, queues, modes and providers.

use super::providers::is_built;
use super::settle::as_they_count;
use super::suppose::is_supposed;
use super::{Defined, File, Layout, On, QueueSettings};
use crate::connection::Connections;
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
use sluice_model::{BranchName, PipelineName, ProjectName, QueueName};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a stanza or a template says of a project.
struct Said<'l> {
    stanza: &'l ProjectStanza,
    /// Whether it is for the branch that is asked about.
    is_meant: bool,
}

/// Returns whether a project's stanza is for a branch; without one, whether it is for some.
fn is_meant(
    defined: &Defined<'_, ProjectStanza>,
    project: &ProjectName,
    branch: Option<&str>,
) -> bool {
    match (defined.object.branches.as_deref(), branch) {
        (Some([]), _) => true,
        (Some(patterns), Some(branch)) => patterns.iter().any(|pattern| pattern.matches(branch)),
        _ => defined.is_implied_for(project, On::branch(branch)),
    }
}

impl Layout {
    /// Returns the tenant it belongs to.
    pub fn tenant(&self) -> &TenantConfig {
        &self.base.ground.tenant
    }

    /// Returns the connections it was built with.
    pub fn connections(&self) -> &Connections {
        &self.base.ground.connections
    }

    /// Returns its files.
    pub fn fragments(&self) -> &[Arc<Fragment>] {
        self.fragments
            .get_or_init(|| self.files().map(|(_, file)| Arc::clone(&file.fragment)).collect())
    }

    /// Returns a file parsed; a file that the layout has as it is, is not parsed again.
    pub fn parse(&self, file: &SourceFile) -> Arc<Fragment> {
        let hash = fragment::hash(file);
        let project = self.base.ground.project(&file.source.project);
        let known = project.and_then(|(rank, _)| {
            self.base
                .files_of(rank)
                .find(|(_, known)| known.fragment.hash == hash)
                .map(|(_, known)| &known.fragment)
        });
        known.map_or_else(|| Arc::new(fragment::parse(file)), Arc::clone)
    }

    /// Returns its pipelines in order.
    pub fn pipelines(&self) -> &[Pipeline] {
        let over = self.over.as_deref().and_then(|over| over.pipelines.as_ref());
        over.unwrap_or(&self.base.pipelines)
    }

    /// Returns a pipeline.
    pub fn pipeline(&self, name: &str) -> Option<&Pipeline> {
        self.pipelines().iter().find(|pipeline| pipeline.name.as_str() == name)
    }

    /// Returns a project by its canonical name, or by its short name where only one has it.
    pub fn project(&self, name: &str) -> Option<&TenantProject> {
        self.base.ground.find(name).ok()
    }

    /// Returns the names of all jobs.
    pub fn job_names(&self) -> impl Iterator<Item = &str> {
        self.names(ObjectKind::Job)
    }

    /// Returns the branches of a project as far as they are known.
    pub fn branches(&self, project: &ProjectName) -> Vec<BranchName> {
        if let Some(branches) = self.base.ground.branches.get(project) {
            return branches.clone();
        }
        let files = self.files().filter(|(_, file)| file.source().project == *project);
        let found: BTreeSet<BranchName> =
            files.map(|(_, file)| file.source().branch.clone()).collect();
        found.into_iter().collect()
    }

    /// Returns whether a project has a branch as far as is known.
    pub(crate) fn has_branch(&self, project: &ProjectName, branch: &str) -> bool {
        if let Some(branches) = self.base.ground.branches.get(project) {
            return branches.iter().any(|one| one.as_str() == branch);
        }
        let of_branch = |(_, file): (u32, &File)| {
            let source = file.source();
            source.project == *project && source.branch.as_str() == branch
        };
        self.files().any(of_branch)
    }

    /// Returns every stanza of a project in order, whatever the branch.
    pub(crate) fn stanzas_of<'l>(
        &'l self,
        project: &ProjectName,
    ) -> impl Iterator<Item = Defined<'l, ProjectStanza>> + use<'l> {
        self.under(ObjectKind::Project, project.as_str())
    }

    /// Returns every stanza of a project in order, and then their templates.
    fn stanzas_with_templates(&self, project: &ProjectName, branch: Option<&str>) -> Vec<Said<'_>> {
        let (mut found, mut of_templates) = (Vec::new(), Vec::new());
        // A template that is named again by stanzas of one sort says nothing new.
        let mut taken: BTreeSet<(&str, bool)> = BTreeSet::new();
        for defined in self.stanzas_of(project) {
            let is_meant = is_meant(&defined, project, branch);
            for template in defined
                .object
                .templates
                .iter()
                .filter(|name| taken.insert((name.as_str(), is_meant)))
            {
                of_templates.extend(
                    self.templates(template).map(|found| Said { stanza: found.object, is_meant }),
                );
            }
            found.push(Said { stanza: defined.object, is_meant });
        }
        found.extend(of_templates);
        found
    }

    /// Returns the pipelines a project takes part in, in the layout's order.
    pub fn project_pipelines(&self, project: &ProjectName) -> Vec<PipelineName> {
        let stanzas = self.stanzas_with_templates(project, None);
        let takes_part = |pipeline: &&Pipeline| {
            stanzas.iter().any(|said| said.stanza.pipelines.contains_key(pipeline.name.as_str()))
        };
        self.pipelines().iter().filter(takes_part).map(|pipeline| pipeline.name.clone()).collect()
    }

    /// Returns the other projects whose configuration says which pipelines a project takes part in:
    /// who has stanzas for it, or the templates that its stanzas take, and whom the tenant lets
    /// have such stanzas.
    pub fn configured_by(&self, project: &ProjectName) -> Vec<&ProjectName> {
        let is_trusted =
            self.tenant().project(project).is_some_and(|known| known.trust.is_trusted());
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

    /// Returns the shared queue of a project in a pipeline (Z6.3), whatever the branch.
    pub fn queue(&self, project: &ProjectName, pipeline: &str) -> QueueSettings {
        self.queue_on(project, pipeline, None)
    }

    /// Returns the shared queue of a branch of a project in a pipeline: a queue that is assigned to
    /// branches counts only where a stanza that is meant for the branch names it.
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
        let counts = |name: &String, is_meant: bool| {
            is_meant || kind(name) != Some(QueueType::BranchAssigned)
        };
        // As with all that a project has one of, its first word counts, and any of its own before
        // its templates'.
        let chosen = |pick: &dyn Fn(&ProjectStanza) -> Option<&String>| {
            let mut named =
                stanzas.iter().filter_map(|said| Some((pick(said.stanza)?, said.is_meant)));
            named.find(|(name, is_meant)| counts(name, *is_meant)).map(|(name, _)| name.clone())
        };
        let of_project = chosen(&|stanza| stanza.queue.as_ref());
        let of_pipeline = || chosen(&|stanza| stanza.pipelines.get(pipeline)?.queue.as_ref());
        let name = of_project.or_else(of_pipeline);
        let stanza =
            name.as_ref().and_then(|name| self.one::<QueueStanza>(ObjectKind::Queue, name));
        let stanza = stanza.map(|defined| defined.object);
        let ground = &self.base.ground;
        let tenant_allows = ground
            .project(project)
            .and_then(|(_, project)| project.allow_circular_dependencies)
            .or(ground.tenant.allow_circular_dependencies)
            .unwrap_or(false);
        QueueSettings {
            name: name.map_or_else(|| QueueName(project.as_str().to_owned()), QueueName),
            per_branch: stanza.is_some_and(|stanza| stanza.queue_type == QueueType::PerBranch),
            allow_circular_dependencies: stanza
                .map_or(tenant_allows, |stanza| stanza.allow_circular_dependencies),
            dependencies_by_topic: stanza.is_some_and(|stanza| stanza.dependencies_by_topic),
        }
    }

    /// Returns how changes of a project are put into its branches: the first word that any of its
    /// stanzas has, whichever branch that is for.
    pub fn merge_mode(&self, project: &ProjectName) -> MergeMode {
        self.stanzas_of(project).find_map(|defined| defined.object.merge_mode).unwrap_or_default()
    }

    /// Returns the branch of a project that is taken where a change's own does not exist: what its
    /// stanzas say (`default-branch`), or its forge.
    pub fn default_branch(&self, project: &ProjectName) -> BranchName {
        let ground = &self.base.ground;
        let mut stanzas: Vec<Defined<'_, ProjectStanza>> = self.stanzas_of(project).collect();
        // The first of several by the order that none of them makes: what is merged has one answer,
        // whatever counts first for it.
        stanzas.sort_by_key(|one| (ground.unsaid_place(one.file), one.object.place.start));
        let stanzas = as_they_count(&stanzas, |one| one.object.expression());
        let said = stanzas.iter().find_map(|one| one.object.default_branch.as_deref());
        let of_forge = || ground.default_branch(ground.project(project)?.1);
        said.or_else(of_forge).unwrap_or("master").into()
    }

    /// Returns whether tenants share a semaphore, and how many may hold it; one that is not defined
    /// is held by one.
    pub fn semaphore(&self, name: &str) -> (bool, u32) {
        if let Some(max) = self.base.ground.tenant.global_semaphores.get(name) {
            return (true, *max);
        }
        let found = self.one::<SemaphoreStanza>(ObjectKind::Semaphore, name);
        (false, found.map_or(1, |semaphore| semaphore.object.max))
    }

    /// Returns the names of all semaphores that are defined for the tenant, its own and those it
    /// shares.
    pub fn semaphore_names(&self) -> impl Iterator<Item = &str> {
        let shared = self.base.ground.tenant.global_semaphores.keys().map(String::as_str);
        self.names(ObjectKind::Semaphore).chain(shared)
    }

    /// Returns the providers of nodes with everything resolved (L3.2), in order of preference
    /// (L2.2).
    pub fn providers(&self) -> &[ProviderConfig] {
        let over = self.over.as_deref().and_then(|over| over.providers.as_ref());
        over.map_or(&self.base.providers, |(providers, _)| providers)
    }

    /// Returns the formats in which an image is needed by the providers that use it, each once
    /// (L1.1).
    pub fn image_formats(&self, image: &str) -> Vec<String> {
        let images = self.providers().iter().flat_map(|provider| {
            // What is listed and no label takes is not needed.
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

    /// Returns where an image that jobs build is defined: an event that asks for it is about that
    /// branch (L1.2).
    ///
    /// # Errors
    /// Why it cannot be asked for: no image bears the name, or it is one that the cloud has anyway.
    pub fn image_to_build(&self, name: &str) -> Result<&Source, String> {
        let Some(found) = self.one::<ProviderObject>(ObjectKind::Image, name) else {
            let meant = nearest(name, self.names(ObjectKind::Image));
            let meant =
                meant.map(|meant| format!(" (did you mean \"{meant}\"?)")).unwrap_or_default();
            return Err(format!("tenant {} has no image \"{name}\"{meant}", self.tenant().name));
        };
        if is_built(found.object) {
            return Ok(found.source());
        }
        Err(format!("the image \"{name}\" is of type cloud: nobody builds it, the cloud has it"))
    }

    /// Returns whether there is an image of a name, or will be with what is proposed: images count
    /// only when they are merged (L3.3), but the job that builds one may come with it.
    pub(crate) fn has_image(&self, name: &str) -> bool {
        let stands =
            self.entry(ObjectKind::Image, name).is_some_and(|entry| !entry.accepted.is_empty());
        stands || self.over.as_deref().is_some_and(|over| over.images.contains_key(name))
    }

    /// Returns the project that defines an image: the one whose stanza stands or, where none does,
    /// whose is proposed. `None` also of an image that is only supposed to be there.
    pub(crate) fn image_home(&self, name: &str) -> Option<&ProjectName> {
        let standing = self
            .one::<ProviderObject>(ObjectKind::Image, name)
            .map(|found| &found.source().project);
        let proposed = || self.over.as_deref().and_then(|over| over.images.get(name));
        standing.or_else(proposed).filter(|home| !is_supposed(home))
    }

    /// Returns the definitions of a job, in order.
    pub(crate) fn jobs<'l>(
        &'l self,
        name: &str,
    ) -> impl Iterator<Item = Defined<'l, JobStanza>> + use<'l> {
        self.under(ObjectKind::Job, name)
    }

    /// Returns the definitions of a template, in order.
    pub(crate) fn templates<'l>(
        &'l self,
        name: &str,
    ) -> impl Iterator<Item = Defined<'l, ProjectStanza>> + use<'l> {
        self.under(ObjectKind::ProjectTemplate, name)
    }

    pub(crate) fn nodeset(&self, name: &str) -> Option<Defined<'_, NodesetStanza>> {
        self.one(ObjectKind::Nodeset, name)
    }

    pub(crate) fn secret(&self, name: &str) -> Option<Defined<'_, SecretStanza>> {
        self.one(ObjectKind::Secret, name)
    }
}
