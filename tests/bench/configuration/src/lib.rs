//! What configuration costs: tenants of any size, made up, and the time and room that each step
//! takes with them.
//!
//! [`tenant`] writes the files, [`measure`] times the steps, [`openstack`] does the same with a
//! real configuration where it is at hand. It is a program of its own, with few dependencies,
//! because its figures mean something only when optimised.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measuring harness may panic")]

pub mod measure;
pub mod openstack;
pub mod report;
pub mod tenant;
