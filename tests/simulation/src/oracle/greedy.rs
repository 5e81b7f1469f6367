//! Configuration that asks for a secret before review, which makes the configuration of an item
//! invalid.

use super::{Oracle, Revision};
use crate::truth;
use sluice_gate::Item;

impl Oracle {
    /// Returns whether the configuration of an item may ask for a secret before review: its own, or
    /// any that it was tested on.
    pub(super) fn is_greedy(&self, item: &Item) -> bool {
        // In a bundle, the configuration of the other members is proposed too.
        if !item.candidate.bundle.is_empty() {
            return self.is_any_greedy();
        }
        let project = &item.candidate.change.key.project;
        let tips = self
            .branches
            .iter()
            .filter(|(branch, _)| branch.project == *project)
            .flat_map(|(_, tips)| tips);
        let proposed = self.changes.iter().filter(|(key, _)| key.project == *project);
        let proposed =
            proposed.flat_map(|(_, history)| history.revisions.values().filter_map(Revision::tree));
        tips.map(|tip| &tip.tree).chain(proposed).any(truth::is_greedy)
    }

    /// Returns whether any branch or revision has configuration that asks for a secret before
    /// review.
    pub(super) fn is_any_greedy(&self) -> bool {
        let tips = self.branches.values().flatten().map(|tip| &tip.tree);
        let proposed = self
            .changes
            .values()
            .flat_map(|history| history.revisions.values().filter_map(Revision::tree));
        tips.chain(proposed).any(truth::is_greedy)
    }
}
