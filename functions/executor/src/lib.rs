//! The executor: claims builds, runs their playbooks over SSH, confined, and reports how they ended
//! (Z7).
//!
//! What executes is behind [`Runner`]; [`Ansible`] is its implementation. The flow of one build, in
//! reading order: [`job`] (what is asked) → [`include`] (files of variables) → [`phases`] (pre,
//! run, post and the result) → [`jobdir`], [`workspace`], [`vars`], [`inventory`] (what playbooks
//! find around them) → [`playbook`] (one `ansible-playbook`) in a [`sandbox`], its output through
//! [`joblog`] to whoever reads it [`live`].
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod archive;
pub mod beneath;
pub mod claim;
mod clock;
pub mod content;
pub mod disk;
pub mod freeze;
pub mod gateway;
pub mod include;
pub mod inherited;
pub mod inventory;
pub mod job;
pub mod jobdir;
pub mod joblog;
mod kept;
mod lines;
pub mod live;
pub mod lookup;
pub mod phases;
pub mod playbook;
pub mod prepare;
pub mod process;
pub mod receiver;
pub mod redact;
pub mod returned;
pub mod roles;
pub mod sandbox;
pub mod secrets;
pub mod service;
pub mod settings;
pub mod sources;
pub mod ssh;
pub mod steering;
pub mod vars;
pub mod verdict;
pub mod workspace;

pub use content::Content;
pub use job::{
    Inherited, Job, Observer, OpenedSecrets, Packs, Runner, SourceError, Sources, StopSignal,
    Stopper, Wanted,
};
pub use live::{LiveLog, LiveLogs};
pub use phases::Ansible;
pub use settings::{Network, Settings, SetupError};
