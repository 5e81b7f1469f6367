//! Counts the calls of one change with three jobs, by function and operation, on a house that has seen such a change before.

use crate::house::{Ends, EventSources, House, Parts, signed};
use crate::sample::{self, Nodes};
use crate::{clocked, money};
use sluice_forge::Forge;
use sluice_memory::{Calls, Used};
use sluice_model::ProjectName;
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_repos::Repos;
use sluice_scenarios::forge::PlayedForge;
use sluice_scenarios::repos::{PlayedRepos, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A house before a played forge.
pub struct Played {
    /// The house.
    pub house: House,
    /// The forge.
    pub forge: Arc<PlayedForge>,
    /// Time spent in the forge and in repositories.
    pub outside: clocked::Stopwatch,
}

impl Played {
    /// Builds it.
    pub async fn new(nodes: Nodes) -> Self {
        let repositories = sample::repositories(nodes).map(|(project, path, text)| (project.to_owned(), path, text));
        Self::of(sample::MAIN, &repositories).await
    }

    /// Builds one with this main configuration and these repositories: project, path, text.
    pub async fn of(main_yaml: &str, repositories: &[(String, &str, String)]) -> Self {
        let world = House::world();
        let store = Arc::new(Mutex::new(Store::default()));
        for (project, path, text) in repositories {
            let mut store = store.lock().unwrap();
            let commit = store.commit(BTreeMap::from([((*path).to_owned(), text.clone())]), Vec::new(), "first");
            store.set(
                &BranchKey { project: ProjectName::new("forge.test", project), branch: "main".into() },
                &commit.id,
            );
        }
        let outside = clocked::Stopwatch::default();
        let forge = Arc::new(PlayedForge::new(world.clone(), store.clone()));
        let clocked_forge: Arc<dyn Forge> = Arc::new(clocked::ClockedForge::new(forge.clone(), outside.clone()));
        let repos: Arc<dyn Repos> = Arc::new(PlayedRepos::new(world.clone(), store));
        let repos: Arc<dyn Repos> = Arc::new(clocked::ClockedRepos::new(repos, outside.clone()));
        let (telling, repos) = (forge.clone(), Box::new(move |_| repos.clone()));
        let inbox =
            Box::new(move || telling.next_webhook().map(|webhook| signed(&webhook.id, &webhook.event, webhook.body)));
        let parts = Parts { world, forge: clocked_forge, repos, git_url: "https://forge.test".to_owned(), inbox };
        Self { house: House::new(parts, main_yaml).await, forge, outside }
    }

    /// Proposes a change of a file of its own.
    pub fn propose(&self, number: u64) -> ChangeKey {
        let (path, title) = (format!("file-{number}"), format!("Change {number}"));
        self.forge.propose("org/one", number, &title, "", &[(&path, "new")])
    }

    /// Whether a change has the status.
    pub fn has_status(&self, change: &ChangeKey, context: &str, state: &str) -> bool {
        let kept = self.forge.change(change);
        kept.is_some_and(|kept| {
            kept.facts.statuses.iter().any(|status| status.context == context && status.state == state)
        })
    }
}

/// The calls of one stage of a change.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    /// Calls by function and operation.
    pub calls: BTreeMap<&'static str, BTreeMap<&'static str, Used>>,
    /// What event sources did for it.
    pub sources: EventSources,
    /// Records written.
    pub records_written: u64,
}

impl Stage {
    fn taken(house: &mut House) -> Self {
        let Calls { by_caller, records_written, .. } = house.world.take_calls();
        Self { calls: by_caller, sources: std::mem::take(&mut house.sources), records_written }
    }

    /// Returns the own calls of one function to DynamoDB, S3 and SQS.
    pub fn calls_of(&self, function: &str) -> u64 {
        self.calls.get(function).map_or(0, |operations| {
            operations.iter().filter(|(name, _)| is_own(name)).map(|(_, used)| used.calls).sum()
        })
    }

    /// Returns the own calls of all functions to DynamoDB, S3 and SQS.
    pub fn total(&self) -> u64 {
        self.calls.keys().map(|function| self.calls_of(function)).sum()
    }

    /// Returns the calls of one kind by all functions.
    pub fn by_service(&self, service: &str) -> u64 {
        let all = self.calls.values().flatten();
        all.filter(|(name, _)| money::service(name) == Some(service)).map(|(_, used)| used.calls).sum()
    }

    /// Returns what it would cost on AWS, event sources included.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn dollars(&self) -> f64 {
        let own: f64 = self.calls.values().flatten().map(|(name, used)| money::dollars(name, used)).sum();
        let (all, fifo) = ((self.sources.receives + self.sources.deletes) as f64, self.sources.fifo_calls as f64);
        own + fifo * money::SQS_FIFO_REQUEST + (all - fifo) * money::SQS_STANDARD_REQUEST
    }
}

fn is_own(operation: &str) -> bool {
    matches!(money::service(operation), Some("DynamoDB" | "S3" | "SQS"))
}

/// What a change costs.
#[derive(Debug, Clone)]
pub struct Counted {
    /// From the webhook to the report of check.
    pub check: Stage,
    /// From the approval to the landing and its report.
    pub gate: Stage,
    /// What the forge tells of the landing: the change was closed, the branch was pushed.
    pub echo: Stage,
}

/// Counts a check change and a gate change with three jobs of one node each.
pub async fn count(nodes: Nodes) -> Counted {
    let mut played = Played::new(nodes).await;
    played.house.ends = Ends::OneByOne;
    // The first one warms what functions keep in memory.
    one(&mut played, 1).await;
    one(&mut played, 2).await
}

async fn one(played: &mut Played, number: u64) -> Counted {
    Stage::taken(&mut played.house);
    let change = played.propose(number);
    played.house.rest().await;
    assert!(
        played.has_status(&change, "bench/check", "success"),
        "check did not end well: {:?}",
        played.forge.change(&change)
    );
    let check = Stage::taken(&mut played.house);
    played.forge.approve(&change);
    played.house.receive_all().await;
    played.house.listens = false;
    played.house.rest().await;
    assert!(
        played.has_status(&change, "bench/gate", "success"),
        "gate did not end well: {:?}",
        played.forge.change(&change)
    );
    let gate = Stage::taken(&mut played.house);
    played.house.listens = true;
    played.house.rest().await;
    Counted { check, gate, echo: Stage::taken(&mut played.house) }
}
