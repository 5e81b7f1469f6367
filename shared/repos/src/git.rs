//! Implements [`Repos`] with git: forges over HTTP, packs in object storage, and a cache directory
//! that may be lost at any time.

use crate::cache::{dir_of, unknown, upload};
use crate::project_cache::{FetchSource, ProjectCache, names_of};
use crate::{
    BranchMerge, BranchMergeResult, Branches, CommitFiles, ListedRefs, ProjectAt, Repos,
    ReposError, is_configuration,
};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_git::{
    CommitDelta, Credential, FetchError, FetchLimits, GitMergeOutcome, GitReadError, Merge,
    MergeError, NewPack, PackName, ReadLimits, RemoteRef, Repository, TreeEntry, Want, keys,
};
use sluice_model::git::{BranchKey, BranchState, Commit, LandingMethod, Oid};
use sluice_model::{BranchName, ConnectionName, ProjectName};
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most packs of a tested state beyond those of its repository; then they are combined into
/// one.
const CHAIN_MAX: usize = 12;

/// The most repositories that are open.
const CACHES_MAX: usize = 64;

/// The prefix of full branch names.
const BRANCHES: &str = "refs/heads/";

/// The prefix of full tag names.
const TAGS: &str = "refs/tags/";

/// The limits of listing all branches and tags, or branches alone.
const LIST_LIMITS: FetchLimits =
    FetchLimits { timeout_seconds: 6, size_bytes: 16 << 20, refs_max: 20_000 };

/// The most seconds that the caller waits for a list. Intake has 30 seconds for the messages that
/// it receives together: at most ten of one project, which may be a poll and the pushes of another.
const LIST_SECONDS: u64 = 8;

/// The limits of reading one ref. An older server lists all refs nevertheless.
const READ_LIMITS: FetchLimits = FetchLimits { timeout_seconds: REF_SECONDS, ..LIST_LIMITS };

/// The most seconds that the caller waits for one ref.
const REF_SECONDS: u64 = 2;

/// The most paths of a change that are returned; more count as "any".
const FILES_MAX: usize = 5_000;

/// The most commits that are visited to find the branches with a commit.
const COMMITS_MAX: usize = 1_000_000;

/// The repositories of a connection, and how to access them.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The base URL; a project's path is appended.
    pub git_url: String,
    /// The credential for the forge.
    pub credential: Option<Credential>,
    /// How changes are merged. For fast-forwards, the objects of tested commits are stored.
    pub landing: LandingMethod,
}

/// The repositories of real forges.
///
/// Merges in one repository run concurrently; fetches do not. A merge fetches only missing objects:
/// the head of a change that was merged before is in the cache, and so is the state of the item
/// ahead.
pub struct GitRepos {
    /// Access to records and objects.
    ports: Ports,
    /// The addresses and credentials by connection.
    remotes: BTreeMap<ConnectionName, Remote>,
    /// The directory of the caches.
    dir: PathBuf,
    /// The caches of projects that were used.
    caches: Mutex<BTreeMap<ProjectName, Arc<ProjectCache>>>,
}

impl GitRepos {
    /// Creates repositories that are cached below `dir`, with the connections `remotes`. Reads and
    /// creates nothing yet.
    pub fn new(ports: Ports, remotes: BTreeMap<ConnectionName, Remote>, dir: PathBuf) -> Self {
        Self { ports, remotes, dir, caches: Mutex::new(BTreeMap::new()) }
    }

    /// Returns the address of a project, the connection's base URL with the project's path, and the
    /// credential. An error if the connection is not configured.
    fn remote(&self, project: &ProjectAt) -> Result<FetchSource, ReposError> {
        let remote = self.remotes.get(&project.connection).ok_or_else(|| {
            ReposError::Unknown(format!("the connection {} is not configured", project.connection))
        })?;
        let url = format!("{}/{}", remote.git_url.trim_end_matches('/'), project.project.name());
        Ok(FetchSource { url, credential: remote.credential.clone() })
    }

