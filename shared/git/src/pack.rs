//! Packs: their names, storing a received pack, and writing objects in memory as a self-contained
//! pack.

use crate::error::GitPackError;
use gix::bstr::ByteSlice;
use gix::odb::pack::Bundle;
use gix::{ObjectId, objs::Kind};
use sluice_model::ProjectName;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::{fmt, fs, str::FromStr};

/// The name of a pack: `pack-` and the 40 hexadecimal digits of its checksum, without an ending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackName(String);

/// The text is not the name of a pack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no pack name: expected `pack-` and 40 hexadecimal digits")]
pub struct BadPackName(pub String);

impl PackName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of a pack from its checksum.
    fn of(checksum: &gix::oid) -> Self {
        Self(format!("pack-{}", checksum.to_hex()))
    }
}

impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PackName {
    type Err = BadPackName;

    /// Parses the name of a pack. An error unless it is `pack-` and 40 hexadecimal digits in lower
    /// case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("pack-").filter(|digits| digits.len() == 40);
        match digits {
            Some(digits) if digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(BadPackName(text.to_owned())),
        }
    }
}

/// A pack that was added to the repository. The caller uploads it ([`NewPack::joined`]) and appends
/// it to the repository's list.
///
/// The files are in the repository's cache directory. Read them before that directory is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPack {
    /// The pack's name.
    pub name: PackName,
    /// The path of the pack file.
    pub pack: PathBuf,
    /// The path of its index.
    pub index: PathBuf,
    /// The number of objects.
    pub objects: u32,
    /// The size of the pack file in bytes.
    pub size_bytes: u64,
}

/// Checks that `pack` is whole and `index` is its index (version 2), by their checksums, and
/// returns the pack's name. The objects are not decoded. The error says what is wrong.
pub(crate) fn verify(pack: &[u8], index: &[u8]) -> Result<PackName, &'static str> {
    const SUM: usize = 20;
    if pack.len() < 12 + SUM || !pack.starts_with(b"PACK") {
        return Err("the pack has no header");
    }
    if index.len() < 8 + 256 * 4 + 2 * SUM || !index.starts_with(b"\xfftOc\0\0\0\x02") {
        return Err("the index is not of version 2");
    }
    let (body, stated) = pack.split_at(pack.len() - SUM);
    if sha1(body).as_deref() != Some(stated) {
        return Err("the pack's checksum does not fit");
    }
    let (rest, index_sum) = index.split_at(index.len() - SUM);
    if rest[rest.len() - SUM..] != *stated {
        return Err("the index belongs to another pack");
    }
    if sha1(rest).as_deref() != Some(index_sum) {
        return Err("the index's checksum does not fit");
    }
    Ok(PackName::of(&ObjectId::from_bytes_or_panic(stated)))
}

/// Computes the SHA-1 of bytes; `None` if they show a known attack on SHA-1.
fn sha1(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
    hasher.update(bytes);
    hasher.try_finalize().ok().map(|id| id.as_bytes().to_owned())
}

/// The contents of a pack file and of its index.
pub(crate) struct Encoded {
    pub(crate) name: PackName,
    pub(crate) pack: Vec<u8>,
    pub(crate) index: Vec<u8>,
}

/// Encodes objects, given by id, as a pack of whole objects, ordered by id, with its index. Equal
/// objects give equal files. An error if data does not match its id, or if there are more objects
/// than a pack can hold. Writes no files.
///
/// Nothing is delta-compressed, so the index is built while the pack is written.
pub(crate) fn encode(objects: &BTreeMap<ObjectId, (Kind, Vec<u8>)>) -> std::io::Result<Encoded> {
    let mut out = header(objects.len())?;
    let mut entries = Vec::with_capacity(objects.len());
    for (id, (kind, data)) in objects {
        let offset = out.len();
        write_entry(*id, *kind, data, &mut out)?;
        entries.push((*id, offset as u64, crc32fast::hash(&out[offset..])));
    }
    let sum = checksum(&out)?;
    out.extend_from_slice(&sum);
    let index = index_of(&entries, &sum)?;
    Ok(Encoded { name: PackName::of(&ObjectId::from_bytes_or_panic(&sum)), pack: out, index })
}

