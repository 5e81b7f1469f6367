//! Git for functions and executors: repositories made of packs, fetches, merges, reading
//! configuration, workspaces.
//!
//! A project's repository is a list of packs in object storage, named by [`keys`]. A caller opens a
//! [`Repository`] in a cache directory and adds the missing packs. [`Repository::fetch`] and
//! [`Repository::merge`] create a [`NewPack`], which the caller uploads with its index as one
//! object and appends to the list. One rule keeps that simple: **a list of packs is closed**: each
//! pack, together with those before it in the list, contains everything its commits reach. So when
//! an object is present, everything behind it is present too.
//! All functions are synchronous and run in the calling thread. A [`Repository`] can move between
//! threads, but only one may use it at a time. Only [`workspace`] starts `git` processes.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod command;
mod commit_delta;
mod connection;
mod error;
mod fetch;
mod http;
mod indexed_pack;
pub mod keys;
mod lines;
mod merge;
mod moved;
mod pack;
mod plant;
mod read;
mod replay;
mod repository;
pub mod workspace;

pub use commit_delta::{BadCommitDelta, CommitDelta};
pub use error::{FetchError, GitPackError, GitReadError, MergeError, PlantError};
pub use fetch::{Credential, FetchLimits, FetchRequest, Fetched, RemoteRef, Want};
pub use lines::{LineMap, LinePosition};
pub use merge::{GitMergeOutcome, Merge, MergedCommit};
pub use pack::{BadPackName, NewPack, PackName};
pub use plant::{NewFile, Planted, is_spelling_of_dot_git, plant};
pub use read::{CommitFacts, FileKind, ReadLimits, TreeEntry, TreeFile};
pub use repository::Repository;
