//! The tested state: what is ahead, then the changes below the item's own, then its own.
//!
//! Changes that need each other are put on it together, in the order they land, when the first of
//! them is asked for. The others start from that state and find there what they made of their
//! branches, so that all are tested on one state.

use crate::{Merger, Unmade, unmade};
use sluice_gate::{Ask, Candidate, InBranch, Item, MergeResult};
use sluice_model::BranchName;
use sluice_model::build::{PlacedChange, Speculation, SpeculativeChange};
use sluice_model::change::RefMove;
use sluice_model::git::{BranchKey, BranchState, Commit, Oid};
use sluice_records::layout::Live;
use sluice_repos::{MergeAnswer, MergeAsk, ProjectAt, ReposError, is_configuration};

/// Branches that are kept of those that have a tag's commit.
const CONTAINING_MAX: usize = 1_000;

/// A state in the making.
pub(crate) struct State {
    pub(crate) speculation: Speculation,
    /// The item's own branch below its change.
    pub(crate) base: Option<Commit>,
    /// The same with its change, which need not be the last one that is put on it: what is tested.
    pub(crate) tested: Option<Commit>,
    /// Whether that is kept, so that the branch can be moved to it.
    pub(crate) kept: bool,
    /// Paths that the item's own change touches; `None` when they are too many.
    pub(crate) files: Option<Vec<String>>,
    pub(crate) touches_configuration: bool,
}

impl State {
    pub(crate) fn branch(&self, key: &BranchKey) -> Option<&BranchState> {
        self.speculation.branches.iter().find(|state| state.branch == *key)
    }

    /// Takes what the item's own change made of its branch.
    fn take(&mut self, placed: PlacedChange) {
        (self.base, self.tested, self.kept) = (Some(placed.base), Some(placed.result), placed.kept);
        (self.files, self.touches_configuration) = (placed.files, placed.configures);
    }

    pub(crate) fn put(&mut self, state: BranchState) {
        match self.speculation.branches.iter_mut().find(|known| known.branch == state.branch) {
            Some(known) => *known = state,
            None => self.speculation.branches.push(state),
        }
    }
}

