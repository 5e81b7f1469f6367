//! From definitions to the jobs of one change: collecting variants, applying them, freezing the
//! graph.

mod apply;
mod blame;
mod blank;
mod circles;
mod collect;
mod foresee;
pub mod freeze;
mod kinds;
pub(crate) mod limits;
mod listed;
mod missing;
mod parameters;
mod playbooks;
mod run_time;
mod skipped;
pub mod trace;
pub(crate) mod weight;

pub use foresee::{Foreseen, Known};
pub use freeze::FreezeInput;
pub use missing::{NamedPlaybook, not_beside};
pub use trace::{JobTrace, Step, StepKind};
