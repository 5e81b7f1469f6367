//! Makes a commit without parents from files outside any repository, with all of its objects in one
//! pack.
//!
//! Author and time are fixed, so equal files give an equal commit and an equal pack.

use crate::error::PlantError;
use crate::indexed_pack::join;
use crate::merge::{EMAIL, NAME};
use crate::pack::{self, PackName};
use crate::read::oid;
use gix::ObjectId;
use gix::objs::Kind;
use sluice_model::git::Commit;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The most nested directories of a file; a checkout could not create more.
const DEPTH_MAX: usize = 256;

/// A file of the new commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewFile {
    /// A regular file with this content.
    File(Vec<u8>),
    /// An executable file with this content.
    Executable(Vec<u8>),
    /// A symbolic link with this target.
    Link(String),
}

/// A commit made by [`plant`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planted {
    /// The commit.
    pub commit: Commit,
    /// The name of the pack with all of its objects.
    pub pack: PackName,
    /// The pack with its index, as stored under [`crate::keys::pack`].
    pub object: Vec<u8>,
}

/// Creates a commit without parents from files by path, with `/` as separator, and one pack with
/// all of its objects, both in memory; the caller stores the pack. Author and time are fixed, so
/// equal arguments give an equal result. An error for a path that git would refuse to check out,
/// that is nested too deep, or in which a directory is also a file.
///
/// # Errors
/// [`PlantError::Path`] for a path that git would refuse to check out, and [`PlantError::Pack`] for
/// more than a pack can hold.
pub fn plant(files: &BTreeMap<String, NewFile>, message: &str) -> Result<Planted, PlantError> {
    let mut root = Directory::default();
    for (path, file) in files {
        root.put(path, file)?;
    }
    let mut objects = Objects::new();
    let tree = root.write(&mut objects)?;
    let who = format!("{NAME} <{EMAIL}> 0 +0000");
    let text = format!(
        "tree {}\nauthor {who}\ncommitter {who}\n\n{}\n",
        tree.to_hex(),
        message.trim_end()
    );
    let id = add(&mut objects, Kind::Commit, text.into_bytes())?;
    let made = pack::encode(&objects).map_err(PlantError::Pack)?;
    let commit = Commit { id: oid(&id), tree: oid(&tree) };
    Ok(Planted { commit, pack: made.name, object: join(&made.pack, &made.index) })
}

/// Returns whether a name, or a part of it between backslashes, means `.git` on Windows or where
/// case is ignored: in any case, with trailing dots or spaces, before a `:`, or as `git~1`. Git
/// refuses to check out a tree with such a name. Spellings with invisible characters, which HFS+
/// ignores, are not recognised.
pub fn is_spelling_of_dot_git(name: &str) -> bool {
    name.split('\\').any(|part| {
        let part = part.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
        part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case("git~1")
    })
}

type Objects = BTreeMap<ObjectId, (Kind, Vec<u8>)>;

/// A directory under construction.
#[derive(Default)]
struct Directory<'f> {
    members: BTreeMap<&'f str, Member<'f>>,
}

enum Member<'f> {
    File(&'f NewFile),
    Directory(Directory<'f>),
}

impl<'f> Directory<'f> {
    /// Adds a file at a path and creates its directories. An error if the path is invalid, nested
    /// too deep or already used, also by a file in place of a directory.
    fn put(&mut self, path: &'f str, file: &'f NewFile) -> Result<(), PlantError> {
        let refused = |why: &'static str| PlantError::Path { path: path.to_owned(), why };
        let mut folders: Vec<&'f str> = path.split('/').collect();
        if let Some(why) = folders.iter().find_map(|part| wrong(part)) {
            return Err(refused(why));
        }
        if folders.len() > DEPTH_MAX {
            return Err(refused("it lies in too many directories"));
        }
        let Some(name) = folders.pop() else { return Err(refused("it has no name")) };
        if matches!(file, NewFile::Link(_)) && name.eq_ignore_ascii_case(".gitmodules") {
            return Err(refused("git takes no link of that name"));
        }
        let mut at = self;
        for folder in folders {
            let inner =
                at.members.entry(folder).or_insert_with(|| Member::Directory(Directory::default()));
            match inner {
                Member::Directory(inner) => at = inner,
                Member::File(_) => return Err(refused("what it lies in is a file")),
            }
        }
        match at.members.entry(name) {
            Entry::Vacant(place) => {
                place.insert(Member::File(file));
                Ok(())
            }
            Entry::Occupied(_) => Err(refused("a directory has its name")),
        }
    }

    /// Adds the directory's tree and everything below to `objects`, and returns the tree's id.
    fn write(&self, objects: &mut Objects) -> Result<ObjectId, PlantError> {
        let mut lines: Vec<(String, Vec<u8>)> = Vec::with_capacity(self.members.len());
        for (name, member) in &self.members {
            // Git sorts a directory as if its name ended with a slash.
            let (mode, id, end) = match member {
                Member::File(file) => {
                    (file.mode(), add(objects, Kind::Blob, file.bytes().to_vec())?, "")
                }
                Member::Directory(inner) => ("40000", inner.write(objects)?, "/"),
            };
            let mut line = format!("{mode} {name}\0").into_bytes();
            line.extend_from_slice(id.as_bytes());
            lines.push((format!("{name}{end}"), line));
        }
        lines.sort();
        add(objects, Kind::Tree, lines.into_iter().flat_map(|(_, line)| line).collect())
    }
}

impl NewFile {
    /// Returns git's file mode.
    fn mode(&self) -> &'static str {
        match self {
            Self::File(_) => "100644",
            Self::Executable(_) => "100755",
            Self::Link(_) => "120000",
        }
    }

    /// Returns the content of the file, or the target of the link.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::File(bytes) | Self::Executable(bytes) => bytes,
            Self::Link(to) => to.as_bytes(),
        }
    }
}

/// Returns what is wrong with a component of a path: it is empty, `.`, `..`, a spelling of `.git`,
/// or has a zero byte. `None` when it is valid.
fn wrong(part: &str) -> Option<&'static str> {
    match part {
        "" | "." | ".." => Some("a part of it is no name"),
        _ if part.contains('\0') => Some("a part of it has a byte that no name has"),
        _ if is_spelling_of_dot_git(part) => Some("git has a directory of its own of that name"),
        _ => None,
    }
}

/// Adds an object to `objects` and returns its id. An error only for a known attack on SHA-1.
fn add(objects: &mut Objects, kind: Kind, data: Vec<u8>) -> Result<ObjectId, PlantError> {
    let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, &data).ok();
    let collides = || std::io::Error::other("an object collides with a known attack on SHA-1");
    let id = id.ok_or_else(|| PlantError::Pack(collides()))?;
    objects.insert(id, (kind, data));
    Ok(id)
}
