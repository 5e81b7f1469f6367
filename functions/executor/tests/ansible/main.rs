//! Real playbooks, run by the real `ansible-playbook` over SSH to real nodes on loopback.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test may panic, and its helpers explain themselves"
)]

mod collections;
mod confinement;
mod content;
mod deployment;
mod escapes;
mod exposure;
mod galaxy;
mod inventory;
mod links;
mod logs;
mod network;
mod results;
mod rights;
mod secrets;
mod streams;
mod support;
mod uploads;
mod variables;
mod zuul_jobs;
