//! Finds files that earlier playbooks left in the executor's home directory of a build.
//!
//! Such a file can change what a later playbook does, for example the configuration of a program
//! that it runs. Files that are safe are listed in the job's `preserve-home-paths`; a build with
//! other files gets a warning, as in Zuul.

use std::fs;
use std::path::Path;

/// The maximum number of directory entries that are looked at.
const ENTRIES_MAX: usize = 2_000;
/// The maximum number of files that are named.
pub const FILES_MAX: usize = 10;
/// The directory that the executor itself puts into each home, read-only.
const OWN_DIRECTORY: &str = ".ssh";

/// Returns the files below `home`, relative to it and sorted, that are neither listed in `preserved`
/// nor below a listed directory; at most [`FILES_MAX`]. Links are not followed. A directory that
/// cannot be read counts as empty. Entries after the first [`ENTRIES_MAX`] are not looked at.
pub fn unlisted(home: &Path, preserved: &[String]) -> Vec<String> {
    let preserved: Vec<&Path> =
        preserved.iter().map(|path| Path::new(path.strip_prefix("~/").unwrap_or(path))).collect();
    let mut found = Vec::new();
    let mut entries_left = ENTRIES_MAX;
    let mut directories = vec![home.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Some(left) = entries_left.checked_sub(1) else { break };
            entries_left = left;
            let path = entry.path();
            let Ok(relative) = path.strip_prefix(home) else { continue };
            let is_listed = preserved.iter().any(|listed| relative.starts_with(listed));
            if is_listed || relative == Path::new(OWN_DIRECTORY) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(path);
            } else {
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found.truncate(FILES_MAX);
    found
}

/// Returns the warning about `files`, which earlier playbooks left.
pub fn warning(files: &[String]) -> String {
    format!(
        "Playbooks left files in the home directory on the executor that later playbooks read: {}. \
         If they are safe, add them to the job's preserve-home-paths.",
        files.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.5
    #[test]
    fn files_that_no_list_names_are_found() {
        let home = tempfile::tempdir().unwrap();
        for path in [".docker/config.json", ".cache/pip/one", ".gitconfig", ".ssh/config"] {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("/etc", home.path().join("away")).unwrap();
        let listed = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            unlisted(home.path(), &paths)
        };
        assert_eq!(listed(&[]), [".cache/pip/one", ".docker/config.json", ".gitconfig", "away"]);
        assert_eq!(listed(&[".cache", "~/.gitconfig", "away"]), [".docker/config.json"]);
        assert_eq!(listed(&["."]).len(), 4, "a path is compared as written");
        for number in 0..20 {
            fs::write(home.path().join(format!("file-{number}")), "").unwrap();
        }
        assert_eq!(listed(&[]).len(), FILES_MAX);
    }
}
