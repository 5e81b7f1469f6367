//! How many items of a pipeline failed one after the other: after so many, reports go to the
//! `disabled` reporters alone.
//!
//! It counts over all queues of a pipeline, so it is a record of its own, written in one
//! transaction with what leaves. Only pipelines that ask for it
//! (`disable-after-consecutive-failures`) have one.

use crate::report::Occasion;
use serde::{Deserialize, Serialize};
use sluice_model::{PipelineName, TenantName};

/// The failures of one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The tenant.
    pub tenant: TenantName,
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The layout under which it was counted; under another one counting begins anew.
    pub layout: u64,
    /// Failures since the last success.
    pub failures: u32,
    /// Whether there were too many.
    pub disabled: bool,
}

impl Health {
    /// Returns a pipeline in which nothing has failed yet.
    pub fn new(tenant: TenantName, pipeline: PipelineName, layout: u64) -> Self {
        Self { tenant, pipeline, layout, failures: 0, disabled: false }
    }

    /// Returns what is known under a layout: a reconfiguration enables a pipeline again. Whoever
    /// still decides by an older layout than it was counted under takes nothing back.
    #[must_use]
    pub fn under(self, layout: u64) -> Self {
        if self.layout >= layout { self } else { Self::new(self.tenant, self.pipeline, layout) }
    }

    /// Counts an item that leaves. The last failure that is one too many is still reported as
    /// usual.
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

    /// R04: what neither passed nor failed its jobs tells nothing about the pipeline.
    #[test]
    fn failures_count_while_no_success_is_between_them() {
        use Occasion::{Dequeue, Failure, MergeConflict, Success};
        assert!(!after(&[Failure, Success, Failure]).disabled);
        assert!(after(&[Failure, Dequeue, MergeConflict, Failure]).disabled);
        assert!(after(&[Failure, Failure, Success]).disabled, "a success enables nothing");
    }

    /// R04: re-enabled by reconfiguration, and not by somebody who has not heard of it yet.
    #[test]
    fn a_newer_layout_counts_anew_and_an_older_one_takes_nothing_back() {
        let disabled = after(&[Occasion::Failure, Occasion::Failure]);
        assert!(disabled.clone().under(3).disabled && disabled.clone().under(2).disabled);
        assert_eq!(disabled.under(4), Health::new("t".into(), "check".into(), 4));
    }
}
