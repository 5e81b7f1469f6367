//! Measures the cost of configuration: the time and memory of each step for generated tenants of
//! any size.
//!
//! [`tenant`] generates the files, [`measure`] times the steps, and [`openstack`] does the same
//! with a real configuration if it is available. It is a separate program with few dependencies,
//! because its figures only mean something in an optimised build.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measuring harness may panic")]

pub mod measure;
pub mod openstack;
pub mod report;
pub mod tenant;
