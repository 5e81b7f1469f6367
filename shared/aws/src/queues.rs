//! The message queues on SQS: batches of ten, groups and fresh deduplication ids on FIFO queues.

use crate::endpoint::DataService;
use crate::failure::{failed, is_throttling};
use crate::limits;
use crate::settings::{AwsSettings, GroupsOnStandardQueues};
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName,
    SendMessageBatchRequestEntry,
};
use sha2::{Digest, Sha256};
use sluice_model::wakeup::MessageQueue;
use sluice_runtime::port::{Incoming, Outgoing};
use sluice_runtime::{Entropy, PortError, Queues};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages in one request.
const BATCH_MAX: usize = 10;
/// Bytes of bodies in one request: what even endpoints with the older limit of 256 KiB take.
const BATCH_BYTES_MAX: usize = 240 * 1024;
/// Longest wait of one poll.
const WAIT_SECONDS_MAX: u32 = 20;
/// Longest delay of a message.
const DELAY_SECONDS_MAX: u32 = 900;
/// Characters of a message group.
const GROUP_CHARS_MAX: usize = 128;
/// What the code of a refused parameter begins with.
const INVALID_PARAMETER: &str = "InvalidParameterValue";
/// How the text of a refusal names the group.
const GROUP_PARAMETER: &str = "MessageGroupId";

pub(crate) struct SqsQueues {
    client: Client,
    urls: BTreeMap<MessageQueue, String>,
    /// Whether groups are left out on standard queues: by the settings, or because the endpoint
    /// refused one.
    groups_left_out: AtomicBool,
    entropy: Arc<dyn Entropy>,
}

/// Whether this process has warned that an endpoint refuses groups.
static GROUPS_WARNED: AtomicBool = AtomicBool::new(false);

impl SqsQueues {
    /// Creates the port onto the message queues that `settings` name; makes no requests. `entropy`
    /// draws the ids by which SQS recognises repeated requests.
    pub(crate) fn new(
        sdk_config: &SdkConfig,
        settings: &AwsSettings,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        let config = aws_sdk_sqs::config::Builder::from(sdk_config)
            .retry_config(limits::retries())
            .timeout_config(limits::timeouts());
        Self {
            client: Client::from_conf(config.build()),
            urls: settings.queue_urls.clone(),
            groups_left_out: AtomicBool::new(
                settings.groups_on_standard_queues == GroupsOnStandardQueues::LeftOut,
            ),
            entropy,
        }
    }

    /// Returns the URL of a queue. An error if the settings lack it; `attempt` begins its text.
    fn url(&self, queue: MessageQueue, attempt: &str) -> Result<&str, PortError> {
        self.urls.get(&queue).map(String::as_str).ok_or_else(|| {
            let why = format!("its URL is not configured; set {}", queue.variable());
            PortError::unknown(format!("{attempt} {queue:?}"), why)
        })
    }

    /// Returns an entry of a batch in the SDK's form; `place` is its position in the batch. On a
    /// FIFO queue it gets a fresh deduplication id, its delay is ignored, and the message must have
    /// a group, which is not checked. On a standard queue its delay is at most 900 seconds, and the
    /// group is left out if the settings say so or the endpoint refused one before.
    fn entry(
        &self,
        queue: MessageQueue,
        place: usize,
        message: Outgoing,
    ) -> Result<SendMessageBatchRequestEntry, PortError> {
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(place.to_string())
            .message_body(message.body);
        let group = message.group.map(group_id);
        if queue.is_fifo() {
            // Each message has its own deduplication id, drawn before the SDK's retries. So a retry
            // is dropped as a duplicate, and a second message with the same text is not.
            entry =
                entry.set_message_group_id(group).message_deduplication_id(self.entropy.token());
        } else {
            if !self.groups_left_out.load(Ordering::Relaxed) {
                entry = entry.set_message_group_id(group);
            }
            let delay = message.delay_seconds.min(DELAY_SECONDS_MAX);
            if delay > 0 {
                entry = entry.delay_seconds(i32::try_from(delay).unwrap_or(i32::MAX));
            }
        }
        entry.build().map_err(|error| PortError::unknown(format!("send to {queue:?}"), error))
    }

    /// Sends one batch, of at most 10 messages, and returns what was refused of it; the ids there
    /// are positions in the batch. An error if the whole request failed.
    async fn send_batch(
        &self,
        queue: MessageQueue,
        url: &str,
        batch: Vec<Outgoing>,
    ) -> Result<Vec<BatchResultErrorEntry>, PortError> {
        let entries = batch
            .into_iter()
            .enumerate()
            .map(|(place, message)| self.entry(queue, place, message))
            .collect::<Result<Vec<_>, _>>()?;
        let call = self.client.send_message_batch().queue_url(url).set_entries(Some(entries));
        let answer = call.send().await;
        let answer = answer
            .map_err(|error| failed(DataService::Sqs, format!("send to {queue:?}"), error))?;
        Ok(answer.failed)
    }

