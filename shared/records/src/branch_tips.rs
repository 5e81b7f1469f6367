//! The branch tips of a project as intake knows them. The sweep compares them with the forge: a
//! branch that moved without a webhook had a missed push.

use crate::codec::encode_first;
use serde::{Deserialize, Serialize};
use sluice_model::change::RefMove;
use sluice_model::git::Oid;
use sluice_model::name::escape;
use sluice_model::{ConnectionName, ProjectName};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};
use std::collections::{BTreeMap, BTreeSet};

/// The most branches of one project that are remembered. Missed pushes to other branches are not
/// found.
pub const REFS_MAX: usize = 400;

/// The most bytes of all tips. A record holds 64 KB, and anyone who may push can choose long branch
/// names.
const REFS_BYTES_MAX: usize = 62 << 10;

/// Bytes that JSON adds to the name and the commit of a branch.
const TIP_BYTES: usize = 32;

/// Bytes that JSON adds to the name of a connection that delivered a push, including those of the
/// list.
const BY_BYTES: usize = 12;

/// Bytes that JSON adds to a connection that has not delivered a push, or to the start of that
/// push.
const MISSING_BYTES: usize = 16;

/// The known branch tips of a project. Only one delivery of a project is processed at a time, so
/// there are no concurrent writers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BranchTips {
    /// Tips by full ref name, such as `refs/heads/main`.
    pub branches: BTreeMap<String, BranchTip>,
    /// Whether the forge has listed all branches once. A branch that is missing here is then new.
    pub is_complete: bool,
    /// The number of pushes. It distinguishes a push from an earlier one between the same commits.
    pub move_count: u64,
}

/// The known tip of one branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchTip {
    /// The commit.
    pub at: Oid,
    /// Whether a push to this commit was processed. Otherwise the sweep found the branch there
    /// first, and the webhook may still arrive.
    pub is_push_known: bool,
    /// The connections to the host that delivered the push. Empty when there is no room for them; a
    /// delivery by another connection then counts as a redelivery.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub delivered_by: BTreeSet<ConnectionName>,
    /// The connections that have not delivered the push, of those by which tenants had the project
    /// at the first delivery.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing_from: BTreeSet<ConnectionName>,
    /// Where the branch was before the first push that the connections in [`Self::missing_from`]
    /// have not delivered; `None` when the branch was new, or all have delivered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Oid>,
}

impl BranchTip {
    /// Returns a tip at which a branch was seen, with nothing missing. `by` is the connection whose
    /// push led there; with `None` the push is not known.
    fn new(at: &Oid, by: Option<&ConnectionName>) -> Self {
        let is_push_known = by.is_some();
        Self {
            at: at.clone(),
            is_push_known,
            delivered_by: by.into_iter().cloned().collect(),
            missing_from: BTreeSet::new(),
            missing_since: None,
        }
    }
}

impl BranchTips {
    /// Returns whether the push led to the known tip and was processed before. Always `false` for a
    /// deletion.
    pub fn is_known_push(&self, moved: &RefMove) -> bool {
        let tip = self.branches.get(&moved.git_ref);
        tip.is_some_and(|tip| tip.is_push_known && Some(&tip.at) == moved.newrev.as_ref())
    }

    /// Returns whether the push was processed before, but not for connection `by`, whose triggers
    /// have not seen it. `false` also if it is not known which connections delivered it.
    pub fn is_known_from_others_only(&self, moved: &RefMove, by: &ConnectionName) -> bool {
        let tip = self.branches.get(&moved.git_ref);
        self.is_known_push(moved)
            && tip.is_some_and(|tip| !tip.delivered_by.is_empty() && !tip.delivered_by.contains(by))
    }

    /// Records that `by` also delivered a push that another connection delivered before: `by` is no
    /// longer missing. Does not count the push in `move_count`. Does nothing for a branch that is
    /// not known. The caller has checked that the push led to the known tip. Without room, drops
    /// which connections miss or delivered the push.
    pub fn record_same_push(&mut self, moved: &RefMove, by: &ConnectionName) {
        if let Some(mut tip) = self.branches.get(&moved.git_ref).cloned() {
            tip.delivered_by.insert(by.clone());
            tip.missing_from.remove(by);
            tip.missing_since = tip.missing_since.filter(|_| !tip.missing_from.is_empty());
            self.put(&moved.git_ref, tip);
        }
    }

