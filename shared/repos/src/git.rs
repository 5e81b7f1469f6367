//! Real git: forges over HTTP, packs in object storage, a cache directory that may be empty at any time.

use crate::cache::{append, blocking, dir_of, hold, listed, open, unknown, upload};
use crate::{Files, MergeAnswer, MergeAsk, ProjectAt, Repos, ReposError, is_configuration};
use async_trait::async_trait;
use sluice_git::{
    Credential, FetchError, FetchLimits, FetchRequest, Found, Merge, MergeOutcome, NewPack, ReadLimits, RemoteRef,
    Repository, Want, keys,
};
use sluice_model::git::{BranchKey, BranchState, Commit, Oid};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Paths of one change that are told; more count as "any".
const FILES_MAX: usize = 5_000;

/// Where a connection's repositories are, and what to show there.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The address that a project's path is appended to.
    pub git_url: String,
    /// What to show the forge.
    pub credential: Option<Credential>,
}

/// Repositories of real forges.
pub struct GitRepos {
    ports: Ports,
    remotes: BTreeMap<ConnectionName, Remote>,
    dir: PathBuf,
    busy: Mutex<BTreeMap<ProjectName, Arc<tokio::sync::Mutex<()>>>>,
}

impl GitRepos {
    /// Makes repositories that are cached below `dir`.
    pub fn new(ports: Ports, remotes: BTreeMap<ConnectionName, Remote>, dir: PathBuf) -> Self {
        Self { ports, remotes, dir, busy: Mutex::new(BTreeMap::new()) }
    }

    fn remote(&self, project: &ProjectAt) -> Result<(String, Option<Credential>), ReposError> {
        let remote = self
            .remotes
            .get(&project.connection)
            .ok_or_else(|| ReposError::Unknown(format!("the connection {} is not configured", project.connection)))?;
        Ok((format!("{}/{}", remote.git_url.trim_end_matches('/'), project.project.name()), remote.credential.clone()))
    }

    /// One at a time per repository: two fetches of the same objects would upload them twice.
    fn turn(&self, project: &ProjectName) -> Arc<tokio::sync::Mutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.entry(project.clone()).or_default().clone()
    }

    /// Fetches what is not held, uploads what came, and returns the refs with every pack the repository has now.
    async fn fetch(&self, at: &ProjectAt, wants: Vec<Want>) -> Result<(Vec<RemoteRef>, Vec<String>), ReposError> {
        let list = listed(&self.ports, &at.project).await?;
        let dir = dir_of(&self.dir, &at.project);
        hold(&self.ports, &dir, &at.project, &list.packs).await?;
        let (url, credential) = self.remote(at)?;
        let (project, haves) = (at.project.clone(), list.tips.clone());
        let fetched = blocking(move || {
            let mut repository = open(&project, &dir)?;
            let limits = FetchLimits::default();
            let request =
                FetchRequest { url: &url, credential: credential.as_ref(), wants: &wants, haves: &haves, limits };
            repository.fetch(&request).map_err(gone_or_unknown)
        })
        .await?;
        if fetched.packs.is_empty() {
            return Ok((fetched.refs, list.packs));
        }
        let mut packs = Vec::new();
        for pack in &fetched.packs {
            packs.push(upload(&self.ports, &at.project, pack).await?);
        }
        let tips: Vec<Oid> = fetched.refs.iter().map(|found| found.commit().clone()).collect();
        let packs = append(&self.ports, &at.project, &packs, &tips).await?;
        Ok((fetched.refs, packs))
    }

    async fn tip_state(
        &self,
        at: &ProjectAt,
        branch: &BranchName,
        more: Option<Want>,
    ) -> Result<BranchState, ReposError> {
        let name = format!("refs/heads/{branch}");
        let mut wants = vec![Want::Ref(name.clone())];
        wants.extend(more);
        let (refs, packs) = self.fetch(at, wants).await?;
        let tip = refs.iter().find(|found| found.name == name).map(|found| found.commit().clone());
        let Some(tip) = tip else { return Err(ReposError::Gone(format!("{} has no branch {branch}", at.project))) };
        let (project, dir) = (at.project.clone(), dir_of(&self.dir, &at.project));
        let commit = blocking(move || open(&project, &dir)?.commit(&tip).map_err(unknown)).await?.commit;
        let branch = BranchKey { project: at.project.clone(), branch: branch.clone() };
        Ok(BranchState { branch, base: commit.clone(), result: commit, packs })
    }
}

#[async_trait]
impl Repos for GitRepos {
    async fn branches(&self, at: &ProjectAt) -> Result<Vec<(BranchName, Oid)>, ReposError> {
        let (url, credential) = self.remote(at)?;
        let (project, dir) = (at.project.clone(), dir_of(&self.dir, &at.project));
        blocking(move || {
            let repository = open(&project, &dir)?;
            let limits = FetchLimits { timeout_seconds: 30, ..FetchLimits::default() };
            let refs =
                repository.ls_refs(&url, credential.as_ref(), &["refs/heads/"], limits).map_err(gone_or_unknown)?;
            let named = |found: &RemoteRef| {
                Some((BranchName::from(found.name.strip_prefix("refs/heads/")?), found.commit().clone()))
            };
            Ok(refs.iter().filter_map(named).collect())
        })
        .await
    }

