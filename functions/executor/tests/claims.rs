//! Builds that come together are claimed together, and none of them suffers for another one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use sluice_executor::claim::{Asked, Claims};
use sluice_memory::{Fate, Meddled, World};
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{BuildId, ItemId, QueueKey, SessionId, Timestamp};
use sluice_records::build::{self, Stop};
use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::record::{Expect, Write};
use std::sync::{Arc, Mutex};

/// Returns claims for which somebody writes to the table a moment before their first commit.
fn raced(world: &World, write: Write) -> Claims {
    let ports = world.ports();
    let (table, first) = (world.clone(), Mutex::new(Some(write)));
    let records = Meddled::writing(ports.records.clone(), move |writes| {
        if let Some(write) = first.lock().unwrap().take() {
            table.write_directly(write);
        }
        writes
    });
    Claims::new(Ports { records: Arc::new(records), ..ports }, SessionId::from("life"), None)
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
        change: ChangeRef {
            key,
            branch: "main".into(),
            patchset: "abc".to_owned(),
            head: "abc".into(),
        },
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
    let asked = orders.iter().map(|order| Asked {
        build: order.build.clone(),
        request: None,
        nodes: Vec::new(),
    });
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
        let stored =
            world.records().into_iter().find(|record| record.key == build::run_key(&asked.build));
        assert_eq!(
            Some(claim.record),
            stored,
            "what is held is what is stored, so that later writes can show it"
        );
    }
}

/// Z7.6: one that is stopped between reading and writing is not claimed, and keeps no other from
/// it.
#[tokio::test]
async fn a_build_that_is_stopped_meanwhile_keeps_no_other_from_being_claimed() {
    let (world, asked) = three().await;
    let stop = build::put_stop(
        &asked[1].build,
        &Stop { why: "it left".to_owned(), at: Timestamp(2), lost: false },
    )
    .unwrap();
    let claims = raced(&world, stop);
    let claimed = claims.claim(&asked).await;
    assert!(matches!(claimed.as_slice(), [Ok(Some(_)), Err(_), Ok(Some(_))]));
    assert_eq!(runs(&world), 2);
    // Its message comes again, and then it is known to be stopped.
    assert!(matches!(claims.claim(&asked[1..2]).await.as_slice(), [Ok(None)]));
}

/// Cuts a table off by the next commit: that one is written, and nobody hears of it.
fn cut_off(world: &World) {
    let mut is_cut = false;
    world.decide_fates(move |step| match step.name {
        "records.commit" => {
            is_cut = true;
            Fate::FailsAfter
        }
        "records.get" if is_cut => Fate::FailsBefore,
        _ => Fate::Works,
    });
}

/// Claims of a life that claimed the first of three builds, or several, and never learned so; with
/// what is asked of it.
async fn unheard(count: usize) -> (World, Claims, Vec<Asked>) {
    let (world, mut asked) = three().await;
    asked.truncate(count);
    let claims = Claims::new(world.ports(), SessionId::from("life"), None);
    cut_off(&world);
    assert!(claims.claim(&asked).await.iter().all(Result::is_err));
    world.decide_fates(|_| Fate::Works);
    assert_eq!(runs(&world), count);
    (world, claims, asked)
}

fn phase(world: &World, build: &BuildId) -> Phase {
    let run =
        world.records().into_iter().find(|record| record.key == build::run_key(build)).unwrap();
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

/// Z7.6: its queue has given it up before its message came again; its run would stay open for as
/// long as its executor lives.
#[tokio::test]
async fn a_stopped_build_that_was_claimed_without_an_answer_ends_when_its_message_comes_again() {
    let (world, claims, asked) = unheard(1).await;
    stop(&world, &asked[0].build);
    assert!(matches!(claims.claim(&asked).await.as_slice(), [Ok(None)]));
    assert!(is_aborted(&world, &asked[0].build));
}

/// Z7.6: another executor leaves it alone; the one that claimed it ends it once it is to stop,
/// unless it is run there by now.
#[tokio::test]
async fn a_build_that_was_claimed_without_an_answer_ends_though_its_message_went_elsewhere() {
    let (world, claims, asked) = unheard(1).await;
    let other = Claims::new(world.ports(), SessionId::from("other"), None);
    assert!(matches!(other.claim(&asked).await.as_slice(), [Ok(None)]));
    claims.settle(&|_| false).await.unwrap();
    assert!(
        matches!(phase(&world, &asked[0].build), Phase::Running),
        "its message might still come here"
    );
    stop(&world, &asked[0].build);
    other.settle(&|_| false).await.unwrap();
    claims.settle(&|build| *build == asked[0].build).await.unwrap();
    assert!(
        matches!(phase(&world, &asked[0].build), Phase::Running),
        "it is somebody else's, or run here"
    );
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
    stop(&world, &damaged);
    let mut record = world.record(&build::order_key(&damaged)).unwrap();
    record.body = "no order".to_owned();
    world.write_directly(Write::Put { record, expect: Expect::Anything });
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
