//! Events from forges, timers and operators, in the vocabulary of Zuul's GitHub triggers. An event
//! is only a hint: the change is read from the forge again before any decision.

use crate::change::{ChangeKey, ImageSelection};
use crate::gerrit::GerritEvent;
use crate::{
    BranchName, ConnectionName, DeliveryId, PipelineName, ProjectName, TenantName, Timestamp,
    git::Oid,
};
use serde::{Deserialize, Serialize};

/// An event about one project of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgeEvent {
    /// The connection that it came from.
    pub connection: ConnectionName,
    /// The project it is about.
    pub project: ProjectName,
    /// The login of the user who caused it.
    pub sender: String,
    /// The kind of event, with its details.
    pub kind: EventKind,
}

/// The kind of an event, with its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A change was updated, reviewed, commented on or got a status.
    Change {
        /// The number of the change.
        number: u64,
        /// `pull_request`, `pull_request_review` or `check_run`.
        event: String,
        /// `opened`, `changed`, `closed`, `reopened`, `comment`, `labeled`, `unlabeled`, `status`,
        /// `submitted`, `dismissed`, `edited`, `rerequested`, `completed`.
        action: String,
        /// A comment's text.
        comment: Option<String>,
        /// The label that was added or removed.
        label: Option<String>,
        /// A review's state: `approved`, `changes_requested` or `comment`.
        state: Option<String>,
        /// A status as `login:context:state`.
        status: Option<String>,
    },
    /// A Gerrit event about a change.
    Gerrit(GerritEvent),
    /// A status or check run was set on a commit. It concerns each open change with that head.
    Commit {
        /// The commit.
        head: Oid,
        /// `pull_request` (a status) or `check_run`.
        event: String,
        /// `status`, `rerequested` or `completed`.
        action: String,
        /// The status as `login:context:state`.
        status: String,
        /// The number of the last change that was already processed; work resumes after it.
        after: u64,
    },
    /// A sweep: compares the project's open changes with the stored ones and synthesizes missed
    /// events.
    Sweep,
    /// A branch or tag moved.
    Push {
        /// The full ref name, `refs/heads/main`.
        git_ref: String,
        /// The commit before the move; all zeros for a new ref.
        oldrev: Oid,
        /// The commit after the move; all zeros for a deleted ref.
        newrev: Oid,
    },
    /// A queue reports an event of its own that may trigger pipelines for other changes.
    ZuulBroadcast {
        /// The tenant.
        tenant: TenantName,
        /// The event.
        event: ZuulEvent,
        /// The pipeline in which it occurred.
        pipeline: PipelineName,
        /// The change that it occurred to.
        number: u64,
        /// The number of the last change that was already processed; work resumes after it.
        after: u64,
        /// The last change that was already processed. It is unambiguous even if several projects
        /// use the same number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_change: Option<ChangeKey>,
    },
    /// A [`Self::ZuulBroadcast`], for one change that it may enqueue.
    Zuul {
        /// The tenant.
        tenant: TenantName,
        /// The event.
        event: ZuulEvent,
        /// The pipeline in which it occurred.
        pipeline: PipelineName,
        /// The number of the change.
        number: u64,
    },
    /// An operator enqueues a change into a pipeline.
    Enqueue {
        /// The tenant.
        tenant: TenantName,
        /// The pipeline.
        pipeline: PipelineName,
        /// The number of the change.
        number: u64,
        /// A prefix of the head commit of the requested revision; `None` for the current one.
        head: Option<Oid>,
    },
    /// An operator enqueues a ref into a pipeline, as if it had been pushed.
    EnqueueRef {
        /// The tenant.
        tenant: TenantName,
        /// The pipeline.
        pipeline: PipelineName,
        /// The full ref name.
        git_ref: String,
        /// The commit before the move; all zeros for a new ref.
        oldrev: Oid,
        /// The commit to test; all zeros for the tip at the time of the test.
        newrev: Oid,
    },
    /// A timer fired: branches of the project are enqueued without a move.
    Timer {
        /// The tenant.
        tenant: TenantName,
        /// The pipeline whose timer it is.
        pipeline: PipelineName,
        /// The branches.
        branches: Vec<BranchName>,
        /// Whether to test the tip at the time of this event rather than the tip at the time of the
        /// test.
        dereference: bool,
        /// Whether reports explain how jobs were decided (the timer's `debug`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        debug: bool,
    },
    /// An image event for images that a branch of the project defines.
    Image {
        /// The tenant.
        tenant: TenantName,
        /// The event.
        event: ImageEvent,
        /// The branch whose configuration defines them.
        branch: BranchName,
        /// The images it is about.
        images: ImageSelection,
    },
    /// A push, after a tenant has reloaded its configuration or had no need to. Only now are the
    /// tenant's pipelines matched.
    DeferredPush {
        /// The tenant that reloaded its configuration.
        tenant: TenantName,
        /// The full ref name.
        git_ref: String,
        /// The commit before the move; all zeros for a new ref.
        oldrev: Oid,
        /// The commit after the move; all zeros for a deleted ref.
        newrev: Oid,
        /// Other configuration that was pending when the push arrived.
        awaited: PendingConfig,
    },
    /// An event that is deferred while a tenant's configuration is pending or unreadable. The
    /// tenant's pipelines are matched once the configuration is live.
    Deferred {
        /// The tenant.
        tenant: TenantName,
        /// The configuration that was pending when the event arrived.
        awaited: PendingConfig,
        /// The deferred event.
        kind: Box<EventKind>,
    },
}

/// The part of a tenant's configuration that was pending when an event arrived. The event is
/// processed only with a layout that includes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PendingConfig {
    /// The number of the requested layout; 0 if unknown.
    pub layout: u64,
    /// Sort keys of pushes that the tenant had not yet read; at most one of each project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pushes: Vec<String>,
    /// An earlier deferred event of the same tenant and project, which is processed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<DeferredPredecessor>,
}

/// A deferred event that later events of the same tenant and project wait behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredPredecessor {
    /// The delivery that stores the deferred event.
    pub delivery: DeliveryId,
    /// When it was deferred.
    pub since: Timestamp,
}

/// An event that a queue reports to other pipelines, named as in Zuul's own triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZuulEvent {
    /// A change entered a pipeline; changes that depend on it are checked for triggers.
    ParentChangeEnqueued,
    /// A change was merged; all open changes of its project are checked for triggers.
    ProjectChangeMerged,
}

impl ZuulEvent {
    /// Returns the event's name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ParentChangeEnqueued => "parent-change-enqueued",
            Self::ProjectChangeMerged => "project-change-merged",
        }
    }
}

/// An event about an image, named as in Zuul's own triggers (L1.2, L1.5, L1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageEvent {
    /// The image is to be built.
    ImageBuild,
    /// An upload of the image is to be validated.
    ImageValidate,
    /// A build of the image is deleted, so that its artifact can be removed.
    ImageDelete,
}

impl ImageEvent {
    /// Returns the event's name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ImageBuild => "image-build",
            Self::ImageValidate => "image-validate",
            Self::ImageDelete => "image-delete",
        }
    }
}

impl EventKind {
    /// Returns the branch that a push moved, created or deleted; `None` for tags and for all other
    /// events, also for a deferred push.
    pub fn pushed_branch(&self) -> Option<BranchName> {
        match self {
            Self::Push { git_ref, .. } => git_ref.strip_prefix("refs/heads/").map(BranchName::from),
            _ => None,
        }
    }
}
