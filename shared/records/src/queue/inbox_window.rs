//! Bounds the inbox messages that one reconciliation reads: the oldest enqueue requests, and
//! updates about changes up to a high limit.
//!
//! Enqueue requests are consumed one after the other, so late ones wait in any case. But an update
//! may be what the first of them waits for, such as a change that leaves and makes room.

use super::{LOAD_MAX, LoadError, partition};
use crate::codec::{BadRecord, decode};
use sluice_gate::{InboxMessage, InboxMessageKind};
use sluice_model::QueueKey;
use sluice_model::change::ChangeKey;
use sluice_runtime::Ports;
use sluice_runtime::record::{Key, Query, Record};
use std::collections::BTreeSet;

/// The sort key prefix of inbox messages.
pub(super) const PREFIX: &str = "inbox#";

/// The most enqueue requests that are read, oldest first.
const ENQUEUES_MAX: usize = 500;

/// The most updates that are read, oldest first. Each is small, and is consumed unless it waits for
/// an enqueue request or a landing.
const UPDATES_MAX: usize = 20_000;

/// The most pages of messages that one reconciliation reads. A queue with more needs an operator.
const PAGES_MAX: usize = 200;

/// The part of an inbox that one reconciliation reads.
#[derive(Default)]
pub(super) struct InboxWindow {
    /// The messages in key order.
    messages: Vec<(Key, InboxMessage)>,
    /// The number of messages that enqueue changes.
    enqueues: usize,
    /// Changes with an enqueue request outside the window. Later updates about them stay outside
    /// too, because consuming one first would lose it.
    excluded: BTreeSet<ChangeKey>,
    /// Whether any message is outside the window.
    pub(super) is_cut: bool,
}

impl InboxWindow {
    /// Adds the next message in key order if it belongs to the window; otherwise marks the window
    /// as cut. Commands always belong to it. Left out are enqueue requests beyond `ENQUEUES_MAX`,
    /// all later requests and updates about the changes of such a request, and updates once the
    /// window has `ENQUEUES_MAX` and `UPDATES_MAX` messages together. A message that cannot be
    /// decoded is an error.
    pub(super) fn add(&mut self, record: Record) -> Result<(), BadRecord> {
        let message: InboxMessage = decode(&record)?;
        let is_excluded = |key: &ChangeKey| self.excluded.contains(key);
        let is_included = match &message.kind {
            InboxMessageKind::Enqueue { candidates } => {
                let is_next = self.enqueues < ENQUEUES_MAX
                    && !candidates.iter().any(|c| is_excluded(&c.change.key));
                if is_next {
                    self.enqueues += 1;
                } else {
                    self.excluded
                        .extend(candidates.iter().map(|candidate| candidate.change.key.clone()));
                }
                is_next
            }
            InboxMessageKind::ChangeUpdated { change, .. }
            | InboxMessageKind::Superseded { change, .. }
            | InboxMessageKind::MoveToHost { change, .. } => {
                !is_excluded(&change.key) && self.messages.len() < ENQUEUES_MAX + UPDATES_MAX
            }
            InboxMessageKind::Dequeue { .. }
            | InboxMessageKind::Promote { .. }
            | InboxMessageKind::Resume { .. } => true,
        };
        if is_included {
            self.messages.push((record.key, message));
        }
        self.is_cut |= !is_included;
        Ok(())
    }

    /// Returns the messages of the window with their keys, in key order: commands, then the others,
    /// each oldest first.
    pub(super) fn into_messages(self) -> Vec<(Key, InboxMessage)> {
        self.messages
    }
}

/// Reads the messages after the sort key `after` (`None`: all of them) into `window`, and returns
/// it. After `PAGES_MAX` pages, logs an error and marks the window as cut. A message that cannot be
/// decoded is an error.
pub(super) async fn after(
    ports: &Ports,
    queue: &QueueKey,
    mut after: Option<String>,
    mut window: InboxWindow,
) -> Result<InboxWindow, LoadError> {
    for _ in 0..PAGES_MAX {
        let query =
            Query { after: after.take(), ..Query::prefix(partition(queue), PREFIX, LOAD_MAX) };
        let records = ports.records.query(&query).await?;
        let is_last = records.len() < LOAD_MAX;
        after = records.last().map(|record| record.key.sort.clone());
        for record in records {
            window.add(record)?;
        }
        if is_last {
            return Ok(window);
        }
    }
    window.is_cut = true;
    tracing::error!(%queue, "the inbox has more messages than one reconciliation reads; the \
                             newest wait");
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::put_message;
    use sluice_gate::Candidate;
    use sluice_model::change::ChangeRef;
    use sluice_model::{InboxMessageId, ProjectName, Timestamp};
    use sluice_runtime::record::Write;

    fn change(number: u64) -> ChangeRef {
        let key =
            ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), number);
        ChangeRef { key, branch: "main".into(), head: "abc".into(), patchset: "abc".to_owned() }
    }

    fn record(at: u64, kind: InboxMessageKind) -> Record {
        let queue = QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "q".into() };
        let (id, event_id) = (InboxMessageId::derive(&[&at.to_string()]), String::new());
        let message = InboxMessage {
            id,
            at: Timestamp(at),
            event_id,
            layout: 1,
            by_operator: false,
            in_progress: false,
            kind,
        };
        let Write::Put { record, .. } = put_message(&queue, &message).unwrap() else {
            unreachable!()
        };
        record
    }

    fn entry(number: u64) -> InboxMessageKind {
        InboxMessageKind::Enqueue { candidates: vec![Candidate::bare(&change(number))] }
    }

    fn gone(number: u64) -> InboxMessageKind {
        let (gone, as_of) = (Some("it was closed".to_owned()), Timestamp(0));
        InboxMessageKind::ChangeUpdated {
            change: change(number),
            gone,
            merged: false,
            needs: None,
            as_of,
        }
    }

    /// Z6.7: however many enqueue requests wait, updates about changes in the queue are read; none
    /// is read before the enqueue request of its change.
    #[test]
    fn updates_are_read_after_any_number_of_enqueue_requests_but_not_before_their_own() {
        let mut window = InboxWindow::default();
        let entries = ENQUEUES_MAX as u64 + 1_700;
        for number in 0..entries {
            window.add(record(number, entry(number))).unwrap();
        }
        let (in_window, beyond, elsewhere) = (gone(3), gone(entries - 1), gone(9_999));
        for (at, update) in [&in_window, &beyond, &elsewhere].into_iter().enumerate() {
            window.add(record(entries + at as u64, update.clone())).unwrap();
        }
        // The change in the window again, after the one outside.
        window.add(record(entries + 9, entry(entries - 1))).unwrap();
        assert!(window.is_cut);
        let messages: Vec<InboxMessageKind> =
            window.into_messages().into_iter().map(|(_, message)| message.kind).collect();
        assert_eq!(messages.len(), ENQUEUES_MAX + 2);
        assert_eq!(messages[ENQUEUES_MAX..], [in_window, elsewhere]);
    }
}
