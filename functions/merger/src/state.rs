//! The tested state: the state of the item ahead, then the changes below the item's own, then its
//! own.
//!
//! The members of a bundle are merged together, in landing order, when the first member's state is
//! requested. The others start from that state and find their own results in it, so that all are
//! tested on one state.

use crate::{MergeFailure, Merger, merge_failure};
use sluice_gate::{Candidate, Item, MergeResult, MergeStatus, MergedChange};
use sluice_model::BranchName;
use sluice_model::build::{AppliedMember, Speculation, SpeculativeChange};
use sluice_model::change::RefMove;
use sluice_model::git::{BranchKey, BranchState, Commit, Oid};
use sluice_records::layout::LiveLayout;
use sluice_repos::{BranchMerge, BranchMergeResult, ProjectAt, ReposError, is_configuration};

/// The most branches that are listed for a tag's commit.
const CONTAINING_MAX: usize = 1_000;

/// A tested state while it is computed.
pub(crate) struct MergedState {
    /// The state of the branches, for jobs and for items behind.
    pub(crate) speculation: Speculation,
    /// The commit of the item's own branch without its change.
    pub(crate) base: Option<Commit>,
    /// The commit of the item's own branch with its change, which need not be the last one merged:
    /// what is tested.
    pub(crate) tested: Option<Commit>,
    /// Whether that commit is stored, so that the branch can be fast-forwarded to it.
    pub(crate) can_fast_forward: bool,
    /// The paths that the item's own change touches; `None` where they are too many.
    pub(crate) files: Option<Vec<String>>,
    /// Whether the item's own change edits configuration.
    pub(crate) touches_configuration: bool,
}

impl MergedState {
    /// Returns the state of a branch if the merged state contains it.
    pub(crate) fn branch(&self, key: &BranchKey) -> Option<&BranchState> {
        self.speculation.branches.iter().find(|state| state.branch == *key)
    }

    /// Copies the result of the item's own change into the state: its base, its tested commit,
    /// whether it can be fast-forwarded, its files, and whether it edits configuration.
    fn take(&mut self, placed: AppliedMember) {
        (self.base, self.tested, self.can_fast_forward) =
            (Some(placed.base), Some(placed.result), placed.is_stored);
        (self.files, self.touches_configuration) = (placed.files, placed.configures);
    }

    /// Adds the state of a branch, or replaces the one of the same branch.
    pub(crate) fn put_branch(&mut self, state: BranchState) {
        match self.speculation.branches.iter_mut().find(|stored| stored.branch == state.branch) {
            Some(stored) => *stored = state,
            None => self.speculation.branches.push(state),
        }
    }
}

impl Merger {
    /// Reads the merged state that the item's merge request names, that of the item ahead; starts
    /// an empty one if the request names none. Fails if that state is missing or damaged. The state
    /// does not contain the item's change yet: see [`Self::put_changes`].
    pub(crate) async fn start(&self, item: &Item) -> Result<MergedState, MergeFailure> {
        let onto = match &item.merge_status {
            MergeStatus::Requested { onto, .. } => onto.as_ref(),
            _ => None,
        };
        let speculation = match onto {
            None => {
                let (changes, branches, configured, placed, defaults) = Default::default();
                Speculation {
                    changes,
                    branches,
                    config_branches: configured,
                    applied_members: placed,
                    containing: None,
                    defaults,
                }
            }
            Some(onto) => {
                let lost = |why: String| {
                    MergeFailure::Failed(format!("could not read {}: {why}", onto.speculation))
                };
                let object = self
                    .ports
                    .objects
                    .get(&onto.speculation)
                    .await?
                    .ok_or_else(|| lost("there is none".to_owned()))?;
                serde_json::from_slice(&object.bytes).map_err(|error| lost(error.to_string()))?
            }
        };
        // Each item reads which branches contain its own commit.
        let speculation = Speculation { containing: None, ..speculation };
        Ok(MergedState {
            speculation,
            base: None,
            tested: None,
            can_fast_forward: false,
            files: None,
            touches_configuration: false,
        })
    }

