//! Tests of dependent changes: a change is tested when one of its dependencies enters the gate.

use super::Oracle;
use crate::reviews::is_gerrit_project;
use crate::scenarios::Scenario;
use crate::scenarios::followers::FOLLOW;
use crate::scenarios::newcomers::is_newcomer;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{QueueKey, Timestamp};

impl Oracle {
    /// Records when a change entered the gate; entries into other pipelines are ignored.
    pub fn record_gate_entry(&mut self, change: &ChangeKey, queue: &QueueKey, now: Timestamp) {
        if queue.pipeline.as_str() == "gate" {
            self.changes.entry(change.clone()).or_default().gated_at = Some(now);
            self.record_tree_entry(change);
        }
    }

    /// Returns an error if an open change was not tested after its dependency entered the gate.
    /// Only a change that was checked before and never revised or edited is judged, and only for
    /// dependencies that nothing happened to.
    pub fn find_missing_dependent_test(&self, change: &ChangeRef) -> Option<String> {
        let history = self.changes.get(&change.key)?;
        let is_sure = self.sees_all_events
            && self.scenarios.contains(&Scenario::Followers)
            && !is_gerrit_project(change.key.project.name())
            && !is_newcomer(change.key.project.name());
        if !is_sure || history.is_entangled || history.revisions.len() != 1 {
            return None;
        }
        // It cannot be tested while a change that it needs is outside of the tenant.
        if history.needs.iter().any(|need| self.has_left(&need.project)) {
            return None;
        }
        let checked_at =
            history.outcomes.iter().find(|own| own.pipeline == "check").map(|own| own.left_at)?;
        let needs = history.needs.iter().filter(|need| self.is_left_alone(need));
        let entries = needs.filter_map(|need| Some((need, self.changes.get(need)?.gated_at?)));
        let (need, entered_at) =
            entries.filter(|(_, at)| *at > checked_at).max_by_key(|(_, at)| *at)?;
        let is_tested =
            history.outcomes.iter().any(|own| own.pipeline == FOLLOW && own.left_at >= entered_at);
        let entered_at = entered_at.to_iso();
        (!is_tested)
            .then(|| format!("{change} was not tested after its dependency {need} entered the gate at {entered_at}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{change, oracle_of, passed};
    use super::*;

    /// Z6.1: a dependent change is tested when its dependency enters a pipeline that the trigger
    /// names.
    #[test]
    fn an_open_change_must_be_tested_after_what_it_depends_on_entered_the_gate() {
        let mut oracle = oracle_of(Scenario::Followers);
        let queue = |pipeline: &str| QueueKey {
            tenant: "tenant0".into(),
            pipeline: pipeline.into(),
            queue: sluice_model::QueueName("q".to_owned()),
        };
        oracle.record_dependency(&change(2).key, &change(1).key);
        oracle.changes.entry(change(2).key).or_default().outcomes.push(passed("check", 5));
        oracle.record_gate_entry(&change(1).key, &queue("check"), Timestamp(7));
        assert_eq!(
            oracle.find_missing_dependent_test(&change(2)),
            None,
            "entering check starts nothing"
        );
        oracle.record_gate_entry(&change(1).key, &queue("gate"), Timestamp(8));
        assert!(oracle.find_missing_dependent_test(&change(2)).is_some());
        oracle.changes.entry(change(2).key).or_default().outcomes.push(passed(FOLLOW, 9));
        assert_eq!(oracle.find_missing_dependent_test(&change(2)), None);
        oracle.record_gate_entry(&change(1).key, &queue("gate"), Timestamp(10));
        assert!(oracle.find_missing_dependent_test(&change(2)).is_some(), "it entered once more");
    }
}
