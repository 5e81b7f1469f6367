//! Dead letters: messages that failed five times are sent again after a while, unless somebody
//! looks there anyway.

use crate::Timer;
use sluice_model::poke::Poke;
use sluice_records::codec::{decode_foreign, get};
use sluice_records::dead::{self, DeadLetter};
use sluice_records::{delivery, landing, provider, queue, report, schedule, tenant};
use sluice_runtime::batch::{Heard, LookError};
use sluice_runtime::cell;
use sluice_runtime::record::{Committed, Key};

/// Seconds after which a dead letter is sent again.
const REVIVE_SECONDS: u32 = 300;

impl Timer {
    /// Gives a dead letter another life.
    ///
    /// Of each poke one copy at most is on its way: a cell that fails at each look is poked again
    /// and again, and each of those messages dies. Where a record behind is due before that, the
    /// sweep pokes it each minute, and the dead letter is not needed at all.
    pub(crate) async fn revive(&self, dead: &Poke, heard: Heard) -> Result<(), LookError> {
        if let Some(key) = head_of(dead)
            && let Some(record) = get(&self.ports, &key).await?
        {
            // The looks that it led to may have died before they could send what they decided.
            cell::send(&self.ports, &record.outbox).await?;
            let soon = self.ports.clock.now().plus_seconds(REVIVE_SECONDS.into());
            // What is due only in days (a schedule, a tenant to read again) would be left until
            // then.
            if record.due.as_ref().is_some_and(|due| due.at <= soon) {
                tracing::error!(poke = ?dead, "a dead letter is left to the sweep, which looks there too; whatever kept it from being handled should be mended");
                return Ok(());
            }
        }
        let key = dead::key(dead)?;
        let record = get(&self.ports, &key).await?;
        let before = record.as_ref().and_then(decode_foreign::<DeadLetter>);
        let now = self.ports.clock.now();
        // Received again means that an earlier look wrote that it is on its way, and may not have
        // sent it.
        let is_on_its_way = heard == Heard::First
            && before
                .as_ref()
                .is_some_and(|before| now < before.revived_at.plus_seconds(REVIVE_SECONDS.into()));
        if is_on_its_way {
            tracing::error!(poke = ?dead, "a dead letter is one too many: the same is on its way");
            return Ok(());
        }
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let next = DeadLetter { poke: dead.clone(), revived_at: now, times };
        let token = self.ports.entropy.token();
        let write = dead::put(record.as_ref(), &next, &token)?;
        if let Committed::Lost(_) = self.ports.records.commit(vec![write], &token).await?
            && heard == Heard::First
        {
            return Ok(()); // Somebody else sends it at this moment.
        }
        tracing::error!(poke = ?dead, times, "a dead letter comes to life again; whatever kept it from being handled should be mended");
        let wake = Poke::Wake { then: Box::new(dead.clone()), delay_seconds: REVIVE_SECONDS };
        Ok(cell::send(&self.ports, &[wake]).await?)
    }
}

/// Returns the key of the head that a look at a poke commits on, where it leaves its outbox to its
/// message.
fn head_of(poke: &Poke) -> Option<Key> {
    match poke {
        Poke::Delivery { delivery, .. } => Some(delivery::key(delivery)),
        Poke::Queue { queue } | Poke::Answer { queue } => Some(queue::head_key(queue)),
        Poke::Tenant { tenant } => Some(tenant::key(tenant)),
        Poke::Schedule { tenant } => Some(schedule::key(tenant)),
        Poke::Pool { provider } => Some(provider::head_key(provider)),
        Poke::Report { report, .. } => Some(match landing::parse(report) {
            Some((item, generation)) => landing::key(&item, generation),
            None => report::key(&report::parse(report).0),
        }),
        Poke::Merge { .. } | Poke::Build { .. } | Poke::Image { .. } | Poke::Wake { .. } => None,
    }
}
