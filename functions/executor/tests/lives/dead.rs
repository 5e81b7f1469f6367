//! Executors that die or are paused: another one ends their builds, and they report nothing later.

use crate::work::{
    LOG_TEXT, Worker, end_of, send, send_deployment, send_with_nodes_in, send_with_post_run,
};
use crate::world::{ObservedWorld, executor};
use async_trait::async_trait;
use sluice_executor::AttemptScope;
use sluice_executor::service::{ExecutorService, LOOK_SECONDS, SessionWatch};
use sluice_model::build::{BuildResult, Phase, PlaybookPhase, PlaybookStart, Run};
use sluice_model::wakeup::MessageQueue;
use sluice_model::{BuildId, TenantName, Timestamp};
use sluice_records::build::{self, StopRequest};
use sluice_records::codec::{decode, encode_first, with_body};
use sluice_records::logs::{BuildLogs, LOG};
use sluice_records::session::{
    self, ENDED_SESSIONS, LIFE_SECONDS, OPEN_SESSIONS, Session, SessionState,
};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::port::Records;
use sluice_runtime::record::{Expect, Key, Query, Record, TransactionOutcome, Write};
use sluice_runtime::{Clock, PortError, Ports};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A table that does not answer while its caller is paused.
struct PausableRecords(ObservedWorld, watch::Receiver<bool>);

impl PausableRecords {
    async fn resumed(&self) {
        self.1.clone().wait_for(|paused| !*paused).await.unwrap();
    }
}

#[async_trait]
impl Records for PausableRecords {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        self.resumed().await;
        self.0.get(keys).await
    }
    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        self.resumed().await;
        self.0.query(query).await
    }
    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        self.resumed().await;
        self.0.due(shard, until, limit).await
    }
    async fn find(
        &self,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, PortError> {
        self.resumed().await;
        self.0.find(partition, before, limit).await
    }
    async fn commit(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        self.resumed().await;
        self.0.commit(writes, write_id).await
    }
}

/// An executor that runs one build and can be paused, and another one that looks after it.
struct Two {
    world: ObservedWorld,
    build: BuildId,
    worker: Arc<Worker>,
    pause: watch::Sender<bool>,
    first: Arc<ExecutorService>,
    run: JoinHandle<Result<(), ReconcileError>>,
    other: Arc<ExecutorService>,
    collector: Arc<Worker>,
    watch: SessionWatch,
    _stop: watch::Sender<bool>,
    _states: [tempfile::TempDir; 2],
}

impl Two {
    /// Starts both with a build whose job has no post-run playbooks, and waits until the build runs
    /// and the session lists it.
    async fn begin() -> Self {
        let world = ObservedWorld::new();
        let build = send(&world, "job").await;
        Self::begin_with(world, build).await
    }

    /// Starts both with this build, and waits until it runs and the session lists it.
    async fn begin_with(world: ObservedWorld, build: BuildId) -> Self {
        let (pause, paused) = watch::channel(false);
        let records = Arc::new(PausableRecords(world.clone(), paused));
        let ports = Ports { records, ..world.ports() };
        let states = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let worker = Arc::new(Worker::default());
        let first = executor(ports, worker.clone(), &states[0]);
        let collector = Arc::new(Worker::default());
        let other = executor(world.ports(), collector.clone(), &states[1]);
        let (stop, stopped) = watch::channel(false);
        let run = tokio::spawn(first.clone().run(stopped));
        let two = Self {
            world,
            build,
            worker,
            pause,
            first,
            run,
            other,
            collector,
            watch: SessionWatch::default(),
            _stop: stop,
            _states: states,
        };
        let key = two.session_key().await;
        let lists =
            |record: &Record| decode::<Session>(record).unwrap().builds == [two.build.clone()];
        two.world.until(&key, lists).await;
        two
    }

    /// Waits until the build is claimed, and returns the key of the session that claimed it.
    async fn session_key(&self) -> Key {
        let record = self.world.until(&build::run_key(&self.build), |_| true).await;
        session::key(&decode::<Run>(&record).unwrap().session)
    }

    /// Has the other executor look, and the time until its next look pass.
    async fn look(&mut self) {
        self.other.look_at_sessions(&mut self.watch).await.unwrap();
        self.world.world.advance_millis(LOOK_SECONDS * 1_000);
    }

