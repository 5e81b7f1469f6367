//! The record format of a head: per item its id and only what differs from the default, so that a
//! thousand items fit.
//!
//! An entry is a text with its members' slots, separated by commas. A slot consists of words
//! separated by spaces. The first word is the item's id: sixteen bytes in 22 letters, or `~` and
//! the id as it is. The other words are omitted where they have their default:
//!
//! - the status, as a letter (default: waiting),
//! - `g` with the generation (default: 1),
//! - `v` with the version of the item's record (default: 1),
//! - in the first slot, the state that the entry is tested on: `-` for the branch, `^2` for the
//!   current state of the second slot ahead, `^2.7` for its generation 7, `@id.7` for an item that
//!   was removed. The default is the slot directly ahead in a dependent queue and the branch in
//!   others.
//!
//! The change and its needs are only in the item's record.

use super::{Entry, Head, LANDED_HEAD_DIGITS, LANDED_MAX, Predecessor, Slot, SlotStatus};
use crate::item::Item;
use crate::semaphore::SemaphoreKey;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::Manager;
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, ItemId, QueueKey, QueueName};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The most bytes that a slot may grow to. After years in a queue, its generation and version have
/// six digits.
pub const SLOT_BYTES_MAX: usize = 56;

/// The expected bytes of the key of one merged change.
const LANDED_BYTES: usize = 100;

/// The expected bytes of the first digits of a merged change's head, with their quotes.
const LANDED_HEAD_BYTES: usize = LANDED_HEAD_DIGITS + 4;

/// The letters of an item's id in its short form; the index of each is its value.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+_";

/// The body of a head's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredHead {
    /// As [`Head::key`].
    pub key: QueueKey,
    /// As [`Head::manager`].
    pub manager: Manager,
    /// As [`Head::window`].
    pub window: u32,
    /// As [`Head::layout`].
    pub layout: u64,
    /// As [`Head::halted`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<String>,
    /// [`Head::entries`], a text each.
    pub entries: Vec<String>,
    /// As [`Head::landed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landed: Vec<ChangeKey>,
    /// As [`Head::landed_heads`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landed_heads: Vec<String>,
    /// As [`Head::semaphores`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphores: Vec<SemaphoreKey>,
    /// As [`Head::unclaimed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclaimed: Vec<BuildId>,
    /// As [`Head::hosted_in`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted_in: Option<QueueName>,
}

/// Why a head's record and its items' records cannot be combined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The item's record is missing or has another version, since a concurrent commit changed the
    /// item between the two reads. Both have to be read again.
    #[error(
        "the head expects version {version} of {item}, and the item's record has another version"
    )]
    StaleItem {
        /// The item whose record is missing or has another version.
        item: ItemId,
        /// The version that the head expects.
        version: u64,
    },
    /// The text of an entry is invalid.
    #[error("the entry {entry:?} is invalid")]
    InvalidEntry {
        /// The text of the entry.
        entry: String,
    },
}

impl Head {
    /// Returns the body of the head's record.
    pub fn stored(&self) -> StoredHead {
        let (mut places, mut start) = (None, 0);
        let mut entries = Vec::with_capacity(self.entries.len());
        for (position, entry) in self.entries.iter().enumerate() {
            let slots: Vec<String> = (entry.members.iter().enumerate())
                .map(|(at, slot)| match at {
                    0 => slot_text(slot) + &self.base_text(position, start, &mut places),
                    _ => slot_text(slot),
                })
                .collect();
            start += slots.len();
            entries.push(slots.join(","));
        }
        StoredHead { entries, ..self.stored_frame() }
    }

    /// Returns the most bytes that the record may grow to with `more` further items. Space for
    /// [`LANDED_MAX`] merged changes is included.
    pub(crate) fn bytes_with(&self, more: usize) -> usize {
        let bytes =
            |text: serde_json::Result<String>| text.map_or(usize::MAX / 4, |text| text.len());
        let frame =
            StoredHead { landed: Vec::new(), landed_heads: Vec::new(), ..self.stored_frame() };
        // Space for merged changes is reserved, since they will need it sooner or later.
        let landed = bytes(serde_json::to_string(&self.landed)).max(LANDED_MAX * LANDED_BYTES);
        let heads =
            bytes(serde_json::to_string(&self.landed_heads)).max(LANDED_MAX * LANDED_HEAD_BYTES);
        bytes(serde_json::to_string(&frame))
            + landed
            + heads
            + SLOT_BYTES_MAX * (self.slots().count() + more)
    }

    /// Returns the body of the head's record without entries.
    fn stored_frame(&self) -> StoredHead {
        StoredHead {
            key: self.key.clone(),
            manager: self.manager,
            window: self.window,
            layout: self.layout,
            halted: self.halted.clone(),
            entries: Vec::new(),
            landed: self.landed.clone(),
            landed_heads: self.landed_heads.clone(),
            semaphores: self.semaphores.clone(),
            unclaimed: self.unclaimed.clone(),
            hosted_in: self.hosted_in.clone(),
        }
    }

