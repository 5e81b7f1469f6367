//! Finds the playbooks of jobs from included files (Z2.5): next to these files, then in the
//! tenant's config projects (Z4.9).
//!
//! Included files are next to the main configuration, in no repository that could be fetched. So
//! before a job's branches are put in place, each playbook, role and variables file of such a job
//! is assigned to the first source that has it. The sources are the commit stored with the included
//! files, then each config project in the tenant's order, in its merged state. A file that none of
//! them has is assigned to the first source, where its absence is reported. The stored commit is
//! the layout's: the item ahead may have been tested with an older one.

use crate::state::MergedState;
use crate::{MergeFailure, Merger, merge_failure};
use sluice_config::ConfigError;
use sluice_config::layout::Layout;
use sluice_model::git::{BranchKey, BranchState};
use sluice_model::job::{
    FrozenJob, JobGraph, Playbook, RoleRepository, RoleUse, VarsSource, playbook_files,
};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use sluice_repos::{ProjectAt, ReposError};
use std::collections::{BTreeMap, BTreeSet};

/// The branch that a file is taken from.
#[derive(Debug, Clone)]
struct SourceBranch {
    /// The connection of the project.
    connection: ConnectionName,
    /// The project that has the file.
    project: ProjectName,
    /// The branch from which the file is read.
    branch: BranchName,
}

/// The sources of the files that jobs from included files use.
struct IncludedSources {
    /// The project of included files, which the sources replace.
    included: ProjectName,
    /// Whether there are files next to the included files, so that roles may be there, wherever the
    /// playbook is.
    has_own: bool,
    /// The source of each file, by its possible paths.
    by_paths: BTreeMap<Vec<String>, SourceBranch>,
    /// The source of files that none has.
    first: SourceBranch,
}

impl Merger {
    /// Replaces the included project in jobs by the repositories from which their files are really
    /// read, and adds the branches of these to `state`. Returns no error then, nor if no job uses
    /// included files. If there is no such repository, changes nothing and returns an error for
    /// each concerned job that the layout defines; a job that it does not define gets none.
    pub(crate) async fn assign_included(
        &self,
        state: &mut MergedState,
        graph: &mut JobGraph,
        layout: &Layout,
    ) -> Result<Vec<ConfigError>, MergeFailure> {
        let Some(included) =
            layout.tenant().included.as_ref().map(|included| included.name.clone())
        else {
            return Ok(Vec::new());
        };
        let missing: BTreeSet<Vec<String>> =
            graph.jobs.iter().flat_map(|job| paths(job, &included)).collect();
        let is_concerned = |job: &&FrozenJob| {
            let has_role = |playbook: &Playbook| {
                playbook.role_repositories().any(|role| role.project == included)
            };
            paths(job, &included).next().is_some() || playbooks(job).any(has_role)
        };
        if !graph.jobs.iter().any(|job| is_concerned(&job)) {
            return Ok(Vec::new());
        }
        let Some(sources) = self.included_sources(state, layout, included.clone(), missing).await?
        else {
            return Ok(graph
                .jobs
                .iter()
                .filter(is_concerned)
                .filter_map(|job| layout.missing_config_project_error(job))
                .collect());
        };
        graph.jobs.iter_mut().for_each(|job| sources.assign_sources(job));
        Ok(Vec::new())
    }

    /// Finds the source of each file of included jobs and adds the first source, and the others
    /// that are used, to the state. `missing` holds the possible paths of each file; it may be
    /// empty for jobs that only use roles. `None` if there are no files next to the included ones
    /// and no readable config project.
    async fn included_sources(
        &self,
        state: &mut MergedState,
        layout: &Layout,
        included: ProjectName,
        mut missing: BTreeSet<Vec<String>>,
    ) -> Result<Option<IncludedSources>, MergeFailure> {
        let tenant = layout.tenant();
        let (mut by_paths, mut first) = (BTreeMap::new(), None);
        let of_main_config = tenant.included.as_ref().zip(tenant.included_content.as_ref());
        let has_own = of_main_config.is_some();
        let of_tenant = tenant.projects.iter().filter(|project| project.trust.is_trusted());
        let of_main_config =
            of_main_config.into_iter().map(|(project, beside)| (project, Some(beside)));
        let all: Vec<_> = of_main_config.chain(of_tenant.map(|project| (project, None))).collect();
        for (project, beside) in all {
            if missing.is_empty() && first.is_some() {
                break;
            }
            let at =
                ProjectAt { connection: project.connection.clone(), project: project.name.clone() };
            let source = match beside {
                Some(beside) => Some(beside.clone()),
                None => self.merged(state, &at, layout.default_branch(&project.name)).await?,
            };
            let Some(source) = source else { continue };
            let home = SourceBranch {
                connection: at.connection.clone(),
                project: at.project.clone(),
                branch: source.branch.branch.clone(),
            };
            let is_first = first.is_none();
            first.get_or_insert_with(|| home.clone());
            let paths: Vec<String> = missing.iter().flatten().cloned().collect();
            let existing = match paths.is_empty() {
                true => Vec::new(),
                false => self
                    .repos
                    .existing_files(&at, &source.base.id, Some(&source), &paths)
                    .await
                    .map_err(merge_failure)?,
            };
            let is_here = |paths: &Vec<String>| paths.iter().any(|path| existing.contains(path));
            let (found, left): (BTreeSet<_>, BTreeSet<_>) = missing.into_iter().partition(is_here);
            if is_first || !found.is_empty() {
                state.put_branch(source);
            }
            by_paths.extend(found.into_iter().map(|paths| (paths, home.clone())));
            missing = left;
        }
        Ok(first.map(|first| IncludedSources { included, has_own, by_paths, first }))
    }

