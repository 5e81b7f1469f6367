//! The head of a queue cell: the order of its items and the speculative state of each, small enough
//! to be written in one transaction.
//!
//! [`stored`] defines its record. That holds little more than the ids of the items; the rest is in
//! the items' own records.

pub mod stored;

use crate::semaphore::SemaphoreKey;
use serde::{Deserialize, Serialize};
use sluice_config::layout::Layout;
use sluice_config::pipeline::{Manager, Pipeline};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{BranchName, BuildId, ItemId, QueueKey, QueueName, TenantName};
use smallvec::{SmallVec, smallvec};

pub use stored::{HeadError, StoredHead};

/// A change queue: the state that all decisions about its items share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The queue's key.
    pub key: QueueKey,
    /// The pipeline manager, which defines how items depend on each other.
    pub manager: Manager,
    /// How many entries are processed at once (the window); 0 for all.
    pub window: u32,
    /// The number of the tenant's layout that items are frozen under.
    pub layout: u64,
    /// Why the queue is halted until an operator resumes it, for example because the merged tree
    /// was not the tested one. `None` while it runs.
    pub halted: Option<String>,
    /// The entries in order; the first is merged next.
    pub entries: Vec<Entry>,
    /// Changes that were recently merged by this queue, or by others while they were queued here,
    /// newest last. A change that needs one of them is not refused because of older facts.
    pub landed: Vec<ChangeKey>,
    /// For each change of [`Self::landed`] that a push merged: the first digits of its head. Only
    /// this revision counts as merged. Empty where the forge merged the change: then every revision
    /// does. May be shorter than `landed`.
    pub landed_heads: Vec<String>,
    /// Semaphores that a build of this queue holds or that one of its jobs waits for.
    pub semaphores: Vec<SemaphoreKey>,
    /// Builds that were sent to the executors repeatedly without being claimed, at most
    /// [`UNCLAIMED_MAX`].
    pub unclaimed: Vec<BuildId>,
    /// The host queue: the queue in which this queue's own change is hosted as a member of a bundle
    /// ([`crate::plan::Residency`]). Meanwhile this queue is empty and forwards its inbox there.
    pub hosted_in: Option<QueueName>,
}

/// The most unclaimed builds in a head; one is enough to alert an operator.
pub const UNCLAIMED_MAX: usize = 5;

/// The most bytes of a head's record before nothing more is admitted; further inbox messages wait
/// until an item is removed. A record holds 64 KB, and decisions about the present items must
/// always fit. Each item counts as [`stored::SLOT_BYTES_MAX`].
pub const HEAD_BYTES_MAX: usize = 63 << 10;

/// The most merged changes that a head lists; more only while queued items need all of them.
pub const LANDED_MAX: usize = 32;

/// The number of digits that distinguish revisions of one change.
const LANDED_HEAD_DIGITS: usize = 12;

impl Head {
    /// Creates an empty queue that is not halted, under the layout with the number `layout`.
    /// `window` is the number of entries that are processed at once; 0 means all.
    pub fn new(key: QueueKey, manager: Manager, window: u32, layout: u64) -> Self {
        Self {
            key,
            manager,
            window,
            layout,
            halted: None,
            entries: Vec::new(),
            landed: Vec::new(),
            landed_heads: Vec::new(),
            semaphores: Vec::new(),
            unclaimed: Vec::new(),
            hosted_in: None,
        }
    }

    /// Returns the items of all entries in order.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = &Slot> + Clone {
        self.entries.iter().flat_map(|entry| &entry.members)
    }

    /// Returns the items of all entries in order, to change them.
    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.entries.iter_mut().flat_map(|entry| &mut entry.members)
    }

    /// Returns where each item is, in order: the position of its entry, and its index in the entry.
    pub(crate) fn slot_positions(&self) -> Vec<(usize, usize)> {
        let members = |position: usize| 0..self.entries[position].members.len();
        (0..self.entries.len()).flat_map(|at| members(at).map(move |member| (at, member))).collect()
    }

    /// Returns the position of the entry with an item, or `None` where it is not queued here.
    pub fn position(&self, id: &ItemId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.contains(id))
    }

    /// Returns the first item of a change in any revision, or `None` where none is queued here.
    pub fn slot_of_change(&self, key: &ChangeKey) -> Option<&Slot> {
        self.slots().find(|slot| slot.change.key == *key)
    }

    /// Returns whether a revision of a change is listed as merged. Where a push merged the change,
    /// only that revision counts; where the forge merged it, any does.
    pub fn has_landed(&self, change: &ChangeRef) -> bool {
        let heads = self.landed_heads.iter().map(String::as_str).chain(std::iter::repeat(""));
        let mut landed = self.landed.iter().zip(heads);
        landed.any(|(key, head)| *key == change.key && change.head.as_str().starts_with(head))
    }

    /// Appends a merged change to [`Self::landed`]. `pushed` is its head where a push merged it,
    /// and `None` where every revision counts as merged. Removes no older one.
    pub(crate) fn record_landed(&mut self, key: &ChangeKey, pushed: Option<&Oid>) {
        if let Some(head) = pushed {
            self.landed_heads.resize(self.landed.len(), String::new());
            self.landed_heads.push(head.as_str().chars().take(LANDED_HEAD_DIGITS).collect());
        }
        self.landed.push(key.clone());
    }

    /// Removes the change at index `at` of [`Self::landed`].
    pub(crate) fn forget_landed(&mut self, at: usize) {
        self.landed.remove(at);
        if at < self.landed_heads.len() {
            self.landed_heads.remove(at);
        }
    }

    /// Returns how many entries are within the window.
    pub fn active_count(&self) -> usize {
        match self.window {
            0 => self.entries.len(),
            window => self.entries.len().min(window as usize),
        }
    }

    /// Returns whether the entry at `position` is within the window.
    pub fn is_active(&self, position: usize) -> bool {
        position < self.active_count()
    }
}

