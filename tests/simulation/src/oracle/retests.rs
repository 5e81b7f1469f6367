//! Retests of open changes after a landing in their project.

use super::{Merged, Oracle};
use crate::reviews::is_gerrit_project;
use crate::scenarios::newcomers::is_newcomer;
use crate::scenarios::{RECHECK, Scenario, lands};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};

impl Oracle {
    /// Records when the gate merged a change.
    pub fn record_landing(&mut self, change: &ChangeKey, now: Timestamp) {
        self.changes.entry(change.clone()).or_default().landed_at = Some(now);
    }

    /// Returns an error if an open change was not tested again after the last landing in its
    /// project. Only changes without dependencies and with one revision are judged; others may have
    /// been dequeued at that moment.
    pub fn find_missing_retest(&self, change: &ChangeRef) -> Option<String> {
        let history = self.changes.get(&change.key)?;
        let is_sure = self.sees_all_events
            && self.scenarios.contains(&Scenario::Rechecks)
            && !is_gerrit_project(change.key.project.name())
            && !is_newcomer(change.key.project.name());
        let is_left_alone =
            !history.is_entangled && history.needs.is_empty() && history.revisions.len() == 1;
        let proposed_at = history.proposed_at.filter(|_| is_sure && is_left_alone)?;
        let others = self.changes.iter().filter(|(key, _)| key.project == change.key.project);
        let landed =
            others.map(|(_, other)| other).filter(|other| other.merged == Some(Merged::ByGate));
        // The queue has processed the landing.
        let reported = landed.filter(|other| {
            let mut outcomes = other.outcomes.iter();
            outcomes.any(|outcome| lands(&outcome.pipeline) && outcome.result == "SUCCESS")
        });
        let landed_at =
            reported.filter_map(|other| other.landed_at).filter(|at| *at > proposed_at).max()?;
        let is_tested =
            history.outcomes.iter().any(|own| own.pipeline == RECHECK && own.left_at >= landed_at);
        let landed_at = landed_at.to_iso();
        (!is_tested)
            .then(|| format!("{change} was not tested again after the landing at {landed_at}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{change, oracle_of, passed};
    use super::*;

    /// Z6.1: every other open change of the project is tested again after a landing.
    #[test]
    fn an_open_change_must_be_tested_again_after_another_one_of_its_project_landed() {
        let mut oracle = oracle_of(Scenario::Rechecks);
        assert_eq!(oracle.find_missing_retest(&change(2)), None);
        oracle.record_landing(&change(1).key, Timestamp(5));
        let first = oracle.changes.entry(change(1).key).or_default();
        first.merged = Some(Merged::ByGate);
        first.outcomes.push(passed("gate", 7));
        assert!(oracle.find_missing_retest(&change(2)).is_some());
        oracle.changes.entry(change(2).key).or_default().outcomes.push(passed(RECHECK, 6));
        assert_eq!(oracle.find_missing_retest(&change(2)), None);
    }
}