    /// Returns the cache of a project's repository, a new one if there is none. If there are too
    /// many, drops the first one by name; its directory stays.
    fn cache(&self, project: &ProjectName) -> Arc<ProjectCache> {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        if caches.len() >= CACHES_MAX && !caches.contains_key(project) {
            caches.pop_first();
        }
        let new = || Arc::new(ProjectCache::new(project.clone(), dir_of(&self.dir, project)));
        caches.entry(project.clone()).or_insert_with(new).clone()
    }

    /// Returns whether a merge has to store what its result adds to the commit below, so that its
    /// branch can be fast-forwarded: the connection lands by fast-forward, and the merge mode keeps
    /// the proposed commit.
    fn stores_delta(&self, ask: &BranchMerge) -> bool {
        let landing = self.remotes.get(&ask.connection).map(|remote| remote.landing);
        landing == Some(LandingMethod::FastForward) && ask.mode.keeps_head()
    }

    /// Fetches a branch tip from the forge, and `more` in the same request, and returns the tip.
    /// [`ReposError::Gone`] if the forge has no such branch or `more`.
    async fn fetch_tip(
        &self,
        cache: &ProjectCache,
        at: &ProjectAt,
        branch: &BranchName,
        more: Option<Want>,
    ) -> Result<Commit, ReposError> {
        let name = format!("refs/heads/{branch}");
        let wants = std::iter::once(Want::Ref(name.clone())).chain(more).collect();
        let refs = cache.fetch(&self.ports, &self.remote(at)?, wants).await?;
        let tip = refs.iter().find(|found| found.name == name).map(|found| found.commit().clone());
        let Some(tip) = tip else {
            return Err(ReposError::Gone(format!("{} has no branch {branch}", at.project)));
        };
        cache.with(move |repository| Ok(repository.commit(&tip).map_err(unknown)?.commit)).await
    }
}

#[async_trait]
impl Repos for GitRepos {
    /// Lists all branches of a project on its forge with their tips, by name, and the default
    /// branch, if the forge reports one. Fetches no objects. [`ReposError::Gone`] if there is no
    /// such repository.
    async fn branches(&self, at: &ProjectAt) -> Result<Branches, ReposError> {
        let from = self.remote(at)?;
        self.cache(&at.project)
            .with(move |repository| {
                let limits = FetchLimits { timeout_seconds: 30, ..FetchLimits::default() };
                let refs = repository.ls_refs(
                    &from.url,
                    from.credential.as_ref(),
                    &["HEAD", BRANCHES],
                    limits,
                );
                let refs = refs.map_err(gone_or_unknown)?;
                let head = refs
                    .iter()
                    .find(|found| found.name == "HEAD")
                    .and_then(|head| head.leads_to.as_deref());
                let named = |found: &RemoteRef| {
                    Some((
                        BranchName::from(found.name.strip_prefix(BRANCHES)?),
                        found.commit().clone(),
                    ))
                };
                Ok(Branches {
                    default: head
                        .and_then(|name| name.strip_prefix(BRANCHES))
                        .map(BranchName::from),
                    tips: refs.iter().filter_map(named).collect(),
                })
            })
            .await
    }

    /// Lists all branches and tags of a project on its forge. If they are more than 20,000, or
    /// their list has more than 16 MB, lists the branches alone, with the same limits; more
    /// branches are [`ReposError::Unreadable`]. A server that takes more than 6 seconds for one
    /// list, or 8 for both, is [`ReposError::Unreachable`]. Fetches no objects.
    /// [`ReposError::Gone`] if there is no such repository.
    async fn refs(&self, at: &ProjectAt) -> Result<ListedRefs, ReposError> {
        let from = self.remote(at)?;
        let cache = self.cache(&at.project);
        let listed = cache.with(move |repository| list_refs(repository, &from, LIST_LIMITS));
        within(LIST_SECONDS, at, "list its refs", listed).await
    }

