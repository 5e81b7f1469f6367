//! The record format of a head: per item its id and only what differs from the default, so that a
//! thousand items fit.
//!
//! A slot is a text of words separated by spaces. The first word is the item's id: sixteen bytes in
//! 22 letters, or `~` and the id as it is. The other words are omitted where they have their
//! default:
//!
//! - the status, as a letter (default: waiting),
//! - `j` for an item in the same bundle as the slot before,
//! - `g` with the generation (default: 1),
//! - `v` with the version of the item's record (default: 1),
//! - the state that it is tested on: `-` for the branch, `^2` for the current state of the second
//!   slot ahead, `^2.7` for its generation 7, `@id.7` for an item that was removed. The default is
//!   the slot directly ahead in a dependent queue and the branch in others.
//!
//! The change and its needs are only in the item's record.

use super::{Head, LANDED_HEAD_DIGITS, LANDED_MAX, Predecessor, Slot, SlotStatus};
use crate::item::Item;
use crate::semaphore::SemaphoreKey;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::Manager;
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, ItemId, QueueKey, QueueName};
use std::collections::BTreeMap;

/// The most bytes that a slot may grow to. After years in a queue, its generation and version have
/// six digits.
pub const SLOT_BYTES_MAX: usize = 56;

/// The expected bytes of one merged change.
const LANDED_BYTES: usize = 100;

/// The bytes of the first digits of its head with their quotes.
const LANDED_HEAD_BYTES: usize = LANDED_HEAD_DIGITS + 4;

/// The digits of the base-64 form of an item's id.
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
    /// [`Head::slots`], a text each.
    pub slots: Vec<String>,
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
    /// A concurrent commit changed the item between the two reads. Both have to be read again.
    #[error(
        "the head expects version {version} of {item}, and the item's record has another version"
    )]
    StaleItem {
        /// The item whose record is missing or has another version.
        item: ItemId,
        /// The version that the head expects.
        version: u64,
    },
    /// The text of a slot is invalid.
    #[error("the slot {slot:?} is invalid")]
    InvalidSlot {
        /// The text of the slot.
        slot: String,
    },
}

impl Head {
    /// Returns the body of the head's record.
    pub fn stored(&self) -> StoredHead {
        let mut places = None;
        let slots = (0..self.slots.len()).map(|at| self.slot_text(at, &mut places)).collect();
        StoredHead { slots, ..self.stored_frame() }
    }

    /// Returns the most bytes that the record may grow to with `more` further items.
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
            + SLOT_BYTES_MAX * (self.slots.len() + more)
    }

    fn stored_frame(&self) -> StoredHead {
        StoredHead {
            key: self.key.clone(),
            manager: self.manager,
            window: self.window,
            layout: self.layout,
            halted: self.halted.clone(),
            slots: Vec::new(),
            landed: self.landed.clone(),
            landed_heads: self.landed_heads.clone(),
            semaphores: self.semaphores.clone(),
            unclaimed: self.unclaimed.clone(),
            hosted_in: self.hosted_in.clone(),
        }
    }

    /// Returns the default state that the slot after `before` is tested on; `None` for the branch.
    fn usual(manager: Manager, before: &[Slot]) -> Option<Predecessor> {
        let last = before.last().filter(|_| manager == Manager::Dependent)?;
        Some(Predecessor { item: last.id.clone(), generation: last.generation })
    }

    /// Returns whether the slot at `at` is tested on its default state.
    fn is_usual(&self, at: usize) -> bool {
        let last = self.slots[..at].last().filter(|_| self.manager == Manager::Dependent);
        match (&self.slots[at].ahead, last) {
            (Some(ahead), Some(last)) => {
                ahead.item == last.id && ahead.generation == last.generation
            }
            (ahead, last) => ahead.is_none() && last.is_none(),
        }
    }

    /// Returns the text of the slot at `at`. Fills `places` with the index of each item when it
    /// first needs one.
    fn slot_text<'h>(
        &'h self,
        at: usize,
        places: &mut Option<BTreeMap<&'h ItemId, usize>>,
    ) -> String {
        let slot = &self.slots[at];
        let mut text = short(&slot.id);
        if let Some(letter) = letter(slot.status) {
            text.push(' ');
            text.push(letter);
        }
        if slot.joined {
            text.push_str(" j");
        }
        for (word, number) in [('g', slot.generation), ('v', slot.version)] {
            if number != 1 {
                text.push_str(&format!(" {word}{number}"));
            }
        }
        if self.is_usual(at) {
            return text;
        }
        let all = || {
            self.slots
                .iter()
                .enumerate()
                .map(|(at, slot)| (&slot.id, at))
                .collect::<BTreeMap<_, _>>()
        };
        match &slot.ahead {
            None => text.push_str(" -"),
            Some(ahead) => {
                match places.get_or_insert_with(all).get(&ahead.item).filter(|place| **place < at) {
                    Some(position) if self.slots[*position].generation == ahead.generation => {
                        text.push_str(&format!(" ^{}", at - position));
                    }
                    Some(position) => {
                        text.push_str(&format!(" ^{}.{}", at - position, ahead.generation))
                    }
                    None => {
                        text.push_str(&format!(" @{}.{}", short(&ahead.item), ahead.generation))
                    }
                }
            }
        }
        text
    }
}

