//! The repository of one project in this process: its cache directory, open repositories, and the
//! last read list of packs.

use crate::ReposError;
use crate::cache::{append, blocking, download, error_chain, load_list, unknown, upload};
use sluice_git::{
    Credential, FetchLimits, FetchRequest, PackName, RemoteRef, Repository, Want, keys,
};
use sluice_model::ProjectName;
use sluice_model::Timestamp;
use sluice_model::git::Oid;
use sluice_records::repository::RepositoryPacks as List;
use sluice_runtime::Ports;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most open repositories of one project.
const OPEN_MAX: usize = 2;
/// Merges after which an open repository is closed. Its merge results are in memory, and in packs
/// on disk.
const MERGES_MAX: u32 = 64;
/// Packs that may be added to the directory before an open repository is refreshed. It has room for
/// only some more.
const PACKS_ADDED_MAX: u64 = 16;
/// Milliseconds for which the list of packs is cached. An old list is only shorter: missing objects
/// are fetched, or packed, again.
const LIST_MILLIS: u64 = 60_000;
/// The most fetched objects that are in no listed pack. When there are more they are listed, so
/// that not every merge packs them again.
const TAIL_OBJECTS_MAX: u64 = 500;

/// The cached repository of one project.
pub(crate) struct ProjectCache {
    /// The project.
    project: ProjectName,
    /// The directory of its repository.
    dir: PathBuf,
    /// What is open and known of it.
    state: Mutex<State>,
    /// Only one fetch runs at a time: two would store the same objects twice.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Open repositories that are idle.
    open: Vec<OpenRepository>,
    /// The list of packs and when it was read.
    list: Option<(Timestamp, List)>,
    /// Fetched tips that are in no listed pack, and the number of objects fetched with them.
    tail: (Vec<Oid>, u64),
    /// The number of packs added to the directory.
    added: u64,
}

struct OpenRepository {
    /// The repository.
    repository: Repository,
    /// The number of merges since it was opened.
    merges: u32,
    /// The value of `added` at the last refresh.
    seen: u64,
}

/// The address and credential of a repository on a forge.
#[derive(Debug, Clone)]
pub(crate) struct FetchSource {
    /// The address of the repository.
    pub(crate) url: String,
    /// The credential for the address, if one is needed.
    pub(crate) credential: Option<Credential>,
}

impl ProjectCache {
    /// Returns the cache of one project's repository in `dir`. Opens and creates nothing yet.
    pub(crate) fn new(project: ProjectName, dir: PathBuf) -> Self {
        Self { project, dir, state: Mutex::default(), fetching: tokio::sync::Mutex::new(()) }
    }