    /// Reads one branch or tag of a project on its forge by its full name. A server that takes more
    /// than 2 seconds is [`ReposError::Unreachable`]. Fetches no objects. [`ReposError::Gone`] if
    /// there is no such repository.
    async fn ref_tip(&self, at: &ProjectAt, git_ref: &str) -> Result<Option<Oid>, ReposError> {
        let (from, name) = (self.remote(at)?, git_ref.to_owned());
        let cache = self.cache(&at.project);
        let read = cache.with(move |repository| read_ref(repository, &from, &name, READ_LIMITS));
        within(REF_SECONDS, at, &format!("show {git_ref}"), read).await
    }

    /// Fetches a branch from its forge and returns its state: base and result are its tip. Objects
    /// that no listed pack has are uploaded and listed first. [`ReposError::Gone`] if there is no
    /// such repository or branch.
    async fn branch_tip(
        &self,
        at: &ProjectAt,
        branch: &BranchName,
    ) -> Result<BranchState, ReposError> {
        let cache = self.cache(&at.project);
        let tip = self.fetch_tip(&cache, at, branch, None).await?;
        let packs = cache.packs_with(&self.ports, &tip.id).await?;
        let branch = BranchKey { project: at.project.clone(), branch: branch.clone() };
        Ok(BranchState::untouched(branch, tip, packs))
    }

    /// Fetches the commit of a tag, given by its short name, and returns it as the state of the
    /// full ref: base and result are the commit. Objects that no listed pack has are uploaded and
    /// listed first. [`ReposError::Gone`] if there is no such repository or tag, or if the tag
    /// leads to no commit.
    async fn tag_state(&self, at: &ProjectAt, tag: &str) -> Result<BranchState, ReposError> {
        let (cache, from) = (self.cache(&at.project), self.remote(at)?);
        let name = format!("{TAGS}{tag}");
        let (ref_name, listed_from) = (name.clone(), from.clone());
        let found = cache
            .with(move |repository| {
                let limits = FetchLimits { timeout_seconds: 30, ..FetchLimits::default() };
                let credential = listed_from.credential.as_ref();
                repository
                    .ls_ref(&listed_from.url, credential, &ref_name, limits)
                    .map_err(gone_or_unknown)
            })
            .await?;
        let found = found.map(|found| found.commit().clone());
        let Some(found) = found else {
            return Err(ReposError::Gone(format!("{} has no tag {tag}", at.project)));
        };
        // Fetched by id: a tag may lead to another object, and only a commit may be offered as
        // present.
        cache.ensure_commit(&self.ports, &from, &found).await?;
        let no_commit = format!("the tag {tag} of {} leads to no commit", at.project);
        let tip = cache
            .with(move |repository| match repository.commit(&found) {
                Ok(found) => Ok(found.commit),
                Err(GitReadError::WrongKind { .. }) => Err(ReposError::Gone(no_commit)),
                Err(error) => Err(unknown(error)),
            })
            .await?;
        let packs = cache.packs_with(&self.ports, &tip.id).await?;
        let branch = BranchKey { project: at.project.clone(), branch: BranchName(name) };
        Ok(BranchState::untouched(branch, tip, packs))
    }

