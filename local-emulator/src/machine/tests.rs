//! Whole machines from our own template, with functions that only pass things on.

use super::ports::EmulatedQueues;
use super::{Equipment, FindProgram, Form, LocalMachine, MachineError, MachineOptions, Make};
use crate::data::prices::SQS_STANDARD_REQUEST;
use crate::data::{DataOptions, Front as Data, Purpose, Row};
use crate::http::HostNames;
use crate::lambda::{Handler, HandlerError, to_stderr};
use crate::sources::{AfterFailure, QueuePort, SourceOptions, Tick};
use crate::template::{ResponseFormat, SourcePlan};
use aws_sdk_sqs::config::{BehaviorVersion, Credentials as SdkCredentials, Region};
use aws_sdk_sqs::error::ProvideErrorMetadata;
use bytes::Bytes;
use serde_json::{Value, json};
use sluice_memory::sqs::{NewMessage, SqsQueueSettings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;

fn our_template() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/template.yaml")
}

fn options(folder: &TempDir, template: PathBuf, functions: Form) -> MachineOptions {
    MachineOptions {
        data_directory: folder.path().to_owned(),
        template,
        parameters: BTreeMap::new(),
        data_port: 0,
        http_port: 0,
        http_names: HostNames::default(),
        data: DataOptions::default(),
        sources: SourceOptions {
            after_failure: AfterFailure::Within(Duration::ZERO),
            tick: Tick::Every(Duration::from_secs(3_600)),
        },
        extras: Vec::new(),
        functions,
    }
}

/// How a client of the SDK is made from what a function is given.
fn sqs(equipment: &Equipment) -> aws_sdk_sqs::Client {
    let keys: BTreeMap<_, _> = equipment.credentials.environment().into_iter().collect();
    let (id, secret) = (&keys["AWS_ACCESS_KEY_ID"], &keys["AWS_SECRET_ACCESS_KEY"]);
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(equipment.region.clone()))
        .endpoint_url(&equipment.endpoint)
        .http_client(equipment.client.clone())
        .credentials_provider(SdkCredentials::new(
            id,
            secret,
            Some(keys["AWS_SESSION_TOKEN"].clone()),
            None,
            "machine",
        ));
    aws_sdk_sqs::Client::from_conf(config.build())
}

/// Functions that do what their event's body says (`{"send": QUEUE, "body": TEXT}`) and report each
/// event to the test.
fn passing_on(seen: mpsc::UnboundedSender<(String, Value)>) -> Make {
    Arc::new(move |equipment| {
        let seen = seen.clone();
        Box::pin(async move {
            let client = sqs(&equipment);
            let handler: Handler = Arc::new(move |payload| {
                let (equipment, client, seen) = (equipment.clone(), client.clone(), seen.clone());
                Box::pin(async move {
                    let event: Value = serde_json::from_slice(&payload).unwrap();
                    let answer = pass_on(&equipment, &client, &event).await;
                    seen.send((equipment.id.clone(), event)).unwrap_or_default();
                    answer.map(|answer| Bytes::from(answer.to_string()))
                })
            });
            Ok(handler)
        })
    })
}

async fn pass_on(
    equipment: &Equipment,
    client: &aws_sdk_sqs::Client,
    event: &Value,
) -> Result<Value, HandlerError> {
    let Some(order) =
        event["body"].as_str().and_then(|body| serde_json::from_str::<Value>(body).ok())
    else {
        return Ok(Value::Null);
    };
    let url = &equipment.environment[order["send"].as_str().unwrap()];
    let mut send =
        client.send_message().queue_url(url).message_body(order["body"].as_str().unwrap());
    if url.ends_with(".fifo") {
        send = send.message_group_id("a").message_deduplication_id(order["body"].as_str().unwrap());
    }
    match send.send().await {
        Ok(_) => Ok(json!({"statusCode": 202})),
        Err(error) => Ok(json!({"statusCode": 500, "body": error.code()})),
    }
}

async fn post(machine: &LocalMachine, order: &Value) -> reqwest::Response {
    let url = format!("http://{}/api/connection/github/payload", machine.http_address());
    let request = reqwest::Client::new().post(url).header("content-type", "application/json");
    request.body(order.to_string()).send().await.unwrap()
}

