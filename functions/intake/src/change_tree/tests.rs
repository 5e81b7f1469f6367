//! Tests of the order in which the changes of a tree enter.

use super::*;
use sluice_model::change::ChangeRef;

fn key(number: u64) -> ChangeKey {
    ChangeKey::change("forge".into(), "forge.test/org/one".into(), number)
}

/// A member that needs these changes directly, in a bundle with those of `bundle`.
fn member(number: u64, needs: &[u64], bundle: &[u64]) -> (ChangeKey, Member) {
    let head = sluice_model::git::Oid::from("abc");
    let change =
        ChangeRef { key: key(number), branch: "main".into(), patchset: head.0.clone(), head };
    let facts = ChangeFacts::bare(change, Timestamp(8));
    let pipeline = sluice_config::pipeline::Pipeline::new("gate", Manager::Dependent);
    let bundle = bundle.iter().copied().map(key).collect();
    let candidate =
        Candidate { bundle, ..candidate(&facts, &Dependencies::default(), None, &pipeline) };
    (key(number), Member { candidate, needs: needs.iter().copied().map(key).collect() })
}

fn order(members: &[(u64, &[u64], &[u64])]) -> Vec<u64> {
    let members = members.iter().map(|(number, needs, bundle)| member(*number, needs, bundle));
    let entered = in_order(&members.collect());
    entered.iter().filter_map(|candidate| candidate.change.key.number()).collect()
}

/// D01, G09: a change's dependents follow it before its siblings do, with theirs in turn.
#[test]
fn a_tree_enters_depth_first() {
    let tree: &[(u64, &[u64], &[u64])] =
        &[(1, &[], &[]), (2, &[1], &[]), (3, &[1], &[]), (4, &[2], &[]), (5, &[4], &[])];
    assert_eq!(order(tree), [1, 2, 4, 5, 3]);
}

/// D01: a change that needs two others follows both, and the numbers do not decide what is below.
#[test]
fn a_change_enters_behind_everything_that_it_needs() {
    assert_eq!(order(&[(1, &[9], &[]), (9, &[], &[]), (4, &[], &[])]), [4, 9, 1]);
    let diamond: &[(u64, &[u64], &[u64])] =
        &[(1, &[], &[]), (2, &[1], &[]), (3, &[1], &[]), (4, &[3, 2], &[])];
    assert_eq!(order(diamond), [1, 2, 3, 4]);
    // 5 needs two roots; what else needs the second root follows later.
    let roots: &[(u64, &[u64], &[u64])] =
        &[(1, &[], &[]), (2, &[], &[]), (5, &[1, 2], &[]), (3, &[2], &[])];
    assert_eq!(order(roots), [1, 2, 5, 3]);
}

/// D10: the members of a bundle enter together, behind what any of them needs, and what needs one
/// of them follows them all.
#[test]
fn a_bundle_enters_as_one() {
    let bundle: &[(u64, &[u64], &[u64])] =
        &[(2, &[3], &[3, 2]), (3, &[2, 7], &[3, 2]), (4, &[2], &[]), (7, &[], &[])];
    assert_eq!(order(bundle), [7, 3, 2, 4]);
}
