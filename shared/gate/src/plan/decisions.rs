//! The result of planning: what one commit does to a queue.

use crate::branch_lock::BranchLock;
use crate::health::Health;
use crate::inbox::InboxMessage;
use crate::item::Item;
use crate::landing::Landing;
use crate::queue::Head;
use crate::report::Report;
use crate::semaphore::Semaphore;
use sluice_config::pipeline::Manager;
use sluice_model::build::{EndWithoutRun, RequestRef};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::event::ZuulEvent;
use sluice_model::git::Oid;
use sluice_model::{
    BuildId, InboxMessageId, ItemId, JobName, LabelName, QueueKey, QueueName, Timestamp,
};

/// Records that one plan may write besides the head. A DynamoDB transaction holds 100.
pub const RECORDS_MAX: usize = 90;

/// Records that [`QueueAction::SetHostQueue`] writes: the head of the hosted change's own queue,
/// and its entry in the list of open queues.
pub(super) const HOST_QUEUE_RECORDS: usize = 2;

/// The decisions about one queue: the new head, and what is written and sent with it. Carrying
/// them out involves no further decision.
#[derive(Debug, Default)]
pub struct QueuePlan {
    /// The new head; `None` if it does not change.
    pub head: Option<Head>,
    /// What the commit does besides writing the head, in the order of the decisions.
    pub actions: Vec<QueueAction>,
    /// The decisions and their reasons, for the log.
    pub reasons: Vec<String>,
    /// When to reconcile again without a wakeup; `None` for never.
    pub due: Option<Timestamp>,
}

impl QueuePlan {
    /// Returns whether the plan writes nothing. It may contain wakeups that can be repeated, such
    /// as [`QueueAction::RemindLanding`].
    pub fn is_empty(&self) -> bool {
        self.head.is_none() && self.actions.iter().all(|action| !action.writes())
    }
}

/// One thing that a commit does to a queue: records that it writes, a wakeup that it sends, or
/// both.
#[derive(Debug, Clone, PartialEq)]
pub enum QueueAction {
    /// Writes a new or changed item.
    PutItem(Box<Item>),
    /// Stores the buildset of an item that succeeded and stays for its reporter jobs. Its result is
    /// final.
    StoreBuildset(Box<RemovedItem>),
    /// Removes an item from the queue and stores its buildset.
    RemoveItem(Box<RemovedItem>),
    /// Deletes an inbox message that was consumed.
    DeleteMessage(InboxMessageId),
    /// Marks an enqueue message that stays in the inbox as in progress
    /// ([`InboxMessage::in_progress`]).
    MarkInProgress(InboxMessageId),
    /// Orders a build, and requests its nodes if it needs any.
    OrderBuild(Box<OrderDraft>),
    /// Records a build that ends at once, since no executor is to run it.
    RecordEndedBuild {
        /// The build.
        draft: Box<OrderDraft>,
        /// How it ends.
        end: EndWithoutRun,
    },
    /// Stops a build, and withdraws its node request.
    StopBuild(BuildStop),
    /// Sends a build to the executors: it has its nodes and semaphores, or its first message seems
    /// lost.
    SendBuild {
        /// The build.
        build: BuildId,
        /// The request that holds its nodes; `None` if it needs no nodes.
        request: Option<RequestRef>,
        /// The labels of its nodes; empty if it needs none.
        labels: Vec<LabelName>,
    },
    /// Resumes a paused build: the dependent jobs are over.
    ResumeBuild(BuildId),
    /// Orders a landing.
    OrderLanding(Box<Landing>),
    /// Ends a landing that was not started. Its record must be unchanged.
    WithdrawLanding(Box<Landing>),
    /// Wakes the reporter again for the overdue landing of this item.
    RemindLanding(ItemId),
    /// Makes a report.
    MakeReport(Box<Report>),
    /// Emits an event about a change of this queue that may trigger pipelines.
    EmitEvent {
        /// The event.
        event: ZuulEvent,
        /// The item that it is about.
        item: ItemId,
        /// The change of that item.
        change: ChangeRef,
    },
    /// Writes a message to the inbox of another queue of the tenant, and wakes that queue.
    SendMessage {
        /// The other queue.
        queue: QueueKey,
        /// The message.
        message: Box<InboxMessage>,
    },
    /// Records the host queue of a hosted change in the head of the change's own queue, or removes
    /// it once the change is released. That head must be unchanged.
    SetHostQueue {
        /// The hosted change.
        change: ChangeKey,
        /// The host queue; `None` once the change is released.
        host: Option<QueueName>,
    },
    /// Writes a semaphore. Its record must be unchanged.
    PutSemaphore(Box<Semaphore>),
    /// Acquires, releases or waits for a branch lock. Its record must be unchanged.
    PutBranchLock(Box<BranchLock>),
    /// Writes the pipeline's failure count. Its record must be unchanged.
    PutHealth(Health),
    /// Wakes a queue that waits for a semaphore or a branch lock which is free now.
    WakeQueue(QueueKey),
    /// Requests the tested state of an item of the merger.
    RequestMerge {
        /// The item.
        item: ItemId,
        /// The generation of its speculative state.
        generation: u64,
    },
    /// Requests a new layout of the tenant.
    RequestLayout,
    /// Wakes the tenant.
    WakeTenant,
}