    /// Returns the state of a config project's branch: from `state`, or read at its tip. Its base
    /// is the commit without proposed changes. `None` if the branch is missing or cannot be read.
    async fn merged(
        &self,
        state: &MergedState,
        at: &ProjectAt,
        branch: BranchName,
    ) -> Result<Option<BranchState>, MergeFailure> {
        let key = BranchKey { project: at.project.clone(), branch };
        if let Some(state) = state.branch(&key) {
            return Ok(Some(state.clone()));
        }
        match self.repos.branch_tip(at, &key.branch).await {
            Ok(found) => Ok(Some(found)),
            Err(ReposError::Gone(_) | ReposError::Unreadable(_)) => Ok(None),
            Err(error) => Err(merge_failure(error)),
        }
    }
}

impl IncludedSources {
    /// Returns the repository and branch from which a file is read; the first source if none has
    /// it.
    fn of(&self, paths: &[String]) -> &SourceBranch {
        self.by_paths.get(paths).unwrap_or(&self.first)
    }

    /// Replaces the included project by the sources in a job's playbooks, roles and variables
    /// files.
    fn assign_sources(&self, job: &mut FrozenJob) {
        // Roles of the project with the job's own playbook are also offered to inherited playbooks.
        let named: Vec<Vec<String>> = paths(job, &self.included).collect();
        let of_job = named.iter().find_map(|paths| self.by_paths.get(paths)).unwrap_or(&self.first);
        for playbook in job.pre_run.iter_mut().chain(&mut job.run).chain(&mut job.post_run) {
            let is_included = playbook.project == self.included;
            let home = if is_included { self.of(&playbook_files(&playbook.path)) } else { of_job };
            playbook.roles = self.roles(std::mem::take(&mut playbook.roles), home);
            if is_included {
                let SourceBranch { connection, project, branch } = home.clone();
                (playbook.connection, playbook.project, playbook.branch) =
                    (connection, project, branch);
            }
        }
        for file in &mut job.run_time.include_vars {
            if let VarsSource::Project(from) = &mut file.source
                && from.project == self.included
            {
                let SourceBranch { connection, project, branch } =
                    self.of(std::slice::from_ref(&file.name)).clone();
                (from.connection, from.project, from.override_checkout) =
                    (connection, project, Some(branch));
            }
        }
    }

    /// Returns a playbook's roles with the included project replaced by `home`; not repeated where
    /// the home project's roles are there already. Roles next to the included files follow,
    /// wherever the playbook is.
    fn roles(&self, roles: Vec<RoleUse>, home: &SourceBranch) -> Vec<RoleUse> {
        let is_own = home.project == self.included;
        let mut repositories = roles.iter().filter_map(RoleUse::repository);
        let is_known = repositories.any(|role| role.project == home.project);
        let mut placed = Vec::with_capacity(roles.len() + 1);
        for role in roles {
            let included = match &role {
                RoleUse::Zuul(found) if found.project == self.included && !is_own => found,
                _ => {
                    placed.push(role);
                    continue;
                }
            };
            if !is_known {
                placed.push(RoleUse::Zuul(RoleRepository {
                    connection: home.connection.clone(),
                    project: home.project.clone(),
                    target_name: home.project.role_name().to_owned(),
                    implicit: included.implicit,
                }));
            }
            if self.has_own {
                placed.push(role);
            }
        }
        placed
    }
}

/// Returns the paths at which each playbook and variables file of a job's included parts may be.
fn paths<'a>(
    job: &'a FrozenJob,
    included: &'a ProjectName,
) -> impl Iterator<Item = Vec<String>> + 'a {
    let included_playbooks = playbooks(job).filter(move |playbook| playbook.project == *included);
    let files = job.run_time.include_vars.iter().filter(
        move |file| matches!(&file.source, VarsSource::Project(from) if from.project == *included),
    );
    included_playbooks
        .map(|playbook| playbook_files(&playbook.path))
        .chain(files.map(|file| vec![file.name.clone()]))
}

/// Returns all playbooks of a job in the order of their phases.
fn playbooks(job: &FrozenJob) -> impl Iterator<Item = &Playbook> {
    job.pre_run.iter().chain(&job.run).chain(&job.post_run)
}
