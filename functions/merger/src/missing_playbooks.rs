//! Checks that each job's playbooks exist, in the very trees that the job would run with (Z4.9).
//!
//! A missing playbook is reported at the change that causes it, at the job's definition, rather
//! than by a failing build of every later change. Of playbooks that jobs name, only what the change
//! itself breaks is reported. An older error is not this author's; the build reports it as
//! CONFIG_ERROR before it runs anything.

use crate::state::MergedState;
use crate::{MergeFailure, Merger, merge_failure};
use sluice_config::ConfigError;
use sluice_config::layout::{BranchConfig, Layout};
use sluice_model::git::{BranchKey, BranchState};
use sluice_model::job::{JobGraph, Playbook, playbook_files};
use sluice_repos::ProjectAt;

impl Merger {
    /// Returns an error for each missing playbook that jobs of the item's own branch (`own`) name,
    /// if the item causes that, by naming it or by deleting the file. `proposed` is the
    /// configuration of all changes in the state, and `checked` the layout with it. Empty if the
    /// item proposes no configuration for that branch; the state must contain the item's change.
    pub(crate) async fn removed_playbooks(
        &self,
        state: &MergedState,
        own: &BranchKey,
        proposed: &[BranchConfig],
        checked: &Layout,
        live: &Layout,
    ) -> Result<Vec<ConfigError>, MergeFailure> {
        let is_own =
            |config: &&BranchConfig| config.project == own.project && config.branch == own.branch;
        let config = proposed.iter().find(is_own);
        let project = live.tenant().project(&own.project);
        let (Some(config), Some(project)) = (config, project) else { return Ok(Vec::new()) };
        let (Some(own_state), Some(base)) = (state.branch(own), &state.base) else {
            return Ok(Vec::new());
        };
        let at = ProjectAt { connection: project.connection.clone(), project: own.project.clone() };
        let mut named = checked.named_playbooks(config, live);
        for (commit, keeps_new) in [(&own_state.result.id, false), (&base.id, true)] {
            let paths: Vec<String> =
                named.iter().flat_map(|playbook| playbook_files(playbook.name)).collect();
            if named.is_empty() {
                break;
            }
            let existing = self
                .repos
                .existing_files(&at, commit, Some(own_state), &paths)
                .await
                .map_err(merge_failure)?;
            let is_there =
                |name: &str| playbook_files(name).iter().any(|file| existing.contains(file));
            match keeps_new {
                false => named.retain(|playbook| !is_there(playbook.name)),
                true => named.retain(|playbook| playbook.is_new || is_there(playbook.name)),
            }
        }
        Ok(named.iter().map(|playbook| playbook.missing_error()).collect())
    }

    /// Returns an error for each job without a `run` playbook that would run the one of its own
    /// name although no such file exists; playbooks that jobs name are not checked. `state` must
    /// contain every branch that the jobs need, with trusted playbooks pinned. A job that the
    /// layout does not define gets no error.
    pub(crate) async fn missing_playbooks(
        &self,
        state: &MergedState,
        graph: &JobGraph,
        layout: &Layout,
    ) -> Result<Vec<ConfigError>, MergeFailure> {
        let mut errors = Vec::new();
        for job in graph.jobs.iter().filter(|job| job.run_time.implied_run) {
            let mut has_one = false;
            for playbook in &job.run {
                has_one = has_one || self.is_there(state, playbook).await?;
            }
            if !has_one {
                errors.extend(layout.missing_playbook_error(job));
            }
        }
        Ok(errors)
    }

    /// Returns whether a playbook exists in its own branch of the state or, where the state lacks
    /// that branch, in any branch of its project. A trusted playbook is looked up without the
    /// changes of the state.
    async fn is_there(
        &self,
        state: &MergedState,
        playbook: &Playbook,
    ) -> Result<bool, MergeFailure> {
        let of_project = |state: &&BranchState| state.branch.project == playbook.project;
        let states: Vec<&BranchState> =
            state.speculation.branches.iter().filter(of_project).collect();
        let exact = states.iter().copied().find(|state| state.branch.branch == playbook.branch);
        let at = ProjectAt {
            connection: playbook.connection.clone(),
            project: playbook.project.clone(),
        };
        let files = playbook_files(&playbook.path);
        for state in exact.map_or(states, |exact| vec![exact]) {
            let commit = if playbook.trusted { &state.base.id } else { &state.result.id };
            if !self
                .repos
                .existing_files(&at, commit, Some(state), &files)
                .await
                .map_err(merge_failure)?
                .is_empty()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
