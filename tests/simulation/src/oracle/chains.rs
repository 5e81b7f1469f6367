//! What changes at a Gerrit need without naming it: what their commits are made on, and what shares
//! their topic.

use super::Oracle;
use sluice_gate::Item;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeKey, ChangeRef};

/// Milliseconds after which a topic was shown to whoever read the change since, also where the
/// forge is behind the times.
const SHOWN_MILLIS: u64 = 30_000;

impl Oracle {
    /// Is told which changes a revision is made on.
    pub fn made_on(&mut self, change: &ChangeRef, parents: &[ChangeKey]) {
        let known = self.changes.entry(change.key.clone()).or_default();
        known.parents.insert(change.head.clone(), parents.to_vec());
    }

    /// Is told that a change is in a topic from now on, or in none any more; one that was given up
    /// is in none.
    pub fn put_into_topic(&mut self, change: &ChangeKey, topic: Option<&str>, now: Timestamp) {
        let known = self.changes.entry(change.clone()).or_default();
        known.topic = topic.map(|topic| (topic.to_owned(), now));
    }

    /// Returns what a revision is made on.
    pub(super) fn parents_of(&self, change: &ChangeRef) -> &[ChangeKey] {
        let known = self.changes.get(&change.key).and_then(|known| known.parents.get(&change.head));
        known.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns what an item lacks that enters a gate behind these changes, if anything: what it is
    /// made on comes before it in any case, and what has shared its topic for so long that whoever
    /// read of it read of both comes before it or with it.
    pub(super) fn lacking(&self, item: &Item, ahead: &[ChangeRef]) -> Option<String> {
        let change = &item.candidate.change;
        let is_there =
            |key: &ChangeKey| self.is_merged(key) || ahead.iter().any(|other| other.key == *key);
        if let Some(parent) = self.parents_of(change).iter().find(|parent| !is_there(parent)) {
            return Some(format!("without {parent}, which it is made on, before it"));
        }
        let as_of = item.candidate.as_of;
        let topic = self.topic_since(&change.key, as_of)?;
        let is_missing = |key: &&ChangeKey| !item.candidate.cycle.contains(*key) && !is_there(key);
        let mut others = self
            .changes
            .keys()
            .filter(|key| **key != change.key && self.topic_since(key, as_of) == Some(topic));
        let mate = others.find(is_missing)?;
        Some(format!("without {mate}, which is in the topic {topic} as well"))
    }

    /// Returns the topic that a change has been in since some time before that moment, where
    /// changes of one topic need each other.
    fn topic_since(&self, change: &ChangeKey, moment: Timestamp) -> Option<&str> {
        let (topic, since) = self.changes.get(change)?.topic.as_ref()?;
        let is_shown = since.plus_millis(SHOWN_MILLIS) <= moment;
        (is_shown && self.by_topic.contains(&change.project)).then_some(topic.as_str())
    }
}
