//! `max-dependencies`: no queued change has more dependencies than its tenant allows.

use super::Watch;
use sluice_gate::{Head, Item};

impl Watch {
    /// Checks the number of dependencies of an item.
    pub(super) fn check_dependency_limit(&self, head: &Head, item: &Item) -> Result<(), String> {
        let Some(most) = self.shape.needs_max(head.key.tenant.as_str()) else { return Ok(()) };
        let (change, count) = (&item.candidate.change, item.candidate.needs.len());
        if count <= most {
            return Ok(());
        }
        Err(format!("{change} is queued with {count} dependencies, but its tenant allows {most}"))
    }
}
