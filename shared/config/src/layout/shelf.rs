//! Where a layout keeps what bears a name: by kind and name, who stands and who was refused, in the
//! order of configuration.

use crate::objects::ObjectKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A stanza by the number of its file and its own number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Unit {
    pub(super) file: u32,
    pub(super) stanza: u32,
}

impl Unit {
    pub(super) fn new(file: usize, stanza: usize) -> Self {
        let clip = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { file: clip(file), stanza: clip(stanza) }
    }
}

/// Everything that lays claim to one name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Those that stand.
    pub(super) accepted: Vec<Unit>,
    /// Those that another one is in the way of; should it go, they may stand.
    pub(super) refused: Vec<Unit>,
}

impl Entry {
    pub(super) fn claimants(&self) -> impl Iterator<Item = Unit> {
        self.accepted.iter().chain(&self.refused).copied()
    }
}

/// All entries, by kind and name.
pub(super) type Shelf = BTreeMap<String, Entry>;

/// A shelf for each kind of objects.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Shelves(BTreeMap<ObjectKind, Shelf>);

impl Shelves {
    pub(super) fn get(&self, kind: ObjectKind, name: &str) -> Option<&Entry> {
        self.0.get(&kind)?.get(name)
    }

    pub(super) fn put(&mut self, kind: ObjectKind, name: &str, entry: Entry) {
        self.0.entry(kind).or_default().insert(name.to_owned(), entry);
    }

    pub(super) fn put_all(&mut self, kind: ObjectKind, shelf: Shelf) {
        self.0.insert(kind, shelf);
    }

    pub(super) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.get(&kind).into_iter().flatten().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns everything that stands, with its kind and name; a stanza may stand under several
    /// names.
    pub(super) fn standing(&self) -> impl Iterator<Item = (ObjectKind, &str, Unit)> {
        self.0.iter().flat_map(|(kind, shelf)| {
            shelf.iter().flat_map(|(name, entry)| {
                entry.accepted.iter().map(|unit| (*kind, name.as_str(), *unit))
            })
        })
    }
}

/// Returns a short name of a kind and name for [`super::Base::references`]: two that share one only
/// cost a superfluous look.
pub(super) fn short_hash(kind: ObjectKind, name: &str) -> u32 {
    // FNV-1a.
    let mut hash: u32 = 0x811c_9dc5 ^ (kind as u32);
    for byte in name.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash
}