    /// Pauses the first executor, and has the other one look until a session counts as over.
    async fn lose_executor(&mut self) {
        self.pause.send_replace(true);
        for _ in 0..LIFE_SECONDS / LOOK_SECONDS + 1 {
            self.look().await;
        }
    }

    /// Has the other executor run too, and waits until it has a session. Returns what stops it, and
    /// the key of its session.
    async fn run_other(
        &self,
    ) -> (watch::Sender<bool>, JoinHandle<Result<(), ReconcileError>>, Key) {
        let key = self.session_key().await;
        let (stop, stopped) = watch::channel(false);
        let other = tokio::spawn(self.other.clone().run(stopped));
        let opened = async {
            while self.listed(OPEN_SESSIONS).await.len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), opened).await.expect("it has a session");
        let own = self.listed(OPEN_SESSIONS).await.into_iter().find(|listed| *listed != key);
        (stop, other, own.unwrap())
    }

    /// Pauses the first executor, and has the other one, which runs with the session `own`, look
    /// until a session counts as over.
    async fn lose_executor_to(&mut self, own: &Key) {
        self.pause.send_replace(true);
        for _ in 0..LIFE_SECONDS / LOOK_SECONDS + 1 {
            self.look().await;
            let until = self.world.world.now().plus_seconds(LIFE_SECONDS);
            let is_new = |record: &Record| decode::<Session>(record).unwrap().alive_until >= until;
            self.world.until(own, is_new).await;
        }
    }

    /// Waits until the build has begun a main playbook.
    async fn until_begun(&self) {
        let begun = |record: &Record| decode::<Run>(record).unwrap().playbook.is_some();
        self.world.until(&build::run_key(&self.build), begun).await;
    }

    fn stored_run(&self) -> Run {
        decode(&self.world.world.record(&build::run_key(&self.build)).unwrap()).unwrap()
    }

    fn result(&self) -> Option<BuildResult> {
        match self.stored_run().phase {
            Phase::Ended(end) => Some(end.result),
            _ => None,
        }
    }

    async fn listed(&self, partition: &str) -> Vec<Key> {
        self.world.world.ports().records.find(partition, None, 10).await.unwrap()
    }
}

/// Z7.3, Z7.4: a look every five seconds finds the executor dead after twenty; the build ends as
/// RETRY with what it had logged, its queue is woken, and its executor, which was only paused,
/// stops it and reports nothing when it goes on.
#[tokio::test]
async fn builds_of_a_silent_executor_are_ended_with_their_log_and_it_reports_nothing_later() {
    let mut two = Two::begin().await;
    let tenant = TenantName::from("t");
    let build = two.build.clone();
    let logs = BuildLogs { tenant: &tenant, build: &build };
    let ports = two.world.world.ports();
    // Stored five seconds after it was written.
    let stored = async {
        while !logs.has_log_segments(&ports).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), stored).await.expect("the log is stored");
    let key = two.session_key().await;
    two.lose_executor().await;
    let end = end_of(&two.world, &build).await;
    assert_eq!(end.result, BuildResult::Retry);
    assert!(
        end.detail
            .as_deref()
            .is_some_and(|why| why.starts_with("executor lost: here has been silent")),
        "{end:?}"
    );
    assert_eq!(end.log_url, Some(format!("https://sluice.test/logs/t/{build}/")));
    assert_eq!(logs.read_file(&ports, LOG).await.unwrap().unwrap(), LOG_TEXT);
    assert!(two.world.world.has_visible(MessageQueue::Gate), "its queue is woken");
    assert_eq!(two.listed(OPEN_SESSIONS).await, []);
    assert_eq!(two.listed(ENDED_SESSIONS).await, [key]);
    let before = two.world.world.record(&build::run_key(&build)).unwrap();
    two.worker.pass.notify_one();
    two.pause.send_replace(false);
    let ended = tokio::time::timeout(Duration::from_secs(60), two.run).await.expect("it ends");
    assert!(ended.unwrap().unwrap_err().to_string().contains("is gone"));
    assert_eq!(two.world.world.record(&build::run_key(&build)).unwrap(), before);
}

