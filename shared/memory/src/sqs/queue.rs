//! One queue: send, receive, delete, change visibility, and what is remembered between them.
//!
//! A message is *visible* from `visible_at_ms` on, *in flight* when it was received and is not
//! visible, *delayed* when it was never received and is not visible. A FIFO group with a message in
//! flight gives nothing until every such message is deleted or visible again, so two receivers
//! never hold parts of one group.

mod index;
mod receive;

use std::collections::{BTreeMap, BTreeSet};

use super::choose::Chooser;
use super::limits;
use super::message::{Dedup, Delivered, Message, NewMessage, Sent, message_id, parse_receipt};
use super::refusal::{Refusal, shortened};
use super::settings::{SqsQueueSettings, within};

/// One queue. Every method first drops what is past its retention.
#[derive(Clone, Debug)]
pub struct Queue {
    name: String,
    settings: SqsQueueSettings,
    next_sequence: u64,
    messages: BTreeMap<u64, Message>,
    /// (visible from, sequence) of every message.
    by_time: BTreeSet<(u64, u64)>,
    /// (sent, sequence) of every message.
    by_age: BTreeSet<(u64, u64)>,
    /// Per group (rank, sequence): the rank is 0 on FIFO queues, so that sequence alone orders,
    /// else visible from.
    groups: BTreeMap<Option<String>, BTreeSet<(u64, u64)>>,
    dedups: BTreeMap<String, Dedup>,
    dedups_by_end: BTreeSet<(u64, String)>,
    journal: Option<Journal>,
}

#[derive(Clone, Debug, Default)]
struct Journal {
    messages: BTreeSet<u64>,
    dedups: BTreeSet<String>,
}

/// The parameters of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Most messages to return, 1 to 10.
    pub max: usize,
    /// How long they stay invisible; the queue's own time-out when absent.
    pub visibility_seconds: Option<u32>,
}

/// The result of a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The messages, in order within a FIFO group.
    pub messages: Vec<Delivered>,
    /// Messages received too often: taken out of this queue, for the caller to hand to
    /// [`Queue::accept_dead`] of the dead letter queue.
    pub dead: Vec<Message>,
}

/// The result of a delete. AWS reports success for all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The message is gone.
    Deleted,
    /// The message was received again since: this handle deletes nothing.
    Stale,
    /// There was no such message any more.
    Gone,
}

/// The number of messages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that may be received (`ApproximateNumberOfMessages`).
    pub visible: usize,
    /// Messages received and not visible (`ApproximateNumberOfMessagesNotVisible`).
    pub in_flight: usize,
    /// Messages not yet visible for the first time (`ApproximateNumberOfMessagesDelayed`).
    pub delayed: usize,
}

/// What a store must write: everything that changed since the last [`Queue::take_changes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The sequence that the next message gets.
    pub next_sequence: u64,
    /// Messages that are new or different.
    pub written: Vec<Message>,
    /// Sequences of messages that are gone.
    pub removed: Vec<u64>,
    /// Deduplication ids that are new.
    pub remembered: Vec<Dedup>,
    /// Keys of deduplication ids that are forgotten.
    pub forgotten: Vec<String>,
}

impl Changes {
    /// Returns whether there is nothing to write. The next sequence alone does not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
            && self.removed.is_empty()
            && self.remembered.is_empty()
            && self.forgotten.is_empty()
    }
}

impl Queue {
    /// Returns an empty queue, which does not record its [`Changes`]. Refuses a name or setting
    /// outside AWS's limits.
    ///
    /// # Errors
    /// The [`Refusal`] of a name or setting outside AWS's limits.
    pub fn new(name: impl Into<String>, settings: SqsQueueSettings) -> Result<Self, Refusal> {
        let name = name.into();
        settings.check(&name)?;
        Ok(Self {
            name,
            settings,
            next_sequence: 1,
            messages: BTreeMap::new(),
            by_time: BTreeSet::new(),
            by_age: BTreeSet::new(),
            groups: BTreeMap::new(),
            dedups: BTreeMap::new(),
            dedups_by_end: BTreeSet::new(),
            journal: None,
        })
    }

