//! From definitions to the jobs of one change: collect the definitions that apply, merge them, and
//! freeze the job graph.

mod apply;
mod collect;
mod defaults;
mod dependency_cycles;
mod errors;
mod foresee;
pub mod freeze;
mod job_lists;
mod kinds;
pub(crate) mod limits;
mod missing_playbooks;
mod parameters;
mod playbooks;
mod run_time;
mod skip;
pub mod trace;
pub(crate) mod weight;

pub use foresee::{Coverage, Forecast};
pub use freeze::FreezeInput;
pub use missing_playbooks::{NamedPlaybook, missing_included_playbooks};
pub use trace::{JobTrace, StepKind, TraceStep};
