//! The executor as a program: a process of its own, or a task inside the local system.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod command;
mod playbook_options;
mod reachable_address;
mod running;
mod upload_options;

pub use command::{ExecutorArguments, WEB_VARIABLE, run, stop_signal};
pub use playbook_options::PlaybookOptions;
pub use running::{ExecutorOptions, RunningExecutor};
pub use sluice_executor::UploadSite;
pub use sluice_executor::service::admission::AdmissionLimits;
pub use sluice_executor::service::zone::ServedZone;
pub use upload_options::UploadOptions;
