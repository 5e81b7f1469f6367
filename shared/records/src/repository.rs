//! Which packs in object storage make up a repository.

use serde::{Deserialize, Serialize};
use sluice_model::ProjectName;
use sluice_model::name::escape;
use sluice_runtime::record::Key;

/// A repository's packs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Repository {
    /// Object keys of its packs, oldest first, each with its index; where a key ends in `.pack`, as
    /// those of earlier versions do, the index lies beside it under `.idx`.
    pub packs: Vec<String>,
    /// Commits that were fetched, newest last, so that the next fetch brings only what is new.
    #[serde(default)]
    pub tips: Vec<sluice_model::git::Oid>,
}

/// Returns the key of a repository.
pub fn key(project: &ProjectName) -> Key {
    Key::new(format!("repository#{}", escape(project.as_str())), "head")
}
