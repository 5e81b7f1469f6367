//! The configuration an item runs under, its jobs frozen, and every branch that those jobs need
//! besides.

use crate::state::State;
use crate::{Merger, Unmade, unmade};
use futures::future::try_join_all;
use sluice_config::fragment::{passed_over, source_files, text_of};
use sluice_config::job::{FreezeInput, JobTrace};
use sluice_config::layout::{BranchConfig, Layout, Scope};
use sluice_config::tenant::TenantProject;
use sluice_config::{ConfigError, ReviewComment};
use sluice_gate::merge::{DEBUG_BYTES_MAX, LINE_NOTES_MAX, LineNote, Merged};
use sluice_gate::{Candidate, Item, MergeResult};
use sluice_model::change::ChangeRef;
use sluice_model::git::{BranchKey, BranchState, Commit};
use sluice_model::job::{FrozenJob, IncludeVars, JobGraph, Playbook};
use sluice_model::{BranchName, ConnectionName, ProjectName, QueueKey};
use sluice_records::layout::Live;
use sluice_repos::{ProjectAt, ReposError};
use std::collections::{BTreeMap, BTreeSet};

/// Errors that a report tells; the rest is counted.
const ERRORS_MAX: usize = 20;
/// Projects whose forges are asked side by side for what jobs need of them.
const PROJECTS_AT_ONCE: usize = 4;

impl Merger {
    /// Freezes the item's jobs on the merged state.
    pub(crate) async fn freeze(
        &self,
        key: &QueueKey,
        state: &mut State,
        item: &Item,
        live: &Live,
    ) -> Result<MergeResult, Unmade> {
        let change = &item.candidate.change;
        let branch =
            BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        let proposed = self.proposed(state, live, None).await?;
        let overlay =
            (!proposed.is_empty()).then(|| live.layout.overlay(&proposed, Scope::UntrustedOnly));
        if let Some(result) = self.below(state, item, &proposed, live).await? {
            return Ok(result);
        }
        if state.touches_configuration {
            let checked = live.layout.overlay(&proposed, Scope::ToValidate);
            let mut errors = checked.errors_since(&live.layout);
            errors.extend(
                self.lost_playbooks(state, &branch, &proposed, &checked, &live.layout).await?,
            );
            if !errors.is_empty() {
                return Ok(misconfigured(&errors, &branch));
            }
        }
        let waits = self.waits_for_config_project(state, &branch, live);
        if let Some(overlay) = overlay.as_ref().filter(|_| waits && state.touches_configuration) {
            let errors = overlay.errors_since(&live.layout);
            if !errors.is_empty() {
                return Ok(not_before_it_is_merged(misconfigured(&errors, &branch)));
            }
        }
        let layout: &Layout = overlay.as_ref().unwrap_or(&live.layout);
        let input = FreezeInput {
            pipeline: key.pipeline.as_str(),
            project: &branch.project,
            branch: change.on_branch().map(BranchName::as_str),
            containing: state.speculation.containing.as_deref(),
            git_ref: change.key.moved().map_or(branch.branch.as_str(), |moved| &moved.git_ref),
            files: state.files.as_deref(),
            before: overlay.as_ref().map(|_| &*live.layout),
            image_names: change.key.images().map_or(&[][..], |images| images.names.as_slice()),
        };
        let fail_fast = layout.fail_fast(&input);
        let (frozen, trace) = match item.candidate.debug || layout.debug(&input) {
            true => layout.freeze_with_trace(&input),
            false => (layout.freeze(&input), Vec::new()),
        };
        let mut graph = match frozen {
            Ok(graph) => graph,
            Err(errors) if waits => {
                return Ok(not_before_it_is_merged(misconfigured(&errors, &branch)));
            }
            Err(errors) => return Ok(misconfigured(&errors, &branch)),
        };
        let errors = self.place_included(state, &mut graph, layout).await?;
        if !errors.is_empty() {
            return Ok(misconfigured(&errors, &branch));
        }
        self.put_needed(state, &mut graph, layout, change).await?;
        let errors = self.missing_playbooks(state, &graph, layout).await?;
        if !errors.is_empty() {
            return Ok(misconfigured(&errors, &branch));
        }
        let (Some(base), Some(tested)) = (state.base.clone(), state.tested.clone()) else {
            return Err(Unmade::Failed(format!("{change} has no merged state")));
        };
        // Side by side: nobody looks for either before the outcome names both.
        let (speculation, graph_object) = futures::try_join!(
            self.store("speculations", &state.speculation),
            self.store("jobs", &graph)
        )?;
        Ok(MergeResult::Merged(Merged {
            speculation,
            jobs: graph.summaries(),
            graph: graph_object,
            base,
            tested,
            kept: state.kept,
            touches_configuration: state.touches_configuration,
            fail_fast,
            debug: lines_of(&trace),
        }))
    }