    /// Records which of the connections `all` have yet to deliver a push, in place of those
    /// recorded before; `all` may include those that delivered it. If one of them lacked an earlier
    /// push too, the start of that earlier push stays recorded for all of them, unless the branch
    /// is back there. The caller has recorded the push itself. Changes nothing if the push did not
    /// lead to the known tip, if it is not known which connections delivered it, or if there is no
    /// room.
    pub fn expect_from(&mut self, moved: &RefMove, all: &BTreeSet<ConnectionName>) {
        let tip =
            self.branches.get(&moved.git_ref).filter(|tip| Some(&tip.at) == moved.newrev.as_ref());
        // Without the list of those that delivered it, the missing ones are unknown.
        if let Some(mut tip) = tip.filter(|tip| !tip.delivered_by.is_empty()).cloned() {
            let missing: BTreeSet<ConnectionName> =
                all.difference(&tip.delivered_by).cloned().collect();
            // A connection that has not delivered the push before either gets both as one. When the
            // missing connections differ, one of them may get more than this push rather than too
            // little. Back at the old tip, both pushes together are empty.
            if tip.missing_from.is_disjoint(&missing) || tip.missing_since.as_ref() == Some(&tip.at)
            {
                tip.missing_since.clone_from(&moved.oldrev);
            }
            tip.missing_since = tip.missing_since.filter(|_| !missing.is_empty());
            tip.missing_from = missing;
            if self.has_room(&moved.git_ref, &tip) {
                self.put(&moved.git_ref, tip);
            }
        }
    }

    /// Returns the pushes to the present tips that some of the connections `all` never delivered,
    /// with the connection, one entry for each. All pushes of one branch start where the branch was
    /// before the earliest push that some connection misses, so a connection may get more than it
    /// misses. Only branches count that the forge lists (`listed`) at the known tip, and to which a
    /// push is known.
    pub fn missing_pushes(
        &self,
        listed: &BTreeMap<String, Oid>,
        all: &BTreeSet<ConnectionName>,
    ) -> Vec<(RefMove, ConnectionName)> {
        let is_there = |git_ref: &str, tip: &BranchTip| {
            tip.is_push_known && listed.get(git_ref) == Some(&tip.at)
        };
        let listed_tips = self.branches.iter().filter(|(git_ref, tip)| is_there(git_ref, tip));
        let moves = listed_tips.flat_map(|(git_ref, tip)| {
            let from = tip.missing_since.clone().unwrap_or_else(Oid::zero);
            let moved = RefMove::new(git_ref, from, tip.at.clone());
            tip.missing_from
                .intersection(all)
                .map(move |connection| (moved.clone(), connection.clone()))
        });
        moves.collect()
    }

    /// Returns a missed push as connection `by` has to process it: extended back to the earliest
    /// push that some connection has not delivered, if `by` lacks an earlier push. Returns `missed`
    /// itself if `by` lacks none, if the branch is deleted, or if it is back at the commit where
    /// the earliest of them started. Records nothing.
    pub fn push_for_connection(&self, missed: &RefMove, by: &ConnectionName) -> RefMove {
        let tip = self.branches.get(&missed.git_ref).filter(|tip| tip.missing_from.contains(by));
        match (tip, &missed.newrev) {
            // Back at the old tip, all pushes together are empty.
            (Some(BranchTip { missing_since: from, .. }), Some(at))
                if from.as_ref() != Some(at) =>
            {
                RefMove::new(&missed.git_ref, from.clone().unwrap_or_else(Oid::zero), at.clone())
            }
            _ => missed.clone(),
        }
    }

    /// Returns whether a push does not start at the known tip: it arrived late, or one before it
    /// was missed. `false` for a branch without a known tip, and for one whose tip no known push
    /// led to.
    pub fn is_out_of_order(&self, moved: &RefMove) -> bool {
        let tip = self.branches.get(&moved.git_ref);
        tip.is_some_and(|tip| tip.is_push_known && Some(&tip.at) != moved.oldrev.as_ref())
    }

    /// Records a push that connection `by` delivered, and counts it in `move_count`. A deletion
    /// removes the branch. Otherwise the tip becomes the pushed commit, delivered by `by` only;
    /// what other connections still miss is kept. Without room, a new branch is not stored; a known
    /// branch then keeps only its tip, not which connections miss or delivered the push.
    pub fn record_push(&mut self, moved: &RefMove, by: &ConnectionName) {
        self.move_count += 1;
        match &moved.newrev {
            None => drop(self.branches.remove(&moved.git_ref)),
            Some(at) => {
                let before = self.branches.get(&moved.git_ref);
                let mut missing = before.map(|tip| tip.missing_from.clone()).unwrap_or_default();
                missing.remove(by);
                let from = before
                    .and_then(|tip| tip.missing_since.clone())
                    .filter(|_| !missing.is_empty());
                self.put(
                    &moved.git_ref,
                    BranchTip {
                        missing_from: missing,
                        missing_since: from,
                        ..BranchTip::new(at, Some(by))
                    },
                );
            }
        }
    }

