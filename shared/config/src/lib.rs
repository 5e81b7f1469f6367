//! The configuration language: YAML with marks, stanzas, layouts and frozen jobs.
//!
//! The way of a configuration: [`tenant::parse_main`] reads which repositories count,
//! [`fragment::parse`] each of their files, [`Layout::build`] puts the fragments together, and
//! [`Layout::freeze`] decides the jobs of one change. Everything here is a pure function of its
//! arguments: no I/O, clock or randomness.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod connection;
pub mod error;
pub mod fragment;
pub mod job;
pub mod layout;
pub mod objects;
mod pack;
pub mod pattern;
mod pattern_translation;
pub mod pipeline;
pub mod tasks;
pub mod tenant;
pub mod yaml;

pub use connection::{Connection, Connections, Driver};
pub use error::{
    ConfigError, Diagnostic, DiagnosticKind, ReviewComment, Severity, plain, plain_json,
};
pub use fragment::{Fragment, Source, SourceFile, Trust, config_paths, text_of};
pub use job::{Coverage, Forecast, FreezeInput, JobTrace};
pub use layout::{
    BranchConfig, LabelConfig, Layout, LayoutSources, ProviderConfig, QueueSettings, Scope,
};
pub use pattern::{Pattern, PatternError};
pub use pipeline::Pipeline;
pub use tenant::{MainConfig, TenantConfig, TenantProject, parse_main};