    /// Merges into the state the item's dependencies that are neither in it nor landed, then the
    /// item's change; of a bundle, all members in landing order. If the state ahead contains this
    /// member's result already, only takes that. `state` must come from [`Self::start`]. The inner
    /// error is the item's outcome, for example a conflict; the state is then incomplete.
    pub(crate) async fn put_changes(
        &self,
        state: &mut MergedState,
        item: &Item,
        live: &LiveLayout,
    ) -> Result<Result<(), MergeResult>, MergeFailure> {
        let candidate = &item.candidate;
        let placed = std::mem::take(&mut state.speculation.applied_members);
        if let Some(placed) = placed.into_iter().find(|placed| placed.change == candidate.change) {
            state.take(placed);
            return Ok(Ok(()));
        }
        let landed = if let MergeStatus::Requested { landed, .. } = &item.merge_status {
            landed.as_slice()
        } else {
            &[]
        };
        let is_missing = |need: &&Candidate| {
            let is_below =
                state.speculation.changes.iter().any(|present| present.change == need.change);
            !is_below && !landed.contains(&need.change.key)
        };
        let below = candidate.needs_outside_bundle().filter(is_missing);
        let below: Vec<Candidate> = below.cloned().collect();
        for candidate in &below {
            if let Err(result) = self.put_change(state, candidate, live).await? {
                return Ok(Err(result));
            }
        }
        let members = candidate.bundle.iter().filter_map(|key| {
            candidate.needs.iter().chain([candidate]).find(|member| member.change.key == *key)
        });
        let together: Vec<&Candidate> =
            if candidate.bundle.is_empty() { vec![candidate] } else { members.collect() };
        let mut placed = Vec::with_capacity(together.len());
        for candidate in together {
            match self.put_change(state, candidate, live).await? {
                Ok(one) => placed.push(one),
                Err(result) => return Ok(Err(result)),
            }
        }
        if let Some(own_member) = placed.iter().find(|member| member.change == candidate.change) {
            state.take(own_member.clone());
        }
        if placed.len() > 1 {
            state.speculation.applied_members = placed;
        }
        Ok(Ok(()))
    }

    /// Merges one change into the state, which must not contain it yet, and returns its effect on
    /// its branch. A change that is already merged, or a ref, is added without merging. The inner
    /// error is the item's outcome: a conflict, a commit that is gone, or a project that the tenant
    /// does not have by the change's connection.
    async fn put_change(
        &self,
        state: &mut MergedState,
        candidate: &Candidate,
        live: &LiveLayout,
    ) -> Result<Result<AppliedMember, MergeResult>, MergeFailure> {
        let change = &candidate.change;
        let conflict =
            |detail: String| Ok(Err(MergeResult::Conflict { change: change.clone(), detail }));
        // Intake checked this already; a project outside the tenant must not even be fetched.
        let project = live.layout.tenant().project(&change.key.project);
        let Some(project) = project.filter(|project| project.connection == change.key.connection)
        else {
            return conflict(format!(
                "{} is not a project of tenant {}",
                change.key.project, live.tenant.name
            ));
        };
        if let Some(moved) = change.key.ref_move() {
            return self.put_ref(state, candidate, moved, live).await;
        }
        if let Some(merged) = &candidate.merged {
            return self.put_merged(state, candidate, merged).await;
        }
        let key = BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        let onto = state.branch(&key).cloned();
        let ask = BranchMerge {
            connection: change.key.connection.clone(),
            branch: key.clone(),
            onto: onto.clone(),
            head: change.head.clone(),
            mode: live.layout.merge_mode(&key.project),
            message: format!("Merge {}: {}", change.key, candidate.title),
        };
        let (merged, files, has_delta) = match self.repos.merge(&ask).await {
            Ok(BranchMergeResult::Merged { state, files, has_delta }) => (state, files, has_delta),
            Ok(BranchMergeResult::Conflict { detail }) => return conflict(detail),
            Err(ReposError::Gone(why)) => return conflict(why),
            Err(error) => return Err(merge_failure(error)),
        };
        let extra = &project.extra_config_paths;
        let configures = files
            .as_ref()
            .is_none_or(|files| files.iter().any(|path| is_configuration(path, extra)));
        // A branch that is always dynamic has only proposed configuration.
        let proposes = configures || project.is_always_dynamic(key.branch.as_str());
        if proposes && !state.speculation.config_branches.contains(&key) {
            state.speculation.config_branches.push(key);
        }
        let placed = AppliedMember {
            change: change.clone(),
            base: onto.map_or_else(|| merged.base.clone(), |onto| onto.result),
            result: merged.result.clone(),
            files,
            configures,
            is_stored: has_delta,
        };
        state
            .speculation
            .changes
            .push(speculative_change(candidate, Some(merged.result.id.clone())));
        state.put_branch(merged);
        Ok(Ok(placed))
    }

    /// Adds a change that is already merged: the tip of its branch is tested as it is. The inner
    /// error is a conflict, because the branch is gone.
    async fn put_merged(
        &self,
        state: &mut MergedState,
        candidate: &Candidate,
        merged: &MergedChange,
    ) -> Result<Result<AppliedMember, MergeResult>, MergeFailure> {
        let change = &candidate.change;
        let at = ProjectAt {
            connection: change.key.connection.clone(),
            project: change.key.project.clone(),
        };
        let tip = match self.repos.branch_tip(&at, &change.branch).await {
            Ok(tip) => tip,
            Err(ReposError::Gone(detail)) => {
                return Ok(Err(MergeResult::Conflict { change: change.clone(), detail }));
            }
            Err(error) => return Err(merge_failure(error)),
        };
        let placed = placed_as_it_is(candidate, &tip, merged.files.clone());
        state.speculation.changes.push(speculative_change(candidate, Some(tip.result.id.clone())));
        state.put_branch(tip);
        Ok(Ok(placed))
    }

