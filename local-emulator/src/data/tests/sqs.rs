//! SQS through the SDK: both kinds, batches, long polls, dead letters, attributes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};

use super::super::sqs::Waited;
use super::*;

async fn create(
    sqs: &aws_sdk_sqs::Client,
    name: &str,
    attributes: &[(QueueAttributeName, &str)],
) -> String {
    let attributes: HashMap<_, _> =
        attributes.iter().map(|(n, v)| (n.clone(), (*v).to_owned())).collect();
    let attributes = Some(attributes).filter(|attributes| !attributes.is_empty());
    let made = sqs.create_queue().queue_name(name).set_attributes(attributes).send().await.unwrap();
    made.queue_url().unwrap().to_owned()
}

async fn fifo(sqs: &aws_sdk_sqs::Client, name: &str) -> String {
    let attributes = [
        (QueueAttributeName::FifoQueue, "true"),
        (QueueAttributeName::DeduplicationScope, "messageGroup"),
        (QueueAttributeName::FifoThroughputLimit, "perMessageGroupId"),
    ];
    create(sqs, name, &attributes).await
}

async fn send(sqs: &aws_sdk_sqs::Client, url: &str, group: &str, body: &str) {
    let message = sqs.send_message().queue_url(url).message_body(body).message_group_id(group);
    message.message_deduplication_id(format!("{group}-{body}")).send().await.unwrap();
}

async fn receive(sqs: &aws_sdk_sqs::Client, url: &str) -> Vec<aws_sdk_sqs::types::Message> {
    let poll = sqs.receive_message().queue_url(url).max_number_of_messages(10);
    let poll = poll
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .message_attribute_names("All");
    poll.send().await.unwrap().messages.unwrap_or_default()
}

fn bodies(messages: &[aws_sdk_sqs::types::Message]) -> Vec<&str> {
    messages.iter().map(|message| message.body().unwrap()).collect()
}

#[tokio::test]
async fn a_fifo_group_is_delivered_in_order_and_held_until_it_is_deleted() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let url = fifo(&sqs, "gate.fifo").await;
    for body in ["1", "2"] {
        send(&sqs, &url, "a", body).await;
    }
    send(&sqs, &url, "a", "1").await;
    let first = receive(&sqs, &url).await;
    assert_eq!(bodies(&first), ["1", "2"], "the repeat was dropped");
    let attributes = first[0].attributes().unwrap();
    assert_eq!(attributes[&MessageSystemAttributeName::MessageGroupId], "a");
    assert_eq!(attributes[&MessageSystemAttributeName::ApproximateReceiveCount], "1");
    send(&sqs, &url, "a", "3").await;
    assert!(receive(&sqs, &url).await.is_empty());
    for message in &first {
        sqs.delete_message()
            .queue_url(&url)
            .receipt_handle(message.receipt_handle().unwrap())
            .send()
            .await
            .unwrap();
    }
    assert_eq!(bodies(&receive(&sqs, &url).await), ["3"]);
}

#[tokio::test]
async fn a_delay_on_a_fifo_message_and_a_missing_group_are_refused() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let url = fifo(&sqs, "gate.fifo").await;
    let message =
        || sqs.send_message().queue_url(&url).message_body("x").message_deduplication_id("x");
    let refused = message().message_group_id("a").delay_seconds(1).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("InvalidParameterValue"));
    assert_eq!(message().send().await.unwrap_err().code(), Some("MissingParameter"));
}

#[tokio::test]
async fn a_batch_reports_each_entry_and_is_refused_whole_when_too_long() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let url = create(&sqs, "wakes", &[]).await;
    let entry = |id: &str, body: &str, delay: i32| {
        SendMessageBatchRequestEntry::builder()
            .id(id)
            .message_body(body)
            .delay_seconds(delay)
            .build()
            .unwrap()
    };
    let sent = sqs
        .send_message_batch()
        .queue_url(&url)
        .entries(entry("a", "x", 0))
        .entries(entry("b", "y", 901));
    let sent = sent.send().await.unwrap();
    assert_eq!((sent.successful().len(), sent.failed().len()), (1, 1));
    assert_eq!(sent.failed()[0].code(), "InvalidParameterValue");
    let eleven = (0..11).map(|n| entry(&n.to_string(), "x", 0)).collect();
    let refused = sqs
        .send_message_batch()
        .queue_url(&url)
        .set_entries(Some(eleven))
        .send()
        .await
        .unwrap_err();
    assert!(refused.into_service_error().is_too_many_entries_in_batch_request());
    let half = "x".repeat(600 * 1024);
    let heavy = sqs
        .send_message_batch()
        .queue_url(&url)
        .entries(entry("a", &half, 0))
        .entries(entry("b", &half, 0));
    assert!(heavy.send().await.unwrap_err().into_service_error().is_batch_request_too_long());
    let over = "x".repeat(1_048_577);
    let refused = sqs.send_message().queue_url(&url).message_body(over).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("InvalidParameterValue"));
}

#[tokio::test]
async fn attributes_of_a_message_come_back_with_their_sums() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let url = create(&sqs, "wakes", &[]).await;
    let text =
        MessageAttributeValue::builder().data_type("String").string_value("über").build().unwrap();
    let bytes = MessageAttributeValue::builder()
        .data_type("Binary.raw")
        .binary_value(Blob::new([0, 255]))
        .build()
        .unwrap();
    let message = sqs.send_message().queue_url(&url).message_body("hello");
    let sent = message
        .message_attributes("t", text.clone())
        .message_attributes("b", bytes.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(sent.md5_of_message_body(), Some("5d41402abc4b2a76b9719d911017c592"));
    let got = receive(&sqs, &url).await;
    assert_eq!(got[0].md5_of_message_attributes(), sent.md5_of_message_attributes());
    assert_eq!(got[0].message_attributes().unwrap()["t"], text);
    assert_eq!(got[0].message_attributes().unwrap()["b"], bytes);
}