    /// Runs `work` on an open repository, in a thread for blocking work, and returns its result.
    /// Opens one if none is idle, so that calls can run concurrently. The next call may get another
    /// one, and this one may be closed after any call, so `work` itself must pack the merge results
    /// that are in memory. If `work` fails, the repository is closed.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Repository) -> Result<T, ReposError> + Send + 'static,
    ) -> Result<T, ReposError> {
        let (open, added) = {
            let mut state = self.lock();
            (state.open.pop(), state.added)
        };
        let (project, dir) = (self.project.clone(), self.dir.clone());
        let (open, done) = blocking(move || {
            let mut open = match open {
                Some(open) => open,
                None => OpenRepository {
                    repository: Repository::open(&project, &dir).map_err(unknown)?,
                    merges: 0,
                    seen: added,
                },
            };
            if added - open.seen >= PACKS_ADDED_MAX {
                open.repository.refresh().map_err(unknown)?;
                open.seen = added;
            }
            let done = work(&mut open.repository)?;
            open.merges += 1;
            Ok((open, done))
        })
        .await?;
        let mut state = self.lock();
        if open.merges < MERGES_MAX && state.open.len() < OPEN_MAX {
            state.open.push(open);
        }
        Ok(done)
    }

    /// Counts packs that the caller added to the directory. After some, open repositories are
    /// refreshed.
    pub(crate) fn added(&self, packs: usize) {
        self.lock().added += packs as u64;
    }

    /// Downloads the packs, given by their keys, that are missing in the cache, and adds them to
    /// it. A pack that does not exist or is damaged, and a key of something else, is an error;
    /// packs added before it stay.
    pub(crate) async fn ensure_packs(
        &self,
        ports: &Ports,
        packs: &[String],
    ) -> Result<(), ReposError> {
        let names = packs.iter().map(|key| Ok((key.clone(), name_of(key)?)));
        let names: Vec<(String, PackName)> = names.collect::<Result<_, ReposError>>()?;
        let missing = self
            .with(move |repository| {
                let missing = names.into_iter().filter(|(_, name)| !repository.has_pack(name));
                Ok(missing.map(|(key, _)| key).collect::<Vec<_>>())
            })
            .await?;
        for key in &missing {
            let object = download(ports, key).await?;
            let at = key.clone();
            self.with(move |repository| match repository.add_stored(&object) {
                Ok(_) => Ok(()),
                Err(error) => {
                    Err(ReposError::Unknown(format!("could not add {at}: {}", error_chain(&error))))
                }
            })
            .await?;
        }
        self.added(missing.len());
        Ok(())
    }

    /// Returns whether the cache has a commit, and so everything it reaches: in a pack, or in the
    /// memory of the one open repository that is asked.
    pub(crate) async fn has(&self, commit: &Oid) -> Result<bool, ReposError> {
        let commit = commit.clone();
        self.with(move |repository| Ok(repository.has(&commit))).await
    }

    /// Fetches a commit, with its history, from the forge unless the cache has it.
    /// [`ReposError::Gone`] if the forge does not have it either.
    pub(crate) async fn ensure_commit(
        &self,
        ports: &Ports,
        from: &FetchSource,
        commit: &Oid,
    ) -> Result<(), ReposError> {
        if self.has(commit).await? {
            return Ok(());
        }
        self.fetch(ports, from, vec![Want::Commit(commit.clone())]).await.map(|_| ())
    }

    /// Downloads the listed packs that are missing here, fetches the wanted objects that are still
    /// missing, and returns all wanted refs. Fetched packs stay in this cache; when these and
    /// earlier unlisted ones have many objects, they are uploaded and listed for all functions.
    /// Only one fetch of a project runs at a time. A missing ref or commit is [`ReposError::Gone`].
    pub(crate) async fn fetch(
        &self,
        ports: &Ports,
        from: &FetchSource,
        wants: Vec<Want>,
    ) -> Result<Vec<RemoteRef>, ReposError> {
        let _one = self.fetching.lock().await;
        let list = self.list(ports).await?;
        self.ensure_packs(ports, &list.packs).await?;
        let (tips, before) = self.lock().tail.clone();
        let haves: Vec<Oid> = list.tips.iter().chain(&tips).cloned().collect();
        let from = from.clone();
        let fetched = self
            .with(move |repository| {
                let (credential, limits) = (from.credential.as_ref(), FetchLimits::default());
                let request = FetchRequest {
                    url: &from.url,
                    credential,
                    wants: &wants,
                    haves: &haves,
                    limits,
                };
                repository.fetch(&request).map_err(crate::git::gone_or_unknown)
            })
            .await?;
        if fetched.packs.is_empty() {
            return Ok(fetched.refs);
        }
        self.added(fetched.packs.len());
        let objects =
            before + fetched.packs.iter().map(|pack| u64::from(pack.objects)).sum::<u64>();
        let new: Vec<Oid> = fetched.refs.iter().map(|found| found.commit().clone()).collect();
        if objects <= TAIL_OBJECTS_MAX {
            let mut state = self.lock();
            let missing = new.into_iter().filter(|tip| !tips.contains(tip));
            state.tail.0.extend(missing);
            state.tail.1 = objects;
        } else if before == 0 {
            // Everything it builds on is listed, so it is listed as received.
            let mut packs = Vec::new();
            for pack in &fetched.packs {
                packs.push(upload(ports, &self.project, pack).await?);
            }
            self.list_packs(ports, &packs, &new).await?;
        } else {
            let tips: Vec<Oid> = tips.into_iter().chain(new).collect();
            self.list_tips(ports, tips).await?;
        }
        Ok(fetched.refs)
    }

    /// Returns the keys of the packs that make up the repository including a commit, which must be
    /// in the cache. If the listed packs lack objects of it, uploads and lists a pack with them
    /// first.
    pub(crate) async fn packs_with(
        &self,
        ports: &Ports,
        commit: &Oid,
    ) -> Result<Vec<String>, ReposError> {
        self.list_tips(ports, vec![commit.clone()]).await?;
        Ok(self.list(ports).await?.packs)
    }

    /// Returns the list of packs as last read or written in this process; reads it again after a
    /// minute. An old list may lack packs of other functions.
    pub(crate) async fn list(&self, ports: &Ports) -> Result<List, ReposError> {
        let now = ports.clock.now();
        let cached = self.lock().list.clone().filter(|(at, _)| now.since(*at) < LIST_MILLIS);
        match cached {
            Some((_, list)) => Ok(list),
            None => {
                let list = load_list(ports, &self.project).await?;
                self.lock().list = Some((now, list.clone()));
                Ok(list)
            }
        }
    }

    /// Packs the objects that tips reach and no listed pack contains, and uploads and lists the
    /// pack with the tips. Lists nothing, not even the tips, if there are no such objects.
    /// Downloads missing listed packs first. The tips must be in the cache.
    async fn list_tips(&self, ports: &Ports, tips: Vec<Oid>) -> Result<(), ReposError> {
        let list = self.list(ports).await?;
        self.ensure_packs(ports, &list.packs).await?;
        let (names, packed) = (names_of(&list.packs)?, tips.clone());
        let made = self
            .with(move |repository| {
                repository.pack_objects_beyond(&packed, &names).map_err(unknown)
            })
            .await?;
        let Some(pack) = made else { return Ok(()) };
        self.added(1);
        let key = upload(ports, &self.project, &pack).await?;
        self.list_packs(ports, &[key], &tips).await
    }

    /// Adds uploaded packs and tips to the stored list that all functions read, and caches the new
    /// list. No fetched tip then counts as unlisted.
    async fn list_packs(
        &self,
        ports: &Ports,
        packs: &[String],
        tips: &[Oid],
    ) -> Result<(), ReposError> {
        let list = append(ports, &self.project, packs, tips).await?;
        let mut state = self.lock();
        state.list = Some((ports.clock.now(), list));
        state.tail = Default::default();
        Ok(())
    }

    /// Locks the cache.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses the names of packs from their keys, in their order. An error if one is the key of
/// something else.
pub(crate) fn names_of(keys: &[String]) -> Result<Vec<PackName>, ReposError> {
    keys.iter().map(|key| name_of(key)).collect()
}

/// Parses the name of a pack from its key. An error for another key.
fn name_of(key: &str) -> Result<PackName, ReposError> {
    keys::pack_of(key).ok_or_else(|| ReposError::Unknown(format!("{key} is not the key of a pack")))
}
