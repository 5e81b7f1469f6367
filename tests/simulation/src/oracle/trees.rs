//! Trees of changes that need each other: once all of them are approved, an event of any of them
//! brings in all. One event brings them in depth first, whichever change it is about.

use super::Oracle;
use crate::scenarios::Scenario;
use crate::scenarios::change_trees::RELATED_MAX;
use sluice_model::ProjectName;
use sluice_model::change::ChangeKey;
use std::collections::BTreeSet;

/// What brings a tree into the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeTrigger {
    /// The approvals of its changes, in any order.
    Approvals,
    /// A comment on one of its changes, after all approvals.
    Comment,
}

/// A tree of changes.
pub(super) struct Tree {
    /// Its changes.
    members: Vec<ChangeKey>,
    /// What brings it in.
    trigger: TreeTrigger,
    /// Whether all that brings it in has happened.
    is_triggered: bool,
    /// The members that entered the gate, in the order in which they entered first.
    entered: Vec<ChangeKey>,
    /// Whether anything else happened to a member before all had entered.
    is_disturbed: bool,
}

impl Tree {
    /// Records that something happened to a member. It does not count once all members entered.
    fn disturb(&mut self) {
        self.is_disturbed |= self.entered.len() < self.members.len();
    }
}

impl Oracle {
    /// Records a tree. The dependencies of its changes are recorded separately.
    pub fn record_tree(&mut self, members: &[ChangeKey], trigger: TreeTrigger) {
        self.trees.push(Tree {
            members: members.to_vec(),
            trigger,
            is_triggered: false,
            entered: Vec::new(),
            is_disturbed: false,
        });
    }

    /// Records that all approvals of the tree of a change were given or, for a tree that a comment
    /// brings in, that the comment was written.
    pub fn record_tree_trigger(&mut self, change: &ChangeKey) {
        for tree in self.trees.iter_mut().filter(|tree| tree.members.contains(change)) {
            tree.is_triggered = true;
        }
    }

    /// Records that a change entered the gate.
    pub(super) fn record_tree_entry(&mut self, change: &ChangeKey) {
        for tree in self.trees.iter_mut().filter(|tree| tree.members.contains(change)) {
            if tree.entered.contains(change) {
                continue;
            }
            tree.is_disturbed |= tree.trigger == TreeTrigger::Comment && !tree.is_triggered;
            tree.entered.push(change.clone());
        }
    }

    /// Records that something happened to a change that may keep its tree out of the gate.
    pub(super) fn disturb_trees(&mut self, change: &ChangeKey) {
        self.record_arrival(change);
        for tree in self.trees.iter_mut().filter(|tree| tree.members.contains(change)) {
            tree.disturb();
        }
    }

    /// Records that something happened to a project that may keep the trees with changes of it out
    /// of the gate.
    pub(super) fn disturb_trees_of(&mut self, project: &ProjectName) {
        for tree in &mut self.trees {
            if tree.members.iter().any(|member| member.project == *project) {
                tree.disturb();
            }
        }
    }

    /// Returns whether the approval of a change triggers nothing.
    pub(super) fn is_quiet(&self, change: &ChangeKey) -> bool {
        let mut trees = self.trees.iter().filter(|tree| tree.trigger == TreeTrigger::Comment);
        trees.any(|tree| tree.members.contains(change))
    }

    /// Returns the trees that did not enter the gate as they must. Only trees to which nothing else
    /// happened are judged, and only where every event is seen and no project was removed.
    pub fn find_tree_errors(&self) -> Vec<String> {
        let is_limited = self.scenarios.contains(&Scenario::MaxDependencies);
        let judged = self.trees.iter().filter(|tree| {
            self.sees_all_events
                && !is_limited
                && tree.is_triggered
                && !tree.is_disturbed
                && !tree.members.iter().any(|member| self.has_left(&member.project))
                && self.related(&tree.members).len() <= RELATED_MAX
        });
        judged.filter_map(|tree| self.tree_error(tree)).collect()
    }

