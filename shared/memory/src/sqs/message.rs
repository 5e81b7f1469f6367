//! Messages as they are sent, stored and delivered, and the checks of a sent message.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::limits;
use super::refusal::{Refusal, shortened};
use super::settings::{DedupScope, SqsQueueKind, SqsQueueSettings, within};

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMessage {
    /// The body, 1 byte to 1 MiB of XML characters.
    pub body: String,
    /// The sender's own attributes, at most 10.
    pub attributes: BTreeMap<String, Attribute>,
    /// The message group: needed on FIFO queues; on standard queues it makes delivery fair between
    /// groups.
    pub group: Option<String>,
    /// The deduplication id; FIFO only.
    pub dedup_id: Option<String>,
    /// Delay of this message; standard queues only.
    pub delay_seconds: Option<u32>,
}

/// One attribute that a sender puts on a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, optionally with `.` and a label of the sender's own.
    pub data_type: String,
    /// The value; text for `String` and `Number`.
    pub value: Vec<u8>,
}

/// A stored message. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The position in the queue; grows by one with each message.
    pub sequence: u64,
    /// Its id, shaped as a UUID, unique in the queue.
    pub id: String,
    /// The body.
    pub body: String,
    /// The sender's attributes.
    pub attributes: BTreeMap<String, Attribute>,
    /// The message group.
    pub group: Option<String>,
    /// The deduplication id, given or computed; FIFO only.
    pub dedup_id: Option<String>,
    /// When it was sent. A move to a FIFO dead letter queue resets the time, to a standard one it
    /// does not.
    pub sent_ms: u64,
    /// When it becomes visible.
    pub visible_at_ms: u64,
    /// How often it was received.
    pub receives: u32,
    /// When it was first received.
    pub first_received_ms: Option<u64>,
    /// When it was last received; a visibility time-out ends at most 12 hours later.
    pub last_received_ms: Option<u64>,
    /// The ARN of the queue it was moved from, for a dead letter.
    pub dead_letter_source: Option<String>,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The message, its counts already raised by this receive.
    pub message: Message,
    /// The handle to delete it or change its visibility, valid until the next receive of the
    /// message.
    pub receipt: String,
}

/// The answer to the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The message's id; of the earlier one for a duplicate.
    pub id: String,
    /// The position in the queue; of the earlier one for a duplicate.
    pub sequence: u64,
    /// Whether this message was dropped, because one with the same deduplication id was accepted
    /// within 5 minutes.
    pub duplicate: bool,
}

/// A remembered deduplication id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedup {
    /// Scope and id together.
    pub key: String,
    /// The id of the accepted message.
    pub id: String,
    /// Its sequence.
    pub sequence: u64,
    /// When it is forgotten, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

impl NewMessage {
    /// Returns a message with only a body.
    pub fn body(body: impl Into<String>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// Returns the message with a group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Returns the message with a deduplication id.
    #[must_use]
    pub fn dedup(mut self, id: impl Into<String>) -> Self {
        self.dedup_id = Some(id.into());
        self
    }

    /// Returns the message with a delay of its own.
    #[must_use]
    pub fn delay(mut self, seconds: u32) -> Self {
        self.delay_seconds = Some(seconds);
        self
    }

    /// Returns the size that SQS counts: body, and name, type and value of every attribute, in
    /// bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        self.body.len()
            + attributes
                .map(|(name, a)| name.len() + a.data_type.len() + a.value.len())
                .sum::<usize>()
    }

    /// Checks the message against the limits of SQS and the queue's settings: body, size,
    /// attributes, and what the queue's kind requires or forbids. Returns the first refusal.
    pub(super) fn check(&self, settings: &SqsQueueSettings) -> Result<(), Refusal> {
        if self.body.is_empty() {
            return Err(Refusal::MissingParameter { parameter: "MessageBody" });
        }
        if self.bytes() > settings.message_bytes_max {
            let reason = format!(
                "One or more parameters are invalid: must be shorter than {} bytes.",
                settings.message_bytes_max
            );
            return Err(Refusal::invalid(
                "MessageBody",
                format!("of {} bytes", self.bytes()),
                reason,
            ));
        }
        if !self.body.chars().all(is_carried) {
            return Err(Refusal::InvalidContents);
        }
        self.check_attributes()?;
        match settings.kind {
            SqsQueueKind::Standard => self.check_standard(),
            SqsQueueKind::Fifo { content_dedup, .. } => self.check_fifo(content_dedup),
        }
    }

    /// Checks what only standard queues require: no deduplication id, a valid group if there is
    /// one, and a delay of at most 900 seconds.
    fn check_standard(&self) -> Result<(), Refusal> {
        if let Some(id) = &self.dedup_id {
            return Err(Refusal::invalid("MessageDeduplicationId", id, WRONG_KIND));
        }
        if let Some(group) = &self.group {
            check_id("MessageGroupId", group)?;
        }
        self.delay_seconds
            .map_or(Ok(()), |delay| within("DelaySeconds", delay, 0, limits::DELAY_SECONDS_MAX))
    }

