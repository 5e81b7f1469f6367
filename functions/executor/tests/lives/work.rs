//! One build on an executor, whose end the test commands.

use crate::common::{store_graph, store_jobs};
use crate::world::ObservedWorld;
use async_trait::async_trait;
use serde_json::{Map, json};
use sluice_executor::jobdir::log_path;
use sluice_executor::{AttemptScope, JobAttempt, Observer, RepositorySources, Runner, StopSignal};
use sluice_model::build::{BuildResult, Order, Phase, PlaybookPhase, PlaybookStart, Run, RunEnd};
use sluice_model::job::JobGraph;
use sluice_model::wakeup::{Precedence, Wakeup};
use sluice_model::{BuildId, Timestamp};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::cell;
use sluice_runtime::record::Record;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What each build writes to its log.
pub const LOG_TEXT: &str = "the first line\n";

/// Begins a main playbook, writes a line to the log of a build and passes when the test says so; a
/// stop aborts it before.
#[derive(Default)]
pub struct Worker {
    /// Lets one build pass.
    pub pass: Arc<Notify>,
    /// The scopes of the attempts that were begun.
    pub scopes: Mutex<Vec<AttemptScope>>,
}

#[async_trait]
impl Runner for Worker {
    async fn execute(
        &self,
        job: &JobAttempt<'_>,
        _: &dyn RepositorySources,
        jobdir: &Path,
        mut stop: StopSignal,
        observer: &dyn Observer,
    ) -> RunEnd {
        self.scopes.lock().unwrap().push(job.scope);
        observer.playbook_begins(PlaybookStart { phase: PlaybookPhase::Run, index: 0 });
        std::fs::create_dir_all(jobdir.join("work/logs")).unwrap();
        std::fs::write(log_path(jobdir), LOG_TEXT).unwrap();
        observer.log_appended(0, LOG_TEXT.as_bytes());
        let result = tokio::select! {
            () = self.pass.notified() => BuildResult::Success,
            _ = stop.stopped() => stop.result(),
        };
        RunEnd {
            result,
            detail: stop.reason(),
            started_at: Some(Timestamp(1)),
            ended_at: Timestamp(2),
            data: Map::new(),
            data_object: None,
            log_url: None,
        }
    }
}

/// Stores the order of a build of this job, which has no post-run playbooks, and sends the build to
/// the executors.
pub async fn send(world: &ObservedWorld, job: &str) -> BuildId {
    store_jobs(&world.ports(), "g", "s", &[job]).await;
    send_stored(world, job).await
}

/// Stores the order of a build of this job, which has a post-run playbook, and sends the build to
/// the executors.
pub async fn send_with_post_run(world: &ObservedWorld, job: &str) -> BuildId {
    let collecting = json!({
        "connection": "github", "project": "forge.test/org/one", "branch": "main", "commit": null,
        "path": "collect", "trusted": false,
    });
    let frozen = json!({
        "name": job, "voting": true, "attempts": 3, "nodesets": [], "dependencies": [],
        "post_run": [collecting],
    });
    let graph = JobGraph { jobs: vec![serde_json::from_value(frozen).unwrap()] };
    store_graph(&world.ports(), "g", "s", &graph).await;
    send_stored(world, job).await
}

/// Stores the order of a build of a stored job and sends the build to the executors.
async fn send_stored(world: &ObservedWorld, job: &str) -> BuildId {
    let id = BuildId::derive(&[job]);
    let change = json!({
        "key": { "connection": "github", "project": "forge.test/org/one", "number": 1 },
        "branch": "main", "head": "aa", "patchset": "aa",
    });
    let order: Order = serde_json::from_value(json!({
        "build": id, "queue": { "tenant": "t", "pipeline": "gate", "queue": "q" }, "item": "i", "generation": 1,
        "job": job, "attempt": 1, "max_attempts": 3, "voting": true, "graph": "g", "speculation": "s",
        "change": change, "event_id": "", "post_review": false, "request": null, "ordered_at": 0,
    }))
    .unwrap();
    world.write(build::put_order(&order).unwrap());
    let (precedence, tenant) = (Precedence::Normal, "t".into());
    let wakeup =
        Wakeup::Build { build: id.clone(), precedence, tenant, request: None, nodes: Vec::new() };
    cell::send(&world.ports(), &[wakeup]).await.unwrap();
    id
}

/// Returns the phase of a stored run.
pub fn phase(record: &Record) -> Phase {
    decode::<Run>(record).unwrap().phase
}

/// Waits until the run of a build has ended, and returns its end.
pub async fn end_of(world: &ObservedWorld, id: &BuildId) -> RunEnd {
    let is_ended = |record: &Record| matches!(phase(record), Phase::Ended(_));
    match phase(&world.until(&build::run_key(id), is_ended).await) {
        Phase::Ended(end) => end,
        other => unreachable!("{other:?}"),
    }
}
