//! What sources promise, one promise a test.

mod rig;

use super::{AfterFailure, QueuePort, SourceOptions, Sources, Tick, evaluate_response};
use crate::lambda::{Invoke, InvokeError};
use crate::template::{QueueKind, ResponseFormat, SchedulePlan, TemplatePlan};
use rig::{ARN, Reply, Scripted, TestQueues, as_on_aws, origin, rig};
use serde_json::{Value, json};
use sluice_memory::sqs::{NewMessage, Oldest, Poll, Queue, SqsQueueSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// C2
#[tokio::test]
async fn a_batch_has_aws_shape_and_is_deleted_only_after_the_answer() {
    let mut rig = rig(QueueKind::Fifo, None, &as_on_aws(), &[("a", "1"), ("b", "2")]);
    let call = rig.call().await;
    assert_eq!(call.bodies(), ["1", "2"]);
    let record = &call.event.records[0];
    let attribute = |name: &str| record.attributes.get(name).map(String::as_str);
    assert_eq!(record.event_source_arn.as_deref(), Some(ARN));
    assert_eq!(record.event_source.as_deref(), Some("aws:sqs"));
    assert_eq!(
        (attribute("MessageGroupId"), attribute("MessageDeduplicationId")),
        (Some("a"), Some("1"))
    );
    assert_eq!(
        (attribute("ApproximateReceiveCount"), attribute("SentTimestamp")),
        (Some("1"), Some("1000000"))
    );
    assert_eq!(attribute("SequenceNumber").map(str::len), Some(20));
    assert!(record.receipt_handle.is_some() && record.message_id.is_some());
    assert_eq!(rig.queues.left().len(), 2);
    call.done();
    assert!(rig.stop().await.is_empty());
}

/// C2
#[tokio::test]
async fn a_group_is_in_one_call_at_a_time_while_other_groups_go_on() {
    let mut rig = rig(QueueKind::Fifo, None, &as_on_aws(), &[("a", "a1")]);
    let first = rig.call().await;
    rig.queues.send(&[("a", "a2"), ("b", "b1")]);
    let other = rig.call().await;
    assert_eq!((first.bodies(), other.bodies()), (vec!["a1"], vec!["b1"]));
    other.done();
    first.done();
    let next = rig.call().await;
    assert_eq!(next.bodies(), ["a2"]);
    next.done();
    assert!(rig.stop().await.is_empty());
}

/// C2
#[tokio::test]
async fn what_is_behind_a_failed_message_of_its_group_comes_again_after_it() {
    let mut rig = rig(
        QueueKind::Fifo,
        None,
        &as_on_aws(),
        &[("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3")],
    );
    let call = rig.call().await;
    assert_eq!(call.event.records.len(), 4);
    call.failed(&["a2"]);
    rig.queues.send(&[("c", "c1")]);
    let other = rig.call().await;
    assert_eq!(other.bodies(), ["c1"], "group a waits for its time-out");
    other.done();
    rig.until_left(&["a2", "a3"]).await;
    rig.queues.pass(Duration::from_secs(30));
    let again = rig.call().await;
    assert_eq!(again.bodies(), ["a2", "a3"]);
    assert_eq!(again.event.records[0].attributes["ApproximateReceiveCount"], "2");
    again.done();
    assert!(rig.stop().await.is_empty());
}

/// C2
#[tokio::test]
async fn a_failed_call_or_an_invalid_answer_brings_the_whole_batch_again() {
    let mut rig = rig(QueueKind::Standard, None, &as_on_aws(), &[("", "1"), ("", "2")]);
    let died = InvokeError::Died { function: "gate".into(), how: "signal: 9".into() };
    let replies: [Reply; 3] = [
        Err(died),
        Ok(json!("text")),
        Ok(json!({"batchItemFailures": [{"itemIdentifier": "stranger"}]})),
    ];
    for reply in replies {
        let call = rig.call().await;
        assert_eq!(call.event.records.len(), 2);
        call.reply.send(reply).unwrap();
        rig.queues.pass(Duration::from_secs(30));
    }
    let call = rig.call().await;
    assert_eq!(call.event.records[0].attributes["ApproximateReceiveCount"], "4");
    call.done();
    assert!(rig.stop().await.is_empty());
}

/// C2
#[tokio::test]
async fn messages_of_a_failed_call_come_sooner_where_that_is_asked_for() {
    let options = SourceOptions {
        after_failure: AfterFailure::Within(Duration::ZERO),
        tick: Tick::AsPlanned,
    };
    let mut rig = rig(QueueKind::Fifo, None, &options, &[("a", "a1"), ("a", "a2")]);
    let call = rig.call().await;
    call.reply
        .send(Err(InvokeError::TimedOut { function: "gate".into(), limit: Duration::ZERO }))
        .unwrap();
    let again = rig.call().await;
    assert_eq!(again.bodies(), ["a1", "a2"]);
    again.done();
    assert!(rig.stop().await.is_empty());
}

/// C2
#[tokio::test]
async fn no_more_calls_run_at_once_than_the_source_allows() {
    let mut rig = rig(QueueKind::Fifo, Some(2), &as_on_aws(), &[("a", "1")]);
    let first = rig.call().await;
    rig.queues.send(&[("b", "2")]);
    let second = rig.call().await;
    rig.queues.send(&[("c", "3")]);
    assert!(rig.calls.try_recv().is_err());
    second.done();
    let third = rig.call().await;
    assert_eq!(third.bodies(), ["3"]);
    third.done();
    first.done();
    assert!(rig.stop().await.is_empty());
}

/// C2
#[tokio::test]
async fn a_throttled_call_is_asked_again_without_a_second_receive() {
    let mut rig = rig(QueueKind::Fifo, None, &as_on_aws(), &[("a", "1")]);
    let call = rig.call().await;
    call.reply.send(Err(InvokeError::Throttled { function: "gate".into(), limit: 1 })).unwrap();
    let again = rig.call().await;
    assert_eq!(again.event.records[0].attributes["ApproximateReceiveCount"], "1");
    again.done();
    assert!(rig.stop().await.is_empty());
}

/// C5
#[tokio::test]
async fn a_schedule_fires_at_each_tick_with_an_eventbridge_event() {
    let schedule = SchedulePlan {
        function: "timer".into(),
        rule_arn: "arn:aws:events:us-east-1:000000000000:rule/sluice-timer-Minute".into(),
        period: Duration::from_secs(3_600),
    };
    let plan = TemplatePlan { schedules: vec![schedule], ..TemplatePlan::default() };
    let (sender, mut calls) = mpsc::unbounded_channel();
    let (port, functions): (Arc<dyn QueuePort>, Arc<dyn Invoke>) =
        (TestQueues::new(QueueKind::Standard), Arc::new(Scripted(sender)));
    let options =
        SourceOptions { tick: Tick::Every(Duration::from_millis(1)), ..SourceOptions::default() };
    let sources = Sources::start(&plan, &origin(), &port, &functions, &options);
    let (first, reply) = calls.recv().await.unwrap();
    reply.send(Err(InvokeError::Unknown { function: "timer".into() })).unwrap();
    let (second, reply) = calls.recv().await.unwrap();
    reply.send(Ok(Value::Null)).unwrap();
    let event: aws_lambda_events::event::eventbridge::EventBridgeEvent<Value> =
        serde_json::from_value(first.clone()).unwrap();
    assert_eq!(
        (event.source.as_str(), event.detail_type.as_str()),
        ("aws.events", "Scheduled Event")
    );
    assert_eq!(
        first["resources"][0],
        "arn:aws:events:us-east-1:000000000000:rule/sluice-timer-Minute"
    );
    assert_ne!(first["id"], second["id"]);
    sources.stop().await;
}

/// C2
#[test]
fn nothing_null_and_empty_answers_mean_that_all_is_done() {
    let mut queue = Queue::new("sluice-wakes", SqsQueueSettings::standard()).unwrap();
    queue.send(NewMessage::body("1"), 0).unwrap();
    let poll = Poll { max: 10, visibility_seconds: None };
    let batch = queue.receive(poll, 0, &mut Oldest).unwrap().messages;
    let done = |answer: &str| {
        let format = ResponseFormat::BatchItemFailures;
        let answer = answer.as_bytes();
        evaluate_response(QueueKind::Standard, format, &batch, answer).delete.len() == 1
    };
    for answer in
        ["", " ", "null", "{}", r#"{"batchItemFailures":null}"#, r#"{"batchItemFailures":[]}"#]
    {
        assert!(done(answer), "{answer}");
    }
    for answer in [
        "x",
        "[]",
        r#""done""#,
        r#"{"batchItemFailures":[{}]}"#,
        r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,
    ] {
        assert!(!done(answer), "{answer}");
    }
    assert_eq!(
        evaluate_response(QueueKind::Standard, ResponseFormat::Ignored, &batch, b"x").delete.len(),
        1,
        "without partial answers all is done"
    );
}
