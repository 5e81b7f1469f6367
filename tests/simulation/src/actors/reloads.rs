//! Operators who add and remove a job for all projects.

use super::Actors;
use crate::oracle::{JobChange, Oracle};
use crate::scenarios::reloads::{SURPLUS, SURPLUS_YAML};
use crate::shape::ConfigVariant;
use crate::site::{Site, branch_of};
use crate::story::Story;
use sluice_runtime::Clock as _;

impl Actors {
    /// Adds the job [`SURPLUS`] for all projects, or removes it.
    pub(super) fn toggle_surplus_job(
        &mut self,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        self.has_surplus = !self.has_surplus;
        let verb = if self.has_surplus { "adds" } else { "removes" };
        let now = site.world.now();
        story.log(now, format!("jo {verb} the job {SURPLUS}"));
        let change = if self.has_surplus { JobChange::Added } else { JobChange::Removed };
        oracle.record_job_change(change, now);
        site.forge.push(&branch_of("org/config", "main"), &[("zuul.yaml", &self.config_text())]);
    }

    /// Returns the current content of the config project's configuration file.
    pub(super) fn config_text(&self) -> String {
        let variant =
            if self.has_audit { ConfigVariant::AsDrawn } else { ConfigVariant::WithoutAudit };
        self.shape.config_yaml(variant) + if self.has_surplus { SURPLUS_YAML } else { "" }
    }
}