impl QueueAction {
    /// Returns how many records the action writes at most in a queue with this manager; 0 for a
    /// wakeup, which the head's outbox holds.
    pub fn records(&self, manager: Manager) -> usize {
        match self {
            // Its record, its buildset and its provided artifacts, with one to spare.
            Self::RemoveItem(_) => 4,
            // The order and the node request.
            Self::OrderBuild(_) => 2,
            Self::SetHostQueue { .. } => HOST_QUEUE_RECORDS,
            // Outside dependent pipelines the item's provided artifacts may be written with a stop.
            Self::StopBuild(_) => 1 + usize::from(manager != Manager::Dependent),
            Self::MakeReport(report) => report.records_count(),
            Self::PutItem(_)
            | Self::StoreBuildset(_)
            | Self::DeleteMessage(_)
            | Self::MarkInProgress(_)
            | Self::ResumeBuild(_)
            | Self::RecordEndedBuild { .. }
            | Self::OrderLanding(_)
            | Self::WithdrawLanding(_)
            | Self::EmitEvent { .. }
            | Self::SendMessage { .. }
            | Self::PutSemaphore(_)
            | Self::PutBranchLock(_)
            | Self::PutHealth(_)
            | Self::RequestLayout => 1,
            Self::SendBuild { .. }
            | Self::RemindLanding(_)
            | Self::WakeQueue(_)
            | Self::RequestMerge { .. }
            | Self::WakeTenant => 0,
        }
    }

    /// Returns whether the action writes a record.
    pub fn writes(&self) -> bool {
        self.records(Manager::Dependent) > 0
    }
}

/// An item that leaves its queue, or has succeeded and stays for its reporter jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedItem {
    /// The final state of the item.
    pub item: Item,
    /// Zuul's name of the buildset's result: `SUCCESS`, `FAILURE`, `MERGE_CONFLICT`,
    /// `MERGE_FAILURE`, `CONFIG_ERROR`, `NO_JOBS`, `DEQUEUED`.
    pub result: &'static str,
    /// The reason that users see.
    pub why: String,
}

/// The content of a build to order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderDraft {
    /// The build's id.
    pub build: BuildId,
    /// The item that it tests.
    pub item: ItemId,
    /// The generation of the item's speculative state.
    pub generation: u64,
    /// The job's name.
    pub job: JobName,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How many attempts the job has.
    pub max_attempts: u32,
    /// Whether its result counts.
    pub voting: bool,
    /// The name of the object that holds the job graph.
    pub graph: String,
    /// The name of the object that holds the tested state.
    pub speculation: String,
    /// The tested change.
    pub change: ChangeRef,
    /// The id of the event that enqueued the item.
    pub event_id: String,
    /// The commit that merged the change; `None` if it is not merged.
    pub merge_commit: Option<Oid>,
    /// The members of the change's bundle in merge order; empty without a bundle.
    pub bundle: Vec<ChangeKey>,
    /// The other members of the bundle that share the build.
    pub shared_with: Vec<ChangeKey>,
    /// Builds whose returned data it receives. A later one overrides an earlier one.
    pub parents: Vec<BuildId>,
    /// Builds of changes ahead whose artifacts it receives, the nearest change first.
    pub artifact_builds: Vec<BuildId>,
    /// Index of the requested nodeset among the job's nodesets, from 0.
    pub nodeset: u32,
    /// Labels of the requested nodes.
    pub labels: Vec<LabelName>,
    /// Whether the queue sends the build once it has nodes and semaphores; otherwise the provider
    /// sends it.
    pub nodes_first: bool,
    /// The node request; `None` if the job needs no nodes.
    pub request: Option<RequestRef>,
}

/// A build to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStop {
    /// The build's id.
    pub build: BuildId,
    /// The node request to withdraw, if there is one.
    pub request: Option<RequestRef>,
    /// The reason that users see.
    pub why: String,
    /// What ends the build.
    pub cause: StopCause,
}

/// What ends a build that the gate stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// The gate cancels the build, or its job goes on in another way.
    Cancelled,
    /// Its executor is gone: the build needs no stop message, and its nodes are free at once.
    ExecutorLost,
    /// Its nodes cannot be had, which ends its job.
    NoNodes,
}
