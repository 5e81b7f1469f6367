//! The whole system over data services that others wrote.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use sluice_cli::commands::show::text;
use sluice_cli::local::{ONE, TWO};
use sluice_foreign::ministack;
use sluice_local_tests::story::{GATE, approve, configure, decided};
use sluice_local_tests::system::{System, Wishes};
use sluice_local_tests::until;

/// C2.1, Z6.4: with `--endpoint` tables, queues, objects and keys are somebody else's, made there
/// by the program: changes of two repositories in one queue are tested and land, and nothing of it
/// is on this machine's own services.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_land_over_another_endpoints_data_services() {
    let elsewhere = ministack::start().await;
    let wishes = Wishes { endpoint: Some(elsewhere.endpoint().to_owned()), ..Wishes::default() };
    let system = System::start(wishes).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let forge = system.forge().unwrap();
    let one = forge.propose(ONE, "One", &[("greetings/one", "Hello!\n")]).await.unwrap();
    let two = forge.propose(TWO, "Two", &[("two", "yes\n")]).await.unwrap();
    for change in [&one, &two] {
        approve(&system, change).await.unwrap();
    }
    for change in [&one, &two] {
        let set: Value = decided(&system, change).await.unwrap();
        assert_eq!(text(&set, "result"), "SUCCESS", "{set}");
        until(&format!("{change} to be reported as landed"), async || {
            Ok((forge.status(change, GATE).await? == "success").then_some(()))
        })
        .await
        .unwrap();
        assert!(forge.landed_as(change).await.unwrap().is_some(), "{change} is merged");
    }
    for service in ["dynamodb", "s3", "sqs"] {
        assert!(!system.data().join(service).exists(), "{service} ran beside it");
    }
}