    /// Compares the tips with those that the forge lists, by full ref name, and returns at most
    /// `most` missed pushes: moved and new branches by name, then deleted ones. The first call
    /// records listed branches without a known tip, which are then not missed. Nothing else is
    /// recorded. New branches without room in the record are left out.
    pub fn find_missed_pushes(
        &mut self,
        listed: &BTreeMap<String, Oid>,
        most: usize,
    ) -> Vec<RefMove> {
        if !self.is_complete {
            self.is_complete = true;
            for (git_ref, at) in listed {
                if !self.branches.contains_key(git_ref) {
                    self.put(git_ref, BranchTip::new(at, None));
                }
            }
        }
        let mut missed = Vec::new();
        for (git_ref, at) in listed {
            match self.branches.get(git_ref) {
                Some(tip) if tip.at != *at => {
                    missed.push(RefMove::new(git_ref, tip.at.clone(), at.clone()))
                }
                None if self.has_room(git_ref, &BranchTip::new(at, None)) => {
                    missed.push(RefMove::new(git_ref, Oid::zero(), at.clone()));
                }
                Some(_) | None => {}
            }
        }
        let gone = self.branches.iter().filter(|(git_ref, _)| !listed.contains_key(*git_ref));
        missed
            .extend(gone.map(|(git_ref, tip)| RefMove::new(git_ref, tip.at.clone(), Oid::zero())));
        missed.truncate(most);
        missed
    }

    /// Stores the tip of a branch in place of the known one. Without room, first drops which
    /// connections miss the push, then which delivered it. If there is still no room, a new branch
    /// is not stored, and a known one is.
    fn put(&mut self, git_ref: &str, mut tip: BranchTip) {
        if !self.has_room(git_ref, &tip) {
            (tip.missing_from, tip.missing_since) = (BTreeSet::new(), None);
        }
        if !self.has_room(git_ref, &tip) {
            // The tip is more important than who delivered the push.
            tip = BranchTip { is_push_known: tip.is_push_known, ..BranchTip::new(&tip.at, None) };
        }
        if self.branches.contains_key(git_ref) || self.has_room(git_ref, &tip) {
            self.branches.insert(git_ref.to_owned(), tip);
        }
    }

    /// Returns whether a branch with this tip fits into the record together with the other
    /// branches: at most [`REFS_MAX`] branches and [`REFS_BYTES_MAX`] bytes. An earlier tip of the
    /// same branch does not count.
    fn has_room(&self, git_ref: &str, tip: &BranchTip) -> bool {
        // A quotation mark in a name takes two bytes in JSON.
        let name = |text: &str| text.len() + text.matches('"').count();
        let names = |connections: &BTreeSet<ConnectionName>, more: usize| -> usize {
            connections.iter().map(|connection| name(connection.as_str()) + more).sum()
        };
        let bytes = |git_ref: &str, tip: &BranchTip| {
            let from =
                tip.missing_since.as_ref().map_or(0, |from| from.as_str().len() + MISSING_BYTES);
            let connections_bytes =
                names(&tip.delivered_by, BY_BYTES) + names(&tip.missing_from, MISSING_BYTES);
            name(git_ref) + tip.at.as_str().len() + TIP_BYTES + connections_bytes + from
        };
        let others = || self.branches.iter().filter(move |(other, _)| other.as_str() != git_ref);
        let taken: usize = others().map(|(other, tip)| bytes(other, tip)).sum();
        others().count() < REFS_MAX && taken + bytes(git_ref, tip) <= REFS_BYTES_MAX
    }
}

/// Returns the key of a project's branch tips.
pub fn key(project: &ProjectName) -> Key {
    Key::new(format!("refs#{}", escape(project.as_str())), "head")
}

