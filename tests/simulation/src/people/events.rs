//! Operators who hold a tenant's events back for a while, and let them go on.

use super::{Heads, People};
use crate::site::Site;
use crate::story::Story;
use sluice_model::TenantName;
use sluice_runtime::Clock as _;

/// What is held back: what would enter queues or leave them, and what is answered.
const HELD_BACK: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];

impl People {
    /// Has an operator hold events of a tenant back, or let all of them go on.
    pub(super) fn hold_back(&mut self, site: &Site, heads: &Heads, story: &mut Story) {
        let shape = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let tenant = TenantName(shape.name.clone());
        let what =
            self.random.one(&HELD_BACK).copied().filter(|_| !self.held_back.contains(&tenant));
        let (triggers, results) = what.unwrap_or((false, false));
        self.say_of_events(tenant, (false, triggers, results), (site, heads), story);
    }

    /// Has operators let everything go on that they hold back. Returns whether there was anything.
    pub(super) fn let_all_go_on(&mut self, site: &Site, heads: &Heads, story: &mut Story) -> bool {
        let Some(tenant) = self.held_back.first().cloned() else { return false };
        self.say_of_events(tenant, (false, false, false), (site, heads), story);
        true
    }

    /// Has an operator say whether events of a tenant are discarded, whether they wait, and whether
    /// answers do.
    pub(super) fn say_of_events(
        &mut self,
        tenant: TenantName,
        (discards, triggers, results): (bool, bool, bool),
        (site, heads): (&Site, &Heads),
        story: &mut Story,
    ) {
        let queues = heads.keys().filter(|queue| queue.tenant == tenant);
        let Some(told) = site.hold_back(&tenant, (discards, triggers, results), queues) else {
            return;
        };
        story.tell(site.world.now(), format!("jo has a word about {tenant}: {told}"));
        if discards || triggers || results {
            self.held_back.insert(tenant);
        } else {
            self.held_back.remove(&tenant);
        }
    }
}
