//! Reads repositories: commits and their ancestry, files and directories at a commit, and
//! differences between commits.

use crate::error::{Cause, GitReadError};
use crate::pack::text;
use crate::repository::Repository;
use gix::ObjectId;
use gix::objs::Kind;
use gix::objs::tree::{EntryKind, EntryMode};
use sluice_model::git::{Commit, Oid};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// The data of a commit object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFacts {
    /// The commit's id and tree.
    pub commit: Commit,
    /// Its parents, in order.
    pub parents: Vec<Oid>,
    /// When it was committed, in seconds since 1970.
    pub committed_at_seconds: i64,
    /// The commit message.
    pub message: String,
}

/// The type of a file in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// An executable file.
    Executable,
    /// A symbolic link; its content is the target.
    Symlink,
    /// A submodule: a commit of another repository.
    Submodule,
}

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// The path from the repository's root, with `/` as separator.
    pub path: String,
    /// The type of the file.
    pub kind: FileKind,
    /// The object with the content; for a submodule, the commit.
    pub id: Oid,
}

/// A tree entry that [`Repository::read_files`] asks its filter about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeEntry {
    /// A directory; the filter returns whether to enter it.
    Directory,
    /// A file; the filter returns whether to read it.
    File,
}

/// The limits of a tree walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// The most files that are listed or read.
    pub files_max: usize,
    /// The most bytes of one file.
    pub file_bytes_max: usize,
    /// The most bytes of all read files together.
    pub total_bytes_max: usize,
}

impl Default for ReadLimits {
    /// Returns 10,000 files of 4 MiB each and 64 MiB together, enough for any configuration.
    fn default() -> Self {
        Self { files_max: 10_000, file_bytes_max: 4 << 20, total_bytes_max: 64 << 20 }
    }
}

/// A visitor of tree entries; for a directory, it returns whether to enter it.
type Visit<'a> = dyn FnMut(TreeEntry, &str, EntryMode, ObjectId) -> Result<bool, GitReadError> + 'a;

/// The assumed clock error: a commit may be dated this much earlier than its parents.
const SKEW_SECONDS: i64 = 30 * 24 * 3_600;

/// The deepest directory level that is read; no file system supports more.
const DEPTH_MAX: usize = 256;

impl Repository {
    /// Reads a commit: its tree, its parents, its committer time and its message. An annotated tag
    /// is followed to its commit. An error if it is missing or leads to no commit.
    pub fn commit(&self, commit: &Oid) -> Result<CommitFacts, GitReadError> {
        let found = self.find_commit(commit)?;
        let failed = |source: gix::Error| self.engine("read the commit", commit, source);
        let decoded = found.decode().map_err(failed)?;
        let time = decoded
            .time()
            .map_err(|source| self.engine("read the commit's time", commit, source))?;
        Ok(CommitFacts {
            commit: Commit { id: oid(&found.id), tree: oid(&decoded.tree()) },
            parents: decoded.parents().map(|id| oid(&id)).collect(),
            committed_at_seconds: time.seconds,
            message: text(decoded.message),
        })
    }

    /// Returns the best common ancestor of two commits, one of them if there are several; `None`
    /// for unrelated histories. A commit that is not in the repository is an error.
    pub fn merge_base(&self, one: &Oid, other: &Oid) -> Result<Option<Oid>, GitReadError> {
        let (a, b) = (self.find_commit(one)?.id, self.find_commit(other)?.id);
        let base = self
            .git
            .merge_base(a, b)
            .map_err(|source| self.engine("find the merge base", one, source))?;
        Ok(base.map(|id| oid(&id)))
    }

    /// Returns whether `ancestor` equals `of` or is reachable from it. A commit that is not in the
    /// repository is an error.
    pub fn is_ancestor(&self, ancestor: &Oid, of: &Oid) -> Result<bool, GitReadError> {
        let ancestor = self.find_commit(ancestor)?.id;
        Ok(self.merge_base(&oid(&ancestor), of)? == Some(oid(&ancestor)))
    }

