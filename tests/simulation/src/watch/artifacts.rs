//! What jobs are given that changes before their own made: all of it, the nearest first, and
//! nothing that is not there.

use super::Watch;
use super::graphs::named;
use crate::graphs::{IMAGE, USES};
use sluice_model::BuildId;
use sluice_model::build::{BuildResult, Order};
use std::collections::BTreeSet;

/// What is known of what was made.
#[derive(Default)]
pub(super) struct Artifacts {
    /// Builds that were to make something.
    ordered: BTreeSet<BuildId>,
    /// Those that did.
    made: BTreeSet<BuildId>,
}

impl Artifacts {
    /// Hears that a build ended.
    pub(super) fn ended(&mut self, build: &BuildId, result: BuildResult) {
        if result.passed() && self.ordered.contains(build) {
            self.made.insert(build.clone());
        }
    }
}

impl Watch {
    /// Judges what a build that is ordered is given: only what was made. Of one queue it is known
    /// what each of those has made that its change is tested on, but for bundles, which share
    /// builds: it waits for all of that.
    pub(super) fn is_given(&mut self, order: &Order) -> Result<(), String> {
        if order.job.as_str() == IMAGE {
            self.artifacts.ordered.insert(order.build.clone());
        }
        let (job, change, given) = (&order.job, &order.change, &order.providers);
        if let Some(other) = given.iter().find(|build| !self.artifacts.made.contains(*build)) {
            return Err(format!(
                "{job} of {change} is given what build {other} made, which made nothing"
            ));
        }
        let Some(item) = self.items.get(&order.item).filter(|_| job.as_str() == USES) else {
            return Ok(());
        };
        let chain = self.chain(order);
        if chain.iter().chain([&item]).any(|item| !item.candidate.cycle.is_empty()) {
            return Ok(());
        }
        let mut due = Vec::new();
        for ahead in chain {
            let Some(image) = named(ahead, IMAGE) else { continue };
            let Some(build) = image.build.as_ref().filter(|_| image.is_served()) else {
                let ahead = &ahead.candidate.change;
                return Err(format!(
                    "{job} of {change} is ordered, and what {ahead} is to provide is not there"
                ));
            };
            due.push(build);
        }
        // In check each change is a queue by itself, and is given what others made.
        if order.queue.pipeline.as_str() == "gate" && !given.iter().eq(due.iter().copied()) {
            return Err(format!(
                "{job} of {change} is given {given:?}, and is to be given {due:?}"
            ));
        }
        Ok(())
    }
}
