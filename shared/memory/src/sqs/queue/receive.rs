//! Selects the messages of a receive, on standard and on FIFO queues.

use std::collections::BTreeSet;

use super::super::choose::Chooser;
use super::super::limits;
use super::super::message::{Delivered, receipt};
use super::{Queue, Received};

/// How many messages of a standard queue the [`Chooser`] picks from.
const CHOICE_MAX: usize = 16;

impl Queue {
    /// Receives messages of a standard queue in the order that `chooser` picks, hides them until
    /// `until_ms`, and adds them to `received`, up to `max` messages. `chooser` may also leave one
    /// visible, to be delivered again by a later receive. Messages received too often become dead
    /// letters.
    pub(super) fn receive_standard(
        &mut self,
        max: usize,
        now_ms: u64,
        until_ms: u64,
        chooser: &mut dyn Chooser,
        received: &mut Received,
    ) {
        // A message that is delivered twice stays visible, but is not twice in one answer.
        let mut given = BTreeSet::new();
        while received.messages.len() < max {
            let candidates = self.fair_candidates(now_ms, &given);
            if candidates.is_empty() {
                break;
            }
            let sequence = candidates[chooser.choose(candidates.len()) % candidates.len()];
            let until_ms = if chooser.delivers_twice() { now_ms } else { until_ms };
            given.insert(sequence);
            self.deliver(sequence, now_ms, until_ms, received);
        }
    }

    /// Returns the sequences of visible messages, without those in `given`, of the groups with the
    /// fewest messages in flight, oldest first, at most [`CHOICE_MAX`].
    fn fair_candidates(&self, now_ms: u64, given: &BTreeSet<u64>) -> Vec<u64> {
        let mut fewest = usize::MAX;
        let mut candidates = Vec::new();
        for group in self.groups.values() {
            let mut visible = group
                .range(..=(now_ms, u64::MAX))
                .map(|(_, s)| *s)
                .filter(|s| !given.contains(s))
                .peekable();
            if visible.peek().is_none() {
                continue;
            }
            let in_flight = group
                .range((now_ms.saturating_add(1), 0)..)
                .filter(|(_, s)| self.was_received(*s))
                .count();
            if in_flight < fewest {
                fewest = in_flight;
                candidates.clear();
            }
            if in_flight == fewest {
                candidates.extend(visible.take(CHOICE_MAX));
            }
        }
        // Oldest first, whichever group they are of.
        candidates.sort_unstable();
        candidates.truncate(CHOICE_MAX);
        candidates
    }

    /// Receives messages of a FIFO queue, in order within each group, hides them until `until_ms`,
    /// and adds them to `received`, up to `max` messages. `chooser` picks the next group. Groups
    /// with a message in flight give nothing. Messages received too often become dead letters.
    pub(super) fn receive_fifo(
        &mut self,
        max: usize,
        now_ms: u64,
        until_ms: u64,
        chooser: &mut dyn Chooser,
        received: &mut Received,
    ) {
        let mut open = self.open_groups(now_ms);
        while received.messages.len() < max && !open.is_empty() {
            let (_, group) = open.remove(chooser.choose(open.len()) % open.len());
            while received.messages.len() < max {
                let first = self.groups.get(&group).and_then(|sequences| {
                    sequences
                        .iter()
                        .map(|(_, s)| *s)
                        .find(|s| !received.messages.iter().any(|d| d.message.sequence == *s))
                });
                // The next of the group, unless it is still delayed.
                let Some(sequence) = first
                    .filter(|s| self.messages.get(s).is_some_and(|m| m.visible_at_ms <= now_ms))
                else {
                    break;
                };
                self.deliver(sequence, now_ms, until_ms, received);
            }
        }
    }

    /// Returns the groups that may give a message now, each with the sequence of its first message,
    /// in that order, among the messages that SQS searches.
    fn open_groups(&self, now_ms: u64) -> Vec<(u64, Option<String>)> {
        let searched_to =
            self.messages.keys().nth(limits::GROUP_SEARCH_MAX).copied().unwrap_or(u64::MAX);
        let mut open: Vec<(u64, Option<String>)> = self
            .groups
            .iter()
            .filter_map(|(name, group)| Some((group.first()?.1, name, group)))
            .filter(|(first, _, group)| {
                *first < searched_to
                    && self.group_opens_ms(group, now_ms).is_some_and(|at_ms| at_ms <= now_ms)
            })
            .map(|(first, name, _)| (first, name.clone()))
            .collect();
        open.sort_unstable();
        open
    }

    /// Returns when a FIFO group can deliver a message. While messages of the group are in flight,
    /// that is when the last of them is visible again; otherwise when its first message is visible,
    /// which may be past. `None` for an empty group.
    pub(super) fn group_opens_ms(&self, group: &BTreeSet<(u64, u64)>, now_ms: u64) -> Option<u64> {
        let first = self.messages.get(&group.first()?.1)?;
        let in_flight =
            group.iter().take(limits::BATCH_MAX).filter_map(|(_, s)| self.messages.get(s));
        let last = in_flight
            .filter(|m| m.last_received_ms.is_some())
            .map(|m| m.visible_at_ms)
            .filter(|at| *at > now_ms)
            .max();
        Some(last.unwrap_or(first.visible_at_ms))
    }

    /// Counts a receive of the message, hides it until `until_ms`, and adds it to `received`. If it
    /// was received too often, removes it from the queue instead and adds it to the dead letters.
    fn deliver(&mut self, sequence: u64, now_ms: u64, until_ms: u64, received: &mut Received) {
        let receives = self.messages.get(&sequence).map_or(0, |m| m.receives);
        // A dead letter keeps its count, so only a queue with a redrive policy compares it.
        if self.settings.redrive.as_ref().is_some_and(|redrive| receives >= redrive.receives_max) {
            received.dead.extend(self.remove(sequence));
            return;
        }
        self.alter(sequence, |message| {
            message.receives += 1;
            message.first_received_ms.get_or_insert(now_ms);
            message.last_received_ms = Some(now_ms);
            message.visible_at_ms = until_ms;
        });
        if let Some(message) = self.messages.get(&sequence) {
            let handle = receipt(&self.name, sequence, message.receives);
            received.messages.push(Delivered { message: message.clone(), receipt: handle });
        }
    }

    /// Returns whether a message was received before; `false` if there is none.
    fn was_received(&self, sequence: u64) -> bool {
        self.messages.get(&sequence).is_some_and(|message| message.last_received_ms.is_some())
    }
}
