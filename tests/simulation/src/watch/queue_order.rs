//! The order of a queue (Z6.5): changes keep the order in which they entered.

use super::{Kind, Watch, both, key_of, kind, read};
use sluice_gate::queue::Slot;
use sluice_gate::{Head, InboxMessage, InboxMessageKind, Item};
use sluice_memory::RecordChange;
use sluice_model::ItemId;
use sluice_model::change::ChangeKey;
use std::collections::BTreeSet;

impl Watch {
    /// Checks that what stays in a queue keeps its order, and that what enters it is behind the
    /// rest.
    pub(super) fn check_order(
        &self,
        before: Option<&Head>,
        head: &Head,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        let movable = self.movable_items(before, transaction)?;
        let stays = |slot: &&Slot| !movable.contains(&slot.id);
        let kept = before.slots().filter(|slot| head.position(&slot.id).is_some());
        let new = head.slots().filter(|slot| before.position(&slot.id).is_none());
        let in_order = kept.chain(new).filter(stays);
        let mut pairs = head.slots().filter(stays).zip(in_order);
        match pairs.find(|(found, expected)| found.id != expected.id) {
            Some((found, expected)) => Err(format!(
                "{} is ahead of {}, which entered first",
                found.change, expected.change
            )),
            None => Ok(()),
        }
    }

    /// Returns the items that may change their places: promoted changes with their needs, landing
    /// ones, which stay ahead of those, and bundles that move behind a new dependency.
    fn movable_items(
        &self,
        before: &Head,
        transaction: &[RecordChange],
    ) -> Result<BTreeSet<ItemId>, String> {
        let own = sluice_records::queue::partition(&before.key);
        let (mut promoted, mut changed) = (BTreeSet::<ChangeKey>::new(), BTreeSet::new());
        for write in transaction {
            let Some(key) = key_of(write).filter(|key| key.partition == own) else { continue };
            match kind(key) {
                Kind::InboxMessage if write.after.is_none() => {
                    let message: Option<InboxMessage> = read(write.before.as_ref())?;
                    if let Some(InboxMessageKind::Promote { keys, .. }) =
                        message.map(|message| message.kind)
                    {
                        promoted.extend(self.with_needs(&keys));
                    }
                }
                Kind::Item => {
                    let pair = both::<Item>(write.before.as_ref(), write.after.as_ref())?;
                    if let (Some(old), Some(new)) = pair
                        && !new.candidate.bundle.is_empty()
                        && old.candidate.needs != new.candidate.needs
                    {
                        changed.insert(new.id);
                    }
                }
                _ => {}
            }
        }
        let is_movable = |slot: &Slot| {
            promoted.contains(&slot.change.key)
                || changed.contains(&slot.id)
                || (!promoted.is_empty() && slot.status.is_decided())
        };
        // The members of a bundle stay together.
        let movable = before.entries.iter().filter(|entry| entry.members.iter().any(is_movable));
        Ok(movable.flat_map(|entry| &entry.members).map(|slot| slot.id.clone()).collect())
    }
}
