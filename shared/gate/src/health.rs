//! Counts consecutive failures of a pipeline. Once they reach the configured limit, further results
//! go only to the `disabled` reporters.
//!
//! The count spans all queues of a pipeline, so it is a record of its own. It is written in the
//! transaction that removes the item. Only pipelines with `disable-after-consecutive-failures` have
//! one.

use crate::report::Occasion;
use serde::{Deserialize, Serialize};
use sluice_model::{PipelineName, TenantName};

/// The failure count of one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The tenant.
    pub tenant: TenantName,
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The number of the layout that it was counted under. A newer layout resets it.
    pub layout: u64,
    /// Failures since the last success.
    pub failures: u32,
    /// Whether the limit was reached, so that only the `disabled` reporters are used.
    pub disabled: bool,
}

impl Health {
    /// Creates the record of a pipeline without failures.
    pub fn new(tenant: TenantName, pipeline: PipelineName, layout: u64) -> Self {
        Self { tenant, pipeline, layout, failures: 0, disabled: false }
    }

    /// Returns the count as it applies under `layout`. A newer layout resets it, which enables the
    /// pipeline again. An older `layout` than the counted one changes nothing.
    #[must_use]
    pub fn for_layout(self, layout: u64) -> Self {
        if self.layout >= layout { self } else { Self::new(self.tenant, self.pipeline, layout) }
    }

    /// Counts the result of an item. A success resets the count. A failure increments it and
    /// disables the pipeline once the count reaches `most`; a success does not enable it again.
    /// Other occasions change nothing, not even a merge conflict. The caller makes the report on a
    /// failure first: the one that reaches the limit is still reported as usual.
    pub(crate) fn count(&mut self, occasion: Occasion, most: u32) {
        match occasion {
            Occasion::Success => self.failures = 0,
            Occasion::Failure => {
                self.failures = self.failures.saturating_add(1);
                self.disabled |= self.failures >= most;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(occasions: &[Occasion]) -> Health {
        let mut health = Health::new("t".into(), "check".into(), 3);
        for occasion in occasions {
            health.count(*occasion, 2);
        }
        health
    }

    /// R04: a dequeue or a merge conflict neither counts nor resets the count.
    #[test]
    fn failures_count_while_no_success_is_between_them() {
        use Occasion::{Dequeue, Failure, MergeConflict, Success};
        assert!(!after(&[Failure, Success, Failure]).disabled);
        assert!(after(&[Failure, Dequeue, MergeConflict, Failure]).disabled);
        assert!(after(&[Failure, Failure, Success]).disabled, "a success enables nothing");
    }

    /// R04: a reconfiguration enables the pipeline again; a gate that still uses an older layout
    /// does not.
    #[test]
    fn a_newer_layout_resets_the_count_and_an_older_one_keeps_it() {
        let disabled = after(&[Occasion::Failure, Occasion::Failure]);
        assert!(disabled.clone().for_layout(3).disabled && disabled.clone().for_layout(2).disabled);
        assert_eq!(disabled.for_layout(4), Health::new("t".into(), "check".into(), 4));
    }
}