    /// Returns the words for the state that the entry at `position` is tested on, with a leading
    /// space; empty for the default. `start` is the index of its first slot. Fills `places` with
    /// the slot of each item and its index when it first needs one; the caller passes the same
    /// `places` for all entries.
    fn base_text<'h>(
        &'h self,
        position: usize,
        start: usize,
        places: &mut Option<BTreeMap<&'h ItemId, (usize, &'h Slot)>>,
    ) -> String {
        let before = position.checked_sub(1).filter(|_| self.manager == Manager::Dependent);
        let ahead = &self.entries[position].ahead;
        if *ahead == before.map(|before| self.entries[before].as_predecessor()) {
            return String::new();
        }
        let Some(ahead) = ahead else { return " -".to_owned() };
        let all = || self.slots().enumerate().map(|(at, slot)| (&slot.id, (at, slot))).collect();
        match places.get_or_insert_with(all).get(&ahead.item).filter(|(at, _)| *at < start) {
            Some((at, slot)) if slot.generation == ahead.generation => format!(" ^{}", start - at),
            Some((at, _)) => format!(" ^{}.{}", start - at, ahead.generation),
            None => format!(" @{}.{}", short(&ahead.item), ahead.generation),
        }
    }
}

/// Returns the text of a slot without the state that its entry is tested on.
fn slot_text(slot: &Slot) -> String {
    let mut text = short(&slot.id);
    if let Some(letter) = letter(slot.status) {
        text.push(' ');
        text.push(letter);
    }
    for (word, number) in [('g', slot.generation), ('v', slot.version)] {
        if number != 1 {
            text.push_str(&format!(" {word}{number}"));
        }
    }
    text
}

impl StoredHead {
    /// Returns the items in order, each with the version of its record that this head expects. An
    /// error for an invalid entry.
    ///
    /// # Errors [`HeadError::InvalidEntry`] for an invalid entry.
    pub fn versions(&self) -> Result<Vec<(ItemId, u64)>, HeadError> {
        let mut versions = Vec::with_capacity(self.entries.len());
        for text in &self.entries {
            versions.extend(read_entry(text)?.into_iter().map(|slot| (slot.id, slot.version)));
        }
        Ok(versions)
    }

    /// Returns for each item the number of entries ahead of it. The members of a bundle have the
    /// same number. An error for an invalid entry.
    ///
    /// # Errors [`HeadError::InvalidEntry`] for an invalid entry.
    pub fn positions(&self) -> Result<BTreeMap<ItemId, usize>, HeadError> {
        let mut places = BTreeMap::new();
        for (position, text) in self.entries.iter().enumerate() {
            places.extend(read_entry(text)?.into_iter().map(|slot| (slot.id, position)));
        }
        Ok(places)
    }

    /// Returns whether an item is queued. Where an entry is invalid, it may have any item, so
    /// the answer is `true`.
    pub fn contains_item(&self, item: &ItemId) -> bool {
        self.versions().map_or(true, |items| items.iter().any(|(id, _)| id == item))
    }

    /// Combines the record with the items' records, which `item` returns, into a head. Fails if the
    /// record of a queued item is missing or has another version than this head expects, and for an
    /// invalid entry.
    ///
    /// # Errors [`HeadError`] where an item's record is missing or has another version, and for an
    /// invalid entry.
    pub fn into_head<'a>(
        self,
        item: impl Fn(&ItemId) -> Option<&'a Item>,
    ) -> Result<Head, HeadError> {
        let mut entries: Vec<Entry> = Vec::with_capacity(self.entries.len());
        // The state of each slot so far: `^` counts slots, not entries.
        let mut states: Vec<Predecessor> = Vec::with_capacity(self.entries.len());
        for text in &self.entries {
            let bad = || invalid(text);
            let (mut ahead, mut members) = (None, SmallVec::new());
            for (at, words) in read_entry(text)?.into_iter().enumerate() {
                let torn =
                    || HeadError::StaleItem { item: words.id.clone(), version: words.version };
                let found = item(&words.id)
                    .filter(|item| item.version == words.version)
                    .ok_or_else(torn)?;
                match words.on {
                    BaseText::Usual if at > 0 => {}
                    _ if at > 0 => return Err(bad()),
                    BaseText::Usual => {
                        ahead =
                            states.last().filter(|_| self.manager == Manager::Dependent).cloned()
                    }
                    BaseText::Branch => {}
                    BaseText::Ahead(back, generation) => {
                        let at = states.len().checked_sub(back).ok_or_else(bad)?;
                        let mut state = states.get(at).ok_or_else(bad)?.clone();
                        state.generation = generation.unwrap_or(state.generation);
                        ahead = Some(state);
                    }
                    BaseText::Removed(item, generation) => {
                        ahead = Some(Predecessor { item, generation })
                    }
                }
                members.push(Slot {
                    change: found.candidate.change.clone(),
                    id: words.id,
                    generation: words.generation,
                    status: words.status,
                    version: words.version,
                });
            }
            states.extend(members.iter().map(Slot::as_predecessor));
            entries.push(Entry { ahead, members });
        }
        let Self {
            key,
            manager,
            window,
            layout,
            halted,
            landed,
            landed_heads,
            semaphores,
            unclaimed,
            hosted_in,
            ..
        } = self;
        Ok(Head {
            key,
            manager,
            window,
            layout,
            halted,
            entries,
            landed,
            landed_heads,
            semaphores,
            unclaimed,
            hosted_in,
        })
    }
}

