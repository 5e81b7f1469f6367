//! Dead letters: messages that failed five times are sent again after a while, unless the sweep
//! finds their cell anyway.

use crate::Timer;
use sluice_model::wakeup::Wakeup;
use sluice_records::codec::{decode_or_log, get};
use sluice_records::dead_letter::{self, DeadLetter};
use sluice_records::{delivery, landing, provider, queue, report, schedule, tenant};
use sluice_runtime::batch::{Reception, ReconcileError};
use sluice_runtime::cell;
use sluice_runtime::record::{Key, TransactionOutcome};

/// Seconds after which a dead letter is sent again.
const REVIVE_SECONDS: u32 = 300;

impl Timer {
    /// Sends the outbox of the cell's head, if there is a head. Then sends the message of a dead
    /// letter again, delayed by five minutes, and records that. The message is dropped instead,
    /// without an error, if the cell is due within five minutes, because the sweep then wakes the
    /// cell, if a copy was sent less than five minutes ago, or if a concurrent run sends one. The
    /// last two do not apply to a redelivery, whose earlier run may not have sent the message.
    ///
    /// Of each wakeup at most one copy is in flight: a cell that fails each time is woken again and
    /// again, and each of those messages dies.
    pub(crate) async fn revive(
        &self,
        wakeup: &Wakeup,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        if let Some(key) = head_of(wakeup)
            && let Some(record) = get(&self.ports, &key).await?
        {
            // The failed runs may have committed without sending their outbox.
            cell::send(&self.ports, &record.outbox).await?;
            let soon = self.ports.clock.now().plus_seconds(REVIVE_SECONDS.into());
            // A record that is due only in days (a schedule, a tenant) would stay stuck until then.
            if record.due.as_ref().is_some_and(|due| due.at <= soon) {
                tracing::error!(
                    ?wakeup,
                    "dropping a dead letter, because the sweep wakes its cell; find out why it failed"
                );
                return Ok(());
            }
        }
        let key = dead_letter::key(wakeup)?;
        let record = get(&self.ports, &key).await?;
        let before = record.as_ref().and_then(decode_or_log::<DeadLetter>);
        let now = self.ports.clock.now();
        // A redelivery means that an earlier run stored that it is in flight, and may not have sent
        // it.
        let is_on_its_way = reception == Reception::First
            && before
                .as_ref()
                .is_some_and(|before| now < before.revived_at.plus_seconds(REVIVE_SECONDS.into()));
        if is_on_its_way {
            tracing::error!(?wakeup, "dropping a dead letter, because a copy is in flight");
            return Ok(());
        }
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let next = DeadLetter { wakeup: wakeup.clone(), revived_at: now, times };
        let token = self.ports.entropy.token();
        let write = dead_letter::put(record.as_ref(), &next, &token)?;
        if let TransactionOutcome::ConditionFailed(_) =
            self.ports.records.commit(vec![write], &token).await?
            && reception == Reception::First
        {
            return Ok(()); // A concurrent run sends it.
        }
        tracing::error!(?wakeup, times, "sending a dead letter again; find out why it failed");
        let wake = Wakeup::Wake { then: Box::new(wakeup.clone()), delay_seconds: REVIVE_SECONDS };
        Ok(cell::send(&self.ports, &[wake]).await?)
    }
}

/// Returns the key of the head record whose outbox the message of this wakeup sends; `None` if
/// there is none. [`Timer::revive`] sends it instead when the message is given up.
fn head_of(wakeup: &Wakeup) -> Option<Key> {
    match wakeup {
        Wakeup::Delivery { delivery, .. } => Some(delivery::key(delivery)),
        Wakeup::Queue { queue } | Wakeup::Answer { queue } => Some(queue::head_key(queue)),
        Wakeup::Tenant { tenant } => Some(tenant::key(tenant)),
        Wakeup::Schedule { tenant } => Some(schedule::key(tenant)),
        Wakeup::Pool { provider } | Wakeup::ProviderChange { provider, .. } => {
            Some(provider::head_key(provider))
        }
        Wakeup::Report { report, .. } => Some(match landing::parse(report) {
            Some((item, generation)) => landing::key(&item, generation),
            None => report::key(&report::parse(report).0),
        }),
        Wakeup::Merge { .. }
        | Wakeup::Build { .. }
        | Wakeup::Image { .. }
        | Wakeup::Wake { .. } => None,
    }
}
