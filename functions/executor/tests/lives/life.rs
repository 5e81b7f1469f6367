//! How an executor lives with its session, on the ports in memory.

use crate::work::{Worker, end_of, send};
use crate::world::{ObservedWorld, executor};
use async_trait::async_trait;
use sluice_executor::service::Renewal;
use sluice_executor::{JobAttempt, Observer, RepositorySources, Runner, StopSignal};
use sluice_memory::World;
use sluice_model::build::{BuildResult, RunEnd};
use sluice_model::wakeup::MessageQueue;
use sluice_model::{SessionId, Timestamp};
use sluice_records::codec::{encode_first, with_body};
use sluice_records::session::{self, Session, SessionState};
use sluice_runtime::port::{Incoming, Outgoing, Queues};
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{Clock, Entropy, PortError, Ports};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Is never given anything to run.
struct Idle;

#[async_trait]
impl Runner for Idle {
    async fn execute(
        &self,
        _: &JobAttempt<'_>,
        _: &dyn RepositorySources,
        _: &Path,
        _: StopSignal,
        _: &dyn Observer,
    ) -> RunEnd {
        unreachable!("no build is sent")
    }
}

/// Remembers the first token that was drawn: it names the session.
struct Noted(World, Mutex<Option<String>>);

impl Entropy for Noted {
    fn token(&self) -> String {
        let token = self.0.token();
        self.1.lock().unwrap().get_or_insert(token.clone());
        token
    }
}

struct Life {
    world: ObservedWorld,
    key: Key,
    run: JoinHandle<Result<(), sluice_runtime::batch::ReconcileError>>,
    _stop: watch::Sender<bool>,
    _state: tempfile::TempDir,
}

impl Life {
    fn begin() -> Self {
        let world = ObservedWorld::new();
        let noted = Arc::new(Noted(world.world.clone(), Mutex::default()));
        let ports = Ports { entropy: noted.clone(), ..world.ports() };
        let state = tempfile::tempdir().unwrap();
        let executor = executor(ports, Arc::new(Idle), &state);
        let key = session::key(&SessionId(noted.1.lock().unwrap().clone().unwrap()));
        let (stop, stopped) = watch::channel(false);
        Self { world, key, run: tokio::spawn(executor.run(stopped)), _stop: stop, _state: state }
    }

    /// Waits until the session is stored with a revision above `revision`.
    async fn renewed_after(&self, revision: u64) -> Record {
        self.world.until(&self.key, |record| record.revision > revision).await
    }
}

/// Z7.3: an answer that got lost is no reason to give up every build.
#[tokio::test]
async fn a_session_whose_own_write_was_not_known_to_be_stored_lives_on() {
    let life = Life::begin();
    let mut record = life.renewed_after(0).await;
    // As a renewal whose answer, and the reading back after it, never came.
    record.revision += 5;
    record.write_id = "unknown".to_owned();
    let revision = record.revision;
    life.world.write(Write::Put { record, expect: Expect::Anything });
    life.renewed_after(revision).await;
    assert!(!life.run.is_finished());
}

/// Z7.3: records without a sign of life are forgotten after 35 days, and a living executor's is
/// not.
#[tokio::test]
async fn a_living_session_moves_its_own_expiry() {
    let life = Life::begin();
    let first = life.renewed_after(0).await;
    life.world.world.advance_millis(40 * 86_400_000);
    let now = life.world.world.now();
    let mut renewed = life.renewed_after(first.revision).await;
    // One renewal may have been under way while the clock moved.
    for _ in 0..5 {
        if renewed.expires_at > Some(now) {
            break;
        }
        renewed = life.renewed_after(renewed.revision).await;
    }
    assert!(renewed.expires_at > Some(now), "{:?}", renewed.expires_at);
}

/// Z7.3: a build claimed under a session that is not renewed would count as lost at once.
#[tokio::test]
async fn an_executor_whose_session_is_gone_ends() {
    let life = Life::begin();
    life.renewed_after(0).await;
    life.world.write(Write::Delete { key: life.key.clone(), expect: Expect::Anything });
    let ended =
        tokio::time::timeout(Duration::from_secs(60), life.run).await.expect("it ends").unwrap();
    assert!(ended.unwrap_err().to_string().contains("is gone"));
}

