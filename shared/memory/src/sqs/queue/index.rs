//! The queue's messages under every order they are looked up by, and the journal of what a store
//! must write.

use super::super::message::{Dedup, Message};
use super::Queue;

impl Queue {
    /// Drops messages past their retention and deduplication ids past their five minutes, and
    /// records that.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let kept_ms = u64::from(self.settings.retention_seconds) * 1000;
        while let Some(&(sent_ms, sequence)) = self.by_age.first() {
            if sent_ms.saturating_add(kept_ms) > now_ms {
                break;
            }
            self.remove(sequence);
        }
        while self.dedups_by_end.first().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            if let Some((_, key)) = self.dedups_by_end.pop_first() {
                self.dedups.remove(&key);
                if let Some(journal) = self.journal.as_mut() {
                    journal.dedups.insert(key);
                }
            }
        }
    }

    /// Returns the sort key of a message within its group: when it is visible, then its sequence
    /// number; in a FIFO queue only the latter counts.
    fn rank(&self, message: &Message) -> (u64, u64) {
        (if self.settings.is_fifo() { 0 } else { message.visible_at_ms }, message.sequence)
    }

    /// Adds a message to the queue and its indexes under its sequence, which must be unused, and
    /// records that it changed.
    pub(super) fn insert(&mut self, message: Message) {
        self.by_time.insert((message.visible_at_ms, message.sequence));
        self.by_age.insert((message.sent_ms, message.sequence));
        let rank = self.rank(&message);
        self.groups.entry(message.group.clone()).or_default().insert(rank);
        self.note(message.sequence);
        self.messages.insert(message.sequence, message);
    }

    /// Removes a message from the queue and its indexes, records that, and returns the message;
    /// `None` if there is none.
    pub(super) fn remove(&mut self, sequence: u64) -> Option<Message> {
        let message = self.messages.remove(&sequence)?;
        self.by_time.remove(&(message.visible_at_ms, sequence));
        self.by_age.remove(&(message.sent_ms, sequence));
        let rank = self.rank(&message);
        if let Some(group) = self.groups.get_mut(&message.group) {
            group.remove(&rank);
            if group.is_empty() {
                self.groups.remove(&message.group);
            }
        }
        self.note(sequence);
        Some(message)
    }

    /// Applies `change` to a message, which must not change its sequence, and keeps the indexes up
    /// to date. Does nothing if there is no such message.
    pub(super) fn alter(&mut self, sequence: u64, change: impl FnOnce(&mut Message)) {
        if let Some(mut message) = self.remove(sequence) {
            change(&mut message);
            self.insert(message);
        }
    }

    /// Stores a deduplication id until its end, and records that.
    pub(super) fn remember(&mut self, dedup: Dedup) {
        if let Some(journal) = self.journal.as_mut() {
            journal.dedups.insert(dedup.key.clone());
        }
        self.dedups_by_end.insert((dedup.until_ms, dedup.key.clone()));
        self.dedups.insert(dedup.key.clone(), dedup);
    }

    /// Records that a message changed, for [`Queue::take_changes`], if changes are recorded.
    fn note(&mut self, sequence: u64) {
        if let Some(journal) = self.journal.as_mut() {
            journal.messages.insert(sequence);
        }
    }
}
