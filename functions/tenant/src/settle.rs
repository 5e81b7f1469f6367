//! Settling: configuration that is about to land is waited for, whatever else moves meanwhile.
//!
//! From the intent to land until its end nobody knows which configuration is right, so nothing else lands, and `live` is not
//! raised: not by a push to another branch or repository either. The landing's own record says when it is over.
//!
//! A landing that nobody can carry out would stop its whole tenant. Its record says since when that is so, as whoever tried wrote; after
//! a while the tenant goes on with the configuration that it has, tells so among its problems, and keeps the landing in mind: what it
//! brings is read when it ends, whenever that is.

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

/// Seconds after which the same is done of a landing of which nobody says anything: whoever would say so is not there himself.
const SILENCE_SECONDS: u64 = 1_800;

/// Records that one call reads.
const KEYS_MAX: usize = 100;

/// Projects that configuration landed in since the live layout.
#[derive(Debug, Default)]
pub(crate) struct WaitedFor {
    projects: BTreeSet<ProjectName>,
    patiently: BTreeSet<ProjectName>,
    given_up: Vec<AwaitedLanding>,
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

    /// Returns the landings that are not over and are waited for no more.
    pub(crate) fn given_up(&self) -> &[AwaitedLanding] {
        &self.given_up
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
                let Some(ended_at) = ended_at else {
                    let Some(why) = given_up(awaited, order.as_ref(), now) else { return Ok(None) };
                    if awaited.given_up.is_none() {
                        let project = &awaited.project;
                        tracing::error!(tenant = %head.name, item = %awaited.item, %project, why, "a landing of configuration does not end, and its tenant goes on");
                    }
                    waited_for.given_up.push(AwaitedLanding { given_up: Some(why), ..awaited.clone() });
                    continue;
                };
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

/// Returns why a landing that is not over is waited for no more, if so: its record says for long that it cannot be carried out, or
/// for very long nothing at all. Once given up it stays so, lest the tenant stop again with each sign of life.
fn given_up(awaited: &AwaitedLanding, order: Option<&Landing>, now: Timestamp) -> Option<String> {
    let known = awaited.given_up.clone();
    let trouble = order.and_then(|order| order.trouble.as_ref());
    let lasting = trouble.filter(|trouble| trouble.since.plus_seconds(PATIENCE_SECONDS) <= now);
    let troubled = || {
        let change = order.map(|order| order.change.to_string()).unwrap_or_default();
        lasting.map(|trouble| format!("{change} cannot be landed since {}: {}", trouble.since.to_iso(), trouble.why))
    };
    let is_silent = order.is_some() && awaited.ordered_at.plus_seconds(SILENCE_SECONDS) <= now;
    let silent = || {
        let change = &order.filter(|_| is_silent)?.change;
        Some(format!("{change} is to land since {}, and nobody says what keeps it", awaited.ordered_at.to_iso()))
    };
    known.or_else(troubled).or_else(silent)
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
