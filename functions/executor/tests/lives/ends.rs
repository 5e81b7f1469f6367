//! Builds of one item that end concurrently, on the ports in memory: when their queue is woken.

use crate::common::store_graph;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sluice_executor::service::admission::AdmissionLimits;
use sluice_executor::service::{ExecutorService, ExecutorSettings};
use sluice_executor::{JobAttempt, Observer, RepositorySources, Runner, StopSignal};
use sluice_memory::World;
use sluice_model::build::{BuildResult, Order, Pause, Phase, Run, RunEnd};
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_model::wakeup::{MessageQueue, Precedence, Wakeup};
use sluice_model::{BuildId, Timestamp};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::{Ports, cell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What a build does next.
enum BuildCommand {
    Pause,
    End(BuildResult),
}

/// Executes the commands of the test, job by job.
#[derive(Default)]
struct CommandedRunner(Mutex<BTreeMap<String, mpsc::UnboundedReceiver<BuildCommand>>>);

#[async_trait]
impl Runner for CommandedRunner {
    async fn execute(
        &self,
        job: &JobAttempt<'_>,
        _: &dyn RepositorySources,
        jobdir: &Path,
        _: StopSignal,
        observer: &dyn Observer,
    ) -> RunEnd {
        std::fs::create_dir_all(jobdir.join("work/logs")).unwrap();
        let mut commands = self.0.lock().unwrap().remove(job.job.name.as_str()).unwrap();
        let at = Timestamp(1);
        loop {
            match commands.recv().await.unwrap() {
                BuildCommand::Pause => {
                    observer.paused(Pause {
                        since: at,
                        data: Map::new(),
                        data_object: None,
                        log_url: None,
                    });
                }
                BuildCommand::End(result) => {
                    let (started_at, data) = (Some(at), Map::new());
                    return RunEnd {
                        result,
                        detail: None,
                        started_at,
                        ended_at: at,
                        data,
                        data_object: None,
                        log_url: None,
                    };
                }
            }
        }
    }
}

/// An executor that runs builds of one item.
struct Here {
    world: World,
    commands: BTreeMap<String, mpsc::UnboundedSender<BuildCommand>>,
    running: JoinSet<Result<(), ReconcileError>>,
    _state: tempfile::TempDir,
}

impl Here {
    /// Starts an executor and sends it the builds of the jobs in `run`, of a graph with all `jobs`.
    async fn begin(jobs: &[Value], run: &[&str]) -> Self {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        let ports = world.ports();
        store(&ports, jobs).await;
        let (mut commands, mut receivers) = (BTreeMap::new(), BTreeMap::new());
        let mut wakeups = Vec::new();
        for job in run {
            let (say, receiver) = mpsc::unbounded_channel();
            commands.insert((*job).to_owned(), say);
            receivers.insert((*job).to_owned(), receiver);
            world.write_unchecked(build::put_order(&order(job)).unwrap());
            let (precedence, tenant) = (Precedence::Normal, "t".into());
            wakeups.push(Wakeup::Build {
                build: id(job),
                precedence,
                tenant,
                request: None,
                nodes: Vec::new(),
                zone: None,
            });
        }
        cell::send(&ports, &wakeups).await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let options = ExecutorSettings {
            hostname: "here".to_owned(),
            zone: Default::default(),
            slots: 10,
            limits: AdmissionLimits::default(),
            state: state.path().to_owned(),
            node_key: None,
            log_address: None,
            log_root: "https://sluice.test/logs/".to_owned(),
            drain_seconds: 0,
            token_issuer: "https://sluice.test".to_owned(),
        };
        let executor =
            ExecutorService::new(ports, Arc::new(CommandedRunner(Mutex::new(receivers))), options);
        let taken = executor
            .claim_received(
                MessageQueue::BuildsNormal,
                world.take_messages(MessageQueue::BuildsNormal, 10, 60),
            )
            .await;
        assert_eq!(taken.len(), run.len());
        let mut running = JoinSet::new();
        for taken in taken {
            let executor = executor.clone();
            running.spawn(async move { executor.execute(taken).await });
        }
        Self { world, commands, running, _state: state }
    }

    /// Ends a build, and returns whether its queue was woken.
    async fn end(&mut self, job: &str, result: BuildResult) -> bool {
        self.commands[job].send(BuildCommand::End(result)).ok().unwrap();
        self.running.join_next().await.unwrap().unwrap().unwrap();
        assert!(self.has_ended(job).await, "{job}");
        self.was_woken()
    }

    /// Pauses a build, and waits until its queue is woken.
    async fn pause(&self, job: &str) {
        self.commands[job].send(BuildCommand::Pause).ok().unwrap();
        let woken = async {
            while !self.was_woken() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), woken).await.expect("its queue is woken");
    }

    async fn has_ended(&self, job: &str) -> bool {
        let stored =
            self.world.ports().records.get(&[build::run_key(&id(job))]).await.unwrap().remove(0);
        matches!(decode::<Run>(&stored.unwrap()).unwrap().phase, Phase::Ended(_))
    }

    /// Returns whether the queue was woken since the last call.
    fn was_woken(&self) -> bool {
        let messages = self.world.take_messages(MessageQueue::Gate, 10, 60);
        for message in &messages {
            self.world.drop_message(MessageQueue::Gate, &message.receipt);
        }
        !messages.is_empty()
    }
}

