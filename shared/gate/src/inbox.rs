//! Messages to a queue from other functions: changes to enqueue, updates of queued changes, and
//! operators' commands.

use serde::{Deserialize, Serialize};
use sluice_config::pipeline::Manager;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{InboxMessageId, PipelineName, QueueName, Timestamp};

/// The start of the reason of an item that an operator dequeued. The function that sent the command
/// uses it to tell such items from others that left at the same moment.
pub const DEQUEUED_BY_OPERATOR: &str = "an operator dequeued it";

/// A message that waits in the cell. The decision about it removes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxMessage {
    /// Its id; ids sort in the order of arrival.
    pub id: InboxMessageId,
    /// When it was written.
    pub at: Timestamp,
    /// The id of the event that caused it.
    pub event_id: String,
    /// The number of the layout that it was routed by; 0 where there is none. The gate decides by
    /// this layout or a newer one.
    #[serde(default)]
    pub layout: u64,
    /// Whether it is an operator's request. Paused trigger events do not delay it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_operator: bool,
    /// Whether the gate started to process an enqueue request: another queue was asked to release a
    /// change, or an item was removed for it. It is then kept when events are discarded, since the
    /// removed item would be lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_progress: bool,
    /// What is requested.
    pub kind: InboxMessageKind,
}

impl InboxMessage {
    /// Returns whether it is an operator's command on the queue or its changes: resume, dequeue or
    /// promote. Such a command waits only for a landing of its own change. An enqueue request of an
    /// operator ([`Self::by_operator`]) is not one.
    pub fn is_command(&self) -> bool {
        matches!(
            self.kind,
            InboxMessageKind::Resume { .. }
                | InboxMessageKind::Dequeue { .. }
                | InboxMessageKind::Promote { .. }
        )
    }
}

/// The content of an inbox message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InboxMessageKind {
    /// Enqueues changes that meet the pipeline's requirements.
    Enqueue {
        /// The changes in queue order, dependencies first.
        candidates: Vec<Candidate>,
    },
    /// Updates a queued change with facts newly read from its forge.
    ChangeUpdated {
        /// The change with its current revision.
        change: ChangeRef,
        /// Why it must be removed; `None` where it may stay.
        gone: Option<String>,
        /// Whether it is merged into its branch. Then changes that need it no longer wait for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        merged: bool,
        /// The open changes that it currently depends on, in order; `None` where they were not
        /// determined.
        #[serde(default)]
        needs: Option<Vec<ChangeRef>>,
        /// See [`Candidate::as_of`].
        #[serde(default)]
        as_of: Timestamp,
    },
    /// Removes a change because it entered a pipeline that supersedes this one.
    Superseded {
        /// The change with the revision that entered there.
        change: ChangeRef,
        /// The superseding pipeline.
        by: PipelineName,
        /// Further superseded pipelines that this queue notifies, because they were too many for
        /// one transaction.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<PipelineName>,
    },
    /// Asks the change's own queue to release it to the host queue of its bundle.
    MoveToHost {
        /// The change with the revision that is to be hosted.
        change: ChangeRef,
        /// See [`Candidate::as_of`].
        as_of: Timestamp,
        /// The host queue, in the same pipeline.
        to: QueueName,
    },
    /// Dequeues a change on an operator's command.
    Dequeue {
        /// The change.
        key: ChangeKey,
        /// The first digits of the revision to dequeue; another revision stays. `None` for any
        /// revision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<Oid>,
        /// The operator; empty where unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
        /// The operator's reason; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Moves changes to the front of the queue on an operator's command.
    Promote {
        /// The changes in their new order.
        keys: Vec<ChangeKey>,
        /// The operator; empty where unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
    },
    /// Resumes a halted queue on an operator's command.
    Resume {
        /// The operator; empty where unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
        /// The operator's finding, for people.
        reason: String,
    },
}

impl Candidate {
    /// Creates a candidate with only a revision.
    pub fn bare(change: &ChangeRef) -> Self {
        Self {
            change: change.clone(),
            url: String::new(),
            title: String::new(),
            message: String::new(),
            author: String::new(),
            topic: None,
            needs: Vec::new(),
            bundle: Vec::new(),
            cycle_needs: Vec::new(),
            unresolved_dependencies: Vec::new(),
            refused: None,
            merged: None,
            moved_from: None,
            as_of: Timestamp::default(),
            newer_head: None,
            debug: false,
        }
    }