/// Z7.3: a session that is renewed between two looks is not over, however often it is looked at.
#[tokio::test]
async fn builds_of_an_executor_that_renews_its_session_are_left_to_it() {
    let mut two = Two::begin().await;
    let key = two.session_key().await;
    for _ in 0..2 * LIFE_SECONDS / LOOK_SECONDS {
        let seen = two.world.stored(&key).await.unwrap().revision;
        two.look().await;
        two.world.until(&key, |record| record.revision > seen).await;
    }
    assert_eq!(two.result(), None);
    two.worker.pass.notify_one();
    assert_eq!(end_of(&two.world, &two.build).await.result, BuildResult::Success);
}

/// Z6.4, Z7.3: a build that was cancelled does not stay in progress when its executor is dead.
#[tokio::test]
async fn a_stopped_build_of_a_dead_executor_ends_as_its_stop_request_says() {
    let mut two = Two::begin().await;
    two.pause.send_replace(true);
    let stop = StopRequest {
        why: "a newer patchset".to_owned(),
        at: two.world.world.now(),
        executor_is_dead: false,
        result: None,
    };
    two.world.write(build::put_stop(&two.build, &stop).unwrap());
    two.lose_executor().await;
    let end = end_of(&two.world, &two.build).await;
    assert_eq!(
        (end.result, end.detail.as_deref()),
        (BuildResult::Aborted, Some("a newer patchset"))
    );
    assert_eq!(end.log_url, None, "nothing of its log was stored");
}

/// Z7.3: the executor that ended the session died before it had ended the builds.
#[tokio::test]
async fn builds_of_an_ended_session_are_ended_by_the_next_executor_that_looks() {
    let mut two = Two::begin().await;
    two.pause.send_replace(true);
    let key = two.session_key().await;
    let record = two.world.stored(&key).await.unwrap();
    let session: Session = decode(&record).unwrap();
    let ended = Session { state: SessionState::Ended { at: Timestamp(5) }, ..session };
    let record = Record { revision: record.revision + 1, ..with_body(record, &ended).unwrap() };
    two.world.write(Write::Put { record, expect: Expect::Anything });
    two.lose_executor().await;
    assert_eq!(two.result(), Some(BuildResult::Retry));
    assert_eq!(two.listed(OPEN_SESSIONS).await, []);
}

/// Z7.3: of a session that cannot be read nothing is known; the queues give its builds up.
#[tokio::test]
async fn a_session_that_cannot_be_read_is_left_to_the_queues() {
    let mut two = Two::begin().await;
    two.pause.send_replace(true);
    let key = two.session_key().await;
    let record = two.world.stored(&key).await.unwrap();
    let record = Record { revision: record.revision + 1, body: "{}".to_owned(), ..record };
    two.world.write(Write::Put { record, expect: Expect::Anything });
    two.lose_executor().await;
    assert_eq!(two.result(), None);
    assert_eq!(two.listed(OPEN_SESSIONS).await, [key]);
}

/// Z7.3: a lost build that had begun its main playbooks is taken over by an executor whose session
/// lists it, which collects its logs before it ends as RETRY. Its own executor reports nothing.
#[tokio::test]
async fn a_build_lost_in_its_main_playbooks_is_taken_over_and_ends_after_its_logs_are_collected() {
    let world = ObservedWorld::new();
    let build = send_with_post_run(&world, "job").await;
    let mut two = Two::begin_with(world, build).await;
    two.until_begun().await;
    let (lost, key) = (two.stored_run(), two.session_key().await);
    let first = lost.session;
    let (stop, other, own) = two.run_other().await;
    two.lose_executor_to(&own).await;
    let taken = |record: &Record| decode::<Run>(record).unwrap().session != first;
    let taken = two.world.until(&build::run_key(&two.build), taken).await;
    let taken: Run = decode(&taken).unwrap();
    assert!(
        taken.lost.as_deref().is_some_and(|why| why.starts_with("executor lost: ")),
        "{taken:?}"
    );
    let lists: Session =
        decode(&two.world.stored(&session::key(&taken.session)).await.unwrap()).unwrap();
    assert_eq!(lists.builds, [two.build.clone()], "its queue does not miss it");
    assert_eq!(two.result(), None);
    two.worker.pass.notify_one();
    two.pause.send_replace(false);
    let fenced = |record: &Record| decode::<Session>(record).unwrap().state.has_ended();
    two.world.until(&key, fenced).await;
    two.collector.pass.notify_one();
    let end = end_of(&two.world, &two.build).await;
    assert_eq!((end.result, end.detail), (BuildResult::Retry, taken.lost));
    assert_eq!(end.started_at, Some(lost.claimed_at), "the build began before it was lost");
    assert_eq!(*two.collector.scopes.lock().unwrap(), [AttemptScope::CollectLogs]);
    stop.send_replace(true);
    other.await.unwrap().unwrap();
}