    /// Returns the tips that are `commit` or descend from it, as they are in `tips`. Commits dated
    /// more than 30 days before it are not followed, so that the cost depends on what was committed
    /// since; a tip may be missing if clocks were wrong by more. After `commits_max` commits, fails
    /// with [`GitReadError::TooLarge`]. An error too if `commit` or a tip is not in the repository
    /// or leads to no commit.
    pub fn containing(
        &self,
        commit: &Oid,
        tips: &[Oid],
        commits_max: usize,
    ) -> Result<BTreeSet<Oid>, GitReadError> {
        let wanted = self.commit(commit)?;
        let oldest_seconds = wanted.committed_at_seconds.saturating_sub(SKEW_SECONDS);
        let wanted = self.id(&wanted.commit.id)?;
        // Maps each commit between the tips and the wanted commit to its children.
        let mut children: BTreeMap<ObjectId, Vec<ObjectId>> = BTreeMap::new();
        let mut seen: BTreeSet<ObjectId> = BTreeSet::from([wanted]);
        let mut ahead = Vec::with_capacity(tips.len());
        for tip in tips {
            ahead.push(self.find_commit(tip)?.id);
        }
        // Terminates: each commit is visited once.
        while let Some(id) = ahead.pop() {
            if !seen.insert(id) {
                continue;
            }
            if seen.len() > commits_max {
                return Err(self.too_large(commit, "commits", commits_max));
            }
            let facts = self.commit(&oid(&id))?;
            if facts.committed_at_seconds < oldest_seconds {
                continue;
            }
            for parent in &facts.parents {
                let parent = self.id(parent)?;
                children.entry(parent).or_default().push(id);
                ahead.push(parent);
            }
        }
        let mut found: BTreeSet<ObjectId> = BTreeSet::from([wanted]);
        let mut ahead = vec![wanted];
        while let Some(id) = ahead.pop() {
            let more =
                children.get(&id).into_iter().flatten().filter(|child| found.insert(**child));
            ahead.extend(more.copied());
        }
        let mut containing = BTreeSet::new();
        for tip in tips {
            if found.contains(&self.find_commit(tip)?.id) {
                containing.insert(tip.clone());
            }
        }
        Ok(containing)
    }