    /// Returns whether `key` is another change of the same bundle.
    pub(crate) fn is_bundle_member(&self, key: &ChangeKey) -> bool {
        self.bundle.contains(key) && *key != self.change.key
    }

    /// Returns the bundle member with the lowest key. In an independent pipeline, its queue is the
    /// host queue of the bundle. `None` without a bundle.
    pub fn host(&self) -> Option<&ChangeKey> {
        self.bundle.iter().min()
    }

    /// Returns the changes that it needs, without the members of its bundle, in the order of
    /// [`Self::needs`].
    pub fn needs_outside_bundle(&self) -> impl Iterator<Item = &Candidate> {
        self.needs.iter().filter(move |need| !self.is_bundle_member(&need.change.key))
    }

    /// Returns the changes that it needs and that do not need it in turn, in the order of
    /// [`Self::needs`]. Its jobs may get artifacts of these.
    pub fn acyclic_needs(&self) -> impl DoubleEndedIterator<Item = &Candidate> {
        self.needs.iter().filter(move |need| !self.is_in_cycle_with(&need.change.key))
    }

    /// Returns the number of changes that it counts as against `max-changes-per-pipeline`: one in a
    /// dependent pipeline; in others, itself and the changes that it needs outside of its bundle.
    pub fn change_count_in(&self, manager: Manager) -> u64 {
        // In a dependent pipeline, its needs are items of their own, as are bundle members
        // elsewhere.
        if manager == Manager::Dependent {
            1
        } else {
            1 + self.needs_outside_bundle().count() as u64
        }
    }

    /// Returns whether another change is in a dependency cycle with this one, tested as a bundle or
    /// separately.
    pub fn is_in_cycle_with(&self, key: &ChangeKey) -> bool {
        self.cycle_needs.contains(key) || self.is_bundle_member(key)
    }
}

/// A change to be enqueued, with the data that its reports and jobs use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The change and its revision.
    pub change: ChangeRef,
    /// The address of its page.
    pub url: String,
    /// The change's title.
    pub title: String,
    /// The change's description.
    pub message: String,
    /// The change's author.
    pub author: String,
    /// The topic that groups it with other changes, if the forge has topics and it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The unmerged changes that it depends on, in order. They must be ahead of it in the queue or
    /// are tested below it.
    #[serde(default)]
    pub needs: Vec<Candidate>,
    /// The members of its bundle, itself included, in merge order. Empty without a dependency cycle
    /// and where the members are tested separately. The others are also in [`Self::needs`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bundle: Vec<ChangeKey>,
    /// The changes of [`Self::needs`] that need this one in turn, where the members of a dependency
    /// cycle are tested separately. Empty where [`Self::bundle`] names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycle_needs: Vec<ChangeKey>,
    /// Some of the addresses in its Depends-On lines that belong to no configured connection. They
    /// are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved_dependencies: Vec<String>,
    /// Why it cannot be tested, such as a missing dependency or a dependency cycle; of a queued
    /// item, why it is to be removed. `None` otherwise.
    #[serde(default)]
    pub refused: Option<String>,
    /// The facts of a change that is already merged, which is tested as it was merged; `None` for
    /// any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<MergedChange>,
    /// The queue that it was in until the configuration assigned it to this one. It may be refused
    /// here, but must not vanish silently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<QueueName>,
    /// The time of these facts by the forge's clock. Several facts of one moment are numbered by
    /// milliseconds. Facts of a change are ordered by it, since the clocks of Sluice's functions
    /// differ. 0 where unknown.
    #[serde(default)]
    pub as_of: Timestamp,
    /// The newest commit of a pushed ref, where the ref had moved on when the forge was asked.
    /// `None` where the push was the newest, and for changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer_head: Option<Oid>,
    /// Whether its reports explain how its jobs were selected, because the trigger sets `debug`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
}

/// A change that is already merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedChange {
    /// The sorted paths that it touched; `None` where they are unknown or too many.
    pub files: Option<Vec<String>>,
}
