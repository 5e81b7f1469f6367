//! What one run of the reporter has observed of a landing: the forge's answers, in the order in
//! which [`super::next`] asks for them.

use super::Landing;
use crate::branch_lock::branch_of;
use sluice_model::Timestamp;
use sluice_model::change::ChangeFacts;
use sluice_model::git::{Commit, Oid};

/// A forge's answer, or the text of its final refusal to give one. An error after which the forge
/// may answer is not part of an observation: the run ends with it and is repeated.
pub type Answer<T> = Result<T, String>;

/// The time by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// By the function's own clock.
    pub own: Timestamp,
    /// By the forge's clock, according to its last answer; `None` if that is too old or has none.
    pub forge: Option<Timestamp>,
}

/// Everything that one run has observed so far; `None` is not yet observed.
#[derive(Debug, Clone)]
pub struct Observation {
    /// When the stored landing is due: until then a request of an earlier run may take effect,
    /// where the forge does not send its time.
    pub due: Option<Timestamp>,
    /// The clocks when the run began.
    pub started: Clocks,
    /// Whether the forge was asked for its time. The answer is in `started`.
    pub is_forge_time_read: bool,
    /// What the forge showed before it was asked to merge or push.
    pub before: View,
    /// Why a dependency of the change prevents the merge.
    pub dependencies: Option<Result<(), String>>,
    /// The later members of the bundle, in order, as far as they were read.
    pub members: Vec<MemberView>,
    /// Whether a push of the tested commit could be prepared.
    pub is_push_ready: Option<bool>,
    /// The result of storing the intent.
    pub intent: Option<IntentResult>,
    /// The forge's answer to the push.
    pub push: Option<PushAnswer>,
    /// Whether a push that failed was replaced by an intent to merge.
    pub is_push_replaced: bool,
    /// The forge's answer to the merge request.
    pub merge: Option<MergeAnswer>,
    /// What the forge showed after that answer.
    pub after: View,
    /// Whether the branch contains the tested commit, read last, before another result than that
    /// the change landed is stored.
    pub contains_tested_at_end: Option<bool>,
    /// The tested commit as the forge shows it.
    pub tested: Option<Answer<Commit>>,
}

/// What a forge shows of a change and its branch at one time.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Whether the branch contains the tested commit.
    pub contains_tested: Option<bool>,
    /// The change.
    pub change: Option<Answer<ChangeFacts>>,
    /// The tip of the branch.
    pub tip: Option<Answer<Commit>>,
    /// The commit that the change was merged as.
    pub merged: Option<Answer<Commit>>,
}

/// A later member of a bundle, as read before the first one is merged.
#[derive(Debug, Clone)]
pub enum MemberView {
    /// Its connection was removed, so its state will never be known.
    ConnectionRemoved,
    /// Its forge refuses to show it, with this error.
    Unreadable(String),
    /// Its forge shows it.
    Read(Box<ReadMember>),
}

/// A later member of a bundle that its forge shows.
#[derive(Debug, Clone)]
pub struct ReadMember {
    /// The change.
    pub facts: ChangeFacts,
    /// Why a dependency prevents its merge.
    pub dependencies: Result<(), String>,
    /// The tip of its branch; `None` where an earlier member moves that branch
    /// ([`reads_tip_of_member`]).
    pub tip: Option<Answer<Commit>>,
}

/// The result of storing the intent to merge or push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentResult {
    /// It is stored, and the request may take effect until this time, by the function's clock.
    Stored(Option<Timestamp>),
    /// Another queue has acquired one of the branch locks since the landing was ordered.
    BranchLockLost,
    /// A concurrent run changed the landing.
    Stale,
}

/// A forge's answer to a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushAnswer {
    /// It was made.
    Made,
    /// It was refused for good, with this error; the branch has not moved.
    Refused(String),
    /// The branch is not where it was read; the push was not made.
    BranchMoved(Retry),
    /// No clear answer came: it may have been made.
    Unclear(Retry),
}

/// A forge's answer to a merge request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeAnswer {
    /// It merged the change as this commit.
    Merged(Oid),
    /// It refused for good, with this error.
    Refused(String),
    /// No clear answer came: it may have merged the change.
    Unclear(Retry),
}

/// Why and when a run is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The reason, for people.
    pub why: String,
    /// The pause in seconds; `None` for the usual one of a message that failed.
    pub after_seconds: Option<u64>,
}

impl Observation {
    /// Returns an observation of nothing yet, at the beginning of a run. `due` is when the stored
    /// landing is due.
    pub fn new(due: Option<Timestamp>, started: Clocks) -> Self {
        Self {
            due,
            started,
            is_forge_time_read: false,
            before: View::default(),
            dependencies: None,
            members: Vec::new(),
            is_push_ready: None,
            intent: None,
            push: None,
            is_push_replaced: false,
            merge: None,
            after: View::default(),
            contains_tested_at_end: None,
            tested: None,
        }
    }
}

/// Returns whether the tip of the branch of the later bundle member at `index` is read before the
/// first member is merged: not where an earlier member moves the same branch. That branch is
/// compared by the member's own landing. False without such a member.
pub fn reads_tip_of_member(landing: &Landing, index: usize) -> bool {
    let Some(member) = landing.later_members.get(index) else { return false };
    let before = landing.later_members.iter().take(index).map(|member| &member.change);
    let branch = branch_of(&member.change);
    !before.chain([&landing.change]).any(|change| branch_of(change) == branch)
}
