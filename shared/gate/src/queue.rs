//! The head of a queue cell: the order of its items and the speculative state of each, short enough to be written in one step.

use crate::semaphore::SemaphoreKey;
use serde::{Deserialize, Serialize};
use sluice_config::pipeline::Manager;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{ItemId, QueueKey};

/// A change queue: what all decisions about it agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Which queue.
    pub key: QueueKey,
    /// How its items stand to each other.
    pub manager: Manager,
    /// How many items are worked on at once; 0 for all.
    pub window: u32,
    /// The tenant's layout number that items are frozen under.
    pub layout: u64,
    /// Why nothing moves here until an operator has looked (a landed tree that was not the tested one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// Items in order, the next to land first.
    pub slots: Vec<Slot>,
    /// Changes that landed here of late, newest last, so that one that needs them is not refused by older news.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landed: Vec<ChangeKey>,
    /// Semaphores that a build of this queue holds or that a job of it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphores: Vec<SemaphoreKey>,
}

/// Bytes of a head beyond which nothing more is admitted; what arrives waits until something leaves. A record holds 64 KB, and
/// what is decided about the items that are here must always fit.
pub const HEAD_BYTES_MAX: usize = 48 << 10;

/// How many landed changes a head remembers.
pub const LANDED_MAX: usize = 32;

impl Head {
    /// Returns an empty queue.
    pub fn new(key: QueueKey, manager: Manager, window: u32, layout: u64) -> Self {
        Self {
            key,
            manager,
            window,
            layout,
            frozen: None,
            slots: Vec::new(),
            landed: Vec::new(),
            semaphores: Vec::new(),
        }
    }

    /// Returns the position of an item.
    pub fn position(&self, id: &ItemId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.id == *id)
    }

    /// Returns whether the slot at `position` is within the window.
    pub fn is_active(&self, position: usize) -> bool {
        self.window == 0 || position < self.window as usize
    }
}

/// One item's place in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The item.
    pub id: ItemId,
    /// Its change.
    pub change: ChangeRef,
    /// Counts the speculative states it was given; whatever bears an older one is ignored.
    pub generation: u64,
    /// The state it is tested on top of; `None` for the branch as it is.
    pub ahead: Option<Ahead>,
    /// Where it stands.
    pub standing: Standing,
}

/// The speculative state of an item ahead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    /// The item.
    pub item: ItemId,
    /// Which of its states.
    pub generation: u64,
}

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Not merged or frozen yet, or outside the window.
    Waiting,
    /// Its jobs run.
    Testing,
    /// It is known that it will not pass as it is tested now.
    Failing,
    /// Every voting job passed.
    Passed,
    /// It is being put into its branch.
    Landing,
}
