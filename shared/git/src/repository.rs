//! A bare repository in a cache directory, made only of packs.

use crate::error::{Cause, GitPackError, GitReadError};
use crate::pack::{self, NewPack, PackName};
use gix::ObjectId;
use gix::objs::{Exists as _, Kind};
use sluice_model::{ProjectName, git::Oid};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The memory for decoded objects while a repository is in use.
const OBJECT_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// The most bytes of one unpacked object.
pub(crate) const OBJECT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The repository of a project, opened in a cache directory.
///
/// Merge results stay in memory until [`Repository::pack_missing_objects`]. Otherwise the
/// repository only changes by added packs. Several processes may share the directory: each file
/// appears atomically, under a name derived from its content.
pub struct Repository {
    /// The project.
    pub(crate) project: ProjectName,
    /// The repository as the git library has it.
    pub(crate) git: gix::Repository,
    /// The directory of the repository.
    dir: PathBuf,
    /// Cached indexes of packs; a pack never changes under its name.
    indexes: BTreeMap<PackName, gix::odb::pack::index::File>,
}

impl std::fmt::Debug for Repository {
    /// Shows only the project and the directory.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repository")
            .field("project", &self.project)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Repository {
    /// Opens the repository of `project` in `dir`, with the packs that are there. Creates an empty
    /// one when there is none.
    pub fn open(project: &ProjectName, dir: &Path) -> Result<Self, GitPackError> {
        create(project, dir)?;
        let git = open_git(project, dir)?.with_object_memory();
        Ok(Self { project: project.clone(), git, dir: dir.to_owned(), indexes: BTreeMap::new() })
    }

    /// Opens a separate repository in `dir`, which it creates if necessary, with packs from
    /// `pack_dir`, which are hard-linked or copied. A pack that neither directory has is an error;
    /// packs that `dir` has already are kept. Changes to the repository never affect `pack_dir`.
    pub fn of_packs(
        project: &ProjectName,
        dir: &Path,
        pack_dir: &Path,
        packs: &[PackName],
    ) -> Result<Self, GitPackError> {
        create(project, dir)?;
        let own_dir = dir.join("objects/pack");
        for name in packs {
            for ending in ["pack", "idx"] {
                let file = format!("{name}.{ending}");
                let (from, to) = (pack_dir.join(&file), own_dir.join(&file));
                // Copying onto an existing link would truncate both files.
                if to.exists() {
                    continue;
                }
                let put = fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop));
                put.map_err(|source| GitPackError::Directory {
                    project: project.clone(),
                    doing: "put a pack at",
                    path: to,
                    source,
                })?;
            }
        }
        Self::open(project, dir)
    }

    /// Returns the project of the repository.
    pub fn project(&self) -> &ProjectName {
        &self.project
    }

    /// Returns the directory of the pack files.
    pub fn pack_dir(&self) -> PathBuf {
        self.dir.join("objects/pack")
    }

    /// Lists the packs in the cache, sorted by name.
    pub fn packs(&self) -> Result<Vec<PackName>, GitPackError> {
        pack::list(&self.project, &self.pack_dir())
    }

    /// Returns whether the cache directory has the files of a pack and its index.
    pub fn has_pack(&self, name: &PackName) -> bool {
        let path = self.pack_dir().join(format!("{name}.idx"));
        path.is_file() && path.with_extension("pack").is_file()
    }

    /// Adds a pack and its index, given as whole files, and checks both against their checksums and
    /// each other. Returns the pack's name. Stores nothing when the cache has the pack; damaged
    /// bytes are an error even then.
    pub fn add_pack(&mut self, pack: &[u8], index: &[u8]) -> Result<PackName, GitPackError> {
        let name = pack::verify(pack, index)
            .map_err(|reason| GitPackError::Damaged { project: self.project.clone(), reason })?;
        if !self.has_pack(&name) {
            self.write_pack(&name, pack, index)?;
            self.reload()?;
        }
        Ok(name)
    }

    /// Finds packs that other processes added to the directory. Objects in memory are kept.
    pub fn refresh(&mut self) -> Result<(), GitPackError> {
        self.reload()
    }

    /// Returns whether an object is present, in a pack or in memory; `false` also for a text that
    /// is no object id.
    pub fn has(&self, object: &Oid) -> bool {
        self.id(object).is_ok_and(|id| self.git.objects.exists(&id))
    }

    /// Writes the objects that `tips` reach and no pack of the cache has, such as those that merges
    /// created, as one self-contained pack with its index. Returns `None` when every object is in a
    /// pack already. Equal tips and packs give an equal pack.
    pub fn pack_missing_objects(&mut self, tips: &[Oid]) -> Result<Option<NewPack>, GitPackError> {
        let held = self.packs()?;
        self.pack_objects_beyond(tips, &held)
    }

    /// Writes the objects that `tips` reach and none of the packs `base` contains to the pack
    /// directory, as one self-contained pack with its index, whatever other packs the cache has.
    /// Returns `None` when `base` contains everything. The packs `base` must be in the cache and
    /// together complete; then they are so with this pack. An annotated tag is not followed, so the
    /// caller names the tagged commit among `tips` too. Equal arguments give an equal pack.
    pub fn pack_objects_beyond(
        &mut self,
        tips: &[Oid],
        base: &[PackName],
    ) -> Result<Option<NewPack>, GitPackError> {
        let objects = self.objects_beyond(tips, base)?;
        if objects.is_empty() {
            return Ok(None);
        }
        let failed = |source: Cause| GitPackError::Engine {
            project: self.project.clone(),
            doing: "write a pack of merged objects",
            source,
        };
        let made = pack::encode(&objects).map_err(|source| failed(source.into()))?;
        // Other processes find the pack in the directory; this one has its objects in memory.
        self.write_pack(&made.name, &made.pack, &made.index)?;
        let at = |ending: &str| self.pack_dir().join(format!("{}.{ending}", made.name));
        Ok(Some(NewPack {
            pack: at("pack"),
            index: at("idx"),
            objects: u32::try_from(objects.len()).unwrap_or(u32::MAX),
            size_bytes: made.pack.len() as u64,
            name: made.name,
        }))
    }

    /// Stores a pack and its index in the directory, in place of equal ones: the pack first,
    /// because a reader of the index expects its pack. Does not reopen the packs.
    fn write_pack(&self, name: &PackName, pack: &[u8], index: &[u8]) -> Result<(), GitPackError> {
        let dir = self.pack_dir();
        for (ending, bytes) in [("pack", pack), ("idx", index)] {
            let path = dir.join(format!("{name}.{ending}"));
            write_whole(&dir, &path, bytes).map_err(|source| GitPackError::Directory {
                project: self.project.clone(),
                doing: "write",
                path: path.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Collects the objects reachable from `tips` that `base` does not contain, by id, with kind
    /// and content. What is reached only through objects of `base`, annotated tags or submodules is
    /// left out. An error if an object or the index of a pack is missing. Caches the indexes of
    /// `base`.
    fn objects_beyond(
        &mut self,
        tips: &[Oid],
        base: &[PackName],
    ) -> Result<BTreeMap<ObjectId, (Kind, Vec<u8>)>, GitPackError> {
        let project = self.project.clone();
        let failed = |source: Cause| GitPackError::Engine {
            project: project.clone(),
            doing: "collect merged objects",
            source,
        };
        for name in base.iter().filter(|name| !self.indexes.contains_key(*name)).collect::<Vec<_>>()
        {
            let path = self.pack_dir().join(format!("{name}.idx"));
            let index = gix::odb::pack::index::File::at(path, gix::hash::Kind::Sha1);
            self.indexes.insert(name.clone(), index.map_err(|source| failed(source.into()))?);
        }
        let base: Vec<_> = base.iter().filter_map(|name| self.indexes.get(name)).collect();
        let mut found = BTreeMap::new();
        let mut ahead = Vec::new();
        for tip in tips {
            ahead.push(self.id(tip).map_err(|source| failed(source.into()))?);
        }
        // Terminates: each object is visited once, and objects of `base` are not followed.
        while let Some(id) = ahead.pop() {
            if found.contains_key(&id) || base.iter().any(|index| index.lookup(id).is_some()) {
                continue;
            }
            let object = self.git.find_object(id).map_err(|source| failed(source.into()))?;
            match object.kind {
                Kind::Commit => {
                    let mut commit =
                        gix::objs::CommitRefIter::from_bytes(&object.data, gix::hash::Kind::Sha1);
                    ahead.push(commit.tree_id().map_err(|source| failed(source.into()))?);
                    ahead.extend(
                        gix::objs::CommitRefIter::from_bytes(&object.data, gix::hash::Kind::Sha1)
                            .parent_ids(),
                    );
                }
                Kind::Tree => {
                    for entry in
                        gix::objs::TreeRefIter::from_bytes(&object.data, gix::hash::Kind::Sha1)
                    {
                        let entry = entry.map_err(|source| failed(source.into()))?;
                        if !entry.mode.is_commit() {
                            ahead.push(entry.oid.to_owned());
                        }
                    }
                }
                Kind::Blob | Kind::Tag => {}
            }
            found.insert(id, (object.kind, object.data.clone()));
        }
        Ok(found)
    }

    /// Reopens the packs of the directory, so that new ones are found, and keeps the objects that
    /// are only in memory. The store has room for a limited number of packs.
    pub(crate) fn reload(&mut self) -> Result<(), GitPackError> {
        let memory = self.git.objects.take_object_memory().unwrap_or_default();
        self.git = open_git(&self.project, &self.dir)?;
        self.git.objects.set_object_memory(memory);
        Ok(())
    }

    /// Parses an object id; [`GitReadError::NotAnId`] unless it is one. Whether the object exists
    /// is not checked.
    pub(crate) fn id(&self, object: &Oid) -> Result<ObjectId, GitReadError> {
        ObjectId::from_hex(object.as_str().as_bytes()).map_err(|_| GitReadError::NotAnId {
            project: self.project.clone(),
            object: object.0.clone(),
        })
    }
}

/// Creates the directory of a bare repository, and those of its files that are missing.
fn create(project: &ProjectName, dir: &Path) -> Result<(), GitPackError> {
    let failed = |path: &Path| {
        let (project, path) = (project.clone(), path.to_owned());
        move |source| GitPackError::Directory { project, doing: "create", path, source }
    };
    for sub in ["objects/pack", "objects/info", "refs/heads"] {
        let path = dir.join(sub);
        fs::create_dir_all(&path).map_err(failed(&path))?;
    }
    for (name, text) in [
        ("config", "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"),
        ("HEAD", "ref: refs/heads/none\n"),
    ] {
        let path = dir.join(name);
        if !path.is_file() {
            write_whole(dir, &path, text.as_bytes()).map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Opens the repository with the git library, isolated from the machine's configuration, with git's
/// own settings for merges.
fn open_git(project: &ProjectName, dir: &Path) -> Result<gix::Repository, GitPackError> {
    // Isolated: neither the machine's configuration nor its environment may affect a merge. The two
    // settings are the defaults of `git merge`.
    let options = gix::open::Options::isolated()
        .with(gix::sec::Trust::Full)
        .open_path_as_is(true)
        .config_overrides([
            "diff.algorithm=histogram",
            "merge.renameLimit=7000",
            "core.commitGraph=false",
        ]);
    let mut git = gix::open_opts(dir, options).map_err(|source| GitPackError::Engine {
        project: project.clone(),
        doing: "open the object database",
        source: source.into(),
    })?;
    git.object_cache_size(OBJECT_CACHE_BYTES);
    Ok(git)
}

/// Writes a file atomically, in place of an existing one, readable by all users. `dir` has the
/// temporary file and must be on the same file system as `path`.
fn write_whole(dir: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}
