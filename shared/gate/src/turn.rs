//! Whose turn it is to land on a branch.
//!
//! A queue lands one thing after the other by itself. Two queues that hold one branch (two gates,
//! two tenants that hold one repository, queues whose projects are the same) agree by this record
//! alone. The invariant that it keeps is **no two landings at once on a branch**: from the
//! transaction that orders a landing to the one that sees its end, the branch is the landing's.

use crate::landing::{Landing, LandingEnd, LandingState};
use serde::{Deserialize, Serialize};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::BranchKey;
use sluice_model::{ItemId, QueueKey, Timestamp};

/// Queues that stand in line for a branch; one that finds no place here looks again by itself.
pub const WAITING_MAX: usize = 100;

/// Seconds for which a branch that was let go is kept for those in line. The line is a courtesy
/// between queues, so time may end it: whoever comes later than that finds somebody else there, or
/// the branch free.
pub const COURTESY_SECONDS: u64 = 30;

/// Seconds for which a landing may say that it cannot be carried out before other queues pass it
/// by: a connection that is gone, or a forge that never answers, is not to hold a branch for ever.
pub const TROUBLE_SECONDS: u64 = 600;

/// Landings of one item that may find its branch moved by others before the branch is kept for it.
pub const OVERTAKEN_MAX: u32 = 3;

/// Seconds for which a branch is kept for what was overtaken too often, while that is tested once
/// more. Like the line it is a courtesy, so time ends it: a queue whose tests never end holds up no
/// other one for longer.
pub const KEPT_SECONDS: u64 = 1_800;

/// A branch's record. A queue writes it in the transaction that orders a landing, on condition that
/// it is as it was read, and again in the one that sees the end. Projects' names hold their forge's
/// host, so that two connections to one forge share it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Which branch.
    pub branch: BranchKey,
    /// Grows each time that the branch is taken. A landing's intent is written on condition that
    /// nobody has taken it since.
    #[serde(default)]
    pub fence: u64,
    /// Whose turn it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<TurnHolder>,
    /// Queues with something that passed and is to land here, oldest first, at most
    /// [`WAITING_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<QueueKey>,
    /// Since when nobody holds it.
    #[serde(default)]
    pub free_since: Timestamp,
    /// For whom it is kept, who was overtaken too often: nobody else lands here until that has had
    /// its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<KeptFor>,
}

/// An item for which a branch is kept while it is tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFor {
    /// Its queue.
    pub queue: QueueKey,
    /// The item.
    pub item: ItemId,
    /// Until when.
    pub until: Timestamp,
}

/// A landing that holds a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnHolder {
    /// The queue that ordered it.
    pub queue: QueueKey,
    /// The item that is landing now; of a bundle one after the other.
    pub item: ItemId,
    /// The speculative state it passed in: with the item it names the landing's record.
    pub generation: u64,
    /// Its change.
    pub change: ChangeKey,
    /// Whether others of its bundle land after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Whether others of its bundle have landed before it: what is in their branches is not to be
    /// left without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// Since when the branch is its queue's.
    pub since: Timestamp,
}

/// A branch's record as it was read, with what is known of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSeen {
    /// The record.
    pub turn: Turn,
    /// Whether its holder is another queue's and may be passed by ([`TurnHolder::is_over`]).
    pub is_over: bool,
}

impl Turn {
    /// Returns that of a branch on which nothing ever landed.
    pub fn new(branch: BranchKey) -> Self {
        Self {
            branch,
            fence: 0,
            holder: None,
            waiting: Vec::new(),
            free_since: Timestamp::default(),
            kept_for: None,
        }
    }

    /// Returns for whom the branch is kept at this time, if for anybody.
    pub fn kept_at(&self, now: Timestamp) -> Option<&KeptFor> {
        self.kept_for.as_ref().filter(|kept| now < kept.until)
    }

    /// Returns whether nobody holds the branch or waits for it.
    pub fn is_unused(&self) -> bool {
        self.holder.is_none() && self.waiting.is_empty()
    }
}

impl TurnHolder {
    /// Returns whether a holder that did not let go may be passed by, by facts: its landing's own
    /// record, which is missing once it is forgotten or says for long that it cannot be carried
    /// out, and whether its item still stands in its queue.
    ///
    /// Nobody is passed by whose merge may be under way. One that has not begun to merge finds at
    /// its intent that the fence is another one, of a bundle that of any of its branches; whoever
    /// passes it by makes sure that it has not begun since. Of a bundle that lands on, each end is
    /// but one of several, and its branches are its own until all have landed.
    pub fn is_over(
        &self,
        landing: Option<&Landing>,
        stands_in_its_queue: bool,
        now: Timestamp,
    ) -> bool {
        let Some(landing) = landing else { return true };
        let lasts = |since: Timestamp| since.plus_seconds(TROUBLE_SECONDS) <= now;
        // Of a bundle the first alone can still leave everything as it is, and its intent names who
        // comes after it.
        let has_begun = self.begun || (self.more && !landing.fences_bundle());
        let is_hopeless =
            || !has_begun && landing.trouble.as_ref().is_some_and(|trouble| lasts(trouble.since));
        match &landing.state {
            LandingState::Attempting { .. } => false,
            LandingState::Wanted => !stands_in_its_queue || is_hopeless(),
            LandingState::Ended { end, .. } => {
                let goes_on = self.more && matches!(end, LandingEnd::Landed { .. });
                !goes_on || !stands_in_its_queue
            }
        }
    }
}

/// Returns the branch that a change lands on.
pub fn branch_of(change: &ChangeRef) -> BranchKey {
    BranchKey { project: change.key.project.clone(), branch: change.branch.clone() }
}
