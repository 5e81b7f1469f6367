//! Repositories in memory: a commit is a map of files, a merge is three-way per file. Ids are
//! hashes and therefore reproducible.

use async_trait::async_trait;
use bytes::Bytes;
use sluice_git::{CommitDelta, keys};
use sluice_memory::World;
use sluice_model::git::{BranchKey, BranchState, Commit, MergeMode, Oid};
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName};
use sluice_repos::{
    BranchMerge, BranchMergeResult, Branches, CommitFiles, ListedRefs, ProjectAt, Repos,
    ReposError, is_configuration,
};
use sluice_runtime::PortError;
use sluice_runtime::object::PutMode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// File contents by path.
pub type Tree = BTreeMap<String, String>;

/// A commit with its files.
#[derive(Debug, Clone)]
struct Made {
    tree: Tree,
    parents: Vec<Oid>,
}

/// A callback that modifies the repositories during a read.
pub type Meanwhile = Box<dyn FnOnce(&mut Store) + Send>;

/// All repositories of the played forge.
#[derive(Default)]
pub struct Store {
    /// Runs once, right after the next read of configuration and before its caller continues.
    pub meanwhile: Option<Meanwhile>,
    commits: BTreeMap<Oid, Made>,
    branches: BTreeMap<BranchKey, Oid>,
    tags: BTreeMap<(ProjectName, String), Oid>,
    defaults: BTreeMap<ProjectName, BranchName>,
    broken: BTreeMap<ProjectName, String>,
    /// Repositories in which every merge fails, with the reason.
    pub unmergeable: BTreeMap<ProjectName, String>,
    /// Whether a playbook exists only if its file does. Otherwise every playbook exists.
    pub lists_playbooks: bool,
    /// Repositories whose forge does not answer a merge.
    pub silent: BTreeSet<ProjectName>,
    missing: BTreeSet<ProjectName>,
    /// Whether tested commits are kept, so that branches can be moved to them.
    pub keeps_tested_commits: bool,
    /// Whether forges do not answer in time when one ref is read.
    pub is_silent_about_refs: bool,
    /// The most refs of a project that are listed with its tags; `None` for any number.
    pub refs_max: Option<usize>,
    /// How often all refs of a project were listed.
    pub lists_read: usize,
}

impl Store {
    /// Creates a commit and returns it.
    pub fn commit(&mut self, tree: Tree, parents: Vec<Oid>, message: &str) -> Commit {
        let tree_id = tree_id(&tree);
        let mut parts = vec!["commit", tree_id.as_str(), message];
        parts.extend(parents.iter().map(Oid::as_str));
        let id = object_id(&parts);
        self.commits.insert(id.clone(), Made { tree, parents });
        Commit { id, tree: tree_id }
    }

    /// Returns a commit, if it exists.
    pub fn find(&self, id: &Oid) -> Option<Commit> {
        Some(Commit { id: id.clone(), tree: tree_id(&self.commits.get(id)?.tree) })
    }

    /// Returns the first-parent history of a branch, newest first, each commit with its number of
    /// parents.
    pub fn history(&self, branch: &BranchKey) -> Vec<(Commit, usize)> {
        let parents =
            |id: &Oid| self.commits.get(id).map(|made| made.parents.as_slice()).unwrap_or_default();
        let line = std::iter::successors(self.tip(branch), |commit| {
            self.find(parents(&commit.id).first()?)
        });
        line.map(|commit| (commit.clone(), parents(&commit.id).len())).collect()
    }

    /// Returns the files of a commit.
    pub fn tree(&self, id: &Oid) -> &Tree {
        &self.commits[id].tree
    }

    /// Returns the tip of a branch, if it exists.
    pub fn tip(&self, branch: &BranchKey) -> Option<Commit> {
        self.find(self.branches.get(branch)?)
    }

    /// Moves a branch to a commit.
    pub fn set(&mut self, branch: &BranchKey, to: &Oid) {
        self.branches.insert(branch.clone(), to.clone());
    }

