//! Builds received together are claimed together, and a failure of one does not affect the others.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use sluice_executor::claim::{self, BuildMessage, Claims};
use sluice_memory::{Fate, Meddled, World};
use sluice_model::build::{BuildResult, Order, Phase, Run, RunEnd};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{BuildId, QueueKey, SessionId, Timestamp};
use sluice_records::build::{self, StopRequest};
use sluice_records::codec::{decode, with_body};
use sluice_runtime::Ports;
use sluice_runtime::record::{Expect, Record, Write};
use std::sync::{Arc, Mutex};

/// Returns claims with a concurrent `write` to the table right before their first commit.
fn raced(world: &World, write: Write) -> Claims {
    let ports = world.ports();
    let (table, first) = (world.clone(), Mutex::new(Some(write)));
    let records = Meddled::writing(ports.records.clone(), move |writes| {
        if let Some(write) = first.lock().unwrap().take() {
            table.write_unchecked(write);
        }
        writes
    });
    Claims::new(Ports { records: Arc::new(records), ..ports }, SessionId::from("life"))
}

fn ordered(name: &str) -> Order {
    let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 1);
    let change =
        ChangeRef { key, branch: "main".into(), patchset: "abc".to_owned(), head: "abc".into() };
    let queue = QueueKey { tenant: "demo".into(), pipeline: "check".into(), queue: "one".into() };
    Order {
        graph: "jobs/graph".to_owned(),
        speculation: "speculations/state".to_owned(),
        ..Order::sample(BuildId::derive(&[name]), queue, name.into(), change)
    }
}

/// Returns a world with three orders, and the messages for an executor.
async fn three() -> (World, Vec<BuildMessage>) {
    let world = World::new(1, 0, Timestamp(1_800_000_000_000));
    let ports = world.ports();
    let names = ["one", "two", "three"];
    common::store_jobs(&ports, "jobs/graph", "speculations/state", &names).await;
    let orders = names.map(ordered);
    for order in &orders {
        world.write_unchecked(build::put_order(order).unwrap());
    }
    let messages = orders.iter().map(|order| BuildMessage {
        build: order.build.clone(),
        request: None,
        nodes: Vec::new(),
    });
    (world, messages.collect())
}

fn runs(world: &World) -> usize {
    world.records().iter().filter(|record| record.key.sort == "run").count()
}

/// Z7.6
#[tokio::test]
async fn builds_that_come_together_are_claimed_by_one_commit() {
    let (world, messages) = three().await;
    world.take_calls();
    let claims = Claims::new(world.ports(), SessionId::from("life"));
    let claimed = claims.claim(&messages).await;
    assert_eq!(world.take_calls().by_operation["records.commit"], 1);
    for (claim, message) in claimed.into_iter().zip(&messages) {
        let claim = claim.unwrap().unwrap();
        assert_eq!(claim.run.build, message.build);
        let stored =
            world.records().into_iter().find(|record| record.key == build::run_key(&message.build));
        assert_eq!(
            Some(claim.record),
            stored,
            "what is held is what is stored, so that later writes can show it"
        );
    }
}

/// Z7.6: a build that is stopped between reading and writing is not claimed; the others are.
#[tokio::test]
async fn a_concurrently_stopped_build_does_not_prevent_claiming_others() {
    let (world, messages) = three().await;
    let stop = build::put_stop(
        &messages[1].build,
        &StopRequest {
            why: "it left".to_owned(),
            at: Timestamp(2),
            executor_is_dead: false,
            result: None,
        },
    )
    .unwrap();
    let claims = raced(&world, stop);
    let claimed = claims.claim(&messages).await;
    assert!(matches!(claimed.as_slice(), [Ok(Some(_)), Err(_), Ok(Some(_))]));
    assert_eq!(runs(&world), 2);
    // When its message is redelivered, the stop is found.
    assert!(matches!(claims.claim(&messages[1..2]).await.as_slice(), [Ok(None)]));
}

/// Loses the response of the next commit, which is stored, and fails all reads after it.
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

/// Returns a world, claims with `count` unconfirmed builds, and the messages of these builds.
async fn unconfirmed(count: usize) -> (World, Claims, Vec<BuildMessage>) {
    let (world, mut messages) = three().await;
    messages.truncate(count);
    let claims = Claims::new(world.ports(), SessionId::from("life"));
    cut_off(&world);
    assert!(claims.claim(&messages).await.iter().all(Result::is_err));
    world.decide_fates(|_| Fate::Works);
    assert_eq!(runs(&world), count);
    (world, claims, messages)
}

fn phase(world: &World, build: &BuildId) -> Phase {
    let run =
        world.records().into_iter().find(|record| record.key == build::run_key(build)).unwrap();
    decode::<Run>(&run).unwrap().phase
}

fn stop(world: &World, build: &BuildId) {
    let stop = StopRequest {
        why: "no executor runs it".to_owned(),
        at: Timestamp(2),
        executor_is_dead: false,
        result: None,
    };
    world.write_unchecked(build::put_stop(build, &stop).unwrap());
}

