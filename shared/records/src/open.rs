//! Which changes of a project are known to be open: one of these that its forge lists no more was
//! closed or merged, and perhaps nobody told so.

use crate::codec::encode_first;
use crate::refs;
use serde::{Deserialize, Serialize};
use sluice_model::change::ChangeKey;
use sluice_model::{ConnectionName, ProjectName};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};
use std::collections::{BTreeMap, BTreeSet};

/// Changes of one project that are remembered, of each connection those with the highest numbers:
/// that an older one was closed is missed when nobody tells of it. A record holds 64 KB, and each
/// event of the project reads it.
pub const OPEN_MAX: usize = 1_000;

/// The changes of a project that are known to be open. One delivery of a project is handled at a
/// time, and writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Open {
    /// Their numbers, by the connection that told of them.
    by: BTreeMap<ConnectionName, BTreeSet<u64>>,
}

impl Open {
    /// Notes that a change is open, as far as there is room for that.
    pub fn note(&mut self, change: &ChangeKey) {
        let Some(number) = change.number() else { return };
        self.by.entry(change.connection.clone()).or_default().insert(number);
        if self.by.values().map(BTreeSet::len).sum::<usize>() > OPEN_MAX {
            self.drop_one();
        }
    }

    /// Notes that a change is open no more.
    pub fn forget(&mut self, change: &ChangeKey) {
        if let Some(number) = change.number() {
            self.remove(&change.connection, number);
        }
    }

    /// Returns the numbers of those that a connection told of, the lowest first.
    pub fn of(&self, connection: &ConnectionName) -> impl Iterator<Item = u64> {
        self.by.get(connection).into_iter().flatten().copied()
    }

    /// Drops the lowest number of the connection that has most: what nobody asks by any more leaves
    /// room to the others.
    fn drop_one(&mut self) {
        let fullest = self.by.iter().max_by_key(|(_, numbers)| numbers.len());
        let lowest =
            fullest.and_then(|(connection, numbers)| Some((connection.clone(), *numbers.first()?)));
        if let Some((connection, number)) = lowest {
            self.remove(&connection, number);
        }
    }

    fn remove(&mut self, connection: &ConnectionName, number: u64) {
        if let Some(numbers) = self.by.get_mut(connection) {
            numbers.remove(&number);
        }
        self.by.retain(|_, numbers| !numbers.is_empty());
    }
}

/// Returns the key of a project's open changes, beside its branches.
pub fn key(project: &ProjectName) -> Key {
    Key::new(refs::key(project).partition, "open")
}

/// Returns the write of a project's open changes.
///
/// # Errors
/// When they are too large.
pub fn put(project: &ProjectName, open: &Open) -> Result<Write, PortError> {
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
    fn an_open_change_is_remembered_by_its_connection_until_it_is_over() {
        let mut open = Open::default();
        for (connection, number) in [("github", 7), ("github", 2), ("aside", 7), ("github", 7)] {
            open.note(&change(connection, number));
        }
        open.forget(&change("github", 7));
        open.forget(&change("nowhere", 7));
        let numbers =
            |open: &Open, connection: &str| open.of(&connection.into()).collect::<Vec<u64>>();
        assert_eq!((numbers(&open, "github"), numbers(&open, "aside")), (vec![2], vec![7]));
        open.forget(&change("aside", 7));
        open.forget(&change("github", 2));
        assert_eq!(open, Open::default());
    }

    /// C2: nothing unbounded in a record, whatever numbers a forge gives.
    #[test]
    fn of_many_open_changes_those_with_the_highest_numbers_are_remembered() {
        let mut open = Open::default();
        let most = OPEN_MAX as u64;
        for number in (0..2 * most).rev() {
            open.note(&change("github", u64::MAX - number));
        }
        assert_eq!(open.of(&"github".into()).collect::<Vec<u64>>().len(), OPEN_MAX);
        assert_eq!(open.of(&"github".into()).next(), Some(u64::MAX - most + 1));
        let project = ProjectName::new("forge.test", "org/one");
        let Write::Put { record, .. } = put(&project, &open).unwrap() else { unreachable!() };
        assert_eq!((record.key.sort.as_str(), decode::<Open>(&record).unwrap()), ("open", open));
    }

    /// C5: a connection that was removed, or by which nobody has the project any more, leaves room
    /// to the others.
    #[test]
    fn a_connection_is_not_kept_out_by_what_another_one_told() {
        let mut open = Open::default();
        let most = OPEN_MAX as u64;
        let note = |open: &mut Open, connection: &str| {
            for number in 1..=2 * most {
                open.note(&change(connection, number));
            }
        };
        let lowest = |open: &Open, connection: &str| open.of(&connection.into()).next();
        note(&mut open, "github");
        open.note(&change("aside", 1));
        assert_eq!((lowest(&open, "github"), lowest(&open, "aside")), (Some(most + 2), Some(1)));
        note(&mut open, "aside");
        let halves = (Some(2 * most - most / 2 + 1), Some(2 * most - most / 2 + 1));
        assert_eq!((lowest(&open, "github"), lowest(&open, "aside")), halves);
        let known = open.clone();
        open.note(&change("github", most));
        open.note(&change("aside", most));
        assert_eq!(open, known, "what has no room is not written again and again");
    }
}
