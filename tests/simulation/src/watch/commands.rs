//! Operator commands to queues are applied by the transaction that consumes them.

use super::{Kind, Watch, key_of, kind, read};
use sluice_config::pipeline::Manager;
use sluice_gate::queue::Slot;
use sluice_gate::{Entry, InboxMessage, InboxMessageKind};
use sluice_memory::RecordChange;
use sluice_model::change::{ChangeKey, ChangeRef};
use std::collections::BTreeSet;

impl Watch {
    /// Checks that a consumed command was applied.
    pub(super) fn check_command(
        &self,
        write: &RecordChange,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let Some(said): Option<InboxMessage> = read(write.before.as_ref())? else { return Ok(()) };
        let key = key_of(write).map(|key| key.partition.clone()).unwrap_or_default();
        let Some(head) =
            self.heads.values().find(|head| sluice_records::queue::partition(&head.key) == key)
        else {
            return Ok(());
        };
        match &said.kind {
            InboxMessageKind::Dequeue { key, head: revision, .. } => {
                let is_meant = |change: &ChangeRef| {
                    change.key == *key
                        && revision.as_ref().is_none_or(|revision| change.head == *revision)
                };
                // The change may have entered again in the same transaction.
                match head
                    .slots()
                    .find(|slot| is_meant(&slot.change) && self.former.contains(&slot.id))
                {
                    Some(slot) => {
                        Err(format!("an operator dequeued {}, but it is still queued", slot.change))
                    }
                    None => Ok(()),
                }
            }
            InboxMessageKind::Superseded { change, by, .. } => {
                let stays = |slot: &&Slot| {
                    slot.change == *change
                        && self.former.contains(&slot.id)
                        && !slot.status.is_decided()
                };
                match head.slots().find(stays) {
                    Some(slot) => {
                        Err(format!("{} entered {by}, but it is still queued here", slot.change))
                    }
                    None => Ok(()),
                }
            }
            InboxMessageKind::Promote { keys, .. } => {
                let place = |key: &ChangeKey| head.slot_of_change(key);
                let Some((first, slot)) = keys.iter().find_map(|key| Some((key, place(key)?)))
                else {
                    return Ok(());
                };
                // A change that entered in the same transaction came after the command.
                if !self.former.contains(&slot.id) {
                    return Ok(());
                }
                let needs = |slot: &Slot| {
                    self.items.get(&slot.id).map(|item| item.candidate.needs.as_slice())
                };
                let needed = needs(slot).unwrap_or_default();
                // It may be behind later promotions, and behind the needs of promoted changes that
                // left.
                let later = self.promoted_later(&said, transaction)?;
                let gone = self.with_needs(keys.iter().take_while(|key| *key != first));
                let may_be_before = |slot: &Slot| {
                    let is_begun =
                        head.manager != Manager::Dependent && head.manager != Manager::Independent;
                    // Landing and landed items stay first, even if this transaction finds that a
                    // landing failed.
                    slot.status.is_decided()
                        || self.former_landing.contains(&slot.id)
                        || is_begun
                        || later.contains(&slot.change.key)
                        || gone.contains(&slot.change.key)
                        || needed.iter().any(|need| need.change.key == slot.change.key)
                };
                let position = head.position(&slot.id).unwrap_or_default();
                let mut ahead = head.entries[..position].iter().map(Entry::first);
                // The other members of a bundle are where the first one is.
                match ahead.find(|slot| !may_be_before(slot)) {
                    Some(slot) => Err(format!(
                        "an operator promoted {first}, but {} is ahead of it",
                        slot.change
                    )),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Returns the changes that later promotions in the same transaction moved to the front.
    fn promoted_later(
        &self,
        said: &InboxMessage,
        transaction: &[RecordChange],
    ) -> Result<BTreeSet<ChangeKey>, String> {
        let mut later = BTreeSet::new();
        let removed = transaction.iter().filter(|write| write.after.is_none());
        for write in
            removed.filter(|write| key_of(write).is_some_and(|key| kind(key) == Kind::InboxMessage))
        {
            let Some(other): Option<InboxMessage> = read(write.before.as_ref())? else { continue };
            if let InboxMessageKind::Promote { keys, .. } = &other.kind
                && (other.at, &other.id) > (said.at, &said.id)
            {
                later.extend(self.with_needs(keys));
            }
        }
        Ok(later)
    }

    /// Returns these changes with their needs, including items that left in this transaction.
    pub(super) fn with_needs<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a ChangeKey>,
    ) -> BTreeSet<ChangeKey> {
        let mut all = BTreeSet::new();
        for key in keys {
            let own = self
                .items
                .values()
                .chain(&self.left)
                .filter(|item| item.candidate.change.key == *key);
            let needs =
                own.flat_map(|item| &item.candidate.needs).map(|need| need.change.key.clone());
            all.extend(needs.chain([key.clone()]));
        }
        all
    }
}
