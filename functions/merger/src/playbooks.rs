//! Whether there is a playbook for each job: looked for in the very trees that the job would run
//! with (Z4.9).
//!
//! It is told at the change, at the job's definition, rather than by a build that fails for every
//! change from then on. Of playbooks that jobs name, what the change itself brings is told: a
//! mistake that was there before is no other author's, and is told by the build, which ends as
//! CONFIG_ERROR before anything of it runs.

use crate::state::State;
use crate::{Merger, Unmade, unmade};
use sluice_config::ConfigError;
use sluice_config::layout::{BranchConfig, Layout};
use sluice_model::git::{BranchKey, BranchState};
use sluice_model::job::{JobGraph, Playbook, playbook_files};
use sluice_repos::ProjectAt;

impl Merger {
    /// Returns the playbooks that jobs of the item's own branch name and that are not there, where
    /// the item brings that: by naming them, or by taking them away. `checked` is the layout with
    /// all that is proposed.
    pub(crate) async fn lost_playbooks(
        &self,
        state: &State,
        own: &BranchKey,
        proposed: &[BranchConfig],
        checked: &Layout,
        live: &Layout,
    ) -> Result<Vec<ConfigError>, Unmade> {
        let is_own =
            |config: &&BranchConfig| config.project == own.project && config.branch == own.branch;
        let config = proposed.iter().find(is_own);
        let project = live.tenant().project(&own.project);
        let (Some(config), Some(project)) = (config, project) else { return Ok(Vec::new()) };
        let (Some(known), Some(base)) = (state.branch(own), &state.base) else {
            return Ok(Vec::new());
        };
        let at = ProjectAt { connection: project.connection.clone(), project: own.project.clone() };
        let mut named = checked.named_playbooks(config, live);
        for (commit, keeps_new) in [(&known.result.id, false), (&base.id, true)] {
            let paths: Vec<String> =
                named.iter().flat_map(|playbook| playbook_files(playbook.name)).collect();
            if named.is_empty() {
                break;
            }
            let there =
                self.repos.present(&at, commit, Some(known), &paths).await.map_err(unmade)?;
            let is_there =
                |name: &str| playbook_files(name).iter().any(|file| there.contains(file));
            match keeps_new {
                false => named.retain(|playbook| !is_there(playbook.name)),
                true => named.retain(|playbook| playbook.is_new || is_there(playbook.name)),
            }
        }
        Ok(named.iter().map(|playbook| playbook.missing()).collect())
    }

    /// Returns what is wrong with jobs that would run the playbook of their name. `state` holds
    /// every branch that they need, and trusted playbooks are pinned.
    pub(crate) async fn missing_playbooks(
        &self,
        state: &State,
        graph: &JobGraph,
        layout: &Layout,
    ) -> Result<Vec<ConfigError>, Unmade> {
        let mut errors = Vec::new();
        for job in graph.jobs.iter().filter(|job| job.run_time.implied_run) {
            let mut has_one = false;
            for playbook in &job.run {
                has_one = has_one || self.is_there(state, playbook).await?;
            }
            if !has_one {
                errors.extend(layout.without_playbook(job));
            }
        }
        Ok(errors)
    }

    /// Looks as an executor will: in the branch that the definition is of, else in the one that the
    /// job checks out.
    async fn is_there(&self, state: &State, playbook: &Playbook) -> Result<bool, Unmade> {
        let of_project = |known: &&BranchState| known.branch.project == playbook.project;
        let states: Vec<&BranchState> =
            state.speculation.branches.iter().filter(of_project).collect();
        let exact = states.iter().copied().find(|known| known.branch.branch == playbook.branch);
        let at = ProjectAt {
            connection: playbook.connection.clone(),
            project: playbook.project.clone(),
        };
        let files = playbook_files(&playbook.path);
        for known in exact.map_or(states, |exact| vec![exact]) {
            let commit = if playbook.trusted { &known.base.id } else { &known.result.id };
            if !self
                .repos
                .present(&at, commit, Some(known), &files)
                .await
                .map_err(unmade)?
                .is_empty()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
