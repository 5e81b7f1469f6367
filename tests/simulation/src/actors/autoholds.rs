//! Operators who request autoholds, which keep nodes of failed builds, and may delete them again.

use super::Actors;
use crate::reviews::host_of;
use crate::site::Site;
use crate::story::Story;
use sluice_gate::autohold::{ANY, Autohold};
use sluice_model::{ProjectName, TenantName};
use sluice_records::autohold;
use sluice_runtime::Clock as _;
use sluice_runtime::record::{Expect, Write};

/// How many of 1000 actions delete an autohold, if there is one.
const DELETED_PER_MILLE: u64 = 300;
/// The shortest and longest time in seconds for which nodes are held. All holds expire before the
/// end of the run.
const HOLD_SECONDS: (u64, u64) = (30, 200);

impl Actors {
    /// Requests an autohold for a random project, or deletes an earlier request.
    pub(super) fn toggle_autohold(&mut self, site: &Site, story: &mut Story) {
        let now = site.world.now();
        if !self.holds.is_empty() && self.random.per_mille(DELETED_PER_MILLE) {
            let (tenant, id) = self.holds.swap_remove(self.random.below(self.holds.len()));
            story.log(now, format!("jo deletes the autohold {id} of {tenant}"));
            site.world.write_unchecked(Write::Delete {
                key: autohold::key(&tenant, &id),
                expect: Expect::Anything,
            });
            return;
        }
        let shape = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let (project, _) = &shape.projects[self.random.below(shape.projects.len())];
        self.holds_count += 1;
        let (least, most) = HOLD_SECONDS;
        let request = Autohold {
            id: format!("{:010}", self.holds_count),
            tenant: TenantName(shape.name.clone()),
            project: ProjectName::new(host_of(project), project),
            job: "unit".into(),
            ref_filter: ANY.to_owned(),
            reason: "to look at it".to_owned(),
            by: "jo".to_owned(),
            max_count: if self.random.per_mille(500) { 1 } else { 2 },
            node_expiration_seconds: Some(self.random.between(least, most)),
            ssh_key: None,
            created_at: now,
            held: Vec::new(),
        };
        story.log(
            now,
            format!(
                "jo requests an autohold for {} failed builds of {project} ({})",
                request.max_count, request.id
            ),
        );
        if let Ok(write) = autohold::create(&request) {
            site.world.write_unchecked(write);
            self.holds.push((request.tenant, request.id));
        }
    }
}
