//! Computes the configuration that an item runs under, freezes its jobs, and adds every further
//! branch that those jobs need.

use crate::state::MergedState;
use crate::{MergeFailure, Merger, merge_failure};
use futures::future::try_join_all;
use sluice_config::fragment::{ignored_locations, source_files, text_of};
use sluice_config::job::{FreezeInput, JobTrace};
use sluice_config::layout::{BranchConfig, Layout, Scope};
use sluice_config::tenant::TenantProject;
use sluice_config::{ConfigError, ReviewComment};
use sluice_gate::merge::{
    DEBUG_BYTES_MAX, LINE_NOTE_BYTES_MAX, LINE_NOTES_MAX, LineNote, TestedState, WARNINGS_MAX,
};
use sluice_gate::{Candidate, Item, MergeResult};
use sluice_model::change::ChangeRef;
use sluice_model::git::{BranchKey, BranchState, Commit};
use sluice_model::job::{FrozenJob, IncludeVars, JobGraph, Playbook};
use sluice_model::{BranchName, ConnectionName, ProjectName, QueueKey};
use sluice_records::layout::LiveLayout;
use sluice_repos::{ProjectAt, ReposError};
use std::collections::{BTreeMap, BTreeSet};

/// The most errors in a report; the rest is counted.
const ERRORS_MAX: usize = 20;
/// The number of projects whose branches are read concurrently.
const PROJECTS_AT_ONCE: usize = 4;