    /// Makes another branch than `main` the default branch of a project.
    pub fn set_default(&mut self, project: &ProjectName, branch: &str) {
        self.defaults.insert(project.clone(), branch.into());
    }

    /// Makes a project respond as if it did not exist.
    pub fn hide_project(&mut self, project: &ProjectName) {
        self.missing.insert(project.clone());
    }

    /// Ends the effect of [`Self::hide_project`].
    pub fn show_project(&mut self, project: &ProjectName) {
        self.missing.remove(project);
    }

    /// Makes the configuration of a project unreadable for this reason. `None` makes it readable
    /// again.
    pub fn set_unreadable(&mut self, project: &ProjectName, why: Option<&str>) {
        match why {
            Some(why) => self.broken.insert(project.clone(), why.to_owned()),
            None => self.broken.remove(project),
        };
    }

    /// Sets a tag to a commit.
    pub fn set_tag(&mut self, project: &ProjectName, tag: &str, to: &Oid) {
        self.tags.insert((project.clone(), tag.to_owned()), to.clone());
    }

    /// Deletes a tag.
    pub fn delete_tag(&mut self, project: &ProjectName, tag: &str) {
        self.tags.remove(&(project.clone(), tag.to_owned()));
    }

    /// Deletes a branch and returns its last commit.
    pub fn delete(&mut self, branch: &BranchKey) -> Option<Oid> {
        self.branches.remove(branch)
    }

    /// Returns the commit of a branch or tag by its full ref name.
    pub fn ref_tip(&self, project: &ProjectName, git_ref: &str) -> Option<Commit> {
        match (git_ref.strip_prefix("refs/heads/"), git_ref.strip_prefix("refs/tags/")) {
            (Some(branch), _) => {
                self.tip(&BranchKey { project: project.clone(), branch: branch.into() })
            }
            (_, Some(tag)) => self.find(self.tags.get(&(project.clone(), tag.to_owned()))?),
            _ => None,
        }
    }

    fn default_branch(&self, project: &ProjectName) -> BranchName {
        self.defaults.get(project).cloned().unwrap_or_else(|| "main".into())
    }

    /// Returns all branches of a project with their commits.
    pub fn branches(&self, project: &ProjectName) -> Vec<(BranchName, Oid)> {
        let branches = self.branches.iter().filter(|(key, _)| key.project == *project);
        branches.map(|(key, tip)| (key.branch.clone(), tip.clone())).collect()
    }

    /// Merges `head` into `onto`. The error is the conflicting path.
    pub fn merge(&mut self, onto: &Oid, head: &Oid, message: &str) -> Result<Commit, String> {
        let base = self.base(onto, head);
        let merged = self.merged_trees(base.as_ref(), onto, head)?;
        Ok(self.commit(merged, vec![onto.clone(), head.clone()], message))
    }

    /// Returns the files of `onto` with the edits between `base` and `head`. The error is the
    /// conflicting path.
    fn merged_trees(&self, base: Option<&Oid>, onto: &Oid, head: &Oid) -> Result<Tree, String> {
        let (old, ours, theirs) =
            (self.tree_of(base), self.tree(onto).clone(), self.tree(head).clone());
        let mut merged = ours.clone();
        for path in theirs.keys().chain(old.keys()) {
            let (was, mine, other) = (old.get(path), ours.get(path), theirs.get(path));
            if was == other || mine == other {
                continue;
            }
            if mine != was {
                return Err(path.clone());
            }
            match other {
                Some(text) => merged.insert(path.clone(), text.clone()),
                None => merged.remove(path),
            };
        }
        Ok(merged)
    }

