//! What somebody did behind the gate's back, and which items may fail to merge by it: a forge that
//! refuses merges concerns all that stand meanwhile, anything else the projects to whose branches
//! it was done.

use super::{Oracle, Stands};
use sluice_gate::Item;
use sluice_model::ProjectName;

impl Oracle {
    /// Is told that the forge refuses merges from now on.
    pub fn refuses_merges(&mut self) {
        self.unruly += 1;
        self.is_refusing = true;
        for stands in self.standing.values_mut() {
            stands.saw_refusal = true;
        }
    }

    /// Is told that the forge takes merges again.
    pub fn takes_merges(&mut self) {
        self.is_refusing = false;
    }

    /// Is told that the next merge brings more than it should, whichever that will be.
    pub fn sabotaged(&mut self) {
        self.unruly += 1;
    }

    /// Notes that a project's branch is what nobody made it at the gate's word.
    pub(super) fn tampered_with(&mut self, project: &ProjectName) {
        self.unruly_projects.insert(project.clone());
    }

    /// Returns whether the forge may have refused to merge an item, or any of those that it needs,
    /// for what somebody did.
    pub(super) fn may_be_refused(&self, item: &Item, stood: &Stands) -> bool {
        let mut concerned = item
            .candidate
            .needs
            .iter()
            .chain([&item.candidate])
            .map(|known| &known.change.key.project);
        stood.saw_refusal || concerned.any(|project| self.unruly_projects.contains(project))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::change;
    use super::*;
    use std::collections::BTreeMap;

    /// C2: what is over says nothing of those that come after it.
    #[test]
    fn a_refusal_concerns_those_that_stand_while_it_lasts() {
        let mut oracle = Oracle::default();
        let stands = |saw_refusal| Stands {
            change: change(1),
            queue: None,
            first_tips: BTreeMap::new(),
            known_as_of: BTreeMap::new(),
            saw_refusal,
        };
        oracle.standing.insert("one".into(), stands(false));
        oracle.refuses_merges();
        oracle.takes_merges();
        oracle.standing.insert("two".into(), stands(oracle.is_refusing));
        let saw: Vec<bool> = oracle.standing.values().map(|stands| stands.saw_refusal).collect();
        assert_eq!((saw, oracle.unruly), (vec![true, false], 1));
    }
}
