//! The whole system on data services of another implementation.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use sluice_foreign::ministack;
use sluice_local::{ONE, TWO};
use sluice_local_tests::story::{GATE, approve, configure, decided};
use sluice_local_tests::system::{System, UpOptions};
use sluice_local_tests::until;
use sluice_operator::show::text;

/// C2.1, Z6.4: with `--endpoint` the program creates tables, queues, objects and keys at external
/// data services. Changes of two repositories in one queue are tested and land, and the emulator's
/// own data services do not run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_land_on_the_data_services_of_an_external_endpoint() {
    let external = ministack::start().await;
    let options =
        UpOptions { endpoint: Some(external.endpoint().to_owned()), ..UpOptions::default() };
    let system = System::start(options).await.unwrap();
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
        assert!(!system.data().join(service).exists(), "the emulated {service} ran as well");
    }
}
