//! Cloud drivers, which launch machines, and the check of a booted node (L2.6, Z1.8).
//!
//! A [`CloudDriver`] lists, launches and terminates machines; [`Ec2Driver`] is one, and may have
//! the credentials of an [`AssumedRole`]. [`ssh::check`] checks a booted machine.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod driver;
pub mod ec2;
mod query;
pub mod ssh;
pub mod sts;
pub mod user_data;

pub use driver::{
    CloudDriver, CloudError, CloudImageFilter, ImageFact, Instance, LaunchSettings, LaunchSpec,
    TagFilter, tags,
};
pub use ec2::{Ec2Driver, Ec2Settings};
pub use ssh::{LoginKey, SshEndpoint};
pub use sts::{AssumedRole, RoleError, RoleToAssume};
