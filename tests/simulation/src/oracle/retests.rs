//! What had to be tested once more, since something landed in its project.

use super::{Merged, Oracle};
use crate::plays::{Play, RECHECK, lands};
use crate::reviews::is_review;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};

impl Oracle {
    /// Is told when a change came into its branch at the gate's word.
    pub fn has_come_into_its_branch(&mut self, change: &ChangeKey, now: Timestamp) {
        self.changes.entry(change.clone()).or_default().landed_at = Some(now);
    }

    /// Returns that a change which is open at the end was not tested again after the last landing
    /// in its project, if so. One that was revised, or depends on others, may have been told of at
    /// a moment when it was out.
    pub fn untested_again(&self, change: &ChangeRef) -> Option<String> {
        let known = self.changes.get(&change.key)?;
        let is_sure = self.hears_all
            && self.plays.contains(&Play::Retests)
            && !is_review(change.key.project.name());
        let is_left_alone =
            !known.is_entangled && known.needs.is_empty() && known.revisions.len() == 1;
        let proposed_at = known.proposed_at.filter(|_| is_sure && is_left_alone)?;
        let others = self.changes.iter().filter(|(key, _)| key.project == change.key.project);
        let landed =
            others.map(|(_, other)| other).filter(|other| other.merged == Some(Merged::ByGate));
        // Its queue has heard of it by now.
        let told = landed.filter(|other| {
            let mut verdicts = other.verdicts.iter();
            verdicts.any(|verdict| lands(&verdict.pipeline) && verdict.result == "SUCCESS")
        });
        let landed_at =
            told.filter_map(|other| other.landed_at).filter(|at| *at > proposed_at).max()?;
        let is_tested =
            known.verdicts.iter().any(|own| own.pipeline == RECHECK && own.left_at >= landed_at);
        let landed_at = landed_at.to_iso();
        (!is_tested).then(|| {
            format!("{change} was not tested again, and something landed beside it at {landed_at}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{change, oracle_of, passed};
    use super::*;

    /// Z6.1: every other open change of the project is told of what lands.
    #[test]
    fn an_open_change_must_be_tested_again_after_another_one_of_its_project_landed() {
        let mut oracle = oracle_of(Play::Retests);
        assert_eq!(oracle.untested_again(&change(2)), None);
        oracle.has_come_into_its_branch(&change(1).key, Timestamp(5));
        let first = oracle.changes.entry(change(1).key).or_default();
        first.merged = Some(Merged::ByGate);
        first.verdicts.push(passed("gate", 7));
        assert!(oracle.untested_again(&change(2)).is_some());
        oracle.changes.entry(change(2).key).or_default().verdicts.push(passed(RECHECK, 6));
        assert_eq!(oracle.untested_again(&change(2)), None);
    }
}