    /// Leaves groups out on standard queues from now on. The first time in this process it logs a
    /// warning with the reason of a refusal.
    fn leave_groups_out(&self, queue: MessageQueue, refused: &BatchResultErrorEntry) {
        self.groups_left_out.store(true, Ordering::Relaxed);
        if !GROUPS_WARNED.swap(true, Ordering::Relaxed) {
            let reason = refused.message.as_deref().unwrap_or(&refused.code);
            tracing::warn!(
                ?queue,
                reason,
                "SQS refuses message groups on standard queues at this endpoint: messages are sent there without one, and a tenant with many of them delays the others"
            );
        }
    }
}

#[async_trait]
impl Queues for SqsQueues {
    /// Sends messages in their order, in batches; without messages, sends nothing. An error, also
    /// for a single refused message, ends it: messages of earlier batches were sent, and any of
    /// this batch may have been. A queue whose URL is not configured is an error, also without
    /// messages. Messages of a standard queue that are refused for their group are sent again
    /// without one, and so is everything after them.
    async fn send(&self, queue: MessageQueue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        let url = self.url(queue, "send to")?;
        for batch in batches(messages) {
            let mut refused = self.send_batch(queue, url, batch.clone()).await?;
            if !queue.is_fifo()
                && let Some(first) = refused.iter().find(|entry| refuses_group(entry))
            {
                self.leave_groups_out(queue, first);
                let (of_groups, others): (Vec<_>, Vec<_>) =
                    refused.into_iter().partition(refuses_group);
                // Only these: the others of the batch were sent.
                let again = of_groups.iter().filter_map(|entry| {
                    let place: usize = entry.id.parse().ok()?;
                    batch.get(place).cloned()
                });
                refused = self.send_batch(queue, url, again.collect()).await?;
                refused.extend(others);
            }
            if let Some(refused) = some_refused(format!("send to {queue:?}"), &refused) {
                return Err(refused);
            }
        }
        Ok(())
    }

    /// Receives up to `max` messages (at least 1, at most 10) and waits up to `wait_seconds` (at
    /// most 20) for the first one; none after that is no error. They are hidden from other
    /// receivers for `visibility_seconds`. If one lacks a field, the whole call is an error.
    async fn receive(
        &self,
        queue: MessageQueue,
        max: u32,
        wait_seconds: u32,
        visibility_seconds: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        let attempt = || format!("receive from {queue:?}");
        let wait_seconds = wait_seconds.min(WAIT_SECONDS_MAX);
        let max = max.clamp(1, BATCH_MAX as u32);
        let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        let mut poll = self
            .client
            .receive_message()
            .queue_url(self.url(queue, "receive from")?)
            .max_number_of_messages(number(max))
            .wait_time_seconds(number(wait_seconds))
            .visibility_timeout(number(visibility_seconds))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId);
        if queue.is_fifo() {
            // A retry of the SDK after a lost answer gets the same messages again instead of
            // waiting for them.
            poll = poll.receive_request_attempt_id(self.entropy.token());
        }
        let limits = aws_sdk_sqs::config::Builder::new()
            .timeout_config(limits::timeouts_waiting(wait_seconds));
        let answer = poll.customize().config_override(limits).send().await;
        answer
            .map_err(|error| failed(DataService::Sqs, attempt(), error))?
            .messages
            .unwrap_or_default()
            .into_iter()
            .map(|message| {
                incoming(message).ok_or_else(|| {
                    PortError::unknown(attempt(), "a message has no id, body or receipt")
                })
            })
            .collect()
    }

    /// Removes a received message for good, by the receipt of this delivery. An error if the
    /// service refuses the receipt.
    async fn acknowledge(&self, queue: MessageQueue, receipt: &str) -> Result<(), PortError> {
        self.client
            .delete_message()
            .queue_url(self.url(queue, "acknowledge in")?)
            .receipt_handle(receipt)
            .send()
            .await
            .map(drop)
            .map_err(|error| failed(DataService::Sqs, format!("acknowledge in {queue:?}"), error))
    }

    /// Removes received messages for good, ten in a request. A refused receipt does not prevent the
    /// removal of the others, and is an error at the end. A request that fails ends the call; later
    /// receipts are then not removed.
    async fn acknowledge_all(
        &self,
        queue: MessageQueue,
        receipts: &[String],
    ) -> Result<(), PortError> {
        let attempt = || format!("acknowledge in {queue:?}");
        let url = self.url(queue, "acknowledge in")?;
        let mut refused = None;
        for batch in receipts.chunks(BATCH_MAX) {
            let entries = batch.iter().enumerate().map(|(place, receipt)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(place.to_string())
                    .receipt_handle(receipt)
                    .build()
            });
            let entries = entries
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| PortError::unknown(attempt(), error))?;
            let call = self.client.delete_message_batch().queue_url(url).set_entries(Some(entries));
            let answer =
                call.send().await.map_err(|error| failed(DataService::Sqs, attempt(), error))?;
            refused = refused.or_else(|| some_refused(attempt(), &answer.failed));
        }
        refused.map_or(Ok(()), Err)
    }

    /// Makes a received message visible again `seconds` from now.
    async fn postpone(
        &self,
        queue: MessageQueue,
        receipt: &str,
        seconds: u32,
    ) -> Result<(), PortError> {
        self.client
            .change_message_visibility()
            .queue_url(self.url(queue, "postpone in")?)
            .receipt_handle(receipt)
            .visibility_timeout(i32::try_from(seconds).unwrap_or(i32::MAX))
            .send()
            .await
            .map(drop)
            .map_err(|error| failed(DataService::Sqs, format!("postpone in {queue:?}"), error))
    }
}

