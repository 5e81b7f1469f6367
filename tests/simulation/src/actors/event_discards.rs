//! Operators who have a tenant's trigger events discarded for a while.

use super::{Actors, Heads};
use crate::site::{EventSwitches, Site};
use crate::story::Story;
use sluice_model::TenantName;

impl Actors {
    /// Has trigger events of a random tenant discarded, or clears all switches of that tenant.
    pub(super) fn toggle_event_discard(&mut self, site: &Site, heads: &Heads, story: &mut Story) {
        let shape = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let tenant = TenantName(shape.name.clone());
        let discard_triggers = !self.switched.contains(&tenant);
        let switches = EventSwitches { discard_triggers, ..EventSwitches::default() };
        self.set_event_switches(tenant, switches, site, heads, story);
    }
}
