//! Operators who enqueue branches at their current commit.

use super::Actors;
use crate::oracle::Oracle;
use crate::reviews::is_gerrit_project;
use crate::scenarios::enqueued_refs::MANUAL;
use crate::site::{Site, branch_of};
use crate::story::Story;
use sluice_model::git::BranchKey;
use sluice_runtime::Clock as _;

impl Actors {
    /// Enqueues a random GitHub branch at its current commit in the pipeline [`MANUAL`].
    pub(super) fn enqueue_ref(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        let Some((tenant, branch)) = self.draw_branch(site) else { return };
        let Some(tip) = site.store.lock().unwrap().tip(&branch) else { return };
        story.log(
            site.world.now(),
            format!("jo enqueues {branch} at {} in {tenant}/{MANUAL}", tip.id.short()),
        );
        site.enqueue_ref(&branch, &tip.id, &tenant, MANUAL);
        oracle.expect_ref_test(MANUAL, &branch, &tip.id);
    }

    /// Draws a branch of a GitHub project, with its tenant. Returns `None` if the drawn tenant has
    /// no GitHub project or no live layout.
    pub(super) fn draw_branch(&mut self, site: &Site) -> Option<(String, BranchKey)> {
        let tenant = &self.shape.tenants[self.random.below(self.shape.tenants.len())];
        let projects: Vec<&str> = tenant
            .projects
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !is_gerrit_project(name))
            .collect();
        let project = *self.random.one(&projects)?;
        let branch = *self.random.one(&self.shape.branches)?;
        site.has_live_layout(&tenant.name)
            .then(|| (tenant.name.clone(), branch_of(project, branch)))
    }
}
