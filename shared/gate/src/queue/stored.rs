//! A head as its record holds it: per item its id and what is not as usual about it, so that a
//! thousand fit.
//!
//! A slot is a text of words. The first is the item's id, sixteen bytes in 22 letters (any other id
//! stands as it is behind `~`); the others are left out where they say the usual: where the item
//! stands (a letter, waiting), `j` for one that is joined to the slot before, `g` with the
//! generation (1), `v` with the version of the item's record (1), and what it is tested on: `-` for
//! the branch, `^2` for the second slot ahead as it is now, `^2.7` for its seventh generation,
//! `@id.7` for an item that left. Usual is the slot right ahead in a dependent queue, and else the
//! branch. Change and needs stand in the item's record alone.

use super::{Ahead, Head, LANDED_HEAD_DIGITS, LANDED_MAX, Slot, Standing};
use crate::item::Item;
use crate::semaphore::SemaphoreKey;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::Manager;
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, ItemId, QueueKey, QueueName};
use std::collections::BTreeMap;

/// Bytes that a slot may come to need; the generation and version of one that stays for years have
/// six digits.
pub const SLOT_BYTES_MAX: usize = 56;

/// Bytes that a landed change is expected to need.
const LANDED_BYTES: usize = 100;

/// Bytes that its head's first digits need, with what is around them.
const LANDED_HEAD_BYTES: usize = LANDED_HEAD_DIGITS + 4;

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
    /// As [`Head::frozen`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// [`Head::slots`], a text each.
    pub slots: Vec<String>,
    /// As [`Head::landed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landed: Vec<ChangeKey>,
    /// As [`Head::landed_heads`]; none in records of earlier versions, so that no other revision
    /// enters of what they name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landed_heads: Vec<String>,
    /// As [`Head::semaphores`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphores: Vec<SemaphoreKey>,
    /// As [`Head::unclaimed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclaimed: Vec<BuildId>,
    /// As [`Head::stands_in`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_in: Option<QueueName>,
}

/// Why a head's record and the items' do not make a head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWhole {
    /// They were read while somebody wrote them, so that they are to be read again.
    #[error("the head says that {item} has version {version}, and its record is another one")]
    Torn {
        /// The item whose record is missing or another one.
        item: ItemId,
        /// The version that the head goes with.
        version: u64,
    },
    /// A slot's text makes no sense.
    #[error("the slot {slot:?} cannot be read")]
    Bad {
        /// The text.
        slot: String,
    },
}

impl Head {
    /// Returns what the head's record holds.
    pub fn stored(&self) -> StoredHead {
        let mut places = None;
        let slots = (0..self.slots.len()).map(|at| self.slot_text(at, &mut places)).collect();
        StoredHead { slots, ..self.stored_frame() }
    }

