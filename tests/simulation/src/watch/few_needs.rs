//! What stands in a queue needs no more changes than its tenant takes one in with.

use super::Watch;
use sluice_gate::{Head, Item};

impl Watch {
    /// Judges what an item needs.
    pub(super) fn needs_few(&self, head: &Head, item: &Item) -> Result<(), String> {
        let Some(most) = self.shape.needs_max(head.key.tenant.as_str()) else { return Ok(()) };
        let (change, count) = (&item.candidate.change, item.candidate.needs.len());
        if count <= most {
            return Ok(());
        }
        Err(format!(
            "{change} stands in it and needs {count} changes, and its tenant takes none in with more than {most}"
        ))
    }
}
