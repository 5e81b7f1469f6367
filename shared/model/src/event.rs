//! Events of forges, in the vocabulary that Zuul's GitHub triggers use. A hint: the change is read
//! again before anything is decided.

use crate::change::{ChangeKey, ImagesAsked};
use crate::gerrit::GerritEvent;
use crate::{
    BranchName, ConnectionName, DeliveryId, PipelineName, ProjectName, TenantName, Timestamp,
    git::Oid,
};
use serde::{Deserialize, Serialize};

/// Something a forge told about one of its projects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgeEvent {
    /// The connection it came by.
    pub connection: ConnectionName,
    /// The project it is about.
    pub project: ProjectName,
    /// The login that caused it.
    pub sender: String,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A change, its reviews, comments or statuses.
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
        /// The label put on or taken off.
        label: Option<String>,
        /// A review's verdict: `approved`, `changes_requested` or `comment`.
        state: Option<String>,
        /// A status as `login:context:state`.
        status: Option<String>,
    },
    /// A change, in Gerrit's words.
    Gerrit(GerritEvent),
    /// A status or check run on a commit: it concerns each open change whose head is that commit.
    Commit {
        /// The commit.
        head: Oid,
        /// `pull_request` (a status) or `check_run`.
        event: String,
        /// `status`, `rerequested` or `completed`.
        action: String,
        /// `login:context:state`.
        status: String,
        /// Changes up to this number were told already.
        #[serde(default)]
        after: u64,
    },
    /// Nobody told anything: the project's open changes are to be compared with what is known here,
    /// and gaps mended.
    Sweep,
    /// A branch or tag moved.
    Push {
        /// The whole ref, `refs/heads/main`.
        git_ref: String,
        /// Where it was; all zeros for a new ref.
        oldrev: Oid,
        /// Where it is; all zeros for a deleted ref.
        newrev: Oid,
    },
    /// A queue tells what happened in it: other changes may be started by that.
    Happened {
        /// The tenant.
        tenant: TenantName,
        /// What.
        what: ZuulEvent,
        /// The pipeline that it happened in.
        pipeline: PipelineName,
        /// The change that it happened to.
        number: u64,
        /// Changes up to this number were told already.
        #[serde(default)]
        after: u64,
        /// The last change that was told; of several projects some may have that number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_change: Option<ChangeKey>,
    },
    /// The same, to one change that it may start.
    Zuul {
        /// The tenant.
        tenant: TenantName,
        /// What.
        what: ZuulEvent,
        /// The pipeline that it happened in.
        pipeline: PipelineName,
        /// The number of the change.
        number: u64,
    },
    /// An operator puts a change into a pipeline, as if an event had.
    Enqueue {
        /// The tenant.
        tenant: TenantName,
        /// The pipeline.
        pipeline: PipelineName,
        /// The number of the change.
        number: u64,
        /// How the revision begins that is meant; `None` for whatever is there.
        head: Option<Oid>,
    },
    /// An operator puts a ref into a pipeline, as if it had been pushed.
    EnqueueRef {
        /// The tenant.
        tenant: TenantName,
        /// The pipeline.
        pipeline: PipelineName,
        /// The whole ref.
        git_ref: String,
        /// Where it was; all zeros for a new ref.
        oldrev: Oid,
        /// Where it is; all zeros for where it is when its turn comes.
        newrev: Oid,
    },
    /// A timer fired: branches of the project are to be enqueued as they are.
    Timer {
        /// The tenant.
        tenant: TenantName,
        /// The pipeline whose timer it is.
        pipeline: PipelineName,
        /// The branches.
        branches: Vec<BranchName>,
        /// Whether they are to be tested where they are when this is handled, rather than when
        /// their turn comes.
        dereference: bool,
        /// Whether the timer has reports tell how jobs were decided (`debug`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        debug: bool,
    },
    /// Something is asked of images that a branch of the project defines.
    Image {
        /// The tenant.
        tenant: TenantName,
        /// What.
        what: ImageEvent,
        /// The branch whose configuration defines them.
        branch: BranchName,
        /// Of which images.
        images: ImagesAsked,
    },
    /// A tenant has read its configuration again after a push, or had no need to: only now its
    /// pipelines are asked.
    Read {
        /// The tenant that had to read.
        tenant: TenantName,
        /// The whole ref.
        git_ref: String,
        /// Where it was; all zeros for a new ref.
        oldrev: Oid,
        /// Where it is; all zeros for a deleted ref.
        newrev: Oid,
        /// What else of its configuration was on its way when the push came.
        #[serde(default)]
        awaited: Awaited,
    },
    /// Something came about a change while a tenant's configuration was on its way, or could not be
    /// read: only once it is live the tenant's pipelines are asked.
    Later {
        /// The tenant.
        tenant: TenantName,
        /// What was on its way.
        awaited: Awaited,
        /// What came.
        kind: Box<EventKind>,
    },
}

/// What of a tenant's configuration was on its way when something came: whatever comes after it
/// belongs to what it makes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Awaited {
    /// The number of the layout that was wanted; 0 where that is not known.
    #[serde(default)]
    pub layout: u64,
    /// Marks of pushes that the tenant had still to read, by their sort keys; one of a project at
    /// most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
    /// What was kept for the tenant of the same project before: that is told first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Behind>,
}

/// Something that was kept for a tenant, and that whatever comes after it waits behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// The delivery of ours that keeps it.
    pub delivery: DeliveryId,
    /// Since when it waits.
    pub since: Timestamp,
}

/// What a queue tells of, in the words of Zuul's own triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZuulEvent {
    /// A change entered a pipeline; those that depend on it are told.
    ParentChangeEnqueued,
    /// A change landed; all open changes of its project are told.
    ProjectChangeMerged,
}

impl ZuulEvent {
    /// Returns the word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ParentChangeEnqueued => "parent-change-enqueued",
            Self::ProjectChangeMerged => "project-change-merged",
        }
    }
}

/// What is asked of an image, in the words of Zuul's own triggers (L1.2, L1.5, L1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageEvent {
    /// It is to be built.
    ImageBuild,
    /// An upload of it is to be validated.
    ImageValidate,
    /// A build of it is deleted, so that its artifact can be removed.
    ImageDelete,
}

impl ImageEvent {
    /// Returns the word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ImageBuild => "image-build",
            Self::ImageValidate => "image-validate",
            Self::ImageDelete => "image-delete",
        }
    }
}

impl EventKind {
    /// Returns the branch that a push moved.
    pub fn pushed_branch(&self) -> Option<BranchName> {
        match self {
            Self::Push { git_ref, .. } => git_ref.strip_prefix("refs/heads/").map(BranchName::from),
            _ => None,
        }
    }
}
