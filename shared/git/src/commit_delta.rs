//! The objects that a tested commit adds to the commit it was put on. They are stored so that a
//! branch can be moved to exactly that commit.
//!
//! Each object is stored whole, in the form of a pack entry. So the deltas of several commits
//! become one pack by concatenation, without unpacking.

use crate::error::GitReadError;
use crate::pack;
use crate::repository::Repository;
use gix::ObjectId;
use gix::objs::Kind;
use gix::traverse::commit::topo;
use sluice_model::git::Oid;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most bytes of one delta. A larger change is merged by its forge.
const DELTA_BYTES_MAX: usize = 16 << 20;
/// The most commits of one delta.
const COMMITS_MAX: usize = 1_000;
/// The deepest directory level that is read; no file system supports more.
const DEPTH_MAX: usize = 256;
/// The first bytes of a stored delta.
const MAGIC: &[u8] = b"sluice-delta-1\n";
/// The length of an object id in bytes.
const ID_BYTES: usize = 20;

/// The objects that a repository needs for one commit when it has another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitDelta {
    /// The objects, each as a pack entry.
    entries: BTreeMap<ObjectId, Vec<u8>>,
    /// The total size of the entries in bytes.
    size: usize,
}

/// The stored bytes are not a commit delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stored objects of a tested commit cannot be read: {0}; the forge merges the change instead"
)]
pub struct BadCommitDelta(&'static str);

impl CommitDelta {
    /// Encodes the delta for storage; [`Self::decode`] reads it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for (id, entry) in &self.entries {
            out.extend_from_slice(id.as_bytes());
            out.extend_from_slice(&(entry.len() as u64).to_be_bytes());
            out.extend_from_slice(entry);
        }
        out
    }

    /// Decodes the output of [`Self::encode`]. An error if the bytes have another format or end
    /// within an object. Bytes that end between two objects are no error. Does not check the
    /// objects; the forge that receives them does.
    ///
    /// # Errors
    /// When the bytes have another format or are truncated.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadCommitDelta> {
        let short = BadCommitDelta("it ends within an object");
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(BadCommitDelta("it has another format"))?;
        let mut delta = Self::default();
        // Terminates: each round consumes at least the header of an object.
        while !rest.is_empty() {
            let (id, after) = rest.split_at_checked(ID_BYTES).ok_or(short)?;
            let (length, after) = after.split_first_chunk::<8>().ok_or(short)?;
            let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| short)?;
            let (entry, after) = after.split_at_checked(length).ok_or(short)?;
            delta.put(ObjectId::from_bytes_or_panic(id), entry.to_vec());
            rest = after;
        }
        Ok(delta)
    }

    /// Returns this delta combined with that of another commit; an object of both is there once. No
    /// limit of size is checked.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        for (id, entry) in other.entries {
            self.put(id, entry);
        }
        self
    }

    /// Returns the total size of the objects in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size
    }

    /// Returns one pack of all objects, as a push sends it, also if there are none.
    ///
    /// # Errors
    /// When there are more objects than a pack can hold.
    pub fn pack(&self) -> Result<Vec<u8>, BadCommitDelta> {
        pack::of_entries(self.entries.values())
            .map_err(|_| BadCommitDelta("its objects do not fit into a pack"))
    }

    /// Adds an encoded object, in place of an earlier one with the same id, and adapts the size.
    fn put(&mut self, id: ObjectId, entry: Vec<u8>) {
        self.size += entry.len();
        if let Some(before) = self.entries.insert(id, entry) {
            self.size -= before.len();
        }
    }
}

impl Repository {
    /// Returns the objects that a repository with `from` needs for `to`; some may be there already.
    /// Empty if both are the same commit; `None` when `to` is not a descendant of `from`, so that a
    /// branch cannot be fast-forwarded. Objects of submodules are not included. An error if a
    /// commit or object is not in the repository, or for more than 1,000 commits, 16 MB (in all, or
    /// in one unpacked object) or 256 nested directories.
    ///
    /// # Errors
    /// [`GitReadError::TooLarge`] when the delta exceeds the limits.
    pub fn commit_delta(&self, from: &Oid, to: &Oid) -> Result<Option<CommitDelta>, GitReadError> {
        if !self.is_ancestor(from, to)? {
            return Ok(None);
        }
        let failed = |source: gix::Error| self.engine("list the commits", to, source);
        let (start, end) = (self.find_commit(from)?.id, self.find_commit(to)?.id);
        let walk = topo::Builder::from_iters(&self.git.objects, [end], Some([start]))
            .sorting(topo::Sorting::TopoOrder)
            .build()
            .map_err(failed)?;
        let mut delta = CommitDelta::default();
        for (count, info) in walk.enumerate() {
            if count == COMMITS_MAX {
                return Err(self.too_many(to, "commits", COMMITS_MAX));
            }
            let id = info.map_err(failed)?.id;
            let commit = self.git.find_commit(id).map_err(failed)?;
            let tree = commit.tree_id().map_err(failed)?.detach();
            let mut known = Vec::new();
            // The objects of a parent are in the repository or in this delta.
            for parent in commit.parent_ids() {
                let parent = self.git.find_commit(parent.detach()).map_err(failed)?;
                known.push(parent.tree_id().map_err(failed)?.detach());
            }
            self.add_tree(to, tree, &known, 0, &mut delta)?;
            self.add_object(to, id, &mut delta)?;
        }
        Ok(Some(delta))
    }