    /// Returns the answer for an item that needs changes whose configuration is wrong (C12): what
    /// is the matter is not its own.
    async fn below(
        &self,
        state: &State,
        item: &Item,
        proposed: &[BranchConfig],
        live: &Live,
    ) -> Result<Option<MergeResult>, Unmade> {
        let Candidate { change, needs, cycle, mates, .. } = &item.candidate;
        let own = BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        // What needs each other is judged together: a part of it may make no sense by itself. Who
        // brings some of that himself is told of all of it as of his own.
        let is_one = !cycle.is_empty() || (!mates.is_empty() && state.touches_configuration);
        let is_plain = needs.is_empty() || is_one || state.speculation.configured.is_empty();
        let (false, Some(base)) = (is_plain, &state.base) else {
            return Ok(None);
        };
        let of_own = mates.is_empty() && state.speculation.configured.contains(&own);
        let below = if of_own {
            self.proposed(state, live, Some((&own, base))).await?
        } else {
            proposed.to_vec()
        };
        let wrong = live.layout.overlay(&below, Scope::ToValidate).errors_since(&live.layout);
        if wrong.is_empty() {
            return Ok(None);
        }
        // Its own mistakes are told as well, so that none of them waits for the others' to be
        // mended.
        let all = live.layout.overlay(proposed, Scope::ToValidate).errors_since(&live.layout);
        let (_, fresh): (Vec<ConfigError>, _) =
            all.iter().cloned().partition(|error| wrong.contains(error));
        let sentence = "This change depends on a change with an invalid configuration.".to_owned();
        let errors = std::iter::once(sentence).chain(texts(&all)).collect();
        Ok(Some(MergeResult::Misconfigured { errors, notes: notes(&fresh, &own) }))
    }

    /// Returns whether something of a config project is below the item, which counts for nothing
    /// before it is merged (X07).
    fn waits_for_config_project(&self, state: &State, own: &BranchKey, live: &Live) -> bool {
        let is_trusted = |key: &BranchKey| {
            let project = live.layout.tenant().project(&key.project);
            project.is_some_and(|project| project.trust.is_trusted())
        };
        state.speculation.configured.iter().any(|key| key != own && is_trusted(key))
    }

    /// Returns the configuration as the changes of the state would have it (Z6.6); `instead` names
    /// a branch and the commit that it is taken to be at instead.
    async fn proposed(
        &self,
        state: &State,
        live: &Live,
        instead: Option<(&BranchKey, &Commit)>,
    ) -> Result<Vec<BranchConfig>, Unmade> {
        let mut proposed = Vec::new();
        for key in &state.speculation.configured {
            let known = live
                .layout
                .project(key.project.as_str())
                .filter(|project| !project.reads_nothing());
            let Some(project) = known.cloned() else { continue };
            let Some(branch) = state.branch(key) else { continue };
            let commit =
                instead.filter(|(of, _)| *of == key).map_or(&branch.result, |(_, commit)| commit);
            let at =
                ProjectAt { connection: project.connection.clone(), project: key.project.clone() };
            let files = self
                .repos
                .configuration(&at, &commit.id, Some(branch), &project.extra_config_paths)
                .await
                .map_err(unmade)?;
            proposed.push(configuration(&live.layout, &project, &key.branch, files));
        }
        Ok(proposed)
    }

