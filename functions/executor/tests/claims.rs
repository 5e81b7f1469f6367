//! Builds that come together are claimed together, and none of them suffers for another one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use async_trait::async_trait;
use sluice_executor::claim::{Asked, Claims};
use sluice_memory::World;
use sluice_model::build::Order;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{BuildId, ItemId, QueueKey, SessionId, Timestamp};
use sluice_records::build::{self, Stop};
use sluice_runtime::record::{Committed, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports, Records};
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
