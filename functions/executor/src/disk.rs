//! Watches the disk usage of a build, so that one build cannot fill the disk for all others (Z7.5).

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The maximum number of files of a build.
const FILES_MAX: usize = 5_000_000;
/// The minimum time between two checks; longer if a check itself takes long.
const BETWEEN: Duration = Duration::from_secs(5);

/// A background check of a build's disk usage; dropping it ends the check.
#[derive(Debug)]
pub struct DiskWatch {
    /// True once a limit is exceeded.
    full: watch::Receiver<bool>,
    /// The background task.
    task: JoinHandle<()>,
}

impl DiskWatch {
    /// Starts checking in the background whether the directories `roots` together stay within
    /// `bytes_max` bytes on disk and 5,000,000 files and directories; only [`Self::full`] reports
    /// that they do not. At least five seconds pass between two checks. The checks end when a limit
    /// is exceeded or the returned value is dropped.
    pub fn start(roots: Vec<PathBuf>, bytes_max: u64) -> Self {
        let (sender, full) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let started = Instant::now();
                let at = roots.clone();
                // A check that panicked is repeated.
                if tokio::task::spawn_blocking(move || exceeds_limits(at, bytes_max))
                    .await
                    .unwrap_or(false)
                {
                    sender.send_replace(true);
                    return;
                }
                sleep(BETWEEN.max(started.elapsed() * 20)).await;
            }
        });
        Self { full, task }
    }

    /// Completes once a check finds a limit exceeded, at once if one has; never otherwise.
    pub async fn full(&self) {
        if self.full.clone().wait_for(|full| *full).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns whether the directories `waiting`, with all directories below them, use more than
/// `bytes_max` bytes on disk or contain more than [`FILES_MAX`] files and directories. Allocated
/// blocks count, not the length of sparse files. Links are not followed, and what cannot be read is
/// skipped. Directories so deep that their paths are too long for the system cannot be counted, and
/// no build needs them: they exceed the limits too.
fn exceeds_limits(mut waiting: Vec<PathBuf>, bytes_max: u64) -> bool {
    let (mut bytes, mut files): (u64, usize) = (0, 0);
    while let Some(directory) = waiting.pop() {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::InvalidFilename => return true,
            // A directory may be removed concurrently.
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.blocks() * 512;
            files += 1;
            if bytes > bytes_max || files > FILES_MAX {
                return true;
            }
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.5
    #[tokio::test]
    async fn allocated_blocks_count_and_not_the_length_of_sparse_files() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("deep")).unwrap();
        std::fs::File::create(root.path().join("deep/sparse")).unwrap().set_len(1 << 40).unwrap();
        let roots = vec![root.path().to_owned()];
        assert!(!exceeds_limits(roots.clone(), 1 << 20));
        std::fs::write(root.path().join("deep/full"), vec![1; 2 << 20]).unwrap();
        assert!(exceeds_limits(roots.clone(), 1 << 20));
        DiskWatch::start(roots, 1 << 20).full().await;
    }

    /// Z7.5: files cannot be hidden from the count in directories that are too deep to be opened.
    #[test]
    fn directories_with_too_long_paths_exceed_the_limits() {
        let root = tempfile::tempdir().unwrap();
        let script = "import os\nfor i in range(30):\n os.mkdir('d' * 200); os.chdir('d' * 200)";
        let mut python = std::process::Command::new("python3");
        let made = python.args(["-c", script]).current_dir(root.path()).status().unwrap();
        assert!(made.success());
        assert!(exceeds_limits(vec![root.path().to_owned()], 1 << 40));
    }
}
