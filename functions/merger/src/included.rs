//! Playbooks of jobs that included files define (Z2.5): looked for beside those, then in the
//! tenant's config projects (Z4.9).
//!
//! The files lie beside the main configuration, in no repository that could be fetched. So before a
//! job's branches are put in place, whatever it would have from there (playbooks, roles beside
//! them, files of variables) is given what has it first: the commit that was stored with the files,
//! then each config project, in the tenant's order, as it is merged. What none of them has is given
//! the first of them, where its absence is told. The commit is the layout's: what the item ahead
//! was tested with may be an older one.

use crate::state::State;
use crate::{Merger, Unmade, unmade};
use sluice_config::ConfigError;
use sluice_config::layout::Layout;
use sluice_model::git::{BranchKey, BranchState};
use sluice_model::job::{FrozenJob, JobGraph, Playbook, Role, VarsSource, playbook_files};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use sluice_repos::{ProjectAt, ReposError};
use std::collections::{BTreeMap, BTreeSet};

/// Where something lies.
#[derive(Debug, Clone)]
struct Home {
    connection: ConnectionName,
    project: ProjectName,
    branch: BranchName,
}

/// Where what jobs have of included files lies: by the paths that it may have.
struct Homes {
    included: ProjectName,
    /// Whether anything lies beside the files, so that roles may be there whatever else has the
    /// playbook.
    has_own: bool,
    by_paths: BTreeMap<Vec<String>, Home>,
    first: Home,
}

impl Merger {
    /// Gives what jobs have of included files a place: beside those, or in config projects. Returns
    /// what is wrong where there is none.
    pub(crate) async fn place_included(
        &self,
        state: &mut State,
        graph: &mut JobGraph,
        layout: &Layout,
    ) -> Result<Vec<ConfigError>, Unmade> {
        let Some(included) =
            layout.tenant().included.as_ref().map(|included| included.name.clone())
        else {
            return Ok(Vec::new());
        };
        let wanted: BTreeSet<Vec<String>> =
            graph.jobs.iter().flat_map(|job| paths(job, &included)).collect();
        let is_concerned = |job: &&FrozenJob| {
            let has_role =
                |playbook: &Playbook| playbook.roles.iter().any(|role| role.project == included);
            paths(job, &included).next().is_some() || playbooks(job).any(has_role)
        };
        if !graph.jobs.iter().any(|job| is_concerned(&job)) {
            return Ok(Vec::new());
        }
        let Some(homes) = self.homes(state, layout, included.clone(), wanted).await? else {
            return Ok(graph
                .jobs
                .iter()
                .filter(is_concerned)
                .filter_map(|job| layout.without_config_project(job))
                .collect());
        };
        graph.jobs.iter_mut().for_each(|job| homes.move_in(job));
        Ok(Vec::new())
    }

    /// Looks for each of some things beside the included files, then in the tenant's config
    /// projects. `None` where nothing lies beside them, and there is no config project that can be
    /// read.
    async fn homes(
        &self,
        state: &mut State,
        layout: &Layout,
        included: ProjectName,
        mut wanted: BTreeSet<Vec<String>>,
    ) -> Result<Option<Homes>, Unmade> {
        let tenant = layout.tenant();
        let (mut by_paths, mut first) = (BTreeMap::new(), None);
        let own = tenant.included.as_ref().zip(tenant.beside.as_ref());
        let has_own = own.is_some();
        let of_tenant = tenant.projects.iter().filter(|project| project.trust.is_trusted());
        let own = own.into_iter().map(|(project, beside)| (project, Some(beside)));
        let all: Vec<_> = own.chain(of_tenant.map(|project| (project, None))).collect();
        for (project, beside) in all {
            if wanted.is_empty() && first.is_some() {
                break;
            }
            let at =
                ProjectAt { connection: project.connection.clone(), project: project.name.clone() };
            let known = match beside {
                Some(beside) => Some(beside.clone()),
                None => self.merged(state, &at, layout.default_branch(&project.name)).await?,
            };
            let Some(known) = known else { continue };
            let home = Home {
                connection: at.connection.clone(),
                project: at.project.clone(),
                branch: known.branch.branch.clone(),
            };
            let is_first = first.is_none();
            first.get_or_insert_with(|| home.clone());
            let asked: Vec<String> = wanted.iter().flatten().cloned().collect();
            let there = match asked.is_empty() {
                true => Vec::new(),
                false => self
                    .repos
                    .present(&at, &known.base.id, Some(&known), &asked)
                    .await
                    .map_err(unmade)?,
            };
            let is_here = |paths: &Vec<String>| paths.iter().any(|path| there.contains(path));
            let (found, left): (BTreeSet<_>, BTreeSet<_>) = wanted.into_iter().partition(is_here);
            if is_first || !found.is_empty() {
                state.put(known);
            }
            by_paths.extend(found.into_iter().map(|paths| (paths, home.clone())));
            wanted = left;
        }
        Ok(first.map(|first| Homes { included, has_own, by_paths, first }))
    }

