//! Operators who change what runs for all projects.

use super::People;
use crate::oracle::Oracle;
use crate::plays::reloads::{SURPLUS, SURPLUS_YAML};
use crate::shape::Edition;
use crate::site::{Site, branch_of};
use crate::story::Story;
use sluice_runtime::Clock as _;

impl People {
    /// Has an operator add a job for all projects, or take it away.
    pub(super) fn reload(&mut self, site: &Site, oracle: &mut Oracle, story: &mut Story) {
        self.has_surplus = !self.has_surplus;
        let does = if self.has_surplus { "adds" } else { "takes away" };
        let now = site.world.now();
        story.tell(now, format!("jo {does} the job {SURPLUS}"));
        oracle.reloaded(self.has_surplus, now);
        site.forge.push(&branch_of("org/config", "main"), &[("zuul.yaml", &self.config_text())]);
    }

    /// Returns what the config project is to hold as operators have it by now.
    pub(super) fn config_text(&self) -> String {
        let edition = if self.has_audit { Edition::AsDrawn } else { Edition::WithoutAudit };
        self.shape.config_yaml(edition) + if self.has_surplus { SURPLUS_YAML } else { "" }
    }
}
