//! Builds that pause, on the ports in memory: they are told, give their slot up, and go on by the gate's word.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, json};
use sluice_executor::service::{Executor, Options};
use sluice_executor::{Job, Observer, Runner, Sources, StopSignal};
use sluice_memory::World;
use sluice_model::build::{BuildResult, Ended, Order, Pause, Phase, Run, Speculation};
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_model::poke::{Poke, Precedence, Queue};
use sluice_model::{BuildId, Timestamp};
use sluice_records::build::{self, Resume, Stop};
use sluice_records::codec::decode;
use sluice_runtime::object::PutMode;
use sluice_runtime::port::{Incoming, Outgoing, Queues};
use sluice_runtime::{Clock, PortError, cell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pauses in each job called `registry`, and passes.
struct Pausing;

#[async_trait]
impl Runner for Pausing {
    async fn execute(
        &self,
        job: &Job<'_>,
        _: &dyn Sources,
        jobdir: &Path,
        mut stop: StopSignal,
        observer: &dyn Observer,
    ) -> Ended {
        std::fs::create_dir_all(jobdir.join("work/logs")).unwrap();
        let at = Timestamp(1);
        if job.job.name.as_str() == "registry" {
            let mut data = Map::new();
            data.insert("address".to_owned(), json!("10.0.0.1"));
            observer.paused(Pause { since: at, data, data_object: None, log_url: None });
            stop.resumed().await;
        }
        let result = if stop.reason().is_some() { BuildResult::Aborted } else { BuildResult::Success };
        let (started_at, data) = (Some(at), Map::new());
        Ended { result, detail: None, started_at, ended_at: at, data, data_object: None, log_url: None }
    }
}

/// Queues that wait a little where they have nothing, as real ones do.
struct Waiting(Arc<dyn Queues>);

#[async_trait]
impl Queues for Waiting {
    async fn send(&self, queue: Queue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        self.0.send(queue, messages).await
    }
    async fn receive(&self, queue: Queue, max: u32, wait: u32, hidden: u32) -> Result<Vec<Incoming>, PortError> {
        let messages = self.0.receive(queue, max, wait, hidden).await?;
        if messages.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(messages)
    }
    async fn acknowledge(&self, queue: Queue, receipt: &str) -> Result<(), PortError> {
        self.0.acknowledge(queue, receipt).await
    }
    async fn acknowledge_all(&self, queue: Queue, receipts: &[String]) -> Result<(), PortError> {
        self.0.acknowledge_all(queue, receipts).await
    }
    async fn postpone(&self, queue: Queue, receipt: &str, seconds: u32) -> Result<(), PortError> {
        self.0.postpone(queue, receipt, seconds).await
    }
}

struct Life {
    world: World,
    _stop: watch::Sender<bool>,
    _state: tempfile::TempDir,
}

impl Life {
    /// An executor with one slot, and these builds sent to it.
    async fn begin(jobs: &[&str]) -> Self {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        let mut ports = world.ports();
        ports.queues = Arc::new(Waiting(ports.queues.clone()));
        let frozen = |name: &&str| -> FrozenJob {
            let text = json!({"name": name, "voting": true, "attempts": 1, "nodesets": [], "dependencies": []});
            serde_json::from_value(text).unwrap()
        };
        let graph = JobGraph { jobs: jobs.iter().map(frozen).collect() };
        let state =
            Speculation { changes: Vec::new(), branches: Vec::new(), configured: Vec::new(), placed: Vec::new() };
        for (key, text) in
            [("g", serde_json::to_string(&graph).unwrap()), ("s", serde_json::to_string(&state).unwrap())]
        {
            ports.objects.put(key, Bytes::from(text), PutMode::Always, "application/json").await.unwrap();
        }
        let state = tempfile::tempdir().unwrap();
        let options = Options {
            hostname: "here".to_owned(),
            slots: 1,
            state: state.path().to_owned(),
            node_key: None,
            log_address: None,
            log_root: "https://sluice.test/logs/".to_owned(),
        };
        let (stop, stopped) = watch::channel(false);
        let life = Self { world, _stop: stop, _state: state };
        tokio::spawn(Executor::new(ports, Arc::new(Pausing), options).run(stopped));
        for job in jobs {
            life.send(job).await;
        }
        life
    }

    async fn send(&self, job: &str) {
        let change = json!({
            "key": { "connection": "github", "project": "forge.test/org/one", "number": 1 },
            "branch": "main", "head": "aa", "patchset": "aa",
        });
        let order: Order = serde_json::from_value(json!({
            "build": id(job), "queue": { "tenant": "t", "pipeline": "gate", "queue": "q" }, "item": "i", "generation": 1,
            "job": job, "attempt": 1, "max_attempts": 1, "voting": true, "graph": "g", "speculation": "s",
            "change": change, "event_id": "", "post_review": false, "request": null, "ordered_at": 0,
        }))
        .unwrap();
        self.world.write_directly(build::put_order(&order).unwrap());
        let (build, precedence, tenant) = (order.build, Precedence::Normal, "t".into());
        let poke = Poke::Build { build, precedence, tenant, request: None, nodes: Vec::new() };
        cell::send(&self.world.ports(), &[poke]).await.unwrap();
    }

    /// Waits until the run of a job is as it is wanted.
    async fn until(&self, job: &str, is_wanted: impl Fn(&Phase) -> bool) -> Phase {
        for _ in 0..600 {
            let stored = self.world.ports().records.get(&[build::run_key(&id(job))]).await.unwrap().remove(0);
            if let Some(run) = stored.map(|record| decode::<Run>(&record).unwrap()).filter(|run| is_wanted(&run.phase))
            {
                return run.phase;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{job} does not come to be as wanted");
    }
}

fn id(job: &str) -> BuildId {
    BuildId::derive(&[job])
}

fn result(phase: &Phase) -> Option<BuildResult> {
    match phase {
        Phase::Ended(ended) => Some(ended.result),
        _ => None,
    }
}

/// Z4.3, Z7.6: what a paused build returned is there for those behind it, who get the only slot; by the gate's word it goes on.
#[tokio::test]
async fn a_paused_build_gives_its_slot_to_those_behind_it_and_goes_on_when_it_may() {
    let life = Life::begin(&["registry", "user"]).await;
    let phase = life.until("registry", |phase| matches!(phase, Phase::Paused(_))).await;
    let Phase::Paused(pause) = phase else { unreachable!("it is paused") };
    assert_eq!(pause.data["address"], "10.0.0.1");
    let ended = life.until("user", |phase| result(phase).is_some()).await;
    assert_eq!(result(&ended), Some(BuildResult::Success));
    let stored = life.world.ports().records.get(&[build::run_key(&id("registry"))]).await.unwrap().remove(0);
    let run: Run = decode(&stored.unwrap()).unwrap();
    assert!(matches!(run.phase, Phase::Paused(_)), "{:?}", run.phase);
    let resume = Resume { at: life.world.now() };
    life.world.write_directly(build::put_resume(&id("registry"), &resume).unwrap());
    let ended = life.until("registry", |phase| result(phase).is_some()).await;
    assert_eq!(result(&ended), Some(BuildResult::Success));
}

/// Z6.4: a paused build is stopped as any other.
#[tokio::test]
async fn a_paused_build_can_be_stopped() {
    let life = Life::begin(&["registry"]).await;
    life.until("registry", |phase| matches!(phase, Phase::Paused(_))).await;
    let stop = Stop { why: "a newer patchset".to_owned(), at: life.world.now(), lost: false };
    life.world.write_directly(build::put_stop(&id("registry"), &stop).unwrap());
    let ended = life.until("registry", |phase| result(phase).is_some()).await;
    assert_eq!(result(&ended), Some(BuildResult::Aborted));
}
