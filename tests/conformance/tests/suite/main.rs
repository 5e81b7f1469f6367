//! Runs the checks on every implementation of the ports: in memory, the emulator with and without a
//! socket, and third-party endpoints.
//!
//! Foreign endpoints are installed on first use (Python's `venv` and `pip`, Go) into `foreign` in
//! cargo's target directory and listen on 127.0.0.1 only. Their known differences are in
//! `differences.rs`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod differences;

use futures::future::BoxFuture;
use sluice_conformance::{
    Check, Difference, Mismatch, Needs, Site, TestPorts, checks, run, sdk_config,
};
use sluice_emulator::data::{
    Connector, DataOptions, ENDPOINT, Front, Principal, SecretAccessKey, serve,
};
use sluice_foreign::{Foreign, ministack, versitygw};
use sluice_memory::World;
use sluice_model::Timestamp;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const KEY: &str = "AKIDCONFORMANCE";
const SECRET: &str = "a secret of the suite";
const SEAL_KEY: &str = "seal";
/// The URL of a running DynamoDB Local, which the caller starts: its licence requires an AWS
/// account.
const DYNAMODB_LOCAL: &str = "SLUICE_CONFORMANCE_DYNAMODB_URL";

/// Runs the checks that use these ports and panics with all unexpected results.
async fn hold(
    of: &str,
    needs: &[Needs],
    target: impl Fn(Check) -> BoxFuture<'static, Result<TestPorts, Mismatch>>,
    differences: &[Difference],
) {
    let checks = checks().into_iter().filter(|check| needs.contains(&check.needs)).collect();
    let report = run(of, checks, target, differences).await;
    println!("{report}");
    assert!(report.unexpected.is_empty(), "{report}");
}

async fn hold_at(site: Site, of: &str, needs: &[Needs], differences: &[Difference]) {
    let target = move |check| -> BoxFuture<'static, Result<TestPorts, Mismatch>> {
        let site = site.clone();
        Box::pin(async move { site.target(check).await })
    };
    hold(of, needs, target, differences).await;
}

const ALL: [Needs; 4] = [Needs::Records, Needs::Objects, Needs::Queues, Needs::Seal];

#[tokio::test(flavor = "multi_thread")]
async fn the_ports_in_memory_conform() {
    for seed in 1..=5 {
        let target = move |_| -> BoxFuture<'static, Result<TestPorts, Mismatch>> {
            let world = World::new(seed, 0, Timestamp(1_000_000));
            Box::pin(async move { Ok(TestPorts::in_memory(world)) })
        };
        hold("memory", &ALL, target, differences::MEMORY).await;
    }
}

fn emulator() -> (Arc<Front>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let front = Front::open(directory.path(), DataOptions::default()).unwrap();
    front.keys().insert(KEY, Principal::new("conformance"), SecretAccessKey::new(SECRET));
    front.kms().ensure_key(SEAL_KEY).unwrap();
    (front, directory)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_emulator_conforms_without_a_socket() {
    let (front, _directory) = emulator();
    let client = Connector::new(front).into_client();
    let config = sdk_config(ENDPOINT, KEY, SECRET, Some(client));
    let site = Site::new(config, Some(SEAL_KEY.into()));
    hold_at(site, "the emulator without a socket", &ALL, differences::EMULATOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_emulator_conforms_over_a_socket() {
    let (front, _directory) = emulator();
    let (address, serving) = serve(front, 0).await.unwrap();
    let config = sdk_config(&format!("http://{address}"), KEY, SECRET, None);
    let site = Site::new(config, Some(SEAL_KEY.into()));
    hold_at(site, "the emulator over a socket", &ALL, differences::EMULATOR).await;
    serving.abort();
}

/// As on AWS, where an index shows a write a little later. Each check has an emulator of its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_emulator_conforms_while_its_indexes_lag() {
    let directories = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&directories);
    let target = move |check| -> BoxFuture<'static, Result<TestPorts, Mismatch>> {
        let (front, directory) = emulator();
        kept.lock().unwrap().push(directory);
        Box::pin(async move {
            let client = Connector::new(Arc::clone(&front)).into_client();
            let config = sdk_config(ENDPOINT, KEY, SECRET, Some(client));
            let target = Site::new(config, None).target(check).await;
            front.faults().set_index_lag(Duration::from_millis(30));
            target
        })
    };
    let of = "the emulator with lagging indexes";
    hold(of, &[Needs::Records], target, differences::EMULATOR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ministack_conforms_but_for_the_listed_differences() {
    let running: Foreign = ministack::start().await;
    let config = sdk_config(running.endpoint(), "test", "test", None);
    let key = aws_sdk_kms::Client::new(&config).create_key().send().await;
    let key_id = key.unwrap().key_metadata.unwrap().key_id;
    let site = Site::new(config, Some(key_id));
    hold_at(site, ministack::NAME, &ALL, differences::MINISTACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versitygw_conforms_but_for_the_listed_differences() {
    let running: Foreign = versitygw::start(KEY, SECRET).await;
    let config = sdk_config(running.endpoint(), KEY, SECRET, None);
    let site = Site::new(config, None);
    let needs = [Needs::Objects];
    hold_at(site, versitygw::NAME, &needs, differences::VERSITYGW).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a running DynamoDB Local, its URL in SLUICE_CONFORMANCE_DYNAMODB_URL"]
async fn dynamodb_local_conforms() {
    let url = std::env::var(DYNAMODB_LOCAL).unwrap_or_else(|_| {
        panic!("{DYNAMODB_LOCAL} is not set: it says where DynamoDB Local answers")
    });
    let site = Site::new(sdk_config(&url, "test", "test", None), None);
    hold_at(site, "DynamoDB Local", &[Needs::Records], &[]).await;
}
