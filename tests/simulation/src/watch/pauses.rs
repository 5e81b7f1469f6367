//! Paused events and results wait until operators resume them. This module also knows the discards.

use super::hosted_changes::is_forwarded;
use super::{Watch, both, read};
use sluice_gate::{Head, InboxMessage, Item, MergeStatus};
use sluice_memory::RecordChange;
use sluice_model::{TenantName, Timestamp};
use sluice_records::tenant::Tenant;
use std::collections::BTreeMap;

/// Milliseconds after which every function knows of a pause, in sites where functions do not sleep.
pub(super) const VISIBLE_MILLIS: u64 = 60_000;

/// Since when events or results of tenants are held back.
#[derive(Default)]
pub(super) struct Pauses {
    triggers: BTreeMap<TenantName, Timestamp>,
    results: BTreeMap<TenantName, Timestamp>,
    pub(super) discards: BTreeMap<TenantName, Timestamp>,
    /// When the last discard of a tenant ended; the maximum while it lasts.
    pub(super) discarded: BTreeMap<TenantName, Timestamp>,
}

impl Pauses {
    /// Records what a tenant's head holds back.
    pub(super) fn record_tenant(&mut self, tenant: Option<Tenant>, now: Timestamp) {
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
    /// Checks a consumed inbox message: while events are paused, only an operator's message or a
    /// forwarded one is consumed.
    pub(super) fn check_paused_events(
        &self,
        write: &RecordChange,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        self.check_discards(write, transaction)?;
        let Some(head) = self.queue_held_longer(&self.pauses.triggers, write) else {
            return Ok(());
        };
        match read::<InboxMessage>(write.before.as_ref())? {
            Some(message) if head.hosted_in.is_some() && is_forwarded(&message, transaction)? => {
                Ok(())
            }
            Some(message) if !message.by_operator => {
                Err("it was consumed while an operator pauses events".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Checks an item: while results are paused, it gets none.
    pub(super) fn check_paused_results(&self, write: &RecordChange) -> Result<(), String> {
        if self.queue_held_longer(&self.pauses.results, write).is_none() {
            return Ok(());
        }
        let (before, after) = both::<Item>(write.before.as_ref(), write.after.as_ref())?;
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        match (&before.merge_status, &after.merge_status) {
            (MergeStatus::Requested { .. }, MergeStatus::Merged(_)) => {
                Err("its tested state was recorded while an operator pauses results".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the queue of a record if its tenant has been held back long enough for every writer
    /// to know.
    pub(super) fn queue_held_longer(
        &self,
        held: &BTreeMap<TenantName, Timestamp>,
        write: &RecordChange,
    ) -> Option<&Head> {
        if held.is_empty() || self.shape.fault_profile.sleeps > 0 {
            return None;
        }
        let key = super::key_of(write)?;
        let head = self
            .heads
            .values()
            .find(|head| sluice_records::queue::partition(&head.key) == key.partition)?;
        let since = held.get(&head.key.tenant)?;
        (write.at.since(*since) > VISIBLE_MILLIS).then_some(head)
    }
}