/// The separator of project and change in the name of a change's own queue.
const OF_CHANGE: char = '#';

/// Returns the name of a change's own queue in an independent pipeline.
pub fn own_queue(change: &ChangeKey) -> QueueName {
    QueueName(format!("{}{OF_CHANGE}{}", change.project, change.local_id()))
}

/// Returns whether a name has the form of a change's own queue. A shared queue may have such a
/// name, too: compare with [`own_queue`] to know whose queue it is.
pub fn is_own_queue_name(queue: &QueueName) -> bool {
    queue.0.contains(OF_CHANGE)
}

/// Returns the queue that a change belongs to: its own in an independent pipeline, its branch's in
/// a supercedent one, a shared one in others, which may be split by branch.
pub fn queue_of(
    layout: &Layout,
    tenant: &TenantName,
    pipeline: &Pipeline,
    change: &ChangeRef,
) -> QueueKey {
    let queue = match pipeline.manager {
        Manager::Independent => own_queue(&change.key),
        // The newest commit of a branch or tag supersedes all earlier ones.
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

/// One position of a queue: a change, or the members of a bundle, which depend on each other and
/// are tested, reported and merged together (Z6.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The state that all members are tested on; `None` for the branch itself.
    pub ahead: Option<Predecessor>,
    /// The items in the order in which they are merged: one, or those of a bundle, at most
    /// [`crate::plan::BUNDLE_MAX`]. One is stored inline: a plan reads all entries many times.
    pub members: SmallVec<[Slot; 1]>,
}

impl From<Slot> for Entry {
    fn from(slot: Slot) -> Self {
        Self { ahead: None, members: smallvec![slot] }
    }
}

impl Entry {
    /// Returns whether its members are a bundle, and not one change alone.
    pub fn is_bundle(&self) -> bool {
        self.members.len() > 1
    }

    /// Returns the member that is merged first.
    pub fn first(&self) -> &Slot {
        &self.members[0]
    }

    /// Returns whether it has an item.
    pub fn contains(&self, id: &ItemId) -> bool {
        self.members.iter().any(|slot| slot.id == *id)
    }

    /// Returns the changes of its members, in order.
    pub(crate) fn changes(&self) -> Vec<ChangeRef> {
        self.members.iter().map(|slot| slot.change.clone()).collect()
    }

    /// Returns the reference to it as the predecessor of others: the state of its last member
    /// contains the others.
    pub(crate) fn as_predecessor(&self) -> Predecessor {
        self.members[self.members.len() - 1].as_predecessor()
    }
}

/// One item of a queue with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The item.
    pub id: ItemId,
    /// The item's change.
    pub change: ChangeRef,
    /// The number of the item's speculative state. Results of an older generation are ignored.
    pub generation: u64,
    /// How far the item is.
    pub status: SlotStatus,
    /// The version of the item's record that belongs to this head.
    pub version: u64,
}

impl Slot {
    /// Returns the slot of an item that was just enqueued.
    pub fn new(id: ItemId, change: ChangeRef) -> Self {
        Self { id, change, generation: 1, status: SlotStatus::Waiting, version: 0 }
    }

    /// Returns the reference to its state as the base of another one.
    pub(crate) fn as_predecessor(&self) -> Predecessor {
        Predecessor { item: self.id.clone(), generation: self.generation }
    }
}

/// The speculative state of an item ahead, as the base of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predecessor {
    /// The item ahead.
    pub item: ItemId,
    /// The generation of its speculative state.
    pub generation: u64,
}

/// How far an item is in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotStatus {
    /// It has no tested state or no frozen jobs yet, for example because it is outside the window.
    Waiting,
    /// Its jobs are known and have not all ended.
    Testing,
    /// It or a member of its bundle is certain to fail in its current speculative state, or cannot
    /// stay, for example because a change that it needs fails or left.
    Failing,
    /// All jobs that decide its result have ended, and none makes it fail.
    Passed,
    /// It is being merged into its branch.
    Landing,
    /// Its bundle is being merged and it is one of the next members. It is no longer dequeued.
    AwaitingLanding,
    /// It is merged; the rest of its bundle follows.
    Landed,
    /// It has succeeded, and is merged where its pipeline merges. It stays in the queue for jobs
    /// that run after its reports, and the queue waits.
    Reporting,
}

impl SlotStatus {
    /// Returns whether the item is being merged, alone or with its bundle, so that only the result
    /// of its landing can end it.
    pub fn is_landing(self) -> bool {
        matches!(self, Self::Landing | Self::AwaitingLanding | Self::Landed)
    }

    /// Returns whether the item is tested no further: only its landing or its last jobs are left.
    pub fn is_decided(self) -> bool {
        self.is_landing() || self == Self::Reporting
    }
}
