//! Bounds the packs that an executor keeps on its disk: those that were used least recently go.
//!
//! A pack counts as used when a build asks for it, which sets the time of its file. Builds link or
//! copy the packs into their own directories right after that, so a pack that was used a while ago
//! may go although such a build still runs.

use sluice_git::PackName;
use std::fs::{self, File};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The most that packs may take, in bytes. Beyond it those that were used least recently go.
pub(crate) const CACHE_BYTES_MAX: u64 = 20 << 30;

/// How long a pack stays after it was used: a build may be about to link it.
const USED_TIME: Duration = Duration::from_secs(10 * 60);

/// Marks packs in a directory as used now. Packs that are not there, or belong to another user, are
/// left out.
pub(crate) fn mark_used(directory: &Path, names: &[PackName], now: SystemTime) {
    for name in names {
        if let Ok(file) = File::open(directory.join(format!("{name}.pack"))) {
            let _ = file.set_modified(now);
        }
    }
}

/// Removes packs of the repositories in `cache`, the least recently used ones first, until they take
/// at most `bytes_max` bytes. Packs that were used within ten minutes before `now` stay. Returns the
/// number of bytes that were freed. A file that cannot be read or removed is left out. Blocks on
/// file access.
pub(crate) fn evict(cache: &Path, bytes_max: u64, now: SystemTime) -> u64 {
    let Ok(repositories) = fs::read_dir(cache) else { return 0 };
    let mut packs: Vec<StoredPack> = Vec::new();
    for repository in repositories.flatten() {
        let Ok(files) = fs::read_dir(repository.path().join("objects/pack")) else { continue };
        let paths = files.flatten().map(|file| file.path());
        let paths = paths.filter(|path| path.extension().is_some_and(|ending| ending == "pack"));
        packs.extend(paths.filter_map(|path| StoredPack::read(path).ok()));
    }
    packs.sort_by_key(|pack| pack.used_at);
    let mut bytes: u64 = packs.iter().map(|pack| pack.bytes).sum();
    let before = bytes;
    for pack in packs {
        if bytes <= bytes_max || pack.is_in_use(now) {
            break;
        }
        if pack.remove(now).is_ok_and(|removed| removed) {
            bytes -= pack.bytes;
        }
    }
    before - bytes
}

/// A pack in the cache.
struct StoredPack {
    /// The path of the pack file.
    path: PathBuf,
    /// When it was used last.
    used_at: SystemTime,
    /// The size of pack and index.
    bytes: u64,
}

impl StoredPack {
    /// Reads what is known of a pack.
    fn read(path: PathBuf) -> Result<Self> {
        let pack = fs::metadata(&path)?;
        let index = fs::metadata(path.with_extension("idx")).map_or(0, |index| index.len());
        Ok(Self { used_at: pack.modified()?, bytes: pack.len() + index, path })
    }

    /// Returns whether a build may be about to link it.
    fn is_in_use(&self, now: SystemTime) -> bool {
        now.duration_since(self.used_at).map_or(true, |unused| unused < USED_TIME)
    }

    /// Removes it, unless it was used meanwhile. Returns whether it is gone.
    fn remove(&self, now: SystemTime) -> Result<bool> {
        if Self::read(self.path.clone())?.is_in_use(now) {
            return Ok(false);
        }
        // Without its index a pack is not found, and is loaded again.
        fs::remove_file(self.path.with_extension("idx"))?;
        fs::remove_file(&self.path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.3: the disk of an executor does not fill with packs, and those that builds need stay.
    #[test]
    fn the_least_recently_used_packs_go_first_and_those_in_use_stay() {
        let cache = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let name = |number: u32| format!("pack-{number:040x}").parse::<PackName>().unwrap();
        let directories =
            ["one", "two"].map(|project| cache.path().join(project).join("objects/pack"));
        for directory in &directories {
            fs::create_dir_all(directory).unwrap();
        }
        let path =
            |number: u32| directories[number as usize % 2].join(format!("{}.pack", name(number)));
        for number in 0..6 {
            fs::write(path(number), [0; 60]).unwrap();
            fs::write(path(number).with_extension("idx"), [0; 40]).unwrap();
            let used = now - Duration::from_secs(3_600 * u64::from(number + 1));
            mark_used(path(number).parent().unwrap(), &[name(number)], used);
        }
        let left = || (0..6).filter(|number| path(*number).exists()).collect::<Vec<u32>>();
        assert_eq!((evict(cache.path(), 600, now), left()), (0, vec![0, 1, 2, 3, 4, 5]));
        assert_eq!((evict(cache.path(), 450, now), left()), (200, vec![0, 1, 2, 3]));
        assert!(!path(5).with_extension("idx").exists());
        mark_used(&directories[1], &[name(3)], now);
        assert_eq!((evict(cache.path(), 0, now), left()), (300, vec![3]));
        assert_eq!(evict(&cache.path().join("missing"), 0, now), 0);
    }
}
