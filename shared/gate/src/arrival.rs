//! What reaches a queue from outside: changes to enqueue, and news of changes that may be in it.

use serde::{Deserialize, Serialize};
use sluice_config::pipeline::Manager;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{ArrivalId, PipelineName, QueueName, Timestamp};

/// What the reason of an item begins with that left because an operator took it out. Whoever asked
/// for that tells by it what left for another reason, at the same moment.
pub const TAKEN_OUT: &str = "an operator took it out";

/// Something that waits in the cell to be decided on; it is removed by the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Its id, in the order of arrival.
    pub id: ArrivalId,
    /// When it came.
    pub at: Timestamp,
    /// The event that led here.
    pub event_id: String,
    /// The number of the layout that it was routed by; 0 where nobody says. Whoever decides knows
    /// at least that layout.
    #[serde(default)]
    pub layout: u64,
    /// Whether an operator asked for it: what is held back of events holds it back no more than an
    /// operator's other words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_operator: bool,
    /// Whether an offer was begun to be carried out: another queue was asked to make way for it, or
    /// something left for it. What is discarded from then on is news; this one is not dropped, or
    /// what has left would be lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_up: bool,
    /// What it is.
    pub kind: ArrivalKind,
}

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// Changes that met the pipeline's requirements, dependencies first.
    Enqueue {
        /// The changes in the order they are to stand.
        candidates: Vec<Candidate>,
    },
    /// A change was read again from its forge.
    Seen {
        /// The revision it has now.
        change: ChangeRef,
        /// Why it may no longer be here, if so.
        gone: Option<String>,
        /// Whether it is merged into the branch that it is for: what needs it needs to wait for
        /// nothing any more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        merged: bool,
        /// The open changes that it depends on now, in order; `None` where nobody asked.
        #[serde(default)]
        needs: Option<Vec<ChangeRef>>,
        /// See [`Candidate::as_of`].
        #[serde(default)]
        as_of: Timestamp,
    },
    /// A change entered a pipeline that supersedes this queue's.
    Superseded {
        /// The change, in the revision that entered there.
        change: ChangeRef,
        /// That pipeline.
        by: PipelineName,
        /// Other pipelines that it supersedes, for this queue to tell: they are too many to be told
        /// at once.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<PipelineName>,
    },
    /// Another queue is to have a change, as one with others that need it as much as it needs them:
    /// it leaves its own.
    MakeWay {
        /// The change, in the revision that is to stand there.
        change: ChangeRef,
        /// See [`Candidate::as_of`].
        as_of: Timestamp,
        /// The queue of the same pipeline that waits for it.
        to: QueueName,
    },
    /// An operator takes a change out.
    Dequeue {
        /// Which one.
        key: ChangeKey,
        /// How the revision begins that is meant; another one that took its place stays. `None` for
        /// whatever is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<Oid>,
        /// Who asked; empty where nobody says.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
        /// Why, for people; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// An operator moves changes to the front.
    Promote {
        /// Which ones, the first to stand first.
        keys: Vec<ChangeKey>,
        /// Who asked; empty where nobody says.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
    },
    /// An operator has looked at a frozen queue and lets it go on.
    Thaw {
        /// Who; empty where nobody says.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
        /// What was found, for people.
        reason: String,
    },
}

impl Candidate {
    /// Returns a candidate of which nothing is known but the revision.
    pub fn bare(change: &ChangeRef) -> Self {
        Self {
            change: change.clone(),
            url: String::new(),
            title: String::new(),
            message: String::new(),
            author: String::new(),
            needs: Vec::new(),
            cycle: Vec::new(),
            mates: Vec::new(),
            unfollowed: Vec::new(),
            refused: None,
            merged: None,
            moved_from: None,
            as_of: Timestamp::default(),
            moved_on: None,
            debug: false,
        }
    }

    /// Returns whether another change is one of those that need this one as much as it needs them.
    pub(crate) fn is_mate(&self, key: &ChangeKey) -> bool {
        self.cycle.contains(key) && *key != self.change.key
    }

    /// Returns the first by its key of those that need each other, this one among them: where each
    /// change has a queue of its own they stand in that one's, whichever of them was asked for.
    /// None where it is in no such cycle.
    pub fn host(&self) -> Option<&ChangeKey> {
        self.cycle.iter().min()
    }

    /// Returns what it needs but for those changes that need it in turn and are tested as one with
    /// it.
    pub fn needs_besides_mates(&self) -> impl Iterator<Item = &Candidate> {
        self.needs.iter().filter(move |need| !self.is_mate(&need.change.key))
    }

    /// Returns what it needs but for whatever needs it in turn, in the order of [`Self::needs`]: of
    /// those its jobs may be given artifacts.
    pub fn needs_one_way(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.needs.iter().filter(move |need| !self.is_tied_to(&need.change.key))
    }

    /// Returns for how many changes it counts where a pipeline of that manager may hold only so
    /// many (`max-changes-per-pipeline`): for itself, and for those that are only tested below it.
    pub fn changes_in(&self, manager: Manager) -> u64 {
        // In a dependent pipeline what is needed stands in the queue itself, as does elsewhere what
        // is tested as one with it.
        if manager == Manager::Dependent {
            1
        } else {
            1 + self.needs_besides_mates().count() as u64
        }
    }

    /// Returns whether another change needs this one as much as this one needs it, be they tested
    /// as one or each for itself.
    pub fn is_tied_to(&self, key: &ChangeKey) -> bool {
        self.mates.contains(key) || self.is_mate(key)
    }
}

/// A change that is to be enqueued, with what its reports and its jobs say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The revision.
    pub change: ChangeRef,
    /// Where people look at it.
    pub url: String,
    /// Its title.
    pub title: String,
    /// Its description.
    pub message: String,
    /// Its author.
    pub author: String,
    /// The changes it depends on that are not merged, in order; they must be ahead of it in the
    /// queue, or are tested below it.
    #[serde(default)]
    pub needs: Vec<Candidate>,
    /// The changes that need each other, this one among them, in the order they land; empty for one
    /// that is in no such cycle, and where each is tested for itself. The others are among
    /// [`Self::needs`] too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<ChangeKey>,
    /// Where each is tested for itself, those of [`Self::needs`] that need this one in turn; empty
    /// where [`Self::cycle`] names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mates: Vec<ChangeKey>,
    /// Some of the addresses that it says it depends on and that nobody can be asked about, for no
    /// connection leads to their host: they are not waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfollowed: Vec<String>,
    /// Why it cannot be tested at all (a dependency that cannot be found, a cycle), if so; of one
    /// that stands in a queue, why it is to leave it.
    #[serde(default)]
    pub refused: Option<String>,
    /// What is known of a change that is in its branch already, which is tested as that is; `None`
    /// for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<InBranch>,
    /// The queue in which it stood until the configuration had it belong to this one: it may be
    /// refused here, and does not vanish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<QueueName>,
    /// The moment of its forge's clock as of which it is known so; news of one moment count on from
    /// it, a millisecond each. By it news of a change are ordered, for the clocks of those who
    /// bring them differ. 0 where nobody says.
    #[serde(default)]
    pub as_of: Timestamp,
    /// The commit that a pushed ref had moved on to when its forge was asked; `None` where the push
    /// was its newest, and for changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_on: Option<Oid>,
    /// Whether the trigger that let it in has its reports tell how its jobs were decided (`debug`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
}

/// A change that is in its branch already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InBranch {
    /// The paths that it touched, sorted; `None` where they are not known or too many.
    pub files: Option<Vec<String>>,
}