    /// Returns a queue restored from a store; `next_sequence` is raised above the sequences of the
    /// messages if necessary. It records its [`Changes`] from now on. Refuses a name or setting
    /// outside AWS's limits.
    ///
    /// # Errors
    /// The [`Refusal`] of a name or setting outside AWS's limits.
    pub fn restore(
        name: impl Into<String>,
        settings: SqsQueueSettings,
        next_sequence: u64,
        messages: Vec<Message>,
        dedups: Vec<Dedup>,
    ) -> Result<Self, Refusal> {
        let mut queue = Self::new(name, settings)?;
        queue.next_sequence = next_sequence.max(1);
        for message in messages {
            queue.next_sequence = queue.next_sequence.max(message.sequence + 1);
            queue.insert(message);
        }
        for dedup in dedups {
            queue.remember(dedup);
        }
        queue.journal = Some(Journal::default());
        Ok(queue)
    }

    /// Returns the queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the queue's attributes.
    #[must_use]
    pub fn settings(&self) -> &SqsQueueSettings {
        &self.settings
    }

    /// Replaces the queue's attributes; stored messages keep their times. Refuses a setting outside
    /// AWS's limits, and another kind; nothing is changed then.
    ///
    /// # Errors
    /// The [`Refusal`] of a setting outside AWS's limits, or of another kind.
    pub fn set_settings(&mut self, settings: SqsQueueSettings) -> Result<(), Refusal> {
        settings.check(&self.name)?;
        self.settings = settings;
        Ok(())
    }