/// Returns the unconditional write of a project's branch tips. An error if they are too large for a
/// record.
///
/// # Errors
/// When the record is too large.
pub fn put(project: &ProjectName, refs: &BranchTips) -> Result<Write, PortError> {
    Ok(Write::Put { record: encode_first(key(project), refs)?, expect: Expect::Anything })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(all: &[(&str, &str)]) -> BTreeMap<String, Oid> {
        all.iter().map(|(name, at)| (format!("refs/heads/{name}"), Oid::from(*at))).collect()
    }

    fn moved(name: &str, from: &str, to: &str) -> RefMove {
        RefMove::new(format!("refs/heads/{name}"), Oid::from(from), Oid::from(to))
    }

    const ZERO: &str = "0000000000000000000000000000000000000000";

    /// C5
    #[test]
    fn a_tip_that_differs_from_the_known_one_is_a_missed_push() {
        let mut refs = BranchTips::default();
        let first = listed(&[("main", "a"), ("old", "o")]);
        assert_eq!(
            refs.find_missed_pushes(&first, 9),
            [],
            "the first comparison only records the tips"
        );
        assert_eq!(refs.find_missed_pushes(&first, 9), []);
        let now = listed(&[("main", "b"), ("new", "n")]);
        let missed = [moved("main", "a", "b"), moved("new", ZERO, "n"), moved("old", "o", ZERO)];
        assert_eq!(refs.find_missed_pushes(&now, 9), missed);
        assert_eq!(
            refs.find_missed_pushes(&now, 1).len(),
            1,
            "the rest is found by the next comparison"
        );
        missed.iter().for_each(|missed| refs.record_push(missed, &"github".into()));
        assert_eq!(refs.find_missed_pushes(&now, 9), []);
    }

    /// C5: a push found by the sweep and its late webhook are one push.
    #[test]
    fn a_push_is_known_until_the_branch_moves_again() {
        let mut refs = BranchTips::default();
        refs.find_missed_pushes(&listed(&[("main", "a")]), 9);
        let push = moved("main", "x", "a");
        assert!(
            !refs.is_known_push(&push),
            "the sweep found the tip, and the webhook may still arrive"
        );
        refs.record_push(&push, &"github".into());
        assert!(refs.is_known_push(&push) && refs.is_out_of_order(&push));
        refs.record_push(&moved("main", "a", "b"), &"github".into());
        assert!(!refs.is_known_push(&moved("main", "b", "a")));
        refs.record_push(&moved("main", "b", ZERO), &"github".into());
        assert!(!refs.is_known_push(&moved("main", ZERO, "b")));
    }

    /// C5: each of two connections to a host delivers each push, for its own triggers.
    #[test]
    fn a_push_is_processed_once_for_each_connection() {
        let (one, two) = (ConnectionName::from("one"), ConnectionName::from("two"));
        let mut refs = BranchTips::default();
        let push = moved("main", "a", "b");
        assert!(!refs.is_known_from_others_only(&push, &one), "no connection has delivered it");
        refs.record_push(&push, &one);
        assert!(
            !refs.is_known_from_others_only(&push, &one)
                && refs.is_known_from_others_only(&push, &two)
        );
        refs.record_same_push(&push, &two);
        assert!(
            refs.is_known_push(&push)
                && !refs.is_known_from_others_only(&push, &one)
                && !refs.is_known_from_others_only(&push, &two)
        );
        assert_eq!(refs.move_count, 1, "the branch moved once");
        refs.record_push(&moved("main", "b", "c"), &two);
        assert!(refs.is_known_from_others_only(&moved("main", "b", "c"), &one));
    }

    /// C5: the sweep finds pushes that a connection did not deliver, and none for a connection that
    /// was added later.
    #[test]
    fn a_push_is_missing_from_connections_that_did_not_deliver_it() {
        let [one, two, later] = ["one", "two", "later"].map(ConnectionName::from);
        let all: BTreeSet<ConnectionName> = [one.clone(), two.clone()].into();
        let mut refs = BranchTips::default();
        refs.find_missed_pushes(&listed(&[("main", "a")]), 9);
        let push = moved("main", "a", "b");
        refs.record_push(&push, &one);
        let now = listed(&[("main", "b")]);
        assert_eq!(refs.missing_pushes(&now, &all), [], "the only connection has delivered it");
        refs.expect_from(&push, &all);
        let asked: BTreeSet<ConnectionName> = all.iter().cloned().chain([later]).collect();
        assert_eq!(refs.missing_pushes(&now, &asked), [(push.clone(), two.clone())]);
        assert_eq!(
            refs.missing_pushes(&now, &[one].into()),
            [],
            "no tenant uses the other connection"
        );
        assert_eq!(
            refs.missing_pushes(&listed(&[("main", "c")]), &asked),
            [],
            "the branch has moved, which is a push of its own"
        );
        refs.record_same_push(&push, &two);
        assert_eq!(
            (refs.missing_pushes(&now, &asked), &refs.branches["refs/heads/main"].missing_since),
            (Vec::new(), &None)
        );
        let new = moved("new", ZERO, "n");
        refs.record_push(&new, &two);
        refs.expect_from(&new, &all);
        assert_eq!(refs.missing_pushes(&listed(&[("new", "n")]), &asked), [(new, "one".into())]);
    }

    /// C5: a connection that missed several pushes gets them as one.
    #[test]
    fn missed_pushes_of_a_connection_are_combined() {
        let [one, two, three] = ["one", "two", "three"].map(ConnectionName::from);
        let all: BTreeSet<ConnectionName> = [one.clone(), two.clone()].into();
        let mut refs = BranchTips::default();
        let mut push =
            |by: &ConnectionName, all: &BTreeSet<ConnectionName>, from: &str, to: &str| {
                let push = moved("main", from, to);
                refs.record_push(&push, by);
                refs.expect_from(&push, all);
                refs.missing_pushes(&listed(&[("main", to)]), all)
            };
        assert_eq!(push(&one, &all, "a", "b"), [(moved("main", "a", "b"), two.clone())]);
        assert_eq!(push(&one, &all, "b", "c"), [(moved("main", "a", "c"), two.clone())]);
        assert_eq!(push(&two, &all, "c", "d"), [(moved("main", "c", "d"), one.clone())]);
        assert_eq!(push(&one, &all, "d", "e"), [(moved("main", "d", "e"), two.clone())]);
        assert_eq!(
            push(&one, &all, "e", "d"),
            [(moved("main", "e", "d"), two)],
            "back where it was"
        );
        assert_eq!(
            push(&one, &[one.clone()].into(), "d", "f"),
            [],
            "no tenant uses the other connection"
        );
        assert_eq!(
            push(&one, &[one.clone(), three.clone()].into(), "f", "g"),
            [(moved("main", "f", "g"), three)]
        );
    }

    /// C5: a missed push is extended by the earlier pushes that the connection did not deliver.
    #[test]
    fn a_missed_push_includes_earlier_pushes_of_its_connection() {
        let [one, two] = ["one", "two"].map(ConnectionName::from);
        let mut refs = BranchTips { is_complete: true, ..BranchTips::default() };
        let first = moved("main", "a", "b");
        refs.record_push(&first, &one);
        refs.expect_from(&first, &[one.clone(), two.clone()].into());
        let missed = refs.find_missed_pushes(&listed(&[("main", "c")]), 10);
        assert_eq!(missed, [moved("main", "b", "c")]);
        assert_eq!(refs.push_for_connection(&missed[0], &one), moved("main", "b", "c"));
        assert_eq!(refs.push_for_connection(&missed[0], &two), moved("main", "a", "c"));
        let back = moved("main", "b", "a");
        assert_eq!(refs.push_for_connection(&back, &two), back);
    }

    /// The record is bounded: a body holds 64 KB.
    #[test]
    fn as_many_branches_are_remembered_as_fit_into_a_record() {
        let name = |number: usize| format!("refs/heads/{number:05}{}", "n".repeat(70));
        let all = (0..2_000)
            .map(|number| (name(number), Oid::from("0123456789012345678901234567890123456789")));
        let mut refs = BranchTips::default();
        let all: BTreeMap<String, Oid> = all.collect();
        assert_eq!(refs.find_missed_pushes(&all, 9), []);
        assert_eq!(refs.branches.len(), REFS_MAX);
        assert!(put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok());
        assert_eq!(
            refs.find_missed_pushes(&all, 9),
            [],
            "a branch without room is not a missed push each time"
        );
        for (git_ref, at) in all.iter().take(REFS_MAX) {
            refs.record_push(
                &RefMove::new(git_ref, Oid::from("a"), at.clone()),
                &"a-connection-with-a-name".into(),
            );
        }
        assert_eq!(refs.branches.len(), REFS_MAX);
        assert!(
            put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok(),
            "the delivering connections are dropped first"
        );
        let others = ["another-connection-with-a-name", "a-third-one"].map(ConnectionName::from);
        let others: BTreeSet<ConnectionName> = others.into();
        for (git_ref, at) in all.iter().take(REFS_MAX) {
            let from = Oid::from("0123456789012345678901234567890123456789");
            refs.expect_from(&RefMove::new(git_ref, from, at.clone()), &others);
        }
        assert_eq!(refs.branches.len(), REFS_MAX);
        assert!(
            put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok(),
            "and then the missing ones"
        );
        // GitHub takes names of 255 bytes.
        let long = (0..2_000).map(|number| {
            (format!("{}{}", name(number), "\"".repeat(160)), Oid::from("0".repeat(40).as_str()))
        });
        let (mut refs, long): (BranchTips, BTreeMap<String, Oid>) =
            (BranchTips::default(), long.collect());
        refs.find_missed_pushes(&long, 9);
        assert!((100..REFS_MAX).contains(&refs.branches.len()), "{}", refs.branches.len());
        assert!(put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok());
        assert_eq!(refs.find_missed_pushes(&long, 9), []);
    }
}