    async fn tip(&self, at: &ProjectAt, branch: &BranchName) -> Result<BranchState, ReposError> {
        let turn = self.turn(&at.project);
        let _turn = turn.lock().await;
        self.tip_state(at, branch, None).await
    }

    async fn merge(&self, ask: &MergeAsk) -> Result<MergeAnswer, ReposError> {
        let at = ProjectAt { connection: ask.connection.clone(), project: ask.branch.project.clone() };
        let turn = self.turn(&at.project);
        let _turn = turn.lock().await;
        let head = Want::Commit(ask.head.clone());
        let onto = match &ask.onto {
            None => self.tip_state(&at, &ask.branch.branch, Some(head)).await?,
            Some(state) => {
                let (_, packs) = self.fetch(&at, vec![head]).await?;
                let mut state = state.clone();
                state.packs.extend(packs.into_iter().filter(|pack| !state.packs.contains(pack)).collect::<Vec<_>>());
                hold(&self.ports, &dir_of(&self.dir, &at.project), &at.project, &state.packs).await?;
                state
            }
        };
        let (project, dir, ask_again) = (at.project.clone(), dir_of(&self.dir, &at.project), ask.clone());
        let (start, packs) = (onto.result.clone(), onto.packs.clone());
        let made = blocking(move || merge_here(&project, &dir, &ask_again, &start, &packs)).await?;
        match made {
            Made::Conflict(detail) => Ok(MergeAnswer::Conflict { detail }),
            Made::Merged { result, pack, files } => {
                let mut packs = onto.packs;
                if let Some(pack) = pack {
                    let key = upload(&self.ports, &at.project, &pack).await?;
                    if !packs.contains(&key) {
                        packs.push(key);
                    }
                }
                let state = BranchState { branch: ask.branch.clone(), base: onto.base, result, packs };
                Ok(MergeAnswer::Merged { state, files })
            }
        }
    }

    async fn configuration(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        extra: &[String],
    ) -> Result<Files, ReposError> {
        let turn = self.turn(&at.project);
        let _turn = turn.lock().await;
        let dir = dir_of(&self.dir, &at.project);
        match state {
            Some(state) => hold(&self.ports, &dir, &at.project, &state.packs).await?,
            None => {
                self.fetch(at, vec![Want::Commit(commit.clone())]).await?;
            }
        }
        let (project, commit, extra) = (at.project.clone(), commit.clone(), extra.to_vec());
        blocking(move || {
            let repository = open(&project, &dir)?;
            let wanted = |found: Found, path: &str| match found {
                Found::File => is_configuration(path, &extra),
                Found::Directory => {
                    let inside =
                        |dir: &str| dir.starts_with(&format!("{path}/")) || format!("{path}/").starts_with(dir);
                    inside("zuul.d/") || inside(".zuul.d/") || extra.iter().any(|extra| inside(extra))
                }
            };
            repository.read_files(&commit, &wanted, ReadLimits::default()).map_err(unknown)
        })
        .await
    }
}

enum Made {
    Merged { result: Commit, pack: Option<NewPack>, files: Option<Vec<String>> },
    Conflict(String),
}

/// Merges in the cache. The pack that is made completes `packs`, whatever else the cache holds: other states' packs are not
/// listed for this one, so whoever builds it does not have them.
fn merge_here(
    project: &ProjectName,
    dir: &std::path::Path,
    ask: &MergeAsk,
    onto: &Commit,
    packs: &[String],
) -> Result<Made, ReposError> {
    let mut repository = open(project, dir)?;
    let merge = Merge { ours: &onto.id, theirs: &ask.head, mode: ask.mode, message: &ask.message };
    let result = match repository.merge(merge).map_err(unknown)? {
        MergeOutcome::Merged(merged) => merged.commit,
        MergeOutcome::Contained(commit) => commit,
        MergeOutcome::Conflict { paths } => return Ok(Made::Conflict(paths.join(", "))),
        MergeOutcome::Unrelated => {
            return Ok(Made::Conflict("its history has nothing in common with the branch".to_owned()));
        }
    };
    let files = touched(&repository, &onto.id, &ask.head)?;
    let names: Vec<_> = packs.iter().filter_map(|key| keys::pack_of(key)).collect();
    let pack = repository.pack_objects_beyond(std::slice::from_ref(&result.id), &names).map_err(unknown)?;
    Ok(Made::Merged { result, pack, files })
}

/// Returns the paths that a change touches, compared with where it left the branch.
fn touched(repository: &Repository, onto: &Oid, head: &Oid) -> Result<Option<Vec<String>>, ReposError> {
    let base = repository.merge_base(onto, head).map_err(unknown)?.unwrap_or_else(|| onto.clone());
    Ok(repository.changed_files(&base, head, FILES_MAX).ok())
}

fn gone_or_unknown(error: FetchError) -> ReposError {
    match &error {
        FetchError::Gone { .. } | FetchError::NoRepository { .. } => ReposError::Gone(error.to_string()),
        _ => unknown(error),
    }
}