    /// Fetches a commit, unless it is cached, and returns it as the state of `branch`, which is not
    /// looked up and may be the full ref of a tag: base and result are the commit. Also returns the
    /// sorted paths that differ from `since`; `None` without `since`, if that is gone or cannot be
    /// read, or if too many differ. An unreachable forge is an error, also for `since`;
    /// [`ReposError::Gone`] without the commit. Objects that no listed pack has are uploaded and
    /// listed first.
    async fn commit_state(
        &self,
        at: &ProjectAt,
        branch: &BranchName,
        commit: &Oid,
        since: Option<&Oid>,
    ) -> Result<(BranchState, Option<Vec<String>>), ReposError> {
        let (cache, from) = (self.cache(&at.project), self.remote(at)?);
        cache.ensure_commit(&self.ports, &from, commit).await?;
        // After a forced push, the old commit may be gone. Then there is nothing to compare.
        let held = match since {
            Some(since) => {
                cache.ensure_commit(&self.ports, &from, since).await.map(|()| Some(since.clone()))
            }
            None => Ok(None),
        };
        let since = match held {
            Err(ReposError::Unreachable(why)) => return Err(ReposError::Unreachable(why)),
            held => held.unwrap_or_default(),
        };
        let target = commit.clone();
        let (commit, files) = cache
            .with(move |repository| {
                let files = since
                    .and_then(|since| repository.changed_files(&since, &target, FILES_MAX).ok());
                Ok((repository.commit(&target).map_err(unknown)?.commit, files))
            })
            .await?;
        let packs = cache.packs_with(&self.ports, &commit.id).await?;
        let branch = BranchKey { project: at.project.clone(), branch: branch.clone() };
        Ok((BranchState::untouched(branch, commit, packs), files))
    }

    /// Fetches all branches of a project and returns the names of those that contain a commit, by
    /// name. Branches that only older commits lead to may be missing if clocks were wrong by more
    /// than a month. [`ReposError::Gone`] without the commit, and [`ReposError::Unreadable`] if too
    /// many commits would be visited.
    async fn branches_containing(
        &self,
        at: &ProjectAt,
        commit: &Oid,
    ) -> Result<Vec<BranchName>, ReposError> {
        let (cache, from) = (self.cache(&at.project), self.remote(at)?);
        cache.ensure_commit(&self.ports, &from, commit).await?;
        let refs = cache.fetch(&self.ports, &from, vec![Want::Prefix(BRANCHES.to_owned())]).await?;
        let commit = commit.clone();
        cache
            .with(move |repository| {
                let tips: BTreeSet<Oid> = refs.iter().map(|found| found.commit().clone()).collect();
                let tips: Vec<Oid> = tips.into_iter().collect();
                let found = repository.containing(&commit, &tips, COMMITS_MAX).map_err(
                    |error| match error {
                        GitReadError::TooLarge { .. } => ReposError::Unreadable(error.to_string()),
                        other => unknown(other),
                    },
                )?;
                let of_those = refs.iter().filter(|one| found.contains(one.commit()));
                Ok(of_those
                    .filter_map(|one| one.name.strip_prefix(BRANCHES))
                    .map(BranchName::from)
                    .collect())
            })
            .await
    }

    /// Merges a change onto `ask.onto`, or onto the branch's tip on the forge, and uploads a pack
    /// with the new objects and the proposed commit. A conflict is a result and no error, and so
    /// are unrelated histories and too many commits to replay; a change that the branch contains
    /// already is `Merged`, with the branch unchanged. The returned state names all packs that it
    /// needs; the new one is not listed for the repository. If the connection lands by fast-forward
    /// and the merge mode keeps the proposed commit, also stores what the result adds to the commit
    /// below it, unless that is nothing or too much. Writes nothing to the forge.
    async fn merge(&self, ask: &BranchMerge) -> Result<BranchMergeResult, ReposError> {
        let at =
            ProjectAt { connection: ask.connection.clone(), project: ask.branch.project.clone() };
        let cache = self.cache(&at.project);
        let (base, start, packs) = match &ask.onto {
            None => {
                let head = Want::Commit(ask.head.clone());
                let tip = self.fetch_tip(&cache, &at, &ask.branch.branch, Some(head)).await?;
                // Objects of the tip that are in no listed pack go into the pack of the merge.
                (tip.clone(), tip, cache.list(&self.ports).await?.packs)
            }
            Some(state) => {
                cache.ensure_packs(&self.ports, &state.packs).await?;
                cache.ensure_commit(&self.ports, &self.remote(&at)?, &ask.head).await?;
                let mut packs = state.packs.clone();
                let listed = cache.list(&self.ports).await?.packs;
                if packs.len() > listed.len() + CHAIN_MAX {
                    cache.ensure_packs(&self.ports, &listed).await?;
                    packs = listed;
                }
                (state.base.clone(), state.result.clone(), packs)
            }
        };
        let (ask_again, names, below) = (ask.clone(), names_of(&packs)?, start.id.clone());
        let keep = if self.stores_delta(ask) { DeltaMode::Added } else { DeltaMode::Nothing };
        let made = cache
            .with(move |repository| merge_here(repository, &ask_again, &start, &names, keep))
            .await?;
        match made {
            LocalMerge::Conflict(detail) => Ok(BranchMergeResult::Conflict { detail }),
            LocalMerge::Merged { result, pack, files, delta } => {
                let mut packs = packs;
                if let Some(pack) = pack {
                    cache.added(1);
                    let key = upload(&self.ports, &at.project, &pack).await?;
                    if !packs.contains(&key) {
                        packs.push(key);
                    }
                }
                if let Some(delta) = &delta {
                    let key = keys::commit_delta(&at.project, &below, &result.id);
                    let bytes = Bytes::from(delta.encode());
                    self.ports
                        .objects
                        .put(&key, bytes, PutMode::Always, "application/octet-stream")
                        .await?;
                }
                let state = BranchState { branch: ask.branch.clone(), base, result, packs };
                Ok(BranchMergeResult::Merged { state, files, has_delta: delta.is_some() })
            }
        }
    }