    /// Puts the branches in place that jobs need: required projects, playbooks, roles, files of
    /// variables.
    async fn put_needed(
        &self,
        state: &mut State,
        graph: &mut JobGraph,
        layout: &Layout,
        change: &ChangeRef,
    ) -> Result<(), Unmade> {
        let mut wanted: BTreeSet<(ConnectionName, ProjectName, Asked)> = BTreeSet::new();
        // What a job checks out of all its projects. Not of a config project: who pushes a branch
        // there is not who is trusted, and roles of trusted playbooks are taken from what is put in
        // place.
        let of_all = |job: &FrozenJob, project: &ProjectName| {
            let is_trusted =
                layout.tenant().project(project).is_none_or(|known| known.trust.is_trusted());
            job.override_checkout.clone().filter(|_| !is_trusted).map(Asked::Checkout)
        };
        // As executors choose: of what was pushed the name says nothing of roles, neither a
        // branch's nor a tag's.
        let of_roles = |playbook: &Playbook, project: &ProjectName| match change.key.moved() {
            None => vec![Asked::Nothing],
            Some(_) => Vec::from(
                [playbook.branch.clone(), layout.default_branch(project)].map(Asked::Branch),
            ),
        };
        for job in &graph.jobs {
            if let Some(checkout) = of_all(job, &change.key.project) {
                wanted.insert((
                    change.key.connection.clone(),
                    change.key.project.clone(),
                    checkout,
                ));
            }
            for required in &job.required_projects {
                // Where the first one is not there, the second may be.
                let own = required.override_checkout.clone().map(Asked::Checkout);
                let mut asked: Vec<Asked> =
                    [own, of_all(job, &required.project)].into_iter().flatten().collect();
                if asked.is_empty() {
                    asked.push(Asked::Nothing);
                }
                let (connection, project) = (&required.connection, &required.project);
                wanted.extend(
                    asked.into_iter().map(|asked| (connection.clone(), project.clone(), asked)),
                );
            }
            for playbook in playbooks(job) {
                let asked = Asked::Branch(playbook.branch.clone());
                wanted.insert((playbook.connection.clone(), playbook.project.clone(), asked));
                for role in &playbook.roles {
                    let of_role = of_roles(playbook, &role.project).into_iter();
                    wanted.extend(
                        of_role.map(|asked| (role.connection.clone(), role.project.clone(), asked)),
                    );
                }
            }
            for file in &job.run_time.include_vars {
                let (connection, project) = file.source.project(&change.key);
                // Of a tag it is read as the tag has it, or as a branch has it.
                let is_of_tag = change.on_branch().is_none() && *project == change.key.project;
                let fallback =
                    || (is_of_tag && !file.use_ref).then(|| layout.default_branch(project));
                let branch = file.source.branch().cloned().or_else(fallback);
                // Without a branch of its own it is read of what the job checks out, as executors
                // choose.
                let asked = branch
                    .map(Asked::Branch)
                    .or_else(|| of_all(job, project))
                    .unwrap_or(Asked::Nothing);
                wanted.insert((connection.clone(), project.clone(), asked));
            }
        }
        // What lies beside included files is in no repository that could be asked: it is in place,
        // or nowhere.
        let beside = layout.tenant().included.as_ref().map(|included| &included.name);
        wanted.retain(|(_, project, _)| Some(project) != beside);
        let mut projects: BTreeMap<ProjectName, Vec<(ConnectionName, Asked)>> = BTreeMap::new();
        for (connection, project, asked) in wanted {
            projects.entry(project).or_default().push((connection, asked));
        }
        let projects: Vec<(ProjectName, Vec<(ConnectionName, Asked)>)> =
            projects.into_iter().collect();
        for some in projects.chunks(PROJECTS_AT_ONCE) {
            // What is put in place of one project says nothing of another's, so none waits for
            // another's forge.
            let before: &State = state;
            let found =
                try_join_all(some.iter().map(|(project, asked)| {
                    self.needed_of(before, project, asked, layout, change)
                }))
                .await?;
            for ((project, _), branches) in some.iter().zip(found) {
                state.speculation.branches.extend(branches);
                let default =
                    BranchKey { project: project.clone(), branch: layout.default_branch(project) };
                if state.branch(&default).is_some() {
                    state.speculation.defaults.retain(|known| known.project != default.project);
                    state.speculation.defaults.push(default);
                }
            }
        }
        for job in &mut graph.jobs {
            for playbook in job.pre_run.iter_mut().chain(&mut job.run).chain(&mut job.post_run) {
                pin(playbook, &state.speculation.branches, &state.speculation.defaults);
            }
            for file in &mut job.run_time.include_vars {
                pin_vars(file, change, layout, &state.speculation.branches);
            }
        }
        Ok(())
    }

