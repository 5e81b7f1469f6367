//! What a tested commit adds to the commit it was put on, kept so that a branch can be moved to
//! exactly that commit.
//!
//! The objects stand there as a pack holds them, each whole: what several commits in a row add
//! becomes one pack by putting it one behind the other, and nothing is unpacked for that.

use crate::error::ReadError;
use crate::pack;
use crate::repository::Repository;
use gix::ObjectId;
use gix::objs::Kind;
use gix::traverse::commit::topo;
use sluice_model::git::Oid;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bytes of objects that are kept of one commit; a change that adds more is merged by its forge.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Commits of one change that are kept.
const COMMITS_MAX: usize = 1_000;
/// Directories deeper than this are not entered: no file system would hold them.
const DEPTH_MAX: usize = 256;
/// What the bytes begin with.
const MAGIC: &[u8] = b"sluice-kept-1\n";
/// The length of an object's id.
const ID_BYTES: usize = 20;

/// Objects that a repository needs in order to have a commit, where it has another one already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// Each as a pack holds it.
    entries: BTreeMap<ObjectId, Vec<u8>>,
    /// Their bytes together.
    size: usize,
}

/// Bytes that are not what was kept of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "what was kept of a tested commit cannot be read: {0}; its change is merged by its forge instead"
)]
pub struct BadKept(&'static str);

impl Kept {
    /// Returns the bytes to store.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for (id, entry) in &self.entries {
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(&(entry.len() as u64).to_be_bytes());
            out.extend_from_slice(entry);
        }
        out
    }

    /// Reads what [`Kept::bytes`] returned. What the objects are nobody looks at here: who is sent
    /// them does.
    ///
    /// # Errors
    /// When the bytes are of another form, or end too soon.
    pub fn read(bytes: &[u8]) -> Result<Self, BadKept> {
        let short = BadKept("it ends within an object");
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(BadKept("it is of another form"))?;
        let mut kept = Self::default();
        // Ends: each round takes the head of an object at least.
        while !rest.is_empty() {
            let (id, after) = rest.split_at_checked(ID_BYTES).ok_or(short)?;
            let (length, after) = after.split_first_chunk::<8>().ok_or(short)?;
            let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| short)?;
            let (entry, after) = after.split_at_checked(length).ok_or(short)?;
            kept.put(ObjectId::from_bytes_or_panic(id), entry.to_vec());
            rest = after;
        }
        Ok(kept)
    }

    /// Returns the same with what another commit adds.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        for (id, entry) in other.entries {
            self.put(id, entry);
        }
        self
    }

    /// Returns how many bytes its objects have.
    pub fn size_bytes(&self) -> usize {
        self.size
    }

    /// Returns one pack of all the objects, as a push sends it.
    ///
    /// # Errors
    /// When there are more objects than a pack can name.
    pub fn pack(&self) -> Result<Vec<u8>, BadKept> {
        pack::of_entries(self.entries.values())
            .map_err(|_| BadKept("its objects do not fit into a pack"))
    }

    fn put(&mut self, id: ObjectId, entry: Vec<u8>) {
        self.size += entry.len();
        if let Some(before) = self.entries.insert(id, entry) {
            self.size -= before.len();
        }
    }
}

impl Repository {
    /// Returns what a repository that has `from` needs in order to have `to`; `None` where `to`
    /// does not follow `from`, so that no branch moves forward by that.
    ///
    /// # Errors
    /// [`ReadError::TooLarge`] for more than is kept.
    pub fn added(&self, from: &Oid, to: &Oid) -> Result<Option<Kept>, ReadError> {
        if !self.is_ancestor(from, to)? {
            return Ok(None);
        }
        let failed = |source: gix::Error| self.engine("list the commits", to, source);
        let (start, end) = (self.find_commit(from)?.id, self.find_commit(to)?.id);
        let walk = topo::Builder::from_iters(&self.git.objects, [end], Some([start]))
            .sorting(topo::Sorting::TopoOrder)
            .build()
            .map_err(failed)?;
        let mut kept = Kept::default();
        for (count, info) in walk.enumerate() {
            if count == COMMITS_MAX {
                return Err(self.too_many(to, "commits", COMMITS_MAX));
            }
            let id = info.map_err(failed)?.id;
            let commit = self.git.find_commit(id).map_err(failed)?;
            let tree = commit.tree_id().map_err(failed)?.detach();
            let mut known = Vec::new();
            // What a parent holds is there, or is kept with it.
            for parent in commit.parent_ids() {
                let parent = self.git.find_commit(parent.detach()).map_err(failed)?;
                known.push(parent.tree_id().map_err(failed)?.detach());
            }
            self.keep_tree(to, tree, &known, 0, &mut kept)?;
            self.keep(to, id, &mut kept)?;
        }
        Ok(Some(kept))
    }

