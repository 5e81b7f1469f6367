//! Artifacts: a job gets the artifacts of all changes ahead that its own is tested on, the nearest
//! first, and only existing ones.

use super::Watch;
use super::graphs::named;
use crate::graphs::{IMAGE, USES};
use sluice_model::BuildId;
use sluice_model::build::{BuildResult, Order};
use std::collections::BTreeSet;

/// Builds with artifacts.
#[derive(Default)]
pub(super) struct Artifacts {
    /// Builds of the providing job.
    ordered: BTreeSet<BuildId>,
    /// Those that passed.
    made: BTreeSet<BuildId>,
}

impl Artifacts {
    /// Records the end of a build.
    pub(super) fn record_end(&mut self, build: &BuildId, result: BuildResult) {
        if result.passed() && self.ordered.contains(build) {
            self.made.insert(build.clone());
        }
    }
}

impl Watch {
    /// Checks which provider builds an ordered build names. In a gate without bundles, these are
    /// exactly the builds of the changes that it is tested on.
    pub(super) fn check_artifacts(&mut self, order: &Order) -> Result<(), String> {
        if order.job.as_str() == IMAGE {
            self.artifacts.ordered.insert(order.build.clone());
        }
        let (job, change, given) = (&order.job, &order.change, &order.providers);
        if let Some(other) = given.iter().find(|build| !self.artifacts.made.contains(*build)) {
            return Err(format!(
                "{job} of {change} gets artifacts of build {other}, which made none"
            ));
        }
        let Some(item) = self.items.get(&order.item).filter(|_| job.as_str() == USES) else {
            return Ok(());
        };
        let chain = self.chain(order);
        if chain.iter().chain([&item]).any(|item| !item.candidate.bundle.is_empty()) {
            return Ok(());
        }
        let mut due = Vec::new();
        for ahead in chain {
            let Some(image) = named(ahead, IMAGE) else { continue };
            let Some(build) = image.build.as_ref().filter(|_| image.satisfies_dependents()) else {
                let ahead = &ahead.candidate.change;
                return Err(format!(
                    "{job} of {change} is ordered before the artifact of {ahead} exists"
                ));
            };
            due.push(build);
        }
        // In check each change has its own queue, and artifacts come from other queues.
        if order.queue.pipeline.as_str() == "gate" && !given.iter().eq(due.iter().copied()) {
            return Err(format!(
                "{job} of {change} gets artifacts of {given:?} instead of {due:?}"
            ));
        }
        Ok(())
    }
}
