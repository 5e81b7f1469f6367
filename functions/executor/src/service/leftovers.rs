//! Removes the build directories that a killed executor has left, with the checkouts in them.
//!
//! Beside each directory is a lock file, `<build>.lock`, which its executor holds from before the
//! directory exists until it is removed. The kernel releases the lock when the process ends.

use std::fs::{self, DirBuilder, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Locks a build's directory, which need not exist, until the returned file is closed. An error if
/// another process holds the lock.
pub(super) fn lock(directory: &Path) -> Result<File, Error> {
    if let Some(builds) = directory.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(builds)?;
    }
    let file =
        File::options().create(true).truncate(false).write(true).open(lock_path(directory))?;
    file.try_lock()?;
    Ok(file)
}

/// Removes a build's directory and then its lock file. The error is that of the directory.
pub(super) fn remove(directory: &Path) -> Result<(), Error> {
    let removed = crate::process::remove_tree(directory);
    // Without its directory the file is only an empty one.
    let _ = fs::remove_file(lock_path(directory));
    removed
}

/// Removes the directories in `builds` whose lock is not held. Each removal and each failure is
/// logged. Does nothing if `builds` cannot be read. Blocks on file access.
pub(super) fn remove_dead(builds: &Path) {
    let Ok(entries) = fs::read_dir(builds) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        let directory = entry.path();
        let held = match File::open(lock_path(&directory)) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => Some(lock),
                Err(_) => continue,
            },
            // The lock is older than the directory.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(_) => continue,
        };
        match remove(&directory) {
            Ok(()) => {
                tracing::info!(path = %directory.display(), "removed the directory of a build whose executor was killed")
            }
            Err(error) => {
                tracing::warn!(path = %directory.display(), %error, "could not remove the directory of a build whose executor was killed: remove it to free its disk space")
            }
        }
        drop(held);
    }
}

/// Returns the path of the lock file of a build's directory.
fn lock_path(directory: &Path) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.3: the disk of an executor does not fill with what killed ones have left.
    #[test]
    fn directories_of_killed_executors_are_removed_and_those_in_use_stay() {
        let state = tempfile::tempdir().unwrap();
        let builds = state.path().join("builds");
        remove_dead(&builds);
        let [living, killed, old] = ["living", "killed", "old"].map(|name| builds.join(name));
        let held = lock(&living).unwrap();
        drop(lock(&killed).unwrap());
        for directory in [&living, &killed, &old] {
            fs::create_dir_all(directory.join("work/src")).unwrap();
        }
        assert!(lock(&living).is_err(), "it is locked once");
        remove_dead(&builds);
        assert!(living.join("work/src").exists() && !killed.exists() && !old.exists());
        assert!(!lock_path(&killed).exists());
        remove(&living).unwrap();
        drop(held);
        assert_eq!(fs::read_dir(&builds).unwrap().count(), 0);
    }
}