    /// Keeps what of a tree stands at the same place in none of the `known` ones.
    fn keep_tree(
        &self,
        at: &Oid,
        tree: ObjectId,
        known: &[ObjectId],
        depth: usize,
        kept: &mut Kept,
    ) -> Result<(), ReadError> {
        if known.contains(&tree) || kept.entries.contains_key(&tree) {
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Err(self.too_many(at, "nested directories", DEPTH_MAX));
        }
        let mut there = HashSet::new();
        let mut folders: HashMap<Vec<u8>, Vec<ObjectId>> = HashMap::new();
        for tree in known {
            for Entry { name, id, is_folder } in self.entries(at, *tree)? {
                there.insert(id);
                if is_folder {
                    folders.entry(name).or_default().push(id);
                }
            }
        }
        for Entry { name, id, is_folder } in self.entries(at, tree)? {
            if there.contains(&id) {
                continue;
            }
            if is_folder {
                let known = folders.get(&name).map(Vec::as_slice).unwrap_or_default();
                self.keep_tree(at, id, known, depth + 1, kept)?;
            } else {
                self.keep(at, id, kept)?;
            }
        }
        self.keep(at, tree, kept)
    }

    fn keep(&self, at: &Oid, id: ObjectId, kept: &mut Kept) -> Result<(), ReadError> {
        if kept.entries.contains_key(&id) {
            return Ok(());
        }
        let header =
            self.git.find_header(id).map_err(|source| self.engine("read an object", at, source))?;
        if header.size() > KEPT_BYTES_MAX as u64 {
            return Err(self.too_many(at, "bytes to be kept", KEPT_BYTES_MAX));
        }
        let object =
            self.git.find_object(id).map_err(|source| self.engine("read an object", at, source))?;
        let (kind, mut entry): (Kind, Vec<u8>) = (object.kind, Vec::new());
        pack::write_entry(id, kind, &object.data, &mut entry)
            .map_err(|source| self.engine("keep an object", at, source))?;
        kept.put(id, entry);
        if kept.size > KEPT_BYTES_MAX {
            return Err(self.too_many(at, "bytes to be kept", KEPT_BYTES_MAX));
        }
        Ok(())
    }

    /// Returns the entries of a tree, but for other repositories' commits: those are theirs to
    /// have.
    fn entries(&self, at: &Oid, tree: ObjectId) -> Result<Vec<Entry>, ReadError> {
        let found = self
            .git
            .find_tree(tree)
            .map_err(|source| self.engine("read a directory", at, source))?;
        let mut entries = Vec::new();
        for entry in found.iter() {
            let entry = entry.map_err(|source| self.engine("read a directory", at, source))?;
            let mode = entry.mode();
            if !mode.is_commit() {
                let name: &[u8] = entry.filename();
                entries.push(Entry {
                    name: name.to_vec(),
                    id: entry.object_id(),
                    is_folder: mode.is_tree(),
                });
            }
        }
        Ok(entries)
    }

    fn too_many(&self, object: &Oid, what: &str, limit: usize) -> ReadError {
        let (project, object) = (self.project.clone(), object.clone());
        ReadError::TooLarge { project, object, what: what.to_owned(), limit: limit as u64 }
    }
}

/// An entry of a tree.
struct Entry {
    name: Vec<u8>,
    id: ObjectId,
    is_folder: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stored object that is cut, or another one's, is no reason to stop: the forge merges.
    #[test]
    fn bytes_that_are_not_what_was_kept_are_told_from_it() {
        let id = ObjectId::from_bytes_or_panic(&[7; ID_BYTES]);
        let mut kept = Kept::default();
        kept.put(id, b"an object".to_vec());
        let bytes = kept.bytes();
        assert_eq!(Kept::read(&bytes), Ok(kept.clone()));
        assert_eq!(Kept::read(&bytes[..bytes.len() - 1]), Err(BadKept("it ends within an object")));
        assert_eq!(Kept::read(&bytes[..MAGIC.len() + 3]), Err(BadKept("it ends within an object")));
        assert_eq!(Kept::read(b"PACK"), Err(BadKept("it is of another form")));
        assert_eq!(
            kept.clone().with(kept.clone()),
            kept,
            "an object that two commits add is there once"
        );
    }
}