    /// Accepts a message, which is visible after its own delay or else the queue's. A FIFO queue
    /// drops a message whose deduplication id it accepted in the last five minutes, and answers
    /// with the earlier message: that is no refusal. Refuses a message that the queue's kind or
    /// limits do not allow; nothing is stored then.
    ///
    /// # Errors
    /// The [`Refusal`] of a message that the queue's kind or limits do not allow; nothing is stored
    /// then.
    pub fn send(&mut self, new: NewMessage, now_ms: u64) -> Result<Sent, Refusal> {
        new.check(&self.settings)?;
        self.expire(now_ms);
        let dedup = new.dedup_key(self.settings.kind);
        if let Some((key, _)) = &dedup
            && let Some(earlier) = self.dedups.get(key)
        {
            return Ok(Sent {
                id: earlier.id.clone(),
                sequence: earlier.sequence,
                duplicate: true,
            });
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let id = message_id(&self.name, sequence, now_ms);
        let delay_seconds = new.delay_seconds.unwrap_or(self.settings.delay_seconds);
        let dedup_id = dedup.as_ref().map(|(_, dedup_id)| dedup_id.clone());
        if let Some((key, _)) = dedup {
            let until_ms = now_ms.saturating_add(limits::DEDUP_MILLISECONDS);
            self.remember(Dedup { key, id: id.clone(), sequence, until_ms });
        }
        self.insert(Message {
            sequence,
            id: id.clone(),
            body: new.body,
            attributes: new.attributes,
            group: new.group,
            dedup_id,
            sent_ms: now_ms,
            visible_at_ms: after_seconds(now_ms, delay_seconds),
            receives: 0,
            first_received_ms: None,
            last_received_ms: None,
            dead_letter_source: None,
        });
        Ok(Sent { id, sequence, duplicate: false })
    }

    /// Accepts a dead letter that was removed from the queue `source_arn`, with a new sequence and
    /// visible at once; its receive count stays. Its age continues in a standard queue and restarts
    /// in a FIFO queue.
    pub fn accept_dead(&mut self, mut message: Message, source_arn: &str, now_ms: u64) {
        self.expire(now_ms);
        message.sequence = self.next_sequence;
        self.next_sequence += 1;
        if self.settings.is_fifo() {
            message.sent_ms = now_ms;
        }
        message.visible_at_ms = now_ms;
        message.last_received_ms = None;
        message.dead_letter_source = Some(source_arn.to_owned());
        self.insert(message);
    }

    /// Receives up to `poll.max` messages without waiting; each is invisible from now for its
    /// visibility time-out, unless `chooser` leaves one visible on a standard queue. Messages that
    /// were received too often are removed from the queue and returned as dead letters instead; the
    /// caller hands them to [`Self::accept_dead`] of the other queue. With 120,000 messages in
    /// flight a standard queue refuses, and a FIFO queue gives nothing. Refuses a poll outside
    /// AWS's limits.
    ///
    /// # Errors
    /// A [`Refusal`] of a poll outside AWS's limits, or [`Refusal::OverLimit`] on a standard queue
    /// with 120,000 messages in flight (a FIFO queue gives nothing then).
    pub fn receive(
        &mut self,
        poll: Poll,
        now_ms: u64,
        chooser: &mut dyn Chooser,
    ) -> Result<Received, Refusal> {
        if !(1..=limits::BATCH_MAX).contains(&poll.max) {
            let reason = "Must be between 1 and 10, if provided.";
            return Err(Refusal::invalid("MaxNumberOfMessages", poll.max, reason));
        }
        let visibility_seconds =
            poll.visibility_seconds.unwrap_or(self.settings.visibility_seconds);
        within("VisibilityTimeout", visibility_seconds, 0, limits::VISIBILITY_SECONDS_MAX)?;
        self.expire(now_ms);
        let mut received = Received::default();
        if self.messages.len() >= limits::IN_FLIGHT_MAX {
            let in_flight = self.counts(now_ms).in_flight;
            if in_flight >= limits::IN_FLIGHT_MAX {
                return if self.settings.is_fifo() {
                    Ok(received)
                } else {
                    Err(Refusal::OverLimit { in_flight })
                };
            }
        }
        let until_ms = after_seconds(now_ms, visibility_seconds);
        if self.settings.is_fifo() {
            self.receive_fifo(poll.max, now_ms, until_ms, chooser, &mut received);
        } else {
            self.receive_standard(poll.max, now_ms, until_ms, chooser, &mut received);
        }
        Ok(received)
    }

    /// Deletes the message of `handle`. A message that is gone is no refusal, nor, on a standard
    /// queue, one that was received again, which stays. A FIFO queue refuses a handle after its
    /// visibility timeout or after another receive. Refuses a handle that this queue did not make.
    ///
    /// # Errors
    /// [`Refusal::ReceiptInvalid`] for a handle of another queue or an invented one. On a FIFO
    /// queue also an invalid parameter after the visibility timeout, because another receiver may
    /// already process the message.
    pub fn delete(&mut self, handle: &str, now_ms: u64) -> Result<Deletion, Refusal> {
        let (sequence, receives) = parse_receipt(&self.name, handle)?;
        self.expire(now_ms);
        let Some(message) = self.messages.get(&sequence) else {
            return Ok(Deletion::Gone);
        };
        if self.settings.is_fifo()
            && (message.receives != receives || message.visible_at_ms <= now_ms)
        {
            let reason = "The receipt handle has expired.";
            return Err(Refusal::invalid("ReceiptHandle", shortened(handle), reason));
        }
        if message.receives != receives {
            return Ok(Deletion::Stale);
        }
        self.remove(sequence);
        Ok(Deletion::Deleted)
    }

    /// Sets how many seconds longer, from now, the message of `handle` stays invisible; 0 gives it
    /// back at once. Refuses a message that is visible again, was received since or is gone, and
    /// more than 12 hours after the last receive.
    ///
    /// # Errors
    /// [`Refusal::ReceiptInvalid`], [`Refusal::NotInFlight`] for a message that is visible again,
    /// was received since or is gone, and an invalid parameter for more than 12 hours after the
    /// receive.
    pub fn change_visibility(
        &mut self,
        handle: &str,
        seconds: u32,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        within("VisibilityTimeout", seconds, 0, limits::VISIBILITY_SECONDS_MAX)?;
        let (sequence, receives) = parse_receipt(&self.name, handle)?;
        self.expire(now_ms);
        let not_in_flight = || Refusal::NotInFlight { receipt: shortened(handle) };
        let message = self.messages.get(&sequence).ok_or_else(not_in_flight)?;
        if message.receives != receives || message.visible_at_ms <= now_ms {
            return Err(not_in_flight());
        }
        let until_ms = after_seconds(now_ms, seconds);
        let last = after_seconds(
            message.last_received_ms.unwrap_or(now_ms),
            limits::VISIBILITY_SECONDS_MAX,
        );
        if until_ms > last {
            let reason =
                "Total VisibilityTimeout for the message is beyond the limit [43200 seconds].";
            return Err(Refusal::invalid("VisibilityTimeout", seconds, reason));
        }
        self.alter(sequence, |message| message.visible_at_ms = until_ms);
        Ok(())
    }

    /// Deletes every message, also those in flight. Keeps the deduplication ids.
    pub fn purge(&mut self) {
        let all: Vec<u64> = self.messages.keys().copied().collect();
        for sequence in all {
            self.remove(sequence);
        }
    }

    /// Returns when, at or after `now_ms`, a receive can first give something; `None` while there
    /// is no message. A FIFO group counts from when none of its messages is in flight.
    #[must_use]
    pub fn next_wake_ms(&self, now_ms: u64) -> Option<u64> {
        let earliest = if self.settings.is_fifo() {
            self.groups.values().filter_map(|group| self.group_opens_ms(group, now_ms)).min()
        } else {
            self.by_time.first().map(|(visible_at_ms, _)| *visible_at_ms)
        };
        earliest.map(|at_ms| at_ms.max(now_ms))
    }

    /// Returns how many messages there are at `now_ms`, by state. Messages past their retention
    /// count until a send, a receive, a deletion or a change of visibility drops them.
    #[must_use]
    pub fn counts(&self, now_ms: u64) -> Counts {
        let mut counts = Counts::default();
        for (_, sequence) in self.by_time.range((now_ms.saturating_add(1), 0)..) {
            match self.messages.get(sequence) {
                Some(message) if message.last_received_ms.is_some() => counts.in_flight += 1,
                _ => counts.delayed += 1,
            }
        }
        counts.visible = self.messages.len() - counts.in_flight - counts.delayed;
        counts
    }

    /// Returns when the oldest message was sent, in milliseconds since the Unix epoch; `None` for
    /// an empty queue.
    #[must_use]
    pub fn oldest_sent_ms(&self) -> Option<u64> {
        self.by_age.first().map(|(sent_ms, _)| *sent_ms)
    }

    /// Returns every stored message, also those in flight, by sequence.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.values()
    }

    /// Returns what changed since the last call and forgets it. Without [restoring](Self::restore)
    /// the queue, only the next sequence is in the result.
    pub fn take_changes(&mut self) -> Changes {
        let mut changes = Changes { next_sequence: self.next_sequence, ..Changes::default() };
        let Some(journal) = self.journal.as_mut() else {
            return changes;
        };
        for sequence in std::mem::take(&mut journal.messages) {
            match self.messages.get(&sequence) {
                Some(message) => changes.written.push(message.clone()),
                None => changes.removed.push(sequence),
            }
        }
        for key in std::mem::take(&mut journal.dedups) {
            match self.dedups.get(&key) {
                Some(dedup) => changes.remembered.push(dedup.clone()),
                None => changes.forgotten.push(key),
            }
        }
        changes
    }
}

/// Returns the time `seconds` after `now_ms`, in milliseconds.
fn after_seconds(now_ms: u64, seconds: u32) -> u64 {
    now_ms.saturating_add(u64::from(seconds) * 1000)
}