#[tokio::test]
async fn a_long_poll_ends_as_soon_as_a_message_is_sent() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let url = create(&sqs, "wakes", &[]).await;
    let poll = tokio::spawn(sqs.receive_message().queue_url(&url).wait_time_seconds(20).send());
    // Does not wait for the poll to stand: sent before or after, it must end at once.
    tokio::task::yield_now().await;
    let began = Instant::now();
    sqs.send_message().queue_url(&url).message_body("x").send().await.unwrap();
    assert_eq!(poll.await.unwrap().unwrap().messages().len(), 1);
    assert!(began.elapsed() < Duration::from_secs(10));
    let refused =
        sqs.receive_message().queue_url(&url).wait_time_seconds(21).send().await.unwrap_err();
    assert_eq!(refused.code(), Some("InvalidParameterValue"));
}

#[tokio::test]
async fn a_delayed_message_wakes_a_waiting_poll_when_its_time_comes() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let url = create(&sqs, "wakes", &[]).await;
    sqs.send_message().queue_url(&url).message_body("x").delay_seconds(1).send().await.unwrap();
    assert!(receive(&sqs, &url).await.is_empty());
    let waited = lab.front.sqs().wait_visible("wakes", Duration::from_secs(20)).await.unwrap();
    assert_eq!(waited, Waited::Visible);
    assert_eq!(receive(&sqs, &url).await.len(), 1);
    let waited = lab.front.sqs().wait_visible("wakes", Duration::from_millis(10)).await.unwrap();
    assert_eq!(waited, Waited::TimedOut);
}

#[tokio::test]
async fn a_message_that_is_never_deleted_becomes_a_dead_letter() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let policy = |arn: &str| format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"2"}}"#);
    let missing = HashMap::from([(
        QueueAttributeName::RedrivePolicy,
        policy("arn:aws:sqs:us-east-1:0:nowhere"),
    )]);
    let refused = sqs
        .create_queue()
        .queue_name("wakes")
        .set_attributes(Some(missing))
        .send()
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some("InvalidParameterValue"));
    let dead = create(&sqs, "wakes-dead", &[]).await;
    let attributes =
        sqs.get_queue_attributes().queue_url(&dead).attribute_names(QueueAttributeName::All);
    let arn =
        attributes.send().await.unwrap().attributes.unwrap()[&QueueAttributeName::QueueArn].clone();
    let url = create(
        &sqs,
        "wakes",
        &[
            (QueueAttributeName::RedrivePolicy, &policy(&arn)),
            (QueueAttributeName::VisibilityTimeout, "0"),
        ],
    )
    .await;
    sqs.send_message().queue_url(&url).message_body("poison").send().await.unwrap();
    assert_eq!(receive(&sqs, &url).await.len(), 1);
    assert_eq!(receive(&sqs, &url).await.len(), 1);
    assert!(receive(&sqs, &url).await.is_empty());
    let letters = receive(&sqs, &dead).await;
    assert_eq!(bodies(&letters), ["poison"]);
    let source =
        &letters[0].attributes().unwrap()[&MessageSystemAttributeName::DeadLetterQueueSourceArn];
    assert!(source.ends_with(":wakes"));
}

#[tokio::test]
async fn counts_purges_and_unknown_queues_answer_as_on_aws() {
    let lab = lab();
    let sqs = lab.clients().sqs;
    let url = create(&sqs, "wakes", &[]).await;
    assert_eq!(create(&sqs, "wakes", &[]).await, url, "the same again is no error");
    let other = sqs
        .create_queue()
        .queue_name("wakes")
        .attributes(QueueAttributeName::DelaySeconds, "5")
        .send()
        .await;
    assert!(other.unwrap_err().into_service_error().is_queue_name_exists());
    for body in ["a", "b", "c"] {
        sqs.send_message().queue_url(&url).message_body(body).send().await.unwrap();
    }
    sqs.receive_message().queue_url(&url).send().await.unwrap();
    let counts = sqs
        .get_queue_attributes()
        .queue_url(&url)
        .attribute_names(QueueAttributeName::All)
        .send()
        .await
        .unwrap();
    let counts = counts.attributes.unwrap();
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessages], "2");
    assert_eq!(counts[&QueueAttributeName::ApproximateNumberOfMessagesNotVisible], "1");
    sqs.purge_queue().queue_url(&url).send().await.unwrap();
    assert!(receive(&sqs, &url).await.is_empty());
    let again = sqs.purge_queue().queue_url(&url).send().await.unwrap_err();
    assert!(again.into_service_error().is_purge_queue_in_progress());
    let none = sqs.get_queue_url().queue_name("nothing").send().await.unwrap_err();
    assert!(none.into_service_error().is_queue_does_not_exist());
    let unknown = sqs
        .create_queue()
        .queue_name("q")
        .attributes(QueueAttributeName::from("Colour"), "red")
        .send()
        .await;
    assert!(unknown.unwrap_err().into_service_error().is_invalid_attribute_name());
}
