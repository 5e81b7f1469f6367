//! From definitions to the jobs of one change: collecting variants, applying them, freezing the graph.

mod apply;
mod collect;
pub mod freeze;

pub use freeze::{FreezeInput, Frozen};
