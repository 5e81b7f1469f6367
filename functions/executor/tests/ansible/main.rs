//! Real playbooks, run by the real `ansible-playbook` over SSH to real nodes on loopback.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and its helpers explain themselves"
)]

mod collections;
mod confinement;
mod content;
mod logs;
mod results;
mod rights;
mod secrets;
mod support;
mod variables;
mod zuul_jobs;
