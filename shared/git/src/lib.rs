//! Git for functions and executors: repositories made of packs, fetches, merges, reading
//! configuration, workspaces.
//!
//! A project's repository is a list of packs in object storage, named by [`keys`]. Whoever works on
//! it opens a [`Repository`] in a cache directory and adds the packs it has not got. What a
//! [`Repository::fetch`] or a [`Repository::merge`] makes arrives as a [`NewPack`], which the
//! caller uploads, with its index as one object, and appends to the list. One rule keeps that
//! simple: **a list of packs is closed** — each pack, with those before it in the list, holds
//! everything its commits reach. So an object that is there means that all behind it is there too.
//!
//! Everything here is synchronous and runs in the calling thread; a [`Repository`] may move between
//! threads but is used by one at a time. Only [`workspace`] starts `git` processes.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod command;
mod connection;
mod error;
mod fetch;
mod http;
mod joined;
mod kept;
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

pub use error::{FetchError, MergeError, PackError, PlantError, ReadError};
pub use fetch::{Credential, FetchLimits, FetchRequest, Fetched, RemoteRef, Want};
pub use kept::{BadKept, Kept};
pub use lines::{LineMap, Place};
pub use merge::{Merge, MergeOutcome, Merged};
pub use pack::{BadPackName, NewPack, PackName};
pub use plant::{NewFile, Planted, is_own_directory, plant};
pub use read::{CommitFacts, FileKind, Found, ReadLimits, TreeFile};
pub use repository::Repository;