    /// Adds to `delta` a tree and everything below it, without submodules. Leaves out what is in
    /// the same directory of one of the trees `known`, which are those of the commit's parents at
    /// the same path, and what `delta` has already. `at` names the commit in errors; `depth` is the
    /// number of directories above the tree. An error if the delta becomes too large or the
    /// directories nest too deep.
    fn add_tree(
        &self,
        at: &Oid,
        tree: ObjectId,
        known: &[ObjectId],
        depth: usize,
        delta: &mut CommitDelta,
    ) -> Result<(), GitReadError> {
        if known.contains(&tree) || delta.entries.contains_key(&tree) {
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
                self.add_tree(at, id, known, depth + 1, delta)?;
            } else {
                self.add_object(at, id, delta)?;
            }
        }
        self.add_object(at, tree, delta)
    }

    /// Adds one object to `delta`, unless it is there already. `at` names the commit in errors. An
    /// error if the object or the delta becomes too large.
    fn add_object(
        &self,
        at: &Oid,
        id: ObjectId,
        delta: &mut CommitDelta,
    ) -> Result<(), GitReadError> {
        if delta.entries.contains_key(&id) {
            return Ok(());
        }
        let header =
            self.git.find_header(id).map_err(|source| self.engine("read an object", at, source))?;
        if header.size() > DELTA_BYTES_MAX as u64 {
            return Err(self.too_many(at, "bytes in a commit delta", DELTA_BYTES_MAX));
        }
        let object =
            self.git.find_object(id).map_err(|source| self.engine("read an object", at, source))?;
        let (kind, mut entry): (Kind, Vec<u8>) = (object.kind, Vec::new());
        pack::write_entry(id, kind, &object.data, &mut entry)
            .map_err(|source| self.engine("keep an object", at, source))?;
        delta.put(id, entry);
        if delta.size > DELTA_BYTES_MAX {
            return Err(self.too_many(at, "bytes in a commit delta", DELTA_BYTES_MAX));
        }
        Ok(())
    }

    /// Returns the entries of one directory, in git's order, without submodules, whose commits
    /// belong to other repositories. `at` names the commit in errors.
    fn entries(&self, at: &Oid, tree: ObjectId) -> Result<Vec<Entry>, GitReadError> {
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

    /// Returns the error for a delta that exceeds a limit.
    fn too_many(&self, object: &Oid, what: &str, limit: usize) -> GitReadError {
        let (project, object) = (self.project.clone(), object.clone());
        GitReadError::TooLarge { project, object, what: what.to_owned(), limit: limit as u64 }
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

    /// A truncated or foreign object is only a reason for the forge to merge.
    #[test]
    fn malformed_bytes_are_refused() {
        let id = ObjectId::from_bytes_or_panic(&[7; ID_BYTES]);
        let mut delta = CommitDelta::default();
        delta.put(id, b"an object".to_vec());
        let bytes = delta.encode();
        assert_eq!(CommitDelta::decode(&bytes), Ok(delta.clone()));
        assert_eq!(
            CommitDelta::decode(&bytes[..bytes.len() - 1]),
            Err(BadCommitDelta("it ends within an object"))
        );
        assert_eq!(
            CommitDelta::decode(&bytes[..MAGIC.len() + 3]),
            Err(BadCommitDelta("it ends within an object"))
        );
        assert_eq!(CommitDelta::decode(b"PACK"), Err(BadCommitDelta("it has another format")));
        assert_eq!(
            delta.clone().with(delta.clone()),
            delta,
            "an object that two commits add is there once"
        );
    }
}
