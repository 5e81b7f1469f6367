//! Operators who want nodes of failed builds kept for a while, and some of whom think better of it.

use super::People;
use crate::reviews::host_of;
use crate::site::Site;
use crate::story::Story;
use sluice_gate::autohold::{ANY, Autohold};
use sluice_model::{ProjectName, TenantName};
use sluice_records::autohold;
use sluice_runtime::Clock as _;
use sluice_runtime::record::{Expect, Write};

/// Times out of 1000 that somebody takes back what was asked for.
const RELEASED_PER_MILLE: u64 = 300;
/// Seconds for which nodes are kept, at least and at most: all of a story's come to their end
/// within its bound.
const KEPT_SECONDS: (u64, u64) = (30, 200);

impl People {
    /// Has an operator ask for nodes of failed builds, or take that back.
    pub(super) fn ask_to_hold(&mut self, site: &Site, story: &mut Story) {
        let now = site.world.now();
        if !self.holds.is_empty() && self.random.per_mille(RELEASED_PER_MILLE) {
            let (tenant, id) = self.holds.swap_remove(self.random.below(self.holds.len()));
            story.tell(now, format!("jo wants nothing held by {id} of {tenant} any more"));
            site.world.write_directly(Write::Delete {
                key: autohold::key(&tenant, &id),
                expect: Expect::Anything,
            });
            return;
        }
        let shape = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let (project, _) = &shape.projects[self.random.below(shape.projects.len())];
        self.holds_count += 1;
        let (least, most) = KEPT_SECONDS;
        let wish = Autohold {
            id: format!("{:010}", self.holds_count),
            tenant: TenantName(shape.name.clone()),
            project: ProjectName::new(host_of(project), project),
            job: "unit".into(),
            ref_filter: ANY.to_owned(),
            reason: "to look at it".to_owned(),
            by: "jo".to_owned(),
            max_count: if self.random.per_mille(500) { 1 } else { 2 },
            node_expiration_seconds: Some(self.random.between(least, most)),
            created_at: now,
            held: Vec::new(),
        };
        story.tell(
            now,
            format!(
                "jo wants nodes of {} failed builds of {project} held ({})",
                wish.max_count, wish.id
            ),
        );
        if let Ok(write) = autohold::create(&wish) {
            site.world.write_directly(write);
            self.holds.push((wish.tenant, wish.id));
        }
    }
}