    /// Adds `head` to `onto` with this merge mode. The error is the conflicting path.
    pub fn put(
        &mut self,
        mode: MergeMode,
        onto: &Oid,
        head: &Oid,
        message: &str,
    ) -> Result<Commit, String> {
        match mode {
            MergeMode::Merge | MergeMode::MergeResolve => self.merge(onto, head, message),
            MergeMode::SquashMerge => {
                let whole = self.merge(onto, head, message)?;
                Ok(self.commit(self.tree(&whole.id).clone(), vec![onto.clone()], message))
            }
            MergeMode::CherryPick | MergeMode::Rebase | MergeMode::RebaseFirstParent => {
                let mut at = onto.clone();
                for commit in self.line(onto, head) {
                    let before = self.commits[&commit].parents.first().cloned();
                    let tree = self.merged_trees(before.as_ref(), &at, &commit)?;
                    at = self.commit(tree, vec![at.clone()], message).id;
                }
                Ok(self.find(&at).expect("the commit exists"))
            }
        }
    }

    /// Returns the first-parent commits of `head` that `onto` does not contain, oldest first.
    pub fn line(&self, onto: &Oid, head: &Oid) -> Vec<Oid> {
        let known = self.ancestors(onto);
        let parent = |id: &Oid| self.commits[id].parents.first().cloned();
        let line =
            std::iter::successors(Some(head.clone()), parent).take_while(|id| !known.contains(id));
        let mut line: Vec<Oid> = line.collect();
        line.reverse();
        line
    }

    /// Returns the first parent of a commit, if any.
    pub fn parent(&self, id: &Oid) -> Option<Oid> {
        self.commits.get(id)?.parents.first().cloned()
    }

    /// Returns a commit whose first parent is this one, if any.
    pub fn child(&self, id: &Oid) -> Option<Oid> {
        let mut children = self.commits.iter().filter(|(_, made)| made.parents.first() == Some(id));
        children.next().map(|(child, _)| child.clone())
    }

    /// Returns the paths that differ between `head` and its merge base with `onto`, sorted.
    pub fn touched(&self, onto: &Oid, head: &Oid) -> Vec<String> {
        let old = self.tree_of(self.base(onto, head).as_ref());
        let new = self.tree(head);
        let mut paths: Vec<String> = old
            .keys()
            .chain(new.keys())
            .filter(|path| old.get(*path) != new.get(*path))
            .cloned()
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }

    fn tree_of(&self, id: Option<&Oid>) -> Tree {
        id.map(|id| self.tree(id).clone()).unwrap_or_default()
    }

    fn base(&self, one: &Oid, other: &Oid) -> Option<Oid> {
        let known = self.ancestors(one);
        self.ancestors(other).into_iter().find(|id| known.contains(id))
    }

    /// Returns whether `ancestor` is reachable from `commit`.
    pub fn holds(&self, commit: &Oid, ancestor: &Oid) -> bool {
        self.commits.contains_key(commit) && self.ancestors(commit).contains(ancestor)
    }

    /// Returns a commit and its ancestors, nearest first.
    fn ancestors(&self, id: &Oid) -> Vec<Oid> {
        let mut ancestors = Vec::new();
        let mut pending = std::collections::VecDeque::from([id.clone()]);
        while let Some(id) = pending.pop_front() {
            if !ancestors.contains(&id) {
                pending.extend(self.commits[&id].parents.iter().cloned());
                ancestors.push(id);
            }
        }
        ancestors
    }
}

fn tree_id(tree: &Tree) -> Oid {
    let parts: Vec<&str> =
        tree.iter().flat_map(|(path, text)| [path.as_str(), text.as_str()]).collect();
    object_id(&parts)
}

/// Returns an object id of 40 hex digits.
fn object_id(parts: &[&str]) -> Oid {
    let digits = digest(parts);
    Oid(format!("{digits}{}", &digits[..8]))
}

/// The repositories as the functions access them. Each request is a step.
pub struct PlayedRepos {
    world: World,
    store: Arc<Mutex<Store>>,
}

impl PlayedRepos {
    /// Serves the repositories of `store`.
    pub fn new(world: World, store: Arc<Mutex<Store>>) -> Self {
        Self { world, store }
    }

