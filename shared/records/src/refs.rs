//! Where a project's branches were when intake heard of them last: what is elsewhere by now was
//! pushed without a word.

use crate::codec::encode_first;
use serde::{Deserialize, Serialize};
use sluice_model::change::RefMove;
use sluice_model::git::Oid;
use sluice_model::name::escape;
use sluice_model::{ConnectionName, ProjectName};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};
use std::collections::{BTreeMap, BTreeSet};

/// Branches of one project that are remembered; pushes to others are not missed when nobody tells
/// of them.
pub const REFS_MAX: usize = 400;

/// Bytes of them; a record holds 64 KB, and anybody who may push gives branches long names.
const REFS_BYTES_MAX: usize = 62 << 10;

/// Bytes that a branch takes besides its name and its commit: what JSON puts around them.
const PLACE_BYTES: usize = 32;

/// Bytes that a connection takes besides its name, with those of the list that it may be the only
/// one of.
const BY_BYTES: usize = 12;

/// The same of a connection that has not told a push, and of the commit that the push began at.
const UNTOLD_BYTES: usize = 16;

/// The branches of a project as far as they are known. One delivery of a project is handled at a
/// time, and writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Refs {
    /// By the whole ref, `refs/heads/main`.
    pub branches: BTreeMap<String, Place>,
    /// Whether the forge was asked for all of them once, so that one that is missing here is new.
    #[serde(default)]
    pub is_whole: bool,
    /// How often anything moved: what is so again is told anew.
    #[serde(default)]
    pub moves: u64,
}

/// Where a branch is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its commit.
    pub at: Oid,
    /// Whether a push told so. Otherwise it was found there at the first look, and its push may
    /// still come.
    #[serde(default)]
    pub told: bool,
    /// By which connections it told so, of several to one host. None where that was not noted, or
    /// there is no room for it: then what a further one tells is nothing new.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub by: BTreeSet<ConnectionName>,
    /// By which connections it is to be told yet, of those that tenants had the project by when it
    /// was told first.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub untold: BTreeSet<ConnectionName>,
    /// Where the branch was before, for those that have not told it, nor the pushes before it;
    /// `None` where it was new, or all have told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Oid>,
}

impl Place {
    fn new(at: &Oid, by: Option<&ConnectionName>) -> Self {
        let told = by.is_some();
        Self {
            at: at.clone(),
            told,
            by: by.into_iter().cloned().collect(),
            untold: BTreeSet::new(),
            from: None,
        }
    }
}

impl Refs {
    /// Returns whether a push only says what an earlier one said.
    pub fn was_told(&self, moved: &RefMove) -> bool {
        let place = self.branches.get(&moved.git_ref);
        place.is_some_and(|place| place.told && Some(&place.at) == moved.newrev.as_ref())
    }

    /// Returns whether a push says what only other connections to its host have said: triggers of
    /// its own have heard nothing of it.
    pub fn was_told_elsewhere(&self, moved: &RefMove, by: &ConnectionName) -> bool {
        let place = self.branches.get(&moved.git_ref);
        self.was_told(moved)
            && place.is_some_and(|place| !place.by.is_empty() && !place.by.contains(by))
    }

    /// Notes that a push was told of by a further connection: its branch did not move again.
    pub fn note_again(&mut self, moved: &RefMove, by: &ConnectionName) {
        if let Some(mut place) = self.branches.get(&moved.git_ref).cloned() {
            place.by.insert(by.clone());
            place.untold.remove(by);
            place.from = place.from.filter(|_| !place.untold.is_empty());
            self.put(&moved.git_ref, place);
        }
    }

    /// Notes that a push which was told is to be told by each of these connections, as far as there
    /// is room for that.
    pub fn await_others(&mut self, moved: &RefMove, all: &BTreeSet<ConnectionName>) {
        let place = self
            .branches
            .get(&moved.git_ref)
            .filter(|place| Some(&place.at) == moved.newrev.as_ref());
        // Where it was left out who told it nobody can say who has not.
        if let Some(mut place) = place.filter(|place| !place.by.is_empty()).cloned() {
            let untold: BTreeSet<ConnectionName> = all.difference(&place.by).cloned().collect();
            // Who has not told the push before either is to tell what both brought; where others
            // are to tell this one alone, they tell more than it rather than some less. Back where
            // the branch was, both brought nothing.
            if place.untold.is_disjoint(&untold) || place.from.as_ref() == Some(&place.at) {
                place.from.clone_from(&moved.oldrev);
            }
            place.from = place.from.filter(|_| !untold.is_empty());
            place.untold = untold;
            if self.has_room(&moved.git_ref, &place) {
                self.put(&moved.git_ref, place);
            }
        }
    }

