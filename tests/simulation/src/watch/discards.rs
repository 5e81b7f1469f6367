//! What operators have discarded enters nothing; what they enqueue themselves does.

use super::pauses::HEARD_MILLIS;
use super::{Watch, read};
use sluice_gate::{Arrival, ArrivalKind};
use sluice_memory::Written;
use sluice_model::{ItemId, TenantName, Timestamp};
use sluice_records::queue::item_key;

impl Watch {
    /// Judges an arrival that is taken in: while events are discarded nothing enters by it but what
    /// an operator asked for.
    pub(super) fn may_enter(&self, write: &Written, transaction: &[Written]) -> Result<(), String> {
        let Some(head) = self.held(&self.pauses.discards, write) else { return Ok(()) };
        let Some(arrival): Option<Arrival> = read(write.before.as_ref())? else { return Ok(()) };
        let ArrivalKind::Enqueue { candidates } = &arrival.kind else { return Ok(()) };
        // What stood in another queue of the tenant goes on in this one, and what somebody left for
        // was taken up before.
        let is_begun = arrival.by_operator || arrival.taken_up;
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
            let parts = [queue.as_str(), own.as_str(), change.head.as_str(), arrival.id.as_str()];
            enters(&ItemId::derive(&parts))
        });
        entered.map_or(Ok(()), |change| {
            Err(format!("{change} enters, and an operator has events discarded"))
        })
    }

    /// Returns whether a change of a tenant was proposed when events of that had not been discarded
    /// for so long that every look knew of it.
    pub fn is_after_discards(&self, tenant: &TenantName, proposed_at: Option<Timestamp>) -> bool {
        let Some(until) = self.pauses.discarded.get(tenant) else { return true };
        let is_later = proposed_at.is_some_and(|at| at.0 > until.0.saturating_add(HEARD_MILLIS));
        is_later && self.shape.weather.sleeps == 0
    }

    /// Returns whether an operator ever had any events discarded.
    pub fn has_discarded(&self) -> bool {
        !self.pauses.discarded.is_empty()
    }
}