    /// Reads the configuration files at a commit, as path and content, sorted as git does: those at
    /// the usual places, those that `extra` selects (a directory with a final `/`, or a file), and
    /// ignore files, which are not applied here. With `state`, the commit must be in its packs;
    /// without, it is fetched from the forge. Too many or too large files are
    /// [`ReposError::Unreadable`].
    async fn configuration_files(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        extra: &[String],
    ) -> Result<CommitFiles, ReposError> {
        let cache = self.cache(&at.project);
        match state {
            Some(state) => cache.ensure_packs(&self.ports, &state.packs).await?,
            None => cache.ensure_commit(&self.ports, &self.remote(at)?, commit).await?,
        }
        let (commit, extra) = (commit.clone(), extra.to_vec());
        cache
            .with(move |repository| {
                let selects = |found: TreeEntry, path: &str| match found {
                    TreeEntry::File => is_configuration(path, &extra),
                    TreeEntry::Directory => {
                        let inside = |dir: &str| {
                            dir.starts_with(&format!("{path}/"))
                                || format!("{path}/").starts_with(dir)
                        };
                        inside("zuul.d/")
                            || inside(".zuul.d/")
                            || extra.iter().any(|extra| inside(extra))
                    }
                };
                repository.read_files(&commit, &selects, ReadLimits::default()).map_err(|error| {
                    match error {
                        GitReadError::TooLarge { .. } => ReposError::Unreadable(error.to_string()),
                        other => unknown(other),
                    }
                })
            })
            .await
    }

    /// Returns those of `paths` that are files at a commit, in the given order; a link on the path
    /// counts as a file. With `state`, the commit must be in its packs; without, it is fetched from
    /// the forge.
    async fn existing_files(
        &self,
        at: &ProjectAt,
        commit: &Oid,
        state: Option<&BranchState>,
        paths: &[String],
    ) -> Result<Vec<String>, ReposError> {
        let cache = self.cache(&at.project);
        match state {
            Some(state) => cache.ensure_packs(&self.ports, &state.packs).await?,
            None => cache.ensure_commit(&self.ports, &self.remote(at)?, commit).await?,
        }
        let (commit, paths) = (commit.clone(), paths.to_vec());
        cache
            .with(move |repository| {
                let mut found = Vec::new();
                for path in paths {
                    if repository.has_file(&commit, &path).map_err(unknown)? {
                        found.push(path);
                    }
                }
                Ok(found)
            })
            .await
    }
}