/// Stores a graph of these jobs, and the tested state.
async fn store(ports: &Ports, jobs: &[Value]) {
    let frozen = |job: &Value| -> FrozenJob { serde_json::from_value(job.clone()).unwrap() };
    let graph = JobGraph { jobs: jobs.iter().map(frozen).collect() };
    store_graph(ports, "g", "s", &graph).await;
}

fn order(job: &str) -> Order {
    let change = json!({
        "key": { "connection": "github", "project": "forge.test/org/one", "number": 1 },
        "branch": "main", "head": "aa", "patchset": "aa",
    });
    serde_json::from_value(json!({
        "build": id(job), "queue": { "tenant": "t", "pipeline": "gate", "queue": "q" }, "item": "i", "generation": 1,
        "job": job, "attempt": 1, "max_attempts": 1, "voting": true, "graph": "g", "speculation": "s",
        "change": change, "event_id": "", "post_review": false, "request": null, "ordered_at": 0,
    }))
    .unwrap()
}

fn id(job: &str) -> BuildId {
    BuildId::derive(&[job])
}

/// Returns a job with a name and the further attributes in `said`.
fn job(name: &str, said: Value) -> Value {
    let mut job =
        json!({"name": name, "voting": true, "attempts": 1, "nodesets": [], "dependencies": []});
    for (key, value) in said.as_object().unwrap() {
        job[key] = value.clone();
    }
    job
}

fn plain(name: &str) -> Value {
    job(name, json!({}))
}

/// Z7.6: when the last one ends, the ends of all builds are stored.
#[tokio::test]
async fn the_last_of_several_passing_builds_wakes_the_queue() {
    let names = ["one", "two", "three"];
    let mut here = Here::begin(&names.map(plain), &names).await;
    assert!(!here.end("two", BuildResult::Success).await);
    assert!(!here.end("one", BuildResult::Success).await);
    assert!(here.end("three", BuildResult::Success).await);
}

/// Z7.6: the queue is woken at once by an end that it needs for a decision.
#[tokio::test]
async fn a_build_that_fails_or_has_dependents_wakes_its_queue_at_once() {
    let behind = job("behind", json!({"dependencies": [{"name": "one"}]}));
    let cases = [
        ("it failed", json!({}), plain("behind"), BuildResult::Failure),
        ("it is attempted again", json!({}), plain("behind"), BuildResult::Retry),
        ("a job depends on it", json!({}), behind, BuildResult::Success),
        (
            "it holds a semaphore",
            json!({"semaphores": [{"name": "site"}]}),
            plain("behind"),
            BuildResult::Success,
        ),
        (
            "it provides artifacts",
            json!({"provides": ["image"]}),
            plain("behind"),
            BuildResult::Success,
        ),
        (
            "changes behind wait for it",
            json!({"run_time": {"hold_following_changes": true}}),
            plain("behind"),
            BuildResult::Success,
        ),
        (
            "all others wait for it",
            json!({"run_time": {"kind": "initializer"}}),
            plain("behind"),
            BuildResult::Success,
        ),
    ];
    for (why, said, behind, result) in cases {
        let jobs = [job("one", said), behind, plain("other")];
        let mut here = Here::begin(&jobs, &["one", "other"]).await;
        assert!(here.end("one", result).await, "{why}");
        assert!(here.end("other", BuildResult::Success).await, "{why}");
    }
}

/// Z4.3: it may stay for as long as it likes.
#[tokio::test]
async fn nothing_is_left_to_a_paused_build_to_tell() {
    let mut here = Here::begin(&["registry", "other"].map(plain), &["registry", "other"]).await;
    here.pause("registry").await;
    assert!(here.end("other", BuildResult::Success).await);
    assert!(here.end("registry", BuildResult::Success).await);
}
