//! A landing: the intent, what was seen on the way, and the proof that what landed is what was tested.

use serde::{Deserialize, Serialize};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{Commit, MergeMode};
use sluice_model::{ItemId, QueueKey, Timestamp};

/// The order to put one item into its branch. The gate writes it once; whoever lands it finishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The item.
    pub item: ItemId,
    /// The speculative state it passed in.
    pub generation: u64,
    /// The queue to tell.
    pub queue: QueueKey,
    /// The change and the head that was tested.
    pub change: ChangeRef,
    /// Changes that it depends on and that landed before it, in a dependent pipeline; whatever else it depends on by now must be
    /// merged too.
    #[serde(default)]
    pub needs: Vec<ChangeKey>,
    /// How the forge merges it.
    pub mode: MergeMode,
    /// What the branch must be: its tree decides.
    pub base: Commit,
    /// What the branch must become: its tree decides.
    pub tested: Commit,
    /// Whether that changes what the tenant reads as configuration.
    #[serde(default = "unknown_is_yes")]
    pub configures: bool,
    /// Changes of its bundle that land after it, in that order. Nothing of a bundle lands where one of them cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Together>,
    /// When it was wanted.
    pub wanted_at: Timestamp,
    /// How far it is.
    pub state: LandingState,
}

/// A change that is to land after another one of its bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// The item.
    pub item: ItemId,
    /// The speculative state it passed in.
    pub generation: u64,
    /// The change and the head that was tested.
    pub change: ChangeRef,
    /// What its branch must be by then.
    pub base: Commit,
    /// Whether it changes what the tenant reads as configuration.
    pub configures: bool,
}

fn unknown_is_yes() -> bool {
    true
}

/// How far a landing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandingState {
    /// Nothing was done.
    Wanted,
    /// The forge is being asked, the branch having been at this tip. After a crash the forge is read before it is asked again.
    Attempting {
        /// The tip seen before.
        tip: Commit,
    },
    /// Over.
    Ended {
        /// How.
        end: LandingEnd,
        /// When.
        at: Timestamp,
    },
}

/// How a landing ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandingEnd {
    /// The branch is what was tested.
    Landed {
        /// The commit that landed.
        commit: Commit,
    },
    /// The branch is not what the test was based on; nothing was done.
    BaseMoved {
        /// Where it is.
        tip: Commit,
    },
    /// The forge refuses.
    Refused {
        /// Its words.
        why: String,
    },
    /// The branch became something that was not tested.
    Mismatch {
        /// What landed.
        landed: Commit,
    },
}