    /// Returns how a tree entered the gate otherwise than it must.
    fn tree_error(&self, tree: &Tree) -> Option<String> {
        let names = |changes: &[ChangeKey]| {
            changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let missing: Vec<ChangeKey> =
            tree.members.iter().filter(|member| !tree.entered.contains(member)).cloned().collect();
        if !missing.is_empty() {
            return Some(format!(
                "the tree of {} is approved, but {} never entered the gate",
                names(&tree.members),
                names(&missing)
            ));
        }
        let expected = self.depth_first(&tree.members);
        (tree.trigger == TreeTrigger::Comment && tree.entered != expected).then(|| {
            format!(
                "a tree entered the gate as {}, but must enter as {}",
                names(&tree.entered),
                names(&expected)
            )
        })
    }

    /// Returns the changes that a change needs directly.
    fn needs_of(&self, change: &ChangeKey) -> &[ChangeKey] {
        self.changes.get(change).map(|history| history.needs.as_slice()).unwrap_or_default()
    }

    /// Returns all changes that are related to these by dependencies, in either direction.
    fn related(&self, changes: &[ChangeKey]) -> BTreeSet<ChangeKey> {
        let mut found: BTreeSet<ChangeKey> = changes.iter().cloned().collect();
        loop {
            let before = found.len();
            for (key, history) in &self.changes {
                let is_related =
                    found.contains(key) || history.needs.iter().any(|need| found.contains(need));
                if is_related {
                    found.insert(key.clone());
                    found.extend(history.needs.iter().cloned());
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    /// Returns changes in the order in which one event brings them in: each behind what it needs
    /// and followed by what needs it, first those without dependencies and then what is left, both
    /// by their numbers.
    fn depth_first(&self, members: &[ChangeKey]) -> Vec<ChangeKey> {
        let mut by_number = members.to_vec();
        by_number.sort_by_key(ChangeKey::number);
        let mut order = Vec::new();
        let (roots, others): (Vec<&ChangeKey>, Vec<&ChangeKey>) =
            by_number.iter().partition(|member| self.needs_of(member).is_empty());
        for member in roots.into_iter().chain(others) {
            self.place_with_dependents(member, &by_number, &mut order);
        }
        order
    }

    /// Places a change behind what it needs, and behind it what needs it.
    fn place_with_dependents(
        &self,
        change: &ChangeKey,
        by_number: &[ChangeKey],
        order: &mut Vec<ChangeKey>,
    ) {
        if order.contains(change) {
            return;
        }
        self.place(change, order);
        for dependent in by_number.iter().filter(|other| self.needs_of(other).contains(change)) {
            self.place_with_dependents(dependent, by_number, order);
        }
    }

    /// Places a change behind what it needs.
    fn place(&self, change: &ChangeKey, order: &mut Vec<ChangeKey>) {
        for need in self.needs_of(change) {
            if !order.contains(need) {
                self.place(need, order);
            }
        }
        order.push(change.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{change, oracle_of};
    use super::*;
    use sluice_model::Timestamp;

    /// Returns the oracle of a tree where 3 and 4 need 1, and 5 needs 3 and 2.
    fn oracle(trigger: TreeTrigger) -> Oracle {
        let mut oracle = oracle_of(Scenario::ChangeTrees);
        for (one, need) in [(3, 1), (4, 1), (5, 3), (5, 2)] {
            oracle.record_dependency(&change(one).key, &change(need).key);
        }
        oracle.record_tree(&[1, 2, 3, 4, 5].map(|number| change(number).key), trigger);
        oracle
    }

    /// Enters changes and returns the errors.
    fn errors(oracle: &mut Oracle, entered: &[u64]) -> usize {
        entered.iter().for_each(|number| oracle.record_tree_entry(&change(*number).key));
        oracle.find_tree_errors().len()
    }

    /// D01, D02, G09: one event brings in the whole tree, depth first.
    #[test]
    fn a_tree_must_enter_as_a_whole_and_in_order() {
        for (entered, count) in
            [(&[1, 3, 2, 5, 4][..], 0), (&[1, 3, 2, 5], 1), (&[1, 4, 3, 2, 5], 1), (&[], 1)]
        {
            let mut oracle = oracle(TreeTrigger::Comment);
            oracle.record_tree_trigger(&change(3).key);
            assert_eq!(errors(&mut oracle, entered), count, "{entered:?}");
        }
        let mut oracle = oracle(TreeTrigger::Approvals);
        assert_eq!(errors(&mut oracle, &[1, 2]), 0, "not all are approved");
        oracle.record_tree_trigger(&change(3).key);
        assert_eq!(errors(&mut oracle, &[]), 1);
        assert_eq!(errors(&mut oracle, &[4, 3, 5]), 0, "approvals come in any order");
    }

    /// D01: a tree with a change that was withdrawn before all entered is not judged.
    #[test]
    fn a_disturbed_tree_is_not_judged() {
        let mut oracle = oracle(TreeTrigger::Comment);
        oracle.record_tree_trigger(&change(3).key);
        oracle.record_withdrawal(&change(4).key, Timestamp(9));
        assert_eq!(errors(&mut oracle, &[1]), 0);
        assert!(oracle.is_quiet(&change(1).key) && !oracle.is_quiet(&change(6).key));
    }
}
