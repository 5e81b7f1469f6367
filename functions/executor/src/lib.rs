//! The executor: claims builds, runs their playbooks in a sandbox over SSH, and reports the
//! results (Z7).
//!
//! [`Runner`] runs a job; [`Ansible`] is its implementation. One build passes through these
//! modules, in this order:
//!
//! 1. [`claim`]: takes the build, so that no other executor runs it.
//! 2. [`job`]: the inputs of one attempt.
//! 3. [`include`], [`external_host`]: variable files of the job; the host of a deployment job.
//! 4. [`jobdir`], [`workspace`], [`vars`], [`inventory`]: directories, repositories and variables;
//!    [`playbook_checkouts`] and [`galaxy`]: playbooks with their roles.
//! 5. [`phases`]: pre-run, run and post-run, and the result; [`held_nodes`] lets people log in on
//!    nodes that are held afterwards.
//! 6. [`secrets`], [`id_token`], [`uploads`]: secrets of a playbook, tokens and upload credentials.
//! 7. [`playbook`]: one `ansible-playbook` process in a [`sandbox`]; the [`broker`] is the only way
//!    of an untrusted one to the network, and [`playbook_failure`] says what failed in it.
//! 8. [`joblog`], [`live`] and [`stored_log`]: the log, readers that follow it, and its copy.
//! 9. [`archive`]: uploads the logs.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod archive;
pub mod broker;
pub mod build_result;
pub mod claim;
pub mod code_trust;
mod comment_lines;
pub mod confined_files;
pub mod content;
pub mod disk;
pub mod external_host;
pub mod frozen_vars;
pub mod galaxy;
pub mod galaxy_server;
pub mod held_nodes;
mod home_files;
pub mod id_token;
pub mod include;
pub mod inventory;
pub mod job;
pub mod jobdir;
pub mod joblog;
mod left_links;
pub mod live;
mod object_cache;
mod pack_cache;
pub mod parent_data;
pub mod phases;
pub mod playbook;
pub mod playbook_checkouts;
pub mod playbook_failure;
pub mod playbook_files;
pub mod process;
pub mod process_watch;
pub mod receiver;
pub mod redact;
pub mod restricted_vars;
pub mod returned_data;
pub mod roles;
pub mod sandbox;
pub mod secrets;
pub mod service;
pub mod settings;
pub mod sources;
pub mod ssh;
pub mod stored_log;
mod time_limits;
pub mod upload_site;
pub mod uploads;
pub mod vars;
pub mod workspace;

pub use content::AnsibleContent;
pub use galaxy_server::{GalaxyServer, GalaxySettings, GalaxyToken};
pub use job::{
    AttemptScope, BuildSshKey, HolderAccess, HolderLookup, InheritedData, JobAttempt, Lease,
    Observer, OpenedSecrets, PackRequest, Packs, RepositorySources, Runner, SourceError,
    StopSignal, Stopper,
};
pub use live::{LiveLog, LiveLogRegistry};
pub use phases::Ansible;
pub use settings::{AnsibleSettings, NetworkSettings, SandboxPaths, SetupError};
pub use upload_site::UploadSite;
