//! The order in which the members of a bundle are merged.

use sluice_model::change::ChangeKey;
use std::collections::BTreeSet;

/// Returns the members of a bundle in the order in which they are merged. A member follows the
/// members that its commits are based on, unless they are shown as based on each other; otherwise
/// the order is that of the keys, so that it does not depend on which member is processed.
/// `parents` lists pairs of a change and the change that it is based on; it may name other changes,
/// too.
///
/// The facts of two changes may have been read at different times and show each of them as based on
/// the other. Where every change that is left is based on another one of them, the one with the
/// lowest key is next.
pub fn bundle_landing_order(
    members: BTreeSet<ChangeKey>,
    parents: &[(ChangeKey, ChangeKey)],
) -> Vec<ChangeKey> {
    let mut left = members;
    let mut order = Vec::with_capacity(left.len());
    while let Some(first) = left.first() {
        let is_based_on_another = |key: &ChangeKey| {
            parents
                .iter()
                .any(|(change, parent)| change == key && parent != key && left.contains(parent))
        };
        let next = left.iter().find(|key| !is_based_on_another(key)).unwrap_or(first).clone();
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
        bundle_landing_order(members, &parents).iter().filter_map(ChangeKey::number).collect()
    }

    /// Z6.5, G09: git cannot merge a commit before its parent, whatever the changes' numbers are.
    #[test]
    fn a_member_is_merged_after_the_members_that_it_is_based_on() {
        assert_eq!(order(&[3, 1, 2], &[]), [1, 2, 3]);
        assert_eq!(order(&[1, 2], &[(1, 2)]), [2, 1]);
        assert_eq!(order(&[1, 2, 3, 4], &[(1, 3), (3, 4)]), [2, 4, 3, 1]);
        assert_eq!(
            order(&[1, 2], &[(1, 7), (7, 2)]),
            [1, 2],
            "a change between them would be a member, too"
        );
    }

    /// Z6.5: contradictory facts of a forge neither drop a member nor loop forever.
    #[test]
    fn changes_based_on_each_other_are_ordered_by_key() {
        assert_eq!(order(&[1, 2, 3], &[(1, 2), (2, 1), (3, 1)]), [1, 2, 3]);
        assert_eq!(order(&[1], &[(1, 1)]), [1]);
        assert_eq!(order(&[], &[(1, 2)]), Vec::<u64>::new());
    }
}
