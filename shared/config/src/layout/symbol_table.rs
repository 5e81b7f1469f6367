//! The symbol table of a layout: for each kind and name, the stanzas that define it and those that
//! were rejected, in configuration order.

use crate::objects::ObjectKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Identifies a stanza by the number of its file and its index in that file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct StanzaId {
    /// The number of the file in the layout.
    pub(super) file: u32,
    /// The index of the stanza in its file.
    pub(super) stanza: u32,
}

impl StanzaId {
    /// Returns the id of a stanza by its file and its index there.
    pub(super) fn new(file: usize, stanza: usize) -> Self {
        let clip = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { file: clip(file), stanza: clip(stanza) }
    }
}

/// Every stanza that defines one name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Symbol {
    /// The stanzas in effect.
    pub(super) accepted: Vec<StanzaId>,
    /// The stanzas rejected in favor of an accepted one; they may be accepted if it is removed.
    pub(super) rejected: Vec<StanzaId>,
}

impl Symbol {
    /// Returns all stanzas that define the name: the accepted ones, then the rejected ones.
    pub(super) fn claimants(&self) -> impl Iterator<Item = StanzaId> {
        self.accepted.iter().chain(&self.rejected).copied()
    }
}

/// The symbols of one kind by name.
pub(super) type Symbols = BTreeMap<String, Symbol>;

/// The symbols of every kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SymbolTable(BTreeMap<ObjectKind, Symbols>);

impl SymbolTable {
    /// Returns the accepted and rejected stanzas of a name; `None` if no stanza was stored for it.
    pub(super) fn get(&self, kind: ObjectKind, name: &str) -> Option<&Symbol> {
        self.0.get(&kind)?.get(name)
    }

    /// Stores the stanzas of a name, in place of those stored before. An entry without stanzas is
    /// stored too, and hides the name of the layout below.
    pub(super) fn put(&mut self, kind: ObjectKind, name: &str, entry: Symbol) {
        self.0.entry(kind).or_default().insert(name.to_owned(), entry);
    }

    /// Replaces all symbols of a kind.
    pub(super) fn put_all(&mut self, kind: ObjectKind, symbols_of_kind: Symbols) {
        self.0.insert(kind, symbols_of_kind);
    }

    /// Returns all symbols of a kind, sorted by name, also those without an accepted stanza.
    pub(super) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = (&str, &Symbol)> {
        self.0.get(&kind).into_iter().flatten().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns every accepted stanza with its kind and name. One stanza can appear under several
    /// names.
    pub(super) fn accepted(&self) -> impl Iterator<Item = (ObjectKind, &str, StanzaId)> {
        self.0.iter().flat_map(|(kind, symbols_of_kind)| {
            symbols_of_kind.iter().flat_map(|(name, entry)| {
                entry.accepted.iter().map(|stanza_id| (*kind, name.as_str(), *stanza_id))
            })
        })
    }
}

/// Returns the hash of a kind and name for [`super::BaseLayout::references`]. A collision only
/// costs a superfluous check.
pub(super) fn short_hash(kind: ObjectKind, name: &str) -> u32 {
    // FNV-1a.
    let mut hash: u32 = 0x811c_9dc5 ^ (kind as u32);
    for byte in name.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash
}