impl StoredHead {
    /// Returns the items in order, each with the version of its record that this head expects.
    ///
    /// # Errors [`HeadError::InvalidSlot`] for an invalid slot.
    pub fn versions(&self) -> Result<Vec<(ItemId, u64)>, HeadError> {
        let read = |text: &String| SlotText::read(text).map(|words| (words.id, words.version));
        self.slots
            .iter()
            .map(|text| read(text).ok_or_else(|| HeadError::InvalidSlot { slot: text.clone() }))
            .collect()
    }

    /// Returns for each item the number of entries ahead of it. A bundle is one entry, and its
    /// members have the same number.
    ///
    /// # Errors [`HeadError::InvalidSlot`] for an invalid slot.
    pub fn positions(&self) -> Result<BTreeMap<ItemId, usize>, HeadError> {
        let (mut places, mut before): (_, Option<usize>) = (BTreeMap::new(), None);
        for text in &self.slots {
            let words = SlotText::read(text)
                .ok_or_else(|| HeadError::InvalidSlot { slot: text.clone() })?;
            let place = match before {
                None => 0,
                Some(before) if words.joined => before,
                Some(before) => before + 1,
            };
            places.insert(words.id, place);
            before = Some(place);
        }
        Ok(places)
    }

    /// Returns whether an item is queued. Where a slot is invalid, it may be any item, so the
    /// answer is `true`.
    pub fn contains_item(&self, item: &ItemId) -> bool {
        self.versions().map_or(true, |items| items.iter().any(|(id, _)| id == item))
    }

    /// Combines the record with the items' records into a head.
    ///
    /// # Errors [`HeadError`] where an item's record is missing or has another version, and for an
    /// invalid slot.
    pub fn into_head<'a>(
        self,
        item: impl Fn(&ItemId) -> Option<&'a Item>,
    ) -> Result<Head, HeadError> {
        let mut slots: Vec<Slot> = Vec::with_capacity(self.slots.len());
        for text in &self.slots {
            let bad = || HeadError::InvalidSlot { slot: text.clone() };
            let words = SlotText::read(text).ok_or_else(bad)?;
            let torn = || HeadError::StaleItem { item: words.id.clone(), version: words.version };
            let found =
                item(&words.id).filter(|item| item.version == words.version).ok_or_else(torn)?;
            let ahead = match words.on {
                BaseText::Usual => Head::usual(self.manager, &slots),
                BaseText::Branch => None,
                BaseText::Ahead(back, generation) => {
                    let slot = slots
                        .len()
                        .checked_sub(back)
                        .and_then(|at| slots.get(at))
                        .ok_or_else(bad)?;
                    Some(Predecessor {
                        item: slot.id.clone(),
                        generation: generation.unwrap_or(slot.generation),
                    })
                }
                BaseText::Removed(item, generation) => Some(Predecessor { item, generation }),
            };
            slots.push(Slot {
                change: found.candidate.change.clone(),
                id: words.id,
                generation: words.generation,
                ahead,
                status: words.status,
                joined: words.joined,
                version: words.version,
            });
        }
        let Self {
            key,
            manager,
            window,
            layout,
            halted: frozen,
            landed,
            landed_heads,
            semaphores,
            unclaimed,
            hosted_in: stands_in,
            ..
        } = self;
        Ok(Head {
            key,
            manager,
            window,
            layout,
            halted: frozen,
            slots,
            landed,
            landed_heads,
            semaphores,
            unclaimed,
            hosted_in: stands_in,
        })
    }
}

/// The parsed text of a slot.
struct SlotText {
    id: ItemId,
    status: SlotStatus,
    joined: bool,
    generation: u64,
    version: u64,
    on: BaseText,
}

enum BaseText {
    Usual,
    Branch,
    Ahead(usize, Option<u64>),
    Removed(ItemId, u64),
}

impl SlotText {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let id = long(words.next()?)?;
        let mut read = Self {
            id,
            status: SlotStatus::Waiting,
            joined: false,
            generation: 1,
            version: 1,
            on: BaseText::Usual,
        };
        for word in words {
            let kind = word.chars().next()?;
            let rest = &word[kind.len_utf8()..];
            match kind {
                'j' if rest.is_empty() => read.joined = true,
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