    async fn step<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut Store) -> Result<T, ReposError>,
    ) -> Result<T, ReposError> {
        let mut refused = None;
        let answer = self.world.step(name, || {
            let answer = work(&mut self.store.lock().unwrap());
            answer.map_err(|error| {
                refused = Some(error);
                PortError::unknown(name, "refused")
            })
        });
        let answer = answer.await;
        answer.map_err(|error| {
            refused.take().unwrap_or_else(|| ReposError::Unreachable(error.to_string()))
        })
    }
}

fn gone(subject: impl std::fmt::Display) -> ReposError {
    ReposError::Gone(format!("there is no {subject}"))
}

#[async_trait]
impl Repos for PlayedRepos {
    async fn branches(&self, at: &ProjectAt) -> Result<Branches, ReposError> {
        self.step("repos.branches", |store| {
            let tips = store.branches(&at.project);
            if tips.is_empty() || store.missing.contains(&at.project) {
                return Err(gone(&at.project));
            }
            let default = Some(store.default_branch(&at.project))
                .filter(|name| tips.iter().any(|(tip, _)| tip == name));
            Ok(Branches { default, tips })
        })
        .await
    }

    async fn ref_tip(&self, at: &ProjectAt, git_ref: &str) -> Result<Option<Oid>, ReposError> {
        self.step("repos.ref", |store| {
            if store.missing.contains(&at.project) {
                return Err(gone(&at.project));
            }
            if store.is_silent_about_refs {
                return Err(ReposError::Unreachable(format!("{git_ref} is not shown in time")));
            }
            Ok(store.ref_tip(&at.project, git_ref).map(|tip| tip.id))
        })
        .await
    }

    async fn refs(&self, at: &ProjectAt) -> Result<ListedRefs, ReposError> {
        self.step("repos.refs", |store| {
            store.lists_read += 1;
            if store.missing.contains(&at.project) {
                return Err(gone(&at.project));
            }
            let branches = store.branches(&at.project).into_iter();
            let branches = branches.map(|(branch, tip)| (format!("refs/heads/{branch}"), tip));
            let tags = store.tags.iter().filter(|((project, _), _)| *project == at.project);
            let tags = tags.map(|((_, tag), at)| (format!("refs/tags/{tag}"), at.clone()));
            let all: BTreeMap<String, Oid> = branches.chain(tags).collect();
            let tags_left_out = (all.len() > store.refs_max.unwrap_or(usize::MAX))
                .then(|| "there are too many refs".to_owned());
            let is_listed = |name: &str| tags_left_out.is_none() || name.starts_with("refs/heads/");
            let commits = all.into_iter().filter(|(name, _)| is_listed(name)).collect();
            Ok(ListedRefs { commits, tags_left_out })
        })
        .await
    }

    async fn branch_tip(
        &self,
        at: &ProjectAt,
        branch: &BranchName,
    ) -> Result<BranchState, ReposError> {
        let key = BranchKey { project: at.project.clone(), branch: branch.clone() };
        self.step("repos.tip", |store| {
            let tip = store.tip(&key).ok_or_else(|| gone(&key))?;
            Ok(BranchState::untouched(key.clone(), tip, Vec::new()))
        })
        .await
    }

    async fn tag_state(&self, at: &ProjectAt, tag: &str) -> Result<BranchState, ReposError> {
        let key = BranchKey {
            project: at.project.clone(),
            branch: format!("refs/tags/{tag}").as_str().into(),
        };
        self.step("repos.tag", |store| {
            let tip = store.ref_tip(&at.project, key.branch.as_str()).ok_or_else(|| gone(&key))?;
            Ok(BranchState::untouched(key.clone(), tip, Vec::new()))
        })
        .await
    }

