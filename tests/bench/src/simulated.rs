//! A deployment with a forge and repositories simulated in memory, to measure Sluice's own work
//! alone.

use crate::clocked;
use crate::deployment::{Deployment, Parts, signed};
use crate::runner::Builds;
use crate::sample::{self, File, Nodes};
use sluice_forge::Forge;
use sluice_model::ProjectName;
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_repos::Repos;
use sluice_scenarios::forge::PlayedForge;
use sluice_scenarios::repos::{PlayedRepos, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A deployment with a simulated forge.
pub struct Played {
    /// The deployment.
    pub deployment: Deployment,
    /// The forge.
    pub forge: Arc<PlayedForge>,
    /// Time spent in the forge and in repositories.
    pub outside: clocked::Stopwatch,
}

impl Played {
    /// Builds it.
    pub async fn new(nodes: Nodes) -> Self {
        Self::of(sample::MAIN, &sample::repositories(nodes)).await
    }

    /// Builds one with this main configuration and these repositories: project, path, text.
    pub async fn of(main_yaml: &str, repositories: &[File]) -> Self {
        let world = Deployment::world();
        let store = Arc::new(Mutex::new(Store::default()));
        for (project, path, text) in repositories {
            let mut store = store.lock().unwrap();
            let commit =
                store.commit(BTreeMap::from([(path.clone(), text.clone())]), Vec::new(), "first");
            store.set(
                &BranchKey {
                    project: ProjectName::new("forge.test", project),
                    branch: "main".into(),
                },
                &commit.id,
            );
        }
        let outside = clocked::Stopwatch::default();
        let forge = Arc::new(PlayedForge::new(world.clone(), store.clone()));
        let clocked_forge: Arc<dyn Forge> =
            Arc::new(clocked::ClockedForge::new(forge.clone(), outside.clone()));
        let repos: Arc<dyn Repos> = Arc::new(PlayedRepos::new(world.clone(), store));
        let repos: Arc<dyn Repos> = Arc::new(clocked::ClockedRepos::new(repos, outside.clone()));
        let (telling, repos) = (forge.clone(), Box::new(move |_| repos.clone()));
        let inbox = Box::new(move || {
            telling.next_webhook().map(|webhook| signed(&webhook.id, &webhook.event, webhook.body))
        });
        let parts = Parts {
            world,
            forge: clocked_forge,
            repos,
            git_url: "https://forge.test".to_owned(),
            inbox,
            builds: Builds::Nothing,
        };
        Self { deployment: Deployment::new(parts, main_yaml).await, forge, outside }
    }

    /// Proposes a change of a file of its own.
    pub fn propose(&self, number: u64) -> ChangeKey {
        let (path, title) = (format!("file-{number}"), format!("Change {number}"));
        self.forge.propose("org/one", number, &title, "", &[(&path, "new")])
    }

    /// Whether a change has the status.
    pub fn has_status(&self, change: &ChangeKey, context: &str, state: &str) -> bool {
        let stored = self.forge.change(change);
        stored.is_some_and(|stored| {
            stored
                .facts
                .statuses
                .iter()
                .any(|status| status.context == context && status.state == state)
        })
    }
}
