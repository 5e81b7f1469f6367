//! What operators say to queues is done in the decision that takes it in.

use super::{Kind, Watch, key_of, kind, read};
use sluice_config::pipeline::Manager;
use sluice_gate::queue::Slot;
use sluice_gate::{Arrival, ArrivalKind};
use sluice_memory::Written;
use sluice_model::change::{ChangeKey, ChangeRef};
use std::collections::BTreeSet;

impl Watch {
    /// What an operator said is done in the transaction that takes it in.
    pub(super) fn word(&self, write: &Written, transaction: &[Written]) -> Result<(), String> {
        let Some(said): Option<Arrival> = read(write.before.as_ref())? else { return Ok(()) };
        let key = key_of(write).map(|key| key.partition.clone()).unwrap_or_default();
        let Some(head) =
            self.heads.values().find(|head| sluice_records::queue::partition(&head.key) == key)
        else {
            return Ok(());
        };
        match &said.kind {
            ArrivalKind::Dequeue { key, head: revision, .. } => {
                let is_meant = |change: &ChangeRef| {
                    change.key == *key
                        && revision.as_ref().is_none_or(|revision| change.head == *revision)
                };
                // Another one of it may have entered in the same decision.
                match head
                    .slots
                    .iter()
                    .find(|slot| is_meant(&slot.change) && self.former.contains(&slot.id))
                {
                    Some(slot) => {
                        Err(format!("an operator took {} out, and it is still there", slot.change))
                    }
                    None => Ok(()),
                }
            }
            ArrivalKind::Superseded { change, by, .. } => {
                let stays = |slot: &&Slot| {
                    slot.change == *change
                        && self.former.contains(&slot.id)
                        && !slot.standing.is_decided()
                };
                match head.slots.iter().find(stays) {
                    Some(slot) => {
                        Err(format!("{} entered {by}, and it is still here", slot.change))
                    }
                    None => Ok(()),
                }
            }
            ArrivalKind::Promote { keys, .. } => {
                let place =
                    |key: &ChangeKey| head.slots.iter().position(|slot| slot.change.key == *key);
                let Some((first, at)) = keys.iter().find_map(|key| Some((key, place(key)?))) else {
                    return Ok(());
                };
                // One that entered in the same decision came after the word.
                if !self.former.contains(&head.slots[at].id) {
                    return Ok(());
                }
                let needs = |slot: &Slot| {
                    self.items.get(&slot.id).map(|item| item.candidate.needs.as_slice())
                };
                let needed = head.slots[at..].first().and_then(needs).unwrap_or_default();
                // Of what was said later it may be behind, and behind what somebody needed that has
                // left since.
                let later = self.said_later(&said, transaction)?;
                let gone = self.with_needs(keys.iter().take_while(|key| *key != first));
                let may_be_before = |slot: &Slot| {
                    let is_begun =
                        head.manager != Manager::Dependent && head.manager != Manager::Independent;
                    // What lands or has landed stays first, also where the same decision sees that
                    // it did not land.
                    slot.standing.is_decided()
                        || self.former_landing.contains(&slot.id)
                        || is_begun
                        || slot.joined
                        || later.contains(&slot.change.key)
                        || gone.contains(&slot.change.key)
                        || needed.iter().any(|need| need.change.key == slot.change.key)
                };
                // Those that need each other keep their order.
                match head.slots[..head.bundle(at).start].iter().find(|slot| !may_be_before(slot)) {
                    Some(slot) => Err(format!(
                        "an operator had {first} come first, and {} is before it",
                        slot.change
                    )),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Returns the changes that operators had come first by words which a transaction takes in
    /// after another one.
    fn said_later(
        &self,
        said: &Arrival,
        transaction: &[Written],
    ) -> Result<BTreeSet<ChangeKey>, String> {
        let mut later = BTreeSet::new();
        let removed = transaction.iter().filter(|write| write.after.is_none());
        for write in
            removed.filter(|write| key_of(write).is_some_and(|key| kind(key) == Kind::Arrival))
        {
            let Some(other): Option<Arrival> = read(write.before.as_ref())? else { continue };
            if let ArrivalKind::Promote { keys, .. } = &other.kind
                && (other.at, &other.id) > (said.at, &said.id)
            {
                later.extend(self.with_needs(keys));
            }
        }
        Ok(later)
    }

    /// Returns these changes with what each needs, those that left in this transaction included.
    fn with_needs<'a>(&self, keys: impl IntoIterator<Item = &'a ChangeKey>) -> BTreeSet<ChangeKey> {
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
