//! Settling: configuration that is about to land is waited for, whatever else moves meanwhile.
//!
//! From the intent to land until its end nobody knows which configuration is right, so nothing else lands, and `live` is not
//! raised: not by a push to another branch or repository either. The landing's own record says when it is over.

use crate::Tenants;
use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_model::{ProjectName, Timestamp};
use sluice_records::codec::{decode_foreign, get};
use sluice_records::landing;
use sluice_records::tenant::{AwaitedLanding, FirstLanding, Tenant};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;
use std::collections::BTreeSet;

/// Seconds for which a project that configuration landed in is waited for while its forge is silent. After that the tenant goes
/// on with what it has, or one forge would hold up the others for good.
const PATIENCE_SECONDS: u64 = 600;

/// Records that one call reads.
const KEYS_MAX: usize = 100;

/// Projects that configuration landed in since the live layout.
#[derive(Debug, Default)]
pub(crate) struct WaitedFor {
    projects: BTreeSet<ProjectName>,
    patiently: BTreeSet<ProjectName>,
}

impl WaitedFor {
    /// Returns all of them; each is read again.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ProjectName> {
        self.projects.iter()
    }

    /// Returns those for which a silent forge is waited.
    pub(crate) fn patiently(&self) -> &BTreeSet<ProjectName> {
        &self.patiently
    }
}

impl Tenants {
    /// Returns the projects to read after the landings that were waited for, or `None` while one of them is under way.
    pub(crate) async fn settled(&self, head: &Tenant) -> Result<Option<WaitedFor>, LookError> {
        let mut waited_for = WaitedFor::default();
        let now = self.ports.clock.now();
        for some in head.landings.chunks(KEYS_MAX) {
            let keys: Vec<Key> = some.iter().map(|awaited| landing::key(&awaited.item, awaited.generation)).collect();
            for (awaited, record) in some.iter().zip(self.ports.records.get(&keys).await?) {
                let order = record.as_ref().and_then(decode_foreign::<Landing>);
                let mut ended_at = ended_at(awaited, order.as_ref(), now);
                if let (None, None, Some(first)) = (ended_at, &order, &awaited.first) {
                    ended_at = self.will_never_land(awaited, first).await?;
                }
                let Some(ended_at) = ended_at else { return Ok(None) };
                waited_for.projects.insert(awaited.project.clone());
                if ended_at.plus_seconds(PATIENCE_SECONDS) > now {
                    waited_for.patiently.insert(awaited.project.clone());
                }
            }
        }
        Ok(Some(waited_for))
    }
}

impl Tenants {
    /// Returns since when it is known that a change of a bundle does not land from the state that was awaited: one that was to land
    /// before it did not. `None` while it may still be ordered.
    async fn will_never_land(
        &self,
        awaited: &AwaitedLanding,
        first: &FirstLanding,
    ) -> Result<Option<Timestamp>, LookError> {
        let key = landing::key(&first.item, first.generation);
        let Some(order) = get(&self.ports, &key).await?.as_ref().and_then(decode_foreign::<Landing>) else {
            return Ok(None);
        };
        let before = order.together.iter().take_while(|other| other.item != awaited.item);
        let keys: Vec<Key> = before.map(|other| landing::key(&other.item, other.generation)).collect();
        let mut ends = vec![not_landed_at(&order)];
        if !keys.is_empty() {
            let records = self.ports.records.get(&keys).await?;
            let orders = records.iter().flatten().filter_map(decode_foreign::<Landing>);
            ends.extend(orders.map(|order| not_landed_at(&order)));
        }
        Ok(ends.into_iter().flatten().next())
    }
}

/// Returns when a landing ended without having landed what was tested.
fn not_landed_at(order: &Landing) -> Option<Timestamp> {
    match &order.state {
        LandingState::Ended { end: LandingEnd::Landed { .. }, .. } => None,
        LandingState::Ended { at, .. } => Some(*at),
        LandingState::Wanted | LandingState::Attempting { .. } => None,
    }
}

/// Returns when a landing ended. Its record may be seen a moment later than the tenant's, which was written with it; one that is
/// missing for long was forgotten, or cannot be read.
fn ended_at(awaited: &AwaitedLanding, order: Option<&Landing>, now: Timestamp) -> Option<Timestamp> {
    match order.map(|order| &order.state) {
        Some(LandingState::Ended { at, .. }) => Some(*at),
        Some(LandingState::Wanted | LandingState::Attempting { .. }) => None,
        None if awaited.ordered_at.plus_seconds(PATIENCE_SECONDS) < now => Some(awaited.ordered_at),
        None => None,
    }
}