/// Returns the slots of an entry's text.
///
/// # Errors [`HeadError::InvalidEntry`] where one of them is invalid.
fn read_entry(text: &str) -> Result<Vec<SlotText>, HeadError> {
    let slots: Option<Vec<SlotText>> = text.split(',').map(SlotText::read).collect();
    slots.ok_or_else(|| invalid(text))
}

/// Returns the error for the invalid text of an entry.
fn invalid(text: &str) -> HeadError {
    HeadError::InvalidEntry { entry: text.to_owned() }
}

/// The parsed text of a slot.
struct SlotText {
    /// The item.
    id: ItemId,
    /// The item's status.
    status: SlotStatus,
    /// The number of the item's speculative state.
    generation: u64,
    /// The version of the item's record.
    version: u64,
    /// The state that the entry is tested on; [`BaseText::Usual`] for all but the first slot.
    on: BaseText,
}

/// The state that an entry is tested on, as its text names it.
enum BaseText {
    /// The default of the queue's manager.
    Usual,
    /// The branch itself.
    Branch,
    /// The slot this many slots ahead of the entry, in this generation; `None` for its current one.
    Ahead(usize, Option<u64>),
    /// An item that is no longer ahead in the queue, in this generation.
    Removed(ItemId, u64),
}

impl SlotText {
    /// Parses the text of a slot; `None` where it is invalid.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let id = long(words.next()?)?;
        let mut read = Self {
            id,
            status: SlotStatus::Waiting,
            generation: 1,
            version: 1,
            on: BaseText::Usual,
        };
        for word in words {
            let kind = word.chars().next()?;
            let rest = &word[kind.len_utf8()..];
            match kind {
                'g' => read.generation = rest.parse().ok()?,
                'v' => read.version = rest.parse().ok()?,
                '-' if rest.is_empty() => read.on = BaseText::Branch,
                '^' => {
                    let (back, generation) = match rest.split_once('.') {
                        Some((back, generation)) => (back, Some(generation.parse().ok()?)),
                        None => (rest, None),
                    };
                    read.on =
                        BaseText::Ahead(back.parse().ok().filter(|back| *back > 0)?, generation);
                }
                '@' => {
                    let (id, generation) = rest.rsplit_once('.')?;
                    read.on = BaseText::Removed(long(id)?, generation.parse().ok()?);
                }
                letter if rest.is_empty() => read.status = status_of_letter(letter)?,
                _ => return None,
            }
        }
        Some(read)
    }
}

/// Returns the letter of a status; `None` for waiting, which is omitted.
fn letter(status: SlotStatus) -> Option<char> {
    match status {
        SlotStatus::Waiting => None,
        SlotStatus::Testing => Some('t'),
        SlotStatus::Failing => Some('f'),
        SlotStatus::Passed => Some('p'),
        SlotStatus::Landing => Some('l'),
        SlotStatus::AwaitingLanding => Some('n'),
        SlotStatus::Landed => Some('d'),
        SlotStatus::Reporting => Some('r'),
    }
}

/// Returns the status of a letter, or `None` for an unknown one.
fn status_of_letter(letter: char) -> Option<SlotStatus> {
    use SlotStatus::{AwaitingLanding, Failing, Landed, Landing, Passed, Reporting, Testing};
    let known = [Testing, Failing, Passed, Landing, AwaitingLanding, Landed, Reporting];
    known.into_iter().find(|status| self::letter(*status) == Some(letter))
}

/// Returns an id in its short form: 22 letters, or `~` and the id.
fn short(id: &ItemId) -> String {
    let digits = id.as_str();
    let is_usual = digits.len() == 32
        && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_usual);
    let Some(mut number) = number else { return format!("~{digits}") };
    let mut letters = [0; 22];
    for letter in &mut letters {
        *letter = LETTERS[(number & 63) as usize];
        number >>= 6;
    }
    letters.iter().map(|letter| char::from(*letter)).collect()
}

/// Returns the index of a letter in [`LETTERS`], or `None` for another byte.
fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

/// Returns the id of a short form made by [`short`], or `None` where the text is invalid.
fn long(text: &str) -> Option<ItemId> {
    if let Some(id) = text.strip_prefix('~') {
        return Some(ItemId::from(id));
    }
    if text.len() != 22 {
        return None;
    }
    let mut number: u128 = 0;
    for (at, letter) in text.bytes().enumerate() {
        let value = u128::from(value(letter)?);
        number |= value.checked_shl(u32::try_from(6 * at).ok()?)?;
    }
    Some(ItemId(format!("{number:032x}")))
}

#[cfg(test)]
mod tests;