impl Merger {
    /// Returns the state of the item ahead, or an empty one.
    pub(crate) async fn start(&self, item: &Item) -> Result<State, Unmade> {
        let onto = match &item.ask {
            Ask::Asked { onto, .. } => onto.as_ref(),
            _ => None,
        };
        let speculation = match onto {
            None => {
                let (changes, branches, configured, placed, defaults) = Default::default();
                Speculation { changes, branches, configured, placed, containing: None, defaults }
            }
            Some(onto) => {
                let lost = |why: String| {
                    Unmade::Failed(format!("could not read {}: {why}", onto.speculation))
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
        // Which branches have its own commit each item asks for itself.
        let speculation = Speculation { containing: None, ..speculation };
        Ok(State {
            speculation,
            base: None,
            tested: None,
            kept: false,
            files: None,
            touches_configuration: false,
        })
    }

    /// Puts what the item needs and its own change on the state. The inner error is the item's
    /// outcome.
    pub(crate) async fn put_changes(
        &self,
        state: &mut State,
        item: &Item,
        live: &Live,
    ) -> Result<Result<(), MergeResult>, Unmade> {
        let own = &item.candidate;
        let placed = std::mem::take(&mut state.speculation.placed);
        if let Some(placed) = placed.into_iter().find(|placed| placed.change == own.change) {
            state.take(placed);
            return Ok(Ok(()));
        }
        let landed =
            if let Ask::Asked { landed, .. } = &item.ask { landed.as_slice() } else { &[] };
        let is_missing = |need: &&Candidate| {
            let is_below =
                state.speculation.changes.iter().any(|known| known.change == need.change);
            !is_below && !landed.contains(&need.change.key)
        };
        let below = own.needs_besides_mates().filter(is_missing);
        let below: Vec<Candidate> = below.cloned().collect();
        for candidate in &below {
            if let Err(result) = self.put_change(state, candidate, live).await? {
                return Ok(Err(result));
            }
        }
        let mates = own
            .cycle
            .iter()
            .filter_map(|key| own.needs.iter().chain([own]).find(|one| one.change.key == *key));
        let together: Vec<&Candidate> =
            if own.cycle.is_empty() { vec![own] } else { mates.collect() };
        let mut placed = Vec::with_capacity(together.len());
        for candidate in together {
            match self.put_change(state, candidate, live).await? {
                Ok(one) => placed.push(one),
                Err(result) => return Ok(Err(result)),
            }
        }
        if let Some(one) = placed.iter().find(|one| one.change == own.change) {
            state.take(one.clone());
        }
        if placed.len() > 1 {
            state.speculation.placed = placed;
        }
        Ok(Ok(()))
    }

    async fn put_change(
        &self,
        state: &mut State,
        candidate: &Candidate,
        live: &Live,
    ) -> Result<Result<PlacedChange, MergeResult>, Unmade> {
        let change = &candidate.change;
        let conflict =
            |detail: String| Ok(Err(MergeResult::Conflict { change: change.clone(), detail }));
        // Whoever enqueued it made sure of that already; what nobody may see here is not even
        // fetched.
        let project = live.layout.tenant().project(&change.key.project);
        let Some(project) = project.filter(|project| project.connection == change.key.connection)
        else {
            return conflict(format!(
                "{} is no project of tenant {}",
                change.key.project, live.tenant.name
            ));
        };
        if let Some(moved) = change.key.moved() {
            return self.put_ref(state, candidate, moved, live).await;
        }
        if let Some(merged) = &candidate.merged {
            return self.put_merged(state, candidate, merged).await;
        }
        let key = BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        let onto = state.branch(&key).cloned();
        let ask = MergeAsk {
            connection: change.key.connection.clone(),
            branch: key.clone(),
            onto: onto.clone(),
            head: change.head.clone(),
            mode: live.layout.merge_mode(&key.project),
            message: format!("Merge {}: {}", change.key, candidate.title),
        };
        let (merged, files, kept) = match self.repos.merge(&ask).await {
            Ok(MergeAnswer::Merged { state, files, kept }) => (state, files, kept),
            Ok(MergeAnswer::Conflict { detail }) => return conflict(detail),
            Err(ReposError::Gone(why)) => return conflict(why),
            Err(error) => return Err(unmade(error)),
        };
        let extra = &project.extra_config_paths;
        let configures = files
            .as_ref()
            .is_none_or(|files| files.iter().any(|path| is_configuration(path, extra)));
        // Of such a branch nothing is configured but by its changes, whatever they touch.
        let proposes = configures || project.is_always_dynamic(key.branch.as_str());
        if proposes && !state.speculation.configured.contains(&key) {
            state.speculation.configured.push(key);
        }
        let placed = PlacedChange {
            change: change.clone(),
            base: onto.map_or_else(|| merged.base.clone(), |onto| onto.result),
            result: merged.result.clone(),
            files,
            configures,
            kept,
        };
        state.speculation.changes.push(told(candidate, Some(merged.result.id.clone())));
        state.put(merged);
        Ok(Ok(placed))
    }

    /// Puts a change on the state that is in its branch already: that is tested as it is.
    async fn put_merged(
        &self,
        state: &mut State,
        candidate: &Candidate,
        merged: &InBranch,
    ) -> Result<Result<PlacedChange, MergeResult>, Unmade> {
        let change = &candidate.change;
        let at = ProjectAt {
            connection: change.key.connection.clone(),
            project: change.key.project.clone(),
        };
        let tip = match self.repos.tip(&at, &change.branch).await {
            Ok(tip) => tip,
            Err(ReposError::Gone(detail)) => {
                return Ok(Err(MergeResult::Conflict { change: change.clone(), detail }));
            }
            Err(error) => return Err(unmade(error)),
        };
        let placed = placed_as_it_is(candidate, &tip, merged.files.clone());
        state.speculation.changes.push(told(candidate, Some(tip.result.id.clone())));
        state.put(tip);
        Ok(Ok(placed))
    }

    /// Puts a ref on the state as it was pushed: nothing is merged. One that nobody pushed, a
    /// timer's, is where its branch is now; of one that was deleted there is nothing, and its jobs
    /// find the project's default branch.
    async fn put_ref(
        &self,
        state: &mut State,
        candidate: &Candidate,
        moved: &RefMove,
        live: &Live,
    ) -> Result<Result<PlacedChange, MergeResult>, Unmade> {
        let change = &candidate.change;
        let (connection, project) = (change.key.connection.clone(), change.key.project.clone());
        let at = ProjectAt { connection, project };
        let found = match (&moved.newrev, moved.branch()) {
            (Some(_), branch) => {
                let since = moved.oldrev.as_ref().filter(|_| branch.is_some());
                self.repos.at(&at, &change.branch, &change.head, since).await
            }
            (None, Some(branch)) if !moved.is_deleted() => {
                self.repos.tip(&at, &branch).await.map(|tip| (tip, None))
            }
            (None, _) => {
                let default = live.layout.default_branch(&at.project);
                self.repos.tip(&at, &default).await.map(|tip| (tip, None))
            }
        };
        let (found, files) = match found {
            Ok(found) => found,
            Err(ReposError::Gone(detail)) => {
                return Ok(Err(MergeResult::Conflict { change: change.clone(), detail }));
            }
            Err(error) => return Err(unmade(error)),
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
        state.speculation.changes.push(told(candidate, None));
        state.put(found);
        Ok(Ok(placed))
    }

    /// Returns the branches whose history has a tag's commit, by which its jobs are chosen; `None`
    /// where the repository is too large to tell. The inner error says that the commit is gone. Of
    /// very many the default branch counts, and the first by name.
    async fn containing(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        live: &Live,
    ) -> Result<Result<Option<Vec<BranchName>>, String>, Unmade> {
        let mut branches = match self.repos.containing(at, commit).await {
            Ok(branches) => branches,
            Err(ReposError::Gone(why)) => return Ok(Err(why)),
            // It is the same at each attempt; the tag is tested by what is said for any branch, as
            // if nobody had asked.
            Err(ReposError::Unreadable(why)) => {
                tracing::warn!(project = %at.project, %commit, why, "which branches have a tag's commit cannot be told");
                return Ok(Ok(None));
            }
            Err(error) => return Err(unmade(error)),
        };
        let default = live.layout.default_branch(&at.project);
        branches.sort_by_key(|branch| *branch != default);
        if branches.len() > CONTAINING_MAX {
            let left_out = branches.len() - CONTAINING_MAX;
            tracing::warn!(project = %at.project, %commit, left_out, "a tag's commit is in more branches than are kept");
            branches.truncate(CONTAINING_MAX);
        }
        Ok(Ok(Some(branches)))
    }
}

/// Returns what is tested of something that is not merged with anything.
fn placed_as_it_is(
    candidate: &Candidate,
    state: &BranchState,
    files: Option<Vec<String>>,
) -> PlacedChange {
    let (base, result) = (state.base.clone(), state.result.clone());
    PlacedChange {
        change: candidate.change.clone(),
        base,
        result,
        files,
        configures: false,
        kept: false,
    }
}

/// Returns what jobs are told of a change of the state.
fn told(candidate: &Candidate, merge_commit: Option<Oid>) -> SpeculativeChange {
    SpeculativeChange {
        change: candidate.change.clone(),
        url: candidate.url.clone(),
        title: candidate.title.clone(),
        message: candidate.message.clone(),
        merge_commit,
    }
}
