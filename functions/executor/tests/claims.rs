//! Builds that come together are claimed together, and none of them suffers for another one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use async_trait::async_trait;
use sluice_executor::claim::{Asked, Claims};
use sluice_memory::World;
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{BuildId, ItemId, QueueKey, SessionId, Timestamp};
use sluice_records::build::{self, Stop};
use sluice_records::codec::decode;
use sluice_runtime::record::{Committed, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports, Records};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A table to which somebody writes a moment before the first commit.
struct Raced {
    world: World,
    records: Arc<dyn Records>,
    first: Mutex<Option<Write>>,
}

#[async_trait]
impl Records for Raced {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        self.records.get(keys).await
    }
    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        self.records.query(query).await
    }
    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        self.records.due(shard, until, limit).await
    }
    async fn find(&self, partition: &str, before: Option<&str>, limit: usize) -> Result<Vec<Key>, PortError> {
        self.records.find(partition, before, limit).await
    }
    async fn commit(&self, writes: Vec<Write>, write_id: &str) -> Result<Committed, PortError> {
        if let Some(write) = self.first.lock().unwrap().take() {
            self.world.write_directly(write);
        }
        self.records.commit(writes, write_id).await
    }
}

fn ordered(name: &str) -> Order {
    let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 1);
    Order {
        build: BuildId::derive(&[name]),
        queue: QueueKey { tenant: "demo".into(), pipeline: "check".into(), queue: "one".into() },
        item: ItemId::from("item"),
        generation: 1,
        job: name.into(),
        attempt: 1,
        max_attempts: 1,
        voting: true,
        graph: "jobs/graph".to_owned(),
        speculation: "speculations/state".to_owned(),
        change: ChangeRef { key, branch: "main".into(), patchset: "abc".to_owned(), head: "abc".into() },
        event_id: String::new(),
        post_review: false,
        parents: Vec::new(),
        providers: Vec::new(),
        nodeset: 0,
        merge_commit: None,
        request: None,
        ordered_at: Timestamp(1),
    }
}

/// A world with three orders, and what is asked of an executor.
async fn three() -> (World, Vec<Asked>) {
    let world = World::new(1, 0, Timestamp(1_800_000_000_000));
    let ports = world.ports();
    let names = ["one", "two", "three"];
    common::store_jobs(&ports, "jobs/graph", "speculations/state", &names).await;
    let orders = names.map(ordered);
    for order in &orders {
        world.write_directly(build::put_order(order).unwrap());
    }
    let asked = orders.iter().map(|order| Asked { build: order.build.clone(), request: None, nodes: Vec::new() });
    (world, asked.collect())
}

fn runs(world: &World) -> usize {
    world.records().iter().filter(|record| record.key.sort == "run").count()
}

/// Z7.6
#[tokio::test]
async fn builds_that_come_together_are_claimed_by_one_commit() {
    let (world, asked) = three().await;
    world.take_calls();
    let claims = Claims::new(world.ports(), SessionId::from("life"), None);
    let claimed = claims.claim(&asked).await;
    assert_eq!(world.take_calls().by_operation["records.commit"], 1);
    for (claim, asked) in claimed.into_iter().zip(&asked) {
        let claim = claim.unwrap().unwrap();
        assert_eq!(claim.run.build, asked.build);
        let stored = world.records().into_iter().find(|record| record.key == build::run_key(&asked.build));
        assert_eq!(Some(claim.record), stored, "what is held is what is stored, so that later writes can show it");
    }
}

/// Z7.6: one that is stopped between reading and writing is not claimed, and keeps no other from it.
#[tokio::test]
async fn a_build_that_is_stopped_meanwhile_keeps_no_other_from_being_claimed() {
    let (world, asked) = three().await;
    let stop =
        build::put_stop(&asked[1].build, &Stop { why: "it left".to_owned(), at: Timestamp(2), lost: false }).unwrap();
    let ports = world.ports();
    let records =
        Arc::new(Raced { world: world.clone(), records: ports.records.clone(), first: Mutex::new(Some(stop)) });
    let claims = Claims::new(Ports { records, ..ports }, SessionId::from("life"), None);
    let claimed = claims.claim(&asked).await;
    assert!(matches!(claimed.as_slice(), [Ok(Some(_)), Err(_), Ok(Some(_))]));
    assert_eq!(runs(&world), 2);
    // Its message comes again, and then it is known to be stopped.
    assert!(matches!(claims.claim(&asked[1..2]).await.as_slice(), [Ok(None)]));
}

/// A table that is cut off by the first commit: that one is written, and nobody hears of it.
struct Unheard {
    records: Arc<dyn Records>,
    is_first: AtomicBool,
    is_cut: AtomicBool,
}

