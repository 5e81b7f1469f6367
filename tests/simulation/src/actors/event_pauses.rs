//! Operators who pause a tenant's events for a while and resume them.

use super::{Actors, Heads};
use crate::site::{EventSwitches, Site};
use crate::story::Story;
use sluice_model::TenantName;
use sluice_runtime::Clock as _;

/// The possible pauses: of trigger events, of result events, or of both.
const PAUSES: [EventSwitches; 3] = [
    EventSwitches { discard_triggers: false, pause_triggers: true, pause_results: false },
    EventSwitches { discard_triggers: false, pause_triggers: false, pause_results: true },
    EventSwitches { discard_triggers: false, pause_triggers: true, pause_results: true },
];

impl Actors {
    /// Pauses events of a random tenant, or clears all switches of that tenant.
    pub(super) fn toggle_event_pause(&mut self, site: &Site, heads: &Heads, story: &mut Story) {
        let shape = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let tenant = TenantName(shape.name.clone());
        let pause = self.random.one(&PAUSES).copied();
        let pause = pause.filter(|_| !self.switched.contains(&tenant));
        self.set_event_switches(tenant, pause.unwrap_or_default(), site, heads, story);
    }

    /// Clears the switches of one tenant, if any tenant has some. Returns whether one had.
    pub(super) fn resume_all_events(
        &mut self,
        site: &Site,
        heads: &Heads,
        story: &mut Story,
    ) -> bool {
        let Some(tenant) = self.switched.first().cloned() else { return false };
        self.set_event_switches(tenant, EventSwitches::default(), site, heads, story);
        true
    }

    /// Sets which events of a tenant are discarded or paused, and remembers whether any are. Does
    /// nothing if the tenant's record cannot be changed.
    pub(super) fn set_event_switches(
        &mut self,
        tenant: TenantName,
        switches: EventSwitches,
        site: &Site,
        heads: &Heads,
        story: &mut Story,
    ) {
        let queues = heads.keys().filter(|queue| queue.tenant == tenant);
        let Some(description) = site.set_event_switches(&tenant, switches, queues) else {
            return;
        };
        story.log(site.world.now(), format!("jo switches events of {tenant}: {description}"));
        if switches == EventSwitches::default() {
            self.switched.remove(&tenant);
        } else {
            self.switched.insert(tenant);
        }
    }
}