/// Lists the branches and tags of a repository at `from`, or the branches alone if they are too
/// many together.
fn list_refs(
    repository: &Repository,
    from: &FetchSource,
    limits: FetchLimits,
) -> Result<ListedRefs, ReposError> {
    let list = |prefixes: &[&str]| {
        repository.ls_refs(&from.url, from.credential.as_ref(), prefixes, limits)
    };
    let (refs, tags_left_out) = match list(&[BRANCHES, TAGS]) {
        Ok(refs) => (refs, None),
        Err(error @ (FetchError::TooManyRefs { .. } | FetchError::TooLarge { .. })) => {
            (list(&[BRANCHES]).map_err(gone_or_unknown)?, Some(error.to_string()))
        }
        Err(error) => return Err(gone_or_unknown(error)),
    };
    let commits = refs.into_iter().map(|found| (found.name.clone(), found.commit().clone()));
    Ok(ListedRefs { commits: commits.collect(), tags_left_out })
}

/// Returns the commit of a branch or tag of a repository at `from`; `None` if there is none.
fn read_ref(
    repository: &Repository,
    from: &FetchSource,
    name: &str,
    limits: FetchLimits,
) -> Result<Option<Oid>, ReposError> {
    let found = repository.ls_ref(&from.url, from.credential.as_ref(), name, limits);
    Ok(found.map_err(gone_or_unknown)?.map(|found| found.commit().clone()))
}

/// Waits at most this long for an answer of a project's forge. After that the request goes on
/// without an effect, and the result is [`ReposError::Unreachable`]. `what` completes the sentence
/// "the server did not …".
async fn within<T>(
    seconds: u64,
    at: &ProjectAt,
    what: &str,
    answer: impl Future<Output = Result<T, ReposError>>,
) -> Result<T, ReposError> {
    let answer = tokio::time::timeout(Duration::from_secs(seconds), answer).await;
    answer.unwrap_or_else(|_| {
        let project = &at.project;
        Err(ReposError::Unreachable(format!(
            "the server of {project} did not {what} within {seconds} seconds"
        )))
    })
}

/// Whether a merge returns a commit delta.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeltaMode {
    Nothing,
    /// Return the objects that the result adds to the commit below.
    Added,
}

enum LocalMerge {
    Merged {
        result: Commit,
        pack: Option<NewPack>,
        files: Option<Vec<String>>,
        delta: Option<CommitDelta>,
    },
    Conflict(String),
}

/// Merges a change onto `onto` in the cache, and writes a pack of the result and the proposed
/// commit that completes `packs`, whatever other packs the cache has (`None` if they are complete).
/// Conflicts, unrelated histories and too many commits to replay are outcomes. With
/// [`DeltaMode::Added`] also returns the objects that the result adds to `onto`, unless they are
/// too many or there is no new commit.
fn merge_here(
    repository: &mut Repository,
    ask: &BranchMerge,
    onto: &Commit,
    packs: &[PackName],
    keep: DeltaMode,
) -> Result<LocalMerge, ReposError> {
    let merge = Merge { ours: &onto.id, theirs: &ask.head, mode: ask.mode, message: &ask.message };
    let outcome = match repository.merge(merge) {
        Ok(outcome) => outcome,
        // A retry would give the same.
        Err(error @ MergeError::TooManyCommits { .. }) => {
            return Ok(LocalMerge::Conflict(error.to_string()));
        }
        Err(error) => return Err(unknown(error)),
    };
    let result = match outcome {
        GitMergeOutcome::Merged(merged) => merged.commit,
        GitMergeOutcome::Contained(commit) => commit,
        GitMergeOutcome::Conflict { paths } => return Ok(LocalMerge::Conflict(paths.join(", "))),
        GitMergeOutcome::Unrelated => {
            return Ok(LocalMerge::Conflict(
                "its history has no commit in common with the branch".to_owned(),
            ));
        }
    };
    let files = changed_paths(repository, &onto.id, &ask.head, &result.id)?;
    // The pack includes the proposed commit even when it is not a parent of the result: file
    // comments of jobs refer to its lines.
    let tips = [result.id.clone(), ask.head.clone()];
    let pack = repository.pack_objects_beyond(&tips, packs).map_err(unknown)?;
    let delta = match keep {
        // A change that the branch already contains needs no fast-forward.
        DeltaMode::Added if result.id != onto.id => {
            match repository.commit_delta(&onto.id, &result.id) {
                Ok(delta) => delta,
                Err(GitReadError::TooLarge { .. }) => None,
                Err(error) => return Err(unknown(error)),
            }
        }
        DeltaMode::Added | DeltaMode::Nothing => None,
    };
    Ok(LocalMerge::Merged { result, pack, files, delta })
}

