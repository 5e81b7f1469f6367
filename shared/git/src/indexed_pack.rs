//! Stores a pack and its index as one object, so that reading or writing a pack takes one call.
//!
//! The object contains the pack, then its index, then sixteen bytes: [`MARK`] and the length of the
//! pack. It is split in memory without copying.

use crate::error::GitPackError;
use crate::pack::{NewPack, PackName};
use crate::repository::Repository;
use sluice_model::ProjectName;
use std::fs::File;
use std::io::{Error, Read as _};
use std::path::Path;

/// The start of the trailer.
const MARK: &[u8] = b"slu+pack";
/// The length of the trailer.
const TRAILER_BYTES: usize = 16;

impl NewPack {
    /// Reads the pack and its index from the cache directory and returns the object to upload:
    /// pack, index and trailer. [`Repository::add_stored`] reads it. `project` is only for errors.
    /// An error if one of the files is gone.
    ///
    /// # Errors
    /// [`GitPackError::Directory`] when one of the files cannot be read.
    pub fn joined(&self, project: &ProjectName) -> Result<Vec<u8>, GitPackError> {
        let failed = |path: &Path, source| {
            let (project, path) = (project.clone(), path.to_owned());
            GitPackError::Directory { project, doing: "read", path, source }
        };
        let (mut pack, pack_bytes) =
            open(&self.pack).map_err(|source| failed(&self.pack, source))?;
        let (mut index, index_bytes) =
            open(&self.index).map_err(|source| failed(&self.index, source))?;
        // Allocated at once, because a pack may be large and growing would copy it.
        let mut out = Vec::with_capacity(pack_bytes + index_bytes + TRAILER_BYTES);
        pack.read_to_end(&mut out).map_err(|source| failed(&self.pack, source))?;
        let length = out.len();
        index.read_to_end(&mut out).map_err(|source| failed(&self.index, source))?;
        append_trailer(&mut out, length);
        Ok(out)
    }
}

impl Repository {
    /// Adds a pack from its stored form, as [`NewPack::joined`] returns it, and returns its name.
    /// Pack and index are checked as by [`Repository::add_pack`]. Does nothing when the cache has
    /// the pack.
    ///
    /// # Errors
    /// [`GitPackError::Damaged`] when `object` is not a pack with its index.
    pub fn add_stored(&mut self, object: &[u8]) -> Result<PackName, GitPackError> {
        let (pack, index) = split(object)
            .map_err(|reason| GitPackError::Damaged { project: self.project.clone(), reason })?;
        self.add_pack(pack, index)
    }
}

/// Opens a file for reading and returns it with its length in bytes.
fn open(path: &Path) -> Result<(File, usize), Error> {
    let file = File::open(path)?;
    let bytes = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
    Ok((file, bytes))
}

/// Joins a pack and its index as [`NewPack::joined`] does. Checks nothing.
pub(crate) fn join(pack: &[u8], index: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(pack.len() + index.len() + TRAILER_BYTES);
    out.extend_from_slice(pack);
    out.extend_from_slice(index);
    append_trailer(&mut out, pack.len());
    out
}

/// Appends the trailer, from which the length of the pack is read.
fn append_trailer(out: &mut Vec<u8>, pack_bytes: usize) {
    out.extend_from_slice(MARK);
    out.extend_from_slice(&(pack_bytes as u64).to_be_bytes());
}

/// Splits an object into pack and index by its trailer; the error says what is damaged. The two
/// parts are not checked.
fn split(object: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    const CUT: &str = "it has no trailer of a pack with its index";
    let (rest, length) = object.split_last_chunk::<8>().ok_or(CUT)?;
    let rest = rest.strip_suffix(MARK).ok_or(CUT)?;
    let length = usize::try_from(u64::from_be_bytes(*length)).ok();
    length
        .and_then(|length| rest.split_at_checked(length))
        .ok_or("it is shorter than the length of its pack")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every later version must be able to read stored objects.
    #[test]
    fn a_pack_and_its_index_stand_one_behind_the_other_before_a_mark_and_the_length_of_the_pack() {
        let folder = tempfile::tempdir().unwrap();
        let (pack, index) = (folder.path().join("a.pack"), folder.path().join("a.idx"));
        std::fs::write(&pack, b"PACK...").unwrap();
        std::fs::write(&index, b"\xfftOc").unwrap();
        let name: PackName = format!("pack-{}", "a1".repeat(20)).parse().unwrap();
        let new = NewPack { name, pack, index, objects: 1, size_bytes: 7 };
        let project = ProjectName::from("forge.example/org/name");
        let object = new.joined(&project).unwrap();
        assert_eq!(object, b"PACK...\xfftOcslu+pack\0\0\0\0\0\0\0\x07");
        assert_eq!(split(&object), Ok((&b"PACK..."[..], &b"\xfftOc"[..])));
        std::fs::remove_file(&new.index).unwrap();
        let text = new.joined(&project).unwrap_err().to_string();
        assert!(
            text.contains("read") && text.contains("a.idx") && text.contains("org/name"),
            "{text}"
        );
    }

    #[test]
    fn what_does_not_end_so_is_refused() {
        let mut object = b"PACK\xfftOc".to_vec();
        append_trailer(&mut object, 4);
        assert!(split(&object).is_ok());
        for end in 0..object.len() {
            assert!(split(&object[..end]).is_err(), "{end}");
        }
        let mut longer = b"PACK\xfftOc".to_vec();
        append_trailer(&mut longer, 9);
        assert_eq!(split(&longer), Err("it is shorter than the length of its pack"));
        let mut longest = b"PACK\xfftOc".to_vec();
        append_trailer(&mut longest, usize::MAX);
        assert!(split(&longest).is_err());
    }
}
