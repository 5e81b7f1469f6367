//! Whether there is a playbook for each job that names none: looked for in the very trees that the job would run with (Z4.9).
//!
//! It is told at the change, at the job's definition, rather than by a build that fails for every change from then on.

use crate::state::State;
use crate::{Merger, Unmade, unmade};
use sluice_config::ConfigError;
use sluice_config::layout::Layout;
use sluice_config::tenant::SYSTEM;
use sluice_model::git::BranchState;
use sluice_model::job::{JobGraph, Playbook, playbook_files};
use sluice_repos::ProjectAt;

impl Merger {
    /// Returns what is wrong with jobs that would run the playbook of their name. `state` holds every branch that they need, and
    /// trusted playbooks are pinned.
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

    /// Looks as an executor will: in the branch that the definition is of, else in the one that the job checks out.
    async fn is_there(&self, state: &State, playbook: &Playbook) -> Result<bool, Unmade> {
        // Included files lie in no repository.
        if playbook.connection.as_str() == SYSTEM {
            return Ok(true);
        }
        let of_project = |known: &&BranchState| known.branch.project == playbook.project;
        let states: Vec<&BranchState> = state.speculation.branches.iter().filter(of_project).collect();
        let exact = states.iter().copied().find(|known| known.branch.branch == playbook.branch);
        let at = ProjectAt { connection: playbook.connection.clone(), project: playbook.project.clone() };
        let files = playbook_files(&playbook.path);
        for known in exact.map_or(states, |exact| vec![exact]) {
            let commit = if playbook.trusted { &known.base.id } else { &known.result.id };
            if !self.repos.present(&at, commit, Some(known), &files).await.map_err(unmade)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
