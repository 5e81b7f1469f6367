//! Dependencies at Gerrit that a change does not name: its parent commits and the changes with its
//! topic.

use super::Oracle;
use sluice_gate::Item;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};

/// Milliseconds after which every reader sees a topic, even when the forge returns outdated
/// answers.
const TOPIC_VISIBLE_MILLIS: u64 = 30_000;

impl Oracle {
    /// Records the changes that a revision is based on.
    pub fn record_parents(&mut self, change: &ChangeRef, parents: &[ChangeKey]) {
        let history = self.changes.entry(change.key.clone()).or_default();
        history.parents.insert(change.head.clone(), parents.to_vec());
    }

    /// Records the topic of a change; `None` for no topic or an abandoned change.
    pub fn record_topic(&mut self, change: &ChangeKey, topic: Option<&str>, now: Timestamp) {
        let history = self.changes.entry(change.clone()).or_default();
        history.topic = topic.map(|topic| (topic.to_owned(), now));
    }

    /// Returns the changes that a revision is based on.
    pub(super) fn parents_of(&self, change: &ChangeRef) -> &[ChangeKey] {
        let history =
            self.changes.get(&change.key).and_then(|history| history.parents.get(&change.head));
        history.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns which change is missing ahead of an item that enters a gate: a parent, or a change
    /// that has shared its topic long enough for every reader to see it. `None` if nothing is
    /// missing.
    pub(super) fn find_missing_predecessor(
        &self,
        item: &Item,
        ahead: &[ChangeRef],
    ) -> Option<String> {
        let change = &item.candidate.change;
        let is_there =
            |key: &ChangeKey| self.is_merged(key) || ahead.iter().any(|other| other.key == *key);
        if let Some(parent) = self.parents_of(change).iter().find(|parent| !is_there(parent)) {
            return Some(format!("without its parent {parent} ahead"));
        }
        let as_of = item.candidate.as_of;
        let topic = self.topic_since(&change.key, as_of)?;
        let is_missing = |key: &&ChangeKey| !item.candidate.bundle.contains(*key) && !is_there(key);
        let mut others = self
            .changes
            .keys()
            .filter(|key| **key != change.key && self.topic_since(key, as_of) == Some(topic));
        let member = others.find(is_missing)?;
        Some(format!("without {member}, which has the same topic {topic}"))
    }

    /// Returns the topic that a change has had for long enough before a moment. `None` in projects
    /// where topics do not create dependencies.
    fn topic_since(&self, change: &ChangeKey, moment: Timestamp) -> Option<&str> {
        let (topic, since) = self.changes.get(change)?.topic.as_ref()?;
        let is_shown = since.plus_millis(TOPIC_VISIBLE_MILLIS) <= moment;
        (is_shown && self.by_topic.contains(&change.project)).then_some(topic.as_str())
    }
}