    /// Reads the file at `path` at a commit or tree; `None` when there is no regular file at
    /// exactly that path. Links are not followed. Of `limits` only `file_bytes_max` applies; a
    /// larger file is an error, and so is a commit that is not in the repository.
    pub fn read_file(
        &self,
        at: &Oid,
        path: &str,
        limits: ReadLimits,
    ) -> Result<Option<Vec<u8>>, GitReadError> {
        let tree = self.find_tree(at)?;
        let entry = tree
            .lookup_entry(path.split('/').map(str::as_bytes))
            .map_err(|source| self.engine("look up a path", at, source))?;
        match entry {
            Some(entry)
                if matches!(entry.mode().kind(), EntryKind::Blob | EntryKind::BlobExecutable) =>
            {
                self.blob(at, entry.object_id(), path, limits.file_bytes_max).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns whether there is a file at `path` at a commit or tree; `false` for a directory or
    /// submodule. A link anywhere on the path counts as a file, because only a checkout shows its
    /// target.
    pub fn has_file(&self, at: &Oid, path: &str) -> Result<bool, GitReadError> {
        let tree = self.find_tree(at)?;
        let parts: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
        for depth in 1..=parts.len() {
            let entry = tree
                .lookup_entry(parts.iter().take(depth).copied())
                .map_err(|source| self.engine("look up a path", at, source))?;
            match entry.map(|entry| entry.mode().kind()) {
                Some(EntryKind::Link) => return Ok(true),
                Some(EntryKind::Tree) => {}
                Some(EntryKind::Blob | EntryKind::BlobExecutable) => {
                    return Ok(depth == parts.len());
                }
                Some(EntryKind::Commit) | None => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Lists the files at a commit or tree whose path equals one of `prefixes` or is below one; all
    /// files when `prefixes` is empty. Slashes at the end of a prefix are ignored, and an empty
    /// prefix matches all files. Links and submodules are included. Sorted as git does. More than
    /// `limits.files_max` are an error; the other limits do not apply.
    pub fn list_files(
        &self,
        at: &Oid,
        prefixes: &[&str],
        limits: ReadLimits,
    ) -> Result<Vec<TreeFile>, GitReadError> {
        let below = |path: &str, prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let prefixes: Vec<&str> =
            prefixes.iter().map(|prefix| prefix.trim_end_matches('/')).collect();
        let listed = |path: &str| {
            prefixes.is_empty()
                || prefixes.iter().any(|prefix| prefix.is_empty() || below(path, prefix))
        };
        let mut files = Vec::new();
        self.walk(at, &mut |found, path, mode, id| {
            match found {
                TreeEntry::Directory => {
                    return Ok(listed(path) || prefixes.iter().any(|prefix| below(prefix, path)));
                }
                TreeEntry::File if listed(path) => {
                    if files.len() == limits.files_max {
                        return Err(self.too_large(at, "files", limits.files_max));
                    }
                    files.push(TreeFile {
                        path: path.to_owned(),
                        kind: kind_of(mode),
                        id: oid(&id),
                    });
                }
                TreeEntry::File => {}
            }
            Ok(true)
        })?;
        Ok(files)
    }

    /// Reads the regular files at a commit or tree for which `wanted` returns true, as path and
    /// content, sorted as git does. `wanted` also decides for each directory whether it is entered,
    /// so that reading configuration is cheap in a large tree: no file below another directory is
    /// read. Links and submodules are left out. Exceeding any of the limits is an error.
    pub fn read_files(
        &self,
        at: &Oid,
        wanted: &dyn Fn(TreeEntry, &str) -> bool,
        limits: ReadLimits,
    ) -> Result<Vec<(String, Vec<u8>)>, GitReadError> {
        let mut files = Vec::new();
        let mut total = 0usize;
        self.walk(at, &mut |found, path, mode, id| {
            if !wanted(found, path) {
                return Ok(false);
            }
            if found == TreeEntry::File
                && matches!(mode.kind(), EntryKind::Blob | EntryKind::BlobExecutable)
            {
                let bytes = self.blob(at, id, path, limits.file_bytes_max)?;
                total += bytes.len();
                if total > limits.total_bytes_max {
                    return Err(self.too_large(at, "bytes of all files", limits.total_bytes_max));
                }
                if files.len() == limits.files_max {
                    return Err(self.too_large(at, "files", limits.files_max));
                }
                files.push((path.to_owned(), bytes));
            }
            Ok(true)
        })?;
        Ok(files)
    }

    /// Lists the paths of files and submodules that differ between two commits or trees, also by
    /// mode only, sorted; both paths of a renamed file. More than `files_max` are an error.
    ///
    /// For the changes of a proposed change, pass the merge base of branch and change as `base`.
    pub fn changed_files(
        &self,
        base: &Oid,
        head: &Oid,
        files_max: usize,
    ) -> Result<Vec<String>, GitReadError> {
        let (old, new) = (self.find_tree(base)?, self.find_tree(head)?);
        let mut paths = Vec::new();
        let mut many = false;
        let walked = old
            .changes()
            .map_err(|source| self.engine("compare trees", head, source))?
            .options(|options| {
                options.track_path().track_rewrites(None);
            })
            .for_each_to_obtain_tree(&new, |change| {
                if !change.entry_mode().is_tree() {
                    paths.push(text(change.location()));
                }
                many = paths.len() > files_max;
                Ok(if many { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            });
        if many {
            return Err(self.too_large(head, "changed files", files_max));
        }
        walked.map_err(|source| self.engine("compare trees", head, source))?;
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// Finds a commit, following annotated tags. An error if it is missing, or is no commit.
    pub(crate) fn find_commit(&self, object: &Oid) -> Result<gix::Commit<'_>, GitReadError> {
        let found = self.find(object)?;
        found
            .peel_to_kind(Kind::Commit)
            .map(gix::Object::into_commit)
            .map_err(|source| self.not_a("commit", object, source))
    }

    /// Finds a tree by its id, or by that of a commit or tag that leads to it. An error if it is
    /// missing.
    pub(crate) fn find_tree(&self, object: &Oid) -> Result<gix::Tree<'_>, GitReadError> {
        self.find(object)?.peel_to_tree().map_err(|source| self.not_a("tree", object, source))
    }

    /// Finds an object of any kind by its id. An error if it is missing, or if the text is no
    /// object id.
    fn find(&self, object: &Oid) -> Result<gix::Object<'_>, GitReadError> {
        let found = self
            .git
            .try_find_object(self.id(object)?)
            .map_err(|source| self.engine("read an object", object, source))?;
        found.ok_or_else(|| GitReadError::Missing {
            project: self.project.clone(),
            object: object.clone(),
        })
    }

    /// Returns the error for an object that does not lead to one of the type `wanted`; an error of
    /// the git library if it leads to an object that is missing.
    fn not_a(&self, wanted: &'static str, object: &Oid, source: gix::Error) -> GitReadError {
        if source.is_not_found() {
            // The object is present and its target is not: the list of packs is not closed.
            return self.engine("follow the object", object, source);
        }
        GitReadError::WrongKind { project: self.project.clone(), object: object.clone(), wanted }
    }

    /// Reads the content of a file, by the id of its blob. An error if it has more than `bytes_max`
    /// bytes. `at` and `path` only name it in errors.
    fn blob(
        &self,
        at: &Oid,
        id: ObjectId,
        path: &str,
        bytes_max: usize,
    ) -> Result<Vec<u8>, GitReadError> {
        let header =
            self.git.find_header(id).map_err(|source| self.engine("read a file", at, source))?;
        if header.size() > bytes_max as u64 {
            return Err(self.too_large(at, &format!("bytes of {path}"), bytes_max));
        }
        let mut blob =
            self.git.find_blob(id).map_err(|source| self.engine("read a file", at, source))?;
        Ok(blob.take_data())
    }

    /// Walks the tree of a commit in git's order and calls `visit` with kind, path, mode and id of
    /// each entry. For a directory, `visit` returns whether to enter it. Its first error ends the
    /// walk.
    fn walk(&self, at: &Oid, visit: &mut Visit<'_>) -> Result<(), GitReadError> {
        let root = self.find_tree(at)?;
        self.walk_tree(at, &root, &mut String::new(), 0, visit)
    }

    /// Walks one directory of a tree and those below that `visit` selects. `path` is that of the
    /// directory, and is unchanged after a success; `depth` counts the directories above. The first
    /// error of `visit` ends the walk. An error if the directories nest deeper than `DEPTH_MAX`.
    fn walk_tree(
        &self,
        at: &Oid,
        tree: &gix::Tree<'_>,
        path: &mut String,
        depth: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), GitReadError> {
        if depth == DEPTH_MAX {
            return Err(self.too_large(at, "nested directories", DEPTH_MAX));
        }
        for entry in tree.iter() {
            let entry = entry.map_err(|source| self.engine("read a directory", at, source))?;
            let length = path.len();
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(&text(entry.filename()));
            let (mode, id) = (entry.mode(), entry.object_id());
            if mode.is_tree() {
                if visit(TreeEntry::Directory, path, mode, id)? {
                    let sub = self
                        .git
                        .find_tree(id)
                        .map_err(|source| self.engine("read a directory", at, source))?;
                    self.walk_tree(at, &sub, path, depth + 1, visit)?;
                }
            } else {
                visit(TreeEntry::File, path, mode, id)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    /// Returns the error for a failure of the git library while `doing` something to `object`.
    pub(crate) fn engine(
        &self,
        doing: &'static str,
        object: &Oid,
        source: impl Into<Cause>,
    ) -> GitReadError {
        GitReadError::Engine {
            project: self.project.clone(),
            doing,
            object: object.clone(),
            source: source.into(),
        }
    }

    /// Returns the error for something that exceeds a limit.
    fn too_large(&self, object: &Oid, what: &str, limit: usize) -> GitReadError {
        GitReadError::TooLarge {
            project: self.project.clone(),
            object: object.clone(),
            what: what.to_owned(),
            limit: limit as u64,
        }
    }
}

/// Returns an object id as 40 hexadecimal digits in lower case, the form of the records.
pub(crate) fn oid(id: &gix::oid) -> Oid {
    Oid(id.to_hex().to_string())
}

/// Returns whether a tree entry is an executable, a link, a submodule or a plain file. The caller
/// handles directories, which would count as files.
fn kind_of(mode: EntryMode) -> FileKind {
    match mode.kind() {
        EntryKind::BlobExecutable => FileKind::Executable,
        EntryKind::Link => FileKind::Symlink,
        EntryKind::Commit => FileKind::Submodule,
        EntryKind::Blob | EntryKind::Tree => FileKind::File,
    }
}
