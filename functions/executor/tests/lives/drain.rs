//! Executors that shut down: running builds get time to finish, and new ones are not taken.

use crate::work::{Worker, end_of, send};
use crate::world::{ObservedWorld, draining_executor};
use sluice_executor::service::ExecutorService;
use sluice_model::build::{BuildResult, Run};
use sluice_model::wakeup::MessageQueue;
use sluice_model::{BuildId, Timestamp};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_records::session::{self, ENDED_SESSIONS, Session, SessionState};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
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
        let world = ObservedWorld::new();
        let build = send(&world, "job").await;
        let state = tempfile::tempdir().unwrap();
        let worker = Arc::new(Worker::default());
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
