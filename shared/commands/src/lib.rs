//! Operators' commands to a running system, as the command line and the API store them: to
//! enqueue, dequeue and promote changes, to hold the nodes of failed builds, to pause a tenant's
//! events, to change the state of nodes and to delete node requests (Z9.1).
//!
//! A command is a message that the function which owns the state consumes. Storing one decides
//! nothing and waits for nothing. Each is audited in its own transaction
//! ([`sluice_records::audit`]); whether its author may give it is for the caller to decide.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod author;
mod authorized_key;
mod autohold;
mod enqueue;
mod error;
mod pool;
mod queue;
mod selectors;
mod tenant_state;

pub use author::{CommandAuthor, CommandSource};
pub use autohold::{AutoholdSettings, create_autohold, delete_autohold};
pub use enqueue::{EnqueueTarget, RefUpdate, enqueue_event, image_build_event, submit_event};
pub use error::StoreCommandError;
pub use pool::{NodeChange, change_node, delete_node_request};
pub use queue::{
    DequeueSelection, Promotion, QueuedChange, dequeue, inbox_message, promote, select_promotion,
    select_queued,
};
pub use selectors::{ChangeNumber, whole_ref};
pub use tenant_state::{Switch, TenantStateChange, change_tenant_state};
