//! The packs in object storage that make up a repository.

use serde::{Deserialize, Serialize};
use sluice_model::ProjectName;
use sluice_model::name::escape;
use sluice_runtime::record::Key;

/// The packs of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RepositoryPacks {
    /// The object keys of the packs, oldest first. Each object includes the pack's index.
    pub packs: Vec<String>,
    /// The fetched commits, newest last. The next fetch only transfers commits that are not
    /// reachable from them.
    pub tips: Vec<sluice_model::git::Oid>,
}

/// Returns the key of a repository's packs.
pub fn key(project: &ProjectName) -> Key {
    Key::new(format!("repository#{}", escape(project.as_str())), "head")
}
