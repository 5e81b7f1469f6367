//! Executors that shut down: running builds get time to finish, and new ones are not taken.

use crate::work::{Worker, end_of, put_order, send};
use crate::world::{ObservedWorld, draining_executor};
use sluice_executor::service::{ExecutorService, LOOK_SECONDS, SessionWatch};
use sluice_model::build::{BuildResult, Phase, Run};
use sluice_model::wakeup::MessageQueue;
use sluice_model::{BuildId, Timestamp};
use sluice_records::build::{self, StopRequest};
use sluice_records::codec::decode;
use sluice_records::session::{
    self, ENDED_SESSIONS, LIFE_SECONDS, OPEN_SESSIONS, Session, SessionState,
};
use sluice_runtime::Clock;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// An executor that runs one build.
struct Draining {
    world: ObservedWorld,
    build: BuildId,
    session: Key,
    worker: Arc<Worker>,
    executor: Arc<ExecutorService>,
    stop: watch::Sender<bool>,
    run: JoinHandle<Result<(), ReconcileError>>,
    _state: tempfile::TempDir,
}

impl Draining {
    /// Starts the executor and requests its shutdown while its build runs.
    async fn begin(drain_seconds: u64) -> Self {
        Self::begin_with(drain_seconds, Worker::default()).await
    }

    /// As [`Self::begin`], with this worker.
    async fn begin_with(drain_seconds: u64, worker: Worker) -> Self {
        let world = ObservedWorld::new();
        let build = send(&world, "job").await;
        let state = tempfile::tempdir().unwrap();
        let worker = Arc::new(worker);
        let executor = draining_executor(world.ports(), worker.clone(), &state, drain_seconds);
        let (stop, stopped) = watch::channel(false);
        let run = tokio::spawn(executor.clone().run(stopped));
        let claimed = world.until(&build::run_key(&build), |_| true).await;
        let session = session::key(&decode::<Run>(&claimed).unwrap().session);
        stop.send_replace(true);
        Self { world, build, session, worker, executor, stop, run, _state: state }
    }

    /// Waits until the session is in a state.
    async fn until_state(&self, is_wanted: impl Fn(SessionState) -> bool) {
        let state = |record: &Record| decode::<Session>(record).unwrap().state;
        self.world.until(&self.session, |record| is_wanted(state(record))).await;
    }

    /// Waits until the executor has ended, and checks that its session has.
    async fn ends(self) {
        let ended = tokio::time::timeout(Duration::from_secs(60), self.run).await.expect("it ends");
        ended.unwrap().unwrap();
        assert!(*self.stop.borrow());
        let session: Session = decode(&self.world.stored(&self.session).await.unwrap()).unwrap();
        assert!(matches!(session.state, SessionState::Ended { .. }), "{session:?}");
        let ports = self.world.world.ports();
        assert_eq!(ports.records.find(ENDED_SESSIONS, None, 5).await.unwrap(), [self.session]);
    }
}

/// Z7.3: nothing is lost by a shutdown, and the session says that the executor drains.
#[tokio::test]
async fn a_draining_executor_takes_no_build_and_finishes_what_it_runs() {
    let draining = Draining::begin(3_600).await;
    draining.until_state(|state| state == SessionState::Draining).await;
    let next = send(&draining.world, "next").await;
    draining.worker.pass.notify_one();
    let end = end_of(&draining.world, &draining.build).await;
    assert_eq!(end.result, BuildResult::Success);
    let world = draining.world.clone();
    draining.ends().await;
    assert_eq!(world.stored(&build::run_key(&next)).await, None, "another executor claims it");
    assert!(world.world.queued().contains_key(&MessageQueue::BuildsNormal));
}

/// Z7.3: a build that takes longer than the drain runs again elsewhere.
#[tokio::test]
async fn builds_that_do_not_finish_in_time_are_retried() {
    let draining = Draining::begin(0).await;
    let end = end_of(&draining.world, &draining.build).await;
    assert_eq!(
        (end.result, end.detail.as_deref()),
        (BuildResult::Retry, Some("the executor shuts down"))
    );
    assert!(end.ended_at > Timestamp(0));
    draining.ends().await;
}

/// Z7.3: as after a second signal.
#[tokio::test]
async fn a_drain_can_be_ended_at_once() {
    let draining = Draining::begin(3_600).await;
    draining.until_state(|state| state == SessionState::Draining).await;
    draining.executor.end_drain();
    assert_eq!(end_of(&draining.world, &draining.build).await.result, BuildResult::Retry);
    draining.ends().await;
}