async fn next_of(seen: &mut mpsc::UnboundedReceiver<(String, Value)>, function: &str) -> Value {
    loop {
        let (id, event) = seen.recv().await.unwrap();
        if id == function {
            return event;
        }
    }
}

/// C4, C5
#[tokio::test]
async fn a_request_goes_through_webhook_and_queue_to_the_next_function_each_with_its_own_keys() {
    let folder = TempDir::new().unwrap();
    let (sender, mut seen) = mpsc::unbounded_channel();
    let machine =
        LocalMachine::start(options(&folder, our_template(), Form::InProcess(passing_on(sender))))
            .await
            .unwrap();
    assert_eq!(next_of(&mut seen, "timer").await["source"], "aws.events");
    let sent = post(&machine, &json!({"send": "SLUICE_QUEUE_EVENTS", "body": "delivery-1"})).await;
    let status = sent.status().as_u16();
    assert_eq!(status, 202, "{}", sent.text().await.unwrap());
    let event = next_of(&mut seen, "intake").await;
    assert_eq!(event["Records"][0]["body"], "delivery-1");
    assert_eq!(
        event["Records"][0]["eventSourceARN"],
        "arn:aws:sqs:us-east-1:000000000000:sluice-events.fifo"
    );
    assert_eq!(event["Records"][0]["md5OfBody"].as_str().map(str::len), Some(32));
    let refused =
        post(&machine, &json!({"send": "SLUICE_QUEUE_GATE", "body": "not-allowed"})).await;
    assert_eq!(refused.status().as_u16(), 500);
    assert!(
        refused.text().await.unwrap().contains("AccessDenied"),
        "the webhook may not write to the gate queue"
    );
    let data = machine.data().clone();
    machine.stop().await;
    let of_source = |principal: &str, operation: &str| {
        let is_meant = |row: &Row| row.principal == principal && row.operation == operation;
        data.meter()
            .snapshot()
            .total(|row| is_meant(row) && row.purpose == Purpose::EventSource)
            .calls
    };
    assert_eq!(
        (of_source("intake", "ReceiveMessage"), of_source("intake", "DeleteMessageBatch")),
        (1, 1)
    );
    assert_eq!(of_source("gate", "ReceiveMessage"), 0, "its queue had nothing");
}

/// C2.2, C4: polls are counted for the function, as AWS bills them; empty polls separately.
#[tokio::test]
async fn what_event_sources_call_is_counted_in_their_functions_name() {
    let folder = TempDir::new().unwrap();
    let data = Data::open(folder.path(), DataOptions::default()).unwrap();
    data.sqs().ensure_queue("wakes", SqsQueueSettings::standard()).unwrap();
    let arn = "arn:aws:sqs:us-east-1:000000000000:wakes";
    let source = SourcePlan {
        function: "timer".to_owned(),
        queue_arn: arn.to_owned(),
        batch_size: 10,
        response_format: ResponseFormat::BatchItemFailures,
        concurrency_max: None,
    };
    let queues = EmulatedQueues::new(data.clone(), &[source]);
    assert!(queues.receive(arn, 10, None).await.unwrap().is_empty());
    for number in 0..12 {
        data.sqs().send("wakes", NewMessage::body(number.to_string())).unwrap();
    }
    let (mut receipts, mut empty, mut full) = (Vec::new(), 1_u64, 0_u64);
    while receipts.len() < 12 {
        let batch = queues.receive(arn, 10, None).await.unwrap();
        *(if batch.is_empty() { &mut empty } else { &mut full }) += 1;
        receipts.extend(batch.into_iter().map(|one| one.receipt));
    }
    queues.hide_for(arn, &receipts, Duration::from_secs(30)).await.unwrap();
    queues.delete(arn, &receipts).await.unwrap();
    assert!(queues.receive("arn:aws:sqs:us-east-1:000000000000:none", 10, None).await.is_err());
    let report = data.meter().snapshot();
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|row| {
            (
                row.principal.as_str(),
                row.operation.as_str(),
                row.purpose,
                row.count.calls,
                row.count.refused,
            )
        })
        .collect();
    let expected = [
        ("timer", "ChangeMessageVisibilityBatch", Purpose::EventSourceHiding, 2, 0),
        ("timer", "DeleteMessageBatch", Purpose::EventSource, 2, 0),
        ("timer", "ReceiveMessage", Purpose::EventSource, full, 0),
        ("timer", "ReceiveMessage", Purpose::Poll, empty, 0),
        ("unknown", "ReceiveMessage", Purpose::EventSource, 1, 1),
    ];
    assert_eq!(rows, expected);
    let all = report.total(|_| true);
    assert!((all.dollars - all.calls as f64 * SQS_STANDARD_REQUEST).abs() < 1e-12, "{all:?}");
}