    /// Returns the pushes that led to where branches are now, and that some of these connections
    /// have never told, with each of those.
    pub fn untold(
        &self,
        listed: &BTreeMap<String, Oid>,
        all: &BTreeSet<ConnectionName>,
    ) -> Vec<(RefMove, ConnectionName)> {
        let is_there =
            |git_ref: &str, place: &Place| place.told && listed.get(git_ref) == Some(&place.at);
        let there = self.branches.iter().filter(|(git_ref, place)| is_there(git_ref, place));
        let moves = there.flat_map(|(git_ref, place)| {
            let from = place.from.clone().unwrap_or_else(Oid::zero);
            let moved = RefMove::new(git_ref, from, place.at.clone());
            place
                .untold
                .intersection(all)
                .map(move |connection| (moved.clone(), connection.clone()))
        });
        moves.collect()
    }

    /// Returns a push that nobody told as a connection is to tell it: with what that one has not
    /// told of the pushes before.
    pub fn as_told_by(&self, lost: &RefMove, by: &ConnectionName) -> RefMove {
        let place = self.branches.get(&lost.git_ref).filter(|place| place.untold.contains(by));
        match (place, &lost.newrev) {
            // Back where the branch was, all of them brought nothing.
            (Some(Place { from, .. }), Some(at)) if from.as_ref() != Some(at) => {
                RefMove::new(&lost.git_ref, from.clone().unwrap_or_else(Oid::zero), at.clone())
            }
            _ => lost.clone(),
        }
    }

    /// Returns whether a push does not begin where the branch is: it comes late, or one before it
    /// was lost.
    pub fn is_out_of_order(&self, moved: &RefMove) -> bool {
        let place = self.branches.get(&moved.git_ref);
        place.is_some_and(|place| place.told && Some(&place.at) != moved.oldrev.as_ref())
    }

    /// Notes that a push was told of by a connection.
    pub fn note(&mut self, moved: &RefMove, by: &ConnectionName) {
        self.moves += 1;
        match &moved.newrev {
            None => drop(self.branches.remove(&moved.git_ref)),
            Some(at) => {
                let before = self.branches.get(&moved.git_ref);
                let mut untold = before.map(|place| place.untold.clone()).unwrap_or_default();
                untold.remove(by);
                let from =
                    before.and_then(|place| place.from.clone()).filter(|_| !untold.is_empty());
                self.put(&moved.git_ref, Place { untold, from, ..Place::new(at, Some(by)) });
            }
        }
    }

    /// Takes in where a forge says that branches are, and returns what moved without a word, at
    /// most `most`; nothing at the first look.
    pub fn compare(&mut self, listed: &BTreeMap<String, Oid>, most: usize) -> Vec<RefMove> {
        if !self.is_whole {
            self.is_whole = true;
            for (git_ref, at) in listed {
                if !self.branches.contains_key(git_ref) {
                    self.put(git_ref, Place::new(at, None));
                }
            }
        }
        let mut lost = Vec::new();
        for (git_ref, at) in listed {
            match self.branches.get(git_ref) {
                Some(place) if place.at != *at => {
                    lost.push(RefMove::new(git_ref, place.at.clone(), at.clone()))
                }
                None if self.has_room(git_ref, &Place::new(at, None)) => {
                    lost.push(RefMove::new(git_ref, Oid::zero(), at.clone()));
                }
                Some(_) | None => {}
            }
        }
        let gone = self.branches.iter().filter(|(git_ref, _)| !listed.contains_key(*git_ref));
        lost.extend(
            gone.map(|(git_ref, place)| RefMove::new(git_ref, place.at.clone(), Oid::zero())),
        );
        lost.truncate(most);
        lost
    }

    fn put(&mut self, git_ref: &str, mut place: Place) {
        if !self.has_room(git_ref, &place) {
            (place.untold, place.from) = (BTreeSet::new(), None);
        }
        if !self.has_room(git_ref, &place) {
            // Where a branch is counts for more than who said so, or has not.
            place = Place { told: place.told, ..Place::new(&place.at, None) };
        }
        if self.branches.contains_key(git_ref) || self.has_room(git_ref, &place) {
            self.branches.insert(git_ref.to_owned(), place);
        }
    }

    /// Returns whether a branch fits beside the others.
    fn has_room(&self, git_ref: &str, place: &Place) -> bool {
        // A quotation mark, which a name may hold, is written as two characters.
        let name = |text: &str| text.len() + text.matches('"').count();
        let names = |connections: &BTreeSet<ConnectionName>, more: usize| -> usize {
            connections.iter().map(|connection| name(connection.as_str()) + more).sum()
        };
        let bytes = |git_ref: &str, place: &Place| {
            let from = place.from.as_ref().map_or(0, |from| from.as_str().len() + UNTOLD_BYTES);
            let told = names(&place.by, BY_BYTES) + names(&place.untold, UNTOLD_BYTES);
            name(git_ref) + place.at.as_str().len() + PLACE_BYTES + told + from
        };
        let others = || self.branches.iter().filter(move |(known, _)| known.as_str() != git_ref);
        let taken: usize = others().map(|(known, place)| bytes(known, place)).sum();
        others().count() < REFS_MAX && taken + bytes(git_ref, place) <= REFS_BYTES_MAX
    }
}

