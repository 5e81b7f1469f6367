//! Provider drivers: where nodes come from, and how a booted node is checked (L2.6, Z1.8).
//!
//! A [`Driver`] lists, launches and terminates machines; [`Ec2Driver`] and [`StaticDriver`] are
//! such. [`ssh::check`] looks at a booted one.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod driver;
pub mod ec2;
pub mod ssh;
pub mod static_hosts;
pub mod user_data;

pub use driver::{
    CloudError, Driver, ImageFact, ImageFilter, Instance, LaunchSpec, Site, TagFilter, tags,
};
pub use ec2::{Ec2Driver, Ec2Settings};
pub use ssh::{LoginKey, Target};
pub use static_hosts::StaticDriver;