/// Appends an object to `out` as a whole, compressed pack entry. An error if `data` does not match
/// the id.
pub(crate) fn write_entry(
    id: ObjectId,
    kind: Kind,
    data: &[u8],
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    // Nothing else checks that an object matches its id before it is passed on.
    if gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, data).ok() != Some(id) {
        return Err(std::io::Error::other(format!("the object {id} is damaged")));
    }
    entry_header(kind, data.len() as u64, out);
    let mut deflate =
        gix::zlib::stream::deflate::Write::new(out, gix::zlib::Compression::BEST_SPEED);
    deflate.write_all(data)?;
    deflate.flush()
}

/// Encodes pack entries, as written by [`write_entry`], as a pack with header and checksum. The
/// entries are not checked; none may occur twice. An error if there are more than a pack can hold.
pub(crate) fn of_entries<'a>(
    entries: impl ExactSizeIterator<Item = &'a Vec<u8>>,
) -> std::io::Result<Vec<u8>> {
    let mut out = header(entries.len())?;
    for entry in entries {
        out.extend_from_slice(entry);
    }
    let sum = checksum(&out)?;
    out.extend_from_slice(&sum);
    Ok(out)
}

/// Returns the header of a pack with this number of objects. An error if it does not fit into 32
/// bits.
fn header(objects: usize) -> std::io::Result<Vec<u8>> {
    let count = u32::try_from(objects).map_err(std::io::Error::other)?;
    let mut out = Vec::from(*b"PACK");
    out.extend_from_slice(&2u32.to_be_bytes());
    out.extend_from_slice(&count.to_be_bytes());
    Ok(out)
}

/// Offsets from here on are stored in a separate table.
const LARGE_OFFSET: u64 = 1 << 31;

/// Returns the version 2 index of the pack with the checksum `pack_sum`. Each entry is an id, its
/// offset in the pack and the CRC-32 of its bytes there; the caller has sorted them by id.
fn index_of(entries: &[(ObjectId, u64, u32)], pack_sum: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::from(*b"\xfftOc\0\0\0\x02");
    let mut below = 0;
    for first in 0..=u8::MAX {
        below += entries[below..]
            .iter()
            .take_while(|(id, ..)| id.as_bytes().first() == Some(&first))
            .count();
        out.extend_from_slice(&u32::try_from(below).map_err(std::io::Error::other)?.to_be_bytes());
    }
    for (id, ..) in entries {
        out.extend_from_slice(id.as_bytes());
    }
    for (.., crc) in entries {
        out.extend_from_slice(&crc.to_be_bytes());
    }
    let mut large = Vec::new();
    for (_, offset, _) in entries {
        let stated = if *offset < LARGE_OFFSET {
            *offset
        } else {
            large.push(*offset);
            LARGE_OFFSET | (large.len() as u64 - 1)
        };
        out.extend_from_slice(&u32::try_from(stated).map_err(std::io::Error::other)?.to_be_bytes());
    }
    for offset in large {
        out.extend_from_slice(&offset.to_be_bytes());
    }
    out.extend_from_slice(pack_sum);
    let sum = checksum(&out)?;
    out.extend_from_slice(&sum);
    Ok(out)
}

/// Computes the checksum that ends a pack or index. An error if the bytes show a known attack on
/// SHA-1.
fn checksum(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    sha1(bytes)
        .ok_or_else(|| std::io::Error::other("the pack collides with a known attack on SHA-1"))
}

/// Appends type and unpacked size of an entry to `out`: the lowest four bits of the size next to
/// the type, then seven bits per byte; the top bit marks that more bytes follow.
fn entry_header(kind: Kind, mut size: u64, out: &mut Vec<u8>) {
    let kind = match kind {
        Kind::Commit => 1u8,
        Kind::Tree => 2,
        Kind::Blob => 3,
        Kind::Tag => 4,
    };
    let mut byte = (kind << 4) | (size & 0x0f) as u8;
    size >>= 4;
    while size > 0 {
        out.push(byte | 0x80);
        byte = (size & 0x7f) as u8;
        size >>= 7;
    }
    out.push(byte);
}

