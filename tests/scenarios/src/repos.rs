//! Repositories as maps: a commit is its files, a merge is three-way per file. Ids are hashes, so
//! they are always the same.

use async_trait::async_trait;
use bytes::Bytes;
use sluice_git::{CommitDelta, keys};
use sluice_memory::World;
use sluice_model::git::{BranchKey, BranchState, Commit, MergeMode, Oid};
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName};
use sluice_repos::{
    Branches, CommitFiles, BranchMergeResult, BranchMerge, ProjectAt, Repos, ReposError, is_configuration,
};
use sluice_runtime::PortError;
use sluice_runtime::object::PutMode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Paths with their texts.
pub type Tree = BTreeMap<String, String>;

#[derive(Debug, Clone)]
struct Made {
    tree: Tree,
    parents: Vec<Oid>,
}

/// Something that happens while somebody reads.
pub type Meanwhile = Box<dyn FnOnce(&mut Store) + Send>;

/// Every repository of the played forge.
#[derive(Default)]
pub struct Store {
    /// What happens right after the next reading of configuration, before whoever read it goes on.
    pub meanwhile: Option<Meanwhile>,
    commits: BTreeMap<Oid, Made>,
    branches: BTreeMap<BranchKey, Oid>,
    tags: BTreeMap<(ProjectName, String), Oid>,
    defaults: BTreeMap<ProjectName, BranchName>,
    broken: BTreeMap<ProjectName, String>,
    /// Repositories in which every merge fails, and why.
    pub unmergeable: BTreeMap<ProjectName, String>,
    /// Whether a playbook is there only where its file is; otherwise whatever jobs name is there.
    pub lists_playbooks: bool,
    /// Repositories whose forge does not answer a merge.
    pub silent: BTreeSet<ProjectName>,
    missing: BTreeSet<ProjectName>,
    /// Whether tested commits are kept, so that branches may be moved to them.
    pub keeps: bool,
}

impl Store {
    /// Makes a commit and returns it.
    pub fn commit(&mut self, tree: Tree, parents: Vec<Oid>, message: &str) -> Commit {
        let tree_id = tree_id(&tree);
        let mut parts = vec!["commit", tree_id.as_str(), message];
        parts.extend(parents.iter().map(Oid::as_str));
        let id = object_id(&parts);
        self.commits.insert(id.clone(), Made { tree, parents });
        Commit { id, tree: tree_id }
    }

    /// Returns a commit.
    pub fn find(&self, id: &Oid) -> Option<Commit> {
        Some(Commit { id: id.clone(), tree: tree_id(&self.commits.get(id)?.tree) })
    }

    /// Returns a branch's commits along first parents, the newest first, each with how many parents
    /// it has.
    pub fn history(&self, branch: &BranchKey) -> Vec<(Commit, usize)> {
        let parents =
            |id: &Oid| self.commits.get(id).map(|made| made.parents.as_slice()).unwrap_or_default();
        let line = std::iter::successors(self.tip(branch), |commit| {
            self.find(parents(&commit.id).first()?)
        });
        line.map(|commit| (commit.clone(), parents(&commit.id).len())).collect()
    }

    /// Returns a commit's files.
    pub fn tree(&self, id: &Oid) -> &Tree {
        &self.commits[id].tree
    }

    /// Returns where a branch is.
    pub fn tip(&self, branch: &BranchKey) -> Option<Commit> {
        self.find(self.branches.get(branch)?)
    }

    /// Moves a branch.
    pub fn set(&mut self, branch: &BranchKey, to: &Oid) {
        self.branches.insert(branch.clone(), to.clone());
    }

    /// Has a project's default branch be another one than `main`.
    pub fn set_default(&mut self, project: &ProjectName, branch: &str) {
        self.defaults.insert(project.clone(), branch.into());
    }

    /// Has a project answer as one that is not there, or be there again.
    pub fn set_missing(&mut self, project: &ProjectName, missing: bool) {
        if missing {
            self.missing.insert(project.clone())
        } else {
            self.missing.remove(project)
        };
    }

    /// Has the configuration of a project be more than may be read, for this reason; `None` ends
    /// that.
    pub fn set_unreadable(&mut self, project: &ProjectName, why: Option<&str>) {
        match why {
            Some(why) => self.broken.insert(project.clone(), why.to_owned()),
            None => self.broken.remove(project),
        };
    }

    /// Puts a tag on a commit.
    pub fn set_tag(&mut self, project: &ProjectName, tag: &str, to: &Oid) {
        self.tags.insert((project.clone(), tag.to_owned()), to.clone());
    }

