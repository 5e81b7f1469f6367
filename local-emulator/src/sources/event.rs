//! The events that functions are called with, in AWS's shapes.

use crate::template::SchedulePlan;
use aws_lambda_events::encodings::Base64Data;
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};
use base64::Engine as _;
use bytes::Bytes;
use md5::Digest as _;
use serde_json::json;
use sluice_memory::sqs::{Attribute, Delivered};
use std::collections::HashMap;

/// Where events say they come from.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Twelve digits.
    pub account: String,
    /// For example `us-east-1`.
    pub region: String,
}

/// Returns the event, as JSON, by which Lambda passes a batch of messages of a queue to a function,
/// in their order.
pub(super) fn of_batch(
    origin: &Origin,
    queue_arn: &str,
    batch: &[Delivered],
) -> Result<Bytes, serde_json::Error> {
    let mut event = SqsEvent::default();
    event.records = batch.iter().map(|delivered| record(origin, queue_arn, delivered)).collect();
    serde_json::to_vec(&event).map(Bytes::from)
}

/// Returns a message in the form of Lambda's events; on a queue whose ARN ends in `.fifo` with its
/// sequence number.
fn record(origin: &Origin, queue_arn: &str, delivered: &Delivered) -> SqsMessage {
    let message = &delivered.message;
    let mut attributes = HashMap::from([
        ("ApproximateReceiveCount".to_owned(), message.receives.to_string()),
        ("SentTimestamp".to_owned(), message.sent_ms.to_string()),
        ("SenderId".to_owned(), origin.account.clone()),
        (
            "ApproximateFirstReceiveTimestamp".to_owned(),
            message.first_received_ms.unwrap_or(message.sent_ms).to_string(),
        ),
    ]);
    if queue_arn.ends_with(".fifo") {
        attributes.insert("SequenceNumber".to_owned(), format!("{:020}", message.sequence));
    }
    let optional = [
        ("MessageGroupId", &message.group),
        ("MessageDeduplicationId", &message.dedup_id),
        ("DeadLetterQueueSourceArn", &message.dead_letter_source),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            attributes.insert(name.to_owned(), value.clone());
        }
    }
    let mut record = SqsMessage::default();
    record.message_id = Some(message.id.clone());
    record.receipt_handle = Some(delivered.receipt.clone());
    record.md5_of_body = Some(hex::encode(md5::Md5::digest(&message.body)));
    record.body = Some(message.body.clone());
    record.attributes = attributes;
    record.message_attributes =
        message.attributes.iter().map(|(name, value)| (name.clone(), attribute(value))).collect();
    record.event_source_arn = Some(queue_arn.to_owned());
    record.event_source = Some("aws:sqs".to_owned());
    record.aws_region = Some(origin.region.clone());
    record
}

/// Returns a message attribute in the form of Lambda's events: a type that begins with `Binary` as
/// bytes, any other as text.
fn attribute(from: &Attribute) -> SqsMessageAttribute {
    let mut attribute = SqsMessageAttribute::default();
    attribute.data_type = Some(from.data_type.clone());
    if from.data_type.starts_with("Binary") {
        let mut bytes = Base64Data::default();
        bytes.0.clone_from(&from.value);
        attribute.binary_value = Some(bytes);
    } else {
        attribute.string_value = Some(String::from_utf8_lossy(&from.value).into_owned());
    }
    attribute
}

/// Returns the event, as JSON, of a schedule that fires at `now`; its time is in whole seconds, and
/// each has an id of its own.
pub(super) fn of_schedule(origin: &Origin, schedule: &SchedulePlan, now: jiff::Timestamp) -> Bytes {
    let seconds = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
    // An id of its own for each firing, in the shape AWS gives it.
    let id = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!(
        "{}{}",
        schedule.rule_arn.len(),
        now.as_nanosecond()
    ));
    let event = json!({
        "version": "0",
        "id": id,
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": origin.account,
        "time": seconds.to_string(),
        "region": origin.region,
        "resources": [schedule.rule_arn],
        "detail": {},
    });
    Bytes::from(event.to_string())
}