    /// Adds the state of a ref, without merging: the pushed commit; for a timer event, the tip of
    /// its branch; for a deleted ref, the tip of the project's default branch. For a tag, also
    /// finds the branches that contain it. The inner error is a conflict: the commit or branch is
    /// gone.
    async fn put_ref(
        &self,
        state: &mut MergedState,
        candidate: &Candidate,
        moved: &RefMove,
        live: &LiveLayout,
    ) -> Result<Result<AppliedMember, MergeResult>, MergeFailure> {
        let change = &candidate.change;
        let (connection, project) = (change.key.connection.clone(), change.key.project.clone());
        let at = ProjectAt { connection, project };
        let found = match (&moved.newrev, moved.branch()) {
            (Some(_), branch) => {
                let since = moved.oldrev.as_ref().filter(|_| branch.is_some());
                self.repos.commit_state(&at, &change.branch, &change.head, since).await
            }
            (None, Some(branch)) if !moved.is_deleted() => {
                self.repos.branch_tip(&at, &branch).await.map(|tip| (tip, None))
            }
            (None, _) => {
                let default = live.layout.default_branch(&at.project);
                self.repos.branch_tip(&at, &default).await.map(|tip| (tip, None))
            }
        };
        let (found, files) = match found {
            Ok(found) => found,
            Err(ReposError::Gone(detail)) => {
                return Ok(Err(MergeResult::Conflict { change: change.clone(), detail }));
            }
            Err(error) => return Err(merge_failure(error)),
        };
        if moved.tag().is_some() && moved.newrev.is_some() {
            state.speculation.containing = match self.containing(&at, &change.head, live).await? {
                Ok(branches) => branches,
                Err(detail) => {
                    return Ok(Err(MergeResult::Conflict { change: change.clone(), detail }));
                }
            };
        }
        let placed = placed_as_it_is(candidate, &found, files);
        state.speculation.changes.push(speculative_change(candidate, None));
        state.put_branch(found);
        Ok(Ok(placed))
    }

    /// Returns the branches that contain a tag's commit, by which its jobs are selected: the
    /// default branch first, at most [`CONTAINING_MAX`]. `None` if the repository is too large to
    /// search. The inner error says that the commit is gone.
    async fn containing(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        live: &LiveLayout,
    ) -> Result<Result<Option<Vec<BranchName>>, String>, MergeFailure> {
        let mut branches = match self.repos.branches_containing(at, commit).await {
            Ok(branches) => branches,
            Err(ReposError::Gone(why)) => return Ok(Err(why)),
            // A retry would fail, too. The tag's jobs are then selected as for any branch.
            Err(ReposError::Unreadable(why)) => {
                tracing::warn!(project = %at.project, %commit, why, "cannot determine the branches with a tag's commit");
                return Ok(Ok(None));
            }
            Err(error) => return Err(merge_failure(error)),
        };
        let default = live.layout.default_branch(&at.project);
        branches.sort_by_key(|branch| *branch != default);
        if branches.len() > CONTAINING_MAX {
            let left_out = branches.len() - CONTAINING_MAX;
            tracing::warn!(project = %at.project, %commit, left_out, "a tag's commit is in more branches than are listed");
            branches.truncate(CONTAINING_MAX);
        }
        Ok(Ok(Some(branches)))
    }
}

/// Returns the effect of a change that is tested without merging: the branch before and after it is
/// the same. It counts as editing no configuration, and its commit as not stored.
fn placed_as_it_is(
    candidate: &Candidate,
    state: &BranchState,
    files: Option<Vec<String>>,
) -> AppliedMember {
    let (base, result) = (state.base.clone(), state.result.clone());
    AppliedMember {
        change: candidate.change.clone(),
        base,
        result,
        files,
        configures: false,
        is_stored: false,
    }
}

/// Returns the facts about a change of the state that jobs get as variables. `merge_commit` is
/// `None` for a ref.
fn speculative_change(candidate: &Candidate, merge_commit: Option<Oid>) -> SpeculativeChange {
    SpeculativeChange {
        change: candidate.change.clone(),
        url: candidate.url.clone(),
        title: candidate.title.clone(),
        message: candidate.message.clone(),
        topic: candidate.topic.clone(),
        merge_commit,
    }
}
