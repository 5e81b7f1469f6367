//! Builds that pause, on the ports in memory: the pause is recorded, their slot is freed, and the
//! gate resumes them.

use crate::common::store_jobs;
use crate::world::{ObservedWorld, executor};
use async_trait::async_trait;
use serde_json::{Map, json};
use sluice_executor::{JobAttempt, Observer, RepositorySources, Runner, StopSignal};
use sluice_model::build::{BuildResult, Order, Pause, Phase, Run, RunEnd};
use sluice_model::wakeup::{Precedence, Wakeup};
use sluice_model::{BuildId, Timestamp};
use sluice_records::build::{self, ResumeRequest, StopRequest};
use sluice_records::codec::decode;
use sluice_runtime::record::{Record, Write};
use sluice_runtime::{Clock, cell};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// Pauses in each job called `registry`, and passes.
struct Pausing;

#[async_trait]
impl Runner for Pausing {
    async fn execute(
        &self,
        job: &JobAttempt<'_>,
        _: &dyn RepositorySources,
        jobdir: &Path,
        mut stop: StopSignal,
        observer: &dyn Observer,
    ) -> RunEnd {
        std::fs::create_dir_all(jobdir.join("work/logs")).unwrap();
        let at = Timestamp(1);
        if job.job.name.as_str() == "registry" {
            let mut data = Map::new();
            data.insert("address".to_owned(), json!("10.0.0.1"));
            observer.paused(Pause { since: at, data, data_object: None, log_url: None });
            stop.resumed().await;
        }
        let result = if stop.reason().is_some() { stop.result() } else { BuildResult::Success };
        let (started_at, data) = (Some(at), Map::new());
        RunEnd {
            result,
            detail: None,
            started_at,
            ended_at: at,
            data,
            data_object: None,
            log_url: None,
        }
    }
}

struct Life {
    world: ObservedWorld,
    _stop: watch::Sender<bool>,
    _state: tempfile::TempDir,
}

impl Life {
    /// Starts an executor with one slot and sends it these builds.
    async fn begin(jobs: &[&str]) -> Self {
        let world = ObservedWorld::new();
        let ports = world.ports();
        store_jobs(&ports, "g", "s", jobs).await;
        let state = tempfile::tempdir().unwrap();
        let executor = executor(ports, Arc::new(Pausing), &state);
        let (stop, stopped) = watch::channel(false);
        let life = Self { world, _stop: stop, _state: state };
        tokio::spawn(executor.run(stopped));
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
        self.world.write(build::put_order(&order).unwrap());
        let (build, precedence, tenant) = (order.build, Precedence::Normal, "t".into());
        let wakeup = Wakeup::Build {
            build,
            precedence,
            tenant,
            request: None,
            nodes: Vec::new(),
            zone: None,
        };
        cell::send(&self.world.ports(), &[wakeup]).await.unwrap();
    }

    /// Waits until the phase of a job's run satisfies `is_wanted` and returns it.
    async fn until(&self, job: &str, is_wanted: impl Fn(&Phase) -> bool) -> Phase {
        let phase = |record: &Record| decode::<Run>(record).unwrap().phase;
        phase(
            &self.world.until(&build::run_key(&id(job)), |record| is_wanted(&phase(record))).await,
        )
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

/// Z4.3, Z7.6: what a paused build returned is there for those behind it, who get the only slot; by
/// the gate's word it goes on.
#[tokio::test]
async fn a_paused_build_gives_its_slot_to_those_behind_it_and_goes_on_when_it_may() {
    let life = Life::begin(&["registry", "user"]).await;
    let phase = life.until("registry", |phase| matches!(phase, Phase::Paused(_))).await;
    let Phase::Paused(pause) = phase else { unreachable!("it is paused") };
    assert_eq!(pause.data["address"], "10.0.0.1");
    let ended = life.until("user", |phase| result(phase).is_some()).await;
    assert_eq!(result(&ended), Some(BuildResult::Success));
    let run: Run =
        decode(&life.world.stored(&build::run_key(&id("registry"))).await.unwrap()).unwrap();
    assert!(matches!(run.phase, Phase::Paused(_)), "{:?}", run.phase);
    let resume = ResumeRequest { at: life.world.world.now() };
    life.world.write(build::put_resume(&id("registry"), &resume).unwrap());
    let ended = life.until("registry", |phase| result(phase).is_some()).await;
    assert_eq!(result(&ended), Some(BuildResult::Success));
}

/// Z6.4: a paused build is stopped as any other.
#[tokio::test]
async fn a_paused_build_can_be_stopped() {
    let life = Life::begin(&["registry"]).await;
    life.until("registry", |phase| matches!(phase, Phase::Paused(_))).await;
    let stop = StopRequest {
        why: "a newer patchset".to_owned(),
        at: life.world.world.now(),
        executor_is_dead: false,
        result: None,
    };
    life.world.write(build::put_stop(&id("registry"), &stop).unwrap());
    let ended = life.until("registry", |phase| result(phase).is_some()).await;
    assert_eq!(result(&ended), Some(BuildResult::Aborted));
}

/// Z6.4, Z7: a stop request takes effect even if its reason is unreadable.
#[tokio::test]
async fn a_build_is_stopped_by_an_unreadable_stop_request() {
    let life = Life::begin(&["registry"]).await;
    life.until("registry", |phase| matches!(phase, Phase::Paused(_))).await;
    let stop = StopRequest {
        why: "a newer patchset".to_owned(),
        at: life.world.world.now(),
        executor_is_dead: false,
        result: None,
    };
    let written = build::put_stop(&id("registry"), &stop).unwrap();
    let Write::Put { record, expect } = written else { unreachable!("a wish is written") };
    life.world.write(Write::Put { record: Record { body: "{}".to_owned(), ..record }, expect });
    let ended = life.until("registry", |phase| result(phase).is_some()).await;
    assert_eq!(result(&ended), Some(BuildResult::Aborted));
}