/// Returns the paths that a change touches, sorted: those in which `head` differs from the merge
/// base, and those in which `result` differs from `onto`. They differ when the branch renamed a
/// file, because merges follow renames. `None` when there are too many, or when a comparison fails.
fn changed_paths(
    repository: &Repository,
    onto: &Oid,
    head: &Oid,
    result: &Oid,
) -> Result<Option<Vec<String>>, ReposError> {
    let base = repository.merge_base(onto, head).map_err(unknown)?.unwrap_or_else(|| onto.clone());
    let proposed = repository.changed_files(&base, head, FILES_MAX);
    let made = repository.changed_files(onto, result, FILES_MAX);
    let (Ok(proposed), Ok(made)) = (proposed, made) else { return Ok(None) };
    let all: BTreeSet<String> = proposed.into_iter().chain(made).collect();
    Ok(Some(all.into_iter().collect()))
}

/// Converts a fetch error: gone (no such repository, ref or commit), unreadable (access denied, too
/// many refs, too large, unusable address), unreachable (no answer in time, or none that can be
/// used), or unknown (the cache failed).
pub(crate) fn gone_or_unknown(error: FetchError) -> ReposError {
    match &error {
        FetchError::Gone { .. } | FetchError::NoRepository { .. } => {
            ReposError::Gone(error.to_string())
        }
        FetchError::Denied { .. }
        | FetchError::TooManyRefs { .. }
        | FetchError::TooLarge { .. }
        | FetchError::Address { .. } => ReposError::Unreadable(error.to_string()),
        FetchError::TimedOut { .. } | FetchError::Unavailable { .. } => {
            ReposError::Unreachable(error.to_string())
        }
        FetchError::Pack(_) | FetchError::Read(_) => unknown(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_local_forge::{AccountPermission, Edit, ForgeAccount, ForgeOptions, LocalForge};
    use sluice_model::git::MergeMode;
    use std::path::Path;
    use std::process::Command;

    /// Runs git, which must succeed, and returns its output.
    fn git(dir: &Path, arguments: &[&str]) -> String {
        let who = [
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.org",
            "-c",
            "commit.gpgsign=false",
        ];
        let output = Command::new("git")
            .args(who)
            .args(arguments)
            .current_dir(dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(dir: &Path, message: &str) -> Oid {
        git(dir, &["add", "-A"]);
        git(dir, &["commit", "-q", "-m", message]);
        Oid(git(dir, &["rev-parse", "HEAD"]))
    }

    /// C5: a repository with too many refs is polled for its branches.
    #[tokio::test(flavor = "multi_thread")]
    async fn branches_alone_are_listed_where_branches_and_tags_are_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("forge");
        let accounts = vec![ForgeAccount::new("ada", "ada-token", AccountPermission::Admin)];
        let options = ForgeOptions { root, port: 0, accounts, first_hook: None };
        let forge = LocalForge::start(options).await.unwrap();
        forge.create_repository("org/one", &[Edit::write("a", "\n")], "ada").await.unwrap();
        let bare = dir.path().join("forge/git/org/one.git");
        git(&bare, &["tag", "1.0", "main"]);
        git(&bare, &["tag", "2.0", "main"]);
        let main = Oid(git(&bare, &["rev-parse", "main"]));
        let from = FetchSource {
            url: format!("{}/org/one", forge.web_url()),
            credential: Some(Credential::token("ada-token")),
        };
        let project = ProjectName::from("forge.test/org/one");
        let repository = Repository::open(&project, &dir.path().join("cache")).unwrap();
        let listed = tokio::task::spawn_blocking(move || {
            let limits = |refs_max| FetchLimits { refs_max, ..FetchLimits::default() };
            let list = |refs_max| list_refs(&repository, &from, limits(refs_max));
            let read = |name| read_ref(&repository, &from, name, limits(1)).unwrap();
            let refs = [read("refs/tags/1.0"), read("refs/tags/1")];
            (list(3), list(2), list(0), refs)
        });
        let (all, branches, none, refs) = listed.await.unwrap();
        assert_eq!(refs, [Some(main.clone()), None]);
        let all = all.unwrap();
        assert_eq!((all.commits.len(), all.tags_left_out), (3, None));
        let branches = branches.unwrap();
        assert_eq!(branches.commits, BTreeMap::from([("refs/heads/main".to_owned(), main)]));
        assert!(branches.tags_left_out.is_some_and(|why| why.contains("more than 2")));
        assert!(matches!(none, Err(ReposError::Unreadable(_))), "{none:?}");
    }

    /// C5: a server that accepts a connection and does not answer is given up after seconds.
    #[tokio::test]
    async fn a_silent_server_is_not_waited_for() {
        let at = ProjectAt {
            connection: "plain".into(),
            project: ProjectName::from("git.test/org/one"),
        };
        let never = std::future::pending::<Result<(), ReposError>>();
        let given_up = within(0, &at, "show refs/heads/main", never).await.unwrap_err();
        assert!(matches!(given_up, ReposError::Unreachable(_)));
        let expected =
            "the server of git.test/org/one did not show refs/heads/main within 0 seconds";
        assert_eq!(given_up.to_string(), expected);
    }

    /// C06, Z6.6: a merge follows renames, so it may change a configuration file that the change
    /// does not name.
    #[test]
    fn a_change_to_a_file_moved_into_the_configuration_touches_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("repository");
        std::fs::create_dir_all(at.join("conf")).unwrap();
        git(&at, &["init", "-q", "-b", "main"]);
        let text: String = (0..40).map(|line| format!("# line {line}\n")).collect();
        std::fs::write(at.join("conf/a.yaml"), &text).unwrap();
        commit(&at, "start");
        git(&at, &["switch", "-q", "-c", "change"]);
        std::fs::write(at.join("conf/a.yaml"), text.replace("# line 20\n", "- job: {name: x}\n"))
            .unwrap();
        let head = commit(&at, "a change");
        git(&at, &["switch", "-q", "main"]);
        std::fs::create_dir_all(at.join("zuul.d")).unwrap();
        git(&at, &["mv", "conf/a.yaml", "zuul.d/a.yaml"]);
        let onto = commit(&at, "moved");
        git(&at, &["repack", "-adq"]);
        let project = ProjectName::from("forge.test/org/one");
        let cache = dir.path().join("cache");
        let mut repository = Repository::open(&project, &cache).unwrap();
        for entry in std::fs::read_dir(at.join(".git/objects/pack")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "pack") {
                let (pack, index) = (
                    std::fs::read(&path).unwrap(),
                    std::fs::read(path.with_extension("idx")).unwrap(),
                );
                repository.add_pack(&pack, &index).unwrap();
            }
        }
        let ask = BranchMerge {
            connection: "github".into(),
            branch: BranchKey { project: project.clone(), branch: "main".into() },
            onto: None,
            head,
            mode: MergeMode::Merge,
            message: "Merge it".to_owned(),
        };
        let onto = repository.commit(&onto).unwrap().commit;
        let LocalMerge::Merged { files: Some(files), .. } =
            merge_here(&mut repository, &ask, &onto, &[], DeltaMode::Nothing).unwrap()
        else {
            panic!("it merges");
        };
        assert_eq!(files, ["conf/a.yaml", "zuul.d/a.yaml"]);
    }
}