/// Reads pack data, adds missing delta bases from `objects`, and stores the pack with an index in
/// `directory`. Returns `None` for a pack without objects. An error for an object that is unpacked
/// larger than `object_bytes_max`, and once `interrupt` is true.
pub(crate) fn keep_stream(
    data: &mut dyn BufRead,
    directory: &Path,
    objects: impl gix::objs::Find,
    object_bytes_max: usize,
    interrupt: &AtomicBool,
) -> gix::Result<Option<NewPack>> {
    let options = gix::odb::pack::bundle::write::Options {
        alloc_limit_bytes: Some(object_bytes_max),
        ..Default::default()
    };
    let outcome = Bundle::write_to_directory(
        data,
        Some(directory),
        &mut gix::progress::Discard,
        interrupt,
        Some(objects),
        gix::hash::Kind::Sha1,
        options,
    )?;
    // The file that protects the pack from `git gc` is useless: nothing collects garbage here.
    if let Some(mark) = outcome.keep_path {
        fs::remove_file(mark).map_err(gix::Error::from_error)?;
    }
    let (Some(pack), Some(index)) = (outcome.data_path, outcome.index_path) else {
        return Ok(None);
    };
    let size_bytes = fs::metadata(&pack).map_err(gix::Error::from_error)?.len();
    Ok(Some(NewPack {
        name: PackName::of(&outcome.index.data_hash),
        pack,
        index,
        objects: outcome.index.num_objects,
        size_bytes,
    }))
}

/// Lists the packs in `directory` that have an index, sorted by name. Other files are ignored. An
/// error if the directory does not exist.
pub(crate) fn list(project: &ProjectName, directory: &Path) -> Result<Vec<PackName>, GitPackError> {
    let failed = |source| GitPackError::Directory {
        project: project.clone(),
        doing: "list",
        path: directory.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "idx")
            && path.with_extension("pack").is_file()
            && let Some(stem) = path.file_stem().and_then(|stem| stem.to_str())
            && let Ok(name) = stem.parse()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Converts git's bytes to text; bytes that are not UTF-8 become the replacement character.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.to_str_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library that indexes received packs produces the same files.
    #[test]
    fn a_pack_and_its_index_are_what_the_library_makes_of_the_pack() {
        let data: Vec<Vec<u8>> = (0..700_u32)
            .map(|n| format!("file {n}\n").repeat(n as usize % 50).into_bytes())
            .collect();
        let id =
            |data: &[u8]| gix::objs::compute_hash(gix::hash::Kind::Sha1, Kind::Blob, data).unwrap();
        let objects: BTreeMap<_, _> =
            data.into_iter().map(|data| (id(&data), (Kind::Blob, data))).collect();
        let made = encode(&objects).unwrap();
        assert_eq!(verify(&made.pack, &made.index), Ok(made.name.clone()));
        let folder = tempfile::tempdir().unwrap();
        let mut stream = made.pack.as_slice();
        let never = AtomicBool::new(false);
        let stored =
            keep_stream(&mut stream, folder.path(), gix::objs::find::Never, 1 << 20, &never)
                .unwrap()
                .unwrap();
        assert_eq!(stored.name, made.name);
        assert_eq!(usize::try_from(stored.objects), Ok(objects.len()));
        assert!(
            fs::read(stored.pack).unwrap() == made.pack
                && fs::read(stored.index).unwrap() == made.index
        );
    }

    /// Our packs never get that large, but the format is respected.
    #[test]
    fn offsets_beyond_two_gigabytes_stand_in_a_table_of_their_own() {
        let entries = [(ObjectId::null(gix::hash::Kind::Sha1), LARGE_OFFSET + 7, 1)];
        let index = index_of(&entries, &[0; 20]).unwrap();
        let offsets = &index[8 + 256 * 4 + 20 + 4..];
        assert_eq!(offsets[..4], [0x80, 0, 0, 0]);
        assert_eq!(offsets[4..12], (LARGE_OFFSET + 7).to_be_bytes());
    }
}
