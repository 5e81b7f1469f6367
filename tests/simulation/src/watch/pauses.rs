//! What operators hold back waits: events, and answers, until they let them go on. What they have
//! discarded is known here as well.

use super::guests::is_sent_on;
use super::{Watch, both, read};
use sluice_gate::{Arrival, Ask, Head, Item};
use sluice_memory::Written;
use sluice_model::{TenantName, Timestamp};
use sluice_records::tenant::Tenant;
use std::collections::BTreeMap;

/// Milliseconds after which every look at a queue began when events were held back already, where
/// nobody sleeps in the middle of one.
pub(super) const HEARD_MILLIS: u64 = 60_000;

/// Since when what is held back of which tenant.
#[derive(Default)]
pub(super) struct Pauses {
    triggers: BTreeMap<TenantName, Timestamp>,
    results: BTreeMap<TenantName, Timestamp>,
    pub(super) discards: BTreeMap<TenantName, Timestamp>,
    /// Until when events of a tenant were discarded last, or are.
    pub(super) discarded: BTreeMap<TenantName, Timestamp>,
}

impl Pauses {
    /// Hears what a tenant's head says.
    pub(super) fn said(&mut self, tenant: Option<Tenant>, now: Timestamp) {
        let Some(Tenant { name, events, .. }) = tenant else { return };
        if events.trigger_queue_discarding {
            self.discarded.insert(name.clone(), Timestamp(u64::MAX));
        } else if let Some(until) = self.discarded.get_mut(&name) {
            *until = (*until).min(now);
        }
        for (held, is_held) in [
            (&mut self.triggers, events.trigger_queue_paused),
            (&mut self.results, events.result_queue_paused),
            (&mut self.discards, events.trigger_queue_discarding),
        ] {
            if is_held {
                held.entry(name.clone()).or_insert(now);
            } else {
                held.remove(&name);
            }
        }
    }
}

impl Watch {
    /// Judges an arrival that is taken in: while events wait only what an operator asked for is.
    /// What is sent on to the queue in which its change stands waits there.
    pub(super) fn may_be_heard(
        &self,
        write: &Written,
        transaction: &[Written],
    ) -> Result<(), String> {
        self.may_enter(write, transaction)?;
        let Some(head) = self.held(&self.pauses.triggers, write) else { return Ok(()) };
        match read::<Arrival>(write.before.as_ref())? {
            Some(arrival) if head.stands_in.is_some() && is_sent_on(&arrival, transaction)? => {
                Ok(())
            }
            Some(arrival) if !arrival.by_operator => {
                Err("it is taken in, and an operator has what comes wait".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Judges an item as it is written: while answers wait it has none.
    pub(super) fn may_be_answered(&self, write: &Written) -> Result<(), String> {
        if self.held(&self.pauses.results, write).is_none() {
            return Ok(());
        }
        let (before, after) = both::<Item>(write.before.as_ref(), write.after.as_ref())?;
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        match (&before.ask, &after.ask) {
            (Ask::Asked { .. }, Ask::Merged(_)) => {
                Err("its tested state is taken in, and an operator has answers wait".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the queue that a record is of, where its tenant is held back so long that whoever
    /// wrote it knew of that.
    pub(super) fn held(
        &self,
        held: &BTreeMap<TenantName, Timestamp>,
        write: &Written,
    ) -> Option<&Head> {
        if held.is_empty() || self.shape.weather.sleeps > 0 {
            return None;
        }
        let key = super::key_of(write)?;
        let head = self
            .heads
            .values()
            .find(|head| sluice_records::queue::partition(&head.key) == key.partition)?;
        let since = held.get(&head.key.tenant)?;
        (write.at.since(*since) > HEARD_MILLIS).then_some(head)
    }
}