    /// Checks what only FIFO queues require: a valid group, no delay, and a valid deduplication id,
    /// which may only be missing if `content_dedup` is set.
    fn check_fifo(&self, content_dedup: bool) -> Result<(), Refusal> {
        // Also a delay of 0: the parameter itself is what a FIFO queue does not know.
        if let Some(delay) = self.delay_seconds {
            return Err(Refusal::invalid("DelaySeconds", delay, WRONG_KIND));
        }
        let Some(group) = &self.group else {
            return Err(Refusal::MissingParameter { parameter: "MessageGroupId" });
        };
        check_id("MessageGroupId", group)?;
        match &self.dedup_id {
            Some(id) => check_id("MessageDeduplicationId", id),
            None if content_dedup => Ok(()),
            None => Err(Refusal::invalid(
                "MessageDeduplicationId",
                "null",
                "The queue should either have ContentBasedDeduplication enabled or \
                 MessageDeduplicationId provided explicitly",
            )),
        }
    }

    /// Checks the number, names and types of attributes, and that their values are not empty.
    fn check_attributes(&self) -> Result<(), Refusal> {
        if self.attributes.len() > limits::ATTRIBUTES_MAX {
            let reason = "Number of message attributes exceeds the allowed maximum [10].";
            return Err(Refusal::invalid("MessageAttributes", self.attributes.len(), reason));
        }
        for (name, attribute) in &self.attributes {
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let lower = name.to_ascii_lowercase();
            let reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
            let dotted = name.starts_with('.') || name.ends_with('.') || name.contains("..");
            if name.is_empty() || name.len() > 256 || !name.chars().all(legal) || reserved || dotted
            {
                return Err(Refusal::invalid(
                    "MessageAttributes",
                    name,
                    "The message attribute name is invalid.",
                ));
            }
            let base = attribute.data_type.split('.').next().unwrap_or_default();
            if !matches!(base, "String" | "Number" | "Binary") {
                let reason = "The message attribute type must be String, Number or Binary, with \
                              an optional label.";
                return Err(Refusal::invalid("MessageAttributes", &attribute.data_type, reason));
            }
            if attribute.value.is_empty() {
                return Err(Refusal::invalid(
                    "MessageAttributes",
                    name,
                    "The message attribute value must not be empty.",
                ));
            }
        }
        Ok(())
    }

    /// Returns two texts: the key under which the message is remembered, and its deduplication id.
    /// The id is the given one, or the SHA-256 of the body. The key is the id, with the group
    /// before it if ids are compared within a group only. `None` on a standard queue.
    pub(super) fn dedup_key(&self, kind: SqsQueueKind) -> Option<(String, String)> {
        let SqsQueueKind::Fifo { dedup_scope, .. } = kind else {
            return None;
        };
        let id = match &self.dedup_id {
            Some(id) => id.clone(),
            None => hex::encode(Sha256::digest(self.body.as_bytes())),
        };
        let key = match dedup_scope {
            DedupScope::Queue => id.clone(),
            // A group id has no line feed, so two pairs never make one key.
            DedupScope::MessageGroup => {
                format!("{}\n{id}", self.group.as_deref().unwrap_or_default())
            }
        };
        Some((key, id))
    }
}

const WRONG_KIND: &str = "The request include parameter that is not valid for this queue type.";

/// Returns whether SQS accepts a character in a body.
fn is_carried(c: char) -> bool {
    matches!(c, '\u{9}' | '\u{a}' | '\u{d}' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// Checks a group or deduplication id: 1 to 128 printable ASCII characters without spaces.
/// `parameter` names it in the refusal.
fn check_id(parameter: &'static str, id: &str) -> Result<(), Refusal> {
    if !id.is_empty()
        && id.len() <= limits::GROUP_ID_CHARS_MAX
        && id.chars().all(|c| c.is_ascii_graphic())
    {
        return Ok(());
    }
    let reason = "Can only include alphanumeric and punctuation characters. 1 to 128 in length.";
    Err(Refusal::invalid(parameter, shortened(id), reason))
}

/// Returns the id of the message at `sequence` of `queue` that was sent at `sent_ms`, shaped as a
/// UUID; equal arguments give the same id.
pub(super) fn message_id(queue: &str, sequence: u64, sent_ms: u64) -> String {
    let digest =
        hex::encode(Sha256::digest(format!("message\n{queue}\n{sequence}\n{sent_ms}").as_bytes()));
    format!(
        "{}-{}-4{}-8{}-{}",
        &digest[..8],
        &digest[8..12],
        &digest[13..16],
        &digest[17..20],
        &digest[20..32]
    )
}

/// Returns the receipt handle of one receive: sequence, receive count, and a digest that makes
/// handles of other queues and invented ones invalid.
pub(super) fn receipt(queue: &str, sequence: u64, receives: u32) -> String {
    let digest = Sha256::digest(format!("receipt\n{queue}\n{sequence}\n{receives}").as_bytes());
    format!("{sequence}-{receives}-{}", hex::encode(&digest[..12]))
}

/// Returns sequence and receive count of a handle that [`receipt`] made for `queue`; any other
/// handle is refused. Whether the message still exists is not checked.
pub(super) fn parse_receipt(queue: &str, handle: &str) -> Result<(u64, u32), Refusal> {
    let invalid = || Refusal::ReceiptInvalid { receipt: shortened(handle) };
    let mut parts = handle.splitn(3, '-');
    let sequence = parts.next().and_then(|p| p.parse().ok()).ok_or_else(invalid)?;
    let receives = parts.next().and_then(|p| p.parse().ok()).ok_or_else(invalid)?;
    if receipt(queue, sequence, receives) == handle {
        Ok((sequence, receives))
    } else {
        Err(invalid())
    }
}
