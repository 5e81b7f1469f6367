//! Repositories from object storage: packs are downloaded once and kept in a cache directory.

use crate::job::{Packs, SourceError, Sources, Wanted};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_git::{PackName, Repository, keys};
use sluice_runtime::Ports;
use std::path::PathBuf;

/// Packs that lie in object storage, where the merger put them (Z7.2: nodes and executors fetch from no forge).
pub struct ObjectSources {
    ports: Ports,
    dir: PathBuf,
}

impl ObjectSources {
    /// Makes sources that are cached below `dir`.
    pub fn new(ports: Ports, dir: PathBuf) -> Self {
        Self { ports, dir }
    }

    async fn hold(&self, wanted: &Wanted<'_>) -> Result<Packs, Cause> {
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
            let (pack, index) =
                (self.object(key).await?, self.object(&format!("{}.idx", key.trim_end_matches(".pack"))).await?);
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
