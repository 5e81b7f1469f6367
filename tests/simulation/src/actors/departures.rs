//! Operators who remove projects from their tenants, mostly while changes of them are queued, and
//! add them again.

use super::{Actors, Heads};
use crate::oracle::{Membership, Oracle};
use crate::reviews::is_gerrit_project;
use crate::site::{Site, branch_of};
use crate::story::Story;
use sluice_runtime::Clock as _;

/// How many of 1000 actions add a removed project again, if there is one.
const ADDED_PER_MILLE: u64 = 500;

impl Actors {
    /// Removes a GitHub project from its tenant, or adds a removed one again. Each tenant keeps at
    /// least one project. Does nothing if no project can be removed.
    pub(super) fn remove_or_add_project(
        &mut self,
        site: &Site,
        heads: &Heads,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let removed: Vec<String> = self.removed_projects.iter().cloned().collect();
        let added = self
            .random
            .one(&removed)
            .cloned()
            .filter(|_| !removed.is_empty() && self.random.per_mille(ADDED_PER_MILLE));
        let (project, membership) = match added {
            Some(project) => (project, Membership::Added),
            None => match self.draw_removable_project(heads) {
                Some(project) => (project, Membership::Removed),
                None => return,
            },
        };
        let verb = match membership {
            Membership::Added => {
                self.removed_projects.remove(&project);
                "adds"
            }
            Membership::Removed => {
                self.removed_projects.insert(project.clone());
                "removes"
            }
        };
        let (now, tenant) = (site.world.now(), self.shape.tenant_of(&project));
        story.log(now, format!("jo {verb} the project {project} of {tenant}"));
        oracle.record_membership(&branch_of(&project, "main").project, membership, now);
        site.load_main(&self.shape.main_yaml_without(&self.removed_projects), &tenant);
    }

    /// Draws a project that may be removed, one with queued changes if there is any.
    fn draw_removable_project(&mut self, heads: &Heads) -> Option<String> {
        let is_queued = |name: &str| {
            let mut slots = heads.values().flat_map(sluice_gate::Head::slots);
            slots.any(|slot| slot.change.key.project.name() == name)
        };
        let mut removable: Vec<String> = Vec::new();
        for tenant in &self.shape.tenants {
            let here = tenant.projects.iter().map(|(name, _)| name);
            let here: Vec<&String> =
                here.filter(|name| !self.removed_projects.contains(*name)).collect();
            if here.len() > 1 {
                let of_github = here.into_iter().filter(|name| !is_gerrit_project(name));
                removable.extend(of_github.cloned());
            }
        }
        let queued: Vec<String> =
            removable.iter().filter(|name| is_queued(name)).cloned().collect();
        let from = if queued.is_empty() { removable } else { queued };
        self.random.one(&from).cloned()
    }
}
