//! Inbox messages that have to wait, and what they hold up: later messages about the same changes,
//! later enqueue messages, and landings.

use super::Planner;
use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::queue::{Slot, SlotStatus};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};
use std::collections::BTreeSet;

/// The messages of this plan that have to wait. They block later messages about the same changes. A
/// waiting enqueue message also blocks later ones. Updates of other changes are still processed.
#[derive(Default)]
pub(super) struct BlockedMessages {
    changes: BTreeSet<ChangeKey>,
    has_entry: bool,
}

impl BlockedMessages {
    /// Returns whether a message has to wait behind the messages added so far: one of them is about
    /// the same change, or both enqueue changes. Never for commands and release requests.
    pub(super) fn blocks(&self, message: &InboxMessage) -> bool {
        let is_entry = matches!(message.kind, InboxMessageKind::Enqueue { .. });
        (is_entry && self.has_entry)
            || blocked_changes(message).iter().any(|key| self.changes.contains(*key))
    }

    /// Adds a message that has to wait and that later ones must not overtake.
    pub(super) fn add(&mut self, message: &InboxMessage) {
        self.has_entry |= matches!(message.kind, InboxMessageKind::Enqueue { .. });
        self.changes.extend(blocked_changes(message).into_iter().cloned());
    }
}

/// Returns the changes whose later messages wait behind this one; empty for commands and for
/// requests to release a change.
fn blocked_changes(message: &InboxMessage) -> Vec<&ChangeKey> {
    match &message.kind {
        InboxMessageKind::Enqueue { candidates } => {
            candidates.iter().map(|candidate| &candidate.change.key).collect()
        }
        InboxMessageKind::ChangeUpdated { change, .. }
        | InboxMessageKind::Superseded { change, .. } => {
            vec![&change.key]
        }
        // A release never waits or blocks, since two queues could wait for each other.
        InboxMessageKind::MoveToHost { .. }
        | InboxMessageKind::Dequeue { .. }
        | InboxMessageKind::Promote { .. }
        | InboxMessageKind::Resume { .. } => Vec::new(),
    }
}

impl Planner<'_> {
    /// Returns whether a pending enqueue or update message replaces or dequeues the change in
    /// `slot`, so that its entry must not be merged now; ask for every member of a bundle.
    /// Operators' commands, supersessions and release requests never count. A message counts even
    /// if it waits for room or is paused by an operator. But an enqueue message does not count
    /// while any enqueue message waits for room in the head.
    pub(super) fn is_landing_withheld(&self, slot: &Slot) -> bool {
        // A message that waits for room may be waiting for this very change to leave. The forge
        // will not merge another revision than the tested one.
        let is_full = || self.unconsumed().any(|message| !self.fits_in_head(message));
        self.unconsumed().any(|message| match &message.kind {
            InboxMessageKind::Enqueue { candidates } => {
                let replaces =
                    |c: &Candidate| c.change.key == slot.change.key && c.change != slot.change;
                candidates.iter().any(replaces) && !is_full()
            }
            _ => self.dequeues(message, slot),
        })
    }

    /// Returns whether a message is an update that dequeues the item in `slot`: the change is
    /// closed or may no longer be queued, has another target branch, or has a new revision that
    /// dequeues older ones. `false` for other messages and changes, and for an update that is older
    /// than what is known.
    pub(super) fn dequeues(&self, message: &InboxMessage, slot: &Slot) -> bool {
        let InboxMessageKind::ChangeUpdated { change, gone, as_of, .. } = &message.kind else {
            return false;
        };
        if change.key != slot.change.key {
            return false;
        }
        let known = self.items.get(&slot.id).map_or(*as_of, |item| item.candidate.as_of);
        let is_older = *as_of != Timestamp::default() && *as_of < known;
        let is_another = slot.change.branch != change.branch
            || (slot.change.head != change.head && self.dequeues_old_revisions());
        !is_older && (gone.is_some() || is_another)
    }

    /// Returns whether a message waits because it would replace or dequeue a change that is being
    /// merged. An enqueue message also waits while a member of its bundle is being merged, in any
    /// revision, or while another revision of its change, merged by a push, runs its reporter jobs.
    /// An operator's dequeue command does not wait if the landing may be cancelled
    /// ([`Planner::revocable_landing`]) or the partly merged bundle may be ended. Supersessions and
    /// other commands never wait.
    ///
    /// Otherwise a change that lost its approval and was not merged could be tested again and
    /// merged (G12).
    pub(super) fn waits_for_landing(&self, message: &InboxMessage) -> bool {
        let is_landing = |key: &ChangeKey, now: Option<&ChangeRef>| {
            self.head.slots().any(|slot| {
                slot.status.is_landing()
                    && slot.change.key == *key
                    && now.is_none_or(|change| slot.change != *change)
            })
        };
        match &message.kind {
            InboxMessageKind::Enqueue { candidates } => {
                // A bundle is enqueued as a whole, so it waits for any member that is being merged.
                let is_awaited = |c: &Candidate| {
                    let same = c.bundle.is_empty().then_some(&c.change);
                    is_landing(&c.change.key, same) || self.waits_for_reporter_jobs(&c.change)
                };
                candidates.iter().any(is_awaited)
            }
            InboxMessageKind::ChangeUpdated { change, gone, .. } => {
                is_landing(&change.key, Some(change).filter(|_| gone.is_none()))
            }
            InboxMessageKind::Dequeue { key, .. } => self.head.entries.iter().any(|entry| {
                let is_meant = |slot: &Slot| slot.status.is_landing() && slot.change.key == *key;
                let may_end = || {
                    self.revocable_landing(entry).is_some()
                        || self.partial_bundle_landing(entry).is_some()
                };
                entry.members.iter().any(is_meant) && !may_end()
            }),
            // The pipeline merges nothing under this layout, but may have done so under the
            // previous one.
            InboxMessageKind::MoveToHost { change, .. } => is_landing(&change.key, None),
            InboxMessageKind::Superseded { .. }
            | InboxMessageKind::Promote { .. }
            | InboxMessageKind::Resume { .. } => false,
        }
    }

    /// Returns whether `change` is still open while another revision of it, merged by a push, runs
    /// its reporter jobs.
    fn waits_for_reporter_jobs(&self, change: &ChangeRef) -> bool {
        let is_another = |slot: &Slot| {
            slot.status == SlotStatus::Reporting
                && slot.change.key == change.key
                && slot.change.head != change.head
                && self.has_landed(&slot.id)
        };
        self.head.slots().any(is_another) && !self.head.has_landed(change)
    }
}