    /// Returns a branch of a config project, of which only what is merged counts; `None` where it
    /// is not there, or nobody can read it.
    async fn merged(
        &self,
        state: &State,
        at: &ProjectAt,
        branch: BranchName,
    ) -> Result<Option<BranchState>, Unmade> {
        let key = BranchKey { project: at.project.clone(), branch };
        if let Some(known) = state.branch(&key) {
            return Ok(Some(known.clone()));
        }
        match self.repos.tip(at, &key.branch).await {
            Ok(found) => Ok(Some(found)),
            Err(ReposError::Gone(_) | ReposError::Unreadable(_)) => Ok(None),
            Err(error) => Err(unmade(error)),
        }
    }
}

impl Homes {
    /// Returns where something lies.
    fn of(&self, paths: &[String]) -> &Home {
        self.by_paths.get(paths).unwrap_or(&self.first)
    }

    /// Gives what a job has of included files its place.
    fn move_in(&self, job: &mut FrozenJob) {
        // Roles that lie beside playbooks elsewhere are offered to a child's playbooks, too.
        let named: Vec<Vec<String>> = paths(job, &self.included).collect();
        let of_job = named.iter().find_map(|paths| self.by_paths.get(paths)).unwrap_or(&self.first);
        for playbook in job.pre_run.iter_mut().chain(&mut job.run).chain(&mut job.post_run) {
            let is_included = playbook.project == self.included;
            let home = if is_included { self.of(&playbook_files(&playbook.path)) } else { of_job };
            playbook.roles = self.roles(std::mem::take(&mut playbook.roles), home);
            if is_included {
                let Home { connection, project, branch } = home.clone();
                (playbook.connection, playbook.project, playbook.branch) =
                    (connection, project, branch);
            }
        }
        for file in &mut job.run_time.include_vars {
            if let VarsSource::Project(from) = &mut file.source
                && from.project == self.included
            {
                let Home { connection, project, branch } =
                    self.of(std::slice::from_ref(&file.name)).clone();
                (from.connection, from.project, from.override_checkout) =
                    (connection, project, Some(branch));
            }
        }
    }

    /// Returns roles with those of included files at home; once where that project's are offered
    /// anyway. What lies beside the files is offered after them, wherever the playbook is.
    fn roles(&self, roles: Vec<Role>, home: &Home) -> Vec<Role> {
        let is_own = home.project == self.included;
        let is_known = roles.iter().any(|role| role.project == home.project);
        let mut placed = Vec::with_capacity(roles.len() + 1);
        for role in roles {
            if role.project != self.included || is_own {
                placed.push(role);
                continue;
            }
            if !is_known {
                placed.push(Role {
                    connection: home.connection.clone(),
                    project: home.project.clone(),
                    target_name: home.project.role_name().to_owned(),
                    implicit: role.implicit,
                });
            }
            if self.has_own {
                placed.push(role);
            }
        }
        placed
    }
}

/// Returns the paths that each thing may have which a job has of included files: playbooks, files
/// of variables.
fn paths<'a>(
    job: &'a FrozenJob,
    included: &'a ProjectName,
) -> impl Iterator<Item = Vec<String>> + 'a {
    let own = playbooks(job).filter(move |playbook| playbook.project == *included);
    let files = job.run_time.include_vars.iter().filter(
        move |file| matches!(&file.source, VarsSource::Project(from) if from.project == *included),
    );
    own.map(|playbook| playbook_files(&playbook.path))
        .chain(files.map(|file| vec![file.name.clone()]))
}

fn playbooks(job: &FrozenJob) -> impl Iterator<Item = &Playbook> {
    job.pre_run.iter().chain(&job.run).chain(&job.post_run)
}
