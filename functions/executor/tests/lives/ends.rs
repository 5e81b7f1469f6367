//! Builds of one item that end side by side, on the ports in memory: when their queue is told.

use crate::common::store_graph;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sluice_executor::service::{Executor, Options};
use sluice_executor::{Job, Observer, Runner, Sources, StopSignal};
use sluice_memory::World;
use sluice_model::build::{BuildResult, Ended, Order, Pause, Phase, Run};
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_model::poke::{Poke, Precedence, Queue};
use sluice_model::{BuildId, Timestamp};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_runtime::batch::LookError;
use sluice_runtime::{Ports, cell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What a build does next.
enum Word {
    Pause,
    End(BuildResult),
}

/// Does what it is told, job by job.
#[derive(Default)]
struct Told(Mutex<BTreeMap<String, mpsc::UnboundedReceiver<Word>>>);

#[async_trait]
impl Runner for Told {
    async fn execute(
        &self,
        job: &Job<'_>,
        _: &dyn Sources,
        jobdir: &Path,
        _: StopSignal,
        observer: &dyn Observer,
    ) -> Ended {
        std::fs::create_dir_all(jobdir.join("work/logs")).unwrap();
        let mut words = self.0.lock().unwrap().remove(job.job.name.as_str()).unwrap();
        let at = Timestamp(1);
        loop {
            match words.recv().await.unwrap() {
                Word::Pause => {
                    observer.paused(Pause {
                        since: at,
                        data: Map::new(),
                        data_object: None,
                        log_url: None,
                    });
                }
                Word::End(result) => {
                    let (started_at, data) = (Some(at), Map::new());
                    return Ended {
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
    words: BTreeMap<String, mpsc::UnboundedSender<Word>>,
    running: JoinSet<Result<(), LookError>>,
    _state: tempfile::TempDir,
}

impl Here {
    /// Begins those of the jobs that are to run, of a graph with all of them.
    async fn begin(jobs: &[Value], run: &[&str]) -> Self {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        let ports = world.ports();
        store(&ports, jobs).await;
        let (mut words, mut heard) = (BTreeMap::new(), BTreeMap::new());
        let mut pokes = Vec::new();
        for job in run {
            let (say, hear) = mpsc::unbounded_channel();
            words.insert((*job).to_owned(), say);
            heard.insert((*job).to_owned(), hear);
            world.write_directly(build::put_order(&order(job)).unwrap());
            let (precedence, tenant) = (Precedence::Normal, "t".into());
            pokes.push(Poke::Build {
                build: id(job),
                precedence,
                tenant,
                request: None,
                nodes: Vec::new(),
            });
        }
        cell::send(&ports, &pokes).await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let options = Options {
            hostname: "here".to_owned(),
            slots: 10,
            state: state.path().to_owned(),
            node_key: None,
            log_address: None,
            log_root: "https://sluice.test/logs/".to_owned(),
        };
        let executor = Executor::new(ports, Arc::new(Told(Mutex::new(heard))), options);
        let taken = executor
            .take(Queue::BuildsNormal, world.take_messages(Queue::BuildsNormal, 10, 60))
            .await;
        assert_eq!(taken.len(), run.len());
        let mut running = JoinSet::new();
        for taken in taken {
            let executor = executor.clone();
            running.spawn(async move { executor.execute(taken).await });
        }
        Self { world, words, running, _state: state }
    }

    /// Has a build end, and returns whether the queue was told of it.
    async fn end(&mut self, job: &str, result: BuildResult) -> bool {
        self.words[job].send(Word::End(result)).ok().unwrap();
        self.running.join_next().await.unwrap().unwrap().unwrap();
        assert!(self.has_ended(job).await, "{job}");
        self.is_told()
    }

    /// Has a build pause, and waits until the queue was told of it.
    async fn pause(&self, job: &str) {
        self.words[job].send(Word::Pause).ok().unwrap();
        while !self.is_told() {
            tokio::task::yield_now().await;
        }
    }

    async fn has_ended(&self, job: &str) -> bool {
        let stored =
            self.world.ports().records.get(&[build::run_key(&id(job))]).await.unwrap().remove(0);
        matches!(decode::<Run>(&stored.unwrap()).unwrap().phase, Phase::Ended(_))
    }

    /// Returns whether the queue was told anything since this was asked last.
    fn is_told(&self) -> bool {
        let messages = self.world.take_messages(Queue::Gate, 10, 60);
        for message in &messages {
            self.world.drop_message(Queue::Gate, &message.receipt);
        }
        !messages.is_empty()
    }
}

/// Stores jobs as they are said, and the tested state.
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

/// Returns a job, with what is said of it besides.
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

/// Z7.6: the last one finds the ends of all written.
#[tokio::test]
async fn of_builds_that_pass_side_by_side_the_last_one_tells_their_queue() {
    let names = ["one", "two", "three"];
    let mut here = Here::begin(&names.map(plain), &names).await;
    assert!(!here.end("two", BuildResult::Success).await);
    assert!(!here.end("one", BuildResult::Success).await);
    assert!(here.end("three", BuildResult::Success).await);
}

/// Z7.6: what a queue decides something by it hears of at once.
#[tokio::test]
async fn a_build_that_fails_or_that_somebody_waits_for_tells_its_queue_at_once() {
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
