//! Discarded events: they enqueue nothing. Operators can still enqueue changes.

use super::pauses::VISIBLE_MILLIS;
use super::{Watch, read};
use sluice_gate::{InboxMessage, InboxMessageKind};
use sluice_memory::RecordChange;
use sluice_model::{ItemId, TenantName, Timestamp};
use sluice_records::queue::item_key;

impl Watch {
    /// Checks a consumed inbox message: while events are discarded, only an operator's message
    /// enqueues a change.
    pub(super) fn check_discards(
        &self,
        write: &RecordChange,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let Some(head) = self.queue_held_longer(&self.pauses.discards, write) else {
            return Ok(());
        };
        let Some(message): Option<InboxMessage> = read(write.before.as_ref())? else {
            return Ok(());
        };
        let InboxMessageKind::Enqueue { candidates } = &message.kind else { return Ok(()) };
        // A change that moves between queues of its tenant, and a message that is in progress,
        // continue.
        let is_begun = message.by_operator || message.in_progress;
        if is_begun || candidates.iter().any(|candidate| candidate.moved_from.is_some()) {
            return Ok(());
        }
        let queue = head.key.to_string();
        let enters = |id: &ItemId| {
            let key = item_key(&head.key, id);
            let mut new = transaction.iter().filter(|write| write.before.is_none());
            new.any(|write| write.after.as_ref().is_some_and(|record| record.key == key))
        };
        let mut changes = candidates.iter().map(|candidate| &candidate.change);
        let entered = changes.find(|change| {
            let own = change.key.to_string();
            let parts = [queue.as_str(), own.as_str(), change.head.as_str(), message.id.as_str()];
            enters(&ItemId::derive(&parts))
        });
        entered.map_or(Ok(()), |change| {
            Err(format!("{change} entered while an operator has events discarded"))
        })
    }

    /// Returns whether a change was proposed so long after the last discard that every function
    /// knew of its end.
    pub fn is_after_discards(&self, tenant: &TenantName, proposed_at: Option<Timestamp>) -> bool {
        let Some(until) = self.pauses.discarded.get(tenant) else { return true };
        let is_later = proposed_at.is_some_and(|at| at.0 > until.0.saturating_add(VISIBLE_MILLIS));
        is_later && self.shape.fault_profile.sleeps == 0
    }

    /// Returns whether an operator ever had events discarded.
    pub fn has_discarded(&self) -> bool {
        !self.pauses.discarded.is_empty()
    }
}
