//! One build on an executor, whose end the test commands.

use crate::common::{store_graph, store_jobs};
use crate::world::ObservedWorld;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sluice_executor::jobdir::log_path;
use sluice_executor::{AttemptScope, JobAttempt, Observer, RepositorySources, Runner, StopSignal};
use sluice_model::build::{
    BuildResult, Order, Phase, PlaybookPhase, PlaybookStart, RequestRef, Run, RunEnd,
};
use sluice_model::job::JobGraph;
use sluice_model::wakeup::{Precedence, Wakeup};
use sluice_model::{BuildId, ProviderName, QueueKey, Timestamp, ZoneName};
use sluice_pool::{NodeRequest, Placement, RequestRow, RequestState};
use sluice_records::codec::decode;
use sluice_records::{build, provider};
use sluice_runtime::cell;
use sluice_runtime::record::Record;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What each build writes to its log.
pub const LOG_TEXT: &str = "the first line\n";

/// Begins a main playbook, writes a line to the log of a build and passes when the test says so; a
/// stop aborts it before. Leaves another file in its logs.
#[derive(Default)]
pub struct Worker {
    /// Lets one build pass.
    pub pass: Arc<Notify>,
    /// Whether the next build panics.
    pub panics: AtomicBool,
    /// A build was stopped.
    pub stopped: Notify,
    /// Lets one stopped build end, which otherwise ends at once.
    pub clean_up: Option<Notify>,
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
        assert!(!self.panics.swap(false, Ordering::AcqRel), "as a defect of the runner");
        let result = tokio::select! {
            () = self.pass.notified() => BuildResult::Success,
            _ = stop.stopped() => {
                self.stopped.notify_one();
                if let Some(clean_up) = &self.clean_up {
                    clean_up.notified().await;
                }
                stop.result()
            }
        };
        std::fs::write(jobdir.join("work/logs/left.txt"), "left\n").unwrap();
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
    store_jobs(&world.ports(), job, "s", &[job]).await;
    send_stored(world, job, None, None).await
}

/// Stores the order of a build of this job, which has no post-run playbooks, and sends the build to
/// the executors of a zone.
pub async fn send_to_zone(world: &ObservedWorld, job: &str, zone: &str) -> BuildId {
    store_jobs(&world.ports(), job, "s", &[job]).await;
    send_stored(world, job, Some(zone.into()), None).await
}

/// Stores the order of a build of this job, which has a post-run playbook, and sends the build to
/// the executors.
pub async fn send_with_post_run(world: &ObservedWorld, job: &str) -> BuildId {
    store_collecting(world, job, json!({})).await;
    send_stored(world, job, None, None).await
}

/// Stores the order of a build of this job, which has a post-run playbook and works on a host of its
/// own, and sends the build to the executors.
pub async fn send_deployment(world: &ObservedWorld, job: &str) -> BuildId {
    let fingerprint = json!({"sha256": "A".repeat(43)});
    let host = json!({"name": "deploy@192.0.2.1", "fingerprint": fingerprint});
    store_collecting(world, job, json!({"host": host})).await;
    send_stored(world, job, None, None).await
}

/// Stores the order of a build of this job, which has a post-run playbook and a request for nodes
/// in a zone, and sends the build to the executors without a zone.
pub async fn send_with_nodes_in(world: &ObservedWorld, job: &str, zone: &str) -> BuildId {
    store_collecting(world, job, json!({})).await;
    let (row, queue) = (RequestRow::new(200, 0, 1), queue());
    let provider = ProviderName::from("p");
    let (build, now) = (BuildId::derive(&[job]), Timestamp(0));
    let request =
        NodeRequest::new(row.clone(), build, queue, "test", Precedence::Normal, Vec::new(), now);
    let request = NodeRequest {
        executor_zone: Some(zone.into()),
        state: RequestState::Fulfilled(Placement { az: None, generation: 1, nodes: Vec::new() }),
        ..request
    };
    world.write(provider::create_request(&provider, &request).unwrap());
    send_stored(world, job, None, Some(RequestRef { provider, row: row.to_string() })).await
}

/// Stores the graph of a job that has a post-run playbook and these attributes.
async fn store_collecting(world: &ObservedWorld, job: &str, run_time: Value) {
    let collecting = json!({
        "connection": "github", "project": "forge.test/org/one", "branch": "main", "commit": null,
        "path": "collect", "trusted": false,
    });
    let frozen = json!({
        "name": job, "voting": true, "attempts": 3, "nodesets": [], "dependencies": [],
        "post_run": [collecting], "run_time": run_time,
    });
    let graph = JobGraph { jobs: vec![serde_json::from_value(frozen).unwrap()] };
    store_graph(&world.ports(), job, "s", &graph).await;
}

/// Stores the order of a build of a stored job and sends the build to the executors, to those of
/// `zone` if there is one.
async fn send_stored(
    world: &ObservedWorld,
    job: &str,
    zone: Option<ZoneName>,
    request: Option<RequestRef>,
) -> BuildId {
    let id = put_order_with(world, job, request);
    let (precedence, tenant) = (Precedence::Normal, "t".into());
    let (build, nodes) = (id.clone(), Vec::new());
    let wakeup = Wakeup::Build { build, precedence, tenant, request: None, nodes, zone };
    cell::send(&world.ports(), &[wakeup]).await.unwrap();
    id
}

/// Stores the order of a build of a job, and sends nothing.
pub fn put_order(world: &ObservedWorld, job: &str) -> BuildId {
    put_order_with(world, job, None)
}

/// Stores the order of a build of a job with this request for nodes.
fn put_order_with(world: &ObservedWorld, job: &str, request: Option<RequestRef>) -> BuildId {
    let id = BuildId::derive(&[job]);
    let change = json!({
        "key": { "connection": "github", "project": "forge.test/org/one", "number": 1 },
        "branch": "main", "head": "aa", "patchset": "aa",
    });
    let order: Order = serde_json::from_value(json!({
        "build": id, "queue": queue(), "item": "i", "generation": 1,
        "job": job, "attempt": 1, "max_attempts": 3, "voting": true, "graph": job, "speculation": "s",
        "change": change, "event_id": "", "post_review": false, "request": request, "ordered_at": 0,
    }))
    .unwrap();
    world.write(build::put_order(&order).unwrap());
    id
}

/// Returns the queue of each build.
fn queue() -> QueueKey {
    QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "q".into() }
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
