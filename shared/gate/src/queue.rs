//! The head of a queue cell: the order of its items and the speculative state of each, short enough
//! to be written in one step.
//!
//! What its record holds is in [`stored`]: of an item little more than its id, for the rest stands
//! in the item's own record.

pub mod stored;

use crate::semaphore::SemaphoreKey;
use serde::{Deserialize, Serialize};
use sluice_config::layout::Layout;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{BranchName, BuildId, ItemId, QueueKey, QueueName, TenantName};
use std::ops::Range;

pub use stored::{NotWhole, StoredHead};

/// A change queue: what all decisions about it agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Which queue.
    pub key: QueueKey,
    /// How its items stand to each other.
    pub manager: Manager,
    /// How many items are worked on at once; 0 for all.
    pub window: u32,
    /// The tenant's layout number that items are frozen under.
    pub layout: u64,
    /// Why nothing moves here until an operator has looked (a landed tree that was not the tested
    /// one).
    pub frozen: Option<String>,
    /// Items in order, the next to land first.
    pub slots: Vec<Slot>,
    /// Changes that landed here of late, newest last, so that one that needs them is not refused by
    /// older news.
    pub landed: Vec<ChangeKey>,
    /// Of each in [`Self::landed`], as far as this reaches, the first digits of the head that a
    /// push landed: its forge takes no other revision for merged. Empty for what its forge was
    /// asked to merge, of which all are.
    pub landed_heads: Vec<String>,
    /// Semaphores that a build of this queue holds or that a job of it waits for.
    pub semaphores: Vec<SemaphoreKey>,
    /// Builds that were sent to the executors again and again and that none has claimed, at most
    /// [`UNCLAIMED_MAX`].
    pub unclaimed: Vec<BuildId>,
    /// The queue in which the change stands that this queue is the own one of, as one with others
    /// that need it as much as it needs them ([`crate::plan::Door`]). Nothing stands here
    /// meanwhile, and what arrives is sent on there.
    pub stands_in: Option<QueueName>,
}

/// Builds that a head names since nobody claims them: one is enough to call somebody.
pub const UNCLAIMED_MAX: usize = 5;

/// Bytes of a head's record beyond which nothing more is admitted; what arrives waits until
/// something leaves. A record holds 64 KB, and what is decided about the items that are here must
/// always fit: each counts with [`stored::SLOT_BYTES_MAX`].
pub const HEAD_BYTES_MAX: usize = 63 << 10;

/// How many landed changes a head remembers.
pub const LANDED_MAX: usize = 32;

/// Digits of a head that tell revisions of one change apart.
const LANDED_HEAD_DIGITS: usize = 12;

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
            landed_heads: Vec::new(),
            semaphores: Vec::new(),
            unclaimed: Vec::new(),
            stands_in: None,
        }
    }

    /// Returns the position of an item.
    pub fn position(&self, id: &ItemId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.id == *id)
    }

    /// Returns whether a revision of a change landed here of late: the very one that a push
    /// brought, or any of what its forge merged.
    pub fn has_landed(&self, change: &ChangeRef) -> bool {
        let heads = self.landed_heads.iter().map(String::as_str).chain(std::iter::repeat(""));
        let mut landed = self.landed.iter().zip(heads);
        landed.any(|(key, head)| *key == change.key && change.head.as_str().starts_with(head))
    }

    /// Remembers that a change landed, and the head that a push brought if one did.
    pub(crate) fn remember(&mut self, key: &ChangeKey, pushed: Option<&Oid>) {
        if let Some(head) = pushed {
            self.landed_heads.resize(self.landed.len(), String::new());
            self.landed_heads.push(head.as_str().chars().take(LANDED_HEAD_DIGITS).collect());
        }
        self.landed.push(key.clone());
    }

    /// Forgets what landed at this place of [`Self::landed`].
    pub(crate) fn forget(&mut self, at: usize) {
        self.landed.remove(at);
        if at < self.landed_heads.len() {
            self.landed_heads.remove(at);
        }
    }

    /// Returns the positions of the bundle that the slot at `position` belongs to: changes that
    /// need each other stand together, and a change that is in no such cycle stands alone.
    pub fn bundle(&self, position: usize) -> Range<usize> {
        let is_start = |at: &usize| *at == 0 || !self.slots[*at].joined;
        let start = (0..=position).rev().find(is_start).unwrap_or(0);
        let behind = self.slots[position + 1..].iter().take_while(|slot| slot.joined).count();
        start..position + 1 + behind
    }

    /// Returns how many slots are within the window, from the first one on; a bundle counts as one
    /// and is never cut.
    pub fn active(&self) -> usize {
        if self.window == 0 {
            return self.slots.len();
        }
        let mut starts = (0..self.slots.len()).filter(|at| *at == 0 || !self.slots[*at].joined);
        starts.nth(self.window as usize).unwrap_or(self.slots.len())
    }

    /// Returns whether the slot at `position` is within the window.
    pub fn is_active(&self, position: usize) -> bool {
        position < self.active()
    }
}

/// What stands between project and change in the name of a change's own queue.
const OF_CHANGE: char = '#';

/// Returns the name of a change's own queue in an independent pipeline.
pub fn own_queue(change: &ChangeKey) -> QueueName {
    QueueName(format!("{}{OF_CHANGE}{}", change.project, change.local()))
}

/// Returns whether a queue is named as the own queue of a change is. Nothing forbids a shared one
/// such a name: whose own queue it is, [`own_queue`] of a change tells alone.
pub fn is_named_as_own(queue: &QueueName) -> bool {
    queue.0.contains(OF_CHANGE)
}

/// Returns the queue that a change of a project belongs to in a pipeline: its own in an independent
/// one, its branch's in a supercedent one, a shared one in others.
pub fn queue_of(
    layout: &Layout,
    tenant: &TenantName,
    pipeline: &Pipeline,
    change: &ChangeRef,
) -> QueueKey {
    let queue = match pipeline.manager {
        Manager::Independent => own_queue(&change.key),
        // Whatever is newest of a branch, or of a tag, stands for all that came before.
        Manager::Supercedent => QueueName(format!("{}@{}", change.key.project, change.branch)),
        Manager::Dependent | Manager::Serial => {
            let branch = change.on_branch().map(BranchName::as_str);
            let settings = layout.queue_on(&change.key.project, pipeline.name.as_str(), branch);
            if settings.per_branch {
                QueueName(format!("{}@{}", settings.name, change.branch))
            } else {
                settings.name
            }
        }
    };
    QueueKey { tenant: tenant.clone(), pipeline: pipeline.name.clone(), queue }
}

/// One item's place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Whether it needs the change in the slot before it as much as that one needs it: they are
    /// tested, reported and landed as one bundle (Z6.5).
    pub joined: bool,
    /// Which version of the item's record this head goes with.
    pub version: u64,
}

/// The speculative state of an item ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Its bundle is being landed, and its turn comes: nothing takes it out any more.
    Pledged,
    /// It is in its branch; the rest of its bundle follows.
    Landed,
    /// It has succeeded, and is in its branch where its pipeline lands; its jobs that run after the
    /// reports keep it here, and the rest of the queue waiting.
    Reporting,
}

impl Standing {
    /// Returns whether the item is on its way into its branch, so that only the end of its landing
    /// tells what becomes of it.
    pub fn is_landing(self) -> bool {
        matches!(self, Self::Landing | Self::Pledged | Self::Landed)
    }

    /// Returns whether it is decided, or about to be, by its landing alone what becomes of the
    /// item: it is tested no more.
    pub fn is_decided(self) -> bool {
        self.is_landing() || self == Self::Reporting
    }
}