/// Z7.3: in whatever phase a build is when its executor is lost, it ends as RETRY, once: at once
/// before its main playbooks, otherwise after its logs are collected.
#[tokio::test]
async fn a_build_is_retried_in_whatever_phase_its_executor_is_lost() {
    use PlaybookPhase::{Post, Pre};
    for (phase, collects) in
        [(None, false), (Some(Pre), false), (Some(PlaybookPhase::Run), true), (Some(Post), true)]
    {
        let world = ObservedWorld::new();
        let build = send_with_post_run(&world, "job").await;
        let mut two = Two::begin_with(world, build).await;
        two.until_begun().await;
        let (stop, other, own) = two.run_other().await;
        two.pause.send_replace(true);
        let record = two.world.stored(&build::run_key(&two.build)).await.unwrap();
        let playbook = phase.map(|phase| PlaybookStart { phase, index: 0 });
        let run = Run { playbook, ..decode::<Run>(&record).unwrap() };
        let record = Record { revision: record.revision + 1, ..with_body(record, &run).unwrap() };
        two.world.write(Write::Put { record, expect: Expect::Anything });
        two.collector.pass.notify_one();
        two.lose_executor_to(&own).await;
        let end = end_of(&two.world, &two.build).await;
        assert_eq!(end.result, BuildResult::Retry, "{phase:?}: {end:?}");
        let scopes = two.collector.scopes.lock().unwrap().clone();
        let expected: &[AttemptScope] = if collects { &[AttemptScope::CollectLogs] } else { &[] };
        assert_eq!(scopes, expected, "{phase:?}");
        two.pause.send_replace(false);
        let ended = two.stored_run();
        two.worker.pass.notify_one();
        let fenced = |record: &Record| decode::<Session>(record).unwrap().state.has_ended();
        two.world.until(&session::key(&run.session), fenced).await;
        assert_eq!(two.stored_run(), ended, "the first executor reports nothing");
        stop.send_replace(true);
        other.await.unwrap().unwrap();
    }
}

/// Z7.3: logs are collected once; a build whose second executor is lost too ends at once.
#[tokio::test]
async fn a_build_that_is_lost_again_while_its_logs_are_collected_ends_at_once() {
    let world = ObservedWorld::new();
    let build = send_with_post_run(&world, "job").await;
    let mut two = Two::begin_with(world, build).await;
    two.pause.send_replace(true);
    let key = build::run_key(&two.build);
    let record = two.world.stored(&key).await.unwrap();
    let run: Run = decode(&record).unwrap();
    let start = PlaybookStart { phase: PlaybookPhase::Post, index: 1 };
    let lost =
        Run { playbook: Some(start), lost: Some("the first one was lost".to_owned()), ..run };
    let record = Record { revision: record.revision + 1, ..with_body(record, &lost).unwrap() };
    two.world.write(Write::Put { record, expect: Expect::Anything });
    two.lose_executor().await;
    assert_eq!(two.result(), Some(BuildResult::Retry));
    assert!(two.collector.scopes.lock().unwrap().is_empty());
}

/// Z7.3, Z7.6: an executor that does not serve the zone of a lost build's nodes collects no logs
/// from them: the build ends at once, and is tried again in the zone.
#[tokio::test]
async fn a_lost_build_of_another_zone_ends_without_its_logs_being_collected() {
    let world = ObservedWorld::new();
    let build = send_with_nodes_in(&world, "job", "west").await;
    let mut two = Two::begin_with(world, build.clone()).await;
    two.until_begun().await;
    let (stop, other, own) = two.run_other().await;
    two.lose_executor_to(&own).await;
    assert_eq!(end_of(&two.world, &build).await.result, BuildResult::Retry);
    assert_eq!(*two.collector.scopes.lock().unwrap(), []);
    stop.send_replace(true);
    other.await.unwrap().unwrap();
}

