//! Projects that operators remove from their tenants, and may add again. The items of a removed
//! project leave its queues, and nothing of it enters or lands later.

use super::{Oracle, bundles};
use sluice_gate::Item;
use sluice_model::change::ChangeRef;
use sluice_model::{ProjectName, Timestamp};
use sluice_records::report::Buildset;
use std::collections::BTreeMap;

/// Milliseconds after which no function works with the former projects of a tenant, if no call
/// fails.
const GONE_MILLIS: u64 = 300_000;

/// The reason of an item that depends on a change of a removed project.
const OUTSIDE: &str = "a change of a project outside of this tenant";

/// Returns whether an item failed for the reason that it depends on a change of a removed project.
pub fn names_outside(set: &Buildset) -> bool {
    set.result == "FAILURE" && set.why.starts_with("it depends on ") && set.why.contains(OUTSIDE)
}

/// Whether a tenant has a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// An operator removed it.
    Removed,
    /// An operator added it again.
    Added,
}

/// The changes of tenants.
#[derive(Default)]
pub(super) struct Departures {
    /// For each project that ever left: since when it is gone; `None` if it is back.
    gone_since: BTreeMap<ProjectName, Option<Timestamp>>,
    /// The time of the last decision that is checked.
    now: Timestamp,
}

impl Oracle {
    /// Records that an operator removed a project from its tenant, or added it again.
    pub fn record_membership(
        &mut self,
        project: &ProjectName,
        membership: Membership,
        now: Timestamp,
    ) {
        let since = (membership == Membership::Removed).then_some(now);
        self.departures.gone_since.insert(project.clone(), since);
        self.disturb_trees_of(project);
    }

    /// Records the present time, for [`Self::check_membership`].
    pub fn record_time(&mut self, now: Timestamp) {
        self.departures.now = now;
    }

    /// Returns whether an operator ever removed a project from its tenant. Its events in between
    /// need not be processed.
    pub fn has_left(&self, project: &ProjectName) -> bool {
        self.departures.gone_since.contains_key(project)
    }

    /// Returns whether an item may have been dequeued because its project, or that of another
    /// member of its bundle, was removed.
    pub(super) fn may_have_left(&self, item: &Item) -> bool {
        bundles::together(item).any(|change| self.has_left(&change.key.project))
    }

    /// Returns whether an item failed because it depends on a change of a removed project.
    pub(super) fn depends_on_removed(&self, set: &Buildset) -> bool {
        let needs = &set.item.candidate.needs;
        names_outside(set) && needs.iter().any(|need| self.has_left(&need.change.key.project))
    }

    /// Checks that a change does not do something long after its project was removed. `verb` is
    /// what it did. Only where no call fails.
    pub(super) fn check_membership(&self, change: &ChangeRef, verb: &str) -> Result<(), String> {
        let gone = self.departures.gone_since.get(&change.key.project).copied().flatten();
        let since = gone.filter(|since| {
            self.sees_all_events && self.departures.now.since(*since) > GONE_MILLIS
        });
        since.map_or(Ok(()), |since| {
            let at = since.to_iso();
            Err(format!("{change} {verb}, although its project left the tenant at {at}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{change, oracle_of};
    use super::*;
    use crate::scenarios::Scenario;

    /// Z2.1: nothing of a removed project happens once every function knows of the removal.
    #[test]
    fn a_change_must_not_land_long_after_its_project_left() {
        let mut oracle = oracle_of(Scenario::Departures);
        let project = change(1).key.project;
        let landing = |oracle: &Oracle| oracle.check_membership(&change(1), "landed").is_ok();
        assert!(landing(&oracle) && !oracle.has_left(&project));
        oracle.record_membership(&project, Membership::Removed, Timestamp(1_000));
        oracle.record_time(Timestamp(GONE_MILLIS));
        assert!(landing(&oracle), "functions may not know of it yet");
        oracle.record_time(Timestamp(GONE_MILLIS + 1_001));
        assert!(!landing(&oracle) && oracle.has_left(&project));
        oracle.record_membership(&project, Membership::Added, Timestamp(GONE_MILLIS + 2_000));
        assert!(landing(&oracle));
    }
}
