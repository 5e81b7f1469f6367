//! Removes the links that lead out of the work directory before a privileged playbook runs (Z7.5).
//!
//! A playbook that may see secrets has a home of its own, from which Ansible and Python load code.
//! It often writes below the work directory by path (`fetch`, `copy`, `synchronize`), where every
//! playbook before it may have left a link to that home.

use crate::jobdir::Jobdir;
use crate::joblog::JobLog;
use std::fs;
use std::path::{Path, PathBuf};

/// The most links that the log names.
const NAMED_MAX: usize = 10;

/// Removes the links in a build's work directory that lead out of it, as [`remove_outward`] does,
/// and names them in the log.
pub async fn remove(jobdir: &Jobdir, log: &mut JobLog<'_>) {
    let (work, src) = (jobdir.work.clone(), jobdir.src.clone());
    // A playbook may have left millions of files.
    let removed = tokio::task::spawn_blocking(move || remove_outward(&work, &src)).await;
    let removed = removed.unwrap_or_default();
    if !removed.is_empty() {
        let named = removed.iter().take(NAMED_MAX).map(|path| path.display().to_string());
        let (count, named) = (removed.len(), named.collect::<Vec<_>>().join(", "));
        log.say(&format!("Removed {count} links that lead out of the work directory: {named}"));
    }
}

/// Removes each link below `work` that leads to nothing, or to something outside of it, and returns
/// their paths relative to `work`, in no order. Links below `src`, the repositories, stay. What
/// cannot be read is left as it is. Call it while no playbook runs.
pub fn remove_outward(work: &Path, src: &Path) -> Vec<PathBuf> {
    let Ok(root) = fs::canonicalize(work) else { return Vec::new() };
    let (mut removed, mut waiting) = (Vec::new(), vec![work.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            let Ok(kind) = kind else { continue };
            if kind.is_dir() && path != src {
                waiting.push(path);
            } else if kind.is_symlink() {
                // What a link passes on its way to a place inside may be outside.
                let stays = fs::canonicalize(&path).is_ok_and(|end| end.starts_with(&root));
                if !stays && fs::remove_file(&path).is_ok() {
                    removed.extend(path.strip_prefix(work).map(Path::to_owned));
                }
            }
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Z7.5
    #[test]
    fn links_that_lead_out_or_nowhere_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let work = scratch.path().join("work");
        let src = work.join("src");
        for directory in [&src.join("repo"), &work.join("logs/deep"), &scratch.path().join("home")]
        {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(work.join("logs/one.log"), "x").unwrap();
        let links = [
            ("logs/latest", PathBuf::from("one.log"), true),
            ("logs/whole", work.join("logs"), true),
            ("logs/deep/up", PathBuf::from("../one.log"), true),
            ("logs/here", PathBuf::from("."), true),
            ("logs/through", PathBuf::from("here/../../../home"), false),
            ("logs/deep/away", scratch.path().join("home"), false),
            ("logs/new", PathBuf::from("../../home/plugins"), false),
            ("logs/missing", PathBuf::from("two.log"), false),
            ("logs/second", PathBuf::from("deep/away"), false),
            ("src/repo/config", PathBuf::from("/etc/hosts"), true),
        ];
        for (path, target, _) in &links {
            symlink(target, work.join(path)).unwrap();
        }
        let mut removed = remove_outward(&work, &src);
        removed.sort();
        let mut expected: Vec<PathBuf> =
            links.iter().filter(|link| !link.2).map(|link| link.0.into()).collect();
        expected.sort();
        assert_eq!(removed, expected);
        for (path, _, stays) in &links {
            assert_eq!(work.join(path).is_symlink(), *stays, "{path}");
        }
        assert!(scratch.path().join("home").is_dir() && work.join("logs/one.log").is_file());
    }
}