    /// Returns the branches that one project lacks for what is asked of it, in the order in which
    /// it is asked.
    async fn needed_of(
        &self,
        state: &State,
        project: &ProjectName,
        wanted: &[(ConnectionName, Asked)],
        layout: &Layout,
        change: &ChangeRef,
    ) -> Result<Vec<BranchState>, Unmade> {
        let (fallback, main) = (layout.default_branch(project), BranchName::from("main"));
        let mut put: Vec<BranchState> = Vec::new();
        for (connection, asked) in wanted {
            let at = ProjectAt { connection: connection.clone(), project: project.clone() };
            let (branch, tag) = match asked {
                Asked::Nothing => (None, None),
                Asked::Branch(branch) => (Some(branch), None),
                Asked::Checkout(name) => {
                    (Some(name), Some(BranchName(format!("refs/tags/{name}"))))
                }
            };
            // As Zuul: the branch asked for, or the tag, else the change's own branch, else the
            // project's default.
            for candidate in
                [branch, tag.as_ref(), Some(&change.branch), Some(&fallback), Some(&main)]
                    .into_iter()
                    .flatten()
            {
                let key = BranchKey { project: project.clone(), branch: candidate.clone() };
                if state.branch(&key).is_some() || put.iter().any(|known| known.branch == key) {
                    break;
                }
                let found = match (asked, tag.as_ref() == Some(candidate)) {
                    (Asked::Checkout(name), true) => self.repos.tag(&at, name.as_str()).await,
                    _ => self.repos.tip(&at, candidate).await,
                };
                match found {
                    Ok(found) => {
                        put.push(found);
                        break;
                    }
                    Err(ReposError::Gone(_)) => {}
                    Err(error) => return Err(unmade(error)),
                }
            }
        }
        Ok(put)
    }
}

/// What is asked of a repository that a job needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    /// Nothing in particular: the change's own branch is meant.
    Nothing,
    /// A branch.
    Branch(BranchName),
    /// What a job has checked out: a branch, or where there is none of that name a tag.
    Checkout(BranchName),
}

/// Pins a trusted playbook to what is merged: proposed content of a config project is never
/// executed (Z2.2, X07).
///
/// Where its own branch is gone it is taken from the project's default, not from what some job had
/// put in place.
fn pin(playbook: &mut Playbook, branches: &[BranchState], defaults: &[BranchKey]) {
    if !playbook.trusted {
        return;
    }
    let of_project = |state: &&BranchState| state.branch.project == playbook.project;
    let exact =
        branches.iter().filter(of_project).find(|state| state.branch.branch == playbook.branch);
    let default = || {
        branches.iter().find(|state| {
            state.branch.project == playbook.project && defaults.contains(&state.branch)
        })
    };
    let state = exact.or_else(default).or_else(|| branches.iter().find(of_project));
    playbook.commit = state.map(|state| state.base.id.clone());
}

