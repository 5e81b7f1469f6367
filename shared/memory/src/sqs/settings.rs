//! A queue's attributes and the limits AWS sets on them.

use serde::{Deserialize, Serialize};

use super::limits;
use super::refusal::Refusal;

/// The attributes of one queue, with AWS's defaults in [`SqsQueueSettings::standard`] and
/// [`SqsQueueSettings::fifo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqsQueueSettings {
    /// Standard or FIFO.
    pub kind: SqsQueueKind,
    /// How long a received message stays invisible when the receiver does not say.
    pub visibility_seconds: u32,
    /// How long a new message stays invisible when the sender does not say.
    pub delay_seconds: u32,
    /// After how long a message is thrown away.
    pub retention_seconds: u32,
    /// Largest message of this queue, body and attributes together.
    pub message_bytes_max: usize,
    /// How long a receive waits when the receiver does not say.
    pub wait_seconds: u32,
    /// Where messages go that were received too often.
    pub redrive: Option<Redrive>,
}

/// Standard or FIFO, with what only that kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SqsQueueKind {
    /// At least once, any order; a message group id is allowed and makes the queue fair between
    /// groups.
    Standard,
    /// In order within a message group, with deduplication.
    Fifo {
        /// Whether the SHA-256 of the body replaces a missing deduplication id.
        content_dedup: bool,
        /// Among which messages deduplication ids are compared.
        dedup_scope: DedupScope,
        /// What the throughput quota counts.
        throughput: Throughput,
    },
}

/// Among which messages deduplication ids are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DedupScope {
    /// All messages of the queue.
    Queue,
    /// The messages of one group.
    MessageGroup,
}

/// What a FIFO queue's throughput quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Throughput {
    /// The whole queue.
    PerQueue,
    /// Each group by itself: high throughput; needs [`DedupScope::MessageGroup`].
    PerMessageGroupId,
}

/// Where messages go that were received too often, and after how many receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive {
    /// The ARN of the dead letter queue.
    pub dead_letter_arn: String,
    /// A message received this often is moved when it would be received once more; 1 to 1000.
    pub receives_max: u32,
}

impl SqsQueueSettings {
    /// Returns the settings of a standard queue with AWS's defaults, without dead letters.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            kind: SqsQueueKind::Standard,
            visibility_seconds: 30,
            delay_seconds: 0,
            retention_seconds: 345_600,
            message_bytes_max: limits::MESSAGE_BYTES_MAX,
            wait_seconds: 0,
            redrive: None,
        }
    }

    /// Returns the settings of Sluice's FIFO queues: high throughput, deduplication by id within a
    /// group, otherwise AWS's defaults.
    #[must_use]
    pub fn fifo() -> Self {
        let kind = SqsQueueKind::Fifo {
            content_dedup: false,
            dedup_scope: DedupScope::MessageGroup,
            throughput: Throughput::PerMessageGroupId,
        };
        Self { kind, ..Self::standard() }
    }

    /// Returns the settings with a dead letter queue, to which a message goes that would be
    /// received more than `receives_max` times.
    #[must_use]
    pub fn with_redrive(mut self, dead_letter_arn: impl Into<String>, receives_max: u32) -> Self {
        self.redrive = Some(Redrive { dead_letter_arn: dead_letter_arn.into(), receives_max });
        self
    }

    /// Returns whether the queue is FIFO.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        matches!(self.kind, SqsQueueKind::Fifo { .. })
    }

    /// Checks name and attributes against AWS's limits and returns the first refusal. The name of a
    /// FIFO queue, and only it, ends in `.fifo`; a dead letter queue must be of the same kind.
    ///
    /// # Errors
    /// The first [`Refusal`] that AWS would answer.
    pub fn check(&self, name: &str) -> Result<(), Refusal> {
        check_name(name, self.is_fifo())?;
        within("VisibilityTimeout", self.visibility_seconds, 0, limits::VISIBILITY_SECONDS_MAX)?;
        within("DelaySeconds", self.delay_seconds, 0, limits::DELAY_SECONDS_MAX)?;
        let (shortest, longest) = limits::RETENTION_SECONDS;
        within("MessageRetentionPeriod", self.retention_seconds, shortest, longest)?;
        within("ReceiveMessageWaitTimeSeconds", self.wait_seconds, 0, limits::WAIT_SECONDS_MAX)?;
        if !(1024..=limits::MESSAGE_BYTES_MAX).contains(&self.message_bytes_max) {
            return Err(Refusal::invalid(
                "MaximumMessageSize",
                self.message_bytes_max,
                "Must be between 1024 and 1048576.",
            ));
        }
        if let Some(redrive) = &self.redrive {
            within("maxReceiveCount", redrive.receives_max, 1, 1000)?;
            if redrive.dead_letter_arn.ends_with(".fifo") != self.is_fifo() {
                return Err(Refusal::invalid(
                    "RedrivePolicy",
                    &redrive.dead_letter_arn,
                    "The dead letter queue must be of the same type as its source.",
                ));
            }
        }
        match self.kind {
            SqsQueueKind::Fifo {
                dedup_scope: DedupScope::Queue,
                throughput: Throughput::PerMessageGroupId,
                ..
            } => Err(Refusal::invalid(
                "FifoThroughputLimit",
                "perMessageGroupId",
                "Can be set to perMessageGroupId only when DeduplicationScope is messageGroup.",
            )),
            SqsQueueKind::Fifo { .. } | SqsQueueKind::Standard => Ok(()),
        }
    }
}

/// Refuses `value` outside `least..=most`; `parameter` names it in the refusal.
pub(super) fn within(
    parameter: &'static str,
    value: u32,
    least: u32,
    most: u32,
) -> Result<(), Refusal> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Refusal::invalid(parameter, value, format!("Must be between {least} and {most}.")))
}

/// Checks the name of a queue: 1 to 80 letters, digits, `-` and `_`, with `.fifo` at the end if
/// `fifo` is set, and only then.
fn check_name(name: &str, fifo: bool) -> Result<(), Refusal> {
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if stem.is_empty() || name.len() > limits::QUEUE_NAME_CHARS_MAX || !stem.chars().all(legal) {
        let reason =
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.";
        return Err(Refusal::invalid("QueueName", name, reason));
    }
    if name.ends_with(".fifo") != fifo {
        let reason = "The name of a FIFO queue, and of no other, ends in .fifo.";
        return Err(Refusal::invalid("QueueName", name, reason));
    }
    Ok(())
}
