//! The order in which changes land that need each other.

use sluice_model::change::ChangeKey;
use std::collections::BTreeSet;

/// Returns changes that need each other in the order in which they land: each after those of them
/// that its commits are made on, and otherwise by their keys, so that the order is the same
/// whichever of them is asked for. `parents` says which change is made on which, also of changes
/// that are none of these.
///
/// Read at two moments, two changes may show that each is made on the other; those go by their
/// keys.
pub fn landing_order(
    members: BTreeSet<ChangeKey>,
    parents: &[(ChangeKey, ChangeKey)],
) -> Vec<ChangeKey> {
    let mut left = members;
    let mut order = Vec::with_capacity(left.len());
    while let Some(first) = left.first() {
        let is_made_on_another = |key: &ChangeKey| {
            parents
                .iter()
                .any(|(change, below)| change == key && below != key && left.contains(below))
        };
        let next = left.iter().find(|key| !is_made_on_another(key)).unwrap_or(first).clone();
        left.remove(&next);
        order.push(next);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(number: u64) -> ChangeKey {
        ChangeKey::change("gerrit".into(), "review.test/org/one".into(), number)
    }

    fn order(members: &[u64], parents: &[(u64, u64)]) -> Vec<u64> {
        let members = members.iter().map(|number| change(*number)).collect();
        let parents: Vec<_> =
            parents.iter().map(|(own, below)| (change(*own), change(*below))).collect();
        landing_order(members, &parents).iter().filter_map(ChangeKey::number).collect()
    }

    /// Z6.5, G09: git has no commit land before the one that it is made on, whatever their numbers
    /// are.
    #[test]
    fn a_change_lands_after_those_of_its_cycle_that_it_is_made_on() {
        assert_eq!(order(&[3, 1, 2], &[]), [1, 2, 3]);
        assert_eq!(order(&[1, 2], &[(1, 2)]), [2, 1]);
        assert_eq!(order(&[1, 2, 3, 4], &[(1, 3), (3, 4)]), [2, 4, 3, 1]);
        assert_eq!(
            order(&[1, 2], &[(1, 7), (7, 2)]),
            [1, 2],
            "what is between them would be one of them"
        );
    }

    /// Z6.5: nothing is left out and nothing waits for ever where forges show what cannot be.
    #[test]
    fn changes_that_are_made_on_each_other_go_by_their_keys() {
        assert_eq!(order(&[1, 2, 3], &[(1, 2), (2, 1), (3, 1)]), [1, 2, 3]);
        assert_eq!(order(&[1], &[(1, 1)]), [1]);
        assert_eq!(order(&[], &[(1, 2)]), Vec::<u64>::new());
    }
}
