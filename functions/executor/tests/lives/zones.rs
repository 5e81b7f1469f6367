//! Executors of zones: each takes the builds of its zone, and those without one only if it may.

use crate::work::{Worker, end_of, send, send_to_zone};
use crate::world::{ObservedWorld, zoned_executor};
use sluice_executor::service::ExecutorService;
use sluice_executor::service::zone::ServedZone;
use sluice_model::BuildId;
use sluice_model::build::BuildResult;
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_records::session::{self, OPEN_SESSIONS, Session};
use sluice_runtime::record::Key;
use sluice_runtime::{Ports, zone_builds};
use std::sync::Arc;
use tokio::sync::watch;

/// A running executor; it is gone when this is dropped.
struct Running {
    worker: Arc<Worker>,
    stop: watch::Sender<bool>,
    run: tokio::task::JoinHandle<Result<(), sluice_runtime::batch::ReconcileError>>,
    _state: tempfile::TempDir,
}

impl Running {
    /// Starts an executor whose builds pass one after the other.
    fn start(world: &ObservedWorld, zone: ServedZone) -> Self {
        let (state, worker) = (tempfile::tempdir().unwrap(), Arc::new(Worker::default()));
        let executor: Arc<ExecutorService> =
            zoned_executor(world.ports(), worker.clone(), &state, zone);
        let (stop, stopped) = watch::channel(false);
        let run = tokio::spawn(executor.run(stopped));
        Self { worker, stop, run, _state: state }
    }

    /// Has the next build pass, and returns its result.
    async fn pass(&self, world: &ObservedWorld, build: &BuildId) -> BuildResult {
        self.worker.pass.notify_one();
        end_of(world, build).await.result
    }

    async fn end(self) {
        self.stop.send_replace(true);
        self.run.await.unwrap().unwrap();
    }
}

fn zone(name: &str, allow_unzoned: bool) -> ServedZone {
    ServedZone::Zone { name: name.into(), allow_unzoned }
}

async fn waiting(ports: &Ports, zone: &str) -> Vec<Key> {
    let waiting = zone_builds::waiting(ports, &zone.into()).await.unwrap();
    waiting.into_iter().map(|build| build.key).collect()
}

/// Z7.6: a build waits for an executor of its zone, however long there is none, while other
/// executors take other builds; then it runs, and waits no more.
#[tokio::test]
async fn a_build_of_a_zone_waits_until_an_executor_of_the_zone_takes_it() {
    let world = ObservedWorld::new();
    let west = send_to_zone(&world, "west", "west").await;
    // Sent twice, as after a lost answer.
    send_to_zone(&world, "west", "west").await;
    let [key] = waiting(&world.ports(), "west").await.try_into().unwrap();
    let unzoned = Running::start(&world, ServedZone::Unzoned);
    let east = Running::start(&world, zone("east", true));
    // Both take builds after this one was sent.
    let first = send_to_zone(&world, "east", "east").await;
    assert_eq!(east.pass(&world, &first).await, BuildResult::Success);
    let second = send(&world, "any").await;
    unzoned.worker.pass.notify_one();
    assert_eq!(east.pass(&world, &second).await, BuildResult::Success);
    assert!(world.stored(&build::run_key(&west)).await.is_none(), "no one has it");
    unzoned.end().await;
    east.end().await;
    assert_eq!(
        waiting(&world.ports(), "west").await,
        std::slice::from_ref(&key),
        "it goes on waiting"
    );
    let here = Running::start(&world, zone("west", false));
    assert_eq!(here.pass(&world, &west).await, BuildResult::Success);
    world.until_gone(&key).await;
    here.end().await;
}

/// Z7.6: an executor of a zone leaves builds without a zone to others, and its session names the
/// zone.
#[tokio::test]
async fn an_executor_of_a_zone_leaves_other_builds_to_others() {
    let world = ObservedWorld::new();
    let other = send(&world, "any").await;
    let here = Running::start(&world, zone("west", false));
    let west = send_to_zone(&world, "west", "west").await;
    assert_eq!(here.pass(&world, &west).await, BuildResult::Success);
    assert!(world.stored(&build::run_key(&other)).await.is_none(), "no one has it");
    let sessions = world.ports().records.find(OPEN_SESSIONS, None, 10).await.unwrap();
    let session: Session = decode(&world.stored(&sessions[0]).await.unwrap()).unwrap();
    assert_eq!(session.zone, Some("west".into()));
    assert_eq!(session::id_of(&sessions[0]), session.id.as_str());
    let anyone = Running::start(&world, ServedZone::Unzoned);
    assert_eq!(anyone.pass(&world, &other).await, BuildResult::Success);
    here.end().await;
    anyone.end().await;
}