impl Unheard {
    fn answer(&self) -> Result<(), PortError> {
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(PortError::unknown("ask the table", "no answer came")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Records for Unheard {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        self.answer()?;
        self.records.get(keys).await
    }
    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        self.records.query(query).await
    }
    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        self.records.due(shard, until, limit).await
    }
    async fn find(&self, partition: &str, before: Option<&str>, limit: usize) -> Result<Vec<Key>, PortError> {
        self.records.find(partition, before, limit).await
    }
    async fn commit(&self, writes: Vec<Write>, write_id: &str) -> Result<Committed, PortError> {
        let committed = self.records.commit(writes, write_id).await;
        if self.is_first.swap(false, Ordering::Relaxed) {
            self.is_cut.store(true, Ordering::Relaxed);
        }
        self.answer()?;
        committed
    }
}

/// Claims of a life that claimed the first of three builds, or several, and never learned so; with what is asked of it.
async fn unheard(count: usize) -> (World, Claims, Vec<Asked>) {
    let (world, mut asked) = three().await;
    asked.truncate(count);
    let ports = world.ports();
    let (is_first, is_cut) = (AtomicBool::new(true), AtomicBool::new(false));
    let table = Arc::new(Unheard { records: ports.records.clone(), is_first, is_cut });
    let claims = Claims::new(Ports { records: table.clone(), ..ports }, SessionId::from("life"), None);
    assert!(claims.claim(&asked).await.iter().all(Result::is_err));
    table.is_cut.store(false, Ordering::Relaxed);
    assert_eq!(runs(&world), count);
    (world, claims, asked)
}

fn phase(world: &World, build: &BuildId) -> Phase {
    let run = world.records().into_iter().find(|record| record.key == build::run_key(build)).unwrap();
    decode::<Run>(&run).unwrap().phase
}

fn stop(world: &World, build: &BuildId) {
    let stop = Stop { why: "nobody runs it".to_owned(), at: Timestamp(2), lost: false };
    world.write_directly(build::put_stop(build, &stop).unwrap());
}

fn is_aborted(world: &World, build: &BuildId) -> bool {
    matches!(phase(world, build), Phase::Ended(ended) if ended.result == BuildResult::Aborted)
}

/// Z7.6: the message comes again to the life that claimed it, which goes on with it.
#[tokio::test]
async fn a_build_that_was_claimed_without_an_answer_goes_on_when_its_message_comes_again() {
    let (world, claims, asked) = unheard(1).await;
    assert!(matches!(claims.claim(&asked).await.as_slice(), [Ok(Some(_))]));
    // Known to be run now, it is left alone, whatever is said of it.
    stop(&world, &asked[0].build);
    claims.settle(&|_| false).await.unwrap();
    assert!(matches!(phase(&world, &asked[0].build), Phase::Running));
}

/// Z7.6: its queue has given it up before its message came again; its run would stay open for as long as its executor lives.
#[tokio::test]
async fn a_stopped_build_that_was_claimed_without_an_answer_ends_when_its_message_comes_again() {
    let (world, claims, asked) = unheard(1).await;
    stop(&world, &asked[0].build);
    assert!(matches!(claims.claim(&asked).await.as_slice(), [Ok(None)]));
    assert!(is_aborted(&world, &asked[0].build));
}

/// Z7.6: another executor leaves it alone; the one that claimed it ends it once it is to stop, unless it is run there by now.
#[tokio::test]
async fn a_build_that_was_claimed_without_an_answer_ends_though_its_message_went_elsewhere() {
    let (world, claims, asked) = unheard(1).await;
    let other = Claims::new(world.ports(), SessionId::from("other"), None);
    assert!(matches!(other.claim(&asked).await.as_slice(), [Ok(None)]));
    claims.settle(&|_| false).await.unwrap();
    assert!(matches!(phase(&world, &asked[0].build), Phase::Running), "its message might still come here");
    stop(&world, &asked[0].build);
    other.settle(&|_| false).await.unwrap();
    claims.settle(&|build| *build == asked[0].build).await.unwrap();
    assert!(matches!(phase(&world, &asked[0].build), Phase::Running), "it is somebody else's, or run here");
    claims.settle(&|_| false).await.unwrap();
    assert!(is_aborted(&world, &asked[0].build));
}

/// Z7.6: what cannot be read of one build is told, and keeps no other one's run open.
#[tokio::test]
async fn a_build_that_cannot_be_read_keeps_no_other_from_ending() {
    let (world, claims, mut asked) = unheard(3).await;
    // The one that is looked at first.
    asked.sort_by(|one, other| one.build.cmp(&other.build));
    let mut builds = asked.iter().map(|asked| asked.build.clone());
    let damaged = builds.next().unwrap();
    let stopped = Stop { why: "nobody runs it".to_owned(), at: Timestamp(2), lost: false };
    let Write::Put { mut record, expect } = build::put_stop(&damaged, &stopped).unwrap() else { unreachable!() };
    record.body = "no stop".to_owned();
    world.write_directly(Write::Put { record, expect });
    for build in builds.clone() {
        stop(&world, &build);
    }
    for _ in 0..2 {
        let told = claims.settle(&|_| false).await.unwrap_err().to_string();
        assert!(told.contains(damaged.as_str()), "{told}");
        assert!(matches!(phase(&world, &damaged), Phase::Running));
        assert!(builds.clone().all(|build| is_aborted(&world, &build)));
    }
}