/// Returns the key of a project's branches.
pub fn key(project: &ProjectName) -> Key {
    Key::new(format!("refs#{}", escape(project.as_str())), "head")
}

/// Returns the write of a project's branches.
///
/// # Errors
/// When they are too large.
pub fn put(project: &ProjectName, refs: &Refs) -> Result<Write, PortError> {
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

    const NOWHERE: &str = "0000000000000000000000000000000000000000";

    /// C5
    #[test]
    fn what_is_elsewhere_than_it_was_told_to_be_was_pushed_without_a_word() {
        let mut refs = Refs::default();
        let first = listed(&[("main", "a"), ("old", "o")]);
        assert_eq!(refs.compare(&first, 9), [], "everything is new at the first look");
        assert_eq!(refs.compare(&first, 9), []);
        let now = listed(&[("main", "b"), ("new", "n")]);
        let lost =
            [moved("main", "a", "b"), moved("new", NOWHERE, "n"), moved("old", "o", NOWHERE)];
        assert_eq!(refs.compare(&now, 9), lost);
        assert_eq!(refs.compare(&now, 1).len(), 1, "the rest at the next look");
        lost.iter().for_each(|lost| refs.note(lost, &"github".into()));
        assert_eq!(refs.compare(&now, 9), []);
    }

    /// C5: a push that was found and one whose webhook comes late after all are one.
    #[test]
    fn a_push_is_told_once_unless_the_branch_was_elsewhere_meanwhile() {
        let mut refs = Refs::default();
        refs.compare(&listed(&[("main", "a")]), 9);
        let push = moved("main", "x", "a");
        assert!(!refs.was_told(&push), "it was found there, and its push is on its way");
        refs.note(&push, &"github".into());
        assert!(refs.was_told(&push) && refs.is_out_of_order(&push));
        refs.note(&moved("main", "a", "b"), &"github".into());
        assert!(!refs.was_told(&moved("main", "b", "a")));
        refs.note(&moved("main", "b", NOWHERE), &"github".into());
        assert!(!refs.was_told(&moved("main", NOWHERE, "b")));
    }

    /// C5: two connections to a host tell each push, and each has triggers of its own.
    #[test]
    fn a_push_is_told_once_by_each_connection() {
        let (one, two) = (ConnectionName::from("one"), ConnectionName::from("two"));
        let mut refs = Refs::default();
        let push = moved("main", "a", "b");
        assert!(!refs.was_told_elsewhere(&push, &one), "nobody has told it");
        refs.note(&push, &one);
        assert!(!refs.was_told_elsewhere(&push, &one) && refs.was_told_elsewhere(&push, &two));
        refs.note_again(&push, &two);
        assert!(
            refs.was_told(&push)
                && !refs.was_told_elsewhere(&push, &one)
                && !refs.was_told_elsewhere(&push, &two)
        );
        assert_eq!(refs.moves, 1, "the branch moved once");
        refs.note(&moved("main", "b", "c"), &two);
        assert!(refs.was_told_elsewhere(&moved("main", "b", "c"), &one));
    }

    /// C5: what only some connections told is told by the others when it is looked for, and by no
    /// connection that came later.
    #[test]
    fn a_push_is_looked_for_by_the_connections_that_did_not_tell_it() {
        let [one, two, later] = ["one", "two", "later"].map(ConnectionName::from);
        let all: BTreeSet<ConnectionName> = [one.clone(), two.clone()].into();
        let mut refs = Refs::default();
        refs.compare(&listed(&[("main", "a")]), 9);
        let push = moved("main", "a", "b");
        refs.note(&push, &one);
        let now = listed(&[("main", "b")]);
        assert_eq!(refs.untold(&now, &all), [], "whoever has it by one alone heard it");
        refs.await_others(&push, &all);
        let asked: BTreeSet<ConnectionName> = all.iter().cloned().chain([later]).collect();
        assert_eq!(refs.untold(&now, &asked), [(push.clone(), two.clone())]);
        assert_eq!(refs.untold(&now, &[one].into()), [], "nobody has it by the other one any more");
        assert_eq!(
            refs.untold(&listed(&[("main", "c")]), &asked),
            [],
            "it moved on, and that is told"
        );
        refs.note_again(&push, &two);
        assert_eq!(
            (refs.untold(&now, &asked), &refs.branches["refs/heads/main"].from),
            (Vec::new(), &None)
        );
        let new = moved("new", NOWHERE, "n");
        refs.note(&new, &two);
        refs.await_others(&new, &all);
        assert_eq!(refs.untold(&listed(&[("new", "n")]), &asked), [(new, "one".into())]);
    }

    /// C5: who told none of several pushes tells what all of them brought; who told the one before,
    /// this one.
    #[test]
    fn pushes_that_a_connection_did_not_tell_are_told_by_it_as_one() {
        let [one, two, three] = ["one", "two", "three"].map(ConnectionName::from);
        let all: BTreeSet<ConnectionName> = [one.clone(), two.clone()].into();
        let mut refs = Refs::default();
        let mut push =
            |by: &ConnectionName, all: &BTreeSet<ConnectionName>, from: &str, to: &str| {
                let push = moved("main", from, to);
                refs.note(&push, by);
                refs.await_others(&push, all);
                refs.untold(&listed(&[("main", to)]), all)
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
            "nobody has it by the other one any more"
        );
        assert_eq!(
            push(&one, &[one.clone(), three.clone()].into(), "f", "g"),
            [(moved("main", "f", "g"), three)]
        );
    }

    /// C5: who has not told the push before one that nobody told tells what both brought.
    #[test]
    fn a_lost_push_is_told_by_a_connection_with_what_that_has_not_told_before() {
        let [one, two] = ["one", "two"].map(ConnectionName::from);
        let mut refs = Refs { is_whole: true, ..Refs::default() };
        let first = moved("main", "a", "b");
        refs.note(&first, &one);
        refs.await_others(&first, &[one.clone(), two.clone()].into());
        let lost = refs.compare(&listed(&[("main", "c")]), 10);
        assert_eq!(lost, [moved("main", "b", "c")]);
        assert_eq!(refs.as_told_by(&lost[0], &one), moved("main", "b", "c"));
        assert_eq!(refs.as_told_by(&lost[0], &two), moved("main", "a", "c"));
        let back = moved("main", "b", "a");
        assert_eq!(refs.as_told_by(&back, &two), back);
    }

    /// What was noted before that is told nobody anew.
    #[test]
    fn an_older_record_has_each_push_told_by_every_connection() {
        let refs: Refs =
            serde_json::from_str(r#"{"branches":{"refs/heads/main":{"at":"a","told":true}}}"#)
                .unwrap();
        let push = moved("main", "x", "a");
        assert!(refs.was_told(&push) && !refs.was_told_elsewhere(&push, &"two".into()));
    }

    /// Nothing unbounded in a record: a body holds 64 KB.
    #[test]
    fn as_many_branches_are_remembered_as_a_record_holds() {
        let name = |number: usize| format!("refs/heads/{number:05}{}", "n".repeat(70));
        let all = (0..2_000)
            .map(|number| (name(number), Oid::from("0123456789012345678901234567890123456789")));
        let mut refs = Refs::default();
        let all: BTreeMap<String, Oid> = all.collect();
        assert_eq!(refs.compare(&all, 9), []);
        assert_eq!(refs.branches.len(), REFS_MAX);
        assert!(put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok());
        assert_eq!(refs.compare(&all, 9), [], "what there is no room for is not new at each look");
        for (git_ref, at) in all.iter().take(REFS_MAX) {
            refs.note(
                &RefMove::new(git_ref, Oid::from("a"), at.clone()),
                &"a-connection-with-a-name".into(),
            );
        }
        assert_eq!(refs.branches.len(), REFS_MAX);
        assert!(
            put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok(),
            "who told it is left out first"
        );
        let others = ["another-connection-with-a-name", "a-third-one"].map(ConnectionName::from);
        let others: BTreeSet<ConnectionName> = others.into();
        for (git_ref, at) in all.iter().take(REFS_MAX) {
            let from = Oid::from("0123456789012345678901234567890123456789");
            refs.await_others(&RefMove::new(git_ref, from, at.clone()), &others);
        }
        assert_eq!(refs.branches.len(), REFS_MAX);
        assert!(put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok(), "and who has not");
        // GitHub takes names of 255 bytes.
        let long = (0..2_000).map(|number| {
            (format!("{}{}", name(number), "\"".repeat(160)), Oid::from("0".repeat(40).as_str()))
        });
        let (mut refs, long): (Refs, BTreeMap<String, Oid>) = (Refs::default(), long.collect());
        refs.compare(&long, 9);
        assert!((100..REFS_MAX).contains(&refs.branches.len()), "{}", refs.branches.len());
        assert!(put(&ProjectName::new("forge.test", "org/one"), &refs).is_ok());
        assert_eq!(refs.compare(&long, 9), []);
    }
}