fn is_aborted(world: &World, build: &BuildId) -> bool {
    matches!(phase(world, build), Phase::Ended(ended) if ended.result == BuildResult::Aborted)
}

/// Z7.6: the message is redelivered to the session that claimed the build, which runs it.
#[tokio::test]
async fn a_build_with_an_unconfirmed_claim_runs_when_its_message_is_redelivered() {
    let (world, claims, messages) = unconfirmed(1).await;
    assert!(matches!(claims.claim(&messages).await.as_slice(), [Ok(Some(_))]));
    // Its claim is confirmed, so a stop does not end it here.
    stop(&world, &messages[0].build);
    claims.end_stopped_unconfirmed(&|_| false).await.unwrap();
    assert!(matches!(phase(&world, &messages[0].build), Phase::Running));
}

/// Z7.6: the queue gave it up before the redelivery; its run would stay open with its executor.
#[tokio::test]
async fn a_stopped_build_with_an_unconfirmed_claim_ends_when_its_message_is_redelivered() {
    let (world, claims, messages) = unconfirmed(1).await;
    stop(&world, &messages[0].build);
    assert!(matches!(claims.claim(&messages).await.as_slice(), [Ok(None)]));
    assert!(is_aborted(&world, &messages[0].build));
}

/// Z7.6: another executor leaves it alone; the one that claimed it ends it once a stop is
/// requested, unless it runs there.
#[tokio::test]
async fn a_build_with_an_unconfirmed_claim_ends_even_if_its_message_went_elsewhere() {
    let (world, claims, messages) = unconfirmed(1).await;
    let other = Claims::new(world.ports(), SessionId::from("other"));
    assert!(matches!(other.claim(&messages).await.as_slice(), [Ok(None)]));
    claims.end_stopped_unconfirmed(&|_| false).await.unwrap();
    assert!(
        matches!(phase(&world, &messages[0].build), Phase::Running),
        "its message may still be redelivered here"
    );
    stop(&world, &messages[0].build);
    other.end_stopped_unconfirmed(&|_| false).await.unwrap();
    claims.end_stopped_unconfirmed(&|build| *build == messages[0].build).await.unwrap();
    assert!(
        matches!(phase(&world, &messages[0].build), Phase::Running),
        "it belongs to another session, or runs here"
    );
    claims.end_stopped_unconfirmed(&|_| false).await.unwrap();
    assert!(is_aborted(&world, &messages[0].build));
}

/// Z7.6: an unreadable build is reported and does not keep the runs of others open.
#[tokio::test]
async fn an_unreadable_build_does_not_prevent_others_from_ending() {
    let (world, claims, mut messages) = unconfirmed(3).await;
    // The build that is handled first.
    messages.sort_by(|one, other| one.build.cmp(&other.build));
    let mut builds = messages.iter().map(|message| message.build.clone());
    let damaged = builds.next().unwrap();
    stop(&world, &damaged);
    let mut record = world.record(&build::order_key(&damaged)).unwrap();
    record.body = "no order".to_owned();
    world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    for build in builds.clone() {
        stop(&world, &build);
    }
    for _ in 0..2 {
        let error = claims.end_stopped_unconfirmed(&|_| false).await.unwrap_err().to_string();
        assert!(error.contains(damaged.as_str()), "{error}");
        assert!(matches!(phase(&world, &damaged), Phase::Running));
        assert!(builds.clone().all(|build| is_aborted(&world, &build)));
    }
}

/// J16: the run of the last attempt, which the API shows, says what the job ends with; an earlier
/// attempt is retried.
#[tokio::test]
async fn the_last_attempt_that_does_not_count_ends_as_retry_limit() {
    let (world, messages) = three().await;
    let claims = Claims::new(world.ports(), SessionId::from("life"));
    for ((message, max_attempts), expected) in
        messages.iter().zip([1, 2]).zip([BuildResult::RetryLimit, BuildResult::Retry])
    {
        let record = world.record(&build::order_key(&message.build)).unwrap();
        let order = Order { max_attempts, ..decode(&record).unwrap() };
        let record = Record { revision: record.revision + 1, ..with_body(record, &order).unwrap() };
        world.write_unchecked(Write::Put { record, expect: Expect::Anything });
        let claimed = claims.claim(std::slice::from_ref(message)).await.remove(0);
        let mut claimed = claimed.unwrap().unwrap();
        let end = RunEnd::of_lost_run(&claimed.run, "it was lost".to_owned(), Timestamp(5));
        assert_eq!(end.result, BuildResult::Retry);
        claim::end(&world.ports(), &mut claimed, end).await.unwrap();
        let stored = world.record(&build::run_key(&message.build)).unwrap();
        let Phase::Ended(end) = decode::<Run>(&stored).unwrap().phase else { panic!("{stored:?}") };
        assert_eq!(end.result, expected, "attempt 1 of {max_attempts}");
    }
}
