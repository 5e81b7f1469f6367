//! Faults of the forge and pushes past the gate, and the items that may fail to merge because of
//! them. A refusing forge affects all items that are queued meanwhile; everything else affects the
//! project.

use super::{Oracle, QueuedItem};
use sluice_gate::Item;
use sluice_model::ProjectName;

impl Oracle {
    /// Records that the forge refuses merges from now on.
    pub fn start_refusing_merges(&mut self) {
        self.disturbances += 1;
        self.is_refusing = true;
        for queued in self.queued_items.values_mut() {
            queued.saw_merge_refusal = true;
        }
    }

    /// Records that the forge accepts merges again.
    pub fn stop_refusing_merges(&mut self) {
        self.is_refusing = false;
    }

    /// Records that the next merge, of any change, will contain extra files.
    pub fn record_sabotage(&mut self) {
        self.disturbances += 1;
    }

    /// Marks a project whose branch was changed by something else than the gate.
    pub(super) fn mark_tampered(&mut self, project: &ProjectName) {
        self.tampered_projects.insert(project.clone());
    }

    /// Returns whether the forge may have refused to merge an item or one of its needs because of
    /// such a fault.
    pub(super) fn may_be_refused(&self, item: &Item, queued: &QueuedItem) -> bool {
        let mut concerned = item
            .candidate
            .needs
            .iter()
            .chain([&item.candidate])
            .map(|candidate| &candidate.change.key.project);
        queued.saw_merge_refusal
            || concerned.any(|project| self.tampered_projects.contains(project))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::change;
    use super::*;
    use std::collections::BTreeMap;

    /// C2: a refusal does not affect items that enter after its end.
    #[test]
    fn a_refusal_concerns_those_that_stand_while_it_lasts() {
        let mut oracle = Oracle::default();
        let queued = |saw_merge_refusal| QueuedItem {
            change: change(1),
            queue: None,
            first_tips: BTreeMap::new(),
            known_as_of: BTreeMap::new(),
            saw_merge_refusal,
        };
        oracle.queued_items.insert("one".into(), queued(false));
        oracle.start_refusing_merges();
        oracle.stop_refusing_merges();
        oracle.queued_items.insert("two".into(), queued(oracle.is_refusing));
        let saw: Vec<bool> =
            oracle.queued_items.values().map(|queued| queued.saw_merge_refusal).collect();
        assert_eq!((saw, oracle.disturbances), (vec![true, false], 1));
    }
}