    /// Returns how many bytes the record may come to need with so many items more.
    pub(crate) fn bytes_with(&self, more: usize) -> usize {
        let bytes =
            |text: serde_json::Result<String>| text.map_or(usize::MAX / 4, |text| text.len());
        let frame =
            StoredHead { landed: Vec::new(), landed_heads: Vec::new(), ..self.stored_frame() };
        // Room that landed changes take up sooner or later is not given to others first.
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
            frozen: self.frozen.clone(),
            slots: Vec::new(),
            landed: self.landed.clone(),
            landed_heads: self.landed_heads.clone(),
            semaphores: self.semaphores.clone(),
            unclaimed: self.unclaimed.clone(),
            stands_in: self.stands_in.clone(),
        }
    }

    /// Returns what is usual to be tested on for the slot at `at`.
    fn usual(manager: Manager, before: &[Slot]) -> Option<Ahead> {
        let last = before.last().filter(|_| manager == Manager::Dependent)?;
        Some(Ahead { item: last.id.clone(), generation: last.generation })
    }

    /// Returns whether the slot at `at` is tested on what is usual for it.
    fn is_usual(&self, at: usize) -> bool {
        let last = self.slots[..at].last().filter(|_| self.manager == Manager::Dependent);
        match (&self.slots[at].ahead, last) {
            (Some(ahead), Some(last)) => {
                ahead.item == last.id && ahead.generation == last.generation
            }
            (ahead, last) => ahead.is_none() && last.is_none(),
        }
    }

    /// Returns a slot's text. The places of all slots are noted in `places` by the first that is
    /// tested on anything unusual.
    fn slot_text<'h>(
        &'h self,
        at: usize,
        places: &mut Option<BTreeMap<&'h ItemId, usize>>,
    ) -> String {
        let slot = &self.slots[at];
        let mut text = short(&slot.id);
        if let Some(letter) = letter(slot.standing) {
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
    /// Returns the items with the versions of their records that this head goes with, in order.
    ///
    /// # Errors
    /// [`NotWhole::Bad`] for a slot that makes no sense.
    pub fn versions(&self) -> Result<Vec<(ItemId, u64)>, NotWhole> {
        let read = |text: &String| Words::read(text).map(|words| (words.id, words.version));
        self.slots
            .iter()
            .map(|text| read(text).ok_or_else(|| NotWhole::Bad { slot: text.clone() }))
            .collect()
    }

    /// Returns how many stand before each item; a bundle counts as one, and its items stand in one
    /// place.
    ///
    /// # Errors
    /// [`NotWhole::Bad`] for a slot that makes no sense.
    pub fn places(&self) -> Result<BTreeMap<ItemId, usize>, NotWhole> {
        let (mut places, mut before): (_, Option<usize>) = (BTreeMap::new(), None);
        for text in &self.slots {
            let words = Words::read(text).ok_or_else(|| NotWhole::Bad { slot: text.clone() })?;
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

    /// Returns whether an item stands in the queue; what makes no sense may be about any.
    pub fn names(&self, item: &ItemId) -> bool {
        self.versions().map_or(true, |items| items.iter().any(|(id, _)| id == item))
    }

    /// Puts head and items together.
    ///
    /// # Errors
    /// [`NotWhole`] where an item is missing or was written since, and for what makes no sense.
    pub fn whole<'a>(self, item: impl Fn(&ItemId) -> Option<&'a Item>) -> Result<Head, NotWhole> {
        let mut slots: Vec<Slot> = Vec::with_capacity(self.slots.len());
        for text in &self.slots {
            let bad = || NotWhole::Bad { slot: text.clone() };
            let words = Words::read(text).ok_or_else(bad)?;
            let torn = || NotWhole::Torn { item: words.id.clone(), version: words.version };
            let found =
                item(&words.id).filter(|item| item.version == words.version).ok_or_else(torn)?;
            let ahead = match words.on {
                On::Usual => Head::usual(self.manager, &slots),
                On::Branch => None,
                On::Before(back, generation) => {
                    let slot = slots
                        .len()
                        .checked_sub(back)
                        .and_then(|at| slots.get(at))
                        .ok_or_else(bad)?;
                    Some(Ahead {
                        item: slot.id.clone(),
                        generation: generation.unwrap_or(slot.generation),
                    })
                }
                On::Left(item, generation) => Some(Ahead { item, generation }),
            };
            slots.push(Slot {
                change: found.candidate.change.clone(),
                id: words.id,
                generation: words.generation,
                ahead,
                standing: words.standing,
                joined: words.joined,
                version: words.version,
            });
        }
        let Self {
            key,
            manager,
            window,
            layout,
            frozen,
            landed,
            landed_heads,
            semaphores,
            unclaimed,
            stands_in,
            ..
        } = self;
        Ok(Head {
            key,
            manager,
            window,
            layout,
            frozen,
            slots,
            landed,
            landed_heads,
            semaphores,
            unclaimed,
            stands_in,
        })
    }
}

/// What a slot's text says.
struct Words {
    id: ItemId,
    standing: Standing,
    joined: bool,
    generation: u64,
    version: u64,
    on: On,
}

enum On {
    Usual,
    Branch,
    Before(usize, Option<u64>),
    Left(ItemId, u64),
}

impl Words {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let id = long(words.next()?)?;
        let mut read = Self {
            id,
            standing: Standing::Waiting,
            joined: false,
            generation: 1,
            version: 1,
            on: On::Usual,
        };
        for word in words {
            let kind = word.chars().next()?;
            let rest = &word[kind.len_utf8()..];
            match kind {
                'j' if rest.is_empty() => read.joined = true,
                'g' => read.generation = rest.parse().ok()?,
                'v' => read.version = rest.parse().ok()?,
                '-' if rest.is_empty() => read.on = On::Branch,
                '^' => {
                    let (back, generation) = match rest.split_once('.') {
                        Some((back, generation)) => (back, Some(generation.parse().ok()?)),
                        None => (rest, None),
                    };
                    read.on = On::Before(back.parse().ok().filter(|back| *back > 0)?, generation);
                }
                '@' => {
                    let (id, generation) = rest.rsplit_once('.')?;
                    read.on = On::Left(long(id)?, generation.parse().ok()?);
                }
                letter if rest.is_empty() => read.standing = standing(letter)?,
                _ => return None,
            }
        }
        Some(read)
    }
}

fn letter(standing: Standing) -> Option<char> {
    match standing {
        Standing::Waiting => None,
        Standing::Testing => Some('t'),
        Standing::Failing => Some('f'),
        Standing::Passed => Some('p'),
        Standing::Landing => Some('l'),
        Standing::Pledged => Some('n'),
        Standing::Landed => Some('d'),
        Standing::Reporting => Some('r'),
    }
}

fn standing(letter: char) -> Option<Standing> {
    use Standing::{Failing, Landed, Landing, Passed, Pledged, Reporting, Testing};
    let known = [Testing, Failing, Passed, Landing, Pledged, Landed, Reporting];
    known.into_iter().find(|standing| self::letter(*standing) == Some(letter))
}

/// Returns an id in as few letters as it takes.
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

/// Returns the place of a letter in [`LETTERS`].
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

/// Returns the id that [`short`] made such a text of; one with a space would be two words.
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