/// Z7.3, Z8.1: on the host of a deployment job nothing can be ended that its executor had started:
/// other sessions there are not the build's. So no logs are collected.
#[tokio::test]
async fn a_lost_deployment_ends_at_once_and_nothing_is_done_on_its_host() {
    let world = ObservedWorld::new();
    let build = send_deployment(&world, "job").await;
    let mut two = Two::begin_with(world, build).await;
    two.until_begun().await;
    let (stop, other, own) = two.run_other().await;
    two.lose_executor_to(&own).await;
    assert_eq!(end_of(&two.world, &two.build).await.result, BuildResult::Retry);
    assert!(two.collector.scopes.lock().unwrap().is_empty());
    stop.send_replace(true);
    other.await.unwrap().unwrap();
}

/// Z7.3, Z7.4: an executor that gets no answer stops its builds when its session may be over. From
/// then on it claims nothing, and stores nothing for its builds: another executor may do so. This
/// waits for the life of a session.
#[tokio::test]
async fn an_executor_without_answers_stops_its_builds_and_neither_claims_nor_stores_anything() {
    let mut two = Two::begin().await;
    two.pause.send_replace(true);
    let stopped = two.worker.stopped.notified();
    tokio::time::timeout(Duration::from_secs(60), stopped).await.expect("its build is stopped");
    let objects = two.world.world.object_keys();
    let next = send(&two.world, "next").await;
    let messages = two.world.world.take_messages(MessageQueue::BuildsNormal, 10, 60);
    assert_eq!(messages.len(), 1);
    assert!(!two.world.world.has_visible(MessageQueue::BuildsNormal));
    let claimed = two.first.claim_received(MessageQueue::BuildsNormal, messages);
    let claimed = tokio::time::timeout(Duration::from_secs(60), claimed).await;
    assert!(claimed.expect("it asks nothing").is_empty());
    assert!(two.world.world.has_visible(MessageQueue::BuildsNormal), "it is given back");
    assert_eq!(two.world.stored(&build::run_key(&next)).await, None);
    two.lose_executor().await;
    two.pause.send_replace(false);
    let ended = tokio::time::timeout(Duration::from_secs(60), two.run).await.expect("it ends");
    assert!(ended.unwrap().unwrap_err().to_string().contains("is gone"));
    let left = two.world.world.object_keys();
    assert!(left.iter().all(|key| objects.contains(key) || !key.contains(two.build.as_str())));
}

/// Z7.3: each executor looks at few others, and still none is left if all but one die.
#[tokio::test]
async fn the_last_of_ten_executors_ends_the_sessions_of_all_others() {
    let world = ObservedWorld::new();
    let now = world.world.now();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        let session = Session {
            id: name.into(),
            hostname: "there".to_owned(),
            live_logs: None,
            started_at: now,
            alive_until: now.plus_seconds(LIFE_SECONDS),
            builds: Vec::new(),
            zone: None,
            state: SessionState::Running,
        };
        let find = Some(session::open_entry(&session.id));
        let record = encode_first(session::key(&session.id), &session).unwrap();
        world.write(Write::Put { record: Record { find, ..record }, expect: Expect::Absent });
    }
    let state = tempfile::tempdir().unwrap();
    let last = executor(world.ports(), Arc::new(Worker::default()), &state);
    let mut watch = SessionWatch::default();
    let records = world.world.ports().records;
    // Three at a time.
    for _ in 0..3 * (LIFE_SECONDS / LOOK_SECONDS + 1) {
        last.look_at_sessions(&mut watch).await.unwrap();
        world.world.advance_millis(LOOK_SECONDS * 1_000);
    }
    assert_eq!(records.find(OPEN_SESSIONS, None, 20).await.unwrap(), []);
    assert_eq!(records.find(ENDED_SESSIONS, None, 20).await.unwrap().len(), 9);
}
