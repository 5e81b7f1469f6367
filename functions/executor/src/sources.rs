//! Provides packs of repositories from object storage, cached in a directory.

use crate::job::{PackRequest, Packs, RepositorySources, SourceError};
use crate::pack_cache::{CACHE_BYTES_MAX, evict, mark_used};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_git::{PackName, Repository, keys};
use sluice_model::ProjectName;
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Provides packs that the merger stored in object storage (Z7.2: executors and nodes never fetch
/// from a forge).
pub struct ObjectSources {
    /// Access to objects.
    ports: Ports,
    /// The directory of the cache.
    dir: PathBuf,
    /// One lock per project that is in use. The builds of a change start together and need the same
    /// packs, so only one of them downloads.
    project_locks: Mutex<BTreeMap<ProjectName, ProjectLock>>,
}

type ProjectLock = Arc<tokio::sync::Mutex<()>>;

impl ObjectSources {
    /// Creates a provider with its cache below `dir`.
    pub fn new(ports: Ports, dir: PathBuf) -> Self {
        Self { ports, dir, project_locks: Mutex::default() }
    }

    /// Returns the download lock of a project, not locked yet, and drops locks that are not in use.
    fn project_lock(&self, project: &ProjectName) -> ProjectLock {
        let mut project_locks = self.project_locks.lock().unwrap_or_else(PoisonError::into_inner);
        project_locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        project_locks.entry(project.clone()).or_default().clone()
    }

    /// Removes all packs from the cache that builds do not need at this time, to free disk space.
    /// Packs are downloaded again when they are needed.
    pub async fn free_disk(&self) {
        self.shrink(0).await;
    }

    /// Removes packs from the cache, the least recently used ones first, until they take at most
    /// `bytes_max` bytes. What was removed is logged.
    async fn shrink(&self, bytes_max: u64) {
        let dir = self.dir.clone();
        let freed =
            tokio::task::spawn_blocking(move || evict(&dir, bytes_max, SystemTime::now())).await;
        if let Ok(bytes @ 1..) = freed {
            tracing::info!(bytes, "packs that were used least recently are removed from the cache");
        }
    }

    /// Downloads the requested packs of a project that the cache lacks, and returns the cache's
    /// pack directory with the names of all requested packs, each once. Whether they contain the
    /// requested commits is not checked, and the connection is not used. Only one download of a
    /// project runs at a time. An error if a key is in an unknown format, or a pack is missing or
    /// damaged.
    async fn fetch(&self, request: &PackRequest<'_>) -> Result<Packs, Cause> {
        let lock = self.project_lock(request.project);
        let _one = lock.lock().await;
        let dir = self.dir.join(keys::escape(request.project.as_str()));
        let (mut names, mut keys_of): (Vec<PackName>, Vec<&str>) = (Vec::new(), Vec::new());
        for key in &request.packs {
            let name = keys::pack_of(key).ok_or_else(|| unknown_key(key))?;
            // A state may list a pack more than once.
            if !names.contains(&name) {
                names.push(name);
                keys_of.push(key);
            }
        }
        // Checks all packs at once: a state has many packs, and usually all are cached.
        let (project, opened, checked) = (request.project.clone(), dir.clone(), names.clone());
        let find_cached = move || {
            let held = Repository::open(&project, &opened)?;
            // Before they are looked for, so that none of them is removed meanwhile.
            mark_used(&held.pack_dir(), &checked, SystemTime::now());
            let cached: Vec<bool> = checked.iter().map(|name| held.has_pack(name)).collect();
            Ok::<_, Cause>((held.pack_dir(), cached))
        };
        let (directory, cached) = tokio::task::spawn_blocking(find_cached).await??;
        let is_complete = cached.iter().all(|is_here| *is_here);
        for (key, is_here) in keys_of.into_iter().zip(cached) {
            if is_here {
                continue;
            }
            let object = self.object(key).await?;
            let (project, opened) = (request.project.clone(), dir.clone());
            let add = move || Repository::open(&project, &opened)?.add_stored(&object).map(drop);
            tokio::task::spawn_blocking(add).await??;
        }
        if !is_complete {
            self.shrink(CACHE_BYTES_MAX).await;
        }
        Ok(Packs { directory, names })
    }

    /// Downloads the stored pack with the object key `key`; an error if it does not exist.
    async fn object(&self, key: &str) -> Result<Bytes, Cause> {
        let found = self.ports.objects.get(key).await?;
        Ok(found.ok_or_else(|| format!("the pack {key} is not in object storage"))?.bytes)
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Returns the error message for an unknown object key in a tested state. The merger may be newer
/// than this executor.
fn unknown_key(key: &str) -> String {
    format!(
        "{key} is not a pack key known to this executor: update the executors to the version of the functions, \
         and run the job again"
    )
}

#[async_trait]
impl RepositorySources for ObjectSources {
    async fn packs(&self, request: &PackRequest<'_>) -> Result<Packs, SourceError> {
        self.fetch(request)
            .await
            .map_err(|source| SourceError { project: request.project.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_git::NewPack;
    use sluice_memory::World;
    use sluice_model::Timestamp;
    use sluice_runtime::object::PutMode;
    use std::path::Path;
    use std::process::Command;

    /// Makes a repository with git and returns its one pack.
    fn packed(dir: &Path) -> NewPack {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("a.txt"), "a\n").unwrap();
        let steps: [&[&str]; 4] = [
            &["init", "-q", "-b", "main"],
            &["add", "-A"],
            &[
                "-c",
                "user.name=Ann",
                "-c",
                "user.email=ann@example.org",
                "commit",
                "-q",
                "-m",
                "one",
            ],
            &["repack", "-adq"],
        ];
        for arguments in steps {
            let mut git = Command::new("git");
            git.args(arguments)
                .current_dir(dir)
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("GIT_CONFIG_GLOBAL", "/dev/null");
            assert!(git.status().unwrap().success(), "git {arguments:?}");
        }
        let entries = std::fs::read_dir(dir.join(".git/objects/pack")).unwrap();
        let mut files = entries.map(|entry| entry.unwrap().path());
        let pack =
            files.find(|path| path.extension().is_some_and(|ending| ending == "pack")).unwrap();
        let name: PackName = pack.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let size_bytes = std::fs::metadata(&pack).unwrap().len();
        NewPack { name, index: pack.with_extension("idx"), pack, objects: 3, size_bytes }
    }

    #[tokio::test]
    async fn a_pack_is_loaded_with_its_index_and_stored_once() {
        let folder = tempfile::tempdir().unwrap();
        let pack = packed(&folder.path().join("repository"));
        let project = ProjectName::from("forge.example/org/name");
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let joined = keys::pack(&project, &pack.name);
        let bytes = pack.joined(&project).unwrap();
        ports
            .objects
            .put(&joined, bytes.into(), PutMode::Always, "application/octet-stream")
            .await
            .unwrap();
        let rows = [vec![joined.as_str()], vec![joined.as_str(), joined.as_str()]];
        for (number, packs) in rows.into_iter().enumerate() {
            let sources =
                ObjectSources::new(ports.clone(), folder.path().join(format!("cache-{number}")));
            let request =
                PackRequest { connection: None, project: &project, packs, commits: Vec::new() };
            let held = sources.packs(&request).await.unwrap();
            assert_eq!(held.names, std::slice::from_ref(&pack.name), "{:?}", request.packs);
            for (ending, from) in [("pack", &pack.pack), ("idx", &pack.index)] {
                let file = held.directory.join(format!("{}.{ending}", pack.name));
                assert!(
                    std::fs::read(file).unwrap() == std::fs::read(from).unwrap(),
                    "{:?}",
                    request.packs
                );
            }
        }
    }

    /// Z7.3: a full disk is freed of packs that no build needs; they are downloaded again.
    #[tokio::test]
    async fn packs_that_were_not_used_lately_are_removed_to_free_the_disk_and_loaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let pack = packed(&folder.path().join("repository"));
        let project = ProjectName::from("forge.example/org/name");
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let key = keys::pack(&project, &pack.name);
        let bytes = pack.joined(&project).unwrap();
        let stored = ports.objects.put(&key, bytes.into(), PutMode::Always, "text/plain");
        stored.await.unwrap();
        let sources = ObjectSources::new(ports, folder.path().join("cache"));
        let request = || PackRequest {
            connection: None,
            project: &project,
            packs: vec![key.as_str()],
            commits: Vec::new(),
        };
        let held = sources.packs(&request()).await.unwrap();
        let file = held.directory.join(format!("{}.pack", pack.name));
        let an_hour_ago = SystemTime::now() - std::time::Duration::from_secs(3_600);
        mark_used(&held.directory, &held.names, an_hour_ago);
        sources.packs(&request()).await.unwrap();
        sources.free_disk().await;
        assert!(file.exists(), "a build has just asked for it");
        mark_used(&held.directory, &held.names, an_hour_ago);
        sources.free_disk().await;
        assert!(!file.exists());
        sources.packs(&request()).await.unwrap();
        assert!(file.exists());
    }

    /// If only the functions are updated, they may store a format that this executor does not know.
    #[tokio::test]
    async fn a_pack_in_an_unknown_format_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let project = ProjectName::from("forge.example/org/name");
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let key = format!("{}pack-{}.later", keys::prefix(&project), "a1".repeat(20));
        let sources = ObjectSources::new(ports, folder.path().join("cache"));
        let request = PackRequest {
            connection: None,
            project: &project,
            packs: vec![key.as_str()],
            commits: Vec::new(),
        };
        let error = sources.packs(&request).await.unwrap_err().source.to_string();
        assert!(error.contains(&key) && error.contains("update the executors"), "{error}");
    }

    #[tokio::test]
    async fn a_truncated_pack_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let pack = packed(&folder.path().join("repository"));
        let project = ProjectName::from("forge.example/org/name");
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let key = keys::pack(&project, &pack.name);
        let mut bytes = pack.joined(&project).unwrap();
        bytes.truncate(bytes.len() / 2);
        ports
            .objects
            .put(&key, bytes.into(), PutMode::Always, "application/octet-stream")
            .await
            .unwrap();
        let sources = ObjectSources::new(ports, folder.path().join("cache"));
        let request = PackRequest {
            connection: None,
            project: &project,
            packs: vec![key.as_str()],
            commits: Vec::new(),
        };
        let error = sources.packs(&request).await.unwrap_err();
        assert!(error.source.to_string().contains("download it again"), "{}", error.source);
    }
}
