//! The rules of Amazon SQS as a pure state machine: no I/O, no clock, no randomness of its own.
//!
//! `now_ms` (milliseconds since the Unix epoch) is an argument everywhere. What SQS leaves open,
//! such as the order of a standard queue or a second delivery, is decided by an injected
//! [`Chooser`]. The simulator's queue port and the emulator's SQS service use these rules.
//! Documented limits of AWS are enforced; where AWS leaves a choice, the harsher one is taken.
//!
//! - [`Queue`] is one queue; [`queue`](self::queue) describes each operation.
//! - [`SqsQueueSettings`] are its attributes, checked once by [`SqsQueueSettings::check`].
//! - [`Message`] is a stored message, [`Delivered`] what a receiver gets.
//! - [`Refusal`] is every error of SQS, with AWS's own code.

mod choose;
mod message;
mod queue;
mod refusal;
mod settings;

#[cfg(test)]
mod fifo_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod standard_tests;

pub use choose::{Chooser, Oldest, Seeded};
pub use message::{Attribute, Dedup, Delivered, Message, NewMessage, Sent};
pub use queue::{Changes, Counts, Deletion, Poll, Queue, Received};
pub use refusal::Refusal;
pub use settings::{DedupScope, Redrive, SqsQueueKind, SqsQueueSettings, Throughput};

/// Documented limits of SQS. Times in seconds or milliseconds as the name says, sizes in bytes.
/// Source: Amazon SQS Developer Guide, "Amazon SQS message quotas" and "FIFO queue quotas".
pub mod limits {
    /// Largest message, body and attributes together; also the largest sum over one batch.
    pub const MESSAGE_BYTES_MAX: usize = 1_048_576;
    /// Most messages in one batch request and in one receive.
    pub const BATCH_MAX: usize = 10;
    /// Longest delay before a message is first visible.
    pub const DELAY_SECONDS_MAX: u32 = 900;
    /// Longest a message may stay invisible after one receive.
    pub const VISIBILITY_SECONDS_MAX: u32 = 43_200;
    /// Longest long poll.
    pub const WAIT_SECONDS_MAX: u32 = 20;
    /// How long a deduplication id is remembered.
    pub const DEDUP_MILLISECONDS: u64 = 300_000;
    /// Most messages in flight at once.
    pub const IN_FLIGHT_MAX: usize = 120_000;
    /// How many messages of a FIFO queue are searched for a free group.
    pub const GROUP_SEARCH_MAX: usize = 120_000;
    /// Longest message group id, deduplication id and batch entry id (the latter 80).
    pub const GROUP_ID_CHARS_MAX: usize = 128;
    /// Longest name of a queue, `.fifo` included.
    pub const QUEUE_NAME_CHARS_MAX: usize = 80;
    /// Most user attributes on one message.
    pub const ATTRIBUTES_MAX: usize = 10;
    /// Shortest and longest retention.
    pub const RETENTION_SECONDS: (u32, u32) = (60, 1_209_600);
}
