//! A pack and its index as one object, so that storing or loading a pack is one call.
//!
//! The bytes of the pack come first, then those of its index, then sixteen more: [`MARK`] and the
//! length of the pack. It is told apart again where it lies in memory: nothing is copied for that.

use crate::error::PackError;
use crate::pack::{NewPack, PackName};
use crate::repository::Repository;
use sluice_model::ProjectName;
use std::fs::File;
use std::io::{Error, Read as _};
use std::path::Path;

/// What the last bytes begin with.
const MARK: &[u8] = b"slu+pack";
/// The length of what follows pack and index.
const TRAILER_BYTES: usize = 16;

impl NewPack {
    /// Reads the pack and its index and returns the object to upload, which
    /// [`Repository::add_stored`] takes.
    ///
    /// # Errors
    /// [`PackError::Directory`] when one of the files cannot be read.
    pub fn joined(&self, project: &ProjectName) -> Result<Vec<u8>, PackError> {
        let failed = |path: &Path, source| {
            let (project, path) = (project.clone(), path.to_owned());
            PackError::Directory { project, doing: "read", path, source }
        };
        let (mut pack, pack_bytes) =
            open(&self.pack).map_err(|source| failed(&self.pack, source))?;
        let (mut index, index_bytes) =
            open(&self.index).map_err(|source| failed(&self.index, source))?;
        // At once: a pack may be large, and growing would copy it.
        let mut out = Vec::with_capacity(pack_bytes + index_bytes + TRAILER_BYTES);
        pack.read_to_end(&mut out).map_err(|source| failed(&self.pack, source))?;
        let length = out.len();
        index.read_to_end(&mut out).map_err(|source| failed(&self.index, source))?;
        close(&mut out, length);
        Ok(out)
    }
}

impl Repository {
    /// Adds a pack as it lies in object storage: `object` is what [`NewPack::joined`] returned, or
    /// the pack alone where its `index` lies beside it, as earlier versions stored it
    /// ([`crate::keys::index_beside`]). Both are checked as by [`Repository::add_pack`].
    ///
    /// # Errors
    /// [`PackError::Damaged`] when that is not what `object` is.
    pub fn add_stored(
        &mut self,
        object: &[u8],
        index: Option<&[u8]>,
    ) -> Result<PackName, PackError> {
        let (pack, index) = match index {
            Some(index) => (object, index),
            None => split(object)
                .map_err(|reason| PackError::Damaged { project: self.project.clone(), reason })?,
        };
        self.add_pack(pack, index)
    }
}

fn open(path: &Path) -> Result<(File, usize), Error> {
    let file = File::open(path)?;
    let bytes = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
    Ok((file, bytes))
}

/// Puts a pack and its index together as [`NewPack::joined`] does.
pub(crate) fn join(pack: &[u8], index: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(pack.len() + index.len() + TRAILER_BYTES);
    out.extend_from_slice(pack);
    out.extend_from_slice(index);
    close(&mut out, pack.len());
    out
}

/// Appends what tells a pack of this length from the index behind it.
fn close(out: &mut Vec<u8>, pack_bytes: usize) {
    out.extend_from_slice(MARK);
    out.extend_from_slice(&(pack_bytes as u64).to_be_bytes());
}

/// Tells the pack from its index.
fn split(object: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    const CUT: &str = "it does not end as a pack with its index does";
    let (rest, length) = object.split_last_chunk::<8>().ok_or(CUT)?;
    let rest = rest.strip_suffix(MARK).ok_or(CUT)?;
    let length = usize::try_from(u64::from_be_bytes(*length)).ok();
    length
        .and_then(|length| rest.split_at_checked(length))
        .ok_or("it is shorter than its pack is said to be")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects that are stored are read by every later version.
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
        close(&mut object, 4);
        assert!(split(&object).is_ok());
        for end in 0..object.len() {
            assert!(split(&object[..end]).is_err(), "{end}");
        }
        let mut longer = b"PACK\xfftOc".to_vec();
        close(&mut longer, 9);
        assert_eq!(split(&longer), Err("it is shorter than its pack is said to be"));
        let mut longest = b"PACK\xfftOc".to_vec();
        close(&mut longest, usize::MAX);
        assert!(split(&longest).is_err());
    }
}
