//! What had to be tested since something that it depends on entered the gate.

use super::Oracle;
use crate::plays::Play;
use crate::plays::followers::FOLLOW;
use crate::reviews::is_review;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{QueueKey, Timestamp};

impl Oracle {
    /// Is told when a change came to stand in a queue.
    pub fn came_to_stand(&mut self, change: &ChangeKey, queue: &QueueKey, now: Timestamp) {
        if queue.pipeline.as_str() == "gate" {
            self.changes.entry(change.clone()).or_default().gated_at = Some(now);
        }
    }

    /// Returns that a change which is open at the end was not tested after what it depends on
    /// entered the gate, if so. That it depends on it was known by then where it had been checked;
    /// one that was revised, or described anew, is not judged, nor what needs something that may
    /// not enter any more.
    pub fn not_followed(&self, change: &ChangeRef) -> Option<String> {
        let known = self.changes.get(&change.key)?;
        let is_sure = self.hears_all
            && self.plays.contains(&Play::Followers)
            && !is_review(change.key.project.name());
        if !is_sure || known.is_entangled || known.revisions.len() != 1 {
            return None;
        }
        let checked_at =
            known.verdicts.iter().find(|own| own.pipeline == "check").map(|own| own.left_at)?;
        let needs = known.needs.iter().filter(|need| self.is_left_alone(need));
        let entries = needs.filter_map(|need| Some((need, self.changes.get(need)?.gated_at?)));
        let (need, entered_at) =
            entries.filter(|(_, at)| *at > checked_at).max_by_key(|(_, at)| *at)?;
        let is_tested =
            known.verdicts.iter().any(|own| own.pipeline == FOLLOW && own.left_at >= entered_at);
        let entered_at = entered_at.to_iso();
        (!is_tested)
            .then(|| format!("{change} was not tested after {need}, on which it depends, entered gate at {entered_at}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{change, oracle_of, passed};
    use super::*;

    /// Z6.1: what depends on a change is started when that enters a pipeline that the trigger
    /// names.
    #[test]
    fn an_open_change_must_be_tested_after_what_it_depends_on_entered_the_gate() {
        let mut oracle = oracle_of(Play::Followers);
        let queue = |pipeline: &str| QueueKey {
            tenant: "tenant0".into(),
            pipeline: pipeline.into(),
            queue: sluice_model::QueueName("q".to_owned()),
        };
        oracle.depends(&change(2).key, &change(1).key);
        oracle.changes.entry(change(2).key).or_default().verdicts.push(passed("check", 5));
        oracle.came_to_stand(&change(1).key, &queue("check"), Timestamp(7));
        assert_eq!(oracle.not_followed(&change(2)), None, "entering check starts nothing");
        oracle.came_to_stand(&change(1).key, &queue("gate"), Timestamp(8));
        assert!(oracle.not_followed(&change(2)).is_some());
        oracle.changes.entry(change(2).key).or_default().verdicts.push(passed(FOLLOW, 9));
        assert_eq!(oracle.not_followed(&change(2)), None);
        oracle.came_to_stand(&change(1).key, &queue("gate"), Timestamp(10));
        assert!(oracle.not_followed(&change(2)).is_some(), "it entered once more");
    }
}