/// Z7.3: only what was written counts as a renewal. A session that another executor has ended, or
/// whose record does not exist any more, is gone.
#[tokio::test]
async fn a_session_is_renewed_only_by_a_write() {
    let world = ObservedWorld::new();
    let state = tempfile::tempdir().unwrap();
    let executor = executor(world.ports(), Arc::new(Idle), &state);
    let now = world.world.now();
    let session = Session {
        id: "one".into(),
        hostname: "here".to_owned(),
        live_logs: None,
        started_at: now,
        alive_until: now,
        builds: Vec::new(),
        zone: None,
        state: SessionState::Running,
    };
    let first = encode_first(session::key(&session.id), &session).unwrap();
    world.write(Write::Put { record: first.clone(), expect: Expect::Absent });
    let mut record = first;
    let renew = async |record: &mut Record| executor.renew_once(record, now, now).await.unwrap();
    assert_eq!(renew(&mut record).await, Renewal::Renewed);
    let mut unknown = Record { revision: record.revision + 5, ..record.clone() };
    unknown.write_id = "unknown".to_owned();
    world.write(Write::Put { record: unknown.clone(), expect: Expect::Anything });
    assert_eq!(renew(&mut record).await, Renewal::Behind);
    assert_eq!(record.revision, unknown.revision);
    assert_eq!(renew(&mut record).await, Renewal::Renewed);
    let ended = Session { state: SessionState::Ended { at: now }, ..session };
    let revision = record.revision + 1;
    let stored = Record { revision, ..with_body(record.clone(), &ended).unwrap() };
    world.write(Write::Put { record: stored, expect: Expect::Anything });
    assert_eq!(renew(&mut record).await, Renewal::Gone);
    world.write(Write::Delete { key: record.key.clone(), expect: Expect::Anything });
    assert_eq!(renew(&mut record).await, Renewal::Gone);
}

/// Z7.3, Z7.6: a defect in the run of one build does not leave it in progress, and the executor
/// goes on with its slot free.
#[tokio::test]
async fn a_build_whose_run_panics_is_tried_again_and_gives_back_its_slot() {
    let world = ObservedWorld::new();
    let state = tempfile::tempdir().unwrap();
    let worker = Arc::new(Worker::default());
    worker.panics.store(true, std::sync::atomic::Ordering::Release);
    let (stop, stopped) = watch::channel(false);
    let run = tokio::spawn(executor(world.ports(), worker.clone(), &state).run(stopped));
    let build = send(&world, "job").await;
    let end = end_of(&world, &build).await;
    assert_eq!(end.result, BuildResult::Retry);
    assert!(end.detail.as_deref().is_some_and(|why| why.contains("defect of its own")), "{end:?}");
    let next = send(&world, "next").await;
    worker.pass.notify_one();
    assert_eq!(end_of(&world, &next).await.result, BuildResult::Success);
    stop.send_replace(true);
    run.await.unwrap().unwrap();
}

/// Z7.3: the disk does not fill with what killed executors have left.
#[tokio::test]
async fn an_executor_removes_the_builds_that_a_killed_one_has_left() {
    let world = ObservedWorld::new();
    let state = tempfile::tempdir().unwrap();
    let left = state.path().join("builds/left");
    std::fs::create_dir_all(left.join("work/src")).unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(executor(world.ports(), Arc::new(Idle), &state).run(stopped));
    let removed = async {
        while left.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), removed).await.expect("it is removed");
}

/// Queues that note what is acknowledged.
#[derive(Default)]
struct Noting(Mutex<Vec<String>>);

#[async_trait]
impl Queues for Noting {
    async fn send(&self, _: MessageQueue, _: Vec<Outgoing>) -> Result<(), PortError> {
        Ok(())
    }
    async fn receive(
        &self,
        _: MessageQueue,
        _: u32,
        _: u32,
        _: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        Ok(Vec::new())
    }
    async fn acknowledge(&self, _: MessageQueue, _: &str) -> Result<(), PortError> {
        Ok(())
    }
    async fn acknowledge_all(&self, _: MessageQueue, receipts: &[String]) -> Result<(), PortError> {
        self.0.lock().unwrap().extend(receipts.iter().cloned());
        Ok(())
    }
    async fn postpone(&self, _: MessageQueue, _: &str, _: u32) -> Result<(), PortError> {
        Ok(())
    }
}

/// Z7.6, C2: acknowledging one delivery of a message removes both, so the second delivery is not
/// acknowledged while the claim of the first is in progress.
#[tokio::test]
async fn a_message_delivered_twice_is_not_removed_while_its_build_is_being_claimed() {
    let world = World::new(1, 0, Timestamp(1_000_000));
    let queues = Arc::new(Noting::default());
    let state = tempfile::tempdir().unwrap();
    let ports = Ports { queues: queues.clone(), ..world.ports() };
    let executor = executor(ports, Arc::new(Idle), &state);
    let wakeup = sluice_model::wakeup::Wakeup::Build {
        build: "stopped".into(),
        precedence: sluice_model::wakeup::Precedence::Normal,
        tenant: "demo".into(),
        request: None,
        nodes: Vec::new(),
        zone: None,
    };
    let body = serde_json::to_string(&wakeup).unwrap();
    let message = |id: &str| Incoming {
        id: id.to_owned(),
        body: body.clone(),
        receipt: id.to_owned(),
        group: None,
        receive_count: 1,
    };
    let taken = executor
        .claim_received(MessageQueue::BuildsNormal, vec![message("first"), message("second")])
        .await;
    // There is no such order, so the first one is done with.
    assert!(taken.is_empty());
    assert_eq!(*queues.0.lock().unwrap(), ["first"]);
}