/// Z7.3: the session lives on while cleanup playbooks of stopped builds run; meanwhile nothing is
/// claimed.
#[tokio::test]
async fn the_session_is_renewed_until_stopped_builds_have_ended_and_nothing_is_claimed() {
    let worker = Worker { clean_up: Some(Notify::new()), ..Worker::default() };
    let draining = Draining::begin_with(0, worker).await;
    let stopped = draining.worker.stopped.notified();
    tokio::time::timeout(Duration::from_secs(60), stopped).await.expect("its build is stopped");
    let next = send(&draining.world, "next").await;
    let world = draining.world.clone();
    let messages = world.world.take_messages(MessageQueue::BuildsNormal, 10, 60);
    let executor = draining.executor.clone();
    assert!(executor.claim_received(MessageQueue::BuildsNormal, messages).await.is_empty());
    assert!(world.world.has_visible(MessageQueue::BuildsNormal), "it is given back");
    assert_eq!(world.stored(&build::run_key(&next)).await, None);
    let seen = world.stored(&draining.session).await.unwrap().revision;
    world.until(&draining.session, |record| record.revision > seen + 2).await;
    draining.worker.clean_up.as_ref().unwrap().notify_one();
    assert_eq!(end_of(&world, &draining.build).await.result, BuildResult::Retry);
    draining.ends().await;
}

/// Z7.3: an end that cannot be stored at first is stored later, also during a shutdown.
#[tokio::test]
async fn an_end_that_is_refused_once_is_stored_before_the_executor_ends() {
    let worker = Worker { clean_up: Some(Notify::new()), ..Worker::default() };
    let draining = Draining::begin_with(0, worker).await;
    let mut is_refused = false;
    draining.world.refuse(move |writes| {
        let ends = |write: &Write| match write {
            Write::Put { record, .. } => {
                decode::<Run>(record).is_ok_and(|run| matches!(run.phase, Phase::Ended(_)))
            }
            _ => false,
        };
        let refuses = !is_refused && writes.iter().any(ends);
        is_refused |= refuses;
        refuses
    });
    draining.worker.clean_up.as_ref().unwrap().notify_one();
    assert_eq!(end_of(&draining.world, &draining.build).await.result, BuildResult::Retry);
    draining.ends().await;
}

/// Z6.4, Z7.3: a run that an executor leaves at its end, as after a claim whose outcome it never
/// learned, is ended by another executor, as its stop request says.
#[tokio::test]
async fn a_run_that_is_left_at_a_shutdown_is_ended_by_another_executor() {
    let draining = Draining::begin(3_600).await;
    let (world, key) = (draining.world.clone(), draining.session.clone());
    let left = put_order(&world, "left");
    let run = world.stored(&build::run_key(&draining.build)).await.unwrap();
    let run = Run { build: left.clone(), ..decode(&run).unwrap() };
    let record = Record { revision: 1, ..build::new_run(&run).unwrap() };
    world.write(Write::Put { record, expect: Expect::Absent });
    let stop = StopRequest {
        why: "a newer patchset".to_owned(),
        at: world.world.now(),
        executor_is_dead: false,
        result: None,
    };
    world.write(build::put_stop(&left, &stop).unwrap());
    draining.worker.pass.notify_one();
    draining.run.await.unwrap().unwrap();
    let session: Session = decode(&world.stored(&key).await.unwrap()).unwrap();
    assert!(session.state.has_ended(), "{session:?}");
    let records = world.world.ports().records;
    assert_eq!(records.find(OPEN_SESSIONS, None, 5).await.unwrap(), std::slice::from_ref(&key));
    let state = tempfile::tempdir().unwrap();
    let other = draining_executor(world.ports(), Arc::new(Worker::default()), &state, 0);
    let mut watch = SessionWatch::default();
    for _ in 0..LIFE_SECONDS / LOOK_SECONDS + 1 {
        other.look_at_sessions(&mut watch).await.unwrap();
        world.world.advance_millis(LOOK_SECONDS * 1_000);
    }
    assert_eq!(end_of(&world, &left).await.result, BuildResult::Aborted);
    assert_eq!(records.find(OPEN_SESSIONS, None, 5).await.unwrap(), []);
    assert_eq!(records.find(ENDED_SESSIONS, None, 5).await.unwrap(), [key]);
}
