//! Forges: the operations that Sluice needs ([`Forge`]), the GitHub driver ([`GitHub`]), and
//! webhooks ([`webhook`], without I/O). The facts of changes are in `sluice_model::change`; a
//! webhook is only a hint that something may have changed.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod depends_on;
mod error;
mod forge;
mod github;
mod marker;
mod secret;
pub mod webhook;

pub use depends_on::{DEPENDENCIES_MAX, depends_on, names_too_many, urls_of_no_change};
pub use error::{ErrorClass, ForgeError};
pub use forge::{
    Branch, CheckReport, CheckState, CommitDetails, Conclusion, Forge, LineComment, MergeMessage,
    Protection, ReviewDecision, StatusReport, StatusState, VoteReport, WebhookDelivery,
};
pub use github::{ConnectError, GitHub, GitHubOptions};
pub use marker::Marker;
pub use secret::ForgeSecret;
