//! Operators who have the events of a tenant discarded for a while.

use super::{Heads, People};
use crate::site::Site;
use crate::story::Story;
use sluice_model::TenantName;

impl People {
    /// Has an operator discard events of a tenant, or let all of them go on.
    pub(super) fn discard(&mut self, site: &Site, heads: &Heads, story: &mut Story) {
        let shape = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let tenant = TenantName(shape.name.clone());
        let discards = !self.held_back.contains(&tenant);
        self.say_of_events(tenant, (discards, false, false), (site, heads), story);
    }
}
