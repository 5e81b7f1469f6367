//! The changes of a project that are known to be open. The sweep compares them with the forge: a
//! change that the forge no longer lists was closed or merged, and its webhook may be missing.

use crate::branch_tips;
use crate::codec::encode_first;
use serde::{Deserialize, Serialize};
use sluice_model::change::ChangeKey;
use sluice_model::{ConnectionName, ProjectName};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};
use std::collections::{BTreeMap, BTreeSet};

/// The most changes of one project that are remembered; each connection keeps those with the
/// highest numbers. The closing of an older change is missed when its webhook is missing. A record
/// holds 64 KB, and each event of the project reads it.
pub const OPEN_MAX: usize = 1_000;

/// The open changes of a project. Only one delivery of a project is processed at a time, so there
/// are no concurrent writers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OpenChanges {
    /// Change numbers, by the connection that reported them.
    by: BTreeMap<ConnectionName, BTreeSet<u64>>,
}

impl OpenChanges {
    /// Adds an open change under its connection; does nothing for a key that is a ref. If there are
    /// then more than [`OPEN_MAX`] changes, drops the lowest number of the connection with the most
    /// changes, which may be the added one.
    pub fn add(&mut self, change: &ChangeKey) {
        let Some(number) = change.number() else { return };
        self.by.entry(change.connection.clone()).or_default().insert(number);
        if self.by.values().map(BTreeSet::len).sum::<usize>() > OPEN_MAX {
            self.drop_one();
        }
    }

    /// Removes a change that is no longer open. Does nothing if it is not listed or is a ref.
    pub fn remove(&mut self, change: &ChangeKey) {
        if let Some(number) = change.number() {
            self.remove_number(&change.connection, number);
        }
    }

    /// Returns the open change numbers of a connection, in ascending order; none for a connection
    /// that is not known.
    pub fn numbers_of(&self, connection: &ConnectionName) -> impl Iterator<Item = u64> {
        self.by.get(connection).into_iter().flatten().copied()
    }

    /// Drops the lowest number of the connection with the most numbers, so that an unused
    /// connection does not take the room of others. Does nothing when there are none.
    fn drop_one(&mut self) {
        let fullest = self.by.iter().max_by_key(|(_, numbers)| numbers.len());
        let lowest =
            fullest.and_then(|(connection, numbers)| Some((connection.clone(), *numbers.first()?)));
        if let Some((connection, number)) = lowest {
            self.remove_number(&connection, number);
        }
    }

    /// Removes an open change of a connection by its number, if it is listed, and the connection if
    /// it has no more.
    fn remove_number(&mut self, connection: &ConnectionName, number: u64) {
        if let Some(numbers) = self.by.get_mut(connection) {
            numbers.remove(&number);
        }
        self.by.retain(|_, numbers| !numbers.is_empty());
    }
}

/// Returns the key of a project's open changes, in the partition of its branch tips.
pub fn key(project: &ProjectName) -> Key {
    Key::new(branch_tips::key(project).partition, "open")
}

/// Returns the unconditional write of a project's open changes. An error if they are too large for
/// a record.
///
/// # Errors
/// When the record is too large.
pub fn put(project: &ProjectName, open: &OpenChanges) -> Result<Write, PortError> {
    Ok(Write::Put { record: encode_first(key(project), open)?, expect: Expect::Anything })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode;

    fn change(connection: &str, number: u64) -> ChangeKey {
        ChangeKey::change(connection.into(), ProjectName::new("forge.test", "org/one"), number)
    }

    /// C5
    #[test]
    fn a_change_is_open_per_connection_until_it_is_removed() {
        let mut open = OpenChanges::default();
        for (connection, number) in [("github", 7), ("github", 2), ("aside", 7), ("github", 7)] {
            open.add(&change(connection, number));
        }
        open.remove(&change("github", 7));
        open.remove(&change("nowhere", 7));
        let numbers = |open: &OpenChanges, connection: &str| {
            open.numbers_of(&connection.into()).collect::<Vec<u64>>()
        };
        assert_eq!((numbers(&open, "github"), numbers(&open, "aside")), (vec![2], vec![7]));
        open.remove(&change("aside", 7));
        open.remove(&change("github", 2));
        assert_eq!(open, OpenChanges::default());
    }

    /// C2: the record is bounded, whatever numbers a forge assigns.
    #[test]
    fn the_highest_numbers_are_kept_when_there_are_too_many() {
        let mut open = OpenChanges::default();
        let most = OPEN_MAX as u64;
        for number in (0..2 * most).rev() {
            open.add(&change("github", u64::MAX - number));
        }
        assert_eq!(open.numbers_of(&"github".into()).collect::<Vec<u64>>().len(), OPEN_MAX);
        assert_eq!(open.numbers_of(&"github".into()).next(), Some(u64::MAX - most + 1));
        let project = ProjectName::new("forge.test", "org/one");
        let Write::Put { record, .. } = put(&project, &open).unwrap() else { unreachable!() };
        assert_eq!(
            (record.key.sort.as_str(), decode::<OpenChanges>(&record).unwrap()),
            ("open", open)
        );
    }

    /// C5: a connection that was removed, or that no tenant uses for the project, leaves room to
    /// the others.
    #[test]
    fn a_full_connection_makes_room_for_another() {
        let mut open = OpenChanges::default();
        let most = OPEN_MAX as u64;
        let note = |open: &mut OpenChanges, connection: &str| {
            for number in 1..=2 * most {
                open.add(&change(connection, number));
            }
        };
        let lowest =
            |open: &OpenChanges, connection: &str| open.numbers_of(&connection.into()).next();
        note(&mut open, "github");
        open.add(&change("aside", 1));
        assert_eq!((lowest(&open, "github"), lowest(&open, "aside")), (Some(most + 2), Some(1)));
        note(&mut open, "aside");
        let halves = (Some(2 * most - most / 2 + 1), Some(2 * most - most / 2 + 1));
        assert_eq!((lowest(&open, "github"), lowest(&open, "aside")), halves);
        let known = open.clone();
        open.add(&change("github", most));
        open.add(&change("aside", most));
        assert_eq!(open, known, "a number without room does not change the record");
    }
}
