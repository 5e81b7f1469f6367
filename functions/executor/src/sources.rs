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

/// Packs that lie in object storage, where the merger put them (Z7.2: nodes and executors fetch from no forge).
pub struct ObjectSources {
    ports: Ports,
    dir: PathBuf,
    /// Projects of which a build is looking for packs: the builds of a change begin together and need the same.
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
        let mut names: Vec<PackName> = Vec::new();
        for key in &wanted.packs {
            let name = keys::pack_of(key).ok_or_else(|| format!("{key} is no key of a pack"))?;
            names.push(name.clone());
            let (project, opened) = (wanted.project.clone(), dir.clone());
            let has = tokio::task::spawn_blocking(move || {
                Ok::<_, Cause>(Repository::open(&project, &opened)?.has_pack(&name))
            })
            .await??;
            if has {
                continue;
            }
            let index_key = format!("{}.idx", key.trim_end_matches(".pack"));
            let (pack, index) = tokio::try_join!(self.object(key), self.object(&index_key))?;
            let (project, opened) = (wanted.project.clone(), dir.clone());
            tokio::task::spawn_blocking(move || Repository::open(&project, &opened)?.add_pack(&pack, &index).map(drop))
                .await??;
        }
        let (project, opened) = (wanted.project.clone(), dir.clone());
        let directory =
            tokio::task::spawn_blocking(move || Repository::open(&project, &opened).map(|held| held.pack_dir()))
                .await??;
        Ok(Packs { directory, names })
    }

    async fn object(&self, key: &str) -> Result<Bytes, Cause> {
        let found = self.ports.objects.get(key).await?;
        Ok(found.ok_or_else(|| format!("the pack {key} is not in object storage"))?.bytes)
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[async_trait]
impl Sources for ObjectSources {
    async fn packs(&self, wanted: &Wanted<'_>) -> Result<Packs, SourceError> {
        self.hold(wanted).await.map_err(|source| SourceError { project: wanted.project.clone(), source })
    }
}
