//! The gate's decisions: which changes enter a queue, which state they are tested on, when they
//! land, and what is reported.
//!
//! [`plan`](plan::plan) decides for one queue cell ([`queue::Head`] with its [`item::Item`]s).
//! [`filter`] decides which events and changes a pipeline accepts. [`report`] writes reports.
//! Everything is pure: a snapshot goes in, a plan with its reasons comes out.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod autohold;
pub mod branch_lock;
pub mod bundle_order;
pub mod explain;
pub mod filter;
pub mod health;
pub mod inbox;
pub mod item;
pub mod items;
pub mod job_feedback;
pub mod landing;
pub mod merge;
pub mod plan;
pub mod provided;
pub mod queue;
pub mod report;
pub mod schedule;
pub mod semaphore;
pub mod unattended;

pub use branch_lock::{BranchLock, BranchLockHolder, BranchLockView};
pub use health::Health;
pub use inbox::{Candidate, DEQUEUED_BY_OPERATOR, InboxMessage, InboxMessageKind, MergedChange};
pub use item::{Item, Job, JobStatus, MergeStatus, Reason, Reporting, WaitsFor};
pub use items::Items;
pub use job_feedback::JobFeedback;
pub use landing::{
    Attempt, FailedPush, FollowingLanding, Landing, LandingEnd, LandingState, LandingTrouble,
    MERGED_ELSEWHERE, MergeRequirements,
};
pub use merge::{MergeOutcome, MergeResult};
pub use plan::{ChangesLimit, ObservedBuild, QueueAction, QueuePlan, QueueSnapshot, plan};
pub use provided::{ProvidedArtifacts, ProvidingJob, ProvidingJobState};
pub use queue::{Entry, Head, HeadError, Slot, SlotStatus, StoredHead};
pub use report::{Report, ReportAction, ReportState};
pub use schedule::{Schedule, TimerTick};
pub use semaphore::{Semaphore, SemaphoreKey, SemaphoreWaiter};