/// C4
#[tokio::test]
async fn a_second_start_has_the_same_keys_and_what_was_not_done() {
    let folder = TempDir::new().unwrap();
    let failing: Make = Arc::new(|_| {
        Box::pin(async {
            let handler: Handler = Arc::new(|_| {
                Box::pin(async {
                    Err(HandlerError { kind: "Requested".into(), message: "to fail".into() })
                })
            });
            Ok(handler)
        })
    });
    let first = LocalMachine::start(options(&folder, our_template(), Form::InProcess(failing)))
        .await
        .unwrap();
    let operator = first.equipment("operator").unwrap();
    let key = first.equipment("executor").unwrap().credentials.access_key_id;
    let client = sqs(&operator);
    let url = &operator.environment["SLUICE_QUEUE_MERGES"];
    client.send_message().queue_url(url).message_body("kept").send().await.unwrap();
    drop(first);
    let (sender, mut seen) = mpsc::unbounded_channel();
    let second =
        LocalMachine::start(options(&folder, our_template(), Form::InProcess(passing_on(sender))))
            .await
            .unwrap();
    assert_eq!(second.equipment("executor").unwrap().credentials.access_key_id, key);
    assert!(second.equipment("stranger").is_none());
    assert_eq!(next_of(&mut seen, "merger").await["Records"][0]["body"], "kept");
    second.stop().await;
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(folder.path().join("keys.json")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

/// C4
#[tokio::test]
async fn functions_run_as_processes_with_the_templates_environment() {
    let tests = std::env::current_exe().unwrap();
    let binary = tests.parent().unwrap().parent().unwrap().join("examples/one_function");
    let folder = TempDir::new().unwrap();
    let program: FindProgram = Arc::new(move |_| Ok(binary.clone()));
    let form = Form::Processes { program, print: to_stderr() };
    let machine = LocalMachine::start(options(&folder, our_template(), form)).await.unwrap();
    let answer =
        machine.functions().invoke("gate", Bytes::from_static(br#"{"do": "who"}"#)).await.unwrap();
    let who: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(who["own"], "gate");
    assert_eq!(who["key"], machine.equipment("gate").unwrap().credentials.access_key_id.as_str());
    assert_eq!(who["endpoint"], format!("http://{}", machine.data_address()));
    let echo = post(&machine, &json!({"ref": "x"})).await;
    assert_eq!(
        echo.json::<Value>().await.unwrap()["routeKey"],
        "POST /api/connection/{connection}/payload"
    );
    machine.stop().await;
}

/// C2.2
#[tokio::test]
async fn a_function_that_may_not_read_the_queue_that_calls_it_is_an_error_at_the_start() {
    let folder = TempDir::new().unwrap();
    let text = std::fs::read_to_string(our_template()).unwrap();
    let template = folder.path().join("template.yaml");
    std::fs::write(
        &template,
        text.replace("Resource: !GetAtt MergesQueue.Arn", "Resource: !GetAtt GateQueue.Arn"),
    )
    .unwrap();
    let (sender, _seen) = mpsc::unbounded_channel();
    let error =
        LocalMachine::start(options(&folder, template, Form::InProcess(passing_on(sender))))
            .await
            .err()
            .unwrap();
    assert!(matches!(error, MachineError::SourceRefused { function, .. } if function == "merger"));
}