/// Converts a received message; `None` if it lacks id, body, receipt or a valid receive count.
fn incoming(message: Message) -> Option<Incoming> {
    let attributes = message.attributes.unwrap_or_default();
    let group = attributes.get(&MessageSystemAttributeName::MessageGroupId);
    let count = attributes.get(&MessageSystemAttributeName::ApproximateReceiveCount)?;
    Some(Incoming {
        id: message.message_id?,
        body: message.body?,
        receipt: message.receipt_handle?,
        group: group.cloned(),
        receive_count: count.parse().ok()?,
    })
}

/// Returns the messages in their order, in batches of at most 10 messages and 240 KiB. A larger
/// message is a batch of its own.
fn batches(messages: Vec<Outgoing>) -> Vec<Vec<Outgoing>> {
    let mut batches: Vec<Vec<Outgoing>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        bytes += message.body.len();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_MAX && bytes <= BATCH_BYTES_MAX => {
                batch.push(message);
            }
            _ => {
                bytes = message.body.len();
                batches.push(vec![message]);
            }
        }
    }
    batches
}

/// Returns a message group in SQS's form: unchanged, or as its SHA-256 if it is empty, too long or
/// has invalid characters.
fn group_id(group: String) -> String {
    let allowed = !group.is_empty()
        && group.len() <= GROUP_CHARS_MAX
        && group.bytes().all(|byte| byte.is_ascii_graphic());
    if allowed { group } else { hex::encode(Sha256::digest(group)) }
}

/// Returns whether a message was refused because it has a group.
fn refuses_group(refused: &BatchResultErrorEntry) -> bool {
    let message = refused.message.as_deref().unwrap_or_default();
    refused.code.starts_with(INVALID_PARAMETER) && message.contains(GROUP_PARAMETER)
}

/// Returns the error of a batch with refused messages, which says how many there are and why the
/// first was refused; `None` when all were accepted. It counts as throttled if the reason of the
/// first asks to slow down.
fn some_refused(attempt: String, refused: &[BatchResultErrorEntry]) -> Option<PortError> {
    let first = refused.first()?;
    Some(PortError {
        attempt,
        why: format!(
            "SQS refused {} messages of a batch, the first with {}: {}",
            refused.len(),
            first.code,
            first.message.as_deref().unwrap_or("no message")
        ),
        throttled: is_throttling(&first.code),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Outgoing {
        Outgoing { body: "x".repeat(bytes), group: None, delay_seconds: 0 }
    }

    #[test]
    fn a_batch_has_at_most_ten_messages_and_a_limited_size() {
        let sizes = |messages: Vec<Outgoing>| -> Vec<usize> {
            batches(messages).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes((0..25).map(|_| message(1)).collect()), [10, 10, 5]);
        let heavy = vec![message(BATCH_BYTES_MAX), message(1), message(2)];
        assert_eq!(sizes(heavy), [1, 2]);
        assert!(sizes(Vec::new()).is_empty());
    }

    #[test]
    fn a_group_that_sqs_refuses_is_replaced_by_a_digest() {
        assert_eq!(group_id("tenant/gate/a b".into()).len(), 64);
        assert_eq!(group_id("ü".repeat(20)).len(), 64);
        assert_eq!(group_id("g".repeat(129)).len(), 64);
        assert_eq!(group_id("tenant/gate".into()), "tenant/gate");
    }
}
