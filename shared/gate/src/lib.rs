//! The gate's decisions: which change enters, what it is tested on, when it lands, and what is told
//! to whom.
//!
//! [`plan`](plan::plan) decides for one queue cell ([`queue::Head`] with its [`item::Item`]s);
//! [`filter`] says which events and changes a pipeline takes; [`report`] writes what is told.
//! Everything is pure: a snapshot goes in, a plan with its reasons comes out.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod account;
pub mod arrival;
pub mod autohold;
pub mod chain;
pub mod explain;
pub mod filter;
pub mod health;
pub mod item;
pub mod items;
pub mod landing;
pub mod merge;
pub mod plan;
pub mod provided;
pub mod queue;
pub mod report;
pub mod schedule;
pub mod semaphore;
pub mod told;
pub mod turn;

pub use arrival::{Arrival, ArrivalKind, Candidate, InBranch, TAKEN_OUT};
pub use health::Health;
pub use item::{Ask, Item, Job, JobStatus, Reporting, WaitsFor};
pub use items::Items;
pub use landing::{Asks, Behind, Landing, LandingEnd, LandingState, MERGED_ELSEWHERE, Trouble};
pub use merge::{MergeOutcome, MergeResult};
pub use plan::{ChangesLimit, Plan, RunSeen, Snapshot, plan};
pub use provided::{Offer, OfferState, Provided};
pub use queue::{Head, NotWhole, Slot, Standing, StoredHead};
pub use report::{Action, Report, ReportState};
pub use schedule::{Fired, Schedule};
pub use semaphore::{Semaphore, SemaphoreKey, Waiter};
pub use told::Told;
pub use turn::{Turn, TurnHolder, TurnSeen};