    async fn commit_state(
        &self,
        at: &ProjectAt,
        branch: &BranchName,
        commit: &Oid,
        since: Option<&Oid>,
    ) -> Result<(BranchState, Option<Vec<String>>), ReposError> {
        self.step("repos.at", |store| {
            let found = store.find(commit).ok_or_else(|| gone(commit))?;
            let files = since.and_then(|since| Some(store.touched(&store.find(since)?.id, commit)));
            let branch = BranchKey { project: at.project.clone(), branch: branch.clone() };
            Ok((BranchState::untouched(branch, found, Vec::new()), files))
        })
        .await
    }

    async fn branches_containing(
        &self,
        at: &ProjectAt,
        commit: &Oid,
    ) -> Result<Vec<BranchName>, ReposError> {
        self.step("repos.containing", |store| {
            store.find(commit).ok_or_else(|| gone(commit))?;
            let branches = store.branches(&at.project).into_iter();
            let having = branches.filter(|(_, tip)| store.ancestors(tip).contains(commit));
            Ok(having.map(|(branch, _)| branch).collect())
        })
        .await
    }

    async fn merge(&self, ask: &BranchMerge) -> Result<BranchMergeResult, ReposError> {
        let merged = self.step("repos.merge", |store| {
            if store.silent.contains(&ask.branch.project) {
                return Err(ReposError::Unreachable(format!(
                    "{} does not answer",
                    ask.branch.project
                )));
            }
            if let Some(why) = store.unmergeable.get(&ask.branch.project) {
                return Err(ReposError::Unreadable(why.clone()));
            }
            let state = match &ask.onto {
                Some(state) => state.clone(),
                None => {
                    let tip = store.tip(&ask.branch).ok_or_else(|| gone(&ask.branch))?;
                    BranchState::untouched(ask.branch.clone(), tip, Vec::new())
                }
            };
            let files = Some(store.touched(&state.result.id, &ask.head));
            let below = state.result.id.clone();
            let has_delta = store.keeps_tested_commits && ask.mode.keeps_head();
            let answer = match store.put(ask.mode, &below, &ask.head, &ask.message) {
                Ok(result) => BranchMergeResult::Merged {
                    state: BranchState { result, ..state },
                    files,
                    has_delta,
                },
                Err(path) => BranchMergeResult::Conflict { detail: path },
            };
            Ok((answer, below))
        });
        let (answer, below) = merged.await?;
        if let BranchMergeResult::Merged { state, has_delta: true, .. } = &answer {
            // The store contains every commit that was ever created, so the delta is empty.
            let key = keys::commit_delta(&ask.branch.project, &below, &state.result.id);
            let bytes = Bytes::from(CommitDelta::default().encode());
            self.world
                .ports()
                .objects
                .put(&key, bytes, PutMode::Always, "application/octet-stream")
                .await?;
        }
        Ok(answer)
    }

    async fn configuration_files(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        _: Option<&BranchState>,
        extra: &[String],
    ) -> Result<CommitFiles, ReposError> {
        let read = self.step("repos.configuration", |store| {
            if let Some(why) = store.broken.get(&at.project) {
                return Err(ReposError::Unreadable(why.clone()));
            }
            let files = store.tree(commit).iter().filter(|(path, _)| is_configuration(path, extra));
            Ok(files.map(|(path, text)| (path.clone(), text.clone().into_bytes())).collect())
        });
        let files = read.await?;
        let mut store = self.store.lock().unwrap();
        if let Some(meanwhile) = store.meanwhile.take() {
            meanwhile(&mut store);
        }
        Ok(files)
    }

    async fn existing_files(
        &self,
        _: &ProjectAt,
        commit: &Oid,
        _: Option<&BranchState>,
        paths: &[String],
    ) -> Result<Vec<String>, ReposError> {
        self.step("repos.present", |store| {
            let tree = store.tree(commit);
            let is_there = |path: &&String| !store.lists_playbooks || tree.contains_key(*path);
            Ok(paths.iter().filter(is_there).cloned().collect())
        })
        .await
    }
}
