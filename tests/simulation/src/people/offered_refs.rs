//! Operators who have a branch tested as it is at that moment.

use super::People;
use crate::oracle::Oracle;
use crate::plays::offered_refs::MANUAL;
use crate::reviews::is_review;
use crate::site::{Site, branch_of};
use crate::story::Story;
use sluice_model::git::BranchKey;
use sluice_runtime::Clock as _;

impl People {
    /// Has an operator offer a branch of a project at GitHub, as it is, to the pipeline that
    /// nothing starts.
    pub(super) fn offer_ref(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let Some((tenant, branch)) = self.one_branch(site) else { return };
        let Some(tip) = site.store.lock().unwrap().tip(&branch) else { return };
        story.tell(
            site.world.now(),
            format!("jo offers {branch} at {} to {tenant}/{MANUAL}", tip.id.short()),
        );
        site.offer_ref(&branch, &tip.id, &tenant, MANUAL);
        oracle.is_to_be_tested(MANUAL, &branch, &tip.id);
    }

    /// Draws a branch of a project that is at GitHub, with its tenant; of one that nobody has read
    /// yet none.
    pub(super) fn one_branch(&mut self, site: &Site) -> Option<(String, BranchKey)> {
        let tenant = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let projects: Vec<&str> = tenant
            .projects
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !is_review(name))
            .collect();
        let project = *self.random.one(&projects)?;
        let branch = *self.random.one(&self.shape.branches)?;
        site.is_read(&tenant.name).then(|| (tenant.name.clone(), branch_of(project, branch)))
    }
}