    /// Deletes a branch and returns where it was.
    pub fn delete(&mut self, branch: &BranchKey) -> Option<Oid> {
        self.branches.remove(branch)
    }

    /// Returns where a branch or tag is, by its whole name.
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

    /// Returns every branch of a project.
    pub fn branches(&self, project: &ProjectName) -> Vec<(BranchName, Oid)> {
        let own = self.branches.iter().filter(|(key, _)| key.project == *project);
        own.map(|(key, tip)| (key.branch.clone(), tip.clone())).collect()
    }

    /// Merges `head` into `onto`; the error is the path in conflict.
    pub fn merge(&mut self, onto: &Oid, head: &Oid, message: &str) -> Result<Commit, String> {
        let base = self.base(onto, head);
        let merged = self.merged_trees(base.as_ref(), onto, head)?;
        Ok(self.commit(merged, vec![onto.clone(), head.clone()], message))
    }

    /// Returns the files of `onto` with what was done between `base` and `head`.
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

    /// Puts `head` onto `onto` in that way; the error is the path in conflict.
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
                Ok(self.find(&at).expect("it was made or was there"))
            }
        }
    }

    /// Returns the commits that `head` has along first parents and `onto` does not, oldest first.
    pub fn line(&self, onto: &Oid, head: &Oid) -> Vec<Oid> {
        let known = self.ancestors(onto);
        let parent = |id: &Oid| self.commits[id].parents.first().cloned();
        let line =
            std::iter::successors(Some(head.clone()), parent).take_while(|id| !known.contains(id));
        let mut line: Vec<Oid> = line.collect();
        line.reverse();
        line
    }

    /// Returns the commit that a commit was made on, if any.
    pub fn parent(&self, id: &Oid) -> Option<Oid> {
        self.commits.get(id)?.parents.first().cloned()
    }

    /// Returns a commit that was made on top of another one, if any was.
    pub fn child(&self, id: &Oid) -> Option<Oid> {
        let mut made_on_it =
            self.commits.iter().filter(|(_, made)| made.parents.first() == Some(id));
        made_on_it.next().map(|(child, _)| child.clone())
    }

    /// Returns the paths that a change touches.
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

    /// Returns whether one commit can be reached from another.
    pub fn holds(&self, commit: &Oid, ancestor: &Oid) -> bool {
        self.commits.contains_key(commit) && self.ancestors(commit).contains(ancestor)
    }

    /// Ancestors, nearest first.
    fn ancestors(&self, id: &Oid) -> Vec<Oid> {
        let mut found = Vec::new();
        let mut ahead = std::collections::VecDeque::from([id.clone()]);
        while let Some(id) = ahead.pop_front() {
            if !found.contains(&id) {
                ahead.extend(self.commits[&id].parents.iter().cloned());
                found.push(id);
            }
        }
        found
    }
}

fn tree_id(tree: &Tree) -> Oid {
    let parts: Vec<&str> =
        tree.iter().flat_map(|(path, text)| [path.as_str(), text.as_str()]).collect();
    object_id(&parts)
}

/// Returns 40 digits, as git has them.
fn object_id(parts: &[&str]) -> Oid {
    let digits = digest(parts);
    Oid(format!("{digits}{}", &digits[..8]))
}

/// The repositories as functions ask them; each question is a step.
pub struct PlayedRepos {
    world: World,
    store: Arc<Mutex<Store>>,
}

impl PlayedRepos {
    /// Plays the repositories of `store`.
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

fn gone(what: impl std::fmt::Display) -> ReposError {
    ReposError::Gone(format!("there is no {what}"))
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

    async fn branch_tip(&self, at: &ProjectAt, branch: &BranchName) -> Result<BranchState, ReposError> {
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
            let has_delta = store.keeps && ask.mode.keeps_head();
            let answer = match store.put(ask.mode, &below, &ask.head, &ask.message) {
                Ok(result) => {
                    BranchMergeResult::Merged { state: BranchState { result, ..state }, files, has_delta }
                }
                Err(path) => BranchMergeResult::Conflict { detail: path },
            };
            Ok((answer, below))
        });
        let (answer, below) = merged.await?;
        if let BranchMergeResult::Merged { state, has_delta: true, .. } = &answer {
            // The store has every commit that was ever made, so nothing has to be sent there.
            let key = keys::commit_delta(&ask.branch.project, &below, &state.result.id);
            let bytes = Bytes::from(CommitDelta::default().bytes());
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
