//! The right to merge into a branch.
//!
//! A queue merges one change after the other by itself. Two queues that merge into one branch (two
//! gates, two tenants that share a repository, queues whose projects are the same) agree by this
//! record alone. Its invariant is **no two landings of a branch at once**: from the transaction
//! that orders a landing to the one that processes its end, the landing holds the branch lock.

use crate::landing::{Landing, LandingEnd, LandingState};
use serde::{Deserialize, Serialize};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::BranchKey;
use sluice_model::{ItemId, QueueKey, Timestamp};

/// The most queues that wait for one branch lock. A queue that does not fit retries by itself.
pub const WAITING_MAX: usize = 100;

/// Seconds for which a released branch lock is left to the first waiting queue. The order is a
/// courtesy between queues, so it may time out: then any queue may acquire the lock.
pub const COURTESY_SECONDS: u64 = 30;

/// Seconds for which a landing may report trouble before other queues take over its branch lock. A
/// removed connection, or a forge that never answers, must not block a branch forever.
pub const TROUBLE_SECONDS: u64 = 600;

/// The number of landings of one item that may fail because others moved the branch. After that,
/// the branch is reserved for the item.
pub const BASE_MOVED_MAX: u32 = 3;

/// Seconds for which a branch is reserved for such an item while it is tested again. Like the
/// waiting order, the reservation times out, so that a queue whose tests never end does not block
/// others for longer.
pub const RESERVATION_SECONDS: u64 = 1_800;

/// A branch's record. A queue writes it in the transaction that orders a landing, on condition of
/// its revision, and again in the one that processes the landing's end. Project names contain the
/// forge's host, so two connections to one forge share the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchLock {
    /// The branch.
    pub branch: BranchKey,
    /// Incremented each time the lock is acquired. A landing writes its intent on condition that
    /// the fence is unchanged.
    #[serde(default)]
    pub fence: u64,
    /// The landing that holds the lock; `None` while it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<BranchLockHolder>,
    /// The queues that have a passed change to merge here, in order of request; at most
    /// [`WAITING_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<QueueKey>,
    /// When the lock was last released.
    #[serde(default)]
    pub free_since: Timestamp,
    /// The item that the branch is reserved for because others moved the branch too often; `None`
    /// without one. No other item is merged here before it or before the reservation expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<BranchReservation>,
}

/// An item that a branch is reserved for while it is tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchReservation {
    /// The item's queue.
    pub queue: QueueKey,
    /// The item.
    pub item: ItemId,
    /// When the reservation expires.
    pub until: Timestamp,
}

/// A landing that holds a branch lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchLockHolder {
    /// The queue that ordered the landing.
    pub queue: QueueKey,
    /// The item that is being merged; the members of a bundle follow one after the other.
    pub item: ItemId,
    /// The generation that the item passed in. With the item, it identifies the landing's record.
    pub generation: u64,
    /// The item's change.
    pub change: ChangeKey,
    /// Whether other members of its bundle are merged after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_later_members: bool,
    /// Whether other members of its bundle are already merged, so that the rest must follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_landed_members: bool,
    /// When the queue acquired the lock.
    pub since: Timestamp,
}

/// A branch's record as it was read, with the state of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchLockView {
    /// The branch's record.
    pub lock: BranchLock,
    /// Whether another queue holds the lock and it may be taken over
    /// ([`BranchLockHolder::is_abandoned`]).
    pub is_abandoned: bool,
}

/// Whether the item of a lock's holder is still in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderItem {
    /// It is in its queue.
    Queued,
    /// It left its queue, or the queue has no record.
    Gone,
}

impl BranchLock {
    /// Creates the record of a branch that nothing was merged into.
    pub fn new(branch: BranchKey) -> Self {
        Self {
            branch,
            fence: 0,
            holder: None,
            waiting: Vec::new(),
            free_since: Timestamp::default(),
            reserved_for: None,
        }
    }

    /// Returns the reservation that is valid at `now`, or `None`.
    pub fn reservation_at(&self, now: Timestamp) -> Option<&BranchReservation> {
        self.reserved_for.as_ref().filter(|reservation| now < reservation.until)
    }

    /// Returns whether the lock is free and no queue waits for it. A reservation does not count.
    pub fn is_unused(&self) -> bool {
        self.holder.is_none() && self.waiting.is_empty()
    }
}

impl BranchLockHolder {
    /// Returns whether other queues may take over the lock of a holder that did not release it.
    /// They may once its landing has ended or has no record (`landing` is `None`), except that a
    /// merged member keeps the lock for the rest of its bundle while its item is queued. They may
    /// also before the landing has started, if its item has left its queue, or it has reported
    /// trouble for [`TROUBLE_SECONDS`] and no member is merged. Never while the forge is being
    /// asked.
    ///
    /// A lock is not taken over while the forge may be merging. A landing that has not started
    /// finds a changed fence when it writes its intent. Of a bundle, that covers all of its
    /// branches. The queue that takes over must check that the landing has not started since. A
    /// bundle that is partly merged keeps its branches until all members are merged or its items
    /// have left their queue.
    pub fn is_abandoned(
        &self,
        landing: Option<&Landing>,
        item: HolderItem,
        now: Timestamp,
    ) -> bool {
        let Some(landing) = landing else { return true };
        let lasts = |since: Timestamp| since.plus_seconds(TROUBLE_SECONDS) <= now;
        // Only the first member of a bundle can still be abandoned safely; its intent names the
        // members after it.
        let is_hopeless = || {
            !self.has_landed_members
                && landing.trouble.as_ref().is_some_and(|trouble| lasts(trouble.since))
        };
        match &landing.state {
            LandingState::Merging(_) | LandingState::Pushing(_) => false,
            LandingState::Ordered => item == HolderItem::Gone || is_hopeless(),
            LandingState::Ended { end, .. } => {
                let goes_on = self.has_later_members && matches!(end, LandingEnd::Landed { .. });
                !goes_on || item == HolderItem::Gone
            }
        }
    }
}

/// Returns the branch that a change is merged into.
pub fn branch_of(change: &ChangeRef) -> BranchKey {
    BranchKey { project: change.key.project.clone(), branch: change.branch.clone() }
}
