//! Opens files below a directory that playbooks can write, without following links out of it
//! (Z7.5).
//!
//! A playbook may replace any entry of its directories by a link, a pipe or another directory at
//! any moment. So each path component is opened relative to the one before, no name is looked up
//! twice, and links are refused.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

/// Opens the directory at `path` relative to `root`. An empty path opens `root`. Neither `root` nor
/// any part of the path may be a link; the parents of `root` may. An error if the directory is
/// missing, or `path` is absolute or has a part `..` or a leading `./`.
pub fn open_directory(root: &Path, path: &Path) -> std::io::Result<OwnedFd> {
    let mut at = openat(CWD, root, DIRECTORY, Mode::empty())?;
    for part in path.components() {
        let Component::Normal(name) = part else { return Err(invalid_path()) };
        at = openat(&at, name, DIRECTORY, Mode::empty())?;
    }
    Ok(at)
}

/// Opens the regular file at `path` relative to `root` for reading, without ever blocking. An error
/// if it is missing, a pipe or a directory, `root` or any part of the path is a link, or `path` is
/// empty, absolute or has a part `..` or a leading `./`.
pub fn open_file(root: &Path, path: &Path) -> std::io::Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(invalid_path());
    };
    let parent = open_directory(root, parent)?;
    // Without NONBLOCK, opening a pipe would block until it has a writer.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match openat(&parent, name, flags, Mode::empty()) {
        Err(Errno::LOOP) => {
            return Err(Error::new(ErrorKind::InvalidInput, "it is a symbolic link"));
        }
        opened => opened?,
    };
    if FileType::from_raw_mode(fstat(&opened)?.st_mode) == FileType::RegularFile {
        Ok(opened.into())
    } else {
        Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Reads the regular file at `path` relative to `root` as text, without following links. A file of
/// more than `bytes_max` bytes is an error; it is not cut. Also an error if [`open_file`] fails or
/// the text is not UTF-8.
pub fn read_text(root: &Path, path: &Path, bytes_max: u64) -> std::io::Result<String> {
    let mut text = String::new();
    open_file(root, path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(text)
}

/// Returns the error for a path that leads out of its root.
fn invalid_path() -> Error {
    Error::new(ErrorKind::InvalidInput, "the path must be relative and must not contain . or ..")
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Z7.5
    #[test]
    fn only_regular_files_below_the_directory_are_opened() {
        let scratch = tempfile::tempdir().unwrap();
        let (root, outside) = (scratch.path().join("logs"), scratch.path().join("outside"));
        std::fs::create_dir_all(root.join("deep")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("key"), "private").unwrap();
        std::fs::write(root.join("deep/fine"), "fine").unwrap();
        symlink(outside.join("key"), root.join("link")).unwrap();
        symlink(&outside, root.join("away")).unwrap();
        symlink(&outside, scratch.path().join("replaced")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        assert!(
            std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success()
        );
        let read = |root: &Path, path: &str| read_text(root, path.as_ref(), 10).ok();
        assert_eq!(read(&root, "deep/fine").as_deref(), Some("fine"));
        for path in [
            "link",
            "away/key",
            "deep",
            "socket",
            "pipe",
            "../outside/key",
            "",
            "deep/../deep/fine",
            "missing",
        ] {
            assert_eq!(read(&root, path), None, "{path}");
        }
        assert_eq!(read(&outside, "../outside/key"), None);
        assert_eq!(read(&scratch.path().join("replaced"), "key"), None);
        std::fs::write(root.join("long"), "12345678901").unwrap();
        assert_eq!(read(&root, "long"), None);
    }
}