/// Pins a file of variables of a config project to what is merged: trusted playbooks see what it
/// says.
fn pin_vars(file: &mut IncludeVars, change: &ChangeRef, layout: &Layout, branches: &[BranchState]) {
    let (_, project) = file.source.project(&change.key);
    if !layout.tenant().source_project(project).is_some_and(|known| known.trust.is_trusted()) {
        return;
    }
    let default = layout.default_branch(project);
    let wanted = [file.source.branch(), Some(&default)].into_iter().flatten();
    let of_project = || branches.iter().filter(|state| state.branch.project == *project);
    let mut named =
        wanted.filter_map(|branch| of_project().find(|state| state.branch.branch == *branch));
    let state = named.next().or_else(|| of_project().next());
    file.commit = state.map(|state| state.base.id.clone());
}

fn playbooks(job: &FrozenJob) -> impl Iterator<Item = &Playbook> {
    job.pre_run.iter().chain(&job.run).chain(&job.post_run)
}

/// Returns the files of one branch, parsed; those that the layout has as they are need not be
/// parsed again.
fn configuration(
    layout: &Layout,
    project: &TenantProject,
    branch: &BranchName,
    files: Vec<(String, Vec<u8>)>,
) -> BranchConfig {
    let text = |(path, bytes): (String, Vec<u8>)| (path, text_of(bytes));
    let files: Vec<(String, String)> = files.into_iter().map(text).collect();
    let passed_over = passed_over(project, branch, &files);
    let read = source_files(project, branch, files);
    BranchConfig {
        project: project.name.clone(),
        branch: branch.clone(),
        fragments: read.iter().map(|file| layout.parse(file)).chain(passed_over).collect(),
    }
}

/// Returns how jobs were decided, as far as a report tells it.
fn lines_of(trace: &[JobTrace]) -> Vec<String> {
    let mut left = DEBUG_BYTES_MAX;
    let lines = trace.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut kept: Vec<String> = Vec::new();
    for line in lines.iter().flat_map(|text| text.lines()) {
        // A line of its own says that there were more.
        if line.len() + 1 >= left {
            kept.push("…".to_owned());
            break;
        }
        left -= line.len() + 1;
        kept.push(line.to_owned());
    }
    kept
}

/// Returns the answer for a change that is right only with what a change to a config project
/// brings.
fn not_before_it_is_merged(answer: MergeResult) -> MergeResult {
    let MergeResult::Misconfigured { mut errors, notes } = answer else { return answer };
    let sentence = "This change depends on a change to a config project, whose configuration is used only once it is merged.";
    errors.insert(0, sentence.to_owned());
    MergeResult::Misconfigured { errors, notes }
}

/// Returns the answer for errors: all for a comment, and those of the change's own files for its
/// lines.
fn misconfigured(errors: &[ConfigError], own: &BranchKey) -> MergeResult {
    MergeResult::Misconfigured { errors: texts(errors), notes: notes(errors, own) }
}

fn texts(errors: &[ConfigError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().take(ERRORS_MAX).map(ToString::to_string).collect();
    if errors.len() > ERRORS_MAX {
        texts.push(format!("… and {} more", errors.len() - ERRORS_MAX));
    }
    texts
}

fn notes(errors: &[ConfigError], own: &BranchKey) -> Vec<LineNote> {
    let is_own = |error: &&ConfigError| error.project == own.project && error.branch == own.branch;
    let note = |error: &ConfigError| {
        let ReviewComment { path, line, start_line, message, .. } = error.review_comment();
        LineNote {
            path,
            line,
            start_line: Some(start_line).filter(|start| *start < line),
            text: message,
        }
    };
    errors.iter().filter(is_own).take(LINE_NOTES_MAX).map(note).collect()
}