impl Merger {
    /// Freezes the item's jobs in the merged state, stores the job graph and the state as objects,
    /// and returns the outcome that names them. Adds the branches that jobs need to `state`, which
    /// must contain the item's change already. If the configuration of the change or its
    /// dependencies has new errors, a job cannot be frozen, or a playbook is missing, the outcome
    /// lists the errors and nothing is stored.
    pub(crate) async fn freeze(
        &self,
        key: &QueueKey,
        state: &mut MergedState,
        item: &Item,
        live: &LiveLayout,
    ) -> Result<MergeResult, MergeFailure> {
        let change = &item.candidate.change;
        let branch =
            BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        let proposed = self.proposed(state, live, None).await?;
        let overlay =
            (!proposed.is_empty()).then(|| live.layout.overlay(&proposed, Scope::UntrustedOnly));
        if let Some(result) = self.invalid_dependencies(state, item, &proposed, live).await? {
            return Ok(result);
        }
        let mut warnings = Vec::new();
        if state.touches_configuration {
            let checked = live.layout.overlay(&proposed, Scope::ToValidate);
            let mut errors = checked.errors_since(&live.layout);
            errors.extend(
                self.removed_playbooks(state, &branch, &proposed, &checked, &live.layout).await?,
            );
            if !errors.is_empty() {
                return Ok(misconfigured(&errors, &branch));
            }
            warnings = warnings_of(&checked, &branch);
        }
        let waits = self.waits_for_config_project(state, &branch, live);
        if let Some(overlay) = overlay.as_ref().filter(|_| waits && state.touches_configuration) {
            let errors = overlay.errors_since(&live.layout);
            if !errors.is_empty() {
                return Ok(with_config_project_note(misconfigured(&errors, &branch)));
            }
        }
        let layout: &Layout = overlay.as_ref().unwrap_or(&live.layout);
        let input = FreezeInput {
            pipeline: key.pipeline.as_str(),
            project: &branch.project,
            branch: change.on_branch().map(BranchName::as_str),
            containing: state.speculation.containing.as_deref(),
            git_ref: change.key.ref_move().map_or(branch.branch.as_str(), |moved| &moved.git_ref),
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
                return Ok(with_config_project_note(misconfigured(&errors, &branch)));
            }
            Err(errors) => return Ok(misconfigured(&errors, &branch)),
        };
        let errors = self.assign_included(state, &mut graph, layout).await?;
        if !errors.is_empty() {
            return Ok(misconfigured(&errors, &branch));
        }
        self.add_needed_branches(state, &mut graph, layout, change).await?;
        let errors = self.missing_playbooks(state, &graph, layout).await?;
        if !errors.is_empty() {
            return Ok(misconfigured(&errors, &branch));
        }
        let (Some(base), Some(tested)) = (state.base.clone(), state.tested.clone()) else {
            return Err(MergeFailure::Failed(format!("{change} has no merged state")));
        };
        // Stored concurrently, since both are read only once the outcome names them.
        let (speculation, graph_object) = futures::try_join!(
            self.store("speculations", &state.speculation),
            self.store("jobs", &graph)
        )?;
        Ok(MergeResult::Merged(TestedState {
            speculation,
            jobs: graph.summaries(),
            graph: graph_object,
            base,
            tested,
            can_fast_forward: state.can_fast_forward,
            touches_configuration: state.touches_configuration,
            fail_fast,
            debug: lines_of(&trace),
            warnings,
        }))
    }

    /// Returns the outcome of an item whose dependencies propose an invalid configuration (C12),
    /// since the error is not its own; it lists the errors of `proposed`, the configuration of the
    /// whole state. `None` if the dependencies' configuration is valid, if there are no
    /// dependencies or no proposed configuration, or if the item is in a bundle or edits
    /// configuration in a dependency cycle: those are checked together.
    async fn invalid_dependencies(
        &self,
        state: &MergedState,
        item: &Item,
        proposed: &[BranchConfig],
        live: &LiveLayout,
    ) -> Result<Option<MergeResult>, MergeFailure> {
        let Candidate { change, needs, bundle, cycle_needs, .. } = &item.candidate;
        let own = BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        // Members of a dependency cycle are checked together, since a part of it may be invalid
        // alone. An author who edits a part gets the errors of all of it.
        let is_one = !bundle.is_empty() || (!cycle_needs.is_empty() && state.touches_configuration);
        let is_plain = needs.is_empty() || is_one || state.speculation.config_branches.is_empty();
        let (false, Some(base)) = (is_plain, &state.base) else {
            return Ok(None);
        };
        let of_own = cycle_needs.is_empty() && state.speculation.config_branches.contains(&own);
        let below = if of_own {
            self.proposed(state, live, Some((&own, base))).await?
        } else {
            proposed.to_vec()
        };
        let wrong = live.layout.overlay(&below, Scope::ToValidate).errors_since(&live.layout);
        if wrong.is_empty() {
            return Ok(None);
        }
        // The change's own errors are included, so that they can be fixed in the meantime.
        let all = live.layout.overlay(proposed, Scope::ToValidate).errors_since(&live.layout);
        let (_, fresh): (Vec<ConfigError>, _) =
            all.iter().cloned().partition(|error| wrong.contains(error));
        let sentence = "This change depends on a change with an invalid configuration.".to_owned();
        let errors = std::iter::once(sentence).chain(texts(&all)).collect();
        Ok(Some(MergeResult::Misconfigured { errors, notes: notes(&fresh, &own) }))
    }

    /// Returns whether the state has proposed configuration of a config project on another branch
    /// than `own`, the branch of the item. Such configuration has no effect before it is merged
    /// (X07).
    fn waits_for_config_project(
        &self,
        state: &MergedState,
        own: &BranchKey,
        live: &LiveLayout,
    ) -> bool {
        let is_trusted = |key: &BranchKey| {
            let project = live.layout.tenant().project(&key.project);
            project.is_some_and(|project| project.trust.is_trusted())
        };
        state.speculation.config_branches.iter().any(|key| key != own && is_trusted(key))
    }

    /// Returns the configuration that the changes of the state propose, one entry for each branch
    /// of which a change edits configuration or that is always dynamic (Z6.6). `instead` replaces
    /// the commit of one branch. Projects that the layout lacks or from which the tenant reads
    /// nothing are left out.
    async fn proposed(
        &self,
        state: &MergedState,
        live: &LiveLayout,
        instead: Option<(&BranchKey, &Commit)>,
    ) -> Result<Vec<BranchConfig>, MergeFailure> {
        let mut proposed = Vec::new();
        for key in &state.speculation.config_branches {
            let project = live
                .layout
                .project(key.project.as_str())
                .filter(|project| !project.reads_nothing());
            let Some(project) = project.cloned() else { continue };
            let Some(branch) = state.branch(key) else { continue };
            let commit =
                instead.filter(|(of, _)| *of == key).map_or(&branch.result, |(_, commit)| commit);
            let at =
                ProjectAt { connection: project.connection.clone(), project: key.project.clone() };
            let files = self
                .repos
                .configuration_files(&at, &commit.id, Some(branch), &project.extra_config_paths)
                .await
                .map_err(merge_failure)?;
            proposed.push(configuration(&live.layout, &project, &key.branch, files));
        }
        Ok(proposed)
    }

    /// Adds the branches that jobs need to the state: of the change's own project, required
    /// projects, playbooks, roles and variables files. Sets in `graph` the commits of trusted
    /// playbooks and of variables files of config projects. The caller has replaced the included
    /// project in `graph` ([`Self::assign_included`]); files that are still of it are left out.
    async fn add_needed_branches(
        &self,
        state: &mut MergedState,
        graph: &mut JobGraph,
        layout: &Layout,
        change: &ChangeRef,
    ) -> Result<(), MergeFailure> {
        let mut needed: BTreeSet<(ConnectionName, ProjectName, NeededCheckout)> = BTreeSet::new();
        // The job's checkout for all its projects, except config projects: anyone may push a branch
        // there, and roles of trusted playbooks are taken from the state.
        let of_all = |job: &FrozenJob, project: &ProjectName| {
            let is_trusted =
                layout.tenant().project(project).is_none_or(|known| known.trust.is_trusted());
            job.override_checkout.clone().filter(|_| !is_trusted).map(NeededCheckout::Checkout)
        };
        // As in the executor: the name of a pushed branch or tag does not select the roles' branch.
        let of_roles = |playbook: &Playbook, project: &ProjectName| match change.key.ref_move() {
            None => vec![NeededCheckout::Nothing],
            Some(_) => Vec::from(
                [playbook.branch.clone(), layout.default_branch(project)]
                    .map(NeededCheckout::Branch),
            ),
        };
        for job in &graph.jobs {
            if let Some(checkout) = of_all(job, &change.key.project) {
                needed.insert((
                    change.key.connection.clone(),
                    change.key.project.clone(),
                    checkout,
                ));
            }
            for required in &job.required_projects {
                // If the first one does not exist, the second may.
                let override_checkout =
                    required.override_checkout.clone().map(NeededCheckout::Checkout);
                let mut checkouts: Vec<NeededCheckout> =
                    [override_checkout, of_all(job, &required.project)]
                        .into_iter()
                        .flatten()
                        .collect();
                if checkouts.is_empty() {
                    checkouts.push(NeededCheckout::Nothing);
                }
                let (connection, project) = (&required.connection, &required.project);
                needed.extend(
                    checkouts
                        .into_iter()
                        .map(|checkout| (connection.clone(), project.clone(), checkout)),
                );
            }
            for playbook in playbooks(job) {
                let checkout = NeededCheckout::Branch(playbook.branch.clone());
                needed.insert((playbook.connection.clone(), playbook.project.clone(), checkout));
                for role in playbook.role_repositories() {
                    let of_role = of_roles(playbook, &role.project).into_iter();
                    needed.extend(
                        of_role.map(|checkout| {
                            (role.connection.clone(), role.project.clone(), checkout)
                        }),
                    );
                }
            }
            for file in &job.run_time.include_vars {
                let (connection, project) = file.source.project(&change.key);
                // For a tag, the file is read from the tag or from a branch.
                let is_of_tag = change.on_branch().is_none() && *project == change.key.project;
                let fallback =
                    || (is_of_tag && !file.use_ref).then(|| layout.default_branch(project));
                let branch = file.source.branch().cloned().or_else(fallback);
                // Without a branch of its own, it is read from the job's checkout, as in the
                // executor.
                let checkout = branch
                    .map(NeededCheckout::Branch)
                    .or_else(|| of_all(job, project))
                    .unwrap_or(NeededCheckout::Nothing);
                needed.insert((connection.clone(), project.clone(), checkout));
            }
        }
        // Files next to included files are in no repository: they are in the state already or
        // missing.
        let included = layout.tenant().included.as_ref().map(|included| &included.name);
        needed.retain(|(_, project, _)| Some(project) != included);
        let mut projects: BTreeMap<ProjectName, Vec<(ConnectionName, NeededCheckout)>> =
            BTreeMap::new();
        for (connection, project, checkout) in needed {
            projects.entry(project).or_default().push((connection, checkout));
        }
        let projects: Vec<(ProjectName, Vec<(ConnectionName, NeededCheckout)>)> =
            projects.into_iter().collect();
        for page in projects.chunks(PROJECTS_AT_ONCE) {
            // Projects are independent of each other, so their forges are asked concurrently.
            let before: &MergedState = state;
            let found = try_join_all(page.iter().map(|(project, checkouts)| {
                self.missing_branches_of(before, project, checkouts, layout, change)
            }))
            .await?;
            for ((project, _), branches) in page.iter().zip(found) {
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

    /// Reads the tips of the branches of one project that jobs need and the state lacks, in the
    /// order in which they are needed. Each is the requested branch or tag, otherwise the change's
    /// own branch, the project's default branch, or `main`, whichever exists first. Nothing is
    /// returned for one that the state contains or of which none exists.
    async fn missing_branches_of(
        &self,
        state: &MergedState,
        project: &ProjectName,
        needed: &[(ConnectionName, NeededCheckout)],
        layout: &Layout,
        change: &ChangeRef,
    ) -> Result<Vec<BranchState>, MergeFailure> {
        let (fallback, main) = (layout.default_branch(project), BranchName::from("main"));
        let mut put: Vec<BranchState> = Vec::new();
        for (connection, checkout) in needed {
            let at = ProjectAt { connection: connection.clone(), project: project.clone() };
            let (branch, tag) = match checkout {
                NeededCheckout::Nothing => (None, None),
                NeededCheckout::Branch(branch) => (Some(branch), None),
                NeededCheckout::Checkout(name) => {
                    (Some(name), Some(BranchName(format!("refs/tags/{name}"))))
                }
            };
            // As in Zuul: the requested branch or tag, otherwise the change's own branch, otherwise
            // the project's default branch.
            for candidate in
                [branch, tag.as_ref(), Some(&change.branch), Some(&fallback), Some(&main)]
                    .into_iter()
                    .flatten()
            {
                let key = BranchKey { project: project.clone(), branch: candidate.clone() };
                if state.branch(&key).is_some() || put.iter().any(|added| added.branch == key) {
                    break;
                }
                let found = match (checkout, tag.as_ref() == Some(candidate)) {
                    (NeededCheckout::Checkout(name), true) => {
                        self.repos.tag_state(&at, name.as_str()).await
                    }
                    _ => self.repos.branch_tip(&at, candidate).await,
                };
                match found {
                    Ok(found) => {
                        put.push(found);
                        break;
                    }
                    Err(ReposError::Gone(_)) => {}
                    Err(error) => return Err(merge_failure(error)),
                }
            }
        }
        Ok(put)
    }
}

/// The checkout of a project that a job needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum NeededCheckout {
    /// The change's own branch.
    Nothing,
    /// This branch.
    Branch(BranchName),
    /// A job's `override-checkout`: the branch of this name, or the tag where there is none.
    Checkout(BranchName),
}

/// Sets the commit of a trusted playbook to that of its branch without the changes of the state:
/// proposed content of a config project is never executed (Z2.2, X07). Other playbooks stay as they
/// are. Where its own branch is not in `branches`, its project's default branch counts, then any
/// branch of the project; the commit is `None` if there is none.
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

/// Sets the commit of a variables file of a config project to the merged one, because trusted
/// playbooks use its values. Files of other projects stay as they are. The branch is the file's
/// own, otherwise the project's default branch, otherwise any of the project in `branches`; the
/// commit is `None` if there is none.
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

/// Returns all playbooks of a job in the order of their phases.
fn playbooks(job: &FrozenJob) -> impl Iterator<Item = &Playbook> {
    job.pre_run.iter().chain(&job.run).chain(&job.post_run)
}

/// Parses the configuration files of one branch; `files` are their paths and contents. Files that
/// the layout has unchanged are not parsed again. A location that is ignored because of an earlier
/// one gives a warning.
fn configuration(
    layout: &Layout,
    project: &TenantProject,
    branch: &BranchName,
    files: Vec<(String, Vec<u8>)>,
) -> BranchConfig {
    let text = |(path, bytes): (String, Vec<u8>)| (path, text_of(bytes));
    let files: Vec<(String, String)> = files.into_iter().map(text).collect();
    let ignored_locations = ignored_locations(project, branch, &files);
    let read = source_files(project, branch, files);
    BranchConfig {
        project: project.name.clone(),
        branch: branch.clone(),
        fragments: read.iter().map(|file| layout.parse(file)).chain(ignored_locations).collect(),
    }
}

/// Returns the lines of the trace of why jobs were selected or not, at most [`DEBUG_BYTES_MAX`]
/// bytes in total. If lines are missing, the last one is `…`.
fn lines_of(trace: &[JobTrace]) -> Vec<String> {
    let mut left = DEBUG_BYTES_MAX;
    let lines = trace.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut trace_lines: Vec<String> = Vec::new();
    for line in lines.iter().flat_map(|text| text.lines()) {
        // The last line says that lines are missing.
        if line.len() + 1 >= left {
            trace_lines.push("…".to_owned());
            break;
        }
        left -= line.len() + 1;
        trace_lines.push(line.to_owned());
    }
    trace_lines
}

/// Adds a first line to configuration errors: the change depends on an unmerged change to a config
/// project, which has no effect yet. Any other outcome stays as it is.
fn with_config_project_note(answer: MergeResult) -> MergeResult {
    let MergeResult::Misconfigured { mut errors, notes } = answer else { return answer };
    let sentence = "This change depends on a change to a config project, whose configuration is used only once it is merged.";
    errors.insert(0, sentence.to_owned());
    MergeResult::Misconfigured { errors, notes }
}

/// Returns the outcome for configuration errors: all as text, and those in the change's own files
/// also as line comments.
fn misconfigured(errors: &[ConfigError], own: &BranchKey) -> MergeResult {
    MergeResult::Misconfigured { errors: texts(errors), notes: notes(errors, own) }
}

/// Formats configuration errors as texts. After the first [`ERRORS_MAX`], a last line says how many
/// more there are.
fn texts(errors: &[ConfigError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().take(ERRORS_MAX).map(ToString::to_string).collect();
    if errors.len() > ERRORS_MAX {
        texts.push(format!("… and {} more", errors.len() - ERRORS_MAX));
    }
    texts
}

/// Returns the warnings about proposed configuration of the change's own project and branch, each
/// cut to [`LINE_NOTE_BYTES_MAX`] bytes. The last of [`WARNINGS_MAX`] says how many more there are.
fn warnings_of(checked: &Layout, own: &BranchKey) -> Vec<String> {
    let mut found = checked.proposed_label_warnings();
    found.retain(|warning| warning.project == own.project && warning.branch == own.branch);
    let text = |warning: &ConfigError| {
        let (line, stanza) = (warning.diagnostic.start.line(), &warning.diagnostic.stanza);
        let mut text = format!("{} line {line}, {stanza}: {}", warning.path, warning.short_text());
        text.truncate(text.floor_char_boundary(LINE_NOTE_BYTES_MAX));
        text
    };
    let mut texts: Vec<String> = found.iter().take(WARNINGS_MAX).map(text).collect();
    if found.len() > WARNINGS_MAX {
        texts.truncate(WARNINGS_MAX - 1);
        texts.push(format!("… and {} more", found.len() - texts.len()));
    }
    texts
}

/// Returns line comments for the configuration errors in the change's own project and branch, at
/// most [`LINE_NOTES_MAX`].
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
