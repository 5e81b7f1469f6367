//! Repositories from object storage: packs are downloaded once and kept in a cache directory.

use crate::job::{Packs, SourceError, Sources, Wanted};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_git::{PackName, Repository, keys};
use sluice_model::ProjectName;
use sluice_runtime::Ports;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Packs that lie in object storage, where the merger put them (Z7.2: nodes and executors fetch
/// from no forge).
pub struct ObjectSources {
    ports: Ports,
    dir: PathBuf,
    /// Projects of which a build is looking for packs: the builds of a change begin together and
    /// need the same.
    turns: Mutex<BTreeMap<ProjectName, Turn>>,
}

type Turn = Arc<tokio::sync::Mutex<()>>;

impl ObjectSources {
    /// Makes sources that are cached below `dir`.
    pub fn new(ports: Ports, dir: PathBuf) -> Self {
        Self { ports, dir, turns: Mutex::default() }
    }

    /// Returns the turn to look for packs of a project; those that nobody holds are forgotten.
    fn turn(&self, project: &ProjectName) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(project.clone()).or_default().clone()
    }

    async fn hold(&self, wanted: &Wanted<'_>) -> Result<Packs, Cause> {
        let turn = self.turn(wanted.project);
        let _one = turn.lock().await;
        let dir = self.dir.join(keys::escape(wanted.project.as_str()));
        let (mut names, mut keys_of): (Vec<PackName>, Vec<&str>) = (Vec::new(), Vec::new());
        for key in &wanted.packs {
            let name = keys::pack_of(key).ok_or_else(|| unknown(key))?;
            // A pack that is listed in the form of an earlier version as well is put in place once.
            if !names.contains(&name) {
                names.push(name);
                keys_of.push(key);
            }
        }
        // Opened once for all of them: a state has many packs, and mostly all are here already.
        let (project, opened, asked) = (wanted.project.clone(), dir.clone(), names.clone());
        let look = move || {
            let held = Repository::open(&project, &opened)?;
            let here: Vec<bool> = asked.iter().map(|name| held.has_pack(name)).collect();
            Ok::<_, Cause>((held.pack_dir(), here))
        };
        let (directory, here) = tokio::task::spawn_blocking(look).await??;
        for (key, is_here) in keys_of.into_iter().zip(here) {
            if is_here {
                continue;
            }
            let (object, index) = self.stored(key).await?;
            let (project, opened) = (wanted.project.clone(), dir.clone());
            let add = move || {
                Repository::open(&project, &opened)?.add_stored(&object, index.as_deref()).map(drop)
            };
            tokio::task::spawn_blocking(add).await??;
        }
        Ok(Packs { directory, names })
    }

    /// Downloads a pack as it is stored: with its index, or with the index of an earlier version
    /// that lies beside it.
    async fn stored(&self, key: &str) -> Result<(Bytes, Option<Bytes>), Cause> {
        let Some(index) = keys::index_beside(key) else {
            return Ok((self.object(key).await?, None));
        };
        let (pack, index) = tokio::try_join!(self.object(key), self.object(&index))?;
        Ok((pack, Some(index)))
    }

    async fn object(&self, key: &str) -> Result<Bytes, Cause> {
        let found = self.ports.objects.get(key).await?;
        Ok(found.ok_or_else(|| format!("the pack {key} is not in object storage"))?.bytes)
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Says of a key in a tested state that it names nothing that is read here, and what to do: whoever
/// tested it may be newer.
fn unknown(key: &str) -> String {
    format!(
        "{key} is no key of a pack, or of one in a form that is newer than this executor: update the executors to the \
         version of the functions, and run the job again"
    )
}

#[async_trait]
impl Sources for ObjectSources {
    async fn packs(&self, wanted: &Wanted<'_>) -> Result<Packs, SourceError> {
        self.hold(wanted)
            .await
            .map_err(|source| SourceError { project: wanted.project.clone(), source })
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

    /// States of an earlier version name packs whose index is an object of its own.
    #[tokio::test]
    async fn a_pack_is_loaded_in_the_form_that_its_key_names_and_put_in_place_once() {
        let folder = tempfile::tempdir().unwrap();
        let pack = packed(&folder.path().join("repository"));
        let project = ProjectName::from("forge.example/org/name");
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let (joined, alone) = (
            keys::pack(&project, &pack.name),
            format!("{}{}.pack", keys::prefix(&project), pack.name),
        );
        let beside = keys::index_beside(&alone).unwrap();
        let stored = [
            (&joined, pack.joined(&project).unwrap()),
            (&alone, std::fs::read(&pack.pack).unwrap()),
            (&beside, std::fs::read(&pack.index).unwrap()),
        ];
        for (key, bytes) in stored {
            ports
                .objects
                .put(key, bytes.into(), PutMode::Always, "application/octet-stream")
                .await
                .unwrap();
        }
        let rows =
            [vec![joined.as_str()], vec![alone.as_str()], vec![joined.as_str(), alone.as_str()]];
        for (number, packs) in rows.into_iter().enumerate() {
            let sources =
                ObjectSources::new(ports.clone(), folder.path().join(format!("cache-{number}")));
            let wanted = Wanted { connection: None, project: &project, packs, commits: Vec::new() };
            let held = sources.packs(&wanted).await.unwrap();
            assert_eq!(held.names, std::slice::from_ref(&pack.name), "{:?}", wanted.packs);
            for (ending, from) in [("pack", &pack.pack), ("idx", &pack.index)] {
                let file = held.directory.join(format!("{}.{ending}", pack.name));
                assert!(
                    std::fs::read(file).unwrap() == std::fs::read(from).unwrap(),
                    "{:?}",
                    wanted.packs
                );
            }
        }
    }

    /// An update of the functions alone has them store what this executor does not know.
    #[tokio::test]
    async fn a_pack_in_a_form_that_is_not_known_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let project = ProjectName::from("forge.example/org/name");
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let key = format!("{}pack-{}.later", keys::prefix(&project), "a1".repeat(20));
        let sources = ObjectSources::new(ports, folder.path().join("cache"));
        let wanted = Wanted {
            connection: None,
            project: &project,
            packs: vec![key.as_str()],
            commits: Vec::new(),
        };
        let error = sources.packs(&wanted).await.unwrap_err().source.to_string();
        assert!(error.contains(&key) && error.contains("update the executors"), "{error}");
    }

    #[tokio::test]
    async fn a_pack_that_is_cut_off_is_refused_with_what_to_do() {
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
        let wanted = Wanted {
            connection: None,
            project: &project,
            packs: vec![key.as_str()],
            commits: Vec::new(),
        };
        let error = sources.packs(&wanted).await.unwrap_err();
        assert!(error.source.to_string().contains("download it again"), "{}", error.source);
    }
}
